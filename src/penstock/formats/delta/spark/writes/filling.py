"""Filling a table that is there: rows are added, or take the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.lake.calls import Looked, Part
from penstock.formats.delta.lake.replaced_parts import check_inside, parts_of
from penstock.formats.delta.lake.written_files import removed_if_refused
from penstock.formats.delta.protocol.actions import Action, Add, Metadata
from penstock.formats.delta.protocol.mapping import stored_name
from penstock.formats.delta.protocol.partition_conditions import condition_columns
from penstock.formats.delta.rows.writing import check_features
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites.rewriting import check_changeable
from penstock.formats.delta.spark.writes.evolving import (
    partition_names,
    protocol_for,
    still_fits,
    with_columns,
    with_schema,
)
from penstock.formats.delta.spark.writes.fitting import fit_rows
from penstock.formats.delta.spark.writes.orders import Order
from penstock.formats.delta.spark.writes.replacing import replace_rows
from penstock.formats.delta.spark.writes.schemas import check_names, new_schema
from penstock.formats.rows.schema import parse_schema
from penstock.formats.rows.spark_conditions import means_the_same
from penstock.lake.answers import Ratified
from penstock.lake.write_jobs import SaveMode
from penstock.spark.schemas import from_spark_schema, is_case_sensitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITS_MAX: Final = 10
"""How often files are offered to a table that is changed again and again."""
DONE_MAX: Final = 1000

_DONE: Final[dict[tuple[UUID, str, str], int]] = {}
"""By table, branch and application, the last batch that this process wrote, if nothing has failed since."""


def fill(df: DataFrame, table: JobTable, order: Order) -> Ratified | None:
    """Write rows to a table that is there. ``None`` if that changes nothing: no rows, or a batch it has."""
    if _has_batch(table, order):
        return None
    done = _filled(df, table, order)
    _note_done(table, order)
    return done


def _filled(df: DataFrame, table: JobTable, order: Order) -> Ratified | None:
    if order.mode is SaveMode.OVERWRITE:
        check_changeable(table)
    becomes = _become(df, table.metadata, order)
    check_names(becomes)
    rows = fit_rows(df, parse_schema(becomes.schema_string))
    where = order.replace_where
    if where is not None and not _decided_by_partitions(df.sparkSession, where, becomes):
        actions, reads = replace_rows(rows, table, where, becomes)
        return table.commit(
            [*_changes(table, becomes), *order.batches, *actions],
            operation="WRITE",
            parameters=order.parameters,
            reads=reads,
            said=order.said,
            idempotency_key=order.idempotency_key,
        )
    files = table.write(rows, metadata=becomes)
    with removed_if_refused(table.place, files):
        replaces = _replaced(order, becomes, files)
    if not files and replaces is None and becomes == table.metadata:
        return None
    return _committed(df, table, order, becomes, files, replaces)


def _committed(
    df: DataFrame,
    table: JobTable,
    order: Order,
    becomes: Metadata,
    files: Sequence[Action],
    replaces: Sequence[Part] | None,
) -> Ratified:
    """Commit files. If others changed what the table is, they are offered again as long as they fit it."""
    written = becomes
    with removed_if_refused(table.place, files):  # what has the table's key later may be another table
        for left in reversed(range(COMMITS_MAX)):
            try:
                return table.commit(
                    [*_changes(table, becomes), *order.batches, *files],
                    operation="WRITE",
                    parameters=order.parameters,
                    reads=Looked(applications=tuple(one.app_id for one in order.batches)),
                    replaces=replaces,
                    said=order.said,
                    idempotency_key=order.idempotency_key,
                    keep_files=True,
                )
            except TableConflict:
                before, table = table, table.again()
                is_changed = before.id == table.id and before.metadata != table.metadata
                becomes = _become(df, table.metadata, order)
                if not left or not is_changed or not still_fits(written, becomes):
                    raise
                check_features(becomes)
    raise AssertionError("the last try returns or raises")


def _become(df: DataFrame, metadata: Metadata, order: Order) -> Metadata:
    """What the table is to be after the write. ``InvalidRequest`` for another partitioning than it has."""
    if order.overwrite_schema:
        schema = new_schema(df.schema)
        return with_schema(metadata, schema, partition_names(schema, order.partition_by or ()))
    if order.partition_by is not None:
        wanted = tuple(name.lower() for name in order.partition_by)
        if wanted != tuple(name.lower() for name in metadata.partition_columns):
            there = ", ".join(metadata.partition_columns) or "no column"
            asked = ", ".join(order.partition_by) or "no column"
            raise InvalidRequest(
                f"the table is partitioned by {there}, not by {asked}\n"
                "  Leave out 'partition_by'. To partition the table anew, replace all its rows: "
                "mode='overwrite', overwrite_schema=True."
            )
    if order.merge_schema:
        case_sensitive = is_case_sensitive(df.sparkSession)
        return with_columns(metadata, from_spark_schema(df.schema), case_sensitive=case_sensitive)
    return metadata


def _changes(table: JobTable, becomes: Metadata) -> list[Action]:
    """What a commit says of the table itself: nothing, if it stays what it is."""
    if becomes == table.metadata:
        return []
    protocol = protocol_for(table.protocol, becomes)
    return [becomes] if protocol is None else [protocol, becomes]


def _replaced(order: Order, becomes: Metadata, files: Sequence[Action]) -> tuple[Part, ...] | None:
    """What the commit removes at its turn: nothing, parts of the table, or all that there is."""
    if order.mode is not SaveMode.OVERWRITE:
        return None
    added = [one for one in files if isinstance(one, Add)]
    if order.replace_where is not None:
        parts = parts_of(becomes, None, order.replace_where)
        check_inside(becomes, parts, added)
        return parts
    if not order.is_dynamic or not becomes.partition_columns:
        return ()
    found = {tuple(one.partition.items()): one.partition for one in added}
    if not found:
        return None  # an empty tuple would be the whole table
    names = {stored_name(one): one.name for one in parse_schema(becomes.schema_string).fields}
    return tuple(Part(values={names[name]: (text,) for name, text in one.items()}) for one in found.values())


def _decided_by_partitions(spark: SparkSession, where: str, metadata: Metadata) -> bool:
    """Whether the lake can tell by partition values, and means the same as Spark, where a condition is
    true."""
    columns = condition_columns(where, metadata.schema_string)
    if not columns or not columns <= {name.lower() for name in metadata.partition_columns}:
        return False
    time_zone = spark.conf.get("spark.sql.session.timeZone", None)
    return means_the_same(where, parse_schema(metadata.schema_string), time_zone)


def _has_batch(table: JobTable, order: Order) -> bool:
    """Whether the table has a batch already, as far as that is worth a look. The commit decides in any case.

    A batch that comes after one which went well here is new, unless others write under the same name. So a
    stream reads the table's log at its first batch and after failures, and not for each batch.
    """
    if order.app_id is None or order.batch is None:
        return False
    done = _DONE.pop((table.id, table.branch, order.app_id), None)
    if done is not None and done < order.batch:
        return False
    last = table.snapshot.transactions.get(order.app_id)
    return last is not None and last.version >= order.batch


def _note_done(table: JobTable, order: Order) -> None:
    if order.app_id is not None and order.batch is not None:
        if len(_DONE) >= DONE_MAX:
            _DONE.clear()  # which costs a look each
        _DONE[table.id, table.branch, order.app_id] = order.batch
