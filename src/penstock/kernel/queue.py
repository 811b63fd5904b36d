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
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from itertools import islice
from threading import Event, Lock
from typing import Final, NamedTuple

import msgspec

from penstock.errors import (
    Damaged,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    ReferenceNotFound,
    TryAgainError,
    Unavailable,
)
from penstock.kernel.chain import Chain
from penstock.kernel.format import PrepareAgain
from penstock.kernel.objects import Objects, check_object
from penstock.kernel.reflog import RECEIPT_WINDOW_US, RefLog, key_reused, receipt, receipt_id
from penstock.kernel.request import MADE_KEY_CHARS, MadeKey, NextBatch, Request
from penstock.kernel.retry import Tries
from penstock.kernel.rows import live, row_of
from penstock.kernel.settings import Settings
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import BATCH_REQUESTS, QUEUE_DEPTH, QUEUE_WAIT_SECONDS, SWAPS_LOST, TRIES
from penstock.model.clock import Clock
from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, Landed, LogEntry, Receipt
from penstock.model.references import Event as LogEvent
from penstock.model.references import Kind, Reference
from penstock.stores.port import Row, Store, Turn

ENTRY_MAX_CHARS: Final = 32 * 1024
"""Of all keys and authors that one log entry names, so that it stays a small object."""


class Outcome(NamedTuple):
    """What became of a request: its commits, oldest first, and the branch's head after them.

    ``repeated`` says that an earlier request with the same idempotency key had done it.
    """

    commits: tuple[ObjectId, ...]
    head: ObjectId
    repeated: bool = False
    newest: CommitObject | None = None
    """The newest of the commits, where it is at hand."""


class Ticket:
    """A request in the queue, and its answer once there is one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.arrived_s = time.perf_counter()
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.is_abandoned = False
        self.in_doubt_from: int | None = request.doubt_from
        """The log position from which an earlier try may have landed it."""
        self.was_sent = False
        """Whether it was part of a batch that was sent to the store."""
        self.may_have_landed = False
        """Whether it was, and nothing has told yet what came of it."""
        self.tried_at = 0
        """The log's position at the last try."""
        self.receipt_number = 0
        self.receipt_is_ours = False
        self._incarnation: bytes | None = None
        self._asleep = Lock()
        self._asleep.acquire()

    def meet(self, incarnation: bytes) -> None:
        """Forget receipts that were written for a branch which has been created anew since."""
        if incarnation != self._incarnation:
            self._incarnation, self.receipt_number, self.receipt_is_ours = incarnation, 0, False

    @property
    def is_answered(self) -> bool:
        return self.outcome is not None or self.error is not None

    def wait(self) -> None:
        """Until it is answered, or its thread is to lead."""
        self._asleep.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # nobody sleeps on it: its thread was interrupted
            self._asleep.release()


class _Flight:
    """A batch whose objects are durable and whose swap is in flight, while the next one is being written."""

    def __init__(self, leader: Ticket, tickets: Collection[Ticket], position: int) -> None:
        self.leader, self.tickets = leader, frozenset(tickets)
        self.position = position
        """Of the log before it."""
        self.has_landed = False
        self.wants_back = False
        """It did not land, and its leader waits to lead again."""
        self.is_over = Event()


