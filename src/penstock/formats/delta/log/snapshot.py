"""A version of a table: what its log comes to.

The log is replayed newest first, so that whatever is met first of a key is what counts. Of the commits behind
the checkpoint the lines that count are kept, packed; the checkpoint itself is read again, batch by batch,
each time its files are asked for. So a table with a million files never stands in memory as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final, TypeVar

from penstock.formats.delta.errors import InvalidLog, MalformedAction, UnsupportedFeature
from penstock.formats.delta.log.checkpoint import NOTHING_NEWER, CheckpointFile, NewerActions, open_checkpoint
from penstock.formats.delta.log.file_index import FileIndex
from penstock.formats.delta.log.log_files import TableFiles
from penstock.formats.delta.log.packed_lines import PackedLines, parse_adds
from penstock.formats.delta.log.segments import LogSegment, find_segment
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
    key_digests,
    parse_action,
    reconciliation_key,
    write_action,
)
from penstock.formats.delta.protocol.features import find_unreadable_features
from penstock.formats.delta.protocol.names import (
    CommitName,
    CompactionName,
    StagedName,
    parse_name,
    sidecar_name,
)
from penstock.formats.delta.protocol.properties import is_on
from penstock.formats.rows.schema import StructType, parse_schema

TAKEN_BYTES: Final = 256 * 1024
"""How many bytes of a commit are parsed at once, where it adds files and does nothing else."""
HELD_MAX_BYTES: Final = 32 * 1024 * 1024
"""A checkpoint up to this size is held in memory after it has been read once."""
INDEX_PACK_BYTES: Final = 256 * 1024
"""How many bytes of lines an index unpacks to look at one of them."""
_SEEN_BYTES: Final = 100
"""About how much memory the key of a file takes."""

FileActionT = TypeVar("FileActionT", Add, Remove)


def load_snapshot(files: TableFiles, version: int | None = None) -> LogSnapshot:
    """A version of the table, or the newest one that is published.

    Raises what ``find_segment`` does, ``UnsupportedFeature`` if reading the table takes more than this
    Penstock knows, ``InvalidLog`` if a file of the log cannot be understood.
    """
    return replay_segment(files, find_segment(files, version))


def replay_segment(files: TableFiles, segment: LogSegment) -> LogSnapshot:
    """The version that a segment of the log comes to. Raises as ``load_snapshot``.

    A compaction that says two things of one file, against the protocol, is left out: which of them is the
    newer one its writer alone knew. The commits that it stands in for are read instead.
    """
    tail = _TailActions(segment.table)
    names = segment.names[::-1]
    for name, data in zip(names, files.read_files(names), strict=True):
        if not tail.add_commit(
            name, _require_file(segment.table, name, data), is_newest=name == segment.newest
        ):
            return replay_segment(files, segment.expand_compaction(name))
    base = _SnapshotBase(files, segment)
    for action in base.read_state():
        tail.take_state(action)
    if tail.protocol is None or tail.metadata is None or not tail.metadata.schema_string:
        missing = "protocol" if tail.protocol is None else "metadata" if tail.metadata is None else "schema"
        raise InvalidLog(
            f"the log of {segment.table} has no {missing} up to version {segment.version}",
            table=segment.table,
            version=segment.version,
        )
    check_readable(segment.table, tail.protocol, tail.metadata)
    snapshot = LogSnapshot(segment, tail.protocol, tail.metadata, (tail,), base)
    if snapshot.has_in_commit_timestamps and segment.newest not in segment.names:
        # A checkpoint or a compaction stands in for the commit, and neither keeps its time.
        (data,) = files.read_files([segment.newest])
        tail.take_time(segment.newest, data or b"")
    return snapshot


class LogSnapshot:
    """A version of a table. It does not change; its files are read as they are asked for."""

    def __init__(
        self,
        segment: LogSegment,
        protocol: Protocol,
        metadata: Metadata,
        tails: tuple[_TailActions, ...],
        base: _SnapshotBase,
        index: FileIndex | None = None,
    ) -> None:
        self.table, self.version = segment.table, segment.version
        self.segment = segment
        self.protocol, self.metadata = protocol, metadata
        self._tails, self._base = tails, base
        self.index = index
        """Finds files by conditions without a look at all of them; ``None`` if there is none."""

    def append_commits(self, commits: Sequence[tuple[str, bytes]]) -> LogSnapshot:
        """The version after further commits, given by name and bytes, oldest first.

        It costs what they hold, and what this version holds only now and then. Raises as ``load_snapshot``.
        """
        if not commits:
            return self
        tail, tails = _TailActions(self.table), self._tails
        for name, data in reversed(commits):
            tail.add_commit(name, data, is_newest=name == commits[-1][0])
        protocol, metadata = tail.protocol or self.protocol, tail.metadata or self.metadata
        if tail.protocol is not None or tail.metadata is not None:
            check_readable(self.table, protocol, metadata)
        # As few tails as their sizes have digits, so that reading does not slow down with their number.
        while tails and tails[0].file_count < 2 * tail.file_count:
            tail, tails = tail.merge_over(tails[0]), tails[1:]
        segment = self.segment.append_commits([name for name, _ in commits])
        return LogSnapshot(segment, protocol, metadata, (tail, *tails), self._base)

    def with_metadata(self, metadata: Metadata) -> LogSnapshot:
        """The same files, as a table of other metadata would have them."""
        return LogSnapshot(self.segment, self.protocol, metadata, self._tails, self._base, self.index)

    def make_index(self, *, copies_lines: bool) -> None:
        """Make the index of a version that was replayed, if there is none.

        Over a checkpoint it has lines of its own, and is made only if it may copy them and the checkpoint is
        in memory.
        """
        if self.index is not None:
            return
        (tail,) = self._tails
        if not self._base:
            self.index = FileIndex(tail.get_packed_lines(Add), is_own=False)
        elif copies_lines and self._base.is_held:
            lines = PackedLines(Add, INDEX_PACK_BYTES)
            for raw in tail.get_packed_lines(Add):
                lines.add_line(raw)
            for file in self._base.read_files(Add, self._collect_tail_files()):
                lines.add_line(write_action(file))
            self.index = FileIndex(lines, is_own=True)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        index = 0 if self.index is None else self.index.memory_bytes
        return index + self._base.memory_bytes + sum(tail.memory_bytes for tail in self._tails)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.configuration

    @property
    def schema(self) -> StructType:
        """``InvalidLog`` if it cannot be understood."""
        try:
            return parse_schema(self.metadata.schema_string)
        except MalformedAction as problem:
            raise InvalidLog(
                f"the metadata of {self.table} is invalid at version {self.version}: {problem}",
                table=self.table,
                version=self.version,
            ) from None

    @property
    def transactions(self) -> Mapping[str, Txn]:
        """The last batch of each application, by its id."""
        return {name: txn for tail in reversed(self._tails) for name, txn in tail.transactions.items()}

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """What is kept for each domain; removed ones are left out."""
        domains = {
            name: domain_metadata
            for tail in reversed(self._tails)
            for name, domain_metadata in tail.domains.items()
        }
        return {
            name: domain_metadata for name, domain_metadata in domains.items() if not domain_metadata.removed
        }

    @property
    def has_in_commit_timestamps(self) -> bool:
        return is_on(self.properties, "delta.enableInCommitTimestamps")

    @property
    def in_commit_timestamp(self) -> int | None:
        """The time in the version's own commit, in ms; ``None`` if it has none or is there no more."""
        return self._tails[0].in_commit_timestamp

    def read_files(self) -> Iterator[Add]:
        """The files that the table consists of, each once, in no order that means anything."""
        return self._list_files(Add)

    def file_keys(self) -> Iterator[FileKey]:
        """The keys of the files that the table consists of: many times as quick as the files."""
        newer = (add.key for add in self._files_after_checkpoint(Add))
        return chain(newer, self._base.file_keys(self._collect_tail_files())) if self._base else newer

    def find_active_files(self, paths: Collection[str]) -> dict[str, str | None]:
        """Of some decoded paths, those that are files of the table, each with the id of its deletion vector.

        One pass over the table's files, however many are asked for.
        """
        vectors = {
            key.path: key.vector
            for add in self._files_after_checkpoint(Add)
            if (key := add.key).path in paths
        }
        other_paths = set(paths) - vectors.keys()
        if other_paths:
            file_keys = self._base.file_keys(NOTHING_NEWER, other_paths)
            vectors.update(key for key in file_keys if not self._has_seen(key))
        return vectors

    def find_files(self, keys: Collection[FileKey]) -> dict[FileKey, Add]:
        """Of some files, those that the table has, with all that is known of them. One pass, likewise."""
        missing_keys = set(keys)
        adds = {add.key: add for add in self._files_after_checkpoint(Add) if add.key in missing_keys}
        paths = {key.path for key in missing_keys - adds.keys()}
        if paths:
            files = self._base.read_files(Add, NOTHING_NEWER, paths)
            adds |= {
                key: add for add in files if (key := add.key) in missing_keys and not self._has_seen(key)
            }
        return adds

    def read_tombstones(self) -> Iterator[Remove]:
        """The files that were removed, as far as the log still knows, whether their time is over or not."""
        return self._list_files(Remove)

    def _list_files(self, kind: type[FileActionT]) -> Iterator[FileActionT]:
        newer = self._files_after_checkpoint(kind)
        return chain(newer, self._base.read_files(kind, self._collect_tail_files())) if self._base else newer

    def _files_after_checkpoint(self, kind: type[FileActionT]) -> Iterator[FileActionT]:
        """What the commits behind the checkpoint come to."""
        for number, tail in enumerate(self._tails):
            hiding = self._tails[:number]
            for action in tail.read_files(kind):
                if not hiding or not any(tail.has_seen(action.key) for tail in hiding):
                    yield action

    def _collect_tail_files(self) -> NewerActions:
        """The files that commits after the checkpoint name."""
        return NewerActions({path for tail in self._tails for path in tail.list_paths()}, self._has_seen)

    def _has_seen(self, key: FileKey) -> bool:
        return any(tail.has_seen(key) for tail in self._tails)


