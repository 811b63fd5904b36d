"""The commits of Delta tables: their bytes, wherever they are, and what they come to.

Bytes of a commit never change, so whatever was read or ratified here stays in memory as long as there is
room. What cannot be had from memory or from the kernel is read from the table's storage, where that may be
done; where it may not, the request has to go round.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.formats.delta.branch_log.active_files import ActiveFiles
from penstock.formats.delta.branch_log.branch_log import (
    BranchLog,
    BranchLogEntry,
    CommitTerms,
    Read,
    decode_branch_log,
    is_named_after,
    read_commit_record,
)
from penstock.formats.delta.branch_log.snapshots import DeltaSnapshotCache
from penstock.formats.delta.errors import InvalidLog, MalformedAction, VersionNotFound
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Action, CommitInfo, parse_action, parse_commit
from penstock.formats.delta.protocol.lint_files import Lookup
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.format import PrepareAgain, Table
from penstock.model import decoders
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

MEMORY_MAX_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of commits are kept, of all tables together."""
BLIND: Final = CommitTerms(DeltaReads())
REPLACES: Final = "penstockReplaces"
"""In a ``commitInfo``, a ``ReplacedPartitions``. A published log has to tell it: the lake forgets what is
published."""
PICKING: Final = frozenset({"DELETE", "UPDATE", "MERGE", "OPTIMIZE", "REORG", "MERGE BRANCH", "RESTORE"})
"""Operations that remove files which they have picked, unless they say otherwise."""


class ReplacedPartitions(msgspec.Struct, frozen=True):
    """What a commit says of the files that it removed, whatever they were."""

    partitions: tuple[PartitionFilter, ...]
    """Where they were; in the whole table for none."""
    blindly: bool = False
    """Nothing was read for it."""


