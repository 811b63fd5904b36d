"""Which files of a log make up a version of the table: a checkpoint, and the commits behind it.

``_last_checkpoint`` only says from where to list. Stale, damaged or missing, it costs time and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.formats.delta.errors import LogGap, TableNotFound, VersionNotFound
from penstock.formats.delta.log.log_files import LogFile, TableFiles
from penstock.formats.delta.protocol.names import (
    LAST_CHECKPOINT,
    VERSION_MAX,
    CheckpointName,
    ClassicName,
    CommitName,
    CompactionName,
    PartName,
    UuidName,
    make_text_before_version,
    parse_name,
)
from penstock.model.decoders import get_json_decoder

NEAR_VERSIONS: Final = (120, 900)
"""For a version behind the newest checkpoint, so many versions before it are listed first, then so many more,
and none after it: a request to a bucket each. Most often a checkpoint is among them, and a long log is not
listed as a whole."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A whole version of the table in one file, or in several parts."""

    version: int
    names: tuple[str, ...]


class LogSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The files that make up one version of a table."""

    table: str
    """Where the table is: for errors."""
    version: int
    checkpoint: Checkpoint | None
    names: tuple[str, ...]
    """What to replay on top of the checkpoint, oldest first: commits, and compactions in place of several."""
    newest: str
    """The commit of the version itself, which the checkpoint or a compaction may stand in for."""

    def append_commits(self, names: Sequence[str]) -> LogSegment:
        """This segment with commits on top, one version each, wherever below the table's root they lie."""
        if not names:
            return self
        return msgspec.structs.replace(
            self, version=self.version + len(names), names=(*self.names, *names), newest=names[-1]
        )

    def expand_compaction(self, compaction: str) -> LogSegment:
        """This segment with the commits that a compaction stands in for in its place."""
        named = parse_name(compaction)
        assert isinstance(named, CompactionName)  # as whoever asks has found out
        commits = [str(CommitName(version)) for version in range(named.first, named.last + 1)]
        place = self.names.index(compaction)
        names = (*self.names[:place], *commits, *self.names[place + 1 :])
        return msgspec.structs.replace(self, names=names)


def find_segment(files: TableFiles, version: int | None = None) -> LogSegment:
    """The files that make up a version, or the newest one that is published.

    ``TableNotFound`` without a log, ``VersionNotFound`` for a version that is not there, ``LogGap`` if a
    commit in between is missing.
    """
    hint = read_hint(files)
    if hint is not None and (version is None or hint <= version):
        listing = _LogListing(files.url, files.list_files(make_text_before_version(hint)))
        if listing.find_checkpoint(version) is not None:
            return listing.make_segment(version)
    for count in NEAR_VERSIONS:
        if hint is not None and version is not None and count <= version < hint:
            near = files.list_files(
                make_text_before_version(version - count), make_text_before_version(version + 1)
            )
            listing = _LogListing(files.url, near)
            if listing.has_version(version) and listing.find_checkpoint(version) is not None:
                return listing.make_segment(version)
    return _LogListing(files.url, files.list_files("")).make_segment(version)


def find_versions(table: str, listed: Iterable[LogFile]) -> range:
    """The versions that a log can show, from a listing of the whole of it: it may begin at a checkpoint.

    ``TableNotFound`` if it holds nothing.
    """
    return _LogListing(table, listed).versions


def whole_checkpoints(table: str, listed: Iterable[LogFile]) -> tuple[Checkpoint, ...]:
    """The checkpoints of which all files are there, oldest first."""
    return _LogListing(table, listed).checkpoints


class _LastCheckpointHint(msgspec.Struct):
    version: int


_HINT: Final = get_json_decoder(_LastCheckpointHint)


def read_hint(files: TableFiles) -> int | None:
    """The version of the checkpoint that ``_last_checkpoint`` names: a newer one may be there, or none."""
    (data,) = files.read_files([LAST_CHECKPOINT])
    try:
        version = _HINT.decode(data or b"").version
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return version if 0 <= version <= VERSION_MAX else None


class _FoundSegment(NamedTuple):
    name: CheckpointName
    text: str


class _SegmentStep(NamedTuple):
    """The last file of the shortest way to a version: of how many, where it starts, its name."""

    files: int
    start: int
    name: str


