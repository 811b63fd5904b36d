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
from penstock.kernel.lake_state import prefix_end
from penstock.kernel.objects import content_of
from penstock.kernel.transactions import TransactionRecord, Transactions
from penstock.lake.call import Call, CommitDescription, commit_meta, first
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
            BeginTransaction: self._begin,
            GetTransaction: self._get,
            RenewTransaction: self._renew,
            NoteReads: self._note_reads,
            CommitTransaction: self._commit,
            AbortTransaction: self._abort,
            ListTransactions: self._list,
            IsShared: self._is_shared,
        }
        self._shared: set[ObjectId] = set()

    def _begin(self, call: BeginTransaction) -> TransactionInfo:
        record = self._transactions.begin(
            call.id,
            self._lake.or_default(call.target),
            policy=call.policy,
            isolation=call.isolation,
            lease_us=_lease_us(call.lease_s),
            who=_storable_text(call.who),
            message=_storable_text(call.message),
            properties={
                _storable_text(name): _storable_text(value) for name, value in call.properties.items()
            },
        )
        self._tidy_some_transactions()
        return self._info_of(record)

    def _get(self, call: GetTransaction) -> TransactionInfo:
        record = self._transactions.look_up_end(self._transactions.get(call.id))
        return self._info_of(record, self._transactions.reads(record) if call.reads else ())

    def _renew(self, call: RenewTransaction) -> TransactionInfo:
        properties = {
            _storable_text(name): None if value is None else _storable_text(value)
            for name, value in call.properties.items()
        }
        return self._info_of(self._transactions.renew(call.id, _lease_us(call.lease_s), properties))

    def _note_reads(self, call: NoteReads) -> TransactionInfo:
        self._transactions.note_reads(call.id, call.reads)
        return self._info_of(self._transactions.get(call.id))

    def _commit(self, call: CommitTransaction) -> TransactionLanded:
        begun = self._transactions.get(call.id).transaction
        record = self._transactions.commit(call.id, _commit_meta(begun, call.said, call.who))
        transaction = record.transaction
        if transaction.commit == NO_COMMIT:
            head = transaction.base
            with suppress(ReferenceNotFound):
                head = self._kernel.references.get(transaction.target).head
            return TransactionLanded(info=self._info_of(record), head=head.hex())
        commit: Commit | None = None
        with suppress(HistoryExpired):
            commit = Commit.of(transaction.commit, self._kernel.history.commit(transaction.commit))
            self._lake.await_published(transaction.target, self._changed_contents(transaction.commit))
        return TransactionLanded(info=self._info_of(record), commit=commit, head=transaction.commit.hex())

    def _changed_contents(self, commit: ObjectId) -> Iterator[tuple[Key, AnyContent | None]]:
        """The keys that a commit changed, and what they hold since."""
        before = self._kernel.history.commit(commit).parent
        users = prefix_end(RESERVED) or b""
        for stored, _, now in self._kernel.differing(before, commit, users):
            yield Key.decode(stored), content_of(self._kernel.objects, now)

    def _abort(self, call: AbortTransaction) -> TransactionInfo:
        reason = _storable_text(call.why or (f"by {call.who}" if call.who else ""))[:TEXT_MAX_CHARS]
        return self._info_of(self._transactions.look_up_end(self._transactions.abort(call.id, reason)))

    def _list(self, call: ListTransactions) -> tuple[TransactionInfo, ...]:
        after = check_transaction_id(call.after) if call.after is not None else ""
        chosen = (
            self._info_of(self._transactions.look_up_end(record))
            for record in self._list_records(after, call.all)
            if call.target in (None, record.transaction.target)
        )
        return tuple(first(chosen, call.limit))

    def _is_shared(self, call: IsShared) -> bool:
        commit = ObjectId(bytes.fromhex(call.commit))
        if commit in self._shared:
            return True
        self._kernel.history.commit(commit)  # it may have expired, or never have been
        is_shared = self._kernel.references.is_shared(commit, self._lake.or_default(call.via))
        if is_shared:
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared.add(commit)
        return is_shared

    def _list_records(self, after: str, also_ended: bool) -> Iterator[TransactionRecord]:
        """Those that are known, by id, each once: one may end while they are read."""
        if not also_ended:
            yield from self._transactions.open(after)
            return
        last = ""
        both = self._transactions.open(after), self._transactions.list_ended(after)
        for record in merge(*both, key=lambda record: record.transaction.id):
            if record.transaction.id != last:
                last = record.transaction.id
                yield record

    def _info_of(self, record: TransactionRecord, reads: tuple[Read, ...] = ()) -> TransactionInfo:
        return TransactionInfo.of(record.transaction, self._kernel.clock(), reads)

    # -- those that were left ------------------------------------------------------------------------------

    def tidy(self) -> int:
        """End all transactions that nobody is at any more, and forget those that ended long ago; returns how
        many were ended. One that cannot be ended now is left for the next time, and does not keep the others
        from it."""
        ended = sum(self._settle_if_left(record) for record in self._transactions.open(skips_damaged=True))
        for record in self._transactions.list_ended(skips_damaged=True):
            self._forget(record)
        return ended

    def _tidy_some_transactions(self) -> None:
        """The same for a few, wherever chance begins."""
        start, few = uuid4().hex, TIDIED_AT_ONCE
        try:
            for record in islice(self._transactions.open(start, skips_damaged=True, page_max=few), few):
                self._settle_if_left(record)
            for record in islice(self._transactions.list_ended(start, skips_damaged=True, page_max=few), few):
                self._forget(record)
        except PenstockError as problem:
            logger.warning("the search for abandoned transactions failed: %s", problem)

    def _settle_if_left(self, record: TransactionRecord) -> bool:
        if not self._transactions.is_left(record):
            return False
        try:
            return self._transactions.settle(record).transaction.has_ended
        except PenstockError as problem:
            logger.warning("transaction %s could not be ended: %s", record.transaction.id, problem)
        except Exception:  # of a format, or of a check: whoever tidies has nothing to do with it
            logger.exception("transaction %s could not be ended", record.transaction.id)
        return False

    def _forget(self, record: TransactionRecord) -> None:
        if self._transactions.is_old(record):
            try:
                self._transactions.forget(record)
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


def _lease_us(lease_s: float | None) -> int | None:
    if lease_s is None:
        return None
    try:
        return int(lease_s * 1e6)
    except (OverflowError, ValueError):
        raise InvalidRequest(f"lease_s must be a number of seconds, got {lease_s}") from None


def _storable_text(text: str) -> str:
    """What a caller says, in a form that can be stored."""
    return text.encode(errors="replace").decode()
