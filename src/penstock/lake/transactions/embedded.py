"""Answering calls about transactions, from a kernel in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from penstock.errors import HistoryExpired, InvalidRequest, PenstockError, ReferenceNotFound
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.objects import read_content
from penstock.kernel.transactions import TransactionRecord, Transactions
from penstock.lake.call import Call, CommitDescription, commit_meta, take_first
from penstock.lake.transactions.answers import TransactionInfo, TransactionLanded
from penstock.lake.transactions.calls import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    GetTransaction,
    IsShared,
    ListTransactions,
    NoteReads,
    RenewTransaction,
)
from penstock.model.commits import Commit, CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.reads import Read
from penstock.model.transactions import TEXT_MAX_CHARS, StoredTransaction, check_transaction_id

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

logger = logging.getLogger("penstock")

SHARED_MAX: Final = 10_000
"""How many commits are remembered to be on a branch or tag."""
TIDIED_AT_ONCE: Final = 10
"""How many rows that may be over are looked at when another transaction begins: that costs about the same,
however many there are, and keeps their number in bounds."""


class TransactionHandlers:
    """Answers the calls about transactions."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self._transactions = Transactions(lake.kernel)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            BeginTransaction: self._begin_transaction,
            GetTransaction: self._get_transaction,
            RenewTransaction: self._renew_lease,
            NoteReads: self._note_reads,
            CommitTransaction: self._commit_transaction,
            AbortTransaction: self._abort_transaction,
            ListTransactions: self._list_transactions,
            IsShared: self._is_shared,
        }
        self._shared: set[ObjectId] = set()

    def _begin_transaction(self, call: BeginTransaction) -> TransactionInfo:
        record = self._transactions.begin_transaction(
            call.id,
            self._lake.get_branch_or_default(call.target),
            policy=call.policy,
            isolation=call.isolation,
            lease_us=_parse_lease_us(call.lease_s),
            who=_make_storable_text(call.who),
            message=_make_storable_text(call.message),
            properties={
                _make_storable_text(name): _make_storable_text(value)
                for name, value in call.properties.items()
            },
        )
        self._tidy_some_transactions()
        return self._describe_transaction(record)

    def _get_transaction(self, call: GetTransaction) -> TransactionInfo:
        record = self._transactions.look_up_end(self._transactions.get_transaction(call.id))
        return self._describe_transaction(record, self._transactions.list_reads(record) if call.reads else ())

    def _renew_lease(self, call: RenewTransaction) -> TransactionInfo:
        properties = {
            _make_storable_text(name): None if value is None else _make_storable_text(value)
            for name, value in call.properties.items()
        }
        return self._describe_transaction(
            self._transactions.renew_lease(call.id, _parse_lease_us(call.lease_s), properties)
        )

    def _note_reads(self, call: NoteReads) -> TransactionInfo:
        self._transactions.note_reads(call.id, call.reads)
        return self._describe_transaction(self._transactions.get_transaction(call.id))

    def _commit_transaction(self, call: CommitTransaction) -> TransactionLanded:
        begun = self._transactions.get_transaction(call.id).transaction
        record = self._transactions.commit_transaction(call.id, _commit_meta(begun, call.said, call.who))
        transaction = record.transaction
        if transaction.commit == NO_COMMIT:
            head = transaction.base
            with suppress(ReferenceNotFound):
                head = self._kernel.references.get_reference(transaction.target).head
            return TransactionLanded(info=self._describe_transaction(record), head=head.hex())
        commit: Commit | None = None
        with suppress(HistoryExpired):
            commit = Commit.from_stored(
                transaction.commit, self._kernel.history.read_commit(transaction.commit)
            )
            self._lake.await_published(transaction.target, self._list_changed_contents(transaction.commit))
        return TransactionLanded(
            info=self._describe_transaction(record), commit=commit, head=transaction.commit.hex()
        )

    def _list_changed_contents(self, commit: ObjectId) -> Iterator[tuple[Key, AnyContent | None]]:
        """The keys that a commit changed, and what they hold since."""
        before = self._kernel.history.read_commit(commit).parent
        users = find_prefix_end(RESERVED) or b""
        for stored, _, now in self._kernel.iterate_differences(before, commit, users):
            yield Key.decode(stored), read_content(self._kernel.objects, now)

    def _abort_transaction(self, call: AbortTransaction) -> TransactionInfo:
        reason = _make_storable_text(call.why or (f"by {call.who}" if call.who else ""))[:TEXT_MAX_CHARS]
        return self._describe_transaction(
            self._transactions.look_up_end(self._transactions.abort_transaction(call.id, reason))
        )

    def _list_transactions(self, call: ListTransactions) -> tuple[TransactionInfo, ...]:
        after = check_transaction_id(call.after) if call.after is not None else ""
        chosen = (
            self._describe_transaction(self._transactions.look_up_end(record))
            for record in self._list_records(after, call.all)
            if call.target in (None, record.transaction.target)
        )
        return tuple(take_first(chosen, call.limit))

    def _is_shared(self, call: IsShared) -> bool:
        commit = ObjectId(bytes.fromhex(call.commit))
        if commit in self._shared:
            return True
        self._kernel.history.read_commit(commit)  # it may have expired, or never have been
        is_shared = self._kernel.references.is_shared(commit, self._lake.get_branch_or_default(call.via))
        if is_shared:
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared.add(commit)
        return is_shared

    def _list_records(self, after: str, also_ended: bool) -> Iterator[TransactionRecord]:
        """Those that are known, by id, each once: one may end while they are read."""
        if not also_ended:
            yield from self._transactions.list_open_transactions(after)
            return
        last = ""
        both = (
            self._transactions.list_open_transactions(after),
            self._transactions.list_ended_transactions(after),
        )
        for record in merge(*both, key=lambda record: record.transaction.id):
            if record.transaction.id != last:
                last = record.transaction.id
                yield record

    def _describe_transaction(
        self, record: TransactionRecord, reads: tuple[Read, ...] = ()
    ) -> TransactionInfo:
        return TransactionInfo.from_stored(record.transaction, self._kernel.clock(), reads)

    # -- those that were left ------------------------------------------------------------------------------

    def end_abandoned_transactions(self) -> int:
        """End all transactions that nobody is at any more, and forget those that ended long ago; returns how
        many were ended. One that cannot be ended now is left for the next time, and does not keep the others
        from it."""
        ended = sum(
            self._settle_if_left(record)
            for record in self._transactions.list_open_transactions(skips_damaged=True)
        )
        for record in self._transactions.list_ended_transactions(skips_damaged=True):
            self._forget_transaction(record)
        return ended

    def _tidy_some_transactions(self) -> None:
        """The same for a few, wherever chance begins."""
        start, few = uuid4().hex, TIDIED_AT_ONCE
        try:
            for record in islice(
                self._transactions.list_open_transactions(start, skips_damaged=True, page_max=few), few
            ):
                self._settle_if_left(record)
            for record in islice(
                self._transactions.list_ended_transactions(start, skips_damaged=True, page_max=few), few
            ):
                self._forget_transaction(record)
        except PenstockError as problem:
            logger.warning("the search for abandoned transactions failed: %s", problem)

    def _settle_if_left(self, record: TransactionRecord) -> bool:
        if not self._transactions.is_abandoned(record):
            return False
        try:
            return self._transactions.settle_transaction(record).transaction.has_ended
        except PenstockError as problem:
            logger.warning("transaction %s could not be ended: %s", record.transaction.id, problem)
        except Exception:  # of a format, or of a check: whoever tidies has nothing to do with it
            logger.exception("transaction %s could not be ended", record.transaction.id)
        return False

    def _forget_transaction(self, record: TransactionRecord) -> None:
        if self._transactions.is_old(record):
            try:
                self._transactions.forget_transaction(record)
            except PenstockError as problem:
                logger.warning(
                    "what an ended transaction (%s) left could not be removed; a later run removes it: %s",
                    record.transaction.id,
                    problem,
                )


def _commit_meta(transaction: StoredTransaction, description: CommitDescription, who: str) -> CommitMeta:
    """What the commit of a transaction says of itself, unless whoever commits it says otherwise."""
    meta = commit_meta(
        description, who or transaction.who, transaction.message or f"transaction {transaction.id}"
    )
    properties = {name: (value,) for name, value in transaction.properties.items()}
    return msgspec.structs.replace(meta, properties={**properties, **meta.properties})


def _parse_lease_us(lease_s: float | None) -> int | None:
    if lease_s is None:
        return None
    try:
        return int(lease_s * 1e6)
    except (OverflowError, ValueError):
        raise InvalidRequest(f"lease_s must be a number of seconds, got {lease_s}") from None


def _make_storable_text(text: str) -> str:
    """What a caller says, in a form that can be stored."""
    return text.encode(errors="replace").decode()
