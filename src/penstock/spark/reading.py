"""Reading: a table of the lake as a DataFrame, and tables as views for SQL, pinned to a commit.

What a name such as a branch stands for is found out once, when this is called. Whatever is committed later,
the DataFrame shows what there was then, and Spark lists nothing to find it.

Filters that are added to a DataFrame leave out partitions, and within a file what the reader of its format
can leave out. Of a Delta table these are Parquet's statistics, unless a filter is about real numbers. Only a
condition that is given here, as ``where``, also leaves out files by the statistics in a Delta table's log.
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
    found = lake_of(spark, lake)
    check_version(version)
    check_known(more, ReadOptions.__optional_keys__, "a read")
    table = found.at(ref).table(key)
    request = ReadRequest(version=version, timestamp=timestamp, where=where, columns=columns, extra=more)
    rows = _rows(spark, table, request)
    if where is not None:
        with explain_analysis():
            rows = rows.where(parse_condition(where).column)
            _ = rows.schema  # over Spark Connect, what is wrong with it comes out only here
    return rows if columns is None else rows.select(*_named(rows, columns))


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
    found = lake_of(spark, lake)
    paths = [Key.parse(key) for key in keys]
    if not paths or (name is not None and len(paths) > 1):
        raise InvalidRequest("name at least one table, and only one where the view's own name is given")
    names = [path.elements[-1] if name is None else name for path in paths]
    if len({one.lower() for one in names}) < len(names):
        raise InvalidRequest(
            "two of the tables have the same last name, and so would their views: make them one by one, "
            "each with a 'name'"
        )
    pinned = found.at(ref)
    frames = [_rows(spark, pinned.table(path), ReadRequest()) for path in paths]
    for called, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quote_name(called))
    return pinned.id


def _rows(spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
    """The rows of a table of any format, which may leave out what the request leaves out."""
    extra = request.extra
    is_said = any(one not in (None, "", {}) for one in extra.values())
    if not is_said:
        return ask_format(table, lambda one: one.read(spark, table, request))
    chosen = named_format(str(extra.get("format")))
    if format_of(table) is not chosen:
        is_files = chosen is files_format()
        why = ": format, schema, options and folder are for such tables alone" if is_files else ""
        raise InvalidRequest(
            f"'{table.key}' is no {chosen.described}, but a {table.unnoted.type}{why}", table=str(table.key)
        )
    check_options(extra, chosen.read_options | {"format"}, f"does not go with format='{chosen.source_name}'")
    return chosen.read(spark, table, request)


def _named(rows: DataFrame, columns: Sequence[str]) -> list[str]:
    if not columns:
        raise InvalidRequest("no columns are named; name at least one, or leave 'columns' out to have all")
    known = {one.lower(): one for one in rows.columns} | {one: one for one in rows.columns}
    absent = [one for one in columns if one not in known and one.lower() not in known]
    if absent:
        raise InvalidRequest(
            f"the table has no column {', '.join(map(repr, absent))}; there are {', '.join(rows.columns)}"
        )
    return [quote_name(known.get(one) or known[one.lower()]) for one in columns]
