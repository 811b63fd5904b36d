"""Statements that change rows, carried out by the functions of ``penstock.spark``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.own_reads import own_reads
from penstock.lake.row_changes import MergeClause
from penstock.lake.sql_catalog.requests import CatalogRequest, ClauseParts
from penstock.lake.sql_catalog.tables import (
    check_columns,
    find_replaced,
    parse_clustering_columns,
    parse_partition_columns,
    select_table_properties,
)
from penstock.lake.sql_catalog.writer_options import WriterOptions
from penstock.lake.sql_catalog.writes import find_written_table
from penstock.lake.write_jobs import SaveMode
from penstock.spark.catalog.overwrites import overwrite_read_table
from penstock.spark.change_requests import build_request
from penstock.spark.format import SparkFormat, ask_format, default_format, find_format, get_named_format
from penstock.spark.merge_builder import MergeBuilder
from penstock.spark.requests import ChangeRequest, RowMerge, WriteRequest, WriteResult
from penstock.spark.row_changes import delete
from penstock.spark.writer import write, write_request

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.lake.lake import Lake
    from penstock.spark.requests import WriteOptions


def write_rows(
    spark: SparkSession, lake: Lake, request: CatalogRequest, parts: Sequence[Any]
) -> dict[str, Any]:
    """INSERT, and CREATE or REPLACE TABLE AS SELECT."""
    rows = _wrap_frame(spark, parts[0])
    if request.table is None:
        return _create_filled(lake, request, rows)
    key, _ = request.written_table
    spark_format = get_named_format(request.table.provider)
    options = WriterOptions.parse_options(request)
    if options.is_partial and request.replace_where is not None:
        raise InvalidRequest(
            f"the options and the statement both select the rows of '{key}' to replace: use one of them"
        )
    more = _more_options(options) | {"create": False}
    if request.replace_where is not None:
        more["replace_where"] = request.replace_where
    elif options.replace_where is None and options.partition_overwrite is None:
        if request.dynamic:
            more["partition_overwrite"] = "dynamic"
        elif request.mode == "overwrite" and "partition_overwrite" in spark_format.write_options:
            more["partition_overwrite"] = "static"  # whatever the session says of writes that do not say
    verb = "INSERT INTO" if request.mode == "append" else "INSERT OVERWRITE"
    _write_rows(rows, lake, request, spark_format, request.table.provider, more, f"{verb} {key}")
    return {}


def _write_rows(
    rows: DataFrame,
    lake: Lake,
    request: CatalogRequest,
    spark_format: SparkFormat,
    provider: str,
    more: WriteOptions,
    message: str,
) -> None:
    """Write rows to the table of a request, which may be made of rows that it has."""
    key, branch = find_written_table(request)
    write_order = WriteRequest(
        lake=lake,
        key=key,
        branch=branch,
        source="" if spark_format.is_default else provider,
        mode=request.save_mode,
        message=message,
        own_reads=own_reads(lake, request, key, branch),
    )
    is_overwrite = write_order.mode is SaveMode.OVERWRITE
    if write_order.own_reads and is_overwrite and not spark_format.is_default:
        overwrite_read_table(rows, spark_format, write_order, more)
    else:
        write_request(rows, spark_format, write_order, more)


def _create_filled(lake: Lake, request: CatalogRequest, rows: DataFrame) -> dict[str, Any]:
    key, _ = request.written_key
    if request.location is not None:
        raise InvalidRequest(
            f"LOCATION is not supported, because the lake chooses the location of '{key}': leave it out"
        )
    check_columns(key, rows.schema.json())
    if parse_clustering_columns(request.partitioning):
        raise InvalidRequest(
            f"CREATE TABLE AS SELECT does not support CLUSTER BY: create '{key}' with its columns first, and "
            "then INSERT INTO it"
        )
    if request.is_replace:
        find_replaced(lake, request)
    provider = _table_provider(rows.sparkSession, lake, request)
    spark_format = get_named_format(provider) if provider else default_format()
    options = WriterOptions.parse_options(request)
    more = _more_options(options)
    more |= {"create": request.create, "properties": select_table_properties(request.properties)}
    if partition_by := parse_partition_columns(request.partitioning):
        more["partition_by"] = partition_by
    if request.comment:
        more["description"] = request.comment
    if request.is_replace and not options.is_partial:
        # The table becomes what the rows are, as REPLACE TABLE says.
        if "overwrite_schema" in spark_format.write_options:
            more["overwrite_schema"] = True
        if "partition_overwrite" in spark_format.write_options:
            more["partition_overwrite"] = "static"
    verb = "REPLACE" if request.is_replace else "CREATE"
    _write_rows(rows, lake, request, spark_format, provider, more, f"{verb} TABLE {key} AS SELECT")
    return {}


def _more_options(options: WriterOptions) -> WriteOptions:
    """What options say, as ``write`` takes it."""
    more: WriteOptions = {}
    if options.replace_where is not None:
        more["replace_where"] = options.replace_where
    elif options.partition_overwrite is not None:
        more["partition_overwrite"] = options.partition_overwrite
    if options.merge_schema:
        more["merge_schema"] = True
    if options.app_id is not None:
        more["app_id"], more["batch"] = options.app_id, options.batch
    if options.others:
        more["options"] = options.others
    return more


def _table_provider(spark: SparkSession, lake: Lake, request: CatalogRequest) -> str:
    """The format of a table that is created or replaced; empty for the lake's default.

    ``saveAsTable`` always names one: the session's, if the program does not. A table keeps its own then.
    """
    named = (request.provider or "").lower()
    if request.is_text or named != str(spark.conf.get("spark.sql.sources.default")).lower():
        return named
    key, branch = request.written_key
    try:
        target_format = find_format(lake.table(key, branch).outside_read_set)
    except KeyNotFound:
        return ""
    return named if target_format is None or target_format.source_name is None else target_format.source_name


def truncate_table(spark: SparkSession, lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Remove all rows of a table."""
    key, branch = request.written_table
    spark_format = find_format(lake.table(key, branch).outside_read_set)
    assert spark_format is not None
    if spark_format.is_default:
        delete(spark, key, branch=branch, lake=lake, message=f"TRUNCATE TABLE {key}")
        return {}
    from pyspark.sql.types import StructType

    columns = StructType.fromJson(msgspec.json.decode(request.known_table.schema))
    empty = spark.createDataFrame([], columns)
    write(
        empty,
        key,
        format=request.known_table.provider,
        mode="overwrite",
        branch=branch,
        lake=lake,
        message=f"TRUNCATE TABLE {key}",
        create=False,
    )
    return {}


