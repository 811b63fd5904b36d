"""What commits say of files that Spark wrote: addresses, and partition values of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import write
from tests.spark.reading_tables import in_each_engine, using
from tests.spark.writing_cases import files_below, seen, seen_by_others

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _naive(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - without a zone, that is the point


# In Berlin the hour after two came twice that night, and in spring it did not come at all.
TWICE = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
# Its fractions of a negative decimal confuse deltalake, so those are whole.
VALUES: dict[str, list[Any]] = {
    "string": [
        "a/b=c%:?#", "ü € 漢 \U0001f600", " blank ", "it's \"quoted\" [x]{y}^\\~", None, "", "..", "a+b&c"
    ],
    "boolean": [True, False, None, True, False, True, True, True],
    "byte": [-128, 127, None, 0, 1, 2, 3, 4],
    "integer": [-(2**31), 2**31 - 1, None, 0, 1, 2, 3, 4],
    "long": [-(2**63), 2**63 - 1, None, 0, 1, 2, 3, 4],
    "double": [float("nan"), float("inf"), float("-inf"), None, 1e-300, 0.1, -1e22, 2.0],
    "float": [float("nan"), 0.5, -1.5, None, 1e10, 0.25, 3.0, 2.0],
    "decimal(20,7)": [
        Decimal("0.0000001"), Decimal("1234567890123.4567891"), None, Decimal(0), Decimal(1), Decimal("1.5"),
        Decimal(-1), Decimal(10),
    ],
    "date": [date(1, 1, 1), date(9999, 12, 31), None, *(date(2024, 2, 25 + n) for n in range(5))],
    "timestamp": [
        TWICE, TWICE + timedelta(hours=1), None, datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(1, 1, 1, 12, tzinfo=UTC),
        datetime(9999, 12, 31, 12, 0, 0, 999999, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC),
    ],
    "timestamp_ntz": [
        _naive(2026, 3, 29, 2, 30), _naive(1, 1, 1), None, _naive(9999, 12, 31, 23, 59, 59, 999999),
        *(_naive(2024, 1, day, 1, 2, 3, 450000) for day in range(1, 5)),
    ],
}  # fmt: skip


@in_each_engine
def test_partition_values_of_every_type_come_back_as_they_were(
    spark: SparkSession, lake: Lake, engine: str
) -> None:
    from pyspark.sql import types as t

    spark = using(spark, engine)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    names = [f"of {kind}" for kind in VALUES]
    rows = [(number, *values) for number, values in enumerate(zip(*VALUES.values(), strict=True))]
    kinds = [t.StructField("id", t.LongType())]
    kinds += [
        t.StructField(name, t._parse_datatype_string(_sql(kind)))
        for name, kind in zip(names, VALUES, strict=True)
    ]
    df = spark.createDataFrame(rows, t.StructType(kinds)).coalesce(1)
    write(df, "demo.partitioned", partition_by=names)
    expected = [[_plain(value) for value in row] for row in rows]
    for found in (seen(lake, "demo.partitioned"), seen_by_others(lake, "demo.partitioned")):
        assert list(found[0]) == ["id", *names]
        assert repr([[_plain(value) for value in row.values()] for row in found]) == repr(expected)


def test_a_text_that_stands_for_null_is_refused_and_nothing_is_left(spark: SparkSession, lake: Lake) -> None:
    df = spark.sql("select id, 'a' as p from range(1)")
    write(df, "demo.t", partition_by="p")
    before = files_below(lake, "demo.t")
    with pytest.raises(InvalidRequest, match="the column 'p' has the value __HIVE_DEFAULT_PARTITION__"):
        write(df.selectExpr("id", "'__HIVE_DEFAULT_PARTITION__' as p"), "demo.t")
    assert files_below(lake, "demo.t") == before


def test_a_moment_that_no_log_can_hold_is_refused_and_nothing_is_left(
    spark: SparkSession, lake: Lake
) -> None:
    write(spark.sql("select 1 as id, timestamp'2024-01-01 00:00:00' as t"), "demo.t", partition_by="t")
    before = files_below(lake, "demo.t")
    with pytest.raises(
        InvalidRequest, match=r"'t' has the value '\+12000-.*, which cannot be a partition value"
    ):
        write(spark.sql("select 1 as id, timestamp'+12000-01-01 00:00:00' as t"), "demo.t")
    assert files_below(lake, "demo.t") == before


def test_binary_and_nested_columns_are_no_partitions(spark: SparkSession) -> None:
    for column in ("unhex('00')", "array(1)", "struct(1 as a)"):
        with pytest.raises(InvalidRequest, match="cannot be partitioned by 'p'"):
            write(spark.sql(f"select 1 as id, {column} as p"), "demo.t", partition_by="p")
    with pytest.raises(InvalidRequest, match="no columns besides"):
        write(spark.sql("select 1 as p"), "demo.t", partition_by="p")


def _sql(kind: str) -> str:
    return {"byte": "tinyint", "integer": "int", "long": "bigint"}.get(kind, kind)


def _plain(value: Any) -> Any:
    """A value that shows as any equal one does. An empty text is null, as the log has it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, Decimal):
        return value.normalize()
    return None if value == "" else value
