"""The Delta tables of a lake: creating, adopting and releasing them, and how far they are published."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack, overload
from uuid import UUID

from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.formats.delta.lake.alterations import TableAlterations
from penstock.formats.delta.lake.answers import (
    BulkOwnershipResult,
    CleanedLog,
    ConvertedFolder,
    OwnershipResult,
    PublishedTable,
    RecoveredTable,
    TableStatus,
    WrittenFile,
)
from penstock.formats.delta.lake.calls import (
    AdoptTable,
    AdoptTables,
    CheckpointTable,
    CleanLog,
    CloneTable,
    CommitTables,
    CompactLog,
    CreateTable,
    GetTableStatus,
    PublishTable,
    RecoverTable,
    ReleaseTable,
    ReleaseTables,
    TableCommit,
)
from penstock.formats.delta.lake.creation import create_with
from penstock.formats.delta.lake.snapshot import TableSnapshot, load_published
from penstock.formats.delta.lake.table import (
    Actions,
    encode_actions,
    needs_repair,
    repair_table,
    table_commit,
)
from penstock.formats.delta.lake.table_opener import make_absolute_location
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata
from penstock.formats.delta.protocol.clustering import CLUSTERING, find_columns, make_clustering_domain
from penstock.formats.delta.protocol.column_mapping import assign_columns, stored_name
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake import calls
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitOptions
from penstock.lake.row_input import ROWS, open_row_reader, write_schema_text
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.storage.locations import make_own_place


class TableDetails(CommitOptions, total=False):
    """What can be said of a new table, wherever its rows come from."""

    properties: Mapping[str, str] | None
    """Its properties, such as ``delta.enableChangeDataFeed``."""
    description: str
    """The description of the table."""
    sole_writer: bool
    """For storage without put-if-absent: states that no other program writes to the location."""


class DeltaCreation(TableDetails, total=False):
    """What can be said of a table that is to be created."""

    partition_by: str | Sequence[str] | None
    """The partition columns."""
    cluster_by: str | Sequence[str] | None
    """The clustering columns; not together with ``partition_by``."""
    location: str | os.PathLike[str] | None
    """The location of the table; by default a new folder in the warehouse."""
    branch: str | None
    """The branch on which it is created; by default the default branch."""


class DeltaTables(TableAlterations):
    """Operations on the Delta tables of a lake, beyond those of ``Table``."""

    def create(
        self,
        key: str | Key,
        *,
        schema: Any = None,
        data: Any = None,
        **wanted: Unpack[DeltaCreation],
    ) -> Table:
        """Create a table, at a place of its own or at a ``location``, with ``data`` in it if that is given.

        ``schema`` is Arrow's, or Delta's as a value or as JSON; without it, the one of ``data``. Table and
        data come in one commit, as the table's first version: nobody sees it without them. A table that is
        not partitioned may be clustered by some columns: engines that cluster files do that by them.
        ``DeltaCreation`` has what else can be said: ``partition_by``, ``cluster_by`` and others.
        """
        rows = None if data is None else open_row_reader(data)
        text = write_schema_text(rows if schema is None else schema)
        call = self._make_create_call(key, text, **wanted)
        if rows is None:
            made = self._lake.do(call)
        else:
            _check_fit(rows, text)
            self._lake.begin_write()
            made = create_with(self._lake, call, rows)
        return self._lake.table(made.key, call.branch)

    def create_filled(self, key: str | Key, data: Any, **wanted: Unpack[DeltaCreation]) -> OwnershipResult:
        """Create a table with rows, and return the commit; takes what ``create`` takes."""
        rows = open_row_reader(data)
        text = write_schema_text(rows)
        _check_fit(rows, text)
        self._lake.begin_write()
        return create_with(self._lake, self._make_create_call(key, text, **wanted), rows)

    def create_empty(self, key: str | Key, schema: Any, **wanted: Unpack[DeltaCreation]) -> OwnershipResult:
        """Create an empty table, and return the commit; takes what ``create`` takes.

        Under an ``idempotency_key`` that is the first one, however often it is asked for.
        """
        return self._lake.do(self._make_create_call(key, write_schema_text(schema), **wanted))

    def _make_create_call(self, key: str | Key, schema: str, **wanted: Unpack[DeltaCreation]) -> CreateTable:
        if unknown := wanted.keys() - DeltaCreation.__annotations__.keys():
            raise TypeError(
                f"unknown arguments for the creation of a table: {', '.join(map(repr, sorted(unknown)))}"
            )
        partition_by, location = wanted.get("partition_by") or (), wanted.get("location")
        columns = wanted.get("cluster_by") or ()
        requested_properties = dict(wanted.get("properties") or {})
        about = assign_columns(
            Metadata(id="", schema_string=schema, partition_columns=(), configuration=requested_properties)
        )
        schema, properties = about.schema_string, dict(about.configuration)
        actions, features = _make_clustering(schema, (columns,) if isinstance(columns, str) else columns)
        return CreateTable(
            key=Key.parse(key),
            schema=schema,
            partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
            properties={**properties, **features},
            actions=actions,
            description=wanted.get("description", ""),
            location=None if location is None else make_absolute_location(location),
            sole_writer=wanted.get("sole_writer", False),
            branch=wanted.get("branch"),
            said=calls.describe_commit(wanted.get("message"), wanted.get("author")),
            idempotency_key=wanted.get("idempotency_key"),
            who=self._lake.author,
        )

    def place_of(self, id: UUID) -> str:  # noqa: A002
        """Where a table with an id is to be that has no location of its own, whether it exists or not.

        Whoever creates a table with files writes them there before. ``InvalidRequest`` if the lake has no
        warehouse.
        """
        return make_own_place(self._lake.warehouse, id)

    def adopt(
        self,
        location: str | os.PathLike[str],
        key: str | Key | None = None,
        *,
        sole_writer: bool = False,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> OwnershipResult:
        """Adopt a table: from now on the lake decides its commits.

        A relative path is one of this process. The answer of a table that was adopted already says so.
        """
        call = AdoptTable(
            location=make_absolute_location(location),
            key=Key.parse(key) if key is not None else None,
            sole_writer=sole_writer,
            said=calls.describe_commit(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def convert(
        self,
        location: str | os.PathLike[str],
        key: str | Key | None = None,
        *,
        partition_by: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
        **wanted: Unpack[TableDetails],
    ) -> ConvertedFolder:
        """Convert a folder of Parquet files to a table. The files stay where they are and are not copied.

        Folders such as ``day=2026-11-01`` give partition columns, which hold text unless ``partition_by``
        says of which type they are: ``{"day": "date"}``. Other programs must not write there from now on:
        files that are added later are not part of the table. With ``dry_run``, only the planned table is
        returned. ``InvalidRequest`` names the file or the column that is in the way; nothing is written then.
        ``TableDetails`` has what else can be said of the table.
        """
        from penstock.formats.delta.lake.parquet_folder import convert_folder

        where = make_absolute_location(location)
        wanted["message"] = wanted.get("message") or f"convert {where}"
        call = self._make_create_call(
            Key(where.rstrip("/").rpartition("/")[2]) if key is None else key,
            write_schema_text(StructType(())),  # the files have it
            location=where,
            **wanted,
        )
        if not dry_run:
            self._lake.begin_write()
        return convert_folder(self._lake, call, partition_by or {}, dry_run=dry_run, progress=progress)

    def clone(
        self,
        source: str | Key,
        key: str | Key,
        *,
        ref: str | None = None,
        version: int | None = None,
        branch: str | None = None,
        **options: Unpack[CommitOptions],
    ) -> OwnershipResult:
        """Create a table that has the files of another one where they are: a shallow clone, in one commit.

        No row is read or copied, and both tables go their own ways from then on. The clone's rows stay
        readable whatever becomes of the source: a sweep leaves the files that a clone needs. ``ref`` is the
        branch, tag or commit that has the source, and ``version`` one of its versions there; ``branch`` is
        where the clone is created. ``ManagedElsewhere`` for a source that belongs to another lake.
        """
        call = CloneTable(
            source=Key.parse(source),
            key=Key.parse(key),
            at=ref,
            version=version,
            branch=branch,
            said=calls.describe_commit(options.get("message"), options.get("author")),
            idempotency_key=options.get("idempotency_key"),
            who=self._lake.author,
        )
        return self._lake.do(call)

    def adopt_all(
        self,
        folder: str | os.PathLike[str],
        *,
        namespace: str | Key | None = None,
        sole_writer: bool = False,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
        message: str | None = None,
        author: str | None = None,
    ) -> BulkOwnershipResult:
        """Adopt all tables below a folder, each under its path from there on, by two commits.

        What came of each table is in the answer; one that cannot be adopted, or is lost to another writer,
        does not stop the others. ``InvalidRequest``, before anything is written, if a key is taken. If it is
        interrupted, doing it again finishes it. ``progress`` is called with what is done and a count.
        """
        call = AdoptTables(
            location=make_absolute_location(folder),
            namespace=None if namespace is None else Key.parse(namespace),
            sole_writer=sole_writer,
            dry_run=dry_run,
            said=calls.describe_commit(message, author),
            who=self._lake.author,
        )
        return self._lake.do(call, progress)

    def release_all(
        self,
        namespace: str | Key | None = None,
        *,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
        message: str | None = None,
        author: str | None = None,
    ) -> BulkOwnershipResult:
        """Release all tables, or those below a namespace, to the file system, by two commits."""
        call = ReleaseTables(
            namespace=None if namespace is None else Key.parse(namespace),
            dry_run=dry_run,
            said=calls.describe_commit(message, author),
            who=self._lake.author,
        )
        return self._lake.do(call, progress)

    def read(
        self,
        location: str | os.PathLike[str],
        version: int | None = None,
        timestamp: str | datetime | None = None,
    ) -> TableSnapshot:
        """Read a Delta table that the lake does not own, by its own log; it is not changed.

        Also one that cannot be adopted, as long as it can be read. Its rows become a table of the lake by
        ``lake.create_table(key, data=lake.delta.read(location))``, however many there are. ``TableNotFound``
        if there is none, ``UnsupportedFeature`` if it takes more than Penstock knows.
        """
        return load_published(
            self._lake.places.open_place(make_absolute_location(location)), version, timestamp
        )

    def release(
        self,
        key: str | Key,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> OwnershipResult:
        """Release a table to the file system, with all its versions published to its log; its key is
        deleted."""
        call = ReleaseTable(
            key=Key.parse(key),
            said=calls.describe_commit(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def append(
        self,
        rows: Mapping[str, Any] | Mapping[Key, Any],
        *,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Add rows to several tables in one commit: readers of the lake see all of them, or none.

        ``rows`` are the rows of each table, by its key, as ``Table.append`` takes them.
        """
        # With it comes Arrow, which takes a while and much memory.
        from penstock.formats.delta.lake.table_writes import append_all

        tables = [(self._lake.table(key, branch), data) for key, data in rows.items()]
        description = calls.describe_commit(message, author)
        return append_all(
            self._lake, tables, branch, description=description, idempotency_key=idempotency_key
        )

    def commit(
        self,
        tables: Mapping[str, Actions] | Mapping[Key, Actions] | Sequence[TableCommit],
        *,
        branch: str | None = None,
        versions: Mapping[str, int] | Mapping[Key, int] | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Ratify the next versions of several tables, all or none.

        ``tables`` are the actions of each, by its key, and ``versions`` what they must become, where that
        matters; or all of it as values.
        """
        if isinstance(tables, Mapping):
            versions_by_key = {Key.parse(key): version for key, version in (versions or {}).items()}
            tables = [
                table_commit(
                    self._lake.table(key, branch), actions, version=versions_by_key.get(Key.parse(key))
                )
                for key, actions in tables.items()
            ]
        elif versions is not None:
            raise InvalidRequest(
                "'versions' can only be used when 'tables' is a dict from keys to actions; a TableCommit "
                "has its "
                "own version"
            )
        call = CommitTables(
            tables=tuple(tables),
            branch=branch,
            said=calls.describe_commit(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def status(self, key: str | Key | None = None) -> tuple[TableStatus, ...]:
        """The tables of the default branch, by key, and how far each is published."""
        if key is not None:
            return self._lake.do(GetTableStatus(key=Key.parse(key)))
        return tuple(self._lake.pages(GetTableStatus(), None, lambda last: {"after": last.key}))

    def needs_repair(self, key: str | Key, *, branch: str | None = None) -> bool:
        """Whether ``repair`` would change a table; reads its log, and no rows."""
        return needs_repair(self._lake.table(key, branch))

    def repair(
        self,
        key: str | Key,
        *,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
    ) -> TableCommitResult | None:
        """Repair a table that Penstock 0.1 wrote, by a version without rows; ``None`` if nothing is wrong.

        Its protocol lists all features that its columns and properties enable: Delta Spark opens no other
        table. Its files' statistics end at 0.0 where they ended at -0.0: DuckDB left out rows by that. On a
        branch it is the table of that branch that is repaired; a merge brings it to others.
        """
        return repair_table(self._lake.table(key, branch), calls.describe_commit(message, author))

    @overload
    def publish(self, key: str | Key, version: int | None = None) -> PublishedTable: ...
    @overload
    def publish(self) -> tuple[PublishedTable, ...]: ...

    def publish(
        self, key: str | Key | None = None, version: int | None = None
    ) -> PublishedTable | tuple[PublishedTable, ...]:
        """Publish the versions of a table to its log, up to one or all; of all tables if none is named.

        A problem with one table does not stop the others, and is raised after all were tried.
        """
        if key is not None:
            return self._lake.do(PublishTable(key=Key.parse(key), version=version))
        published = list(self.publish_each())
        for _, problem in published:
            if isinstance(problem, PenstockError):
                raise problem
        return tuple(
            published_table for _, published_table in published if isinstance(published_table, PublishedTable)
        )

    def publish_each(self) -> Iterator[tuple[Key, PublishedTable | PenstockError]]:
        """Publish the versions of all tables of the default branch to their logs, and return the result of
        each."""
        for table_status in self.status():
            try:
                yield table_status.key, self._lake.do(PublishTable(key=table_status.key))
            except PenstockError as problem:
                yield table_status.key, problem
            except OSError as problem:
                yield (
                    table_status.key,
                    Unavailable(
                        f"'{table_status.key}' at {table_status.location} is not published: {problem}"
                    ),
                )

    def recover(
        self,
        location: str | os.PathLike[str],
        key: str | Key | None = None,
        *,
        lost: str | None = None,
        any_lake: bool = False,
    ) -> RecoveredTable:
        """Recover a table from its published log, after the lake that owned it was lost for good.

        ``lost`` is that lake's id; with ``any_lake`` instead, whatever lake the table names counts as lost.
        Without a key, it is called as in the lost lake, if it was created there.
        """
        call = RecoverTable(
            location=make_absolute_location(location),
            key=Key.parse(key) if key is not None else None,
            lost=lost,
            any_lake=any_lake,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def checkpoint(self, key: str | Key) -> WrittenFile:
        """Write a checkpoint of a table's newest published version, unless there is one."""
        return self._lake.do(CheckpointTable(key=Key.parse(key)))

    def compact_log(self, key: str | Key, first: int | None = None, last: int | None = None) -> WrittenFile:
        """Compact several published commits of a table's log into one file."""
        return self._lake.do(CompactLog(key=Key.parse(key), first=first, last=last))

    def clean_log(self, key: str | Key, *, dry_run: bool = False) -> CleanedLog:
        """Remove expired versions and unused commit files from a table's log."""
        return self._lake.do(CleanLog(key=Key.parse(key), dry_run=dry_run))


def _make_clustering(schema: str, names: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The action by which a new table is clustered, and the properties that ask for the features it takes."""
    if not names:
        return None, {}
    paths = [tuple(map(stored_name, fields)) for fields in find_columns(parse_schema(schema), names)]
    line = encode_actions([CommitInfo({"operation": "CREATE TABLE"}), make_clustering_domain(paths)]).decode()
    return line, {f"delta.feature.{name}": "supported" for name in (CLUSTERING, "domainMetadata")}


def _check_fit(rows: Any, schema: str) -> None:
    """``InvalidRequest`` if rows have other columns than a schema, as far as their own schema tells."""
    from penstock.formats.delta.rows.filled_columns import check_fit

    if not check_fit(rows, schema):
        raise InvalidRequest(f"{ROWS}; got a {type(rows).__name__}")
