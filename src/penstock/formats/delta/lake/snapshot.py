"""A version of a Delta table, as a program reads it: what it is, its files, its rows, how it came to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest, RequestError, VersionNotFound
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.log.files import Overlaid, PlaceFiles, TableFiles
from penstock.formats.delta.log.segments import LogSegment, find_segment
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot, replay
from penstock.formats.delta.protocol.actions import (
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Txn,
    parse_commit,
    write_action,
)
from penstock.formats.delta.protocol.clustering import clustering_columns
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.rows.schema import StructType
from penstock.lake.calls import PAGE_MAX, Resolve
from penstock.model.clock import utc
from penstock.model.keys import Key
from penstock.model.names import parse_time_us

if TYPE_CHECKING:
    from penstock.lake.table import Table
    from penstock.storage.places import Place

HISTORY_LIMIT: Final = 100


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


class CommitFile(msgspec.Struct, frozen=True):
    """The file that holds the commit of a version."""

    version: int
    name: str
    """Relative to the table's root."""
    data: bytes | None
    """``None`` if it is there no more: published commits are cleaned up some day."""


class TableSnapshot:
    """A Delta table at a version. It never changes; its files are read when they are asked for.

    Of the newest version in a transaction it is remembered what is looked at: all, or what a condition holds
    for.
    """

    is_read_anew: ClassVar[bool] = True
    """Whether its rows can be read as often as somebody asks for them."""

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

    @property
    def unnoted(self) -> TableSnapshot:
        """The same, for who notes by themselves what they read of it."""
        return TableSnapshot(self._read, self.place, self._log)

    def note_read(self, where: str | None = None) -> None:
        """In a transaction, remember that it is read, or what a condition holds for is."""
        self._noted(where)

    @property
    def _snapshot(self) -> LogSnapshot:
        """The version. In a transaction, this counts as reading the whole table."""
        return self._noted(None)

    def _noted(self, where: str | None) -> LogSnapshot:
        """The same, where only the rows are looked at that a condition holds for, if there is one.

        ``InvalidRequest`` if it cannot be understood: then nothing is read.
        """
        if self._note is not None:
            if where is not None:
                from penstock.formats.rows.predicate_text import parse_predicate

                parse_predicate(where, self._read.schema)
            self._note(where)
        return self._read

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def location(self) -> str:
        return self._log.location

    @property
    def timestamp(self) -> datetime | None:
        """When the version was committed, if its commit says so."""
        found = self._snapshot.in_commit_timestamp
        return None if found is None else utc(found * 1000)

    @property
    def schema(self) -> StructType:
        return self._snapshot.schema

    @property
    def properties(self) -> Mapping[str, str]:
        return self._snapshot.properties

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self._snapshot.metadata.partition_columns

    @property
    def metadata(self) -> Metadata:
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
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
        from penstock.formats.delta.log.scan import files

        return files(self._noted(where), where)

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """The rows as a ``pyarrow.Table``: all columns or some, all rows or those for which it is true."""
        from penstock.formats.delta.log.scan import to_arrow

        return to_arrow(self._noted(where), self.place, columns=columns, where=where)

    def to_batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``, which never holds all of them in memory."""
        from penstock.formats.delta.log.scan import batches

        return batches(self._noted(where), self.place, columns=columns, where=where)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for whoever takes Arrow's stream: DuckDB, Polars, pandas."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def history(self, limit: int | None = HISTORY_LIMIT) -> list[PastVersion]:
        """The versions up to this one, newest first, as far as the log still has their commits."""
        first = 0 if limit is None else max(0, self.version - limit + 1)
        found = []
        for one in commits_of(self._log, self.place, range(self.version, first - 1, -1)):
            if one.data is None:  # cleaned up, and everything before it
                break
            # What the lake does not know to be published yet is named by its file in the log if it is there.
            is_published = one.version <= self._log.published or one.name == str(CommitName(one.version))
            found.append(_past(one.version, one.data, is_published))
        return found


def load(table: Table, version: int | None = None, timestamp: str | datetime | None = None) -> TableSnapshot:
    """A table as it is at its reference: its latest version there, an older one, or that of a time.

    ``VersionNotFound`` if there is none such. A time is ISO 8601, or a ``datetime``.
    """
    if version is not None and timestamp is not None:
        raise InvalidRequest("a snapshot is of a version or of a time, not of both")
    try:
        log = pages(table)
    except RequestError:
        table.note_read()  # that there is none, or another kind of table
        raise
    place = table.lake.places.at(log.location)
    files = files_of(log, place)
    try:
        if timestamp is not None:
            from penstock.formats.delta.log.times import version_at

            times = {one.version: one.timestamp_ms for one in log.commits}
            version = version_at(files, replay(files, _segment(files, log)), _ms(timestamp), times)
        is_noted = table.is_noted and version is None  # what a named version is, nobody changes
        note = table.note_read if is_noted else None
        return TableSnapshot(replay(files, _segment(files, log, version)), place, log, note)
    except VersionNotFound:
        _require_retained(table, log, 0 if version is None else version)
        raise


def _require_retained(table: Table, log: TableVersions, version: int) -> None:
    """``HistoryExpired`` if a version that is not found was erased."""
    if 0 <= version <= log.latest_version:
        table.lake.do(GetTableVersions(key=table.key, at=table.ref, via=table.via, end=version, limit=0))


def load_published(place: Place, version: int | None = None) -> TableSnapshot:
    """A table as its own log has it, whoever decides its commits: the newest version, or an older one.

    Raises as ``load_snapshot``.
    """
    snapshot = load_snapshot(PlaceFiles(place), version)
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


def pages(table: Table, start: int | None = None, end: int | None = None) -> TableVersions:
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
    found = list(first.commits)
    while found and found[-1].version < last:
        found += table.lake.do(msgspec.structs.replace(call, start=found[-1].version + 1)).commits
    return msgspec.structs.replace(first, commits=tuple(found))


def commits_of(log: TableVersions, place: Place, versions: Sequence[int]) -> Iterator[CommitFile]:
    """The commits of some versions, in their order, as the lake says where they are.

    Past the published part a version is what the lake names and nothing else: in the table's own log another
    branch's, or somebody else's, may have its number. ``VersionNotFound`` for one that the lake does not
    name, before anything is read.
    """
    named = {one.version: one.name for one in log.commits}
    names = []
    for version in versions:
        if version > log.published and version not in named:
            raise _no_version(log, version)
        names.append(str(CommitName(version)) if version <= log.published else named[version])
    return map(CommitFile, versions, names, files_of(log, place).read(names))


def files_of(log: TableVersions, place: Place) -> TableFiles:
    """The files of a table's log, and what the lake itself told of them."""
    held = {one.name: one.lines.encode() for one in log.commits if one.lines is not None}
    return Overlaid(PlaceFiles(place), held) if held else PlaceFiles(place)