class CommitReader:
    """The commits of all tables, for ordinary threads."""

    def __init__(self, places: Places, memory_max_bytes: int = MEMORY_MAX_BYTES) -> None:
        self.places = places
        self._memory = _CommitCache(memory_max_bytes)
        self._snapshots = DeltaSnapshotCache(places, self.read_log_tail)
        self._live = ActiveFiles(self.read_snapshot, self._read_versions)

    def read_commit_bytes(
        self, table: Table, location: str, version: int, entry: BranchLogEntry | None
    ) -> bytes:
        """The bytes of a version: of an entry of a line, or without one of the published version.

        ``PrepareAgain`` if storage would have to be read and may not be, ``VersionNotFound`` if the log no
        longer has the published version, ``InvalidLog`` if the bytes are gone or not what was ratified.
        """
        return self._get_cached(table, location, version, entry).data

    def read_ahead(self, table: Table, location: str, line: BranchLog, versions: Sequence[int]) -> None:
        """Read published versions together that are about to be asked for, as far as that may be."""
        identity = location if table.content is None or table.content.id is None else table.content.id
        keys = {
            (identity, version, b"", b""): str(CommitName(version))
            for version in versions
            if version <= line.published
        }
        missing = {key: name for key, name in keys.items() if self._memory.get(key) is None}
        if table.may_read and len(missing) > 1:
            contents = self.places.open_place(location).read(missing.values())
            for key, data in zip(missing, contents, strict=True):
                if data is not None:
                    self._memory.put(key, _CachedCommit(data))

    def read_actions(
        self, table: Table, location: str, version: int, entry: BranchLogEntry | None
    ) -> tuple[Action, ...]:
        """The actions of a version. As ``read_commit_bytes``; ``InvalidLog`` if they cannot be understood."""
        cached = self._get_cached(table, location, version, entry)
        if cached.actions is None:
            cached.actions = _parse_actions(location, version, entry, cached.data)
        return cached.actions

    def read_commit_info(
        self, table: Table, location: str, version: int, entry: BranchLogEntry | None
    ) -> CommitInfo | None:
        """The ``commitInfo`` of a version, if it begins with one. Raises as ``read_actions``."""
        cached = self._get_cached(table, location, version, entry)
        if cached.first is None:
            try:
                cached.first = (parse_action(cached.data.partition(b"\n")[0]),)
            except MalformedAction as problem:
                raise _invalid_log_error(location, version, entry, problem) from None
        (first,) = cached.first
        return first if isinstance(first, CommitInfo) else None

    def read_commit_terms(
        self, table: Table, location: str, version: int, entry: BranchLogEntry | None
    ) -> CommitTerms | None:
        """On what a version rests. Of one that is published and forgotten, its ``commitInfo`` has to tell;
        ``None`` if it does not."""
        if entry is not None:
            return read_commit_record(entry, table.read).terms
        return parse_terms(self.read_commit_info(table, location, version, None))

    def read_versions_after(
        self, table: Table, content: DeltaTable, after: int, line: BranchLog | None = None
    ) -> Iterator[tuple[int, tuple[Action, ...]]]:
        """The actions of all versions after one, oldest first. Raises as ``read_actions``."""
        line = line or decode_branch_log(content)
        for version, entry in _list_versions(line, after, table.read):
            yield version, self.read_actions(table, content.location, version, entry)

    def read_log_tail(self, content: DeltaTable, after: int, read: Read) -> Iterator[tuple[str, bytes]]:
        """Name and bytes of all versions after one, oldest first, read from storage where need be."""
        table = Table(_NOBODY, content, read)
        for version, entry in _list_versions(decode_branch_log(content), after, read):
            name = str(CommitName(version)) if entry is None else entry.get_staged_path(version)
            yield name, self.read_commit_bytes(table, content.location, version, entry)

    def read_snapshot(self, content: DeltaTable, read: Read, version: int | None = None) -> LogSnapshot:
        """The newest version of a line, or an older one. Reads from storage what is not known.

        Raises what ``load_snapshot`` does.
        """
        return self._snapshots.get_snapshot(content, read, version)

    def make_active_file_lookup(self, content: DeltaTable, read: Read) -> Lookup:
        """Tells which paths are files of a line's newest version. What is not known is read right here."""
        return self._live.make_lookup(content, read)

    def cache_staged_commit(self, location: str, version: int, entry: BranchLogEntry, data: bytes) -> None:
        """Keep the bytes of a commit that was staged, or is about to be ratified, here."""
        self._memory.put((location, version, entry.uuid, entry.line), _CachedCommit(data))

    def remember_landed(self, content: DeltaTable) -> None:
        """Remember the newest version of a line that landed on the default branch under the table's id: it is
        final."""
        line = decode_branch_log(content)
        if line.entries and content.id is not None:
            newest = line.entries[-1]
            cached = self._memory.get((content.location, line.latest, newest.uuid, newest.line))
            if cached is not None:
                self._memory.put((content.id, line.latest, b"", b""), cached)

    def _read_versions(
        self, content: DeltaTable, after: int, read: Read
    ) -> Iterator[tuple[int, tuple[Action, ...]]]:
        return self.read_versions_after(Table(_NOBODY, content, read), content, after)

    def _get_cached(
        self, table: Table, location: str, version: int, entry: BranchLogEntry | None
    ) -> _CachedCommit:
        identity = None if table.content is None else table.content.id
        key: _Key = (identity or location, version, b"", b"")
        if entry is not None:
            key = (location, version, entry.uuid, entry.line)
        cached = self._memory.get(key)
        if cached is None:
            cached = _CachedCommit(self._read_commit(table, location, version, entry))
            self._memory.put(key, cached)
        return cached

    def _read_commit(self, table: Table, location: str, version: int, entry: BranchLogEntry | None) -> bytes:
        held = None if entry is None else read_commit_record(entry, table.read)
        if held is not None and held.head is not None and entry is not None and not entry.body:
            return held.head
        if not table.may_read:
            raise PrepareAgain
        if entry is None:
            return self._read_published(location, version)
        if held is not None and held.head is not None:
            body = self._read_first_existing(location, version, (entry.body,), entry.size - len(held.head))
            if not is_named_after(version, entry, held.head, body):
                raise InvalidLog(
                    f"{entry.body} of the table {location} is not what the lake committed as version "
                    f"{version}: another program has changed the file\n  Bring the original file back from "
                    "a backup of the table's folder.",
                    table=location,
                    file=entry.body,
                    version=version,
                )
            return held.head + body
        names = (
            (entry.get_staged_path(version),)
            if entry.line
            else (entry.get_staged_path(version), str(CommitName(version)))
        )
        return self._read_first_existing(location, version, names, entry.size)

    def _read_published(self, location: str, version: int) -> bytes:
        (data,) = self.places.open_place(location).read([str(CommitName(version))])
        if data is None:
            raise VersionNotFound(
                f"version {version} of the table {location} is no longer in its log",
                table=location,
                version=version,
            )
        return data

    def _read_first_existing(
        self, location: str, version: int, names: Sequence[str], size: int | None = None
    ) -> bytes:
        """The first of some files that exists."""
        place = self.places.open_place(location)
        for name in names:
            (data,) = place.read([name])
            if data is None:
                continue
            if size is not None and len(data) != size:
                raise InvalidLog(
                    f"{name} of the table {location} has {len(data)} bytes, but the ratified commit has "
                    f"{size}",
                    table=location,
                    file=name,
                    version=version,
                )
            return data
        raise InvalidLog(
            f"{names[-1]} of the table {location} is missing, although version {version} was ratified\n  If "
            "the log is being cleaned up at this moment, try again; otherwise put the file back.",
            table=location,
            file=names[-1],
            version=version,
        )


