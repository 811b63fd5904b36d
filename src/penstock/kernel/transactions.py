"""Transactions: writes to a branch that nobody else sees, until all of them land on another by one swap.

A transaction is a row like a branch's, of a kind of its own, so that no list of branches shows it. Its note
says how far it is, and is swapped with the row: a write that is in flight when the transaction ends loses its
swap, looks again, and is refused. What it reads is noted on its branch, and held against its target when it
lands (see ``kernel.isolation``). Rows that have ended are of another kind; they leave no tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from penstock.errors import CommitNotFound, HistoryExpired, InvalidRequest
from penstock.kernel.description import require_unmoved
from penstock.kernel.records import KeepRow
from penstock.kernel.references import ReferenceDecision
from penstock.kernel.settings import DAY_US
from penstock.kernel.transaction_commit import TransactionCommits
from penstock.kernel.transaction_reads import ReadsRequest
from penstock.kernel.transaction_rows import TransactionRecord, check_row_size, read_record, record_in_row
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.reads import Read
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import (
    PREFIX,
    Isolation,
    Policy,
    StoredTransaction,
    TransactionState,
    check_transaction_id,
    encode_transaction,
    is_transaction,
)
from penstock.stores.port import Row

__all__ = ("TransactionRecord", "Transactions")


class Transactions(TransactionCommits):
    """The transactions of a lake: how they begin, live and end."""

    def begin_transaction(
        self,
        id: str,  # noqa: A002
        target: str,
        *,
        policy: Policy = Policy.REBASE,
        isolation: Isolation = Isolation.SNAPSHOT,
        lease_us: int | None = None,
        who: str = "",
        message: str = "",
        properties: dict[str, str] | None = None,
    ) -> TransactionRecord:
        """Begin a transaction on a branch as it is now; one of that id that has begun is returned as it is.

        ``InvalidRequest`` if that one is for another branch, or has another policy or isolation.
        """
        check_transaction_id(id)
        if is_transaction(target):
            raise InvalidRequest(
                f"a transaction must have a branch as its target; '{target}' is the branch of another "
                "transaction"
            )
        require_unmoved(self._kernel.store)
        lease_us = self._check_lease(lease_us)
        record = self.find_transaction(id)  # before the target is looked at, which may be gone by now
        if record is None:
            branch, now_us = self._kernel.branch(target), self._kernel.clock()
            transaction = StoredTransaction(
                id=id,
                state=TransactionState.OPEN,
                target=target,
                incarnation=branch.incarnation,
                base=branch.head,
                policy=policy,
                begun_us=now_us,
                lease_us=lease_us,
                expires_us=now_us + lease_us,
                changed_us=now_us,
                who=who,
                message=message,
                properties=dict(properties or {}),
                isolation=isolation,
            )
            record = self._begin(transaction)
        stored = record.transaction
        if (stored.target, stored.policy, stored.isolation) != (target, policy, isolation):
            raise InvalidRequest(
                f"transaction {id} was begun for '{stored.target}' with the policy '{stored.policy}' and the "
                f"isolation '{stored.isolation}'; use another id for another transaction"
            )
        return record

    def _begin(self, transaction: StoredTransaction) -> TransactionRecord:
        def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[TransactionRecord]:
            if row is not None:
                return KeepRow(record_in_row(row))
            reference = Reference(
                kind=Kind.TRANSACTION,
                name=transaction.branch,
                head=transaction.base,
                incarnation=uuid4().bytes,
                log=NO_COMMIT,
                position=0,
                created_us=transaction.begun_us,
                note=encode_transaction(check_row_size(transaction)),
            )
            return ReferenceDecision(reference, Event.CREATE)

        return self._swap_transaction(transaction.id, decide_change, transaction.who)

    def _check_lease(self, lease_us: int | None) -> int:
        longest_us = self._longest_us
        if lease_us is None:
            return min(int(self._kernel.settings.transaction_lease_s * 1e6), longest_us)
        if not 0 < lease_us <= longest_us:
            raise InvalidRequest(
                f"the lease of a transaction must be longer than 0 and at most {longest_us / DAY_US:g} days"
            )
        return lease_us

    @property
    def _longest_us(self) -> int:
        """Not longer than half of what a sweep leaves alone either: what it writes must still be there."""
        longest_us = int(self._kernel.settings.transaction_max_days * DAY_US)
        return min(longest_us, self._kernel.graces.find_writer_grace().data_us // 2)

    def renew_lease(
        self,
        id: str,  # noqa: A002
        lease_us: int | None = None,
        properties: dict[str, str | None] | None = None,
    ) -> TransactionRecord:
        """Let a transaction live on: as long as it was begun with from now on, or for another lease.

        It is not open for longer than the lake allows in all. Properties without a value go.
        ``TransactionOver`` if it is not open any more.
        """
        if lease_us is not None:
            self._check_lease(lease_us)

        def decide_change(transaction: StoredTransaction, now_us: int) -> StoredTransaction:
            lease = transaction.lease_us if lease_us is None else lease_us
            changed = {**transaction.properties, **(properties or {})}
            renewed = msgspec.structs.replace(
                transaction,
                lease_us=lease,
                expires_us=min(now_us + lease, transaction.begun_us + self._longest_us),
                changed_us=now_us,
                properties={name: value for name, value in changed.items() if value is not None},
            )
            return check_row_size(renewed) if properties else renewed

        return self._move_open(id, decide_change)

    # -- reading ---------------------------------------------------------------------------------------

    def note_reads(self, id: str, reads: Sequence[Read]) -> None:  # noqa: A002
        """Remember what a transaction reads, before anybody sees what it has read.

        What is known already leaves no commit. ``TransactionOver`` if it is not open any more.
        """
        reference = self._kernel.branch(PREFIX + check_transaction_id(id))
        if reads:
            who = read_record(reference).transaction.who
            self._kernel.submit_request(reference.name, ReadsRequest(reads, reference.incarnation, who))

    def list_reads(self, record: TransactionRecord) -> tuple[Read, ...]:
        """What a transaction has read so far; nothing of one that ended and whose steps are gone."""
        try:
            entries = self._read_noted_reads(record)
        except (CommitNotFound, HistoryExpired):
            if record.transaction.has_ended:
                return ()
            raise
        return tuple(
            read
            for stored, entry in entries.items()
            for read in entry.list_reads(Key.decode(stored) if stored else None)
        )
