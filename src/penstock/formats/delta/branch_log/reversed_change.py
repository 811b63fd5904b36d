"""A change to a Delta table that is to be undone or done again: its files, and what became of them since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import (
    File,
    FileTransition,
    collect_paths,
    find_transitions,
    get_file_key,
    list_brought_files,
)
from penstock.formats.delta.branch_log.later_versions import LaterVersion, LaterVersions
from penstock.formats.delta.branch_log.net_change import NetStep
from penstock.formats.delta.branch_log.next_versions import choose_removal_time
from penstock.formats.delta.branch_log.prepared_table import (
    PreparedTable,
    find_parting_version,
    make_lookup_at_version,
    note_table_state,
    read_steps,
    select_replacements_in_force,
)
from penstock.formats.delta.branch_log.ratification import KnownDefinition, read_declared
from penstock.formats.delta.branch_log.undone_state import UndoneState
from penstock.formats.delta.protocol.actions import Add, FileKey, Metadata
from penstock.formats.delta.protocol.transaction import PartitionFilter, PartitionRegion, find_last_action
from penstock.kernel.format import LaterCommitLookup, Table
from penstock.model.nessie import DeltaTable

FEW_LATER: Final = 64
"""Up to so many later versions are looked through for files, or so many that did more than append; with
more of them the table itself is asked."""
ABSENT: Final = ""
"""No id of a vector, and not ``None`` either: stands for a file that is not there."""


class ReversedChange:
    """What takes a table from one state of it to another, though others have changed it since.

    To undo a commit leads from the state after it to the one before, to do it again the other way.
    """

    def __init__(
        self,
        table: Table,
        commits: CommitReader,
        target: DeltaTable,
        from_state: DeltaTable,
        to_state: DeltaTable,
        since: LaterCommitLookup | None,
        now_ms: int,
        *,
        is_redo: bool = False,
        is_first: bool = False,
    ) -> None:
        """``target`` is the table as it is now; ``is_first`` says that it never was in the state of a change
        that is to be done, so that what others wrote came before."""
        note_table_state(table, target.location, target)
        self.table, self.commits, self.target = table, commits, target
        self.from_state, self.to_state = from_state, to_state
        self.newest = to_state if is_redo else from_state
        """The later one of the two states, after which others came."""
        self.is_redo, self.is_first = is_redo, is_first
        self.prepared = PreparedTable(table, commits, target, choose_removal_time(table, now_ms))
        self._since = since

    # -- the change ---------------------------------------------------------------------------------------

    @cached_property
    def fork_version(self) -> int:
        lines = decode_branch_log(self.to_state), decode_branch_log(self.from_state)
        return find_parting_version(*lines, self.table.read)

    def _list_steps_to(self, content: DeltaTable) -> list[NetStep]:
        return read_steps(
            self.table, self.commits, content, self.fork_version, decode_branch_log(content).latest
        )

    @cached_property
    def own_steps(self) -> list[NetStep]:
        """The commits that led to the newer one of the two states."""
        return self._list_steps_to(self.newest)

    @cached_property
    def own_replacements(self) -> set[bytes]:
        return {replacement.id for step in self.own_steps for replacement in step.replacements}

    @cached_property
    def file_shifts(self) -> dict[str, FileTransition]:
        """What is to be undone, file by file."""
        live = make_lookup_at_version(self.table, self.commits, self.newest, self.fork_version)
        return find_transitions(
            self._list_steps_to(self.to_state), self._list_steps_to(self.from_state), live
        )

    @cached_property
    def is_rewriting(self) -> bool:
        """Whether rows of files that the change removed may be in those that it added."""
        blindly = all(step.terms.replaces is not None and step.terms.reads.nothing for step in self.own_steps)
        return not blindly and any(shift.is_new for shift in self.file_shifts.values())

    @cached_property
    def later_versions(self) -> LaterVersions:
        return LaterVersions(
            self.table, self.commits, self.target, self.newest, self.fork_version, self._since
        )

    @property
    def later_changes(self) -> list[LaterVersion]:
        return self.later_versions.changing_versions

    @cached_property
    def later_file_changes(self) -> dict[str, list[tuple[LaterVersion, File]]]:
        """What later versions did to the files of the change."""
        touches: dict[str, list[tuple[LaterVersion, File]]] = {}
        for later in self.later_changes:
            files: list[File] = [*later.removes, *later.adds]
            for file in files:
                path = file.key.path
                if path in self.file_shifts and later.step.version >= self._copied_as.get(path, 0):
                    touches.setdefault(path, []).append((later, file))
        return touches

    @cached_property
    def later_adds(self) -> dict[FileKey, Add]:
        """The files that later versions added, as the latest of these did."""
        return {add.key: add for later in self.later_changes for add in later.adds}

    @cached_property
    def _copied_as(self) -> dict[str, int]:
        """Where the table has another commit that made the same of its files: the versions with which files
        came that the change brought. They may have been there before, as they were on the other line."""
        if not self.is_redo or self.is_first or self._since is not None:
            return {}
        waiting = Counter(
            key for step in self._list_steps_to(self.newest) for key in list_brought_files(step)
        )
        versions: dict[str, int] = {}
        line = decode_branch_log(self.target)
        for step in read_steps(self.table, self.commits, self.target, self.fork_version, line.latest):
            for key in waiting.keys() & set(list_brought_files(step)):
                waiting[key] -= 1
                if (
                    not waiting[key]
                    and (shift := self.file_shifts.get(key.path))
                    and key == get_file_key(shift.before)
                ):
                    versions[key.path] = step.version
        return versions

    def describe_version(self, later: LaterVersion | None) -> str:
        return self.later_versions.describe_version(later)

    @cached_property
    def present_files(self) -> dict[str, str | None]:
        """Those files of the change that the table has now, each with the id of its vector."""
        if self.later_versions.is_on_line:
            side = self.from_state if self.newest is self.from_state else self.to_state
            paths = {
                path: None if add is None else (add.key.vector,)
                for path, shift in self.file_shifts.items()
                for add in (shift.after if side is self.from_state else shift.before,)
            }
            version = decode_branch_log(side).latest
            if decode_branch_log(self.target).latest - version <= FEW_LATER:
                self.prepared.note_files(version, paths)
            else:
                self.prepared.note_files_unless_named(version, paths, FEW_LATER)
        return self.prepared.find_active_files(self.file_shifts.keys())

    @cached_property
    def present_definition(self) -> KnownDefinition:
        return read_declared(self.table, decode_branch_log(self.target).declared)

    def as_now(self, path: str) -> Add:
        """A file of the table as it is now, which a later version has brought."""
        key = FileKey(path, self.present_files[path])
        add = self.later_adds.get(key)
        return add if add is not None else self.prepared.files_in(self.target, [key])[key]

    def are_unchanged_since(self, shifts: Mapping[str, FileTransition]) -> bool:
        return all(
            shift.after is not None and self.present_files.get(path, ABSENT) == shift.after.key.vector
            for path, shift in shifts.items()
        )

    @cached_property
    def is_as_written(self) -> bool:
        """Whether all files are there that the change wrote, and as it left them."""
        new = {path: shift for path, shift in self.file_shifts.items() if shift.is_new}
        return bool(new) and self.are_unchanged_since(new)

    def find_active_files_with_rows_of(self, paths: Collection[str]) -> set[str]:
        """The files of the table that are among some, or into which later versions wrote rows of these."""
        if not paths:
            return set()
        carried = self.later_versions.files_with_rows_of(dict.fromkeys(paths), self.file_shifts)
        return {*self.prepared.find_active_files({*paths, *carried})}

    def was_undone(self) -> bool:
        """Whether a change that is to be done again does not stand any more because it was undone. What
        others changed of its files since does not count."""
        if self.own_replacements:
            return not self.own_replacements <= self._replacements_in_force()
        if not self.file_shifts:
            is_declared = (
                read_declared(self.table, decode_branch_log(self.from_state).declared)
                != self.present_definition
            )
            undos = (later.step for later in self.later_changes if later.is_undo)
            return is_declared and any(find_last_action(undo.actions, Metadata) is not None for undo in undos)
        for path, shift in self.file_shifts.items():
            if shift.is_new:
                is_undone = path in self.present_files
            elif shift.is_gone:
                is_undone = path not in self.present_files and not self.was_brought_back(path)
            else:
                is_undone = any(later.is_undo for later, _ in self.later_file_changes.get(path, ()))
            if is_undone:
                return True
        return False

    def _replacements_in_force(self) -> set[bytes]:
        """Of the replacements that the change made, those that are not undone."""
        standing = set(self.own_replacements)
        for later in self.later_changes:
            standing -= {replacement.id for replacement in later.step.undone}
            standing |= self.own_replacements & {replacement.id for replacement in later.step.replacements}
        return standing

    def was_brought_back(self, path: str) -> bool:
        """Whether the change is undone for a file that it removed: it came back since, and did not go because
        that was undone, or the change done again.

        A change that is to be done again has "removed" the files that the commit added, and these were there
        when it was done. Their rows may be in other files by now.
        """
        files = (
            {path, *self.later_versions.files_with_rows_of({path: None}, self.file_shifts)}
            if self.is_redo
            else {path}
        )
        came_with = self._copied_as.get(path, 0)
        state = UndoneState(self.later_versions, is_undone=self.is_redo)
        for number in sorted(
            {number for file in files for number in self.later_versions.positions_by_file.get(file, ())}
        ):
            later = self.later_changes[number]
            if later.step.version < came_with:
                state.note_earlier_version(later)
                continue
            if later.step.version == came_with:
                state.note_change()
            state.note_later_version(later, brings_file=not files.isdisjoint(collect_paths(later.adds)))
        return state.is_undone

    @cached_property
    def _later_replacements(self) -> list[PartitionRegion]:
        """Where files were replaced since, by commits that were not undone."""
        later = [replacement.step for replacement in self.later_changes]
        own = set(self.own_replacements)
        if self.is_redo:
            own |= {replacement.id for step in self.own_steps for replacement in step.undone}
        # One that was only done again by files is as old as when it was first done.
        replaced_ids = {
            replacement.id
            for step in later
            if step.terms.replaces is not None
            for replacement in step.replacements
        }
        places = [
            replacement.partitions
            for replacement in select_replacements_in_force(later).values()
            if replacement.id in replaced_ids - own
        ]
        places += [
            step.terms.replaces for step in later if step.terms.replaces is not None and not step.replacements
        ]
        schema_string = self.present_definition.metadata.schema_string
        return [PartitionRegion(schema_string, partitions or (PartitionFilter(),)) for partitions in places]

    def is_replaced(self, values: Mapping[str, str | None] | None) -> bool:
        return any(region.may_hold_file(dict(values or {})) for region in self._later_replacements)
