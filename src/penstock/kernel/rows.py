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
from penstock.model.transactions import PREFIX, TransactionState, is_transaction, transaction_of
from penstock.stores.port import Row


def live(row: Row | None) -> Reference | None:
    """The branch or tag in a row, if it is one and is not deleted."""
    if row is None or row.kind not in (Kind.BRANCH, Kind.TAG):
        return None
    return decoded_reference(row)


def present(row: Row | None) -> Reference | None:
    """The branch or tag in a row, or the branch of a transaction that has not ended."""
    if row is not None and row.kind == Kind.TRANSACTION:
        return decoded_reference(row)
    return live(row)


def require_writable(reference: Reference, now_us: int) -> None:
    """``InvalidRequest`` if a reference takes no commits, ``TransactionOver`` if it takes no more."""
    transaction = transaction_of(reference)
    if transaction is None:
        if reference.kind is not Kind.BRANCH:
            raise InvalidRequest(
                f"'{reference.name}' is a {reference.kind}; only branches take commits", name=reference.name
            )
    elif transaction.state is not TransactionState.OPEN or transaction.is_expired(now_us):
        raise over(reference)


def missing(name: str, row: Row | None) -> PenstockError:
    """Why there is no branch or tag of a name."""
    if row is not None and row.kind == Kind.ENDED_TRANSACTION:
        return over(decoded_reference(row))
    if is_transaction(name):
        return no_transaction(name.removeprefix(PREFIX))
    return ReferenceNotFound(f"there is no branch or tag '{name}'", name=name)


def no_transaction(id: str) -> TransactionNotFound:  # noqa: A002
    """The error for a transaction that nobody knows."""
    return TransactionNotFound(f"there is no transaction '{id}', or not any more", transaction=id)


def over(reference: Reference) -> TransactionOver:
    """The error for a write in a transaction that takes none any more."""
    found = transaction_of(reference)
    assert found is not None
    what = {
        TransactionState.OPEN: "was idle for longer than its lease, and lands no more",
        TransactionState.COMMITTING: "is being committed, and takes no more writes",
        TransactionState.COMMITTED: f"has landed on '{found.target}'",
        TransactionState.ABORTED: f"was aborted: {found.why or 'no reason is given'}",
    }
    return TransactionOver(
        f"transaction {found.id} {what[found.state]}", transaction=found.id, state=found.state.value
    )


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
