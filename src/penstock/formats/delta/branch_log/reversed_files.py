"""The files of a Delta table that go or come back where a change is undone or done again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.file_transitions import FileTransition, get_file_key
from penstock.formats.delta.branch_log.next_versions import choose_removal_time
from penstock.formats.delta.branch_log.ratification import read_declared
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.branch_log.reversal_checks import ReversalChecks
from penstock.formats.delta.branch_log.reversed_change import ABSENT, ReversedChange
from penstock.formats.delta.branch_log.state_difference import set_data_change
from penstock.formats.delta.branch_log.undo_vectors import (
    FileVectors,
    VectorChange,
    find_rows_left_deleted,
    vector_changes,
)
from penstock.formats.delta.protocol.actions import Add, Metadata, Remove
from penstock.formats.delta.protocol.commit_summary import list_first_names
from penstock.formats.delta.rows.file_addresses import name_inside, open_table_place
from penstock.formats.delta.rows.vectors import DeletedRows, inline_vector

INLINE_MAX_BYTES: Final = 256 * 1024
"""How large a deletion vector may be that an undo makes: it is part of the commit."""


class ReversedFiles:
    """The files that an undo, or a change that is done again, removes and adds."""

    def __init__(self, change: ReversedChange, checks: ReversalChecks, now_ms: int) -> None:
        self._change, self._checks, self._now_ms = change, checks, now_ms

    def compute_actions(self, metadata: Metadata) -> tuple[list[Remove], list[Add]]:
        """What the commit removes and adds; problems that stand against it go to the checks."""
        change = self._change
        time_ms = choose_removal_time(change.table, self._now_ms)
        self._checks.check_intermediate_files()
        shifts = change.file_shifts
        goes = {
            path: shift for path, shift in shifts.items() if shift.is_new and path in change.present_files
        }
        gone = {
            path: shift
            for path, shift in shifts.items()
            if shift.is_gone and path not in change.present_files
        }
        masked = {path: shift for path, shift in shifts.items() if not shift.is_new and not shift.is_gone}
        only_goes = not gone and not masked and goes.keys() == shifts.keys()
        if only_goes and change.are_unchanged_since(goes) and not change.own_replacements:
            return [self._make_remove(path, shift, time_ms) for path, shift in goes.items()], []
        if change.is_redo and not change.own_replacements:
            self._check_no_rows_returned(goes)
            if gone:
                self._check_no_rows_deleted_since(masked)
        returns = {path: shift for path, shift in gone.items() if self._must_restore_file(path, shift)}
        self._checks.check_rows_in_other_files(returns if change.is_redo else {})
        self._checks.check_rows_restored_twice(returns)
        self._checks.check_other_files_replaced()
        if goes and len(returns) < len(gone) and change.is_rewriting:
            missing = list_first_names(sorted(gone.keys() - returns.keys()))
            self._checks.add_problem(
                f"it rewrote rows of {missing}, which were replaced since and cannot be restored"
            )
        if returns and not change.is_redo:
            self._checks.check_files_restored_since()
            self._checks.check_vectors_unchanged(masked)
        files = self._files_before([*returns, *masked])
        for path in sorted(returns.keys() - files.keys()):
            self._checks.add_problem(f"the earlier state of {path} is not known")
        if returns or masked:
            self._checks.check_columns(metadata)
        removes = [self._make_remove(path, shift, time_ms) for path, shift in goes.items()]
        adds = [
            set_data_change(files[path], shift.data_change)
            for path, shift in returns.items()
            if path in files
        ]
        for path, shift in masked.items():
            if (changed := self._restore_deleted_rows(path, shift, files.get(path))) is not None:
                removes.append(set_data_change(make_remove(changed[0], time_ms), shift.data_change))
                adds.append(set_data_change(changed[1], shift.data_change))
        if adds:
            self._checks.check_written_files_unchanged()
        return removes, adds

    def _check_no_rows_returned(self, goes: Mapping[str, FileTransition]) -> None:
        """A file that a commit removed takes no rows with it that were deleted before and are there again."""
        for path, shift in goes.items():
            if self._count_rows("returned", path, shift, lambda _, became, now: became & ~now):
                self._checks.add_problem(f"rows of {path} that were deleted before are there again")

    def _check_no_rows_deleted_since(self, masked: Mapping[str, FileTransition]) -> None:
        """A commit that deleted rows of a file, and may have written them anew, does not bring them back
        where others have deleted them."""
        for path, shift in masked.items():
            if self._count_rows(
                "deleted since", path, shift, lambda before, became, now: before & ~became & now
            ):
                self._checks.add_problem(f"rows of {path} that it may have written anew were deleted since")

    def _count_rows(
        self, which: str, path: str, shift: FileTransition, choose: Callable[[int, int, int], int]
    ) -> int:
        """How many rows of a file that got another vector since are chosen of those that are deleted in the
        states that are wanted, that are left, and now; -1 if they cannot be read."""
        present = self._change.present_files.get(path, ABSENT)
        if shift.after is None or present in (ABSENT, shift.after.key.vector):
            return 0
        current = self._change.as_now(path)

        def count_table_rows() -> int:
            vectors = self._open_vectors(current)
            try:
                return choose(
                    *map(vectors.read_deleted_rows, (shift.before, shift.after, current))
                ).bit_count()
            except ValueError:
                return -1

        keys = get_file_key(shift.before), get_file_key(shift.after), get_file_key(current)
        return self._change.table.read_once(
            (f"delta {which} rows", self._change.target.location, path, *keys), count_table_rows
        )

    def _make_remove(self, path: str, shift: FileTransition, time_ms: int) -> Remove:
        """The action that takes a file away that is there, with whatever vector."""
        file = shift.after
        assert file is not None
        if file.key.vector != self._change.present_files[path]:
            file = self._change.as_now(path)
        gone = (
            make_remove(file, time_ms)
            if isinstance(file, Add)
            else msgspec.structs.replace(file, deletion_timestamp=time_ms)
        )
        return set_data_change(gone, shift.data_change)

    def _files_before(self, paths: Sequence[str]) -> dict[str, Add]:
        """The files as they were in the state that the undo restores, with statistics."""
        files = {path: self._change.file_shifts[path].before for path in paths}
        adds = {path: add for path, add in files.items() if isinstance(add, Add)}
        paths_by_key = {remove.key: path for path, remove in files.items() if isinstance(remove, Remove)}
        target_files = (
            self._change.prepared.files_in(self._change.to_state, paths_by_key.keys()) if paths_by_key else {}
        )
        return adds | {paths_by_key[key]: add for key, add in target_files.items()}

    def _must_restore_file(self, path: str, shift: FileTransition) -> bool:
        """Whether a file that the change removed is to be there again: not where its partition was replaced
        since, nor where it was brought back before and others removed it since."""
        is_undone = (
            not self._change.is_first
            and not self._change.is_as_written
            and self._change.was_brought_back(path)
        )
        assert shift.before is not None
        return not is_undone and not self._change.is_replaced(shift.before.partition_values)

    def _restore_deleted_rows(
        self, path: str, shift: FileTransition, before: Add | None
    ) -> tuple[Add, Add] | None:
        """A file as it is, and as it is with the rows restored that a deletion vector removed; ``None`` if
        nothing is left to do."""
        changes = vector_changes(
            self._change.later_file_changes.get(path, []), shift, is_redo=self._change.is_redo
        )
        if path not in self._change.present_files:
            if not self._change.is_replaced(None if shift.before is None else shift.before.partition_values):
                touches = self._change.later_file_changes.get(path, [])
                change_text = self._change.describe_version(touches[-1][0] if touches else None)
                self._checks.add_problem(f"{change_text} removed {path}, from which it deleted rows")
            return None
        if before is None:
            self._checks.add_problem(f"the earlier state of {path} is not known")
            return None
        if self._change.is_redo and not self._change.is_first and not changes:
            return None  # it stands
        now = shift.after if shift.after is not None and not changes else None
        current = now if isinstance(now, Add) else self._change.as_now(path)
        if not changes and get_file_key(current) == get_file_key(shift.after):
            return current, before
        return self._restore_rows(path, shift, before, current, changes)

    def _open_vectors(self, file: Add) -> FileVectors:
        metadata = read_declared(self._change.table, decode_branch_log(self._change.target).declared).metadata
        place = open_table_place(
            self._change.commits.places, self._change.target.location, metadata.configuration
        )
        return FileVectors(file, place.read_range, lambda path: name_inside(path, place))

    def _restore_rows(
        self, path: str, shift: FileTransition, before: Add, current: Add, changes: Sequence[VectorChange]
    ) -> tuple[Add, Add] | None:
        def read_deleted_rows() -> DeletedRows | str | None:
            try:
                stands = self._change.is_redo and not self._change.is_first
                return find_rows_left_deleted(
                    shift, current, changes, self._open_vectors(before), stands=stands
                )
            except ValueError as problem:
                return f"the deleted rows of {path} cannot be read: {problem}"

        keys = get_file_key(shift.before), get_file_key(shift.after), get_file_key(current)
        bitmap = self._change.table.read_once(
            ("delta vector", self._change.target.location, path, *keys, len(changes)), read_deleted_rows
        )
        if isinstance(bitmap, str):
            self._checks.add_problem(bitmap)
        if bitmap is None or isinstance(bitmap, str):
            return None
        if bitmap.bits == 0 and before.deletion_vector is None:
            return current, before
        vector = inline_vector(bitmap)
        if vector is not None and vector.size_in_bytes > INLINE_MAX_BYTES:
            self._checks.add_problem(f"the deletion vector of {path} would be too large for a commit")
            return None
        stats = msgspec.json.encode({"numRecords": bitmap.total, "tightBounds": False}).decode()
        return current, msgspec.structs.replace(before, deletion_vector=vector, stats=stats)
