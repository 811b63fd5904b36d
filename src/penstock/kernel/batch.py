"""A batch: the requests that one swap lands together.

They are applied one after the other to the head in memory, their objects are stored, the branch is swapped,
and each is answered; again where another process was faster, looking first for what landed after all.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import (
    Damaged,
    JobOver,
    OutcomeUnknown,
    PenstockError,
    TryAgainError,
    Unavailable,
)
from penstock.kernel.chain import CommitChain
from penstock.kernel.format import PrepareAgain
from penstock.kernel.objects import Objects, check_object
from penstock.kernel.reference_rows import (
    decode_live_reference,
    decode_reference_row,
    encode_reference_row,
    not_found_error,
    require_writable,
)
from penstock.kernel.reflog import RECEIPT_WINDOW_US, encode_receipt, make_key_reused_error, make_receipt_id
from penstock.kernel.request import GeneratedKey, NextBatch, Request
from penstock.kernel.time_limits import WriteRetries, describe_reason
from penstock.metrics.table import SWAPS_LOST, TRIES
from penstock.model.commits import remove_key_owner
from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, Landed, LogEntry, Receipt
from penstock.model.references import Event as LogEvent
from penstock.model.references import Kind, Reference
from penstock.stores.port import Row, Turn

if TYPE_CHECKING:
    from penstock.kernel.queue import BranchQueue


class RequestOutcome(NamedTuple):
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
        self.outcome: RequestOutcome | None = None
        self.error: BaseException | None = None
        self.is_abandoned = False
        self.in_doubt_from: int | None = request.doubt_from
        """The log position from which an earlier try may have landed it."""
        self.was_sent = False
        """Whether it was part of a batch that was sent to the store."""
        self.may_have_landed = False
        """Whether it was, and its outcome is unknown."""
        self.tried_at = 0
        """The log's position at the last try."""
        self.receipt_number = 0
        self.receipt_is_ours = False
        self.failed_receipts: dict[ObjectId, bytes] = {}
        """Those of tries that came to nothing. They lead to this one's, so they are stored again with it: a
        sweep forgets none of them before it."""
        self._incarnation: bytes | None = None
        self._asleep = Lock()
        self._asleep.acquire()

    def drop_stale_receipts(self, incarnation: bytes) -> None:
        """Forget receipts that were written for a branch which has been created anew since."""
        if incarnation != self._incarnation:
            self._incarnation, self.receipt_number, self.receipt_is_ours = incarnation, 0, False
            self.failed_receipts = {}

    @property
    def is_answered(self) -> bool:
        return self.outcome is not None or self.error is not None

    def wait(self) -> None:
        """Until it is answered, or its thread is to lead."""
        self._asleep.acquire()

    def wake_waiter(self) -> None:
        with suppress(RuntimeError):  # nobody sleeps on it: its thread was interrupted
            self._asleep.release()


class BatchInFlight:
    """A batch whose objects are durable and whose swap is in flight, while the next one is being written."""

    def __init__(self, leader: Ticket, tickets: Collection[Ticket], position: int) -> None:
        self.leader, self.tickets = leader, frozenset(tickets)
        self.position = position
        """Of the log before it."""
        self.has_landed = False
        self.wants_back = False
        """It did not land, and its leader waits to lead again."""
        self.is_over = Event()


class _SealedBatch(NamedTuple):
    """What is to be stored of a batch, and what its requests are answered if it lands."""

    entry_id: ObjectId
    entry_bytes: bytes
    entry: LogEntry
    row: Row
    outcomes: list[tuple[Ticket, RequestOutcome]]


class EarlierBatchFailed(Exception):
    """The batch before this one did not land, so what this one was applied to does not exist."""


