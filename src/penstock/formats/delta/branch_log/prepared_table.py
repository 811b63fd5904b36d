"""A table at a request's turn, from what was read when the request was prepared.

At its turn a request reads nothing from storage. So what it needs to know of a table's files is looked up
before, at the end of the line as it is then, and noted; at the turn the commits that came since are counted
in. Where they cannot be had without storage the request goes round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from penstock.formats.delta.branch_log.branch_log import (
    BranchLog,
    BranchLogEntry,
    BranchLogTip,
    CommitTerms,
    Read,
    decode_branch_log,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import Files, find_transitions
from penstock.formats.delta.branch_log.net_change import NetStep
from penstock.formats.delta.branch_log.ratification import read_declared
from penstock.formats.delta.branch_log.replacements import (
    ReplacedFiles,
    Replacement,
    make_remove,
    mark_as_parts,
    read_named_replacements,
    read_undone_replacements,
)
from penstock.formats.delta.branch_log.state_difference import StateDifference, set_data_change
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
)
from penstock.formats.delta.protocol.lint_files import Lookup
from penstock.formats.delta.protocol.row_ids import is_high_water_mark
from penstock.formats.delta.protocol.transaction import PartitionFilter, find_last_action
from penstock.kernel.format import FormatRefused, PrepareAgain, Table
from penstock.model.encoding import encode
from penstock.model.nessie import DeltaTable

NEAR_VERSIONS: Final = 64
"""Two versions of a table that are no further apart are compared by the commits in between."""


def read_steps(
    table: Table, commits: CommitReader, content: DeltaTable, after: int, last: int
) -> list[NetStep]:
    """The commits of a line after a version and up to another, oldest first. ``PrepareAgain`` as above."""
    line = decode_branch_log(content)
    repeats = line.versions_with_repeats(after, last, table.read)
    return [
        _get_cached_step(table, commits, content.location, version, entry, version in repeats)
        for version, entry in read_entries(line, after, last, table.read)
    ]


def read_steps_beyond_appends(
    table: Table, commits: CommitReader, content: DeltaTable, after: int, last: int
) -> list[NetStep]:
    """The same without the commits that say of themselves that they only appended, read nothing, and neither
    made nor undid a replacement.

    The line knows which they are. Of versions from before it knew, the first line is looked at. Whether one
    may have repeated files is not looked up: each counts as if it might.
    """
    location, line = content.location, decode_branch_log(content)
    appends: set[tuple[int, bytes]] = table.notes.setdefault(("delta appends", location), set())
    steps: list[NetStep] = []
    for version, entry in _read_entries_beyond_appends(line, after, last, table.read):
        named = version, b"" if entry is None else entry.uuid + entry.line
        if named in appends:
            continue
        info = commits.read_commit_info(table, location, version, entry)
        if (
            info is not None
            and info.is_blind_append
            and not read_named_replacements(info)
            and not read_undone_replacements(info)
        ):
            appends.add(named)
        else:
            steps.append(_get_cached_step(table, commits, location, version, entry, True))
    return steps


def _read_entries_beyond_appends(
    line: BranchLog, after: int, last: int, read: Read
) -> Iterator[tuple[int, BranchLogEntry | None]]:
    """The versions of a line that may have done more than to append."""
    changes = line.changes
    unknown = line.latest if changes is None else changes.after
    if unknown > after:
        yield from read_entries(line, after, min(last, unknown), read)
    for version in () if changes is None else changes.read_versions_between(max(after, unknown), last, read):
        yield version, None if version <= line.published else line.find_entry(version, read)


def read_entries(
    line: BranchLog, after: int, last: int, read: Read
) -> Iterator[tuple[int, BranchLogEntry | None]]:
    """The versions of a line after one and up to another, with their entries; published ones have none."""
    for version in range(after + 1, min(line.published, last) + 1):
        yield version, None
    for version, entry in line.read_entries_after(after, read):
        if version > last:
            return
        yield version, entry


def _get_cached_step(
    table: Table,
    commits: CommitReader,
    location: str,
    version: int,
    entry: BranchLogEntry | None,
    may_repeat_files: bool,
) -> NetStep:
    named = (b"", b"") if entry is None else (entry.uuid, entry.line)
    key = ("delta step", location, version, *named, may_repeat_files)
    if key in table.notes:
        found_step: NetStep = table.notes[key]
        return found_step
    actions = commits.read_actions(table, location, version, entry)
    terms = commits.read_commit_terms(table, location, version, entry)
    removes = any(isinstance(action, Remove) for action in actions)
    has_known_terms = terms is not None or not removes
    info = find_last_action(actions, CommitInfo)
    step = NetStep(
        version,
        actions,
        terms or CommitTerms(),
        has_known_terms,
        read_named_replacements(info),
        read_undone_replacements(info),
        may_repeat_files,
    )
    table.notes[key] = step
    return step


def make_lookup_at_version(table: Table, commits: CommitReader, content: DeltaTable, version: int) -> Lookup:
    """Tells which paths were files of a version of a line. ``PrepareAgain`` as above."""

    def look_up_paths(paths: Collection[str]) -> Mapping[str, str | None]:
        if version < 0:
            return {}
        at = BranchLogTip.from_line_version(
            decode_branch_log(content), version, table.read
        )  # whatever the line's end is by now
        key = ("delta live at", content.location, at, *sorted(paths))
        return table.read_once(
            key, lambda: commits.read_snapshot(content, table.read, version).find_active_files(paths)
        )

    return look_up_paths


def find_parting_version(line: BranchLog, other: BranchLog, read: Read) -> int:
    """The last version that two lines share. Both begin with a part of the default branch's."""
    parted = min(line.fork_version, other.fork_version)
    pairs = zip(
        read_entries(line, parted, line.latest, read),
        read_entries(other, parted, other.latest, read),
        strict=False,
    )
    for (version, mine), (_, theirs) in pairs:
        if mine is None or theirs is None or (mine.uuid, mine.line) != (theirs.uuid, theirs.line):
            break
        parted = version
    return parted


