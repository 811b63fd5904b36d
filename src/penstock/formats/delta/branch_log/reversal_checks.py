"""What stands against undoing a change to a Delta table, or against doing it again: each problem in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.formats.delta.branch_log.branch_log import BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.file_transitions import (
    File,
    FileTransition,
    collect_paths,
    get_file_key,
)
from penstock.formats.delta.branch_log.later_versions import LaterVersion
from penstock.formats.delta.branch_log.prepared_table import read_steps
from penstock.formats.delta.branch_log.ratification import read_declared
from penstock.formats.delta.branch_log.reversed_change import ABSENT, ReversedChange
from penstock.formats.delta.protocol.actions import Add, Metadata, Remove
from penstock.formats.delta.protocol.added_columns import can_hold_files, missing_columns
from penstock.formats.delta.protocol.column_rules import added_constraints
from penstock.formats.delta.protocol.commit_summary import list_first_names
from penstock.formats.delta.protocol.transaction import PartitionFilter, PartitionRegion


class ReversalChecks:
    """The reasons, found so far, why a change cannot be undone or done again by its files alone."""

    def __init__(self, change: ReversedChange) -> None:
        self._change = change
        self.problems: list[str] = []

    def add_problem(self, why: str) -> None:
        if why not in self.problems:
            self.problems.append(why)

    def check_rows_in_other_files(self, again: Mapping[str, FileTransition]) -> None:
        """A problem for each version that wrote rows of files of the change into others which are there;
        ``again`` are files with rows that are to come once more."""
        own = {
            path: get_file_key(shift.before)
            for path, shift in self._change.file_shifts.items()
            if not shift.is_gone
        }
        if self._change.is_redo:
            own = dict.fromkeys((*own, *again))
        carried = self._change.later_versions.files_with_rows_of(own, self._change.file_shifts)
        live = self._change.prepared.find_active_files(carried.keys()) if carried else {}
        for number in sorted({number for path, number in carried.items() if path in live}):
            later = self._change.later_changes[number]
            rewritten = sorted(path for path, place in carried.items() if place == number and path in live)
            sources = sorted(collect_paths(later.removes) & (own.keys() | carried.keys()))
            self.add_problem(
                f"{self._change.describe_version(later)} wrote rows of {list_first_names(sources)}"
                f" into {list_first_names(rewritten)}"
            )

    def check_rows_restored_twice(self, returns: Mapping[str, FileTransition]) -> None:
        """A problem for each version that brought rows again which are in files that are to come back."""
        for later in self._change.later_changes if returns else ():
            held = later.files_with_restored_rows & returns.keys()
            if held and self._change.find_active_files_with_rows_of(
                collect_paths(later.adds) - self._change.file_shifts.keys()
            ):
                self.add_problem(
                    f"{self._change.describe_version(later)}"
                    f" restored rows of {list_first_names(sorted(held))}"
                )

    def check_written_files_unchanged(self) -> None:
        """A problem if the change wrote rows anew, and what it wrote was changed since: what is to come back
        holds the same rows."""
        changed = [
            path
            for path, shift in self._change.file_shifts.items()
            if shift.is_new
            and shift.after is not None
            and self._change.present_files.get(path, ABSENT) != shift.after.key.vector
        ]
        if not self._change.is_rewriting or not changed:
            return
        later = next(
            (
                later_step
                for later_step in reversed(self._change.later_changes)
                if collect_paths(later_step.removes) & set(changed)
            ),
            None,
        )
        self.add_problem(
            f"{self._change.describe_version(later)}"
            f" changed {list_first_names(sorted(changed))}, which it wrote"
        )

    def check_files_restored_since(self) -> None:
        """A problem if files were restored since from a state before the change: what is to come back may
        have taken their place, and their rows would be there twice. A change that is repeated knows itself
        which files it takes."""
        for later in self._change.later_changes:
            if (
                later.restored_version is None
                or later.restored_version >= decode_branch_log(self._change.newest).latest
            ):
                continue
            restored = self._change.find_active_files_with_rows_of(
                collect_paths(later.adds) - self._change.file_shifts.keys()
            )
            if restored:
                self.add_problem(
                    f"{self._change.describe_version(later)}"
                    f" restored {list_first_names(sorted(restored))} from before it"
                )

    def check_intermediate_files(self) -> None:
        """A problem if files are there that came and went within the change, as a restore may bring them:
        they hold rows that the change has in others of its files."""
        passing: set[str] = set()
        for step in self._change.own_steps:
            passing |= collect_paths(action for action in step.actions if isinstance(action, Remove))
            passing -= collect_paths(action for action in step.actions if isinstance(action, Add))
        passing -= self._change.file_shifts.keys()  # else it was there before
        live = self._change.find_active_files_with_rows_of(passing)
        if live:
            later = next(
                (each for each in self._change.later_changes if collect_paths(each.adds) & live), None
            )
            self.add_problem(
                f"{self._change.describe_version(later)}"
                f" restored {list_first_names(sorted(live))}, with rows of the commit"
            )

    def check_vectors_unchanged(self, masked: Mapping[str, FileTransition]) -> None:
        """A problem if the change took rows out of a file's vector, as the undo of an update does, and others
        have changed that vector since: what is to come back may hold rows that were deleted there."""
        for path, shift in masked.items():
            is_as_left = (
                shift.after is not None and self._change.present_files.get(path) == shift.after.key.vector
            )
            if (
                _count_deleted_rows(shift.before) > _count_deleted_rows(shift.after)
                and path in self._change.present_files
                and not is_as_left
            ):
                touches = self._change.later_file_changes.get(path, [])
                later = touches[-1][0] if touches else None
                self.add_problem(
                    f"{self._change.describe_version(later)}"
                    f" deleted rows of {path}, which may come back elsewhere"
                )

    def check_other_files_replaced(self) -> None:
        """A problem if the change replaced partitions, and a merge or a transplant of it took files that
        others had there: they are no part of the change, and would stay away."""
        own = self._change.own_replacements
        if not own or self._change.is_redo:
            return
        if self._change.later_versions.is_on_line:
            version = decode_branch_log(self._change.newest).latest
            for later in self._change.later_changes:
                if later.redone_version == version:
                    self._check_replaced_by(later, "repeated it")
            return
        line, read = decode_branch_log(self._change.target), self._change.table.read
        for step in read_steps(
            self._change.table,
            self._change.commits,
            self._change.target,
            *self._change.later_versions.landing_versions,
        ):
            later = LaterVersion(step, BranchLogTip.from_line_version(line, step.version, read))
            if not own & {place.id for place in step.replacements}:
                continue
            self._check_replaced_by(later, "merged it into this branch")

    def check_columns(self, metadata: Metadata) -> None:
        """A problem if files come back whose columns the table has not any more."""
        then = read_declared(self._change.table, decode_branch_log(self._change.to_state).declared).metadata
        if then.partition_columns != metadata.partition_columns:
            self.add_problem("the table is partitioned differently now")
        elif not can_hold_files(metadata.schema_string, then.schema_string):
            names = missing_columns(metadata.schema_string, then.schema_string)
            shown_names = list_first_names([f"'{name}'" for name in names]) or "others"
            self.add_problem(
                f"the table no longer has these columns of the rows to be restored: {shown_names}"
            )
        for constraint in added_constraints(then, metadata):
            self.add_problem(
                f"{constraint} was added since, and the rows to be restored were not checked against it"
            )

    def _check_replaced_by(self, later: LaterVersion, subject: str) -> None:
        places = [
            replacement.partitions for step in self._change.own_steps for replacement in step.replacements
        ]
        regions = [
            PartitionRegion(
                self._change.present_definition.metadata.schema_string, partitions or (PartitionFilter(),)
            )
            for partitions in places
        ]
        removes = (
            remove
            for remove in later.removes
            if any(region.may_hold_file(remove.partition_values or {}) for region in regions)
        )
        removed_paths = sorted(
            collect_paths(removes) - self._change.file_shifts.keys() - collect_paths(later.adds)
        )
        gone = set(removed_paths) - self._change.prepared.find_active_files(removed_paths).keys()
        if gone:
            self.add_problem(
                f"{self._change.describe_version(later)} {subject}, "
                f"and also removed {list_first_names(sorted(gone))}: "
                "revert that commit instead"
            )


def _count_deleted_rows(file: File | None) -> int:
    """How many rows of a file its vector deletes."""
    vector = None if file is None else file.deletion_vector
    return 0 if vector is None else vector.cardinality
