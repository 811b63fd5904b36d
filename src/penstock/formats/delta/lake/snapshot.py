"""A version of a Delta table, as a program reads it: what it is, its files, its rows, how it came to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from penstock.errors import InvalidRequest, RequestError, VersionNotFound
from penstock.formats.delta.branch_log.past_operations import PastOperation, read_operations
from penstock.formats.delta.branch_log.read_check import NO_ROWS
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.log.log_files import OverlaidFiles, PlaceFiles, TableFiles
from penstock.formats.delta.log.read_versions import ListedLog, ReadVersions
from penstock.formats.delta.log.segments import LogSegment, find_segment
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.log.version_times import version_at
from penstock.formats.delta.protocol.actions import (
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Txn,
    parse_commit,
    write_action,
)
from penstock.formats.delta.protocol.clustering import clustering_columns
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.rows.file_addresses import open_table_place
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.reader import RowReader
from penstock.formats.rows.schema import StructType
from penstock.lake.calls import PAGE_MAX, Resolve
from penstock.model.clock import to_utc_datetime
from penstock.model.keys import Key
from penstock.model.names import parse_time_us

if TYPE_CHECKING:
    from penstock.lake.table import Table
    from penstock.storage.places import Place, Places

HISTORY_LIMIT: Final = 100
_READ_VERSIONS: Final[WeakKeyDictionary[Places, ReadVersions]] = WeakKeyDictionary()
"""What each open lake keeps of tables that were read, by the places that it reads them at."""
_READ_VERSIONS_LOCK: Final = Lock()


class PastVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the history of a table, as its commit tells of it."""

    version: int
    timestamp: datetime | None
    """When it was committed, if it says so."""
    operation: str
    """What was done, in the writer's words; empty if it did not say."""
    is_published: bool
    """Whether it is in the table's own log."""
    info: Mapping[str, Any]
    """All that its writer had to say."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """How it was done (``operationParameters``). Of a merged branch, ``operations`` has what was done
        there, as JSON text."""
        return self._commit_info_map("operationParameters")

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Figures of it, as text (``operationMetrics``)."""
        return self._commit_info_map("operationMetrics")

    @property
    def operations(self) -> tuple[PastOperation, ...]:
        """What was done: by the commit itself, or on the branch that it brought."""
        return read_operations(CommitInfo(dict(self.info)))

    @property
    def user(self) -> str:
        """Who did it; empty if that is not said."""
        return str(self.info.get("userName") or "")

    @property
    def engine(self) -> str:
        """The program that did it; empty if that is not said."""
        return str(self.info.get("engineInfo") or "")

    def _commit_info_map(self, name: str) -> Mapping[str, Any]:
        value = self.info.get(name)
        return value if isinstance(value, dict) else {}


class CommitFile(msgspec.Struct, frozen=True):
    """The file that holds the commit of a version."""

    version: int
    name: str
    """Relative to the table's root."""
    data: bytes | None
    """``None`` if it is there no more: published commits are cleaned up some day."""


class TableHistory(list[PastVersion]):
    """Versions of a table, newest first."""

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_versions

        return show_versions(self)


