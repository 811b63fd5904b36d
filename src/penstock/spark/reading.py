"""Reading: a table of the lake as a DataFrame, and tables as views for SQL, pinned to a commit.

What a name such as a branch stands for is found out once, when this is called. Whatever is committed later,
the DataFrame shows what there was then, and Spark lists nothing to find it.

Filters that are added to a DataFrame leave out partitions, and within a file what Parquet's statistics rule
out, unless they are about real numbers. Only a condition that is given here, as ``where``, also leaves out
files by the statistics in the table's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Add
from penstock.lake.delta_snapshot import TableSnapshot
from penstock.model.keys import Key
from penstock.spark.arguments import check_version
from penstock.spark.rewrites.choosing import analysing, condition_of
from penstock.spark.scan import scans
from penstock.spark.scan.columns import quoted
from penstock.spark.scan.conditions import means_the_same
from penstock.spark.sessions import lake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake


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
) -> DataFrame:
    """A table as it is at a reference: its latest version there, an older one, or that of a time.

    ``ref`` is a branch, a tag or a commit, the default branch if none is given. ``where`` is a condition of
    Spark's SQL: rows for which it is not true are left out, and files that can have no others are not read.
    ``columns`` are those to be shown, in that order.

    ``KeyNotFound`` without such a table, ``NotManaged`` for one whose commits are not the lake's,
    ``VersionNotFound`` without such a version, ``InvalidRequest`` for columns that it has not, or
    for what is no condition on its rows.
    """
    found = lake_of(spark, lake)
    check_version(version)
    snapshot = found.at(ref).table(key).snapshot(version, timestamp)
    rows = scans.rows(spark, snapshot, _files(spark, snapshot, where))
    if where is not None:
        with analysing():
            rows = rows.where(condition_of(where).column)
            _ = rows.schema  # over Spark Connect, what is wrong with it comes out only here
    return rows if columns is None else rows.select(*_named(snapshot, columns))


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
    snapshots = [pinned.table(path).snapshot() for path in paths]
    frames = [scans.rows(spark, one, one.files()) for one in snapshots]
    for called, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quoted(called))
    return pinned.id


def _files(spark: SparkSession, snapshot: TableSnapshot, where: str | None) -> Iterable[Add]:
    """The files in which a condition may be true; all of them if it is not sure what Spark makes of it."""
    zone = spark.conf.get("spark.sql.session.timeZone", None)
    if where is None or not means_the_same(where, snapshot.schema, zone):
        return snapshot.files()
    return snapshot.files(where)


def _named(snapshot: TableSnapshot, columns: Sequence[str]) -> list[str]:
    if not columns:
        raise InvalidRequest("no columns are named; name at least one, or leave 'columns' out to have all")
    names = [snapshot.schema.field(one) for one in columns]
    absent = [one for one, found in zip(columns, names, strict=True) if found is None]
    if absent:
        known = ", ".join(one.name for one in snapshot.schema.fields)
        raise InvalidRequest(f"the table has no column {', '.join(map(repr, absent))}; there are {known}")
    return [quoted(one.name) for one in names if one is not None]
