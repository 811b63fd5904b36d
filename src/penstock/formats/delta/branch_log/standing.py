"""How a table stands at a request's turn, told from what was read when the request was prepared.

At its turn a request reads nothing from storage. So what it needs to know of a table's files is looked up
before, at the end of the line as it is then, and noted; at the turn the commits that came since are counted
in. Where they cannot be had without storage the request goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from penstock.formats.delta.branch_log.commits import Commits
from penstock.formats.delta.branch_log.difference import LineDifference, changing_rows
from penstock.formats.delta.branch_log.line import Line, LineEntry, Read, Terms, Tip, line_of
from penstock.formats.delta.branch_log.net import NetStep
from penstock.formats.delta.branch_log.ratifying import known
from penstock.formats.delta.branch_log.replacements import Replacement, in_sum, named_in, undone_in
from penstock.formats.delta.branch_log.replacing import Replaced, removal
from penstock.formats.delta.branch_log.shifts import Files, shifts_between
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
from penstock.formats.delta.protocol.transaction import Partitions, last
from penstock.kernel.format import PrepareAgain, Refused, Table
from penstock.model.encoding import encode
from penstock.model.nessie import DeltaTable

NEAR_VERSIONS: Final = 64
"""Two versions of a table that are no further apart are compared by the commits in between."""
_Read = TypeVar("_Read")


def noted(table: Table, key: tuple[object, ...], read: Callable[[], _Read]) -> _Read:
    """What was read once for a request. ``PrepareAgain`` if it was not, and may not be read now.

    Where what was read is a reason to refuse, it is one whenever it is asked for again.
    """
    if key not in table.notes:
        if not table.may_read:
            raise PrepareAgain
        try:
            table.notes[key] = read()
        except Refused as refused:
            table.notes[key] = refused
    found: _Read | Refused = table.notes[key]
    if isinstance(found, Refused):
        raise found
    return found


def steps(table: Table, commits: Commits, content: DeltaTable, after: int, last: int) -> list[NetStep]:
    """The commits of a line after a version and up to another, oldest first. ``PrepareAgain`` as above."""
    line = line_of(content)
    repeats = line.versions_with_repeats(after, last, table.read)
    return [
        _noted_step(table, commits, content.location, version, entry, version in repeats)
        for version, entry in versions(line, after, last, table.read)
    ]


def steps_but_appends(
    table: Table, commits: Commits, content: DeltaTable, after: int, last: int
) -> list[NetStep]:
    """The same without the commits that say of themselves that they only appended, and read nothing.

    The line knows which they are. Of versions from before it knew, the first line is looked at. Whether one
    may have repeated files is not looked up: each counts as if it might.
    """
    location, line = content.location, line_of(content)
    appends: set[tuple[int, bytes]] = table.notes.setdefault(("delta appends", location), set())
    found: list[NetStep] = []
    for version, entry in _versions_but_appends(line, after, last, table.read):
        named = version, b"" if entry is None else entry.uuid + entry.line
        if named in appends:
            continue
        info = commits.info(table, location, version, entry)
        if info is not None and info.is_blind_append:
            appends.add(named)
        else:
            found.append(_noted_step(table, commits, location, version, entry, True))
    return found


def _versions_but_appends(
    line: Line, after: int, last: int, read: Read
) -> Iterator[tuple[int, LineEntry | None]]:
    """The versions of a line that may have done more than to append."""
    changes = line.changes
    unknown = line.latest if changes is None else changes.after
    if unknown > after:
        yield from versions(line, after, min(last, unknown), read)
    for version in () if changes is None else changes.between(max(after, unknown), last, read):
        yield version, None if version <= line.published else line.at(version, read)


def versions(line: Line, after: int, last: int, read: Read) -> Iterator[tuple[int, LineEntry | None]]:
    """The versions of a line after one and up to another, with their entries; published ones have none."""
    for version in range(after + 1, min(line.published, last) + 1):
        yield version, None
    for version, entry in line.since(after, read):
        if version > last:
            return
        yield version, entry


def _noted_step(
    table: Table,
    commits: Commits,
    location: str,
    version: int,
    entry: LineEntry | None,
    may_repeat_files: bool,
) -> NetStep:
    named = (b"", b"") if entry is None else (entry.uuid, entry.line)
    key = ("delta step", location, version, *named, may_repeat_files)
    if key in table.notes:
        found: NetStep = table.notes[key]
        return found
    actions = commits.actions(table, location, version, entry)
    terms = commits.terms(table, location, version, entry)
    removes = any(isinstance(action, Remove) for action in actions)
    is_told = terms is not None or not removes
    info = last(actions, CommitInfo)
    step = NetStep(
        version, actions, terms or Terms(), is_told, named_in(info), undone_in(info), may_repeat_files
    )
    table.notes[key] = step
    return step


def live_at(table: Table, commits: Commits, content: DeltaTable, version: int) -> Lookup:
    """Tells which paths were files of a version of a line. ``PrepareAgain`` as above."""

    def look(paths: Collection[str]) -> Mapping[str, str | None]:
        if version < 0:
            return {}
        key = ("delta live at", content.location, Tip.of(line_of(content)), version, *sorted(paths))
        return noted(table, key, lambda: commits.snapshot(content, table.read, version).live(paths))

    return look


def parted_at(one: Line, other: Line, read: Read) -> int:
    """The last version that two lines share. Both begin with a part of the default branch's."""
    parted = min(one.fork, other.fork)
    pairs = zip(
        versions(one, parted, one.latest, read), versions(other, parted, other.latest, read), strict=False
    )
    for (version, mine), (_, theirs) in pairs:
        if mine is None or theirs is None or (mine.uuid, mine.line) != (theirs.uuid, theirs.line):
            break
        parted = version
    return parted


