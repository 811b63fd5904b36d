"""The rows of transactions: how they are found, and how the note in one is swapped with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.records import PAGE, KeepRow, list_rows_of_kind
from penstock.kernel.reference_rows import (
    decode_reference_row,
    transaction_not_found_error,
    transaction_over_error,
)
from penstock.kernel.references import NOTE_MAX_BYTES, Decide, ReferenceDecision
from penstock.kernel.request_outcome import SubmittedRequest
from penstock.model.encoding import ObjectId, hash_parts
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import (
    PREFIX,
    StoredTransaction,
    TransactionState,
    check_transaction_id,
    encode_transaction,
    read_transaction,
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


class TransactionRecord(NamedTuple):
    """A transaction as its row has it."""

    transaction: StoredTransaction
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

    def find_transaction(self, id: str) -> TransactionRecord | None:  # noqa: A002
        row = self._kernel.store.reference(PREFIX + check_transaction_id(id))
        return record_in_row(row) if row is not None else None

    def get_transaction(self, id: str) -> TransactionRecord:  # noqa: A002
        """``TransactionNotFound`` if it does not exist, or no longer."""
        record = self.find_transaction(id)
        if record is None:
            raise transaction_not_found_error(id)
        return record

    def list_open_transactions(
        self, after: str = "", *, skips_damaged: bool = False, page_max: int = PAGE
    ) -> Iterator[TransactionRecord]:
        """Those that have not ended, by id; others are not read. So many are asked for at a time."""
        return self._list_records(Kind.TRANSACTION, after, skips_damaged, page_max)

    def list_ended_transactions(
        self, after: str = "", *, skips_damaged: bool = False, page_max: int = PAGE
    ) -> Iterator[TransactionRecord]:
        """Those that have ended and are still known, by id."""
        return self._list_records(Kind.ENDED_TRANSACTION, after, skips_damaged, page_max)

    def _list_records(
        self, kind: Kind, after: str, skips_damaged: bool, page_max: int
    ) -> Iterator[TransactionRecord]:
        last = PREFIX + after if after else ""
        for row in list_rows_of_kind(self._kernel.store, kind, prefix=PREFIX, after=last, page_max=page_max):
            try:
                record = record_in_row(row)
            except PenstockError as problem:
                if not skips_damaged:
                    raise
                logger.warning("a damaged transaction is left out of the list: %s", problem)
                continue
            yield record

    def _move_open(
        self,
        id: str,  # noqa: A002
        decide_change: Callable[[StoredTransaction, int], StoredTransaction],
    ) -> TransactionRecord:
        """Move the row of a transaction that is open; ``TransactionOver`` if it is not."""

        def decide_open(transaction: StoredTransaction, now_us: int) -> StoredTransaction | None:
            if transaction.is_expired(now_us):
                return abort_if_expired(transaction, now_us)
            return decide_change(transaction, now_us) if transaction.state is TransactionState.OPEN else None

        record = self._move_row(id, decide_open)
        if record.state is not TransactionState.OPEN:
            raise transaction_over_error(record.reference)
        return record

    def _move_row(
        self,
        id: str,  # noqa: A002
        decide_change: Callable[[StoredTransaction, int], StoredTransaction | KeepRow[A] | None],
    ) -> TransactionRecord | A:
        """Move a row to what is decided; ``None`` keeps it as it is, and is answered with that.

        ``TransactionNotFound`` if it is gone.
        """
        check_transaction_id(id)

        def decide_row(row: Row | None) -> ReferenceDecision | KeepRow[TransactionRecord | A]:
            if row is None:
                raise transaction_not_found_error(id)
            record = record_in_row(row)
            changed = decide_change(record.transaction, self._kernel.clock())
            if changed is None:
                return KeepRow(record)
            if isinstance(changed, KeepRow):
                return changed
            kind = Kind.ENDED_TRANSACTION if changed.has_ended else Kind.TRANSACTION
            note = encode_transaction(changed)
            return ReferenceDecision(
                msgspec.structs.replace(record.reference, kind=kind, note=note), Event.NOTE
            )

        return self._swap_transaction(id, decide_row, "")

    def change_committing(
        self,
        record: TransactionRecord,
        change: Callable[[StoredTransaction, int], StoredTransaction | KeepRow[A]],
    ) -> TransactionRecord | A:
        """Change the row of one that is committing; any other stays. It is returned as it is then."""

        def decide_change(
            transaction: StoredTransaction, now_us: int
        ) -> StoredTransaction | KeepRow[A] | None:
            return change(transaction, now_us) if transaction.state is TransactionState.COMMITTING else None

        return self._move_row(record.transaction.id, decide_change)

    def read_again(self, record: TransactionRecord) -> TransactionRecord:
        """The same as its row has it now."""
        return self.get_transaction(record.transaction.id)

    def describe_sent(self, record: TransactionRecord) -> SubmittedRequest:
        """The merge that it sends."""
        transaction = record.transaction
        until_us = transaction.changed_us + LANDS_WITHIN_US
        return SubmittedRequest(
            transaction.id,
            transaction.target,
            transaction.incarnation,
            transaction.position,
            until_us,
            transaction.who,
            compute_digest(record),
        )

    def _swap_transaction(self, id: str, decide_change: Decide[A], who: str) -> TransactionRecord | A:  # noqa: A002
        """Move the row of a transaction, or keep it, which has the answer that is decided."""
        moved = self._kernel.references.swap_reference(PREFIX + id, decide_change, who)
        return read_record(moved) if isinstance(moved, Reference) else moved


def record_in_row(row: Row) -> TransactionRecord:
    return read_record(decode_reference_row(row))


def read_record(reference: Reference) -> TransactionRecord:
    transaction = read_transaction(reference)
    if transaction is None:  # a branch of that name, made when the prefix was not kept yet
        raise InvalidRequest(f"'{reference.name}' is a {reference.kind}, not a transaction")
    return TransactionRecord(transaction, reference)


def compute_digest(record: TransactionRecord) -> bytes:
    """What tells the merge of a transaction from one of another transaction that had its id before."""
    return hash_parts("transaction", record.transaction.id, record.reference.incarnation)


def check_row_size(transaction: StoredTransaction) -> StoredTransaction:
    """Refuse what a caller gives if it is too much for a row. How it ends always fits."""
    whose, most = "a transaction", GIVEN_MAX_BYTES
    if transaction.meta is not None:
        whose, most = "a transaction and of its commit", NOTE_MAX_BYTES
    size = len(encode_transaction(transaction))
    if size > most:
        raise InvalidRequest(
            f"the messages and properties of {whose} are too long: its row would have {size} bytes, more "
            f"than the limit of {most}"
        )
    return transaction


def abort_if_expired(transaction: StoredTransaction, now_us: int) -> StoredTransaction | None:
    """Aborted, if its lease has run out; ``None`` if it stays."""
    return transaction.mark_aborted(OUT_OF_TIME, now_us) if transaction.is_expired(now_us) else None
