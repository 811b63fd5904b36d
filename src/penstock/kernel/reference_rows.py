"""The rows of a store as references, and back; and which of them take commits."""

from __future__ import annotations

import msgspec

from penstock.errors import (
    Damaged,
    InvalidRequest,
    PenstockError,
    ReferenceNotFound,
    TransactionNotFound,
    TransactionOver,
)
from penstock.model.references import Kind, Reference, decode_reference, encode_reference
from penstock.model.transactions import PREFIX, TransactionState, is_transaction, read_transaction
from penstock.stores.port import Row


def decode_branch_or_tag(row: Row | None) -> Reference | None:
    """The branch or tag in a row, if it is one and is not deleted."""
    if row is None or row.kind not in (Kind.BRANCH, Kind.TAG):
        return None
    return decode_reference_row(row)


def decode_live_reference(row: Row | None) -> Reference | None:
    """The branch or tag in a row, or the branch of a transaction that has not ended."""
    if row is not None and row.kind == Kind.TRANSACTION:
        return decode_reference_row(row)
    return decode_branch_or_tag(row)


def require_writable(reference: Reference, now_us: int) -> None:
    """``InvalidRequest`` if a reference takes no commits, ``TransactionOver`` if it takes no more."""
    if reference.kind is Kind.BRANCH:
        return
    transaction = read_transaction(reference)
    if transaction is None:
        raise InvalidRequest(
            f"'{reference.name}' is a {reference.kind}; only branches take commits", name=reference.name
        )
    if transaction.state is not TransactionState.OPEN or transaction.is_expired(now_us):
        raise transaction_over_error(reference)


def not_found_error(name: str, row: Row | None) -> PenstockError:
    """Why there is no branch or tag of a name."""
    if row is not None and row.kind == Kind.ENDED_TRANSACTION:
        return transaction_over_error(decode_reference_row(row))
    if is_transaction(name):
        return transaction_not_found_error(name.removeprefix(PREFIX))
    return ReferenceNotFound(f"there is no branch or tag '{name}'", name=name)


def transaction_not_found_error(id: str) -> TransactionNotFound:  # noqa: A002
    """The error for a transaction that nobody knows."""
    return TransactionNotFound(f"there is no transaction '{id}', or it no longer exists", transaction=id)


def transaction_over_error(reference: Reference) -> TransactionOver:
    """The error for a write in a transaction that takes none any more."""
    transaction = read_transaction(reference)
    assert transaction is not None
    what = {
        TransactionState.OPEN: "was idle for longer than its lease, and can no longer be committed",
        TransactionState.COMMITTING: "is being committed, and accepts no more writes",
        TransactionState.COMMITTED: f"was committed to '{transaction.target}'",
        TransactionState.ABORTED: f"was aborted: {transaction.why or 'no reason is given'}",
    }
    return TransactionOver(
        f"transaction {transaction.id} {what[transaction.state]}",
        transaction=transaction.id,
        state=transaction.state.value,
    )


def decode_reference_row(row: Row) -> Reference:
    """The reference in a row of any kind but the lake's own."""
    try:
        reference: Reference = decode_reference(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the stored reference '{row.name}' cannot be read: {problem}", name=row.name) from None
    if (reference.name, reference.kind) != (row.name, row.kind):
        raise Damaged(
            f"the stored reference '{row.name}' is damaged: it is the {reference.kind} '{reference.name}'",
            name=row.name,
        )
    return reference


def encode_reference_row(reference: Reference) -> Row:
    return Row(reference.name, reference.kind.value, encode_reference(reference))