def replacements_since(
    table: Table, commits: Commits, line: Line, wanted: DeltaTable
) -> tuple[Replacement, ...]:
    """The replacements that a wanted state rests on, and a line does not have: they come with the state."""
    there = line_of(wanted)
    parted = parted_at(line, there, table.read)

    def read() -> tuple[Replacement, ...]:
        with suppress(VersionNotFound):  # a state can be taken also where nobody knows how it came about
            since = steps(table, commits, wanted, parted, there.latest)
            return in_sum([one for step in since for one in step.replacements])
        return ()

    return noted(table, ("delta replacements", wanted.location, Tip.of(there), parted), read)


def undone_since(
    table: Table, commits: Commits, content: DeltaTable, wanted: DeltaTable
) -> tuple[Replacement, ...]:
    """The replacements that a table rests on and a wanted state does not have: they go with its return."""
    line = line_of(content)
    parted = parted_at(line, line_of(wanted), table.read)

    lost = ("delta undone", content.location, parted)
    if lost in table.notes:
        return ()
    try:
        since = steps_but_appends(table, commits, content, parted, line.latest)
    except VersionNotFound:  # a state can be taken also where nobody knows what came since
        table.notes[lost] = True
        return ()
    return in_sum([*in_force(since).values()])


def in_force(steps: Sequence[NetStep]) -> dict[bytes, Replacement]:
    """The replacements by commits that were not undone by later ones, by their ids."""
    found: dict[bytes, Replacement] = {}
    for step in steps:
        for one in step.undone:
            found.pop(one.id, None)
        found |= {one.id: one for one in step.replacements}
    return found


def begin(table: Table, location: str, content: DeltaTable | None) -> None:
    """Note how a table is when a request first asks for it: what is looked up is looked up there.

    Later on its line may hold versions that the request itself is about to make, and that may never be.
    """
    if table.may_read:
        table.notes.setdefault(("delta begin", location), content)


