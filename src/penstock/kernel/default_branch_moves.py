"""What managed tables become from one commit to another, and whether their formats allow that where the
default branch is moved past its queue."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import InvalidRequest
from penstock.kernel.format import Formats
from penstock.kernel.lake_state import find_prefix_end, iterate_differences
from penstock.kernel.ledger import TableChange
from penstock.kernel.objects import Objects, read_content
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.references import Reference


def check_move(formats: Formats, objects: Objects, reference: Reference, to: ObjectId) -> None:
    """Refuse a move of the default branch that a managed table cannot follow.

    Its versions are published and do not go away again, so its branch cannot go back behind them.
    """
    if not formats or not formats.is_default(reference.name) or reference.head == to:
        return
    commit = to.hex() if to == NO_COMMIT else to.hex()[:8]
    for key, (managing, old, new) in find_differing_tables(formats, objects, reference.head, to):
        if (reason := managing.explain_forbidden_move(old, new)) is not None:
            raise InvalidRequest(
                f"'{reference.name}' cannot be moved to {to.hex()[:8]}: '{key}' {reason}\n  To bring back "
                f"the rows of that commit: penstock restore --all --to {commit} --branch {reference.name}, "
                "which adds new versions to the tables. To undo single commits, revert them.",
                name=reference.name,
                key=str(key),
            )


def find_changed_tables(formats: Formats, objects: Objects, commit: ObjectId) -> dict[Key, TableChange]:
    """What a commit made of managed tables."""
    return dict(find_differing_tables(formats, objects, objects.get_commit(commit).parent, commit))


def find_differing_tables(
    formats: Formats, objects: Objects, commit_id: ObjectId, other: ObjectId
) -> Iterator[tuple[Key, TableChange]]:
    """The managed tables that differ between two commits."""
    before, after = objects.get_commit(commit_id), objects.get_commit(other)
    for stored, old_value, now in iterate_differences(
        objects, before, after, find_prefix_end(RESERVED) or b""
    ):
        old, new = read_content(objects, old_value), read_content(objects, now)
        managing = formats.find_managing_format(new, old)
        if managing is not None:
            yield Key.decode(stored), TableChange(managing, old, new)