def _no_version(log: TableVersions, version: int) -> VersionNotFound:
    return VersionNotFound(
        f"'{log.key}' has no version {version}: the newest one is {log.latest_version}",
        table=log.location,
        version=version,
    )


def _segment(files: TableFiles, log: TableVersions, version: int | None = None) -> LogSegment:
    """The files that make up a version: published ones, then those that the lake names."""
    if version is not None and not 0 <= version <= log.latest_version:
        raise _no_version(log, version)
    wanted = log.latest_version if version is None else version
    if wanted <= log.published:
        return find_segment(files, wanted)
    base = LogSegment(table=files.url, version=-1, checkpoint=None, names=(), newest="")
    if log.published >= 0:
        base = find_segment(files, log.published)
    after = [one.name for one in log.commits if log.published < one.version <= wanted]
    return base.followed_by(after)


def _past(version: int, data: bytes, is_published: bool) -> PastVersion:
    actions = (line.action for line in parse_commit(data))
    info = next((one for one in actions if isinstance(one, CommitInfo)), CommitInfo())
    time_ms = info.in_commit_timestamp or info.fields.get("timestamp")
    return PastVersion(
        version=version,
        timestamp=utc(time_ms * 1000) if isinstance(time_ms, int) else None,
        operation=info.operation or "",
        is_published=is_published,
        info=info.fields,
    )


def _ms(moment: str | datetime) -> int:
    if isinstance(moment, str):
        return parse_time_us(moment) // 1000
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)
