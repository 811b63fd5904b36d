"""The table that a job of ``format("penstock")`` writes to: files first, from the tasks; then one commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from penstock.errors import InvalidRequest, KeyNotFound, PenstockError
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, TablePart, WriterReads
from penstock.formats.delta.lake.column_ids import reserve_column_ids
from penstock.formats.delta.lake.replaced_parts import check_inside, make_replaced_parts
from penstock.formats.delta.lake.schema_evolution import find_needed_protocol, with_columns
from penstock.formats.delta.lake.table import data_folder, get_clustering, table_commit
from penstock.formats.delta.lake.written_files import list_added_names
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Txn,
    parse_action,
    write_action,
)
from penstock.formats.delta.protocol.column_rules import list_identity_columns
from penstock.formats.delta.rows.file_writer import check_features, write_files
from penstock.formats.delta.rows.filled_columns import ColumnFiller
from penstock.formats.delta.rows.merged_schemas import check_names
from penstock.formats.delta.rows.row_checks import RowChecks
from penstock.formats.delta.spark.source.conditions import check_condition
from penstock.formats.rows.arrow_types import make_arrow_schema, pa
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.calls import GetOutcome, describe_commit
from penstock.lake.job_files import JobStart, is_refusal, remove_files
from penstock.lake.lake import Lake
from penstock.spark.source.options import SourceOptions
from penstock.storage.places import Places


class PlannedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """The table as a task saw it, for a commit that is planned in another process."""

    id: UUID
    version: int
    tip: str | None
    """Which version that is, on whatever branch."""
    began_s: float
    """When the task began. Other machines have other monotonic clocks."""


class TaskMessage(WriterCommitMessage):
    """What one task wrote: the actions that would add its files, as lines of a log."""

    def __init__(
        self, lines: tuple[bytes, ...], query: str = "", planned: PlannedWrite | None = None
    ) -> None:
        self.lines, self.planned = lines, planned
        self.query = query
        """The id of the streaming query that the task is part of."""


Messages = Sequence[WriterCommitMessage | None]
"""One of each task that ended well, ``None`` of the others."""


class PlannedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a branch, as it was when the job was planned. Travels to the tasks."""

    options: SourceOptions
    branch: str
    id: UUID
    location: str
    version: int
    tip: str | None
    """Which version that is, on whatever branch."""
    metadata: Metadata
    """What the table is to be by the time that the files are part of it."""
    changes: tuple[Action, ...]
    """What makes it so, if it is not yet."""
    folder: str
    """Where below the table files go."""
    clustering: tuple[tuple[str, ...], ...]
    """The columns that the table is clustered by, as its files call them."""
    replaces: tuple[TablePart, ...] | None
    """What the commit removes; nothing, if that is ``None``."""
    began: JobStart

    def write_batches(self, batches: Iterable[Any]) -> tuple[bytes, ...]:
        """Write rows to files, durably, and return the lines that would add them to the table."""
        rows = _make_reader(iter(batches))
        if rows is None:
            return ()
        places = Places()
        try:
            adds = write_files(
                places.open_place(self.location),
                self.metadata,
                rows,
                prefix=self.folder,
                clustering=self.clustering,
            )
        finally:
            places.close()
        return tuple(write_action(add) for add in adds)

    def as_planned(self, messages: Messages) -> PlannedTable:
        """The same table as the tasks knew it: what has become of it since is for the commit to judge."""
        planned = [
            message.planned
            for message in messages
            if isinstance(message, TaskMessage) and message.planned is not None
        ]
        if not planned:
            return self
        oldest = min(planned, key=lambda plan: plan.version)
        began = JobStart(time.monotonic(), min(plan.began_s for plan in planned), self.began.grace_s)
        return msgspec.structs.replace(
            self, id=oldest.id, version=oldest.version, tip=oldest.tip, began=began
        )

    def is_empty(self, messages: Messages) -> bool:
        """Whether a commit would change nothing: the write adds rows, and there are none."""
        has_rows = any(message.lines for message in messages if isinstance(message, TaskMessage))
        return not has_rows and not self.changes and self.replaces is None

    def commit_files(
        self, lake: Lake, messages: Messages, key: UUID, txn: Txn | None
    ) -> TableCommitResult | None:
        """Make the files that tasks tell of part of the table. ``None`` if there was nothing to do.

        Under the same key it is done once. What a refused commit has left is removed. If it is not known what
        became of it, the files stay.
        """
        if self.is_empty(messages):
            return None
        adds = list(_decode_adds(messages))
        try:
            self.began.check_in_time()
            check_inside(self.metadata, self.replaces or (), adds)
            return self._commit_files(lake, adds, key, txn)
        except PenstockError as error:
            if is_refusal(error):
                self.discard_files(lake, messages, key)
            raise

    def discard_files(self, lake: Lake, messages: Messages, key: UUID | None = None) -> None:
        """Remove the files that tasks have reported, as far as possible; none if the key's commit has landed.

        Call it only when no commit is under way. A later sweep removes the remaining files.
        """
        with suppress(PenstockError):
            if key is None or lake.do(GetOutcome(key=str(key), branch=self.branch)) is None:
                remove_files(lake.places.open_place(self.location), list_added_names(_decode_adds(messages)))

    def _commit_files(self, lake: Lake, adds: Sequence[Add], key: UUID, txn: Txn | None) -> TableCommitResult:
        mode = "Append" if self.replaces is None else "Overwrite"
        info = CommitInfo({"operation": "WRITE", "operationParameters": {"mode": mode}})
        actions = [info, *self.changes, *(() if txn is None else (txn,)), *adds]
        table = lake.table(self.options.table, self.branch).outside_read_set
        table_change = msgspec.structs.replace(
            table_commit(table, actions, attempt=key),
            table=self.id,
            read_version=self.version,
            read_tip=self.tip,
            reads=WriterReads(),
            replaces=self.replaces,
        )
        call = CommitTables(
            tables=(table_change,),
            branch=self.branch,
            said=describe_commit(self.options.message, self.options.author),
            idempotency_key=str(key),
            who=lake.author,
        )
        return lake.do(call)