class _Overtaken(Exception):
    """The batch before this one did not land, so what this one was applied to does not exist."""


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
    ) -> None:
        self.name, self._meter = name, meter
        self._store, self._objects, self._clock, self._settings = store, objects, clock, settings
        self._log = RefLog(objects)
        self._lock = Lock()
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._ahead: _Flight | None = None
        self._row: Row | None = None
        self._chain: Chain | None = None
        self.remembered: Row | None = None
        """The row as this queue left it: it still is so, unless somebody else moved it."""

    @property
    def is_idle(self) -> bool:
        return self._leader is None and self._ahead is None

    def submit(self, request: Request) -> Outcome:
        """Queue a request, and return what became of it or raise why it was refused."""
        ticket = Ticket(request)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if self._leader is None:
                    self._leader = ticket
            while not ticket.is_answered:
                if self._leads(ticket):
                    self._lead(ticket)
                else:
                    ticket.wait()
            self._hand_over(ticket)
        except BaseException:
            # Interrupted. The request may still land, but its thread cannot lead.
            ticket.is_abandoned = True
            self._hand_over(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        assert ticket.outcome is not None
        return ticket.outcome

    def _leads(self, ticket: Ticket) -> bool:
        with self._lock:  # whoever hands over wakes the next one first
            return self._leader is ticket

    def _lead(self, ticket: Ticket) -> None:
        """Run one batch. Requests leave the queue when they are answered, so none is lost on the way."""
        try:
            batch = self._next_batch()
            self._measure(batch)
            _Batch(self, ticket, batch).run()
        finally:
            self._end_flight(ticket)
            with self._lock:
                self._dismiss()
                if self._leader is None:
                    self._choose_leader(None)

    def _measure(self, batch: list[Ticket]) -> None:
        if self._meter is SILENT:
            return
        now_s = time.perf_counter()
        self._meter.gauge(QUEUE_DEPTH, len(self._waiting), branch=self.name)
        self._meter.observe(BATCH_REQUESTS, len(batch))
        for ticket in batch:
            self._meter.observe(QUEUE_WAIT_SECONDS, now_s - ticket.arrived_s)

    def _next_batch(self) -> list[Ticket]:
        """The requests that wait, as many as one swap may land and its log entry may name."""
        batch: list[Ticket] = []
        room = ENTRY_MAX_CHARS
        with self._lock:
            free = (ticket for ticket in self._waiting if not self._is_ahead(ticket))
            for ticket in islice(free, self._settings.batch_max):
                batch.append(ticket)
                room -= (len(ticket.request.key) or MADE_KEY_CHARS) + len(ticket.request.author)
                if room <= 0:
                    break
        return batch

    def _is_ahead(self, ticket: Ticket) -> bool:
        return self._ahead is not None and ticket in self._ahead.tickets

    def _hand_over(self, ticket: Ticket) -> None:
        """Let the next in line lead, if it was this one so far. Interrupted anywhere, it can be repeated."""
        self._end_flight(ticket)
        with self._lock:
            if self._leader is ticket or self._leader is None:
                self._choose_leader(ticket)

    def _dismiss(self) -> None:
        """Let those go that are answered; called with the lock held.

        Each is looked at once, since another thread may be answering it: who is not woken stays.
        """
        staying: deque[Ticket] = deque()
        for one in self._waiting:
            if one.is_answered:
                one.wake()
            else:
                staying.append(one)
        self._waiting = staying

    def _choose_leader(self, leaving: Ticket | None) -> None:
        """The one whose batch came back, else the next in line; called with the lock held."""
        self._dismiss()
        if self._ahead is not None and self._ahead.wants_back and self._ahead.leader is not leaving:
            heir: Ticket | None = self._ahead.leader
        else:
            heirs = (one for one in self._waiting if one is not leaving and not one.is_abandoned)
            heir = next((one for one in heirs if not self._is_ahead(one)), None)
        if heir is None:
            # Nobody is left to lead those whose threads are gone.
            self._waiting = deque(one for one in self._waiting if self._is_ahead(one) or not one.is_abandoned)
            self._meter.gauge(QUEUE_DEPTH, len(self._waiting), branch=self.name)
        else:
            heir.wake()
        self._leader = heir

    # -- the batch whose swap is in flight ---------------------------------------------------------------

    @property
    def ahead(self) -> _Flight | None:
        return self._ahead

    def take_off(self, flight: _Flight) -> None:
        """A batch is about to be swapped: let the next in line write its own meanwhile."""
        with self._lock:
            self._ahead = flight
            self._choose_leader(flight.leader)

    def come_back(self, flight: _Flight) -> None:
        """A batch did not land: its leader leads again, as soon as whoever does now gives way."""
        with self._lock:
            flight.wants_back = True
            if self._leader is None:
                self._choose_leader(None)
        flight.is_over.set()
        while not self._leads(flight.leader):
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
                    self.forget()
                flight.is_over.set()
                self._ahead = None

    # -- the head in memory ------------------------------------------------------------------------------

    def chain_at(self, row: Row, reference: Reference) -> Chain:
        """The branch's head in memory: as it was left, or read anew if another process moved it."""
        chain = self._chain
        if chain is None or self._row != row:
            chain = self._chain = Chain(self._objects, reference.head)
            self._row = row
        return chain

    def keep(self, row: Row, chain: Chain) -> None:
        """The branch is at this row and this chain now."""
        chain.settle()
        self._row, self._chain, self.remembered = row, chain, row

    def forget(self) -> None:
        """What is in memory may not be what is stored."""
        self._row = self._chain = self.remembered = None


class _Batch:
    """One batch: apply, store, swap, answer; again where another process was faster."""

    def __init__(self, queue: BranchQueue, leader: Ticket, tickets: list[Ticket]) -> None:
        self._queue, self._leader = queue, leader
        self._before: _Flight | None = None
        """The batch in flight that this one goes by."""
        self._flight: _Flight | None = None
        self._open = [ticket for ticket in tickets if not ticket.is_answered]
        self._store, self._log = queue._store, queue._log
        self._accepted: list[tuple[Ticket, int]] = []
        self._answers: list[tuple[Ticket, BaseException | Outcome]] = []

    def run(self) -> None:
        tries = Tries(self._queue._settings)
        lost: str | Unavailable | None
        while self._open:
            try:
                lost = self._attempt()
                if lost is None:
                    if self._flight is None:
                        continue
                    if self._flight.has_landed:
                        return  # others lead since it was written
            except _Overtaken:
                self._queue.forget()
                if self._queue.give_way():
                    return
                continue
            except OutcomeUnknown as unknown:
                lost = str(unknown)
            except Unavailable as unavailable:
                lost = unavailable
            except PenstockError as problem:
                self._give_up(problem)
                return
            except BaseException:
                self._queue.forget()
                raise
            if self._flight is not None:
                self._queue.come_back(self._flight)
                self._flight = None
            self._queue.forget()
            try:
                if lost is not None:
                    tries.again(lost)
            except TryAgainError as exhausted:
                self._give_up(exhausted)

    def _give_up(self, problem: PenstockError) -> None:
        self._queue.forget()
        for ticket in self._open:
            ticket.error = self._doubt(ticket, problem) if ticket.may_have_landed else copy(problem)
        self._open = []

    def _doubt(self, ticket: Ticket, problem: PenstockError) -> OutcomeUnknown:
        key = ticket.request.key
        return OutcomeUnknown(
            f"{self._store.url} did not answer while committing to '{self._queue.name}': {problem}\n"
            f"  It is not known yet whether request {key} was applied.\n"
            f"  Repeating the request with idempotency key {key} is safe and tells.",
            key=key,
            name=self._queue.name,
        )

    def _attempt(self) -> str | None:
        """One try at moving the branch; says why if it was lost, else it answered at least one request."""
        queue = self._queue
        queue._meter.count(TRIES, branch=queue.name)
        self._before, remembered = queue.ahead, queue.remembered
        if remembered is None or any(ticket.in_doubt_from is not None for ticket in self._open):
            self._wait_for_the_one_before()
        with self._store.turn(queue.name, remembered) as turn:
            reference = live(turn.row)
            if turn.row is None or reference is None:
                raise ReferenceNotFound(f"there is no branch '{queue.name}'", name=queue.name)
            if reference.kind is not Kind.BRANCH:
                raise InvalidRequest(f"'{queue.name}' is a tag; only branches take commits", name=queue.name)
            self._find_landed(reference)
            chain = queue.chain_at(turn.row, reference)
            self._apply(chain, reference)
            if self._accepted:
                return self._advance(turn, chain, reference)
            is_certain = turn.is_certain
        if not is_certain:
            self._wait_for_the_one_before()
            queue.forget()  # a refusal must not rest on a row that is only remembered
            if self._refuses:
                return self._attempt()
        self._answer()
        return None

    def _wait_for_the_one_before(self) -> None:
        """Until the batch that this one goes by has landed; ``_Overtaken`` if it has not."""
        before, self._before = self._before, None
        if before is not None:
            before.is_over.wait()
            if not before.has_landed:
                raise _Overtaken

    @property
    def _refuses(self) -> bool:
        return not all(isinstance(answer, PrepareAgain) for _, answer in self._answers)

    def _find_landed(self, reference: Reference) -> None:
        """Answer those that an earlier try landed after all."""
        for ticket in self._open:
            since = ticket.in_doubt_from
            if since is None or since >= reference.position:
                continue
            found = self._log.find(reference, ticket.request.key, since)
            if found is not None:
                known = outcome_of(self._queue._objects, found[1], ticket.request.key)
                ticket.outcome = known._replace(repeated=not ticket.was_sent)
            if reference.position > ticket.tried_at:
                ticket.may_have_landed = False  # others moved the branch, so that this cannot any more
            ticket.in_doubt_from = reference.position
        self._open = [ticket for ticket in self._open if not ticket.is_answered]

    def _apply(self, chain: Chain, reference: Reference) -> None:
        """Apply the requests one after the other; each is accepted or refused on its own.

        Nobody is answered yet: a refusal may rest on a request before it that has not landed.
        """
        self._accepted, self._answers = [], []
        if chain.is_cold:
            with suppress(Damaged):  # whoever needs what is damaged is told at its turn
                chain.warm({key for ticket in self._open for key in ticket.request.touched})
        keys: dict[str, Ticket] = {}
        for ticket in self._open:
            request = ticket.request
            if not request.key_is_given and not request.key:
                request.key = str(
                    MadeKey.of(self._settled_position(reference), self._queue._clock(), request.digest)
                )
            first = keys.setdefault(request.key, ticket)
            if first is not ticket:
                if first.request.digest != request.digest:
                    self._answers.append((ticket, key_reused(request.key)))
                continue  # the same request twice: once the first has landed, the second finds it
            try:
                request.check_reference(reference, chain)
                drafts = request.apply(chain, reference)
            except NextBatch:
                continue
            except Unavailable:
                raise  # of the store, not of the request: the whole batch is tried again
            except (PenstockError, PrepareAgain) as refused:
                self._answers.append((ticket, refused))
                continue
            except Exception as bug:  # noqa: BLE001 - it goes to whoever asked, and to nobody else
                self._answers.append((ticket, bug))
                continue
            if not drafts:
                self._answers.append((ticket, Outcome((), reference.head)))
                continue
            for draft in drafts:
                chain.add(draft)
            self._accepted.append((ticket, len(drafts)))

    def _advance(self, turn: Turn, chain: Chain, reference: Reference) -> str | None:
        """Store what was accepted and swap the branch."""
        now_us = self._queue._clock()
        sealed = iter(chain.seal(now_us))
        landed, outcomes = [], []
        for ticket, count in self._accepted:
            commits = [next(sealed) for _ in range(count)]
            head, newest = commits[-1]
            request = ticket.request
            landed.append(Landed(request.event.value, request.key, request.author, head, count))
            outcomes.append((ticket, Outcome(tuple(one for one, _ in commits), head, newest=newest)))
        kinds = {each.kind for each in landed}
        one, data, entry = self._log.entry(
            reference,
            LogEvent(kinds.pop()) if len(kinds) == 1 else LogEvent.COMMIT,
            name=reference.name,
            incarnation=reference.incarnation,
            head=chain.tip,
            now_us=now_us,
            who=landed[0].author,
            landed=tuple(landed),
        )
        row = row_of(msgspec.structs.replace(reference, head=chain.tip, log=one, position=entry.position))
        position = self._settled_position(reference)
        receipts = self._receipts(reference, position, entry.time_us)

        def keep() -> None:
            self._queue._objects.remember(one, entry, len(data))
            self._queue.keep(row, chain)

        def written() -> None:
            """All that can be is written: the next batch can be while this one is swapped."""
            self._wait_for_the_one_before()
            self._open = [ticket for ticket, _ in (*self._accepted, *self._answers)]
            self._flight = _Flight(self._leader, self._open, reference.position)
            keep()
            self._queue.take_off(self._flight)

        turn.written = written
        doubts = [(ticket, ticket.may_have_landed) for ticket, _ in self._accepted]
        for ticket, _ in self._accepted:
            ticket.in_doubt_from, ticket.tried_at = position, reference.position
            ticket.was_sent = ticket.may_have_landed = True
        try:
            advanced = turn.advance({**chain.objects.fresh, one: data, **receipts}, row, receipts.keys())
        except OutcomeUnknown:
            raise
        except (PenstockError, _Overtaken):
            _restore(doubts)
            raise
        if advanced.swapped:
            if self._flight is None:
                keep()
            else:
                self._flight.has_landed = True
                self._flight.is_over.set()
            self._answers += outcomes
            self._answer()
            return None
        _restore(doubts)
        if self._flight is None:
            self._wait_for_the_one_before()
            self._queue.forget()
        if not advanced.present:
            self._queue._meter.count(SWAPS_LOST, branch=reference.name)
        self._look_at_receipts(reference, receipts.keys(), advanced.present)
        return None if advanced.present else f"another process moved '{reference.name}'"

    def _settled_position(self, reference: Reference) -> int:
        """From where in the log to look for these requests: not from what another batch is still to add."""
        return self._before.position if self._before is not None else reference.position

    def _receipts(self, reference: Reference, position: int, time_us: int) -> dict[ObjectId, bytes]:
        """The receipts to be stored with a batch; a key whose receipt is there already was used before.

        A key that Penstock makes needs none: it tells itself from where in the log to look.
        """
        for ticket, _ in self._accepted:
            ticket.meet(reference.incarnation)
        return {
            self._receipt_id(ticket, reference): receipt(ticket.request.digest, position, time_us)
            for ticket, _ in self._accepted
            if not ticket.receipt_is_ours and ticket.request.key_is_given
        }

    def _receipt_id(self, ticket: Ticket, reference: Reference) -> ObjectId:
        return receipt_id(reference.incarnation, ticket.request.key, ticket.receipt_number)

    def _look_at_receipts(
        self, reference: Reference, tried: Collection[ObjectId], present: Collection[ObjectId]
    ) -> None:
        """After a swap that was not done: settle keys used before, remember receipts left behind."""
        stored = self._store.fetch(tried)
        for ticket, _ in self._accepted:
            one = self._receipt_id(ticket, reference)
            if one in present and one in stored:
                self._resolve(ticket, stored[one], one, reference)
            elif one in stored:
                ticket.receipt_is_ours = True
        self._open = [ticket for ticket in self._open if not ticket.is_answered]

    def _resolve(self, ticket: Ticket, data: bytes, one: ObjectId, reference: Reference) -> None:
        """The key was used before: by this very request, then that is the answer, or by another one."""
        known = check_object(one, data)
        assert isinstance(known, Receipt)
        key = ticket.request.key
        if known.request != ticket.request.digest:
            ticket.error = key_reused(key)
            return
        found = self._log.find(reference, key, known.position, known.time_us + RECEIPT_WINDOW_US)
        if found is not None:
            ticket.outcome = outcome_of(self._queue._objects, found[1], key)._replace(repeated=True)
        else:
            ticket.receipt_number += 1  # that try came to nothing; this one gets a receipt of its own

    def _answer(self) -> None:
        for ticket, answer in self._answers:
            if isinstance(answer, Outcome):
                ticket.outcome = answer
            else:
                ticket.error = answer
        self._open = [ticket for ticket in self._open if not ticket.is_answered]


def _restore(doubts: list[tuple[Ticket, bool]]) -> None:
    """This try surely came to nothing; what is not known of earlier ones is still not known."""
    for ticket, may_have_landed in doubts:
        ticket.may_have_landed = may_have_landed


def outcome_of(objects: Objects, entry: LogEntry, key: str) -> Outcome:
    """What a request came to, from the log entry that landed it."""
    for landed in entry.landed:
        if landed.key == key:
            commits = [landed.commit]
            while len(commits) < landed.count:
                commits.append(objects.commit(commits[-1]).parent)
            return Outcome(tuple(reversed(commits)), landed.commit)
    return Outcome((), entry.after)
