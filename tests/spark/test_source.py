"""``format("penstock")``: tables of a lake for plain DataFrame code."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import session
from penstock.spark.source.options import parse_options
from penstock.spark.spark_errors import unwrap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
MOMENT = datetime(2026, 11, 1, 12, 30, 0, 123456, tzinfo=UTC)


def numbers(*ids: int, day: str = "monday") -> pa.Table:
    return pa.Table.from_pylist([{"id": one, "day": day} for one in ids], schema=SCHEMA)


def reader(spark: SparkSession, lake: Lake, **options: Any) -> DataFrameReader:
    return spark.read.format("penstock").options(lake=lake.url, **options)


def save(rows: DataFrame, lake: Lake, mode: str = "append", **options: Any) -> None:
    rows.write.format("penstock").options(lake=lake.url, **options).mode(mode).save()


def ids(lake: Lake, key: str, ref: str | None = None) -> list[int]:
    return sorted(lake.table(key, ref).to_arrow()["id"].to_pylist())


@pytest.mark.verify
def test_rows_of_all_types_go_through_spark_and_stay_what_they_are(spark: SparkSession, lake: Lake) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    columns = {
        "id": (pa.int64(), [1, 2, None]),
        "small": (pa.int8(), [1, None, -1]),
        "ratio": (pa.float64(), [0.5, float("inf"), None]),
        "price": (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-3.25")]),
        "day": (pa.date32(), [date(2026, 11, 1), None, date(1969, 1, 1)]),
        "at": (pa.timestamp("us", "UTC"), [MOMENT, None, MOMENT]),
        "local": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), None, None]),
        "data": (pa.binary(), [b"\x00\xff", None, b""]),
        "items": (pa.list_(pa.int32()), [[1, None], None, []]),
        "by_name": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], None, []]),
        "deep": (inner, [{"x": 1, "y": ["q", None]}, None, {"x": None, "y": None}]),
        "kind": (pa.string(), ["a", "b b/c", None]),
    }
    rows = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    source = lake.create_table("t.source", data=rows, partition_by="kind")
    target = lake.create_table("t.target", schema=source.schema, partition_by="kind")
    save(reader(spark, lake, table="t.source").load(), lake, table="t.target")
    assert target.to_arrow().sort_by("kind") == source.to_arrow().sort_by("kind")


def test_the_lake_of_the_session_is_meant_unless_another_one_is_named(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    own = session(lake)
    lake.create_table("t.numbers", data=numbers(1, 2))
    own.read.format("penstock").load("t.numbers").write.format("penstock").mode("append").save("t.numbers")
    assert own.read.load("t.numbers", format="penstock").count() == 4
    with penstock.open(tmp_path / "other", create=True) as other:
        other.create_table("t.numbers", data=numbers(7))
        for named in (
            own.read.format("penstock").option("lake", other.url),
            own.read.option("lake", other.url).format("penstock"),
            session(other).read.format("penstock"),
        ):
            assert [one.id for one in named.load("t.numbers").collect()] == [7]
        assert own.read.format("penstock").load("t.numbers").count() == 4
    lake.table("t.files").files.write({"a.csv": b"id\n1\n"})
    with pytest.raises(Exception, match="is a table of files") as failed:
        own.read.format("penstock").load("t.files")
    assert "penstock.spark.read(spark, 't.files')" in str(unwrap(failed.value))


def test_a_dataframe_shows_the_version_that_there_was_when_it_was_made(
    spark: SparkSession, lake: Lake
) -> None:
    table = lake.create_table("t.numbers", data=numbers(1, 2))
    made = reader(spark, lake).load("t.numbers")
    table.append(numbers(3))
    assert made.count() == 2
    assert made.where("id = 1").count() == 1
    assert made.count() == 2
    assert reader(spark, lake, table="t.numbers").load().count() == 3
    assert reader(spark, lake, table="t.numbers", version=0).load().count() == 2
    assert reader(spark, lake, table="t.numbers", ref="main~1").load().count() == 2
    assert reader(spark, lake, table="t.numbers", where="id > 2").load().count() == 1
    some = reader(spark, lake, table="t.numbers", where="id > 2").schema("id long").load()
    assert [tuple(one) for one in some.collect()] == [(3,)]


def test_rows_are_added_or_take_the_place_of_others(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t.numbers", data=numbers(1), partition_by="day")
    lake.branch("dev").create()
    monday = spark.range(10, 12).selectExpr("id", "'monday' day")
    tuesday = spark.range(20, 22).selectExpr("id", "'tuesday' day")
    save(monday, lake, table="t.numbers")
    save(tuesday, lake, table="t.numbers", app_id="app", batch=1)
    save(tuesday, lake, table="t.numbers", app_id="app", batch=1)
    assert ids(lake, "t.numbers") == [1, 10, 11, 20, 21]
    save(monday.limit(1), lake, "overwrite", table="t.numbers", replaceWhere="day = 'monday'")
    assert ids(lake, "t.numbers") == [10, 20, 21]
    save(monday, lake, "overwrite", table="t.numbers", branch="dev")
    assert (ids(lake, "t.numbers", "dev"), ids(lake, "t.numbers")) == ([10, 11], [10, 20, 21])


def test_a_view_takes_and_gives_rows_by_sql(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t.numbers", data=numbers(1))
    view = f"CREATE OR REPLACE TEMPORARY VIEW v USING penstock OPTIONS (lake '{lake.url}', table 't.numbers')"
    spark.sql(view)
    spark.sql("INSERT INTO v VALUES (2, 'tuesday')")
    assert ids(lake, "t.numbers") == [1, 2]
    spark.sql(view)
    assert spark.sql("SELECT count(*) FROM v WHERE id > 1").collect()[0][0] == 1


def test_tables_of_sparks_catalogue_are_refused_for_they_do_not_say_which_table(
    spark: SparkSession, lake: Lake
) -> None:
    with pytest.raises(Exception, match="no table is named") as raised:
        spark.range(3).write.format("penstock").option("lake", lake.url).saveAsTable("anything")
    assert isinstance(unwrap(raised.value), InvalidRequest)


def test_the_address_of_the_environment_is_the_sessions_lake_with_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, place = "postgresql://ada:secret@db/lake", "postgresql://ada@db/lake"
    told = {"path": "t", "sessionlake": place}
    monkeypatch.setenv("PENSTOCK_LAKE", whole)
    assert parse_options(told).lake == whole
    assert parse_options({**told, "lake": place}).lake == place
    assert parse_options({"path": "t"}).lake == whole
    monkeypatch.setenv("PENSTOCK_LAKE", "postgresql://ada:secret@db/another")
    assert parse_options(told).lake == place
    monkeypatch.delenv("PENSTOCK_LAKE")
    assert parse_options(told).lake == place
    with pytest.raises(InvalidRequest, match="no lake is named"):
        parse_options({"path": "t"})
