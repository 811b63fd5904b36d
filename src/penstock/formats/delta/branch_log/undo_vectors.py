"""Undoing a change of a file's deletion vector, where later ones may have changed it too: row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.formats.delta.branch_log.file_transitions import File, FileTransition, get_file_key
from penstock.formats.delta.branch_log.later_versions import LaterVersion
from penstock.formats.delta.protocol.actions import Add, Remove
from penstock.formats.delta.rows.vectors import DeletedRows, ReadRange, read_deleted_rows


class VectorChange(NamedTuple):
    """A change of a file's deletion vector by a later version."""

    gone: Remove
    come: Add
    later: LaterVersion


class FileVectors(NamedTuple):
    """A file, and how its vectors are read."""

    file: Add
    read_range: ReadRange
    inside: Callable[[str], str]

    def read_deleted_rows(self, state: File | None) -> int:
        """The rows that are deleted in a state of the file. ``ValueError`` if they cannot be read."""
        vector = None if state is None else state.deletion_vector
        return read_deleted_rows(self.file, vector, self.read_range, self.inside).bits

    def count_rows(self) -> int:
        return read_deleted_rows(self.file, None, self.read_range, self.inside).total


def vector_changes(
    touches: Sequence[tuple[LaterVersion, File]], shift: FileTransition, *, is_redo: bool
) -> list[VectorChange]:
    """How later versions changed the vector of a file, but for the one that brought the change here."""
    landed = (shift.after, shift.before) if is_redo else (shift.before, shift.after)
    vector_changes: list[VectorChange] = []
    for (_, gone), (later, come) in pairwise(touches):  # of one version, or it came back later
        if isinstance(gone, Remove) and isinstance(come, Add):
            is_landing = not vector_changes and (gone.key, come.key) == (
                get_file_key(landed[0]),
                get_file_key(landed[1]),
            )
            if not is_landing or later.is_undo:
                vector_changes.append(VectorChange(gone, come, later))
    return vector_changes


def find_rows_left_deleted(
    shift: FileTransition,
    current: Add,
    changes: Sequence[VectorChange],
    vectors: FileVectors,
    *,
    stands: bool,
) -> DeletedRows | None:
    """The rows that stay deleted; ``None`` if they are those that are deleted now.

    Rows count that the change deleted, or brought back, and on which nobody decided since. Of a change that
    ``stands`` and is done again, nothing counts unless it was undone since.
    """
    bits_before, became, now = (
        vectors.read_deleted_rows(shift.before),
        vectors.read_deleted_rows(shift.after),
        vectors.read_deleted_rows(current),
    )
    all_rows = became & ~bits_before, bits_before & ~became
    deleted, returned = (0, 0) if stands else all_rows
    before_each: dict[int, tuple[int, int]] = {}
    """Of each version, the rows that counted before it."""
    for gone, come, later in changes:
        earlier, after = vectors.read_deleted_rows(gone), vectors.read_deleted_rows(come)
        came, went = earlier & ~after, after & ~earlier
        counted = deleted, returned
        deleted, returned = deleted & ~came, returned & ~went
        if later.is_undo:  # it may have undone what had undone the change
            then = (
                all_rows if later.undone_version is None else before_each.get(later.undone_version, all_rows)
            )
            deleted, returned = deleted | (then[0] & went), returned | (then[1] & came)
        before_each[later.step.version] = counted
    bits_left = (now & ~deleted) | returned
    return None if bits_left == now else DeletedRows(bits_left, vectors.count_rows())