class DeltaStanding:
    """The files of a line's end, as far as somebody asks for them, and of what is put on top of it."""

    def __init__(self, table: Table, commits: Commits, content: DeltaTable, now_ms: int) -> None:
        self._table, self._commits, self._now_ms = table, commits, now_ms
        self._content, self._line = content, line_of(content)
        self._from = self._looked_up()
        self._tip = Tip(-1, b"") if self._from is None else Tip.of(line_of(self._from))
        self._more: list[tuple[Action, ...]] = []
        self._told: tuple[int, Files] = (-1, {})

    def was_told(self, version: int, files: Files) -> None:
        """Take somebody's word for some files of a version, who has looked them up there."""
        self._told = (version, files)

    def followed_by(self, actions: Sequence[Action]) -> None:
        """Count in a commit that is about to be the next."""
        self._more.append(tuple(actions))

    def live(self, paths: Collection[str]) -> dict[str, str | None]:
        """Of some decoded paths, those that are files of the table, each with its deletion vector's id."""
        version, told = self._told
        known = self._named_since(version, paths) if told else {}
        known |= {path: told[path] for path in paths if path in told and path not in known}
        if left := set(paths).difference(known):
            since = self._named_since(self._tip.version, left)
            known |= self._found(left.difference(since)) | since
        return {path: one[0] for path, one in known.items() if one is not None}

    def _named_since(self, version: int, paths: Collection[str]) -> Files:
        """What those of some paths are that commits after a version name."""
        found: Files = {}
        asked = set(paths)
        for actions in self._since(version):
            files = [one for one in actions if isinstance(one, Add | Remove) and one.key.path in asked]
            found |= {one.key.path: None for one in files}
            found |= {one.key.path: (one.key.vector,) for one in files if isinstance(one, Add)}
        return found

    def replaced(self, partitions: tuple[Partitions, ...]) -> Replaced:
        """The files in some partitions, to be removed."""
        since = list(self._since(self._tip.version))
        if self._from is None:
            told = last([one for actions in since for one in actions], Metadata)
            replaced = Replaced.in_new(told, partitions)
        else:
            key = (*self._key("replaced"), encode(partitions))
            replaced = noted(
                self._table, key, lambda: Replaced.of(self._snapshot(), partitions, self._now_ms)
            )
        for actions in since:
            replaced = replaced.after(actions, self._now_ms)
        return replaced

    def until(self, wanted: DeltaTable) -> LineDifference:
        """What it takes to make a wanted version of it."""
        difference = noted(
            self._table,
            (*self._key("until"), Tip.of(line_of(wanted))),
            lambda: self._near_difference(wanted) or self._whole_difference(wanted),
        )
        for actions in self._since(self._tip.version):
            found = self.files_in(wanted, difference.unknown(actions))
            if any(isinstance(one, DomainMetadata) for one in actions):
                difference = msgspec.structs.replace(difference, wanted_domains=self._domains_in(wanted))
            difference = difference.after(actions, found, self._now_ms)
        return difference

    def _domains_in(self, wanted: DeltaTable) -> Mapping[str, DomainMetadata]:
        key = ("delta wanted domains", wanted.location, Tip.of(line_of(wanted)))
        return noted(self._table, key, lambda: self._commits.snapshot(wanted, self._table.read).domains)

    def _whole_difference(self, wanted: DeltaTable) -> LineDifference:
        there = self._commits.snapshot(wanted, self._table.read)
        difference = LineDifference.between(self._snapshot(), there, self._now_ms)
        # Whatever a checkpoint or the commit that added them says: rows come back with them.
        adds = {key: changing_rows(add) for key, add in difference.adds.items()}
        return msgspec.structs.replace(difference, adds=adds)

    def _near_difference(self, wanted: DeltaTable) -> LineDifference | None:
        """The same by the commits since the lines parted, if these are few and all there: it costs what they
        changed, and not what the table has."""
        if self._from is None:
            return None
        read, here, there = self._table.read, line_of(self._from), line_of(wanted)
        parted = parted_at(here, there, read)
        if parted < 0 or here.latest + there.latest - 2 * parted > NEAR_VERSIONS:
            return None
        try:
            mine = steps(self._table, self._commits, self._from, parted, here.latest)
            theirs = steps(self._table, self._commits, wanted, parted, there.latest)
            declared = Protocol | Metadata | DomainMetadata
            if any(isinstance(one, declared) for step in (*mine, *theirs) for one in step.actions):
                return None
            shifts = shifts_between(theirs, mine, live_at(self._table, self._commits, wanted, parted))
        except VersionNotFound:
            return None
        is_now = known(self._table, here.declared)
        changes = {path: one.data_change for path, one in shifts.items()}
        returns = [one.before for one in shifts.values() if one.before is not None]
        adds = {one.key: one for one in returns if isinstance(one, Add)}
        adds |= self.files_in(wanted, [one.key for one in returns if isinstance(one, Remove)])
        goes = [one.after for one in shifts.values() if one.after is not None]
        removes = (removal(one, self._now_ms) if isinstance(one, Add) else one for one in goes)
        return LineDifference(
            protocol=is_now.protocol,
            metadata=is_now.metadata,
            wanted_domains={},  # as they are, unless a commit comes meanwhile that changes some
            domains=frozenset(),
            batches=(),
            adds={key: changing_rows(add, changes[key.path]) for key, add in adds.items()},
            removes={one.key: changing_rows(one, changes[one.key.path]) for one in removes},
        )

    def _looked_up(self) -> DeltaTable | None:
        """A version of the line at which things are looked up; ``None`` stands for the empty table."""
        key = ("delta begin", self._content.location)
        began: DeltaTable | None = self._table.notes.get(key, self._content)
        if began is None or Tip.of(line_of(began)).is_on(self._line, self._table.read):
            return began
        return self._content

    def _found(self, paths: Collection[str]) -> Files:
        """What some paths are in the version at which things are looked up."""
        if self._from is None:
            return dict.fromkeys(paths)
        known: Files = self._table.notes.setdefault(self._key("live"), {})
        if missing := [path for path in paths if path not in known]:
            if not self._table.may_read:
                raise PrepareAgain
            found = self._commits.live(self._from, self._table.read)(missing)
            known |= {path: (found[path],) if path in found else None for path in missing}
        return {path: known[path] for path in paths}

    def files_in(self, wanted: DeltaTable, keys: Collection[FileKey]) -> dict[FileKey, Add]:
        """Of some files, those that are part of a wanted version."""
        note = ("delta wanted", wanted.location, Tip.of(line_of(wanted)))
        known: dict[FileKey, Add | None] = self._table.notes.setdefault(note, {})
        if missing := {key for key in keys if key not in known}:
            if not self._table.may_read:
                raise PrepareAgain
            found = self._commits.snapshot(wanted, self._table.read).find(missing)
            known |= dict.fromkeys(missing) | found
        return {key: add for key in keys if (add := known[key]) is not None}

    def _key(self, what: str) -> tuple[object, ...]:
        return (f"delta {what}", self._content.location, self._tip)

    def _snapshot(self) -> LogSnapshot:
        if self._from is None:
            # Whoever creates a table and restores another state of it in one request has nothing to look up.
            raise Refused(
                "was created by the same request; bring its later commits by a request of their own"
            )
        return self._commits.snapshot(self._from, self._table.read)

    def _since(self, version: int) -> Iterator[tuple[Action, ...]]:
        """The commits of the line after a version, and those that are about to come."""
        if self._line.latest > version:
            for step in steps(self._table, self._commits, self._content, version, self._line.latest):
                yield step.actions
        yield from self._more
