"""Undoing a commit to a Delta table by its files, whatever came after it.

What the commit added goes, as far as it is still there, and what it removed comes back. Later appends and
changes of other files are no conflict. A conflict is, with the files and the commit named:

- a later commit wrote rows of the commit into other files: nobody could find them there;
- the commit wrote rows anew, and its files were changed since: what it had removed holds these rows, too;
- a file of which it had deleted rows by a vector is gone;
- what it changed of the metadata was changed since, or is used by files that came since.

What later commits *said* counts, too: where partitions were replaced since, nothing comes back, because it
would have gone then. Rows that a later deletion vector deleted in the same file stay deleted.

The same serves to do a commit again that was undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from penstock.formats.delta.branch_log.commits import Commits
from penstock.formats.delta.branch_log.file_transitions import (
    File,
    FileTransition,
    brought_keys,
    key_of,
    paths_of,
    shifts_between,
)
from penstock.formats.delta.branch_log.later_versions import (
    HELD_IN,
    MERGE_INFO,
    REPEATED,
    REVERTED,
    LaterVersion,
    LaterVersions,
)
from penstock.formats.delta.branch_log.line import CommitTerms, LineTip, line_of
from penstock.formats.delta.branch_log.net_change import RESTORE, NetChange, NetStep
from penstock.formats.delta.branch_log.next_versions import Extend, NextVersions, stamp
from penstock.formats.delta.branch_log.prepared_table import (
    PreparedTable,
    begin,
    in_force,
    live_at,
    parted_at,
    steps,
)
from penstock.formats.delta.branch_log.ratification import KnownProposal, read_declared
from penstock.formats.delta.branch_log.replacements import Replacement, in_sum, removal
from penstock.formats.delta.branch_log.row_id_transfer import transfer_row_ids
from penstock.formats.delta.branch_log.state_difference import changing_rows
from penstock.formats.delta.branch_log.undo_metadata import UndoneMetadata, undo_metadata
from penstock.formats.delta.branch_log.undo_vectors import (
    FileVectors,
    VectorChange,
    rows_left,
    vector_changes,
)
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import Action, Add, DomainMetadata, FileKey, Metadata, Remove
from penstock.formats.delta.protocol.added_columns import can_hold, missing_columns
from penstock.formats.delta.protocol.column_rules import added_constraints
from penstock.formats.delta.protocol.commit_summary import some
from penstock.formats.delta.protocol.row_ids import is_high_water_mark
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionRegion, Partitions, last
from penstock.formats.delta.rows.file_addresses import name_inside, table_place
from penstock.formats.delta.rows.vectors import DeletedRows, inline_vector
from penstock.kernel.format import AppliedChange, LaterCommitLookup, Refused, Table
from penstock.model.nessie import DeltaTable

FEW_LATER: Final = 64
"""Up to so many later versions are looked through for files, or so many that did more than append; with
more of them the table itself is asked."""
INLINE_MAX_BYTES: Final = 256 * 1024
"""How large a deletion vector may be that an undo makes: it is part of the commit."""
HELD_IN_MAX: Final = 1000
"""Into how many other files rows may have been written that are brought again: the commit names them."""


def undo(
    table: Table,
    commits: Commits,
    target: DeltaTable,
    committed: DeltaTable,
    previous: DeltaTable,
    since: LaterCommitLookup,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """The table without what made ``committed`` of ``previous``; ``Refused`` with all reasons against it."""
    return _Undo(table, commits, target, committed, previous, committed, since, now_ms).apply(extend)


def redo(
    table: Table,
    commits: Commits,
    target: DeltaTable,
    base: DeltaTable,
    source: DeltaTable,
    since: LaterCommitLookup | None,
    now_ms: int,
    extend: Extend,
    *,
    was_here: bool = True,
) -> AppliedChange:
    """The table with what made ``source`` of ``base`` once more, if that was undone since; else as it is.

    Unless the change ``was_here``, and not only the files that it brings back, it is done for the first time.
    """
    sides = target, base, source, source
    return _Undo(table, commits, *sides, since, now_ms, is_first=not was_here).apply(extend)


class _Undo:
    """What takes a table from one state of it to another, brought to what it is now."""

    def __init__(
        self,
        table: Table,
        commits: Commits,
        target: DeltaTable,
        before: DeltaTable,
        after: DeltaTable,
        newest: DeltaTable,
        since: LaterCommitLookup | None,
        now_ms: int,
        *,
        is_first: bool = False,
    ) -> None:
        """``newest`` is the later one of the two states, after which others came; ``is_first`` says that they
        came before, since the table never was in that state."""
        begin(table, target.location, target)
        self._table, self._commits, self._now_ms = table, commits, now_ms
        self._target, self._was, self._wanted, self._newest = target, before, after, newest
        self._since, self._is_redo, self._is_first = since, newest is after, is_first
        self._problems: list[str] = []
        self._standing = PreparedTable(table, commits, target, stamp(table, now_ms))

    # -- what is asked ------------------------------------------------------------------------------------

    def apply(self, extend: Extend) -> AppliedChange:
        try:
            net = self._make_net_change()
        except VersionNotFound as problem:
            self._table.notes[self._missing_files_key] = (
                problem.message
            )  # at the turn nobody may look for it again
            raise self._make_refusal([f"{problem.message}, so later changes cannot be determined"]) from None
        if self._problems:
            raise self._make_refusal(self._problems)
        if not net.actions and not net.undone and not net.replacements:
            return AppliedChange(self._target)
        line = line_of(self._target)
        commit_info_fields = self._commit_info_fields(net)
        versions = NextVersions(
            self._table, self._commits, self._target, line, self._now_ms, extend, commit_info_fields
        )
        net = transfer_row_ids(self._table, self._commits, self._target, self._wanted, net)
        return versions.all([net], self._standing)

    def _commit_info_fields(self, net: NetChange) -> Mapping[str, Any]:
        """Fields of the ``commitInfo`` of the undo."""
        version = str(line_of(self._newest).latest)
        if not self._is_redo:
            return {"operation": RESTORE, "operationParameters": {REVERTED: version}}
        parameters = {REPEATED: version}
        if held := self._later_versions.files_with_rows_of(
            dict.fromkeys(paths_of(net.adds)), self._file_shifts
        ):
            if len(held) > HELD_IN_MAX:
                raise self._make_refusal([f"its rows were rewritten into {len(held)} other files since"])
            parameters[HELD_IN] = msgspec.json.encode(sorted(held)).decode()
        return {**MERGE_INFO, "operationParameters": parameters}

    @property
    def _missing_files_key(self) -> tuple[object, ...]:
        return ("delta lost", self._target.location, LineTip.of(line_of(self._target)))

    # -- the change ---------------------------------------------------------------------------------------

    @cached_property
    def _fork_version(self) -> int:
        lines = line_of(self._wanted), line_of(self._was)
        return parted_at(*lines, self._table.read)

    def _steps_to(self, content: DeltaTable) -> list[NetStep]:
        return steps(self._table, self._commits, content, self._fork_version, line_of(content).latest)

    @cached_property
    def _own_steps(self) -> list[NetStep]:
        """The commits that led to the newer one of the two states."""
        return self._steps_to(self._newest)

    @cached_property
    def _own_replacements(self) -> set[bytes]:
        return {replacement.id for step in self._own_steps for replacement in step.replacements}

    @cached_property
    def _file_shifts(self) -> dict[str, FileTransition]:
        """What is to be undone, file by file."""
        live = live_at(self._table, self._commits, self._newest, self._fork_version)
        return shifts_between(self._steps_to(self._wanted), self._steps_to(self._was), live)

    # -- what came since ----------------------------------------------------------------------------------

    @cached_property
    def _later_versions(self) -> LaterVersions:
        return LaterVersions(
            self._table, self._commits, self._target, self._newest, self._fork_version, self._since
        )

    @property
    def _later_changes(self) -> list[LaterVersion]:
        return self._later_versions.changing

    @cached_property
    def _later_file_changes(self) -> dict[str, list[tuple[LaterVersion, File]]]:
        """What later versions did to the files of the change."""
        touches: dict[str, list[tuple[LaterVersion, File]]] = {}
        for later in self._later_changes:
            files: list[File] = [*later.removes, *later.adds]
            for file in files:
                path = file.key.path
                if path in self._file_shifts and later.step.version >= self._copied_as.get(path, 0):
                    touches.setdefault(path, []).append((later, file))
        return touches

    @cached_property
    def _copied_as(self) -> dict[str, int]:
        """Where the table has another commit that made the same of its files: the versions with which files
        came that the change brought. They may have been there before, as they were on the other line."""
        if not self._is_redo or self._is_first or self._since is not None:
            return {}
        waiting = Counter(key for step in self._steps_to(self._newest) for key in brought_keys(step))
        versions: dict[str, int] = {}
        line = line_of(self._target)
        for step in steps(self._table, self._commits, self._target, self._fork_version, line.latest):
            for key in waiting.keys() & set(brought_keys(step)):
                waiting[key] -= 1
                if (
                    not waiting[key]
                    and (shift := self._file_shifts.get(key.path))
                    and key == key_of(shift.before)
                ):
                    versions[key.path] = step.version
        return versions

    def _describe(self, later: LaterVersion | None) -> str:
        return self._later_versions.describe(later)

    @cached_property
    def _present_files(self) -> dict[str, str | None]:
        """Those files of the change that the table has now, each with the id of its vector."""
        if self._later_versions.is_on_line:
            side = self._was if self._newest is self._was else self._wanted
            paths = {
                path: None if add is None else (add.key.vector,)
                for path, shift in self._file_shifts.items()
                for add in (shift.after if side is self._was else shift.before,)
            }
            version = line_of(side).latest
            if line_of(self._target).latest - version <= FEW_LATER:
                self._standing.note_files(version, paths)
            else:
                self._standing.note_files_unless_named(version, paths, FEW_LATER)
        return self._standing.live(self._file_shifts.keys())

    @cached_property
    def _present_definition(self) -> KnownProposal:
        return read_declared(self._table, line_of(self._target).declared)

    # -- what to do ---------------------------------------------------------------------------------------

    def _make_net_change(self) -> NetChange:
        if self._missing_files_key in self._table.notes:
            raise VersionNotFound(self._table.notes[self._missing_files_key])
        if self._is_redo and not self._is_first and not self._was_undone():
            return NetChange()
        metadata = self._undone_metadata()
        removes, adds = self._file_actions(metadata or self._present_definition.metadata)
        state: tuple[Action, ...] = (*([] if metadata is None else [metadata]), *self._undone_domains())
        paths = frozenset(paths_of(removes) | paths_of(adds))
        replacements, undone, replaces = self._reversed_replacements()
        return NetChange(
            state=state,
            removes=tuple(removes),
            adds=tuple(adds),
            terms=CommitTerms(
                DeltaReads(files=paths), replaces, changes_data=any(add.data_change for add in removes + adds)
            ),
            replacements=replacements,
            undone=undone,
        )

    def _was_undone(self) -> bool:
        """Whether a change that is to be done again does not stand any more because it was undone. What
        others changed of its files since does not count."""
        if self._own_replacements:
            return not self._own_replacements <= self._replacements_in_force()
        if not self._file_shifts:
            is_declared = read_declared(self._table, line_of(self._was).declared) != self._present_definition
            undos = (later.step for later in self._later_changes if later.is_undo)
            return is_declared and any(last(undo.actions, Metadata) is not None for undo in undos)
        for path, shift in self._file_shifts.items():
            if shift.is_new:
                is_undone = path in self._present_files
            elif shift.is_gone:
                is_undone = path not in self._present_files and not self._was_brought_back(path)
            else:
                is_undone = any(later.is_undo for later, _ in self._later_file_changes.get(path, ()))
            if is_undone:
                return True
        return False

    def _replacements_in_force(self) -> set[bytes]:
        """Of the replacements that the change made, those that are not undone."""
        standing = set(self._own_replacements)
        for later in self._later_changes:
            standing -= {replacement.id for replacement in later.step.undone}
            standing |= self._own_replacements & {replacement.id for replacement in later.step.replacements}
        return standing

    def _reversed_replacements(
        self,
    ) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...], tuple[Partitions, ...] | None]:
        """The replacements that come into force again by this, those that go, and where all files go."""
        summed = in_sum([*in_force(self._own_steps).values()])
        gone = in_sum(
            list(
                {
                    replacement.id: replacement for step in self._own_steps for replacement in step.undone
                }.values()
            )
        )
        if self._is_redo:  # it replaces what is there, and replaces what is there
            where = [step.terms.replaces for step in self._own_steps if step.terms.replaces is not None]
            parts = tuple(part for each in where for part in each)
            return summed, gone, None if not where else () if () in where else parts
        known_ids = in_force([later.step for later in self._later_changes]) if summed or gone else {}
        return tuple(replacement for replacement in gone if replacement.id not in known_ids), summed, None

    def _file_actions(self, metadata: Metadata) -> tuple[list[Remove], list[Add]]:
        time_ms = stamp(self._table, self._now_ms)
        self._check_passing()
        goes = {
            path: shift
            for path, shift in self._file_shifts.items()
            if shift.is_new and path in self._present_files
        }
        returns = {
            path: shift
            for path, shift in self._file_shifts.items()
            if shift.is_gone and path not in self._present_files
        }
        masked = {
            path: shift for path, shift in self._file_shifts.items() if not shift.is_new and not shift.is_gone
        }
        only_goes = not returns and not masked and goes.keys() == self._file_shifts.keys()
        if only_goes and self._are_as_left(goes) and not self._own_replacements:
            return [self._make_remove(path, shift, time_ms) for path, shift in goes.items()], []
        shifts = {path: shift for path, shift in returns.items() if self._must_restore_file(path, shift)}
        self._check_carried(shifts if self._is_redo else {})
        self._check_repeated(shifts)
        self._check_taken()
        if goes and len(shifts) < len(returns) and self._is_rewriting:
            missing = some(sorted(returns.keys() - shifts.keys()))
            self._add_problem(
                f"it rewrote rows of {missing}, which were replaced since and cannot be restored"
            )
        returns = shifts
        if returns and not self._is_redo:
            self._check_restored()
            self._check_unmasked(masked)
        files = self._files_before([*returns, *masked])
        for path in sorted(returns.keys() - files.keys()):
            self._add_problem(f"the earlier state of {path} is not known")
        if returns or masked:
            self._check_columns(metadata)
        removes = [self._make_remove(path, shift, time_ms) for path, shift in goes.items()]
        adds = [
            changing_rows(files[path], shift.data_change) for path, shift in returns.items() if path in files
        ]
        for path, shift in masked.items():
            if (changed := self._restore_deleted_rows(path, shift, files.get(path))) is not None:
                removes.append(changing_rows(removal(changed[0], time_ms), shift.data_change))
                adds.append(changing_rows(changed[1], shift.data_change))
        if adds:
            self._check_rewritten()
        return removes, adds

    @cached_property
    def _is_rewriting(self) -> bool:
        """Whether rows of files that the change removed may be in those that it added."""
        blindly = all(
            step.terms.replaces is not None and step.terms.reads.nothing for step in self._own_steps
        )
        return not blindly and any(shift.is_new for shift in self._file_shifts.values())

    def _are_as_left(self, shifts: Mapping[str, FileTransition]) -> bool:
        return all(
            shift.after is not None and self._present_files.get(path, _ABSENT) == shift.after.key.vector
            for path, shift in shifts.items()
        )

    def _make_remove(self, path: str, shift: FileTransition, time_ms: int) -> Remove:
        """The action that takes a file away that is there, with whatever vector."""
        file = shift.after
        assert file is not None
        if file.key.vector != self._present_files[path]:
            file = self._as_now(path)
        gone = (
            removal(file, time_ms)
            if isinstance(file, Add)
            else msgspec.structs.replace(file, deletion_timestamp=time_ms)
        )
        return changing_rows(gone, shift.data_change)

    def _as_now(self, path: str) -> Add:
        """A file of the table as it is now, which a later version has brought."""
        key = FileKey(path, self._present_files[path])
        add = self._later_adds.get(key)
        return add if add is not None else self._standing.files_in(self._target, [key])[key]

    @cached_property
    def _later_adds(self) -> dict[FileKey, Add]:
        """The files that later versions added, as the latest of these did."""
        return {add.key: add for later in self._later_changes for add in later.adds}

    def _files_before(self, paths: Sequence[str]) -> dict[str, Add]:
        """The files as they were in the state that the undo restores, with statistics."""
        files = {path: self._file_shifts[path].before for path in paths}
        adds = {path: add for path, add in files.items() if isinstance(add, Add)}
        paths_by_key = {remove.key: path for path, remove in files.items() if isinstance(remove, Remove)}
        target_files = self._standing.files_in(self._wanted, paths_by_key.keys()) if paths_by_key else {}
        return adds | {paths_by_key[key]: add for key, add in target_files.items()}

    def _must_restore_file(self, path: str, shift: FileTransition) -> bool:
        """Whether a file that the change removed is to be there again: not where its partition was replaced
        since, nor where it was brought back before and others removed it since."""
        is_undone = not self._is_first and not self._is_as_written and self._was_brought_back(path)
        assert shift.before is not None
        return not is_undone and not self._is_replaced(shift.before.partition_values)

    @cached_property
    def _is_as_written(self) -> bool:
        """Whether all files are there that the change wrote, and as it left them."""
        new = {path: shift for path, shift in self._file_shifts.items() if shift.is_new}
        return bool(new) and self._are_as_left(new)

    def _was_brought_back(self, path: str) -> bool:
        """Whether the change is undone for a file that it removed: it came back since, and did not go because
        that was undone, or the change done again.

        A change that is to be done again has "removed" the files that the commit added, and these were there
        when it was done. Their rows may be in other files by now.
        """
        files = (
            {path, *self._later_versions.files_with_rows_of({path: None}, self._file_shifts)}
            if self._is_redo
            else {path}
        )
        came_with = self._copied_as.get(path, 0)
        is_undone = is_undone_here = self._is_redo
        """Lastly: where this branch was last, before others came by a merge."""
        passed: list[tuple[LaterVersion, bool, bool]] = []
        """Versions, with whether the change was undone before and after them."""
        for number in sorted(
            {number for file in files for number in self._later_versions.places.get(file, ())}
        ):
            later = self._later_changes[number]
            if later.step.version < came_with:
                passed.append((later, False, False))
                continue
            if later.step.version == came_with:
                is_undone = is_undone_here = False
            if passed and not passed[-1][0].is_elsewhere:
                is_undone_here = is_undone
            was_undone = is_undone_here if later.is_sum and not later.is_elsewhere else is_undone
            own, undoes, repeats = self._later_versions.own_versions_on(later), later.undoes, later.repeats
            named = repeats if undoes is None else undoes
            passed_at = [
                step_passed
                for step_passed in reversed(passed)
                if self._later_versions.is_at(step_passed[0], named, later)
            ]
            if not files.isdisjoint(paths_of(later.adds)):
                is_undone = True
            elif undoes is not None:
                is_older = bool(own) and undoes < own.start
                is_undone = passed_at[0][1] if passed_at else is_undone and is_older
            elif repeats is not None:
                is_undone = passed_at[0][2] if passed_at else is_undone and repeats not in own
            elif later.is_undo:
                is_undone = False
            passed.append((later, was_undone, is_undone))
        return is_undone

    @cached_property
    def _later_replacements(self) -> list[PartitionRegion]:
        """Where files were replaced since, by commits that were not undone."""
        later = [replacement.step for replacement in self._later_changes]
        own = set(self._own_replacements)
        if self._is_redo:
            own |= {replacement.id for step in self._own_steps for replacement in step.undone}
        # One that was only done again by files is as old as when it was first done.
        replaced_ids = {
            replacement.id
            for step in later
            if step.terms.replaces is not None
            for replacement in step.replacements
        }
        places = [
            replacement.partitions
            for replacement in in_force(later).values()
            if replacement.id in replaced_ids - own
        ]
        places += [
            step.terms.replaces for step in later if step.terms.replaces is not None and not step.replacements
        ]
        schema_string = self._present_definition.metadata.schema_string
        return [PartitionRegion(schema_string, partitions or (Partitions(),)) for partitions in places]

    def _is_replaced(self, values: Mapping[str, str | None] | None) -> bool:
        return any(region.holds(dict(values or {})) for region in self._later_replacements)

    # -- deletion vectors ---------------------------------------------------------------------------------

    def _restore_deleted_rows(
        self, path: str, shift: FileTransition, before: Add | None
    ) -> tuple[Add, Add] | None:
        """A file as it is, and as it is with the rows restored that a deletion vector removed; ``None`` if
        nothing is left to do."""
        changes = vector_changes(self._later_file_changes.get(path, []), shift, is_redo=self._is_redo)
        if path not in self._present_files:
            if not self._is_replaced(None if shift.before is None else shift.before.partition_values):
                touches = self._later_file_changes.get(path, [])
                change_text = self._describe(touches[-1][0] if touches else None)
                self._add_problem(f"{change_text} removed {path}, from which it deleted rows")
            return None
        if before is None:
            self._add_problem(f"the earlier state of {path} is not known")
            return None
        if self._is_redo and not self._is_first and not changes:
            return None  # it stands
        now = shift.after if shift.after is not None and not changes else None
        current = now if isinstance(now, Add) else self._as_now(path)
        if not changes and key_of(current) == key_of(shift.after):
            return current, before
        return self._with_rows_of(path, shift, before, current, changes)

    def _open_vectors(self, file: Add) -> FileVectors:
        metadata = read_declared(self._table, line_of(self._target).declared).metadata
        place = table_place(self._commits.places, self._target.location, metadata.configuration)
        return FileVectors(file, place.read_range, lambda path: name_inside(path, place))

    def _with_rows_of(
        self, path: str, shift: FileTransition, before: Add, current: Add, changes: Sequence[VectorChange]
    ) -> tuple[Add, Add] | None:
        def read() -> DeletedRows | str | None:
            try:
                stands = self._is_redo and not self._is_first
                return rows_left(shift, current, changes, self._open_vectors(before), stands=stands)
            except ValueError as problem:
                return f"the deleted rows of {path} cannot be read: {problem}"

        keys = key_of(shift.before), key_of(shift.after), key_of(current)
        bitmap = self._table.read_once(
            ("delta vector", self._target.location, path, *keys, len(changes)), read
        )
        if isinstance(bitmap, str):
            self._add_problem(bitmap)
        if bitmap is None or isinstance(bitmap, str):
            return None
        if bitmap.bits == 0 and before.deletion_vector is None:
            return current, before
        vector = inline_vector(bitmap)
        if vector is not None and vector.size_in_bytes > INLINE_MAX_BYTES:
            self._add_problem(f"the deletion vector of {path} would be too large for a commit")
            return None
        stats = msgspec.json.encode({"numRecords": bitmap.total, "tightBounds": False}).decode()
        return current, msgspec.structs.replace(before, deletion_vector=vector, stats=stats)

    # -- what stands against it ---------------------------------------------------------------------------

    def _check_carried(self, again: Mapping[str, FileTransition]) -> None:
        """A problem for each version that wrote rows of files of the change into others which are there;
        ``again`` are files with rows that are to come once more."""
        own = {path: key_of(shift.before) for path, shift in self._file_shifts.items() if not shift.is_gone}
        if self._is_redo:
            own = dict.fromkeys((*own, *again))
        carried = self._later_versions.files_with_rows_of(own, self._file_shifts)
        live = self._standing.live(carried.keys()) if carried else {}
        for number in sorted({number for path, number in carried.items() if path in live}):
            later = self._later_changes[number]
            rewritten = sorted(path for path, place in carried.items() if place == number and path in live)
            sources = sorted(paths_of(later.removes) & (own.keys() | carried.keys()))
            self._add_problem(f"{self._describe(later)} wrote rows of {some(sources)} into {some(rewritten)}")

    def _check_repeated(self, returns: Mapping[str, FileTransition]) -> None:
        """A problem for each version that brought rows again which are in files that are to come back."""
        for later in self._later_changes if returns else ():
            held = later.held_in & returns.keys()
            if held and self._live_with_rows_of(paths_of(later.adds) - self._file_shifts.keys()):
                self._add_problem(f"{self._describe(later)} restored rows of {some(sorted(held))}")

    def _check_rewritten(self) -> None:
        """A problem if the change wrote rows anew, and what it wrote was changed since: what is to come back
        holds the same rows."""
        changed = [
            path
            for path, shift in self._file_shifts.items()
            if shift.is_new
            and shift.after is not None
            and self._present_files.get(path, _ABSENT) != shift.after.key.vector
        ]
        if not self._is_rewriting or not changed:
            return
        later = next(
            (
                later_step
                for later_step in reversed(self._later_changes)
                if paths_of(later_step.removes) & set(changed)
            ),
            None,
        )
        self._add_problem(f"{self._describe(later)} changed {some(sorted(changed))}, which it wrote")

    def _check_restored(self) -> None:
        """A problem if files were restored since from a state before the change: what is to come back may
        have taken their place, and their rows would be there twice. A change that is repeated knows itself
        which files it takes."""
        for later in self._later_changes:
            if later.restores is None or later.restores >= line_of(self._newest).latest:
                continue
            restored = self._live_with_rows_of(paths_of(later.adds) - self._file_shifts.keys())
            if restored:
                self._add_problem(f"{self._describe(later)} restored {some(sorted(restored))} from before it")

    def _check_passing(self) -> None:
        """A problem if files are there that came and went within the change, as a restore may bring them:
        they hold rows that the change has in others of its files."""
        passing: set[str] = set()
        for step in self._own_steps:
            passing |= paths_of(action for action in step.actions if isinstance(action, Remove))
            passing -= paths_of(action for action in step.actions if isinstance(action, Add))
        passing -= self._file_shifts.keys()  # else it was there before
        live = self._live_with_rows_of(passing)
        if live:
            later = next((each for each in self._later_changes if paths_of(each.adds) & live), None)
            self._add_problem(
                f"{self._describe(later)} restored {some(sorted(live))}, with rows of the commit"
            )

    def _live_with_rows_of(self, paths: Collection[str]) -> set[str]:
        """The files of the table that are among some, or into which later versions wrote rows of these."""
        if not paths:
            return set()
        carried = self._later_versions.files_with_rows_of(dict.fromkeys(paths), self._file_shifts)
        return {*self._standing.live({*paths, *carried})}

    def _check_unmasked(self, masked: Mapping[str, FileTransition]) -> None:
        """A problem if the change took rows out of a file's vector, as the undo of an update does, and others
        have changed that vector since: what is to come back may hold rows that were deleted there."""
        for path, shift in masked.items():
            is_as_left = shift.after is not None and self._present_files.get(path) == shift.after.key.vector
            if (
                _deleted_count(shift.before) > _deleted_count(shift.after)
                and path in self._present_files
                and not is_as_left
            ):
                touches = self._later_file_changes.get(path, [])
                later = touches[-1][0] if touches else None
                self._add_problem(
                    f"{self._describe(later)} deleted rows of {path}, which may come back elsewhere"
                )

    def _check_taken(self) -> None:
        """A problem if the change replaced partitions, and a merge or a transplant of it took files that
        others had there: they are no part of the change, and would stay away."""
        own = self._own_replacements
        if not own or self._is_redo:
            return
        if self._later_versions.is_on_line:
            version = line_of(self._newest).latest
            for later in self._later_changes:
                if later.repeats == version:
                    self._check_taken_by(later, "repeated it")
            return
        line, read = line_of(self._target), self._table.read
        for step in steps(self._table, self._commits, self._target, *self._later_versions.landed_at):
            later = LaterVersion(step, LineTip.at(line, step.version, read))
            if not own & {place.id for place in step.replacements}:
                continue
            self._check_taken_by(later, "merged it into this branch")

    def _check_taken_by(self, later: LaterVersion, subject: str) -> None:
        places = [replacement.partitions for step in self._own_steps for replacement in step.replacements]
        regions = [
            PartitionRegion(self._present_definition.metadata.schema_string, partitions or (Partitions(),))
            for partitions in places
        ]
        removes = (
            remove
            for remove in later.removes
            if any(region.holds(remove.partition_values or {}) for region in regions)
        )
        removed_paths = sorted(paths_of(removes) - self._file_shifts.keys() - paths_of(later.adds))
        gone = set(removed_paths) - self._standing.live(removed_paths).keys()
        if gone:
            self._add_problem(
                f"{self._describe(later)} {subject}, and also removed {some(sorted(gone))}: revert that "
                "commit instead"
            )

    def _check_columns(self, metadata: Metadata) -> None:
        """A problem if files come back whose columns the table has not any more."""
        then = read_declared(self._table, line_of(self._wanted).declared).metadata
        if then.partition_columns != metadata.partition_columns:
            self._add_problem("the table is partitioned differently now")
        elif not can_hold(metadata.schema_string, then.schema_string):
            names = missing_columns(metadata.schema_string, then.schema_string)
            shown_names = some([f"'{name}'" for name in names]) or "others"
            self._add_problem(
                f"the table no longer has these columns of the rows to be restored: {shown_names}"
            )
        for constraint in added_constraints(then, metadata):
            self._add_problem(
                f"{constraint} was added since, and the rows to be restored were not checked against it"
            )

    # -- metadata and domains -----------------------------------------------------------------------------

    def _undone_metadata(self) -> Metadata | None:
        """What the table's metadata becomes, if that is not what it is."""
        then, undone = (
            read_declared(self._table, line_of(later).declared).metadata
            for later in (self._wanted, self._was)
        )
        if then == undone:
            return None
        undone_metadata: UndoneMetadata = undo_metadata(
            then, undone, self._present_definition.metadata, self._files_since, self._rewritten_since
        )
        for name in undone_metadata.changed_since:
            changes = (
                later_step
                for later_step in self._later_versions.every
                if last(later_step.step.actions, Metadata) is not None
            )
            later = next(changes, None)
            self._add_problem(f"{name} was changed since, by {self._describe(later)}")
        for what, files in undone_metadata.used.items():
            paths = set(files)
            later = next((add for add in self._later_versions.every if paths_of(add.adds) & paths), None)
            self._add_problem(f"{what}: {some(sorted(files))}, from {self._describe(later)}")
        return (
            undone_metadata.metadata
            if undone_metadata.metadata != self._present_definition.metadata
            else None
        )

    def _files_since(self) -> list[Add]:
        """The files of the table that came since the change, and not by it."""
        adds = {add.key.path: add for later in self._later_versions.every for add in later.adds}
        others = {path: add for path, add in adds.items() if path not in self._file_shifts}
        live = self._standing.live(others.keys()) if others else {}
        return [action for path, action in others.items() if path in live]

    def _rewritten_since(self) -> list[Add]:
        """Those that have rows of files which went. One that got a vector has its own."""
        if self._is_redo:
            return []
        rewritten: set[str] = set()
        for later in self._later_versions.every:
            added, removed = paths_of(later.adds), paths_of(later.removes)
            if removed - added and not later.is_undo:
                rewritten |= added - removed
        return [file for file in self._files_since() if file.key.path in rewritten]

    def _undone_domains(self) -> list[DomainMetadata]:
        names = {
            action.domain
            for step in self._own_steps
            for action in step.actions
            if isinstance(action, DomainMetadata) and not is_high_water_mark(action)
        }
        if not names:
            return []
        for later in self._later_changes:
            both = {
                action.domain for action in later.step.actions if isinstance(action, DomainMetadata)
            } & names
            if both and not later.is_undo:
                shown_names = some(sorted(f"'{name}'" for name in both))
                self._add_problem(f"the domain {shown_names} was changed since, by {self._describe(later)}")

        def read() -> list[DomainMetadata]:
            then = self._commits.snapshot(self._wanted, self._table.read).domains
            now = self._commits.snapshot(self._target, self._table.read).domains
            gone = (DomainMetadata(domain=name, configuration="", removed=True) for name in names)
            restored = [then.get(domain.domain, domain) for domain in gone]
            return [
                domain
                for domain in restored
                if now.get(domain.domain) != (None if domain.removed else domain)
            ]

        tips = LineTip.of(line_of(self._wanted)), LineTip.of(line_of(self._target))
        return self._table.read_once(("delta domains", self._target.location, *tips), read)

    # -- how it is told -----------------------------------------------------------------------------------

    def _add_problem(self, why: str) -> None:
        if why not in self._problems:
            self._problems.append(why)

    def _make_refusal(self, problems: Sequence[str]) -> Refused:
        before, then, now = (
            f"version {line_of(content).latest}" for content in (self._wanted, self._was, self._target)
        )
        shown = "; ".join(problems[:_SHOWN]) + (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        what, ways = ("repeated", WAYS_TO_REDO) if self._is_redo else ("undone", WAYS_TO_UNDO)
        return Refused(
            f"cannot be {what} alone ({before} became {then}, and the table is at {now} now): {shown}; "
            f"{ways}",
            expected=then,
            found=now,
        )


_FIRST: Final = "revert the named commits first, beginning with the newest"
_LEAVE: Final = "or leave the table as it is with the mode 'drop' (drops the change, not the table)"
WAYS_TO_UNDO: Final = (
    f"{_FIRST}; or reset the table to its state before the commit, without any later change, with the mode "
    f"'force'; {_LEAVE}"
)
WAYS_TO_REDO: Final = (
    f"{_FIRST}; or reset the table to its state at that commit, without any later change, with the mode "
    f"'force'; {_LEAVE}"
)
_SHOWN: Final = 5
"""So many problems are told."""
_ABSENT: Final = ""
"""No id of a vector, and not ``None`` either: stands for a file that is not there."""


def _deleted_count(file: File | None) -> int:
    """How many rows of a file its vector deletes."""
    vector = None if file is None else file.deletion_vector
    return 0 if vector is None else vector.cardinality