class TableSnapshot(RowReader):
    """A Delta table at a version. It never changes; its files are read when they are asked for.

    Of the newest version in a transaction it is remembered what is looked at: all, or what a condition holds
    for.
    """

    def __init__(
        self,
        snapshot: LogSnapshot,
        place: Place,
        log: TableVersions,
        note: Callable[[str | None], None] | None = None,
    ) -> None:
        self._read, self._log, self._note = snapshot, log, note
        self.place = place
        """Where its files are."""

    def __repr__(self) -> str:
        return f"<TableSnapshot {self._log.key} version {self._read.version}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_rows

        return show_rows(self.outside_read_set, f"Table {self._log.key}, version {self._read.version}")

    @property
    def outside_read_set(self) -> TableSnapshot:
        """The same, but reads are not added to a transaction's read set: the caller adds them."""
        return TableSnapshot(self._read, self.place, self._log)

    def with_metadata(self, metadata: Metadata) -> TableSnapshot:
        """The same files, read as a table of other metadata has them: columns that they lack are null."""
        return TableSnapshot(self._read.with_metadata(metadata), self.place, self._log, self._note)

    def note_read(self, where: str | None = None) -> LogSnapshot:
        """In a transaction, remember that it is read, or what a condition holds for is."""
        return self._note_rows(where)

    @property
    def log_snapshot(self) -> LogSnapshot:
        """The version as its log tells it. In a transaction, this counts as reading the whole table."""
        return self._snapshot

    @property
    def _snapshot(self) -> LogSnapshot:
        """The version. In a transaction, this counts as reading the whole table."""
        return self._note_rows(None)

    def _note_rows(self, where: str | None) -> LogSnapshot:
        """The same, where only the rows are looked at that a condition holds for, if there is one.

        ``InvalidRequest`` if it cannot be understood: then nothing is read.
        """
        if self._note is not None:
            if where is not None:
                parse_predicate(where, self._read.schema)
            self._note(where)
        return self._read

    @property
    def version(self) -> int:
        """The version that it is of."""
        return self._snapshot.version

    @property
    def location(self) -> str:
        """Where the table's files are."""
        return self._log.location

    @property
    def timestamp(self) -> datetime | None:
        """When the version was committed, if its commit says so."""
        timestamp = self._snapshot.in_commit_timestamp
        return None if timestamp is None else to_utc_datetime(timestamp * 1000)

    @property
    def schema(self) -> StructType:
        """The columns."""
        return self._snapshot.schema

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties, such as ``delta.appendOnly``."""
        return self._snapshot.properties

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return self._snapshot.metadata.partition_columns

    @property
    def metadata(self) -> Metadata:
        """What the log says of the table as a whole."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """What a reader and a writer must know to use the table."""
        return self._snapshot.protocol

    @property
    def clustering(self) -> tuple[tuple[str, ...], ...]:
        """The columns that the table is clustered by, by their names in files: parts of structs as paths."""
        return clustering_columns(self._snapshot.domains)

    @property
    def transactions(self) -> Mapping[str, Txn]:
        """The last batch of each application that numbers what it writes, by the application's id."""
        return self._snapshot.transactions

    def files(self, where: str | None = None) -> Iterator[Add]:
        """The files of the table; with a condition, those that may hold rows for which it is true."""
        from penstock.formats.delta.log.scan import find_files

        return find_files(self._note_rows(where), where)

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``, which never holds all of them in memory."""
        from penstock.formats.delta.log.scan import read_rows

        return read_rows(self._note_rows(where), self.place, columns=columns, where=where)

    @property
    def arrow_schema(self) -> Any:
        """The columns, as a ``pyarrow.Schema``. In a transaction, none of the rows are read by that."""
        from penstock.formats.delta.log.scan import row_schema

        if self._note is not None:
            self._note(NO_ROWS)
        return row_schema(self._read)

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, from the statistics of the files; ``None`` where these do not tell it."""
        from penstock.formats.delta.log.scan import count_rows

        return count_rows(self._snapshot)

    def history(self, limit: int | None = HISTORY_LIMIT) -> list[PastVersion]:
        """The versions up to this one, newest first, as far as the log still has their commits."""
        first = 0 if limit is None else max(0, self.version - limit + 1)
        past_versions = TableHistory()
        for commit in list_commit_files(self._log, self.place, range(self.version, first - 1, -1)):
            if commit.data is None:  # cleaned up, and everything before it
                break
            # What the lake does not know to be published yet is named by its file in the log if it is there.
            is_published = commit.version <= self._log.published or commit.name == str(
                CommitName(commit.version)
            )
            past_versions.append(_parse_past_version(commit.version, commit.data, is_published))
        return past_versions

    def past_sizes(self, limit: int) -> dict[int, int]:
        """How many bytes the files of this version and of those before it have, as far as commits tell."""
        sizes: dict[int, int] = {}
        size = sum(file.size for file in self.files())
        first = max(0, self.version - limit + 1)
        for commit in list_commit_files(self._log, self.place, range(self.version, first - 1, -1)):
            sizes[commit.version] = size
            changed = None if commit.data is None else _compute_size_change(commit.data)
            if changed is None:  # nothing is known of what was before
                break
            size -= changed
        return sizes


def load_table_snapshot(
    table: Table, version: int | None = None, timestamp: str | datetime | None = None
) -> TableSnapshot:
    """A table as it is at its reference: its latest version there, an older one, or that of a time.

    ``VersionNotFound`` if there is none such. A time is ISO 8601, or a ``datetime``.
    """
    _check_one_of(version, timestamp)
    try:
        log = read_version_pages(table)
    except RequestError:
        table.note_read()  # that there is none, or another kind of table
        raise
    places = table.lake.places
    place = places.open_place(log.location)
    files = ListedLog(get_log_files(log, place))
    versions = _get_read_versions(places)
    try:
        if timestamp is not None:
            times = {commit.version: commit.timestamp_ms for commit in log.commits}
            latest = versions.replay_segment(files, _find_segment(files, log))
            version = version_at(files, latest, _to_milliseconds(timestamp), times)
        is_noted = table.is_noted and version is None  # what a named version is, nobody changes
        note = table.note_read if is_noted else None
        snapshot = versions.replay_segment(files, _find_segment(files, log, version))
        place = open_table_place(places, log.location, snapshot.metadata.configuration)
        return TableSnapshot(snapshot, place, log, note)
    except VersionNotFound:
        _require_retained(table, log, 0 if version is None else version)
        raise


def _get_read_versions(places: Places) -> ReadVersions:
    """What is kept of tables that were read by these places."""
    with _READ_VERSIONS_LOCK:
        return _READ_VERSIONS.setdefault(places, ReadVersions())


def _check_one_of(version: int | None, timestamp: str | datetime | None) -> None:
    if version is not None and timestamp is not None:
        raise InvalidRequest("give a version or a timestamp, not both")


def _require_retained(table: Table, log: TableVersions, version: int) -> None:
    """``HistoryExpired`` if a version that is not found was erased."""
    if 0 <= version <= log.latest_version:
        table.lake.do(GetTableVersions(key=table.key, at=table.ref, via=table.via, end=version, limit=0))


