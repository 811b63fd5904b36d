"""What Spark does with Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import TableConflict
from penstock.formats.delta.lake import file_upkeep, own_reads, row_rewrite
from penstock.formats.delta.lake.auto_compaction import compact_if_due
from penstock.formats.delta.lake.file_columns import FileColumns, shown_schema
from penstock.formats.delta.lake.row_rewrite import RowRewrite
from penstock.formats.delta.lake.scan_conditions import readable_condition
from penstock.formats.delta.lake.scan_plan import are_words_sendable, plan_scan
from penstock.formats.delta.lake.schema_evolution import with_columns
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.lake.sql_format import DeltaSql
from penstock.formats.delta.lake.table_rows import DeltaTableRows
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.row_ids import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    collect_row_ids,
    row_id_names,
)
from penstock.formats.delta.rows.deletion_words import is_deleted_whole
from penstock.formats.delta.spark.change_feed import read_changes
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import change_plans, compaction, merges
from penstock.formats.delta.spark.scan import scans
from penstock.formats.delta.spark.scan.log_values import are_log_values
from penstock.formats.delta.spark.writes import delta_write_options
from penstock.formats.delta.spark.writes.row_writes import write_rows
from penstock.formats.rows.row_difference import StoredRows
from penstock.formats.rows.schema import parse_schema, write_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.scan_files import TableScan
from penstock.lake.sql_catalog.requests import EmptyTable, StatementChange, TableDescription
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.spark import jar
from penstock.spark.format import ReadByPlans, ScannedTable, SparkFormat, TableSource
from penstock.spark.requests import (
    ChangeRequest,
    ReadRequest,
    RowMerge,
    Values,
    WriteRequest,
    WriteResult,
)
from penstock.spark.scan.origins import TableOrigin, describe_origin, version_origin
from penstock.spark.schemas import is_case_sensitive
from penstock.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.formats.rows.reader import StoredRowPart
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.lake.upkeep import OptimizedTable, OptimizeOrder


_SQL: Final = DeltaSql()


class DeltaSpark(SparkFormat):
    """Delta tables: all that Spark can do with a table."""

    content_type = DeltaTable.content_type
    described = "Delta table"
    source_name = "delta"
    is_default = True
    write_options = frozenset({
        "partition_by", "partition_overwrite", "replace_where", "merge_schema", "overwrite_schema",
        "description", "app_id", "batch",
    })  # fmt: skip
    others_options = "is only for jobs that write files, in a format such as 'parquet'"

    def write_rows(self, df: DataFrame, request: WriteRequest) -> WriteResult | None:
        order = delta_write_options.read_write_options(df.sparkSession, request)
        lake, key = request.lake, request.key
        ratified = write_rows(df, lake, key, request.branch, order, create=request.create)
        _compact_if_due(df.sparkSession, lake.table(key, request.branch), ratified)
        return _make_result(ratified, key, request.branch_name)

    def read_table(self, spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
        needed = _choose_files(table, request, spark.conf.get("spark.sql.session.timeZone", None))
        table_scan = needed.plan() if jar.has_classes(spark) else None
        if table_scan is None:
            return needed.rows(spark)
        return scans.planned_rows(spark, needed.snapshot.place, table_scan)

    def plan_read(self, table: Table, request: ReadRequest, zone: str | None) -> TableScan | ReadByPlans:
        needed = _choose_files(table, request, zone)
        return needed.plan() or needed.rows

    def scan_table(self, spark: SparkSession, table: Table) -> ScannedTable:
        snapshot = table.snapshot()
        stored, origin = DeltaTableRows(table.key, snapshot), TableOrigin(describe_origin(table))
        parts = list(stored.list_parts())

        def read_parts(chosen: Sequence[StoredRowPart] | None) -> DataFrame:
            files = [part.source for part in (parts if chosen is None else chosen)]
            return scans.read_rows(spark, snapshot.outside_read_set, files, origin=origin)

        return ScannedTable(read_parts(()).schema, read_parts, StoredRows(parts, stored.identify_columns()))

    def describe_stored(self, table: Table, version: int | None) -> TableDescription | None:
        return _SQL.describe_table(table, version)

    def widen_schema(self, spark: SparkSession, table: Table, schema: str) -> str:
        metadata = table.snapshot().metadata
        case_sensitive = is_case_sensitive(spark)
        return write_schema(
            shown_schema(with_columns(metadata, parse_schema(schema), case_sensitive=case_sensitive))
        )

    def create_table(self, spark: SparkSession, lake: Lake, table: EmptyTable) -> None:  # noqa: ARG002
        _SQL.create_table(lake, table)

    def alter_table(
        self,
        spark: SparkSession,  # noqa: ARG002
        lake: Lake,
        key: Key,
        branch: str | None,
        changes: Sequence[StatementChange],
    ) -> None:
        _SQL.alter_table(lake, key, branch, changes)

    def delete_rows(self, change: ChangeRequest, where: str | Column | None) -> WriteResult | None:
        return _rewrite_rows(change, lambda table: change_plans.plan_delete(change.spark, table, where))

    def update_rows(
        self, change: ChangeRequest, values: Values, where: str | Column | None
    ) -> WriteResult | None:
        return _rewrite_rows(
            change, lambda table: change_plans.plan_update(change.spark, table, values, where)
        )

    def merge_rows(self, change: ChangeRequest, plan: RowMerge) -> WriteResult | None:
        return _rewrite_rows(change, lambda table: merges.plan_merge(table, plan))

    def optimize_table(self, change: ChangeRequest, order: OptimizeOrder) -> OptimizedTable:
        engine = compaction.spark_engine(change.spark)
        return file_upkeep.optimize_files(change.table, order, change.commit_meta, engine)

    def read_changes(self, spark: SparkSession, table: Table, first: int, last: int | None) -> DataFrame:
        return read_changes(spark, table, first, last)

    def open_source(self, options: SourceOptions) -> TableSource:
        # Only processes of Spark's that use it can import what it takes.
        from penstock.formats.delta.spark.source.tables import DeltaSource

        return DeltaSource(options)


class _NeededFiles(NamedTuple):
    """The files of a table that a read needs."""

    snapshot: TableSnapshot
    files: list[Add]
    row_columns: list[str]
    """The columns that tell what the table keeps of its rows, as far as the reader names them."""
    origin: TableOrigin

    def plan(self) -> TableScan | None:
        """What Spark is to read, as data; ``None`` where that takes plans of Spark, or Spark to say what is
        wrong."""
        columns = FileColumns(self.snapshot.metadata)
        if self.row_columns or not are_words_sendable(self.snapshot.place, self.files):
            return None
        if not are_log_values(columns.partition_fields, self.files):
            return None
        table = msgspec.to_builtins(self.origin.table)
        return plan_scan(self.snapshot, self.files, self.origin.text, table)

    def rows(self, spark: SparkSession) -> DataFrame:
        files = [file for file in self.files if not is_deleted_whole(file)]
        if not self.row_columns:
            return scans.read_rows(spark, self.snapshot, files, origin=self.origin)
        ids = collect_row_ids(files)
        rows = scans.read_rows(spark, self.snapshot, files, row_ids=ids, origin=self.origin)
        names = {scans.ROW_ID: ROW_ID, scans.ROW_VERSION: ROW_COMMIT_VERSION}
        return rows.withColumnsRenamed(names).drop(*(set(names.values()) - set(self.row_columns)))


def _choose_files(table: Table, request: ReadRequest, zone: str | None) -> _NeededFiles:
    """The files of the version that a read asks for; a transaction notes what is read."""
    snapshot = table.snapshot(request.version, request.timestamp)
    unnoted = snapshot.outside_read_set
    condition = readable_condition(unnoted, request.where, zone)
    snapshot.note_read(condition)
    return _NeededFiles(
        unnoted,
        list(unnoted.files(condition)),
        row_id_names(unnoted.metadata, request.columns or ()),
        version_origin(table, unnoted.version),
    )


def _rewrite_rows(change: ChangeRequest, plan: Callable[[JobTable], RowRewrite | None]) -> WriteResult | None:
    pin = own_reads.oldest_read(change.lake, change.key, change.own_reads)
    table = JobTable(change.lake, change.key, change.branch, at=pin)
    ratified = row_rewrite.find_earlier_result(table, change.idempotency_key)
    if ratified is not None:
        return _make_result(ratified, change.key, table.branch)
    counts = row_rewrite.RowCounts()

    def plan_and_count(current: JobTable) -> RowRewrite | None:
        nonlocal counts
        if (planned := plan(current)) is not None:
            counts = planned.counts
        return planned

    if change.own_reads:
        ratified = _rewrite_read_rows(change, table, plan_and_count)
    else:
        ratified = row_rewrite.commit_planned(
            table, plan_and_count, change.commit_meta, change.idempotency_key
        )
    _compact_if_due(change.spark, change.table, ratified)
    result = _make_result(ratified, change.key, table.branch)
    if result is None or result.is_repeated:
        return result
    return msgspec.structs.replace(result, **counts._asdict())


def _rewrite_read_rows(
    change: ChangeRequest, table: JobTable, plan: Callable[[JobTable], RowRewrite | None]
) -> TableCommitResult | None:
    """The same by a statement whose source or subquery reads the table: it rests on that, too.

    It is not planned anew on a table that has got rows: those are not in what was read.
    """
    zone = change.spark.conf.get("spark.sql.session.timeZone", None)
    reads = own_reads.read_set(table, change.own_reads, zone)

    def plan_on_reads(current: JobTable) -> RowRewrite | None:
        planned = plan(current)
        return planned and planned._replace(reads=own_reads.unite_reads(planned.reads, reads))

    def has_same_rows(_: TableConflict, before: JobTable, after: JobTable) -> bool:
        return row_rewrite.has_only_maintenance(before, after)

    try:
        return row_rewrite.commit_planned(
            table, plan_on_reads, change.commit_meta, change.idempotency_key, has_same_rows
        )
    except TableConflict as conflict:
        raise own_reads.explain_conflict(conflict) from None


def _compact_if_due(spark: SparkSession, table: Table, ratified: TableCommitResult | None) -> None:
    """Put small files together after a commit, if the table asks for it and there are many."""
    if ratified is None:
        return
    (landed,) = ratified.tables
    if not landed.repeated:
        compact_if_due(table, landed.version, compaction.spark_engine(spark))


def _make_result(ratified: TableCommitResult | None, key: Key, branch: str) -> WriteResult | None:
    if ratified is None:
        return None
    (table,) = ratified.tables
    return WriteResult(
        key=key, branch=branch, commit=ratified.commit, version=table.version, is_repeated=table.repeated
    )
