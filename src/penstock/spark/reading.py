"""Reading: a table of the lake as a DataFrame, and tables as views for SQL, pinned to a commit.

What a name such as a branch stands for is found out once, when this is called. Whatever is committed later,
the DataFrame shows what there was then, and Spark lists nothing to find it.

Filters that are added to a DataFrame leave out partitions, and within a file what the reader of its format
can leave out. Of a Delta table these are Parquet's statistics, unless a filter is about real numbers. Only a
condition that is given here, as ``where``, also leaves out files by the statistics in a Delta table's log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.spark.scan import scans
from penstock.formats.files.content import FilesTable
from penstock.formats.files.spark import reading as files_reading
from penstock.formats.files.spark.orders import check_not_given
from penstock.formats.files.spark.reading import Wanted
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.installed import require_lance
from penstock.formats.lance.spark.orders import LANCE, NOT_LANCE
from penstock.formats.rows.spark_conditions import means_the_same
from penstock.model.keys import Key
from penstock.spark.analysis import analysing, condition_of
from penstock.spark.arguments import check_version
from penstock.spark.scan.origins import origin_of
from penstock.spark.schemas import quoted
from penstock.spark.sessions import lake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
    format: str | None = None,  # noqa: A002 - as Spark's reader calls it
    schema: str | StructType | None = None,
    options: Mapping[str, Any] | None = None,
    folder: str = "",
    lake: Lake | None = None,
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
    table = found.at(ref).table(key)
    wanted = Wanted(format=format, schema=schema, options=options or {}, folder=folder)
    rows = _rows(spark, table, wanted, version=version, timestamp=timestamp, where=where, columns=columns)
    if where is not None:
        with analysing():
            rows = rows.where(condition_of(where).column)
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
    frames = [_rows(spark, pinned.table(path), Wanted()) for path in paths]
    for called, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quoted(called))
    return pinned.id


def _rows(
    spark: SparkSession,
    table: Table,
    wanted: Wanted,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of a table of any kind. A Delta table leaves out files in which a condition is never true, and
    a Lance table such rows, and columns that are not asked for.

    Which kind it is comes out on the way: a Delta table, the more frequent one, costs no further request.
    """
    if wanted.format == LANCE:
        wanted = _said_of_lance(table, wanted)
    elif not wanted.is_said:
        try:
            snapshot = table.snapshot(version, timestamp)
        except NotManaged:
            if _type(table) not in (FilesTable().type, LanceTable().type):
                raise
        else:
            found = snapshot.unnoted
            condition = where if _is_understood(spark, found, where) else None
            snapshot.note_read(condition)
            return scans.rows(spark, found, found.files(condition), origin=origin_of(table))
    kind = _type(table)
    if kind == LanceTable().type and not wanted.is_said:
        return _of_lance(spark, table, version, timestamp, where, columns)
    if version is not None or timestamp is not None:
        raise InvalidRequest(
            f"'{table.key}' is a table of files, which has no versions of its own: name a commit as 'ref'",
            table=str(table.key),
        )
    if kind != FilesTable().type:
        raise InvalidRequest(
            f"'{table.key}' is no table of files, but a {kind}: format, schema, options and folder "
            "are for such tables alone",
            table=str(table.key),
        )
    return files_reading.rows(spark, table, wanted)


def _said_of_lance(table: Table, wanted: Wanted) -> Wanted:
    """What is said of how to read a table that is said to be one of Lance: nothing else can be."""
    if (kind := _type(table)) != LanceTable().type:
        raise InvalidRequest(f"'{table.key}' is no Lance table, but a {kind}", table=str(table.key))
    check_not_given({"schema": wanted.schema, "options": wanted.options, "folder": wanted.folder}, NOT_LANCE)
    return Wanted()


def _of_lance(
    spark: SparkSession,
    table: Table,
    version: int | None,
    timestamp: str | datetime | None,
    where: str | None,
    columns: Sequence[str] | None,
) -> DataFrame:
    # Only for such tables, since not everybody has what it takes.
    require_lance()
    from penstock.formats.lance.spark import reading as lance

    return lance.rows(spark, table, version=version, timestamp=timestamp, where=where, columns=columns)


def _type(table: Table) -> str:
    """What a table is. That alone is not to be remembered as read; that there is none is."""
    try:
        return table.unnoted.type
    except KeyNotFound:
        table.note_read()
        raise


def _is_understood(spark: SparkSession, snapshot: TableSnapshot, where: str | None) -> bool:
    """Whether it is sure what Spark makes of a condition, so that files are left out by it."""
    zone = spark.conf.get("spark.sql.session.timeZone", None)
    return where is not None and means_the_same(where, snapshot.schema, zone)


def _named(rows: DataFrame, columns: Sequence[str]) -> list[str]:
    if not columns:
        raise InvalidRequest("no columns are named; name at least one, or leave 'columns' out to have all")
    known = {one.lower(): one for one in rows.columns} | {one: one for one in rows.columns}
    absent = [one for one in columns if one not in known and one.lower() not in known]
    if absent:
        raise InvalidRequest(
            f"the table has no column {', '.join(map(repr, absent))}; there are {', '.join(rows.columns)}"
        )
    return [quoted(known.get(one) or known[one.lower()]) for one in columns]
