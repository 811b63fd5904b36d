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
    find_format,
    get_named_format,
)
from penstock.spark.requests import ReadOptions, ReadRequest
from penstock.spark.schemas import quote_name
from penstock.spark.session_lakes import get_lake

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
    """Read a table at a reference: its latest version there, an older one, or that of a time.

    ``ref`` is a branch, a tag or a commit, by default the default branch. ``where`` is a condition in Spark's
    SQL: other rows are left out, and files without matching rows are skipped. ``columns`` are the columns to
    return, in that order.

    A table of files is read in the format and with the columns of its last job. ``format``, ``schema`` and
    ``options`` override these, as for Spark's reader; ``folder``, such as ``day=1``, reads only the files in
    it. With the option ``mergeSchema``, Spark reads the columns from the files. Such a table has no versions
    of its own.

    For a Lance table, only ``columns`` and ``where`` reduce what is read: later filters and selections of the
    DataFrame do not. The ``format`` ``lance`` only requires that the table is one.

    ``KeyNotFound`` if the table does not exist, ``NotManaged`` if the lake does not manage it,
    ``VersionNotFound`` if the version does not exist, ``InvalidRequest`` for unknown columns or an invalid
    condition.
    """
    found_lake = get_lake(spark, lake)
    check_version(version)
    check_known(more, ReadOptions.__optional_keys__, "a read")
    table = found_lake.at(ref).table(key)
    request = ReadRequest(version=version, timestamp=timestamp, where=where, columns=columns, extra=more)
    rows = _read_rows(spark, table, request)
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
    """Create temporary views of tables in the session, all at one commit, and return the id of that commit.

    A view has the name of the last part of its table's key, or ``name`` if there is only one; it replaces a
    view of that name. The views keep showing that commit until this is called again. Either all views are
    created, or none. Raises like ``read``.
    """
    found_lake = get_lake(spark, lake)
    paths = [Key.parse(key) for key in keys]
    if not paths or (name is not None and len(paths) > 1):
        raise InvalidRequest("give at least one table, and only one if 'name' is given")
    names = [path.elements[-1] if name is None else name for path in paths]
    if len({name.lower() for name in names}) < len(names):
        raise InvalidRequest(
            "two tables would have views of the same name: create the views one by one, each with a 'name'"
        )
    pinned = found_lake.at(ref)
    frames = [_read_rows(spark, pinned.table(path), ReadRequest()) for path in paths]
    for called, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quote_name(called))
    return pinned.id


def _read_rows(spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
    """The rows of a table of any format, which may leave out what the request leaves out."""
    extra = request.extra
    is_said = any(value not in (None, "", {}) for value in extra.values())
    if not is_said:
        return ask_format(table, lambda spark_format: spark_format.read_table(spark, table, request))
    chosen = get_named_format(str(extra.get("format")))
    if find_format(table) is not chosen:
        is_files = chosen is files_format()
        why = ": format, schema, options and folder apply to tables of files only" if is_files else ""
        raise InvalidRequest(
            f"'{table.key}' is {table.outside_read_set.content.type_in_words}, not a {chosen.described}{why}",
            table=str(table.key),
        )
    check_options(
        extra, chosen.read_options | {"format"}, f"cannot be used with format='{chosen.source_name}'"
    )
    return chosen.read_table(spark, table, request)


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
