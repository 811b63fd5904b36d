"""``read`` and ``view``: a table of the lake as a DataFrame, and tables as views for SQL, pinned to a commit.

What a name such as a branch stands for is found out once, when this is called. Whatever is committed later,
the DataFrame shows what there was then, and Spark lists nothing to find it.

Filters that are added to a DataFrame leave out partitions, and within a file what the reader of its format
can leave out. Of a Delta table these are Parquet's statistics, unless a filter is about real numbers. Files
are left out by the statistics in a Delta table's log, too, as by a condition that is given here as ``where``:
the session's JVM asks for them when it lists the files, which takes Penstock's jar.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from penstock.errors import InvalidRequest
from penstock.model.keys import Key
from penstock.spark.analysis import explain_analysis, parse_condition
from penstock.spark.arguments import check_version
from penstock.spark.format import (
    ask_format,
    check_known,
    check_options,
    files_format,
    format_of,
    named_format,
)
from penstock.spark.requests import ReadOptions, ReadRequest
from penstock.spark.schemas import quote_name
from penstock.spark.sessions import lake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


def read(
    spark: SparkSession,
    key: str | Key,
    *,
    ref: str | None = None,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    lake: Lake | None = None,
    **more: Unpack[ReadOptions],
) -> DataFrame:
    """A table as it is at a reference: its latest version there, an older one, or that of a time.

    ``ref`` is a branch, a tag or a commit, the default branch if none is given. ``where`` is a condition of
    Spark's SQL: rows for which it is not true are left out, and files that can have no others are not read.
    ``columns`` are those to be shown, in that order.

    A table of files is read as its last job said. ``format``, ``schema`` and ``options`` say it otherwise, as
    they do to Spark's reader; ``folder``, such as ``day=1``, reads only the files in it. The option
    ``mergeSchema`` has Spark look into the files for their columns. Such a table has no versions of its own.

    Of a Lance table, only ``columns`` and ``where`` leave out what is not read: filters and columns that are
    chosen of the DataFrame later do not. As ``format``, ``lance`` says only that it is one.

    ``KeyNotFound`` without such a table, ``NotManaged`` for one whose commits are not the lake's,
    ``VersionNotFound`` without such a version, ``InvalidRequest`` for columns that it has not, or
    for what is no condition on its rows.
    """
    found_lake = lake_of(spark, lake)
    check_version(version)
    check_known(more, ReadOptions.__optional_keys__, "a read")
    table = found_lake.at(ref).table(key)
    request = ReadRequest(version=version, timestamp=timestamp, where=where, columns=columns, extra=more)
    rows = _rows(spark, table, request)
    if where is not None:
        with explain_analysis():
            rows = rows.where(parse_condition(where).column)
            _ = rows.schema  # over Spark Connect, what is wrong with it comes out only here
    return rows if columns is None else rows.select(*_resolve_columns(rows, columns))


def view(
    spark: SparkSession,
    *keys: str | Key,
    ref: str | None = None,
    name: str | None = None,
    lake: Lake | None = None,
) -> str:
    """Make tables temporary views of the session, all as they are at one commit, and return its id.

    A view is called as the last part of its table's key, or by ``name`` if there is only one; it takes the
    place of a view that is called so. They go on showing that commit, until this is called again. Either all
    views are made, or an error tells why none is. Raises as ``read``.
    """
    found_lake = lake_of(spark, lake)
    paths = [Key.parse(key) for key in keys]
    if not paths or (name is not None and len(paths) > 1):
        raise InvalidRequest("give at least one table, and only one if 'name' is given")
    names = [path.elements[-1] if name is None else name for path in paths]
    if len({name.lower() for name in names}) < len(names):
        raise InvalidRequest(
            "two tables would have views of the same name: create the views one by one, each with a 'name'"
        )
    pinned = found_lake.at(ref)
    frames = [_rows(spark, pinned.table(path), ReadRequest()) for path in paths]
    for called, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quote_name(called))
    return pinned.id


def _rows(spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
    """The rows of a table of any format, which may leave out what the request leaves out."""
    extra = request.extra
    is_said = any(value not in (None, "", {}) for value in extra.values())
    if not is_said:
        return ask_format(table, lambda spark_format: spark_format.read(spark, table, request))
    chosen = named_format(str(extra.get("format")))
    if format_of(table) is not chosen:
        is_files = chosen is files_format()
        why = ": format, schema, options and folder apply to tables of files only" if is_files else ""
        raise InvalidRequest(
            f"'{table.key}' is {table.outside_read_set.content.type_in_words}, not a {chosen.described}{why}",
            table=str(table.key),
        )
    check_options(
        extra, chosen.read_options | {"format"}, f"cannot be used with format='{chosen.source_name}'"
    )
    return chosen.read(spark, table, request)


def _resolve_columns(rows: DataFrame, columns: Sequence[str]) -> list[str]:
    if not columns:
        raise InvalidRequest("'columns' is empty; name at least one column, or leave it out to read all")
    columns_by_name = {column.lower(): column for column in rows.columns} | {
        column: column for column in rows.columns
    }
    absent = [
        column
        for column in columns
        if column not in columns_by_name and column.lower() not in columns_by_name
    ]
    if absent:
        raise InvalidRequest(
            f"the table has no column {', '.join(map(repr, absent))}; its columns are "
            f"{', '.join(rows.columns)}"
        )
    return [quote_name(columns_by_name.get(column) or columns_by_name[column.lower()]) for column in columns]