class _CachedCommit:
    """The bytes of a commit, and its actions, or the first of them, once somebody has asked for them."""

    __slots__ = ("actions", "data", "first")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.actions: tuple[Action, ...] | None = None
        self.first: tuple[Action | None] | None = None


_Key: TypeAlias = tuple[UUID | str, int, bytes, bytes]
"""Tells a commit from all others: where its file is, its version, its name and whose folder it is in. Of a
published one the table counts and not its location, where there may be another table by now."""


class _CommitCache:
    """What was used last, up to so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._kept: OrderedDict[_Key, _CachedCommit] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> _CachedCommit | None:
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None:
                self._kept.move_to_end(key)
            return cached

    def put(self, key: _Key, kept: _CachedCommit) -> None:
        with self._lock:
            if key in self._kept or len(kept.data) > self._max_bytes:
                return
            self._kept[key] = kept
            self._bytes += len(kept.data) + _OVERHEAD_BYTES
            while self._bytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest.data) + _OVERHEAD_BYTES


_OVERHEAD_BYTES: Final = 512
"""What a commit takes beside its bytes, about."""
_NOBODY: Final = Key.parse("table")
"""Stands for the key where nobody asks for it."""


def parse_terms(info: CommitInfo | None) -> CommitTerms | None:
    """On what a commit rests by its own words; ``None`` if these leave open whether it picked the files that
    it removed, or replaced whatever was there."""
    if info is None:
        return None
    if info.is_blind_append:
        return BLIND
    if REPLACES in info.fields:
        try:
            replaces = decoders.convert_value(info.fields[REPLACES], ReplacedPartitions)
        except msgspec.ValidationError:
            return None
        return CommitTerms(DeltaReads(whole_table=not replaces.blindly), replaces.partitions)
    return CommitTerms() if (info.operation or "").upper() in PICKING else None


def _list_versions(line: BranchLog, after: int, read: Read) -> Iterator[tuple[int, BranchLogEntry | None]]:
    """All versions after one: published ones without an entry, then those of the line."""
    for version in range(after + 1, line.published + 1):
        yield version, None
    yield from line.read_entries_after(after, read)


def _parse_actions(
    location: str, version: int, entry: BranchLogEntry | None, data: bytes
) -> tuple[Action, ...]:
    try:
        return tuple(line.action for line in parse_commit(data))
    except MalformedAction as problem:
        raise _invalid_log_error(location, version, entry, problem) from None


def _invalid_log_error(
    location: str, version: int, entry: BranchLogEntry | None, problem: MalformedAction
) -> InvalidLog:
    name = str(CommitName(version)) if entry is None else entry.get_staged_path(version)
    return InvalidLog(
        f"the commit {name} in the log of the table {location} cannot be parsed: {problem}",
        table=location,
        file=name,
        version=version,
    )
