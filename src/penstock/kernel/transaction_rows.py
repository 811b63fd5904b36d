"""The rows of transactions: how they are found, and how the note in one is swapped with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.records import PAGE, Keep, rows_of_kind
from penstock.kernel.references import NOTE_MAX_BYTES, Decide, Move
from penstock.kernel.rows import decoded_reference, no_transaction, over
from penstock.kernel.sent import Sent
from penstock.model.encoding import ObjectId, digest
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import (
    PREFIX,
    Transaction,
    TransactionState,
    check_transaction_id,
    encode_transaction,
    transaction_of,
)
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

logger = logging.getLogger("penstock")

LANDS_WITHIN_US: Final = 2 * 3600 * 1_000_000
"""A merge lands within this time of being sent, or never; more than clocks are apart."""
OUT_OF_TIME: Final = "its lease ran out"
GIVEN_MAX_BYTES: Final = 6 * 1024
"""Of the note of an open transaction. Its commit says the same once more."""


A = TypeVar("A")


class Known(NamedTuple):
    """A transaction as its row has it."""

    transaction: Transaction
    reference: Reference

    @property
    def state(self) -> TransactionState:
        return self.transaction.state

    @property
    def head(self) -> ObjectId:
        return self.reference.head


class TransactionRows:
    """The rows of a lake's transactions."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def find(self, id: str) -> Known | None:  # noqa: A002
        row = self._kernel.store.reference(PREFIX + check_transaction_id(id))
        return known_in_row(row) if row is not None else None

    def get(self, id: str) -> Known:  # noqa: A002
        """``TransactionNotFound`` if there is none, or not any more."""
        found = self.find(id)
        if found is None:
            raise no_transaction(id)
        return found

    def open(self, after: str = "", *, skips_damaged: bool = False, page_max: int = PAGE) -> Iterator[Known]:
        """Those that have not ended, by id; others are not read. So many are asked for at a time."""
        return self._all(Kind.TRANSACTION, after, skips_damaged, page_max)

    def ended(self, after: str = "", *, skips_damaged: bool = False, page_max: int = PAGE) -> Iterator[Known]:
        """Those that have ended and are still known, by id."""
        return self._all(Kind.ENDED_TRANSACTION, after, skips_damaged, page_max)

    def _all(self, kind: Kind, after: str, skips_damaged: bool, page_max: int) -> Iterator[Known]:
        last = PREFIX + after if after else ""
        for row in rows_of_kind(self._kernel.store, kind, prefix=PREFIX, after=last, page_max=page_max):
            try:
                known = known_in_row(row)
            except PenstockError as problem:
                if not skips_damaged:
                    raise
                logger.warning("a transaction is passed over: %s", problem)
                continue
            yield known

    def _move_open(self, id: str, decide: Callable[[Transaction, int], Transaction]) -> Known:  # noqa: A002
        """Move the row of a transaction that is open; ``TransactionOver`` if it is not."""

        def decide_open(found: Transaction, now_us: int) -> Transaction | None:
            if found.is_expired(now_us):
                return expired(found, now_us)
            return decide(found, now_us) if found.state is TransactionState.OPEN else None

        known = self._move(id, decide_open)
        if known.state is not TransactionState.OPEN:
            raise over(known.reference)
        return known

    def _move(
        self,
        id: str,  # noqa: A002
        decide: Callable[[Transaction, int], Transaction | Keep[A] | None],
    ) -> Known | A:
        """Move a row to what is decided; ``None`` keeps it as it is, and is answered with that.

        ``TransactionNotFound`` if it is gone.
        """
        check_transaction_id(id)

        def decide_row(row: Row | None) -> Move | Keep[Known | A]:
            if row is None:
                raise no_transaction(id)
            known = known_in_row(row)
            wanted = decide(known.transaction, self._kernel.clock())
            if wanted is None:
                return Keep(known)
            if isinstance(wanted, Keep):
                return wanted
            kind = Kind.ENDED_TRANSACTION if wanted.has_ended else Kind.TRANSACTION
            note = encode_transaction(wanted)
            return Move(msgspec.structs.replace(known.reference, kind=kind, note=note), Event.NOTE)

        return self._swapped(id, decide_row, "")

    def change_committing(
        self, known: Known, change: Callable[[Transaction, int], Transaction | Keep[A]]
    ) -> Known | A:
        """Change the row of one that is committing; any other stays. It is returned as it is then."""

        def decide(found: Transaction, now_us: int) -> Transaction | Keep[A] | None:
            return change(found, now_us) if found.state is TransactionState.COMMITTING else None

        return self._move(known.transaction.id, decide)

    def read_again(self, known: Known) -> Known:
        """The same as its row has it now."""
        return self.get(known.transaction.id)

    def describe_sent(self, known: Known) -> Sent:
        """The merge that it sends."""
        found = known.transaction
        until_us = found.changed_us + LANDS_WITHIN_US
        return Sent(
            found.id, found.target, found.incarnation, found.position, until_us, found.who, digest_of(known)
        )

    def _swapped(self, id: str, decide: Decide[A], who: str) -> Known | A:  # noqa: A002
        """Move the row of a transaction, or keep it, which has the answer that is decided."""
        moved = self._kernel.references.swap(PREFIX + id, decide, who)
        return known_in(moved) if isinstance(moved, Reference) else moved


def known_in_row(row: Row) -> Known:
    return known_in(decoded_reference(row))


def known_in(reference: Reference) -> Known:
    found = transaction_of(reference)
    if found is None:  # a branch of that name, made when the prefix was not kept yet
        raise InvalidRequest(f"'{reference.name}' is a {reference.kind}, and no transaction")
    return Known(found, reference)


def digest_of(known: Known) -> bytes:
    """What tells the merge of a transaction from one of another transaction that had its id before."""
    return digest("transaction", known.transaction.id, known.reference.incarnation)


def fitting(transaction: Transaction) -> Transaction:
    """Refuse what a caller gives if it is too much for a row. How it ends always fits."""
    whose, most = "a transaction", GIVEN_MAX_BYTES
    if transaction.meta is not None:
        whose, most = "a transaction and of its commit", NOTE_MAX_BYTES
    size = len(encode_transaction(transaction))
    if size > most:
        raise InvalidRequest(
            f"the messages and properties of {whose}, with what else its row says, have at most {most} bytes "
            f"in all, and these have {size}"
        )
    return transaction


def expired(found: Transaction, now_us: int) -> Transaction | None:
    """Aborted, if its lease has run out; ``None`` if it stays."""
    return found.as_aborted(OUT_OF_TIME, now_us) if found.is_expired(now_us) else None
