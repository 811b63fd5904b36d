"""The queue of a branch: group commit.

While one batch of requests is being stored, the next one gathers. The first to find the branch idle leads:
it takes all that wait, applies them one after the other to the head in memory, stores their objects and
moves the branch by one swap; then the next in line leads. No timer: an idle branch commits at once. First
come, first served. A refused request costs the others nothing.

The queue is one process's. Several processes on one store stay correct because the swap decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from itertools import islice
from threading import Lock
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
from penstock.kernel.request import NextBatch, Request
from penstock.kernel.retry import Tries
from penstock.kernel.settings import Settings
from penstock.model.clock import Clock
from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, Landed, LogEntry, Receipt
from penstock.model.references import Event, Kind, Reference, decode_reference, encode_reference
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
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.is_abandoned = False
        self.in_doubt_from: int | None = None
        """The log position from which an earlier try may have landed it."""
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


class BranchQueue:
    """The queue of one branch in one process."""

    def __init__(self, name: str, store: Store, objects: Objects, clock: Clock, settings: Settings) -> None:
        self.name = name
        self._store, self._objects, self._clock, self._settings = store, objects, clock, settings
        self._log = RefLog(objects)
        self._lock = Lock()
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._row: Row | None = None
        self._chain: Chain | None = None

    @property
    def is_idle(self) -> bool:
        return self._leader is None

    def submit(self, request: Request) -> Outcome:
        """Queue a request, and return what became of it or raise why it was refused."""
        ticket = Ticket(request)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if self._leader is None:
                    self._leader = ticket
            if self._leader is not ticket:
                ticket.wait()
            while not ticket.is_answered:
                self._lead()
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

    def _lead(self) -> None:
        """Run one batch. Requests leave the queue when they are answered, so none is lost on the way."""
        try:
            _Batch(self, self._next_batch()).run()
        finally:
            for ticket in list(self._waiting):
                if ticket.is_answered:
                    ticket.wake()
            with self._lock:
                self._waiting = deque(ticket for ticket in self._waiting if not ticket.is_answered)

    def _next_batch(self) -> list[Ticket]:
        """The requests that wait, as many as one swap may land and its log entry may name."""
        batch: list[Ticket] = []
        room = ENTRY_MAX_CHARS
        with self._lock:
            for ticket in islice(self._waiting, self._settings.batch_max):
                batch.append(ticket)
                room -= len(ticket.request.key) + len(ticket.request.author)
                if room <= 0:
                    break
        return batch

    def _hand_over(self, ticket: Ticket) -> None:
        """Let the next in line lead, if it was this one so far. Interrupted anywhere, it can be repeated."""
        with self._lock:
            if self._leader is not ticket:
                return
            heirs = (one for one in self._waiting if one is not ticket and not one.is_abandoned)
            heir = next(heirs, None)
            if heir is None:
                self._waiting.clear()
            else:
                heir.wake()
            self._leader = heir

    def chain_at(self, row: Row, reference: Reference) -> Chain:
        """The branch's head in memory: as it was left, or read anew if another process moved it."""
        if self._chain is None or self._row != row:
            self._chain = Chain(self._objects, reference.head)
            self._row = row
        return self._chain

    def keep(self, row: Row, chain: Chain) -> None:
        """The branch is at this row and this chain now."""
        chain.settle()
        self._row, self._chain = row, chain

    def forget(self) -> None:
        """What is in memory may not be what is stored."""
        self._row = self._chain = None