def replacements_since(
    table: Table, commits: CommitReader, line: BranchLog, after: DeltaTable
) -> tuple[Replacement, ...]:
    """The replacements that a wanted state rests on, and a line does not have: they come with the state."""
    target_line = decode_branch_log(after)
    parted = find_parting_version(line, target_line, table.read)

    def read_replacements() -> tuple[Replacement, ...]:
        with suppress(VersionNotFound):  # a state can be taken also where nobody knows how it came about
            since = read_steps(table, commits, after, parted, target_line.latest)
            return mark_as_parts([replacement for step in since for replacement in step.replacements])
        return ()

    return table.read_once(
        ("delta replacements", after.location, BranchLogTip.from_line(target_line), parted), read_replacements
    )


def find_undone_replacements(
    table: Table, commits: CommitReader, content: DeltaTable, after: DeltaTable
) -> tuple[Replacement, ...]:
    """The replacements that a table rests on and a wanted state does not have: they go with its return."""
    line = decode_branch_log(content)
    parted = find_parting_version(line, decode_branch_log(after), table.read)

    lost = ("delta undone", content.location, parted)
    if lost in table.notes:
        return ()
    try:
        since = read_steps_beyond_appends(table, commits, content, parted, line.latest)
    except VersionNotFound:  # a state can be taken also where nobody knows what came since
        table.notes[lost] = True
        return ()
    return mark_as_parts([*select_replacements_in_force(since).values()])


def select_replacements_in_force(steps: Sequence[NetStep]) -> dict[bytes, Replacement]:
    """The replacements by commits that were not undone by later ones, by their ids."""
    in_effect: dict[bytes, Replacement] = {}
    for step in steps:
        for replacement in step.undone:
            in_effect.pop(replacement.id, None)
        in_effect |= {replacement.id: replacement for replacement in step.replacements}
    return in_effect


def note_table_state(table: Table, location: str, content: DeltaTable | None) -> None:
    """Note how a table is when a request first asks for it: what is looked up is looked up there.

    Later on its line may hold versions that the request itself is about to make, and that may never be.
    """
    if table.may_read:
        table.notes.setdefault(("delta begin", location), content)