class Batch:
    """One batch: apply, store, swap, answer; again where another process was faster."""

    def __init__(self, queue: BranchQueue, leader: Ticket, tickets: list[Ticket]) -> None:
        self._queue, self._leader = queue, leader
        self._before: BatchInFlight | None = None
        """The batch in flight that this one goes by."""
        self._flight: BatchInFlight | None = None
        self._open = [ticket for ticket in tickets if not ticket.is_answered]
        self._store, self._log = queue.store, queue.log
        self._accepted: list[tuple[Ticket, int]] = []
        self._answers: list[tuple[Ticket, BaseException | RequestOutcome]] = []

    def run(self) -> None:
        tries = WriteRetries(self._queue.settings)
        lost: str | Unavailable | OutcomeUnknown | None
        while self._open:
            try:
                lost = self._try_once()
                if lost is None:
                    if self._flight is None:
                        continue
                    if self._flight.has_landed:
                        return  # others lead since it was written
            except EarlierBatchFailed:
                self._queue.forget_chain()
                if self._queue.give_way():
                    return
                continue
            except (OutcomeUnknown, Unavailable) as problem:
                lost = problem
            except PenstockError as problem:
                self._give_up(problem)
                return
            except BaseException:
                self._queue.forget_chain()
                raise
            if self._flight is not None:
                self._queue.requeue_batch(self._flight)
                self._flight = None
            self._queue.forget_chain()
            try:
                if lost is not None:
                    tries.wait_for_next_try(lost)
            except (TryAgainError, OutcomeUnknown) as exhausted:
                self._give_up(exhausted)

    def _give_up(self, problem: PenstockError) -> None:
        self._queue.forget_chain()
        for ticket in self._open:
            ticket.error = (
                self._describe_unknown_outcome(ticket, problem) if ticket.may_have_landed else copy(problem)
            )
        self._open = []

    def _describe_unknown_outcome(self, ticket: Ticket, problem: PenstockError) -> OutcomeUnknown:
        key = remove_key_owner(ticket.request.key)
        where = f"'{self._queue.name}' in {self._store.url}"
        return OutcomeUnknown(
            f"it is not known whether request {key} was applied to {where}: {describe_reason(problem)}\n  "
            f"Repeating the request with idempotency key {key} is safe and returns the outcome.",
            key=key,
            name=self._queue.name,
        )

    def _try_once(self) -> str | None:
        """One try at moving the branch; says why if it was lost, else it answered at least one request."""
        queue = self._queue
        queue.meter.count(TRIES, branch=queue.label)
        self._before, remembered = queue.batch_ahead, queue.remembered
        if remembered is None or any(ticket.in_doubt_from is not None for ticket in self._open):
            self._wait_for_earlier_batch()
        with self._store.turn(queue.name, remembered) as turn:
            reference = _find_branch_of_row(turn.row)
            if turn.row is None or reference is None:
                raise not_found_error(queue.name, turn.row)
            self._find_landed(reference)
            is_certain = turn.is_certain
            self._answers = []
            if self._may_write(reference, is_certain):
                chain = queue.load_chain(turn.row, reference)
                self._apply_requests(chain, reference)
                if self._accepted:
                    return self._store_and_swap(turn, chain, reference)
        if not is_certain:
            self._wait_for_earlier_batch()
            queue.forget_chain()  # a refusal must not rest on a row that is only remembered
            if self._is_decided:
                return self._try_once()
        self._answer_requests()
        return None

    def _may_write(self, reference: Reference, is_certain: bool) -> bool:
        """Whether the branch takes commits. If it surely takes none, that is what all are told."""
        try:
            require_writable(reference, self._queue.clock())
        except PenstockError as closed:
            if is_certain:
                raise
            self._answers = [(ticket, copy(closed)) for ticket in self._open]
            return False
        return True

    def _wait_for_earlier_batch(self) -> None:
        """Until the batch that this one goes by has landed; ``EarlierBatchFailed`` if it has not."""
        before, self._before = self._before, None
        if before is not None:
            before.is_over.wait()
            if not before.has_landed:
                raise EarlierBatchFailed

    @property
    def _is_decided(self) -> bool:
        return not all(isinstance(answer, PrepareAgain) for _, answer in self._answers)

    def _find_landed(self, reference: Reference) -> None:
        """Answer those that an earlier try landed after all."""
        for ticket in self._open:
            since = ticket.in_doubt_from
            if since is None or since >= reference.position:
                continue
            located_entry = self._log.find_request(reference, ticket.request.key, since)
            if located_entry is not None:
                self._answer_from_log(ticket, located_entry[1], repeated=not ticket.was_sent)
            if reference.position > ticket.tried_at:
                ticket.may_have_landed = False  # others moved the branch, so that this cannot any more
            ticket.in_doubt_from = reference.position
        self._open = [ticket for ticket in self._open if not ticket.is_answered]

    def _apply_requests(self, chain: CommitChain, reference: Reference) -> None:
        """Apply the requests one after the other; each is accepted or refused on its own.

        Nobody is answered yet: a refusal may rest on a request before it that has not landed.
        """
        self._accepted, self._answers = [], []
        if chain.is_cold:
            with suppress(Damaged):  # whoever needs what is damaged is told at its turn
                chain.warm({key for ticket in self._open for key in ticket.request.touched_keys})
        keys: dict[str, Ticket] = {}
        for ticket in self._open:
            request = ticket.request
            if not request.key_is_given and not request.key:
                request.key = str(
                    GeneratedKey.generate(
                        self._find_search_start(reference), self._queue.clock(), request.digest
                    )
                )
            first = keys.setdefault(request.key, ticket)
            if first is not ticket:
                if first.request.digest != request.digest:
                    self._answers.append((ticket, make_key_reused_error(request.key)))
                continue  # the same request twice: once the first has landed, the second finds it
            try:
                request.check_reference(reference, chain)
                drafts = request.make_drafts(chain, reference)
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
                self._answers.append((ticket, RequestOutcome((), reference.head)))
                continue
            for draft in drafts:
                chain.add_draft(draft)
            self._accepted.append((ticket, len(drafts)))

    def _seal_commits(self, chain: CommitChain, reference: Reference) -> _SealedBatch:
        """The commits of what was accepted, with the entry of the log that names them."""
        now_us = self._queue.clock()
        sealed = iter(chain.build_commits(now_us))
        landed, outcomes = [], []
        for ticket, count in self._accepted:
            commits = [next(sealed) for _ in range(count)]
            head, newest = commits[-1]
            request = ticket.request
            landed.append(Landed(request.event.value, request.key, request.author, head, count))
            outcomes.append(
                (ticket, RequestOutcome(tuple(commit_id for commit_id, _ in commits), head, newest=newest))
            )
        kinds = {change.kind for change in landed}
        entry_id, data, entry = self._log.make_entry(
            reference,
            LogEvent(kinds.pop()) if len(kinds) == 1 else LogEvent.COMMIT,
            name=reference.name,
            incarnation=reference.incarnation,
            head=chain.tip,
            now_us=now_us,
            who=landed[0].author,
            landed=tuple(landed),
        )
        row = encode_reference_row(
            msgspec.structs.replace(reference, head=chain.tip, log=entry_id, position=entry.position)
        )
        return _SealedBatch(entry_id, data, entry, row, outcomes)

    def _store_and_swap(self, turn: Turn, chain: CommitChain, reference: Reference) -> str | None:
        """Store what was accepted and swap the branch."""
        batch = self._seal_commits(chain, reference)
        tip = chain.tip  # the chain goes on with the next batch while this one is swapped
        position = self._find_search_start(reference)
        receipts = self._make_receipts(reference, position, batch.entry.time_us)

        def cache_results() -> None:
            self._queue.objects.cache_decoded(batch.entry_id, batch.entry, len(batch.entry_bytes))
            self._queue.keep_chain(batch.row, chain)

        def after_write() -> None:
            """All that can be is written: the next batch can be while this one is swapped."""
            self._wait_for_earlier_batch()
            self._open = [ticket for ticket, _ in (*self._accepted, *self._answers)]
            self._flight = BatchInFlight(self._leader, self._open, reference.position)
            cache_results()
            self._queue.take_off(self._flight)

        turn.written = after_write
        doubts = [(ticket, ticket.may_have_landed) for ticket, _ in self._accepted]
        for ticket, _ in self._accepted:
            ticket.in_doubt_from, ticket.tried_at = position, reference.position
            ticket.was_sent = ticket.may_have_landed = True
        try:
            failed = {
                receipt_id: body
                for ticket, _ in self._accepted
                for receipt_id, body in ticket.failed_receipts.items()
            }
            objects = {**chain.objects.fresh, batch.entry_id: batch.entry_bytes, **failed, **receipts}
            advanced = turn.advance(objects, batch.row, receipts.keys())
        except OutcomeUnknown:
            raise
        except (PenstockError, EarlierBatchFailed):
            _restore_doubts(doubts)
            raise
        if advanced.swapped:
            if self._flight is None:
                cache_results()
            else:
                self._flight.has_landed = True
                self._flight.is_over.set()
            self._answers = [(ticket, _attach_head(answer, tip)) for ticket, answer in self._answers]
            self._answers += batch.outcomes
            self._answer_requests()
            return None
        _restore_doubts(doubts)
        if self._flight is None:
            self._wait_for_earlier_batch()
            self._queue.forget_chain()
        if not advanced.present:
            self._queue.meter.count(SWAPS_LOST, branch=self._queue.label)
        self._look_at_receipts(reference, receipts.keys(), advanced.present)
        return None if advanced.present else f"another process moved '{reference.name}'"

    def _find_search_start(self, reference: Reference) -> int:
        """From where in the log to look for these requests: not from what another batch is still to add."""
        return self._before.position if self._before is not None else reference.position

    def _make_receipts(self, reference: Reference, position: int, time_us: int) -> dict[ObjectId, bytes]:
        """The receipts to be stored with a batch; a key whose receipt is there already was used before.

        A key that Penstock makes needs none: it tells itself from where in the log to look.
        """
        for ticket, _ in self._accepted:
            ticket.drop_stale_receipts(reference.incarnation)
        return {
            self._make_receipt_id(ticket, reference): encode_receipt(ticket.request.digest, position, time_us)
            for ticket, _ in self._accepted
            if not ticket.receipt_is_ours and ticket.request.key_is_given
        }

    def _make_receipt_id(self, ticket: Ticket, reference: Reference) -> ObjectId:
        return make_receipt_id(reference.incarnation, ticket.request.key, ticket.receipt_number)

    def _look_at_receipts(
        self, reference: Reference, tried: Collection[ObjectId], present: Collection[ObjectId]
    ) -> None:
        """After a swap that was not done: settle keys used before, remember receipts left behind."""
        stored = self._store.fetch(tried)
        for ticket, _ in self._accepted:
            receipt = self._make_receipt_id(ticket, reference)
            if receipt in present and receipt in stored:
                self._answer_repeated_key(ticket, stored[receipt], receipt, reference)
            elif receipt in stored:
                ticket.receipt_is_ours = True
        self._open = [ticket for ticket in self._open if not ticket.is_answered]

    def _answer_repeated_key(
        self, ticket: Ticket, data: bytes, receipt: ObjectId, reference: Reference
    ) -> None:
        """The key was used before: by this very request, then that is the answer, or by another one."""
        receipt_object = check_object(receipt, data)
        assert isinstance(receipt_object, Receipt)
        key = ticket.request.key
        if receipt_object.request != ticket.request.digest:
            ticket.error = make_key_reused_error(key)
            return
        located_entry = self._log.find_request(
            reference, key, receipt_object.position, receipt_object.time_us + RECEIPT_WINDOW_US
        )
        if located_entry is not None:
            self._answer_from_log(ticket, located_entry[1], repeated=True)
        else:
            ticket.failed_receipts[receipt] = data  # that try came to nothing; this one gets its own
            ticket.receipt_number += 1

    def _answer_from_log(self, ticket: Ticket, entry: LogEntry, *, repeated: bool) -> None:
        """Answer a request by the log entry that names it."""
        key = ticket.request.key
        if is_called_off(entry, key):
            shown_key = remove_key_owner(key)
            ticket.error = JobOver(f"request {shown_key} was cancelled before it was applied", key=shown_key)
        else:
            ticket.outcome = read_request_outcome(self._queue.objects, entry, key)._replace(repeated=repeated)

    def _answer_requests(self) -> None:
        for ticket, answer in self._answers:
            if isinstance(answer, RequestOutcome):
                ticket.outcome = answer
            else:
                ticket.error = answer
        self._open = [ticket for ticket in self._open if not ticket.is_answered]


