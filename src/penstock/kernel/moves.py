"""Moves of the default branch past its queue: whether the formats of managed tables allow them."""

from __future__ import annotations

from penstock.errors import InvalidRequest
from penstock.kernel.conflict import content_of
from penstock.kernel.format import Formats
from penstock.kernel.objects import Objects
from penstock.kernel.state import differing, prefix_end
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.references import Reference


def check_move(formats: Formats, objects: Objects, reference: Reference, to: ObjectId) -> None:
    """Refuse a move of the default branch that a managed table cannot follow.

    Its versions are published and do not go away again, so its branch cannot go back behind them.
    """
    if not formats or not formats.is_default(reference.name) or reference.head == to:
        return
    before, after = objects.commit(reference.head), objects.commit(to)
    for stored, was, now in differing(objects, before, after, prefix_end(RESERVED) or b""):
        old, new = content_of(objects, was), content_of(objects, now)
        managing = formats.managing(old, new)
        why = managing.may_move(old, new) if managing is not None else None
        if why is not None:
            key = Key.decode(stored)
            raise InvalidRequest(
                f"'{reference.name}' cannot be moved to {to.hex()[:8]}: '{key}' {why}\n"
                "  Revert the commits that are not wanted, or merge those that are: both add to the table.",
                name=reference.name,
                key=str(key),
            )