def delete_rows(
    spark: SparkSession, lake: Lake, request: CatalogRequest, parts: Sequence[Any]
) -> dict[str, Any]:
    """DELETE FROM."""
    change, condition = _build_change(spark, lake, request), _optional_column(parts, request.condition)
    result = ask_format(change.table, lambda spark_format: spark_format.delete_rows(change, condition))
    return _describe_counts(result)


def update_rows(
    spark: SparkSession, lake: Lake, request: CatalogRequest, parts: Sequence[Any]
) -> dict[str, Any]:
    """UPDATE."""
    change, condition = _build_change(spark, lake, request), _optional_column(parts, request.condition)
    values = _assigned_values(parts, request.values)
    result = ask_format(
        change.table, lambda spark_format: spark_format.update_rows(change, values, condition)
    )
    return _describe_counts(result)


def merge_rows(
    spark: SparkSession, lake: Lake, request: CatalogRequest, parts: Sequence[Any]
) -> dict[str, Any]:
    """MERGE INTO."""
    plan = RowMerge(
        _wrap_frame(spark, parts[request.source]),
        _wrap_column(parts[request.on]),
        tuple(_make_clause(parts, clause) for clause in request.clauses),
        request.merge_schema,
    )
    return _describe_counts(MergeBuilder(_build_change(spark, lake, request), plan).commit())


def _describe_counts(result: WriteResult | None) -> dict[str, Any]:
    """How many rows a statement changed, by the names of Delta's columns. Unknown numbers are null."""
    counts: dict[str, int | None] = {"deleted": 0, "updated": 0, "inserted": 0}
    if result is not None:
        counts = {"deleted": result.deleted, "updated": result.updated, "inserted": result.inserted}
    known_counts = [count for count in counts.values() if count is not None]
    affected = sum(known_counts) if len(known_counts) == len(counts) else None
    return {
        "counts": {
            "num_affected_rows": affected,
            **{f"num_{name}_rows": count for name, count in counts.items()},
        }
    }


def _build_change(spark: SparkSession, lake: Lake, request: CatalogRequest) -> ChangeRequest:
    key, branch = request.written_table
    change = build_request(spark, key, lake, branch, None, None)
    return replace(change, own_reads=own_reads(lake, request, key, branch))


def _make_clause(parts: Sequence[Any], clause: ClauseParts) -> MergeClause:
    values = _assigned_values(parts, clause.values or {})
    return MergeClause(clause.kind, clause.action, values, _optional_column(parts, clause.condition))


def _assigned_values(parts: Sequence[Any], places: dict[str, int]) -> dict[str, Column]:
    return {name: _wrap_column(parts[place]) for name, place in places.items()}


def _optional_column(parts: Sequence[Any], place: int | None) -> Column | None:
    return None if place is None else _wrap_column(parts[place])


def _wrap_column(java: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(java)


def _wrap_frame(spark: SparkSession, java: Any) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(java, spark)