class _LogListing:
    """What there is in a log, or in the part of it that was listed."""

    def __init__(self, table: str, listed: Iterable[LogFile]) -> None:
        self._table = table
        self._commits: set[int] = set()
        self._compactions: dict[int, list[int]] = defaultdict(list)
        files_by_version: dict[int, list[_FoundSegment]] = defaultdict(list)
        for file in listed:
            match parse_name(file.name):
                case CommitName(version):
                    self._commits.add(version)
                case CompactionName(first, last):
                    self._compactions[first].append(last)
                case ClassicName() | PartName() | UuidName() as name if file.size > 0:
                    files_by_version[name.version].append(_FoundSegment(name, file.name))
        self._checkpoints = _select_complete_checkpoints(files_by_version)

    def has_version(self, version: int) -> bool:
        return version in self._commits or version in self._checkpoints

    def find_checkpoint(self, version: int | None) -> Checkpoint | None:
        """The newest complete checkpoint that is not newer than a version."""
        fitting = [checkpoint for checkpoint in self._checkpoints if version is None or checkpoint <= version]
        return self._checkpoints[max(fitting)] if fitting else None

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(self._checkpoints[version] for version in sorted(self._checkpoints))

    @property
    def versions(self) -> range:
        """All versions that lead up to the latest without a gap, from a checkpoint or from the very first."""
        if not self._commits and not self._checkpoints:
            raise TableNotFound(
                f"there is no Delta table at {self._table}: its _delta_log holds no commit", table=self._table
            )
        latest = first = max((*self._commits, *self._checkpoints))
        while first in self._commits:
            first -= 1
        # Now all commits after ``first`` are there; a checkpoint stands in for the one of its own version.
        starts = [checkpoint for checkpoint in self._checkpoints if checkpoint >= first]
        return range(0 if first < 0 else min(starts, default=latest), latest + 1)

    def make_segment(self, version: int | None) -> LogSegment:
        latest = self.versions[-1]
        if version is not None and not 0 <= version <= latest:
            raise self._make_not_found_error(version, f"the newest one is {latest}")
        target_version = latest if version is None else version
        checkpoint = self.find_checkpoint(target_version)
        return LogSegment(
            table=self._table,
            version=target_version,
            checkpoint=checkpoint,
            names=self._find_chain(-1 if checkpoint is None else checkpoint.version, target_version),
            newest=str(CommitName(target_version)),
        )

    def _find_chain(self, after: int, last: int) -> tuple[str, ...]:
        """Commits and compactions that lead from one version to another without a gap, in few steps."""
        steps = {after + 1: _SegmentStep(0, after + 1, "")}
        for version in range(after + 1, last + 1):
            if version not in steps:
                continue
            count = steps[version].files + 1
            for end, name in self._list_files_from(version, last):
                if end + 1 not in steps or steps[end + 1].files > count:
                    steps[end + 1] = _SegmentStep(count, version, name)
        if last + 1 not in steps:
            raise self._missing_file_error(max(steps), last, is_first=max(steps) == 0)
        names: list[str] = []
        step = steps[last + 1]
        while step.name:
            names.append(step.name)
            step = steps[step.start]
        return tuple(reversed(names))

    def _list_files_from(self, version: int, last: int) -> Iterator[tuple[int, str]]:
        """The files that begin with a version: where each ends, and its name."""
        if version in self._commits:
            yield version, str(CommitName(version))
        for end in self._compactions.get(version, ()):
            if end <= last:
                yield end, str(CompactionName(version, end))

    def _missing_file_error(self, version: int, version_to_read: int, is_first: bool) -> Exception:
        reachable = [checkpoint for checkpoint in self._checkpoints if checkpoint > version_to_read]
        if is_first and reachable:
            return self._make_not_found_error(version_to_read, f"its log begins at version {min(reachable)}")
        return LogGap(
            f"the log of {self._table} has a gap: {CommitName(version)} is missing\n  Version "
            f"{version_to_read} "
            "needs it: restore it from a backup, or read a version without it.",
            table=self._table,
            version=version,
        )

    def _make_not_found_error(self, version: int, why: str) -> VersionNotFound:
        return VersionNotFound(
            f"{self._table} has no version {version}: {why}", table=self._table, version=version
        )


def _select_complete_checkpoints(found: Mapping[int, Sequence[_FoundSegment]]) -> dict[int, Checkpoint]:
    """One checkpoint per version, of those of which all files are there: fewest files first."""
    checkpoints = {}
    for version, files in found.items():
        whole = [file.text for file in files if isinstance(file.name, ClassicName)]
        whole += [file.text for file in files if isinstance(file.name, UuidName)]
        if whole:
            checkpoints[version] = Checkpoint(version, (whole[0],))
            continue
        parts: dict[int, list[str]] = defaultdict(list)
        for file in files:
            if isinstance(file.name, PartName):
                parts[file.name.parts].append(file.text)
        for count in sorted(parts):
            if len(parts[count]) == count:
                checkpoints[version] = Checkpoint(version, tuple(sorted(parts[count])))
                break
    return checkpoints