def load_published(
    place: Place, version: int | None = None, timestamp: str | datetime | None = None
) -> TableSnapshot:
    """A table as its own log has it, whoever decides its commits: the newest version, an older one, or that
    of a time.

    Raises as ``load_snapshot`` and ``version_at``.
    """
    _check_one_of(version, timestamp)
    files = PlaceFiles(place)
    snapshot = load_snapshot(files, version)
    if timestamp is not None:
        snapshot = load_snapshot(files, version_at(files, snapshot, _to_milliseconds(timestamp)))
    log = TableVersions(
        key=Key.decode(place.url.rpartition("/")[2].encode()),
        id=UUID(int=0),
        location=place.url,
        latest_version=snapshot.version,
        published=snapshot.version,
        commits=(),
        protocol=write_action(snapshot.protocol).decode(),
        metadata=write_action(snapshot.metadata).decode(),
    )
    return TableSnapshot(snapshot, place, log)


def read_version_pages(table: Table, start: int | None = None, end: int | None = None) -> TableVersions:
    """The commits of a table that are not published, all of one commit of the lake."""
    limit = table.lake.page_max or PAGE_MAX
    call = GetTableVersions(key=table.key, at=table.ref, via=table.via, start=start, end=end, limit=limit)
    first = table.lake.do(call)
    last = first.latest_version if end is None else min(end, first.latest_version)
    if not first.commits or first.commits[-1].version >= last:
        return first
    pinned = table.lake.do(Resolve(revision=table.ref))
    call = msgspec.structs.replace(call, at=pinned.commit, via=table.via or pinned.name)
    first = table.lake.do(call)
    last = first.latest_version if end is None else min(end, first.latest_version)
    commits = list(first.commits)
    while commits and commits[-1].version < last:
        commits += table.lake.do(msgspec.structs.replace(call, start=commits[-1].version + 1)).commits
    return msgspec.structs.replace(first, commits=tuple(commits))


def list_commit_files(log: TableVersions, place: Place, versions: Sequence[int]) -> Iterator[CommitFile]:
    """The commits of some versions, in their order, as the lake says where they are.

    Past the published part a version is what the lake names and nothing else: in the table's own log another
    branch's, or somebody else's, may have its number. ``VersionNotFound`` for one that the lake does not
    name, before anything is read.
    """
    named = {commit.version: commit.name for commit in log.commits}
    names = []
    for version in versions:
        if version > log.published and version not in named:
            raise _version_not_found_error(log, version)
        names.append(str(CommitName(version)) if version <= log.published else named[version])
    return map(CommitFile, versions, names, get_log_files(log, place).read_files(names))


def get_log_files(log: TableVersions, place: Place) -> TableFiles:
    """The files of a table's log, and what the lake itself told of them."""
    held = {commit.name: commit.lines.encode() for commit in log.commits if commit.lines is not None}
    return OverlaidFiles(PlaceFiles(place), held) if held else PlaceFiles(place)


def _version_not_found_error(log: TableVersions, version: int) -> VersionNotFound:
    return VersionNotFound(
        f"'{log.key}' has no version {version}: the newest one is {log.latest_version}",
        table=log.location,
        version=version,
    )


def _find_segment(files: TableFiles, log: TableVersions, version: int | None = None) -> LogSegment:
    """The files that make up a version: published ones, then those that the lake names."""
    if version is not None and not 0 <= version <= log.latest_version:
        raise _version_not_found_error(log, version)
    target_version = log.latest_version if version is None else version
    if target_version <= log.published:
        return find_segment(files, target_version)
    base = LogSegment(table=files.url, version=-1, checkpoint=None, names=(), newest="")
    if log.published >= 0:
        base = find_segment(files, log.published)
    after = [commit.name for commit in log.commits if log.published < commit.version <= target_version]
    return base.append_commits(after)


def _parse_past_version(version: int, data: bytes, is_published: bool) -> PastVersion:
    actions = (line.action for line in parse_commit(data))
    info = next((action for action in actions if isinstance(action, CommitInfo)), CommitInfo())
    time_ms = info.in_commit_timestamp or info.fields.get("timestamp")
    return PastVersion(
        version=version,
        timestamp=to_utc_datetime(time_ms * 1000) if isinstance(time_ms, int) else None,
        operation=info.operation or "",
        is_published=is_published,
        info=info.fields,
    )


def _compute_size_change(data: bytes) -> int | None:
    """By how much a commit changed the size of its table; ``None`` if it does not tell."""
    actions = [line.action for line in parse_commit(data)]
    adds = [action for action in actions if isinstance(action, Add)]
    removes = [action for action in actions if isinstance(action, Remove)]
    if not removes and not any(add.data_change for add in adds):
        return 0  # the same files again, with other statistics
    if any(remove.size is None for remove in removes):
        return None
    return sum(add.size for add in adds) - sum(remove.size or 0 for remove in removes)


def _to_milliseconds(moment: str | datetime) -> int:
    if isinstance(moment, str):
        return parse_time_us(moment) // 1000
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)