class _Batch:
    """One batch: apply, store, swap, answer; again where another process was faster."""

    def __init__(self, queue: BranchQueue, tickets: list[Ticket]) -> None:
        self._queue = queue
        self._open = [ticket for ticket in tickets if not ticket.is_answered]
        self._store, self._log = queue._store, queue._log
        self._in_doubt = False
        self._accepted: list[tuple[Ticket, int]] = []
        self._answers: list[tuple[Ticket, BaseException | Outcome]] = []

    def run(self) -> None:
        tries = Tries(self._queue._settings)
        lost: str | Unavailable | None
        while self._open:
            try:
                lost = self._attempt()
                if lost is None:
                    continue
            except OutcomeUnknown as unknown:
                self._in_doubt, lost = True, str(unknown)
            except Unavailable as unavailable:
                lost = unavailable
            except PenstockError as problem:
                self._give_up(problem)
                return
            except BaseException:
                self._queue.forget()
                raise
            self._queue.forget()
            try:
                tries.again(lost)
            except TryAgainError as exhausted:
                self._give_up(exhausted)

    def _give_up(self, problem: PenstockError) -> None:
        self._queue.forget()
        for ticket in self._open:
            ticket.error = self._doubt(ticket, problem) if self._in_doubt else copy(problem)
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
        with self._store.turn(queue.name) as turn:
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
        self._answer()
        return None

    def _find_landed(self, reference: Reference) -> None:
        """Answer those that an earlier try landed after all."""
        for ticket in self._open:
            since = ticket.in_doubt_from
            if since is None or since >= reference.position:
                continue
            found = self._log.find(reference, ticket.request.key, since)
            if found is not None:
                ticket.outcome = outcome_of(self._queue._objects, found[1], ticket.request.key)
            ticket.in_doubt_from = reference.position
        self._open = [ticket for ticket in self._open if not ticket.is_answered]

    def _apply(self, chain: Chain, reference: Reference) -> None:
        """Apply the requests one after the other; each is accepted or refused on its own.

        Nobody is answered yet: a refusal may rest on a request before it that has not landed.
        """
        self._accepted, self._answers = [], []
        keys: dict[str, Ticket] = {}
        for ticket in self._open:
            request = ticket.request
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
            Event(kinds.pop()) if len(kinds) == 1 else Event.COMMIT,
            name=reference.name,
            incarnation=reference.incarnation,
            head=chain.tip,
            now_us=now_us,
            who=landed[0].author,
            landed=tuple(landed),
        )
        row = row_of(msgspec.structs.replace(reference, head=chain.tip, log=one, position=entry.position))
        receipts = self._receipts(reference, entry.time_us)
        for ticket, _ in self._accepted:
            ticket.in_doubt_from = reference.position
        advanced = turn.advance({**chain.objects.fresh, one: data, **receipts}, row, receipts.keys())
        if advanced.swapped:
            self._queue._objects.remember(one, entry, len(data))
            self._queue.keep(row, chain)
            self._answers += outcomes
            self._answer()
            return None
        self._queue.forget()
        self._look_at_receipts(reference, receipts.keys(), advanced.present)
        return None if advanced.present else f"another process moved '{reference.name}'"

    def _receipts(self, reference: Reference, time_us: int) -> dict[ObjectId, bytes]:
        """The receipts to be stored with a batch; a key whose receipt is there already was used before."""
        for ticket, _ in self._accepted:
            ticket.meet(reference.incarnation)
        return {
            self._receipt_id(ticket, reference): receipt(ticket.request.digest, reference.position, time_us)
            for ticket, _ in self._accepted
            if not ticket.receipt_is_ours
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


def live(row: Row | None) -> Reference | None:
    """The branch or tag in a row, if it is one and is not deleted."""
    if row is None or row.kind not in (Kind.BRANCH, Kind.TAG):
        return None
    return decoded_reference(row)


def decoded_reference(row: Row) -> Reference:
    """The reference in a row of any kind but the lake's own."""
    try:
        found: Reference = decode_reference(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
    if (found.name, found.kind) != (row.name, row.kind):
        raise Damaged(f"the row of '{row.name}' holds {found.kind} '{found.name}'", name=row.name)
    return found


def row_of(reference: Reference) -> Row:
    return Row(reference.name, reference.kind.value, encode_reference(reference))


def outcome_of(objects: Objects, entry: LogEntry, key: str) -> Outcome:
    """What a request came to, from the log entry that landed it."""
    for landed in entry.landed:
        if landed.key == key:
            commits = [landed.commit]
            while len(commits) < landed.count:
                commits.append(objects.commit(commits[-1]).parent)
            return Outcome(tuple(reversed(commits)), landed.commit)
    return Outcome((), entry.after)
