"""The queue of a branch: group commit.

While one batch of requests is being stored, the next one gathers. The first to find the branch idle leads:
it takes all that wait, applies them one after the other to the head in memory, stores their objects and
moves the branch by one swap; then the next in line leads. No timer: an idle branch commits at once. First
come, first served. A refused request costs the others nothing.

On a store that writes objects before it swaps, the next batch is applied and written while the swap of the
one before it is in flight: it goes by a row that is not stored yet. Nobody is answered by such a row. If the
swap in flight comes to nothing, its batch leads again, and the one behind it starts anew.

The queue is one process's. Several processes on one store stay correct because the swap decides.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from threading import Condition, Lock
from time import monotonic
from typing import Final

from penstock.kernel.batch import Batch, BatchInFlight, RequestOutcome, Ticket
from penstock.kernel.chain import CommitChain
from penstock.kernel.objects import Objects
from penstock.kernel.reflog import RefLog
from penstock.kernel.request import MADE_KEY_CHARS, Request, make_branch_label
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import paced_reads
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import BATCH_REQUESTS, QUEUE_DEPTH, QUEUE_WAIT_SECONDS
from penstock.model.clock import Clock
from penstock.model.references import Reference
from penstock.stores.port import Row, Store

ENTRY_MAX_CHARS: Final = 32 * 1024
"""Of all keys and authors that one log entry names, so that it stays a small object."""


class BranchQueue:
    """The queue of one branch in one process."""

    def __init__(
        self,
        name: str,
        store: Store,
        objects: Objects,
        clock: Clock,
        settings: Settings,
        meter: Meter = SILENT,
        forget_horizons: Callable[[], None] | None = None,
    ) -> None:
        self._forget_horizons = forget_horizons
        """Called when another process has moved the branch: it may be by an erase."""
        self.name, self.label, self.meter = name, make_branch_label(name), meter
        self.store, self.objects, self.clock, self.settings = store, objects, clock, settings
        self.log = RefLog(objects)
        self._lock = Lock()
        self.preparations = PreparationLine()
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._ahead: BatchInFlight | None = None
        self._row: Row | None = None
        self._chain: CommitChain | None = None
        self.remembered: Row | None = None
        """The row as this queue left it: it still is so, unless somebody else moved it."""

    @property
    def is_idle(self) -> bool:
        return self._leader is None and self._ahead is None and not len(self.preparations)

    def submit_request(self, request: Request) -> RequestOutcome:
        """Queue a request, and return what became of it or raise why it was refused."""
        with paced_reads(None):  # who leads works for others too
            return self._submit_and_wait(request)

    def _submit_and_wait(self, request: Request) -> RequestOutcome:
        ticket = Ticket(request)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if self._leader is None:
                    self._leader = ticket
            while not ticket.is_answered:
                if self._is_leader(ticket):
                    self._run_batch(ticket)
                else:
                    ticket.wait()
            self._hand_over_lead(ticket)
        except BaseException:
            # Interrupted. The request may still land, but its thread cannot lead.
            ticket.is_abandoned = True
            self._hand_over_lead(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        assert ticket.outcome is not None
        return ticket.outcome

    def _is_leader(self, ticket: Ticket) -> bool:
        with self._lock:  # whoever hands over wakes the next one first
            return self._leader is ticket

    def _run_batch(self, ticket: Ticket) -> None:
        """Run one batch. Requests leave the queue when they are answered, so none is lost on the way."""
        try:
            batch = self._take_next_batch()
            self._measure_batch(batch)
            Batch(self, ticket, batch).run()
        finally:
            self._end_flight(ticket)
            with self._lock:
                self._release_answered()
                if self._leader is None:
                    self._choose_leader(None)

    def _measure_batch(self, batch: list[Ticket]) -> None:
        if self.meter is SILENT:
            return
        now_s = time.perf_counter()
        self.meter.gauge(QUEUE_DEPTH, len(self._waiting), branch=self.label)
        self.meter.observe(BATCH_REQUESTS, len(batch))
        for ticket in batch:
            self.meter.observe(QUEUE_WAIT_SECONDS, now_s - ticket.arrived_s)

    def _take_next_batch(self) -> list[Ticket]:
        """The requests that wait, as many as one swap may land and its log entry may name."""
        batch: list[Ticket] = []
        room = ENTRY_MAX_CHARS
        with self._lock:
            free = (ticket for ticket in self._waiting if not self._is_ahead(ticket))
            for ticket in islice(free, self.settings.batch_max):
                batch.append(ticket)
                room -= (len(ticket.request.key) or MADE_KEY_CHARS) + len(ticket.request.author)
                if room <= 0:
                    break
        return batch

    def _is_ahead(self, ticket: Ticket) -> bool:
        return self._ahead is not None and ticket in self._ahead.tickets

    def _hand_over_lead(self, ticket: Ticket) -> None:
        """Let the next in line lead, if it was this one so far. Interrupted anywhere, it can be repeated."""
        self._end_flight(ticket)
        with self._lock:
            if self._leader is ticket or self._leader is None:
                self._choose_leader(ticket)

    def _release_answered(self) -> None:
        """Let those go that are answered; called with the lock held.

        Each is looked at once, since another thread may be answering it: who is not woken stays.
        """
        staying: deque[Ticket] = deque()
        for ticket in self._waiting:
            if ticket.is_answered:
                ticket.wake_waiter()
            else:
                staying.append(ticket)
        self._waiting = staying

    def _choose_leader(self, leaving: Ticket | None) -> None:
        """The one whose batch came back, else the next in line; called with the lock held."""
        self._release_answered()
        if self._ahead is not None and self._ahead.wants_back and self._ahead.leader is not leaving:
            heir: Ticket | None = self._ahead.leader
        else:
            heirs = (ticket for ticket in self._waiting if ticket is not leaving and not ticket.is_abandoned)
            heir = next((ticket for ticket in heirs if not self._is_ahead(ticket)), None)
        if heir is None:
            # Nobody is left to lead those whose threads are gone.
            self._waiting = deque(
                ticket for ticket in self._waiting if self._is_ahead(ticket) or not ticket.is_abandoned
            )
            self.meter.gauge(QUEUE_DEPTH, len(self._waiting), branch=self.label)
        else:
            heir.wake_waiter()
        self._leader = heir

    # -- the batch whose swap is in flight ---------------------------------------------------------------

    @property
    def batch_ahead(self) -> BatchInFlight | None:
        return self._ahead

    def take_off(self, flight: BatchInFlight) -> None:
        """A batch is about to be swapped: let the next in line write its own meanwhile."""
        with self._lock:
            self._ahead = flight
            self._choose_leader(flight.leader)

    def requeue_batch(self, flight: BatchInFlight) -> None:
        """A batch did not land: its leader leads again, as soon as whoever does now gives way."""
        with self._lock:
            flight.wants_back = True
            if self._leader is None:
                self._choose_leader(None)
        flight.is_over.set()
        while not self._is_leader(flight.leader):
            flight.leader.wait()
        self._end_flight(flight.leader)

    def give_way(self) -> bool:
        """Let a batch that came back lead, if there is one."""
        with self._lock:
            if self._ahead is None or not self._ahead.wants_back:
                return False
            self._choose_leader(None)
            return True

    def _end_flight(self, leader: Ticket) -> None:
        """Nobody flies any more, if it was the batch of this one.

        What did not land is forgotten first: who finds nobody ahead takes what is remembered as settled.
        """
        with self._lock:
            flight = self._ahead
            if flight is not None and flight.leader is leader:
                if not flight.has_landed:
                    self.forget_chain()
                flight.is_over.set()
                self._ahead = None

    # -- the head in memory ------------------------------------------------------------------------------

    def load_chain(self, row: Row, reference: Reference) -> CommitChain:
        """The branch's head in memory: as it was left, or read anew if another process moved it."""
        chain = self._chain
        if chain is None or self._row != row:
            chain = self._chain = CommitChain(self.objects, reference.head)
            if self._forget_horizons is not None:
                self._forget_horizons()
            self._row = row
        return chain

    def keep_chain(self, row: Row, chain: CommitChain) -> None:
        """The branch is at this row and this chain now."""
        chain.note_stored()
        self._row, self._chain, self.remembered = row, chain, row

    def forget_chain(self) -> None:
        """What is in memory may not be what is stored."""
        self._row = self._chain = self.remembered = None


