"""Filling a table that is there: rows are added, or take the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import own_reads
from penstock.formats.delta.lake.calls import TablePart, WriterReads
from penstock.formats.delta.lake.column_ids import reserve_column_ids
from penstock.formats.delta.lake.identity_numbers import IdentityNumbers
from penstock.formats.delta.lake.replaced_parts import derive_replaced_parts, is_decided_by_partitions
from penstock.formats.delta.lake.row_rewrite import check_changeable
from penstock.formats.delta.lake.schema_evolution import (
    commit_fitting,
    make_metadata_actions,
    partition_names,
    with_columns,
    with_schema,
)
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import Action, Metadata
from penstock.formats.delta.rows.merged_schemas import check_names
from penstock.formats.delta.spark.job.numbered_rows import number_rows
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.writes.delta_write_options import DeltaWriteOptions
from penstock.formats.delta.spark.writes.replace_where import replace_rows
from penstock.formats.delta.spark.writes.row_casts import fit_rows
from penstock.formats.delta.spark.writes.schemas import new_schema
from penstock.formats.rows.schema import parse_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.write_jobs import SaveMode
from penstock.spark.schemas import from_spark_schema, is_case_sensitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DONE_MAX: Final = 1000

_DONE: Final[dict[tuple[UUID, str, str], int]] = {}
"""By table, branch and application, the last batch that this process wrote, if nothing has failed since."""


def fill_table(df: DataFrame, table: JobTable, order: DeltaWriteOptions) -> TableCommitResult | None:
    """Write rows to a table that is there. ``None`` if that changes nothing: no rows, or a batch it has."""
    if _has_batch(table, order):
        return None
    result = _write_rows(df, table, order)
    _note_done(table, order)
    return result


def _write_rows(df: DataFrame, table: JobTable, order: DeltaWriteOptions) -> TableCommitResult | None:
    if order.mode is SaveMode.OVERWRITE:
        check_changeable(table)
    becomes = _evolve_metadata(df, table, table.metadata, order)
    check_names(becomes)
    rows = fit_rows(df, parse_schema(becomes.schema_string))
    names = {name.lower() for name in df.columns}
    with number_rows(rows, table, becomes, names) as (numbered, numbers):
        return _write_numbered(df, numbered, table, order, becomes, numbers)


def _write_numbered(
    df: DataFrame,
    rows: DataFrame,
    table: JobTable,
    order: DeltaWriteOptions,
    becomes: Metadata,
    numbers: IdentityNumbers,
) -> TableCommitResult | None:
    """Write rows that have all columns of the table."""
    where = order.replace_where
    time_zone = df.sparkSession.conf.get("spark.sql.session.timeZone", None)
    if where is not None and not is_decided_by_partitions(becomes, where, time_zone):
        actions, reads = replace_rows(rows, table, where, becomes)
        reads = own_reads.unite_reads(reads, own_reads.read_set(table, order.own_reads, time_zone))
        return table.commit_actions(
            [*make_metadata_actions(table, numbers.mark_metadata(becomes)), *order.batches, *actions],
            operation="WRITE",
            parameters=order.parameters,
            reads=reads,
            description=order.said,
            idempotency_key=order.idempotency_key,
        )
    files = table.write_rows(rows, metadata=becomes)
    with remove_files_if_refused(table.place, files):
        replaces = None
        if order.mode is SaveMode.OVERWRITE:
            replaces = derive_replaced_parts(becomes, files, order.replace_where, is_dynamic=order.is_dynamic)
    if not files and replaces is None and becomes == table.metadata:
        return None
    return _commit_files(df, table, order, files, replaces, becomes, numbers)


def _commit_files(
    df: DataFrame,
    table: JobTable,
    order: DeltaWriteOptions,
    files: Sequence[Action],
    replaces: Sequence[TablePart] | None,
    becomes: Metadata,
    numbers: IdentityNumbers,
) -> TableCommitResult:
    """Commit files. If others changed what the table is, they are offered again as long as they fit it."""
    reads = WriterReads(applications=tuple(batch.app_id for batch in order.batches))
    if order.own_reads:
        time_zone = df.sparkSession.conf.get("spark.sql.session.timeZone", None)
        reads = own_reads.unite_reads(reads, own_reads.read_set(table, order.own_reads, time_zone))

    def commit_actions(
        table: DeltaJob, actions: Sequence[Action], replaces: Sequence[TablePart] | None = replaces
    ) -> TableCommitResult:
        return table.commit_actions(
            [*order.batches, *actions],
            operation="WRITE",
            parameters=order.parameters,
            reads=reads,
            replaces=replaces,
            description=order.said,
            idempotency_key=order.idempotency_key,
            keep_files=True,
        )

    if order.own_reads:
        changes = make_metadata_actions(table, numbers.mark_metadata(becomes))
        with remove_files_if_refused(table.place, files):
            return own_reads.commit_on_reads(
                table,
                replaces,
                lambda table, removed: commit_actions(table, [*changes, *removed, *files], None),
            )

    def evolve_metadata(metadata: Metadata) -> Metadata:
        return numbers.mark_metadata(_evolve_metadata(df, table, metadata, order))

    return commit_fitting(table, files, numbers.mark_metadata(becomes), evolve_metadata, commit_actions)


def _evolve_metadata(
    df: DataFrame, table: JobTable, metadata: Metadata, order: DeltaWriteOptions
) -> Metadata:
    """What the table is to be after the write. ``InvalidRequest`` for another partitioning than it has."""
    becomes = _add_columns_of_rows(df, metadata, order)
    return reserve_column_ids(table.lake, table.key, table.branch, metadata, becomes)


def _add_columns_of_rows(df: DataFrame, metadata: Metadata, order: DeltaWriteOptions) -> Metadata:
    """The table with the columns of the rows, if the write is to add or replace columns."""
    if order.overwrite_schema:
        schema = new_schema(df.schema)
        return with_schema(metadata, schema, partition_names(schema, order.partition_by or ()))
    if order.partition_by is not None:
        partition_columns = tuple(name.lower() for name in order.partition_by)
        if partition_columns != tuple(name.lower() for name in metadata.partition_columns):
            columns_now = ", ".join(metadata.partition_columns) or "no column"
            columns_asked = ", ".join(order.partition_by) or "no column"
            raise InvalidRequest(
                f"the table is partitioned by {columns_now}, not by {columns_asked}\n  Leave out "
                "'partition_by'. To change the partition columns, replace all rows: mode='overwrite', "
                "overwrite_schema=True."
            )
    if order.merge_schema:
        case_sensitive = is_case_sensitive(df.sparkSession)
        return with_columns(metadata, from_spark_schema(df.schema), case_sensitive=case_sensitive)
    return metadata


def _has_batch(table: JobTable, order: DeltaWriteOptions) -> bool:
    """Whether the table has a batch already, as far as that is worth a look. The commit decides in any case.

    A batch that comes after one which went well here is new, unless others write under the same name. So a
    stream reads the table's log at its first batch and after failures, and not for each batch.
    """
    if order.app_id is None or order.batch is None:
        return False
    last_batch = _DONE.pop((table.id, table.branch, order.app_id), None)
    if last_batch is not None and last_batch < order.batch:
        return False
    last = table.snapshot.transactions.get(order.app_id)
    return last is not None and last.version >= order.batch


def _note_done(table: JobTable, order: DeltaWriteOptions) -> None:
    if order.app_id is not None and order.batch is not None:
        if len(_DONE) >= DONE_MAX:
            _DONE.clear()  # which costs a look each
        _DONE[table.id, table.branch, order.app_id] = order.batch