class _TailActions:
    """What the commits behind the checkpoint come to, taken newest first."""

    def __init__(self, table: str) -> None:
        self._table = table
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.transactions: dict[str, Txn] = {}
        self.domains: dict[str, DomainMetadata] = {}
        self.in_commit_timestamp: int | None = None
        self._seen: set[bytes] = set()
        self._lines: dict[type, PackedLines[Any]] = {Add: PackedLines(Add), Remove: PackedLines(Remove)}

    def add_commit(self, name: str, data: bytes, is_newest: bool) -> bool:
        """Take a commit, or a compaction; false if the latter says two things of one key."""
        once = set[Any]() if isinstance(parse_name(name), CompactionName) else None
        end = len(data) if once is not None else self._take_adds(data)
        for raw, action in _actions_backwards(self._table, name, data, end):
            key: Any = action.key.digest if isinstance(action, Add | Remove) else reconciliation_key(action)
            if once is not None and key is not None:
                if key in once:
                    return False
                once.add(key)
            if isinstance(action, Add | Remove):
                if key not in self._seen:
                    self._seen.add(key)
                    self._lines[type(action)].add_line(raw)
            elif isinstance(action, CommitInfo) and is_newest:
                self.in_commit_timestamp = action.in_commit_timestamp
            else:
                self.take_state(action)
        return True

    def _take_adds(self, data: bytes) -> int:
        """Take the end of a commit, as far as it adds files that nothing newer is known of: many at once.

        Returns where that begins: what is before has to be looked at line by line.
        """
        end = len(data)
        while end > TAKEN_BYTES:
            start = data.rfind(b"\n", 0, end - TAKEN_BYTES) + 1
            lines = data[start:end].removesuffix(b"\n")
            adds = parse_adds(lines)
            if adds is None:
                break
            keys = key_digests(adds)
            if len(set(keys)) < len(keys) or not self._seen.isdisjoint(keys):
                break
            self._seen.update(keys)
            self._lines[Add].add_all(lines)
            end = start
        return end

    @property
    def file_count(self) -> int:
        """Of how many files it knows, and itself."""
        return len(self._seen) + 1

    def merge_over(self, older: _TailActions) -> _TailActions:
        """One tail for two."""
        both = _TailActions(self._table)
        both.protocol, both.metadata = self.protocol or older.protocol, self.metadata or older.metadata
        both.transactions = {**older.transactions, **self.transactions}
        both.domains = {**older.domains, **self.domains}
        both.in_commit_timestamp = self.in_commit_timestamp
        both._seen = self._seen | older._seen
        for kind, lines in both._lines.items():
            for raw in self._lines[kind]:
                lines.add_line(raw)
            for raw in older._lines[kind]:
                action = parse_action(raw)
                if isinstance(action, Add | Remove) and action.key.digest not in self._seen:
                    lines.add_line(raw)
        return both

    def take_state(self, action: Action) -> None:
        """Take an action that is not about files, unless a newer one has been met."""
        match action:
            case Protocol():
                self.protocol = self.protocol or action
            case Metadata():
                self.metadata = self.metadata or action
            case Txn():
                self.transactions.setdefault(action.app_id, action)
            case DomainMetadata():
                self.domains.setdefault(action.domain, action)
            case _:
                pass

    def take_time(self, name: str, data: bytes) -> None:
        """Take nothing of the newest commit but its time: the rest is known from elsewhere."""
        for _, action in _actions_backwards(self._table, name, data):
            if isinstance(action, CommitInfo):
                self.in_commit_timestamp = action.in_commit_timestamp

    def has_seen(self, key: FileKey) -> bool:
        return key.digest in self._seen

    def list_paths(self) -> Iterator[str]:
        """The decoded paths of all files that it is about."""
        yield from (file.key.path for file in self.read_files(Add))
        yield from (file.key.path for file in self.read_files(Remove))

    def read_files(self, kind: type[FileActionT]) -> Iterator[FileActionT]:
        return self._lines[kind].read_actions()

    def get_packed_lines(self, kind: type[FileActionT]) -> PackedLines[FileActionT]:
        return self._lines[kind]

    @property
    def memory_bytes(self) -> int:
        return len(self._seen) * _SEEN_BYTES + sum(lines.memory_bytes for lines in self._lines.values())


