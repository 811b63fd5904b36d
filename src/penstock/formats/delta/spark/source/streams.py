"""A stream from a table: its rows, and then those that each new version adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.errors import InvalidRequest, VersionNotFound
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.lake.snapshot import list_commit_files, read_version_pages
from penstock.formats.delta.protocol.actions import Add, Metadata, parse_commit
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.formats.delta.spark.source.conditions import check_condition
from penstock.formats.delta.spark.source.file_groups import group_files, read_group
from penstock.formats.delta.spark.source.offsets import (
    BatchLimit,
    Files,
    StreamOffset,
    added_files,
    check_same_table,
    find_batch_end,
    list_files_between,
    parse_offset,
)
from penstock.formats.delta.spark.source.older_files import read_as
from penstock.formats.delta.spark.source.reader import select_column_names
from penstock.formats.rows.schema import StructType
from penstock.lake.calls import Resolve
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.names import parse_time
from penstock.spark.source.options import SourceOptions
from penstock.spark.spark_errors import mark_errors

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2: a trigger takes all there is
        SupportsTriggerAvailableNow = object


class _VersionRead(NamedTuple):
    """What a stream reads of a version."""

    version: int
    files: Files
    metadata: Metadata | None
    """What the version says that the table is; ``None`` if that is what it was before."""


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as it grows. Planning is done by one of these that lives as long as the query.

    Each version is read once, across restarts: what lies between two offsets never changes.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.version is not None or options.timestamp is not None:
            raise InvalidRequest(
                "use the option 'startingVersion' or 'startingTimestamp' for the start of a stream"
            )
        if options.starting_version is not None and options.starting_timestamp is not None:
            raise InvalidRequest(
                "'startingVersion' and 'startingTimestamp' exclude each other; give one of them"
            )
        self._options = options
        self._schema = schema
        self._columns = tuple(field.name for field in schema.fields)
        self._until: int | None = None
        self._last = StreamOffset()
        self._pin: tuple[str, str | None] = ("", None)
        """The commit of the lake at which the table is seen, and what led there."""
        self._was: tuple[int, Metadata] | None = None
        """What the table was at the version that was planned last."""

    # -- called in the order of a query's life, in one process ------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return StreamOffset().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with mark_errors():
            self._until = self._refresh_versions(StreamOffset()).latest_version

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.max_files_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """How far the next batch goes. Before Spark 4.2 it is not told where it starts, and has no limit."""
        with mark_errors():
            start_offset = self._last if start is None else parse_offset(start)
            now = self._refresh_versions(start_offset)
            latest = now.latest_version if self._until is None else min(self._until, now.latest_version)
            begin = self._first_offset(now, latest) if start_offset.is_undecided else start_offset
            most = BatchLimit(files=getattr(limit, "max_files", None), size=getattr(limit, "max_bytes", None))
            end = find_batch_end(begin, latest, lambda versions: self._read_files(versions, begin), most)
            self._last = start_offset if end == start_offset else self._with_tip(end, now)
            return self._last.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with mark_errors():
            first, final = parse_offset(start), parse_offset(end)
            now = self._refresh_versions(
                final
            )  # of a line that has the one's last version and so has the other's
            self._last = final
            protocol, metadata = now.parse_declared()
            select_column_names(self._schema, metadata)
            check_condition(self._options.where, metadata)
            begin = first.start_of(final)
            files = list_files_between(
                begin, final, lambda versions: self._files_with_metadata(versions, begin, metadata)
            )
            return [
                group
                for under, files_of_group in groupby(files, key=lambda one: one[0])
                for group in group_files(
                    self._lake.places,
                    now.location,
                    protocol,
                    under,
                    (file for _, file in files_of_group),
                )
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with mark_errors():
            yield from read_group(partition, self._columns, self._options.where)

    def stop(self) -> None:
        if (lake := self.__dict__.pop("_lake", None)) is not None:
            lake.close()

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: no lake, which they do not need."""
        return {name: value for name, value in self.__dict__.items() if name != "_lake"}

    # -- what the table says -----------------------------------------------------------------------------

    @cached_property
    def _lake(self) -> Lake:
        return self._options.open()

    @property
    def _table(self) -> Table:
        """At one commit: if the branch is set to another, a version there may have the same number."""
        return Table(self._lake, self._options.table, *self._pin)

    def _refresh_versions(self, at: StreamOffset) -> TableVersions:
        """The table as it is now, for all that is asked until this is called again.

        ``InvalidRequest`` if a stream that is at a place cannot go on there.
        """
        resolved = self._lake.do(Resolve(revision=self._options.ref))
        self._pin = resolved.commit, resolved.name
        now = self._get_versions(tip=at.tip or None)
        name = str(self._options.table)
        check_same_table(at, str(now.id), now.latest_version, name, goes_on=now.goes_on)
        return now

    def _get_versions(self, *, end: int | None = None, tip: str | None = None) -> TableVersions:
        at, via = self._pin
        return self._lake.do(
            GetTableVersions(key=self._options.table, at=at, via=via, end=end, limit=0, tip=tip)
        )

    def _with_tip(self, offset: StreamOffset, now: TableVersions) -> StreamOffset:
        """The offset with the tip of its last version, which tells it from other versions of the same
        number."""
        is_latest = offset.last == now.latest_version
        tip = now.tip if is_latest else self._get_versions(end=offset.last).tip
        return msgspec.structs.replace(offset, tip=tip or "")

    def _first_offset(self, now: TableVersions, latest: int) -> StreamOffset:
        """Where a new stream begins, of which the newest version is to be this one."""
        starting_version = self._options.starting_version
        if starting_version is None and self._options.starting_timestamp is None:
            return StreamOffset(table=str(now.id), first=latest + 1, has_snapshot=True, version=latest)
        if starting_version is None:
            first = self._find_first_version_after(self._options.starting_timestamp or "", latest)
        elif starting_version.lower() == "latest":
            first = latest + 1
        elif starting_version.isdecimal():
            first = int(starting_version)
        else:
            raise InvalidRequest(
                f"'startingVersion' must be a version number or 'latest', got {starting_version!r}"
            )
        if first > latest + 1:
            raise VersionNotFound(
                f"the stream cannot start at version {first} of '{now.key}': the newest version is {latest}",
                table=now.location,
                version=first,
            )
        return StreamOffset(table=str(now.id), first=first, version=first)

    def _find_first_version_after(self, timestamp: str, latest: int) -> int:
        """The first version that was not made before a time."""
        time = parse_time(timestamp)
        newest = self._table.snapshot(latest).timestamp
        if newest is not None and newest < time:
            return latest + 1
        try:
            snapshot = self._table.snapshot(timestamp=time)
        except VersionNotFound:  # it is before all of them
            return 0
        return snapshot.version if snapshot.timestamp == time else snapshot.version + 1

    def _read_files(self, versions: range, offset: StreamOffset) -> Iterator[tuple[int, Files]]:
        """What is read of each of some versions, by a stream that is at an offset."""
        return ((commit.version, commit.files) for commit in self._read_versions(versions, offset))

    def _files_with_metadata(
        self, versions: range, offset: StreamOffset, now: Metadata
    ) -> Iterator[tuple[int, list[tuple[Metadata, Add]]]]:
        """The same, each file with what it is read under, for a table that is by now what ``now`` says."""
        planned, metadata = self._was or (None, None)
        if planned not in (versions.start - 1, versions.start):  # a version may be read in several batches
            metadata = None
        for commit in self._read_versions(versions, offset):
            metadata = commit.metadata or metadata or self._table.snapshot(commit.version).metadata
            self._was = commit.version, metadata
            under = now
            if commit.files:
                under = read_as(commit.version, metadata, now, self._columns, str(self._options.table))
            yield commit.version, [(under, file) for file in commit.files]

    def _read_versions(self, versions: range, offset: StreamOffset) -> Iterator[_VersionRead]:
        first = versions.start
        if offset.has_snapshot and first < offset.first and versions:
            snapshot = self._table.snapshot(first)
            files = sorted(snapshot.files(), key=lambda one: (one.modification_time, one.path))
            yield _VersionRead(first, files, snapshot.metadata)
            first += 1
        yield from self._added_files(range(first, versions.stop))

    def _added_files(self, versions: range) -> Iterator[_VersionRead]:
        if not versions:
            return
        name = str(self._options.table)
        log = read_version_pages(self._table, versions.start, versions.stop - 1)
        for commit in list_commit_files(log, self._lake.places.open_place(log.location), versions):
            if commit.data is None:
                raise VersionNotFound(
                    f"version {commit.version} of '{name}' was cleaned up before the stream read it; start a "
                    "stream with another checkpoint",
                    table=log.location,
                    version=commit.version,
                )
            actions = [line.action for line in parse_commit(commit.data)]
            skips = self._options.skip_change_commits
            files = added_files(commit.version, actions, self._columns, name, skips_changes=skips)
            yield _VersionRead(commit.version, files, find_last_action(actions, Metadata))
