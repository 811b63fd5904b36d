"""The rows of a store as references, and back."""

from __future__ import annotations

import msgspec

from penstock.errors import Damaged
from penstock.model.references import Kind, Reference, decode_reference, encode_reference
from penstock.stores.port import Row


def live(row: Row | None) -> Reference | None:
    """The branch or tag in a row, if it is one and is not deleted."""
    if row is None or row.kind not in (Kind.BRANCH, Kind.TAG):
        return None
    return decoded_reference(row)


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
