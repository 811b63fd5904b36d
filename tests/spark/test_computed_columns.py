"""Spark writes tables that give values to their columns: defaults, generated columns and numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.delta.protocol.column_rules import CURRENT_DEFAULT, GENERATED
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from penstock.spark.merge_builder import merge
from penstock.spark.row_changes import delete, update
from penstock.spark.schemas import from_spark_schema, to_spark_schema
from penstock.spark.writer import write
from tests.formats.test_expressions import COMPUTED, ROWS, compute, parse
from tests.formats.test_expressions import SCHEMA as SOME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.orders"


def field(name: str, kind: str, notes: dict[str, Any] | None = None, *, nullable: bool = True) -> Field:
    return Field(name=name, type=kind, nullable=nullable, metadata=notes or {})


SCHEMA = StructType(
    (
        field("id", "long"),
        field("at", "timestamp"),
        field("state", "string", {CURRENT_DEFAULT: "'open'"}, nullable=False),
        field("day", "date", {GENERATED: "CAST(at AS DATE)"}),
        field("double_id", "long", {GENERATED: "id * 2"}),
    )
)
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def create(lake: Lake, feed: str) -> Table:
    table = lake.delta.create(
        KEY, schema=SCHEMA, partition_by="day", properties={"delta.enableChangeDataFeed": feed}
    )
    assert {"generatedColumns", "allowColumnDefaults"} <= supported_features(table.snapshot().protocol)
    return table


def found(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["state"], row["day"], row["double_id"]) for row in table.to_arrow().to_pylist()}


def test_what_rows_lack_is_filled_in_and_what_they_have_is_checked(spark: SparkSession, lake: Lake) -> None:
    table = create(lake, "true")
    day = date(2026, 11, 17)
    write(spark.createDataFrame([(1, NOON)], "id long, at timestamp"), KEY, lake=lake)
    table.append(pa.table({"id": [2], "at": pa.array([NOON], pa.timestamp("us", "UTC"))}))
    given = spark.createDataFrame(
        [(3, NOON, "shut", day, 6)], "id long, at timestamp, state string, day date, double_id long"
    )
    write(given, KEY, lake=lake)
    assert found(table) == {1: ("open", day, 2), 2: ("open", day, 4), 3: ("shut", day, 6)}
    before = table.version
    wrong = given.selectExpr("id", "at", "double_id + 1 as double_id")
    with pytest.raises(InvalidRequest, match=r"the generated column 'double_id'.*double_id = 7"):
        write(wrong, KEY, lake=lake)
    with pytest.raises(InvalidRequest, match=r"generated column 'double_id'.*leave the column out"):
        table.append(pa.table({"id": [3], "double_id": [7]}))
    with pytest.raises(InvalidRequest, match="generated column 'double_id'"):
        update(spark, KEY, {"double_id": "0"}, "id = 1", lake=lake)
    assert table.version == before
    update(spark, KEY, {"id": "id + 10"}, "id = 1", lake=lake)
    update(spark, KEY, {"at": "timestamp'2026-11-18 12:00:00'"}, "id = 2", lake=lake)
    delete(spark, KEY, "id = 3", lake=lake)
    later = date(2026, 11, 18)
    assert found(table) == {11: ("open", day, 22), 2: ("open", later, 4)}
    frame = spark.createDataFrame([(4, NOON)], "id long, at timestamp")
    frame.write.format("penstock").option("lake", lake.url).option("table", KEY).mode("append").save()
    assert found(table)[4] == ("open", day, 8)
    told = changes(spark, KEY, before + 1, lake=lake)
    images = {(row["_change_type"], row["id"], row["double_id"]) for row in told.collect()}
    assert ("update_postimage", 11, 22) in images
    assert all(double == number * 2 for _, number, double in images)


@pytest.mark.verify
def test_a_merge_fills_in_what_its_clauses_do_not_give(spark: SparkSession, lake: Lake) -> None:
    table = create(lake, "false")
    write(spark.createDataFrame([(1, NOON), (2, NOON)], "id long, at timestamp"), KEY, lake=lake)
    source = spark.createDataFrame([(1, 5), (7, 70)], "id long, more long")
    (
        merge(source, KEY, "target.id = source.id", lake=lake)
        .when_matched_update({"id": "source.more"})
        .when_not_matched_insert({"id": "source.id"})
        .commit()
    )
    day = date(2026, 11, 17)
    assert found(table) == {2: ("open", day, 4), 5: ("open", day, 10), 7: ("open", None, 14)}
    rows = spark.createDataFrame([(2, NOON), (8, NOON)], "id long, at timestamp")
    merge(rows, KEY, "target.id = source.id", lake=lake).when_not_matched_insert_all().commit()
    assert found(table)[8] == ("open", day, 16)
    (
        merge(rows.selectExpr("id", "at", "9L as double_id"), KEY, "target.id = source.id", lake=lake)
        .when_matched_update({"state": "'x'"})
        .when_not_matched_insert_all()
        .commit()
    )
    assert found(table)[8] == ("x", day, 16)


def test_arrow_and_spark_compute_the_same(spark: SparkSession) -> None:
    frame = spark.createDataFrame([tuple(row.values()) for row in ROWS], to_spark_schema(SOME)).coalesce(1)
    theirs = frame.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(COMPUTED)))
    by_spark = pa.Table.from_batches(theirs.toArrow().to_batches())
    for number, text in enumerate(COMPUTED):
        mine = compute(text, ROWS)
        column = by_spark.column(number).combine_chunks()
        assert mine.to_pylist() == column.cast(mine.type).to_pylist(), text
        assert from_spark_schema(theirs.schema).fields[number].type == parse(text).root.kind, text


def test_what_only_spark_can_compute_is_refused_by_name_elsewhere(spark: SparkSession, lake: Lake) -> None:
    schema = StructType((field("id", "long"), field("h", "integer", {GENERATED: "hash(id)"})))
    table = lake.delta.create(KEY, schema=schema)
    with pytest.raises(UnsupportedFeature, match=r"the generated column 'h' \(hash\(id\)\).*without Spark"):
        table.append(pa.table({"id": [1]}))
    write(spark.range(3), KEY, lake=lake)
    assert len(set(table.to_arrow()["h"].to_pylist())) == 3
    assert table.version == 1


def test_rows_are_numbered_whoever_writes_them(spark: SparkSession, lake: Lake) -> None:
    notes = {"delta.identity.start": 1, "delta.identity.step": 1}
    allowing = {**notes, "delta.identity.allowExplicitInsert": True}
    schema = StructType(
        (field("id", "long", notes, nullable=False), field("n", "long"), field("k", "long", allowing))
    )
    table = lake.delta.create(KEY, schema=schema)
    dev = lake.branch("dev").create()
    many = spark.range(100).toDF("n").repartition(3)
    write(many, KEY, lake=lake)
    write(many.withColumn("k", many.n + 1000), KEY, lake=lake, branch="dev")
    table.append(pa.table({"n": [1, 2]}))
    dev.merge_into("main")
    rows = table.to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(1, 203))
    assert len(set(rows["k"].to_pylist())) == 202
    marks = [one.metadata.get("delta.identity.highWaterMark") for one in table.snapshot().schema.fields]
    assert marks == [202, None, 1101]
    with pytest.raises(InvalidRequest, match="leave the column out"):
        write(many.withColumn("id", many.n), KEY, lake=lake)
    with pytest.raises(InvalidRequest, match="cannot be assigned"):
        update(spark, KEY, {"id": "5"}, "n = 1", lake=lake)
    with pytest.raises(UnsupportedFeature, match=r"penstock\.spark\.write"):
        merge(many, KEY, "target.n = source.n", lake=lake).when_not_matched_insert({"n": "n"}).commit()
    with pytest.raises(Exception, match="cannot write to a table with an identity column"):
        many.write.format("penstock").option("lake", lake.url).option("table", KEY).mode("append").save()
    update(spark, KEY, {"n": "-n"}, "n = 50", lake=lake)
    write(many.limit(1), KEY, lake=lake, mode="overwrite")
    assert table.to_arrow()["id"].to_pylist() == [203]
    assert table.to_arrow()["k"].to_pylist() == [1102]


def test_branches_merge_and_a_generated_column_is_still_checked(spark: SparkSession, lake: Lake) -> None:
    table = create(lake, "false")
    dev = lake.branch("dev").create()
    write(spark.createDataFrame([(1, NOON)], "id long, at timestamp"), KEY, lake=lake, branch="dev")
    write(spark.createDataFrame([(2, NOON)], "id long, at timestamp"), KEY, lake=lake)
    dev.merge_into("main")
    lake.revert("main")
    table.restore(version=table.version - 1)
    day = date(2026, 11, 17)
    assert found(table) == {1: ("open", day, 2), 2: ("open", day, 4)}