class _SnapshotBase:
    """The checkpoint under the commits, if there is one."""

    def __init__(self, files: TableFiles, segment: LogSegment) -> None:
        self._files, self._table = files, segment.table
        self._names = segment.checkpoint.names if segment.checkpoint is not None else ()
        self._held: dict[str, bytes] = {}
        self._sidecars: list[str] = []

    def read_state(self) -> Iterator[Action]:
        """Its actions that are not about files; asked for once, before the files."""
        for part in self._open_files(self._names):
            for action in part.read_state():
                if isinstance(action, Sidecar):
                    self._sidecars.append(sidecar_name(action.path))
                yield action

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def is_held(self) -> bool:
        """Whether all of it is in memory."""
        return all(name in self._held for name in (*self._names, *self._sidecars))

    @property
    def memory_bytes(self) -> int:
        return sum(map(len, list(self._held.values())))

    def read_files(
        self, kind: type[FileActionT], newer: NewerActions, among: Set[str] | None = None
    ) -> Iterator[FileActionT]:
        """Its actions of one kind about files that count; only those at some decoded paths, if given."""
        parts = self._open_files((*self._names, *self._sidecars))
        return chain.from_iterable(part.read_files(kind, newer, among) for part in parts)

    def file_keys(self, newer: NewerActions, among: Set[str] | None = None) -> Iterator[FileKey]:
        """The keys of the files that it adds and that count, likewise."""
        parts = self._open_files((*self._names, *self._sidecars))
        return chain.from_iterable(part.file_keys(newer, among) for part in parts)

    def _open_files(self, names: tuple[str, ...]) -> Iterator[CheckpointFile]:
        """One file after the other, so that no two large ones are in memory together."""
        for name in names:
            data = self._held.get(name)
            if data is None:
                (content,) = self._files.read_files([name])
                data = _require_file(self._table, name, content)
                if len(data) + sum(map(len, self._held.values())) <= HELD_MAX_BYTES:
                    self._held[name] = data
            yield open_checkpoint(self._table, name, data)


