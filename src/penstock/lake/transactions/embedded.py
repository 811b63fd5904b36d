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
from penstock.kernel.conflict import content_of
from penstock.kernel.state import prefix_end
from penstock.kernel.transactions import Known, Transactions
from penstock.lake.call import Call, Said
from penstock.lake.handling import commit_meta, first
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
from penstock.model.transactions import TEXT_MAX_CHARS, Transaction, check_transaction_id

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

logger = logging.getLogger("penstock")

SHARED_MAX: Final = 10_000
"""How many commits are remembered to be on a branch or tag."""
TIDIED_AT_ONCE: Final = 10
"""How many rows that may be over are looked at when another transaction begins: that costs about the same,
however many there are, and keeps their number in bounds."""


class TransactionAnswers:
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
        known = self._transactions.begin(
            call.id,
            self._lake.or_default(call.target),
            policy=call.policy,
            isolation=call.isolation,
            lease_us=_lease_us(call.lease_s),
            who=_text(call.who),
            message=_text(call.message),
            properties={_text(name): _text(value) for name, value in call.properties.items()},
        )
        self._tidy_some()
        return self._told(known)

    def _get(self, call: GetTransaction) -> TransactionInfo:
        known = self._transactions.seen(self._transactions.get(call.id))
        return self._told(known, self._transactions.reads(known) if call.reads else ())

    def _renew(self, call: RenewTransaction) -> TransactionInfo:
        properties = {
            _text(name): None if value is None else _text(value) for name, value in call.properties.items()
        }
        return self._told(self._transactions.renew(call.id, _lease_us(call.lease_s), properties))

    def _note_reads(self, call: NoteReads) -> TransactionInfo:
        self._transactions.note_reads(call.id, call.reads)
        return self._told(self._transactions.get(call.id))

    def _commit(self, call: CommitTransaction) -> TransactionLanded:
        begun = self._transactions.get(call.id).transaction
        known = self._transactions.commit(call.id, _meta(begun, call.said, call.who))
        found = known.transaction
        if found.commit == NO_COMMIT:
            head = found.base
            with suppress(ReferenceNotFound):
                head = self._kernel.references.get(found.target).head
            return TransactionLanded(info=self._told(known), head=head.hex())
        commit: Commit | None = None
        with suppress(HistoryExpired):
            commit = Commit.of(found.commit, self._kernel.history.commit(found.commit))
            self._lake.await_published(found.target, self._landed(found.commit))
        return TransactionLanded(info=self._told(known), commit=commit, head=found.commit.hex())

    def _landed(self, commit: ObjectId) -> Iterator[tuple[Key, AnyContent | None]]:
        """The keys that a commit changed, and what they hold since."""
        before = self._kernel.history.commit(commit).parent
        users = prefix_end(RESERVED) or b""
        for stored, _, now in self._kernel.differing(before, commit, users):
            yield Key.decode(stored), content_of(self._kernel.objects, now)

    def _abort(self, call: AbortTransaction) -> TransactionInfo:
        why = _text(call.why or (f"by {call.who}" if call.who else ""))[:TEXT_MAX_CHARS]
        return self._told(self._transactions.seen(self._transactions.abort(call.id, why)))

    def _list(self, call: ListTransactions) -> tuple[TransactionInfo, ...]:
        after = check_transaction_id(call.after) if call.after is not None else ""
        chosen = (
            self._told(self._transactions.seen(known))
            for known in self._known(after, call.all)
            if call.target in (None, known.transaction.target)
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

    def _known(self, after: str, also_ended: bool) -> Iterator[Known]:
        """Those that are known, by id, each once: one may end while they are read."""
        if not also_ended:
            yield from self._transactions.open(after)
            return
        last = ""
        both = self._transactions.open(after), self._transactions.ended(after)
        for known in merge(*both, key=lambda one: one.transaction.id):
            if known.transaction.id != last:
                last = known.transaction.id
                yield known

    def _told(self, known: Known, reads: tuple[Read, ...] = ()) -> TransactionInfo:
        return TransactionInfo.of(known.transaction, self._kernel.clock(), reads)

    # -- those that were left ------------------------------------------------------------------------------

    def tidy(self) -> int:
        """End all transactions that nobody is at any more, and forget those that ended long ago; returns how
        many were ended. One that cannot be ended now is left for the next time, and does not keep the others
        from it."""
        ended = sum(self._settled(known) for known in self._transactions.open(skips_damaged=True))
        for known in self._transactions.ended(skips_damaged=True):
            self._forgotten(known)
        return ended

    def _tidy_some(self) -> None:
        """The same for a few, wherever chance begins."""
        start, few = uuid4().hex, TIDIED_AT_ONCE
        try:
            for known in islice(self._transactions.open(start, skips_damaged=True, page_max=few), few):
                self._settled(known)
            for known in islice(self._transactions.ended(start, skips_damaged=True, page_max=few), few):
                self._forgotten(known)
        except PenstockError as problem:
            logger.warning("transactions that were left could not be looked for: %s", problem)

    def _settled(self, known: Known) -> bool:
        if not self._transactions.is_left(known):
            return False
        try:
            return self._transactions.settle(known).transaction.has_ended
        except PenstockError as problem:
            logger.warning("transaction %s could not be ended: %s", known.transaction.id, problem)
        except Exception:  # of a format, or of a check: whoever tidies has nothing to do with it
            logger.exception("transaction %s could not be ended", known.transaction.id)
        return False

    def _forgotten(self, known: Known) -> None:
        if self._transactions.is_old(known):
            try:
                self._transactions.forget(known)
            except PenstockError as problem:
                logger.warning("transaction %s could not be forgotten: %s", known.transaction.id, problem)


def _meta(begun: Transaction, said: Said, who: str) -> CommitMeta:
    """What the commit of a transaction says of itself, unless whoever commits it says otherwise."""
    meta = commit_meta(said, who or begun.who, begun.message or f"transaction {begun.id}")
    given = {name: (value,) for name, value in begun.properties.items()}
    return msgspec.structs.replace(meta, properties={**given, **meta.properties})


def _lease_us(lease_s: float | None) -> int | None:
    if lease_s is None:
        return None
    try:
        return int(lease_s * 1e6)
    except (OverflowError, ValueError):
        raise InvalidRequest(f"a lease is a number of seconds, and not {lease_s}") from None


def _text(text: str) -> str:
    """What a caller says, in a form that can be stored."""
    return text.encode(errors="replace").decode()