def plan_target(options: SourceOptions, schema: StructType, *, is_overwrite: bool) -> PlannedTable:
    """The table that rows of a schema are to be written to.

    ``KeyNotFound`` if there is none, ``InvalidRequest`` for rows that it cannot hold, as far as their schema
    tells, and for options that contradict each other.
    """
    if options.version is not None or options.timestamp is not None or options.where is not None:
        raise InvalidRequest(
            "'version', 'timestamp' and 'where' are options of reads; use 'replaceWhere' for a write"
        )
    if options.replace_where is not None and not is_overwrite:
        raise InvalidRequest("'replaceWhere' can only be used with mode 'overwrite'")
    with options.open() as lake:
        branch = options.ref if options.ref is not None else lake.default_branch
        now = _require_table(lake, options, branch)
        folder, began = data_folder(lake, branch), JobStart.at_lake_time(lake)
        protocol, is_now = now.parse_declared()
        clustering = get_clustering(lake.table(options.table, branch), protocol)
        metadata = with_columns(is_now, schema, case_sensitive=False) if options.merge_schema else is_now
        metadata = reserve_column_ids(lake, options.table, branch, is_now, metadata)
    check_condition(options.replace_where, metadata)
    check_features(metadata)
    _check_unnumbered(metadata)
    RowChecks(metadata)  # what its tasks cannot evaluate is told before there are any
    check_names(metadata)
    data_schema = make_arrow_schema(schema.fields)
    ColumnFiller(parse_schema(metadata.schema_string), data_schema).fill_columns(
        pa.RecordBatch.from_pylist([], schema=data_schema)
    )
    newer = find_needed_protocol(protocol, metadata) if metadata != is_now else None
    changes = [change for change in (newer, metadata if metadata != is_now else None) if change is not None]
    return PlannedTable(
        options=options,
        branch=branch,
        id=now.id,
        location=now.location,
        version=now.latest_version,
        tip=now.tip,
        metadata=metadata,
        changes=tuple(changes),
        folder=folder,
        clustering=clustering,
        replaces=make_replaced_parts(metadata, None, options.replace_where) if is_overwrite else None,
        began=began,
    )


def _check_unnumbered(metadata: Metadata) -> None:
    """``UnsupportedFeature`` for a table whose rows would have to be numbered by tasks."""
    for column in list_identity_columns(metadata):
        raise UnsupportedFeature(
            f"format('penstock') cannot write to a table with an identity column ('{column.name}'): use "
            "penstock.spark.write",
            feature="identityColumns",
            column=column.name,
        )


def _require_table(lake: Lake, options: SourceOptions, branch: str) -> TableVersions:
    try:
        return lake.do(GetTableVersions(key=options.table, at=branch, limit=0))
    except KeyNotFound:
        raise KeyNotFound(
            f"there is no '{options.table}' on '{branch}': format('penstock') does not create tables; "
            "penstock.spark.write(df, key) does",
            key=str(options.table),
            ref=branch,
        ) from None


def _make_reader(batches: Iterator[Any]) -> Any:
    """Batches as a reader; ``None`` if there are none: their schema comes with the first."""
    first = next(batches, None)
    return (
        None if first is None else pa.RecordBatchReader.from_batches(first.schema, chain((first,), batches))
    )


def _decode_adds(messages: Messages) -> Iterator[Add]:
    for message in messages:
        for line in message.lines if isinstance(message, TaskMessage) else ():
            add = parse_action(line)
            assert isinstance(add, Add)
            yield add