def _actions_backwards(
    table: str, name: str, data: bytes, end: int | None = None
) -> Iterator[tuple[bytes, Action]]:
    """The actions of a commit with their lines, last first, without all of them in memory at once; only of
    those before a place, if given."""
    end = len(data) if end is None else end
    while end > 0:
        start = data.rfind(b"\n", 0, end) + 1
        raw = data[start:end].strip()
        if raw:
            try:
                action = parse_action(raw)
            except MalformedAction as problem:
                raise _malformed_error(table, name, data.count(b"\n", 0, start) + 1, problem) from None
            if action is not None:
                yield raw, action
        end = start - 1


def check_readable(table: str, protocol: Protocol, metadata: Metadata) -> None:
    """``UnsupportedFeature`` if reading the table takes more than this Penstock knows."""
    refusals = find_unreadable_features(protocol, metadata)
    if refusals:
        raise UnsupportedFeature(
            "\n  ".join((f"{table} cannot be read:", *map(str, refusals))),
            table=table,
            feature=refusals[0].feature,
            features=tuple(refusal.feature for refusal in refusals),
        )


def _require_file(table: str, name: str, data: bytes | None) -> bytes:
    if data is None:
        raise InvalidLog(
            f"{name} of the table {table} is missing, although the log needs it\n  If the log is being "
            "cleaned up at this moment, try again; otherwise put the file back.",
            table=table,
            file=name,
        )
    return data


def _malformed_error(table: str, name: str, line: int, problem: MalformedAction) -> InvalidLog:
    reason = problem.details["reason"]
    named = parse_name(name)
    version = named.version if isinstance(named, CommitName | StagedName) else None
    return InvalidLog(
        f"line {line} of {name} of the table {table} is not an action: {reason}",
        table=table,
        file=name,
        version=version,
        line=line,
        reason=reason,
    )