def _attach_head(answer: BaseException | RequestOutcome, head: ObjectId) -> BaseException | RequestOutcome:
    """The answer to a request that had nothing to do: that may rest on others of its batch."""
    return answer._replace(head=head) if isinstance(answer, RequestOutcome) and not answer.commits else answer


def _restore_doubts(doubts: list[tuple[Ticket, bool]]) -> None:
    """This try surely came to nothing; what is not known of earlier ones is still not known."""
    for ticket, may_have_landed in doubts:
        ticket.may_have_landed = may_have_landed


def _find_branch_of_row(row: Row | None) -> Reference | None:
    """The branch in a row, or what a transaction's was: its log still tells what landed there."""
    if row is not None and row.kind == Kind.ENDED_TRANSACTION:
        return decode_reference_row(row)
    return decode_live_reference(row)


def is_called_off(entry: LogEntry, key: str) -> bool:
    """Whether a log entry names a request only to say that it will never land (see ``kernel.attempts``)."""
    return any(landed.key == key and landed.count == 0 for landed in entry.landed)


def read_request_outcome(objects: Objects, entry: LogEntry, key: str) -> RequestOutcome:
    """What a request came to, from the log entry that landed it."""
    for landed in entry.landed:
        if landed.key == key:
            commits = [landed.commit]
            while len(commits) < landed.count:
                commits.append(objects.get_commit(commits[-1]).parent)
            return RequestOutcome(tuple(reversed(commits)), landed.commit)
    return RequestOutcome((), entry.after)