# The order in which requests to one branch are prepared once more.
#
# Requests to one table that are prepared at the same time refuse each other: one lands, and all others have
# worked in vain. One after the other, each lands. So a request that was refused waits in line, first come,
# first served. If the first in line is refused again, because requests that never waited land before it,
# further requests that need preparation join the line before their first one: the first in line can then lose
# only to those that were being prepared already.


class PreparationLine:
    """The requests to one branch that wait to be prepared, in one process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._line: deque[PreparationTurn] = deque()

    def take_turn(self) -> PreparationTurn:
        """The turn of one request, which leaves the line at the end of a ``with``."""
        return PreparationTurn(self)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_contended(self) -> bool:
        """Whether the first in line was refused although it had the turn."""
        try:
            return self._line[0].refusals > 0
        except IndexError:
            return False

    def wait(self, turn: PreparationTurn, stalled_s: float, ends_s: float) -> None:
        """Until the turn is the first in line; at most ``stalled_s`` for each that is first before it."""
        with self._changed:
            if turn not in self._line:
                self._line.append(turn)
            first, since_s = self._line[0], monotonic()
            while self._line[0] is not turn:
                if self._line[0] is not first:
                    first, since_s = self._line[0], monotonic()
                left_s = min(ends_s, since_s + stalled_s) - monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def leave_line(self, turn: PreparationTurn) -> None:
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
                self._changed.notify_all()


class PreparationTurn:
    """The place of one request in the line, once it has one. Used by the request's own thread."""

    def __init__(self, line: PreparationLine) -> None:
        self._line = line
        self._ends_s: float | None = None
        """When it waits no longer, whoever is first; set when it joins the line."""
        self.refusals = 0
        """How often it was refused since it joined the line."""

    def __enter__(self) -> PreparationTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends_s is not None:
            self._line.leave_line(self)

    def wait(self, stalled_s: float, wait_max_s: float) -> float:
        """Join the line, and wait to be first in it. Returns how many seconds that took.

        A request that waits for longer than ``stalled_s`` while the first in line stays the same, whose
        storage may be slow, goes on without being first, and keeps its place. All its waits together take at
        most ``wait_max_s``.
        """
        began_s = monotonic()
        if self._ends_s is None:
            self._ends_s = began_s + wait_max_s
        self._line.wait(self, stalled_s, self._ends_s)
        return monotonic() - began_s

    def note_wasted_preparation(self) -> None:
        """The request was prepared in vain."""
        if self._ends_s is not None:
            self.refusals += 1
