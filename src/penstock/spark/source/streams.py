"""A stream from a table: its rows, and then those that each new version adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.errors import InvalidRequest, VersionNotFound
from penstock.formats.delta.protocol.actions import Metadata, Protocol, parse_action, parse_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.protocol.schema import StructType
from penstock.lake.delta_answers import TableVersions
from penstock.lake.delta_calls import GetTableVersions
from penstock.lake.delta_snapshot import pages
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.clock import utc
from penstock.model.names import parse_time_us
from penstock.spark.failures import telling
from penstock.spark.source.file_groups import grouped, rows
from penstock.spark.source.offsets import (
    Files,
    Limit,
    Offset,
    added_files,
    between,
    check_same_table,
    offset_of,
    reach,
)
from penstock.spark.source.options import Options
from penstock.spark.source.reading import columns_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2: a trigger takes all there is
        SupportsTriggerAvailableNow = object


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as it grows. Planning is done by one of these that lives as long as the query.

    Each version is read once, across restarts: what lies between two offsets never changes.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.version is not None or options.timestamp is not None:
            raise InvalidRequest("a stream begins at 'startingVersion' or 'startingTimestamp'")
        if options.starting_version is not None and options.starting_timestamp is not None:
            raise InvalidRequest(
                "a stream begins at 'startingVersion' or at 'startingTimestamp', not at both"
            )
        self._options = options
        self._schema = schema
        self._columns = tuple(one.name for one in schema.fields)
        self._until: int | None = None
        self._last = Offset()

    # -- called in the order of a query's life, in one process ------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return Offset().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with telling():
            self._until = self._now().latest_version

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.max_files_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """How far the next batch goes. Before Spark 4.2 it is not told where it starts, and has no limit."""
        with telling():
            now = self._now()
            given = self._last if start is None else offset_of(start)
            check_same_table(given, str(now.id), now.latest_version, str(self._options.table))
            latest = now.latest_version if self._until is None else min(self._until, now.latest_version)
            begin = self._beginning(now, latest) if given.is_undecided else given
            most = Limit(files=getattr(limit, "max_files", None), size=getattr(limit, "max_bytes", None))
            self._last = reach(begin, latest, lambda versions: self._files(versions, begin), most)
            return self._last.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with telling():
            now = self._now()
            first, last = offset_of(start), offset_of(end)
            for one in (first, last):
                check_same_table(one, str(now.id), now.latest_version, str(self._options.table))
            self._last = last
            protocol, metadata = parse_action(now.protocol.encode()), parse_action(now.metadata.encode())
            assert isinstance(protocol, Protocol)
            assert isinstance(metadata, Metadata)
            columns_of(self._schema, metadata)
            begin = first.start_of(last)
            files = between(begin, last, lambda versions: self._files(versions, begin))
            return grouped(now.location, protocol, metadata, files)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with telling():
            yield from rows(partition, self._columns, self._options.where)

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
        return self._lake.table(self._options.table, self._options.ref)

    def _now(self) -> TableVersions:
        return self._lake.do(GetTableVersions(key=self._options.table, at=self._options.ref, limit=0))

    def _beginning(self, now: TableVersions, latest: int) -> Offset:
        """Where a new stream begins, of which the newest version is to be this one."""
        asked = self._options.starting_version
        if asked is None and self._options.starting_timestamp is None:
            return Offset(table=str(now.id), first=latest + 1, has_snapshot=True, version=latest)
        if asked is None:
            first = self._first_after(self._options.starting_timestamp or "", latest)
        elif asked.lower() == "latest":
            first = latest + 1
        elif asked.isdecimal():
            first = int(asked)
        else:
            raise InvalidRequest(f"'startingVersion' is a version or 'latest', not {asked!r}")
        if first > latest + 1:
            raise VersionNotFound(
                f"'{now.key}' has no version {first} to begin a stream at: the newest one is {latest}",
                table=now.location,
                version=first,
            )
        return Offset(table=str(now.id), first=first, version=first)

    def _first_after(self, timestamp: str, latest: int) -> int:
        """The first version that was not made before a time."""
        wanted = utc(parse_time_us(timestamp))
        newest = self._table.snapshot(latest).timestamp
        if newest is not None and newest < wanted:
            return latest + 1
        try:
            found = self._table.snapshot(timestamp=wanted)
        except VersionNotFound:  # it is before all of them
            return 0
        return found.version if found.timestamp == wanted else found.version + 1

    def _files(self, versions: range, offset: Offset) -> Iterator[tuple[int, Files]]:
        """What is read of each of some versions, by a stream that is at an offset."""
        first = versions.start
        if offset.has_snapshot and first < offset.first and versions:
            found = self._table.snapshot(first).files()
            yield first, sorted(found, key=lambda one: (one.modification_time, one.path))
            first += 1
        yield from self._added(range(first, versions.stop))

    def _added(self, versions: range) -> Iterator[tuple[int, Files]]:
        if not versions:
            return
        name = str(self._options.table)
        log = pages(self._table, versions.start, versions.stop - 1)
        unpublished = {one.version: one.name for one in log.commits}
        names = [unpublished.get(version, str(CommitName(version))) for version in versions]
        place = self._lake.places.at(log.location)
        for version, data in zip(versions, place.read(names), strict=True):
            if data is None:
                raise VersionNotFound(
                    f"version {version} of '{name}' was cleaned up before the stream has read it; begin anew "
                    "with another checkpoint",
                    table=log.location,
                    version=version,
                )
            actions = [line.action for line in parse_commit(data)]
            skips = self._options.skip_change_commits
            yield version, added_files(version, actions, self._columns, name, skips_changes=skips)
