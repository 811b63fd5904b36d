"""``diff_rows``: which rows of a table differ between two revisions, as a DataFrame, for tables of any size.

Of the files that both revisions have Spark reads none. What is left of each side is compared by Spark, on its
executors: rows that are equal on both sides cancel each other out, one for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.formats.rows.row_difference import (
    ADDED,
    AFTER,
    BEFORE,
    CHANGE,
    REMOVED,
    REPEATED_MAX,
    choose_columns,
    find_unshared_parts,
    list_key_columns,
    repeated_key_error,
)
from penstock.model.keys import Key
from penstock.spark.analysis import explain_analysis
from penstock.spark.format import ScannedTable, ask_format
from penstock.spark.schemas import quote_name
from penstock.spark.session_lakes import get_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.lake.lake import Lake

COPIES: Final = "__penstock_copies"
"""How many more copies of a row the second revision has than the first; below 0 if it has fewer."""
LEFT: Final = "__penstock_before"
CAME: Final = "__penstock_after"


def diff_rows(
    spark: SparkSession,
    key: str | Key,
    before: str,
    after: str,
    *,
    on: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    lake: Lake | None = None,
) -> DataFrame:
    """Return the rows of a table that differ between two revisions, in no particular order.

    Each row has the column ``_change_type``: ``insert`` and ``delete``, and with ``on`` for rows that changed
    ``update_preimage`` and ``update_postimage``. ``on`` names the columns that identify a row; without it
    whole rows are compared, counting duplicates. ``columns`` are the columns to compare, by default all that
    both revisions have. Only files that one revision has and the other lacks are read.

    The revisions are resolved when this is called. ``KeyNotFound`` if neither has the table,
    ``InvalidRequest`` for columns that one revision lacks, or whose types cannot be compared. With ``on``,
    Spark first checks that the columns identify rows, which reads these files once more; ``InvalidRequest``
    if several rows have the same key.
    """
    found_lake = get_lake(spark, lake)
    path, keys = Key.parse(key), list_key_columns(on)
    sides = [_scan_table(spark, found_lake, path, ref) for ref in (before, after)]
    old, new = (side or _empty_like(sides[1 - n]) for n, side in enumerate(sides))
    if old is None or new is None:
        raise found_lake.key_not_found(path, after)
    names = choose_columns(path, old.schema.names, new.schema.names, keys, columns)
    _check_types(path, old, new, names)
    frames = _read_unshared(old, new, names)
    with explain_analysis(f"the rows of '{path}' cannot be compared: "):
        difference = _compare_rows(path, frames, names, keys)
        _ = difference.schema  # over Spark Connect, what is wrong with it comes out only here
    return difference


def _scan_table(spark: SparkSession, lake: Lake, key: Key, ref: str) -> ScannedTable | None:
    """A table at a revision; ``None`` if it is not there."""
    table = lake.at(ref).table(key)
    try:
        return ask_format(table, lambda spark_format: spark_format.scan_table(spark, table))
    except KeyNotFound:
        return None


def _empty_like(other: ScannedTable | None) -> ScannedTable | None:
    """A table that is not there, with the columns that it has elsewhere."""
    if other is None:
        return None
    rows = other.read(None).limit(0) if other.stored is None else other.read(())
    return ScannedTable(other.schema, lambda _: rows)


def _read_unshared(old: ScannedTable, new: ScannedTable, names: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The rows that only one side may have."""
    before, after = find_unshared_parts(old.stored, new.stored, names) or (None, None)
    columns = [quote_name(name) for name in names]
    return old.read(before).select(*columns), new.read(after).select(*columns)


def _check_types(key: Key, old: ScannedTable, new: ScannedTable, names: Sequence[str]) -> None:
    """``InvalidRequest`` if a column has types of which no values are equal."""
    for name in names:
        types = [side.schema[name].dataType for side in (old, new)]
        if not _can_compare(*types):
            raise InvalidRequest(
                f"the column '{name}' of '{key}' is {types[0].simpleString()} at one commit and "
                f"{types[1].simpleString()} at the other: name the other columns in columns=…",
                table=str(key),
            )


def _can_compare(old: DataType, new: DataType) -> bool:
    from pyspark.sql.types import DateType, NumericType, TimestampType

    numbers, times = NumericType, (DateType, TimestampType)
    return (
        old.simpleString() == new.simpleString()
        or (isinstance(old, numbers) and isinstance(new, numbers))
        or (isinstance(old, times) and isinstance(new, times))
    )


def _compare_rows(
    key: Key, frames: tuple[DataFrame, DataFrame], names: Sequence[str], on: tuple[str, ...]
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    old, new = frames
    both = old.withColumn(COPIES, F.lit(-1)).union(new.withColumn(COPIES, F.lit(1)))
    columns = [F.col(quote_name(name)) for name in names]
    differing = both.groupBy(*columns).agg(F.sum(COPIES).alias(COPIES)).where(F.col(COPIES) != 0)
    if on:
        _check_unique(key, differing, on)
        return _pair_rows(differing, names, on)
    change = F.when(F.col(COPIES) < 0, REMOVED).otherwise(ADDED).alias(CHANGE)
    copies = F.explode(F.sequence(F.lit(1), F.abs(COPIES).cast("int")))
    return differing.select(*columns, change, copies.alias(COPIES)).drop(COPIES)


def _check_unique(key: Key, differing: DataFrame, on: tuple[str, ...]) -> None:
    """``InvalidRequest`` if several rows of one side have the same key: they cannot be paired."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    copies = F.col(COPIES)
    counted = differing.groupBy(*(F.col(quote_name(name)) for name in on)).agg(
        F.sum(F.greatest(-copies, F.lit(0))).alias(LEFT), F.sum(F.greatest(copies, F.lit(0))).alias(CAME)
    )
    repeated = counted.where((F.col(LEFT) > 1) | (F.col(CAME) > 1)).drop(LEFT, CAME)
    if keys := repeated.limit(REPEATED_MAX).collect():
        raise repeated_key_error(key, on, keys)


def _pair_rows(differing: DataFrame, names: Sequence[str], on: tuple[str, ...]) -> DataFrame:
    """Rows with what became of each, by the columns that identify them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    same_key = Window.partitionBy(*(F.col(quote_name(name)) for name in on))
    copies = F.col(COPIES)
    counted = differing.withColumns(
        {
            LEFT: F.sum(F.greatest(-copies, F.lit(0))).over(same_key),
            CAME: F.sum(F.greatest(copies, F.lit(0))).over(same_key),
        }
    )
    change = (
        F.when((copies < 0) & (F.col(CAME) == 0), REMOVED)
        .when((copies > 0) & (F.col(LEFT) == 0), ADDED)
        .when(copies < 0, BEFORE)
        .otherwise(AFTER)
    )
    order = (*on, *(name for name in names if name not in on))
    return counted.select(*(F.col(quote_name(name)) for name in order), change.alias(CHANGE))