class PreparedTable:
    """The files of a line's end, as far as somebody asks for them, and of what is put on top of it."""

    def __init__(self, table: Table, commits: CommitReader, content: DeltaTable, now_ms: int) -> None:
        self._table, self._commits, self._now_ms = table, commits, now_ms
        self._content, self._line = content, decode_branch_log(content)
        self._from = self._find_lookup_version()
        self._tip = (
            BranchLogTip(-1, b"")
            if self._from is None
            else BranchLogTip.from_line(decode_branch_log(self._from))
        )
        self._more: list[tuple[Action, ...]] = []
        self._told: tuple[int, Files] = (-1, {})
        self._settled: Files = {}
        """Files that no commit of the line has named since."""

    def note_files(self, version: int, files: Files) -> None:
        """Take somebody's word for some files of a version, who has looked them up there."""
        self._told = (version, files)

    def note_files_unless_named(self, version: int, files: Files, versions_max: int) -> None:
        """The same, if few versions came since that may have changed one of the files, and none names one.

        Appends take no file away. One that adds a file which may have been there already counts where files
        are gone or have deletion vectors. Nothing is noted where the log has been cleaned up.
        """
        line, read = self._line, self._table.read
        versions = line.find_versions_beyond_appends(version, read)
        cleaned = (*self._note_key("cleaned"), version)
        if not all(state is not None and state[0] is None for state in files.values()):
            versions = sorted({*versions, *line.versions_with_repeats(version, line.latest, read)})
        if len(versions) > versions_max or cleaned in self._table.notes:
            return
        self._commits.read_ahead(self._table, self._content.location, line, versions)
        entries = (
            (number, None if number <= line.published else line.find_entry(number, read))
            for number in versions
        )
        try:
            steps = [
                _get_cached_step(self._table, self._commits, self._content.location, number, entry, True)
                for number, entry in entries
            ]
        except VersionNotFound:
            self._table.notes[cleaned] = True  # at the turn nobody may look for it again
            return
        if not _find_named_paths((step.actions for step in steps), files):
            self._settled = files

    def append_commit(self, actions: Sequence[Action]) -> None:
        """Count in a commit that is about to be the next."""
        self._more.append(tuple(actions))

    def find_active_files(self, paths: Collection[str]) -> dict[str, str | None]:
        """Of some decoded paths, those that are files of the table, each with its deletion vector's id."""
        version, proposed_files = self._told
        files: Files = {path: self._settled[path] for path in self._settled.keys() & paths}
        files |= _find_named_paths(self._more, files) if files else {}
        remaining = set(paths).difference(files) if proposed_files else ()
        named = _find_named_paths(self._list_commits_after(version), remaining) if remaining else {}
        files |= {path: proposed_files[path] for path in remaining if path in proposed_files} | named
        if unknown := set(paths).difference(files):
            named = _find_named_paths(self._list_commits_after(self._tip.version), unknown)
            files |= self._look_up(unknown.difference(named)) | named
        return {path: state[0] for path, state in files.items() if state is not None}

    def files_to_replace(self, partitions: tuple[PartitionFilter, ...]) -> ReplacedFiles:
        """The files in some partitions, to be removed."""
        since = list(self._list_commits_after(self._tip.version))
        if self._from is None:
            metadata = find_last_action([action for actions in since for action in actions], Metadata)
            replaced = ReplacedFiles.in_new_table(metadata, partitions)
        else:
            key = (*self._note_key("replaced"), encode(partitions))
            replaced = self._table.read_once(
                key, lambda: ReplacedFiles.from_snapshot(self._read_snapshot(), partitions, self._now_ms)
            )
        for actions in since:
            replaced = replaced.apply_commit(actions, self._now_ms)
        return replaced

    def compute_difference_to(self, after: DeltaTable) -> StateDifference:
        """What it takes to make a wanted version of it."""
        difference = self._table.read_once(
            (*self._note_key("until"), BranchLogTip.from_line(decode_branch_log(after))),
            lambda: self._compare_by_commits(after) or self._compare_snapshots(after),
        )
        for actions in self._list_commits_after(self._tip.version):
            files = self.files_in(after, difference.find_unknown_files(actions))
            if any(map(_is_about_domains, actions)):
                difference = msgspec.structs.replace(difference, wanted_domains=self._read_domains(after))
            difference = difference.apply_commit(actions, files, self._now_ms)
        return difference

    def _read_domains(self, after: DeltaTable) -> Mapping[str, DomainMetadata]:
        key = ("delta wanted domains", after.location, BranchLogTip.from_line(decode_branch_log(after)))
        return self._table.read_once(
            key, lambda: self._commits.read_snapshot(after, self._table.read).domains
        )

    def _compare_snapshots(self, after: DeltaTable) -> StateDifference:
        snapshot = self._commits.read_snapshot(after, self._table.read)
        difference = StateDifference.compare_snapshots(self._read_snapshot(), snapshot, self._now_ms)
        # Whatever a checkpoint or the commit that added them says: rows come back with them.
        adds = {key: set_data_change(add) for key, add in difference.adds.items()}
        return msgspec.structs.replace(difference, adds=adds)

    def _compare_by_commits(self, after: DeltaTable) -> StateDifference | None:
        """The same by the commits since the lines parted, if these are few and all there: it costs what they
        changed, and not what the table has."""
        if self._from is None:
            return None
        read, here, line = self._table.read, decode_branch_log(self._from), decode_branch_log(after)
        parted = find_parting_version(here, line, read)
        if parted < 0 or here.latest + line.latest - 2 * parted > NEAR_VERSIONS:
            return None
        try:
            mine = read_steps(self._table, self._commits, self._from, parted, here.latest)
            theirs = read_steps(self._table, self._commits, after, parted, line.latest)
            since = [action for step in (*mine, *theirs) for action in step.actions]
            if any(isinstance(action, Protocol | Metadata) or _is_about_domains(action) for action in since):
                return None
            shifts = find_transitions(
                theirs, mine, make_lookup_at_version(self._table, self._commits, after, parted)
            )
        except VersionNotFound:
            return None
        is_now = read_declared(self._table, here.declared)
        changes = {path: shift.data_change for path, shift in shifts.items()}
        returns = [shift.before for shift in shifts.values() if shift.before is not None]
        adds = {add.key: add for add in returns if isinstance(add, Add)}
        adds |= self.files_in(after, [add.key for add in returns if isinstance(add, Remove)])
        goes = [shift.after for shift in shifts.values() if shift.after is not None]
        removes = (
            make_remove(action, self._now_ms) if isinstance(action, Add) else action for action in goes
        )
        return StateDifference(
            protocol=is_now.protocol,
            metadata=is_now.metadata,
            wanted_domains={},  # as they are, unless a commit comes meanwhile that changes some
            domains=frozenset(),
            batches=(),
            adds={key: set_data_change(add, changes[key.path]) for key, add in adds.items()},
            removes={remove.key: set_data_change(remove, changes[remove.key.path]) for remove in removes},
        )

    def _find_lookup_version(self) -> DeltaTable | None:
        """A version of the line at which things are looked up; ``None`` stands for the empty table."""
        key = ("delta begin", self._content.location)
        began: DeltaTable | None = self._table.notes.get(key, self._content)
        if began is None or BranchLogTip.from_line(decode_branch_log(began)).is_on(
            self._line, self._table.read
        ):
            return began
        return self._content

    def _look_up(self, paths: Collection[str]) -> Files:
        """Look paths up in the version that lookups use."""
        if self._from is None:
            return dict.fromkeys(paths)
        cached: Files = self._table.notes.setdefault(self._note_key("live"), {})
        if missing := [path for path in paths if path not in cached]:
            if not self._table.may_read:
                raise PrepareAgain
            live_files = self._commits.make_active_file_lookup(self._from, self._table.read)(missing)
            cached |= {path: (live_files[path],) if path in live_files else None for path in missing}
        return {path: cached[path] for path in paths}

    def files_in(self, after: DeltaTable, keys: Collection[FileKey]) -> dict[FileKey, Add]:
        """Of some files, those that are part of a wanted version."""
        note = ("delta wanted", after.location, BranchLogTip.from_line(decode_branch_log(after)))
        adds: dict[FileKey, Add | None] = self._table.notes.setdefault(note, {})
        if missing := {key for key in keys if key not in adds}:
            if not self._table.may_read:
                raise PrepareAgain
            live_adds = self._commits.read_snapshot(after, self._table.read).find_files(missing)
            adds |= dict.fromkeys(missing) | live_adds
        return {key: add for key in keys if (add := adds[key]) is not None}

    def _note_key(self, subject: str) -> tuple[object, ...]:
        return (f"delta {subject}", self._content.location, self._tip)

    def _read_snapshot(self) -> LogSnapshot:
        if self._from is None:
            # Whoever creates a table and restores another state of it in one request has nothing to look up.
            raise FormatRefused(
                "was created by the same request; include its later commits in another request"
            )
        return self._commits.read_snapshot(self._from, self._table.read)

    def _list_commits_after(self, version: int) -> Iterator[tuple[Action, ...]]:
        """The commits of the line after a version, and those that are about to come."""
        if self._line.latest > version:
            for step in read_steps(self._table, self._commits, self._content, version, self._line.latest):
                yield step.actions
        yield from self._more


def _find_named_paths(commits: Iterable[tuple[Action, ...]], paths: Collection[str]) -> Files:
    """What those of some paths are that commits name."""
    files_by_path: Files = {}
    requested_paths = set(paths)
    for actions in commits:
        files = [
            action
            for action in actions
            if isinstance(action, Add | Remove) and action.key.path in requested_paths
        ]
        files_by_path |= {file.key.path: None for file in files}
        files_by_path |= {file.key.path: (file.key.vector,) for file in files if isinstance(file, Add)}
    return files_by_path


def _is_about_domains(action: Action) -> bool:
    """Whether it says something of a domain that a table may go back to: ids of rows only go on."""
    return isinstance(action, DomainMetadata) and not is_high_water_mark(action)
