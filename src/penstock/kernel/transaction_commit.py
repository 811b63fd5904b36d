"""How transactions end: they land by one merge, or never.

``open`` goes to ``committing`` or ``aborted``. Anybody may finish what is committing, by sending the same
merge under the same key again; only not without the checks that a sender of it had. A merge that is refused
ends as ``aborted``; where it was sent more than once it is called off first, so that no other sending of it
lands after that (see ``kernel.request_outcome``). What is still committing long after it was sent can be
aborted in that way too: something keeps it from landing that does not go away by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import (
    AdministratorError,
    ConflictError,
    Damaged,
    IdempotencyKeyReused,
    InvalidLog,
    JobOver,
    LakeMoved,
    PenstockError,
    RequestError,
    TransactionOver,
    UnsupportedFormat,
)
from penstock.kernel.checks import require_able
from penstock.kernel.hand_off import CommitSettler
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.records import KeepRow
from penstock.kernel.reference_rows import decode_live_reference, transaction_over_error
from penstock.kernel.references import ReferenceDecision
from penstock.kernel.request_outcome import OutcomeLookup
from penstock.kernel.settings import DAY_US
from penstock.kernel.three_way import MergeOptions
from penstock.kernel.transaction_reads import ReadEntry, TransactionReads, read_noted_entries
from penstock.kernel.transaction_rows import (
    TransactionRecord,
    TransactionRows,
    abort_if_expired,
    check_row_size,
    compute_digest,
    record_in_row,
)
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED
from penstock.model.references import Event
from penstock.model.transactions import Policy, StoredTransaction, TransactionState
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

LEFT_AFTER_US: Final = 10 * 60 * 1_000_000
"""So long after its merge was last sent, others finish a transaction that is still committing; and so long
after it was first sent, it can be aborted all the same."""
STUCK: Final = (
    "  Transaction {id} is still being committed: once the cause is fixed, 'penstock tx commit {id}' "
    "finishes\n  it. 10 minutes after the commit was first sent, 'penstock tx abort {id}' can abort it "
    "instead."
)
UNCHECKED: Final = (
    "transaction {id} is being committed by a program with the check {checks}, and cannot be committed "
    "without that check\n  Commit it from a program that has the check; or, 10 minutes after the commit was "
    "first sent, abort it with 'penstock tx abort {id}'."
)


class TransactionCommits(TransactionRows):
    """How the transactions of a lake come to their end, whoever is at them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._hand_off: CommitSettler[StoredTransaction, TransactionRecord] = CommitSettler(
            self, OutcomeLookup(kernel)
        )

    def look_up_end(self, record: TransactionRecord) -> TransactionRecord:
        """A transaction that is committing, as its target's log says it ended. Who looks changes nothing."""
        if record.state is TransactionState.COMMITTING:
            commit = self._hand_off.find_commit(record)
            if commit is not None:
                transaction = record.transaction
                return record._replace(transaction=transaction.mark_landed(commit, transaction.changed_us))
        return record

    def abort_transaction(self, id: str, why: str = "") -> TransactionRecord:  # noqa: A002
        """Let a transaction never land, and return it. One that is committing, or has ended, stays so.

        One that is still committing long after it was sent is called off: it ends, as what it came to.
        """

        def decide_change(transaction: StoredTransaction, now_us: int) -> StoredTransaction | None:
            return (
                transaction.mark_aborted(why, now_us) if transaction.state is TransactionState.OPEN else None
            )

        record = self._move_row(id, decide_change)
        if record.state is TransactionState.COMMITTING and self._is_stuck(record.transaction):
            return self._hand_off.call_off(record, why)
        return record

    def _is_stuck(self, transaction: StoredTransaction) -> bool:
        # Not by when it was last sent: others send it again and again, each in vain.
        return self._kernel.clock() > transaction.sent_us + LEFT_AFTER_US

    def commit_transaction(self, id: str, meta: CommitMeta) -> TransactionRecord:  # noqa: A002
        """Let a transaction land as one commit of its target, that says of itself what ``meta`` says.

        One that has landed is returned. ``TransactionOver`` if it was aborted; what refuses its merge is
        raised, and aborts it. Any other error leaves it committing: to be repeated, by anybody. So does
        ``TransactionOver`` for one that somebody is committing with checks that are not known here.
        """
        record_or_lacking = self._note_merge_sent(id, meta.check())
        record = (
            self._require_ended(id, record_or_lacking)
            if isinstance(record_or_lacking, LackingChecks)
            else record_or_lacking
        )
        if record.state is TransactionState.COMMITTED:
            return record
        if record.state is TransactionState.ABORTED:
            raise transaction_over_error(record.reference)
        return self._send_merge(record)

    def settle_transaction(self, record: TransactionRecord) -> TransactionRecord:
        """Bring a transaction to its end that nobody may be at any more: finish it if it is committing,
        abort it if its lease ran out. Any other one stays as it is."""
        transaction = record.transaction
        if record.state is TransactionState.COMMITTING and transaction.meta is not None:
            try:
                return self.commit_transaction(transaction.id, transaction.meta)
            except LakeMoved:
                raise
            except PenstockError:
                ended = self.find_transaction(transaction.id)
                if ended is None or not ended.transaction.has_ended:
                    raise
                return ended
        if transaction.is_expired(self._kernel.clock()):
            return self._move_row(transaction.id, abort_if_expired)
        return record

    def is_abandoned(self, record: TransactionRecord) -> bool:
        """Whether nobody seems to be at it any more, so that whoever meets it may settle it."""
        transaction, now_us = record.transaction, self._kernel.clock()
        if transaction.state is TransactionState.COMMITTING:
            return now_us > transaction.changed_us + LEFT_AFTER_US
        return transaction.is_expired(now_us)

    def is_old(self, record: TransactionRecord) -> bool:
        """Whether one that has ended may be forgotten: no message about it is on its way any more."""
        kept_us = int(self._kernel.settings.idempotency_days * DAY_US)
        transaction = record.transaction
        return transaction.has_ended and transaction.changed_us < self._kernel.clock() - kept_us

    def forget_transaction(self, record: TransactionRecord) -> None:
        """Remove the row of a transaction that ended long ago. It leaves no tombstone: its end is in the log
        of its target."""

        def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[None]:
            if row is None or not self.is_old(record_in_row(row)):
                return KeepRow(None)
            return ReferenceDecision(None, Event.DELETE)

        self._swap_transaction(record.transaction.id, decide_change, "")

    def _note_merge_sent(self, id: str, meta: CommitMeta) -> TransactionRecord | LackingChecks:  # noqa: A002
        """Note that the merge is about to be sent; from here there is no way back but its refusal."""
        record = self.get_transaction(id)
        transaction = record.transaction
        target = decode_live_reference(self._kernel.store.reference(transaction.target))
        position = target.position if target is not None else 0
        if target is not None and not self.look_up_end(record).transaction.has_ended:
            require_able(self._kernel, target, transaction.base, record.head)  # or it stays as it is
        checks = {check.name for check in self._kernel.checks.list_checks_of_branch(transaction.target)}

        def decide_change(
            transaction: StoredTransaction, now_us: int
        ) -> StoredTransaction | KeepRow[LackingChecks] | None:
            if transaction.has_ended:
                return None
            if transaction.is_expired(now_us):
                return abort_if_expired(transaction, now_us)
            if lacking := sorted(set(transaction.checks) - checks):
                return KeepRow(LackingChecks(lacking))
            sent_transaction = msgspec.structs.replace(
                transaction,
                state=TransactionState.COMMITTING,
                meta=meta if transaction.meta is None else transaction.meta,
                changed_us=now_us,
                sends=transaction.sends + 1,
                position=transaction.position if transaction.sends else position,
                checks=tuple(sorted(checks)),
                sent_us=transaction.sent_us if transaction.sends else now_us,
            )
            return (
                sent_transaction
                if transaction.checks == sent_transaction.checks and transaction.sends
                else check_row_size(sent_transaction)
            )

        return self._move_row(id, decide_change)

    def _require_ended(self, id: str, lacking: LackingChecks) -> TransactionRecord:  # noqa: A002
        """A transaction as others ended it; ``TransactionOver`` while they are committing it."""
        record = self.look_up_end(self.get_transaction(id))
        if record.state is TransactionState.COMMITTING:
            raise _lacking_checks_error(id, lacking.names)
        is_landed = record.state is TransactionState.COMMITTED
        return self._hand_off.note_landed(record, record.transaction.commit) if is_landed else record

    def _send_merge(self, record: TransactionRecord) -> TransactionRecord:
        """Send the merge of a transaction that is committing, and note what comes of it."""
        transaction = record.transaction
        try:
            commit = self._merge_into_target(record) if self._has_changes(record) else NO_COMMIT
        except LakeMoved:
            raise
        except (RequestError, ConflictError, InvalidLog, UnsupportedFormat) as refused:
            # Nothing lands under a key that is another's. What is damaged may have come up later.
            ended = self._hand_off.note_refused(
                record,
                refused.message,
                is_alone=isinstance(refused, IdempotencyKeyReused),
                is_certain=isinstance(refused, RequestError | ConflictError),
            )
            if ended.state is TransactionState.COMMITTED:
                return ended
            if isinstance(refused, IdempotencyKeyReused | JobOver):  # another sending of it was refused
                raise transaction_over_error(ended.reference) from None
            raise
        except AdministratorError as problem:
            stuck = copy(problem)  # others may have been told the same error
            stuck.message += "\n" + STUCK.format(id=transaction.id)
            stuck.args = (stuck.message,)
            raise stuck from problem
        return self._hand_off.note_landed(record, commit)

    def _has_changes(self, record: TransactionRecord) -> bool:
        """Whether it has anything to land. What it has only read is as it was at the instant it began."""
        head, base = record.head, record.transaction.base
        return head != base and any(
            True for _ in self._kernel.iterate_differences(base, head, find_prefix_end(RESERVED) or b"")
        )

    def _merge_into_target(self, record: TransactionRecord) -> ObjectId:
        transaction = record.transaction
        if transaction.meta is None:
            raise Damaged(
                f"the row of transaction '{transaction.id}' contradicts its commit",
                transaction=transaction.id,
            )
        entries = self._read_noted_reads(record)
        merged = self._kernel.merge(
            record.head,
            transaction.target,
            transaction.meta,
            MergeOptions(
                is_snapshot=transaction.policy is Policy.SNAPSHOT,
                reads=TransactionReads(transaction.base, transaction.isolation, entries) if entries else None,
            ),
            grown_from=transaction.base,
            incarnation=transaction.incarnation,
            doubt_from=transaction.position if transaction.sends > 1 else None,
            key=transaction.id,
            fingerprint=lambda: compute_digest(record),
            is_held=True,
        )
        # Without a commit the target has all of it already: then that is what it landed as.
        return ObjectId(bytes.fromhex(merged.commits[-1])) if merged.commits else record.head

    def _read_noted_reads(self, record: TransactionRecord) -> dict[bytes, ReadEntry]:
        state = self._kernel.read_state(record.head)
        return read_noted_entries(self._kernel.objects, state, record.reference.incarnation)


class LackingChecks(NamedTuple):
    """Checks that a sender of the merge had, and that are not known here."""

    names: Sequence[str]


def _lacking_checks_error(id: str, lacking: Sequence[str]) -> TransactionOver:  # noqa: A002
    names = " and ".join(f"'{name}'" for name in lacking)
    state = TransactionState.COMMITTING.value
    return TransactionOver(UNCHECKED.format(id=id, checks=names), transaction=id, state=state)
