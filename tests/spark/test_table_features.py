"""Spark writes tables with features that ask something of their writers."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.delta.protocol.column_mapping import ID, MODE, PARQUET_ID, stored_name
from penstock.formats.delta.protocol.features import with_features
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from penstock.spark.merge_builder import merge
from penstock.spark.reader import read
from penstock.spark.row_changes import delete, update
from penstock.spark.writer import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.orders"
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


@pytest.mark.verify
def test_files_of_a_clustered_table_have_statistics_of_the_clustering_columns(
    spark: SparkSession, lake: Lake
) -> None:
    few = {"delta.dataSkippingNumIndexedCols": "1"}
    table = lake.delta.create(KEY, data=ROWS, cluster_by="name", properties=few)
    write(spark.createDataFrame([(3, "c"), (4, "d")], "id long, name string"), KEY, lake=lake)
    update(spark, KEY, {"name": "'e'"}, "id = 1", lake=lake)
    delete(spark, KEY, "id = 4", lake=lake)
    frame = spark.createDataFrame([(5, "f")], "id long, name string")
    frame.write.format("penstock").option("lake", lake.url).option("table", KEY).mode("append").save()
    assert sorted(table.to_arrow()["name"].to_pylist()) == ["b", "c", "e", "f"]
    for file in table.snapshot().files():
        assert set(json.loads(file.stats or "{}")["nullCount"]) == {"id", "name"}


# -- variants and partition columns in files ---------------------------------------------------------------


def test_variants_and_partition_columns_in_files_are_written_by_spark(
    spark: SparkSession, lake: Lake
) -> None:
    properties = {"delta.enableIcebergCompatV3": "true", "delta.enableVariantShredding": "true"}
    made = """SELECT id, parse_json('{"a": 1}') AS v, concat('d', id % 2) AS day FROM range(3)"""
    write(spark.sql(made).coalesce(1), KEY, lake=lake, partition_by="day", properties=properties)
    update(spark, KEY, {"v": "parse_json('[2]')"}, "id = 1", lake=lake)
    table = lake.table(KEY)
    names = [stored_name(field) for field in table.snapshot().schema.fields]
    for file in table.snapshot().files():
        written = pq.read_schema(Path(table.location) / file.path)
        assert written.names[:3] == names
        assert [part.name for part in written.field(1).type] == ["value", "metadata"]
    shown = read(spark, KEY, lake=lake).selectExpr("id", "to_json(v)", "day").collect()
    assert sorted(map(tuple, shown)) == [(0, '{"a":1}', "d0"), (1, "[2]", "d1"), (2, '{"a":1}', "d0")]


def test_ids_of_elements_are_in_the_files_that_spark_writes(spark: SparkSession, lake: Lake) -> None:
    made = """SELECT id, array(id) AS l, map('k', array(named_struct('x', array(id)))) AS m,
        named_struct('l', array(array(id))) AS s FROM range(4)"""
    rows = spark.sql(made).coalesce(1)
    write(rows, KEY, lake=lake, properties={"delta.enableIcebergCompatV2": "true"})
    table = lake.table(KEY)
    update(spark, KEY, {"l": "array(7, null)"}, "id = 1", lake=lake)
    table.append(table.to_arrow(where="id = 2"))
    by_engine = []
    for file in table.snapshot().files():
        lines = str(pq.ParquetFile(Path(table.location) / file.path).schema).splitlines()[1:]
        by_engine.append([line.split(" field_id=")[1].split()[0] for line in lines if " field_id=" in line])
    assert len(by_engine) == 2
    assert by_engine[0] == by_engine[1]
    numbers = [int(number) for number in by_engine[0] if int(number) > 0]
    assert sorted(numbers) == list(range(1, 14))
    values = sorted(read(spark, KEY, lake=lake).selectExpr("id", "l", "m['k'][0].x", "s.l").collect())
    assert [tuple(row) for row in values] == [
        (0, [0], [0], [[0]]),
        (1, [7, None], [1], [[1]]),
        (2, [2], [2], [[2]]),
        (2, [2], [2], [[2]]),
        (3, [3], [3], [[3]]),
    ]


# -- constraints -------------------------------------------------------------------------------------------

CHECKED = {
    "delta.constraints.positive": "id > 0",
    "delta.constraints.named": "length(name) < 5 AND id <> 13",
}


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("feed", ["false", pytest.param("true", marks=pytest.mark.verify)])
def test_no_row_is_written_for_which_a_constraint_is_not_true(
    spark: SparkSession, lake: Lake, feed: str
) -> None:
    properties = {**CHECKED, "delta.enableChangeDataFeed": feed}
    schema = "id long, name string"
    write(spark.createDataFrame([(1, "a"), (2, "b")], schema), KEY, lake=lake, properties=properties)
    table = lake.table(KEY)
    before = table.version
    bad = spark.createDataFrame([(3, "c"), (-4, "d")], schema)
    for mode in ("append", "overwrite"):
        with pytest.raises(InvalidRequest, match=r"the constraint 'positive' \(id > 0\).*id = -4"):
            write(bad, KEY, lake=lake, mode=mode)
    with pytest.raises(InvalidRequest, match=r"'positive'.*id = null"):
        write(spark.createDataFrame([(None, "c")], schema), KEY, lake=lake)
    with pytest.raises(InvalidRequest, match=r"'named'.*id = 3, name = .ccccc."):
        write(spark.createDataFrame([(3, "ccccc")], schema), KEY, lake=lake)
    with pytest.raises(InvalidRequest, match="'positive'"):
        write(bad, KEY, lake=lake, mode="overwrite", replace_where="id = 3 or id = -4")
    with pytest.raises(InvalidRequest, match=r"'positive'.*id = -1"):
        update(spark, KEY, {"id": "-id"}, "id = 1", lake=lake)
    with pytest.raises(InvalidRequest, match=r"'positive'.*id = -4"):
        merge(bad, KEY, "target.id = source.id", lake=lake).when_not_matched_insert_all().commit()
    assert table.version == before
    update(spark, KEY, {"id": "id + 10"}, "id = 1", lake=lake)
    delete(spark, KEY, "id = 2", lake=lake)
    assert ids(table) == [11]


def test_rows_that_violate_a_constraint_are_deleted(spark: SparkSession, lake: Lake) -> None:
    """Whatever brought them: what does not stay is not checked."""
    table = lake.create_table(KEY, data=pa.table({"id": [1, -1], "name": ["a", "b"]}))
    about = table.snapshot().metadata
    configuration = {**about.configuration, "delta.constraints.positive": "id > 0"}
    protocol = with_features(table.snapshot().protocol, {"checkConstraints"})
    table.commit(1, [protocol, msgspec.structs.replace(about, configuration=configuration)])
    delete(spark, KEY, "id = -1", lake=lake)
    assert ids(table) == [1]


def test_a_constraint_that_nobody_can_evaluate_is_refused_by_name(spark: SparkSession, lake: Lake) -> None:
    odd = {"delta.constraints.odd": "no_such_function(id)"}
    lake.create_table(KEY, schema=ROWS.schema, properties=odd)
    with pytest.raises(UnsupportedFeature, match="the constraint 'odd'"):
        write(spark.createDataFrame([(1, "a")], "id long, name string"), KEY, lake=lake)
    frame = spark.createDataFrame([(1, "a")], "id long, name string")
    with pytest.raises(Exception, match="the constraint 'odd'"):
        frame.write.format("penstock").option("lake", lake.url).option("table", KEY).mode("append").save()
    assert lake.table(KEY).version == 0


# -- mapped columns ----------------------------------------------------------------------------------------

MAPPED = "id long, `odd name` string, part struct<x: long, l: array<struct<y: string>>>, day string"


def mapped_rows(*numbers: int, day: str = "mon") -> list[tuple[object, ...]]:
    return [(one, f"n{one}", (one, [(str(one),)]), day) for one in numbers]


@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.verify)])
def test_a_table_with_mapped_columns_is_written_and_read(spark: SparkSession, lake: Lake, mode: str) -> None:
    properties = {MODE: mode, "delta.enableChangeDataFeed": "true"}
    first = spark.createDataFrame(mapped_rows(1, 2), MAPPED).coalesce(1)
    write(first, KEY, lake=lake, partition_by="day", properties=properties)
    table = lake.table(KEY)
    names = {one.name: stored_name(one) for one in table.snapshot().schema.walk()}
    (file,) = table.snapshot().files()
    assert file.partition_values == {names["day"]: "mon"}
    stats = json.loads(file.stats or "{}")
    assert stats["minValues"][names["part"]] == {names["x"]: 1}
    written = pq.read_schema(Path(table.location) / file.path)
    assert [one.name for one in written] == [names["id"], names["odd name"], names["part"]]
    numbers = [int(one.metadata[PARQUET_ID]) for one in written]
    assert numbers == [table.snapshot().schema.fields[at].metadata[ID] for at in range(3)]
    assert int(written.field(2).type.field(0).metadata[PARQUET_ID]) == 4
    write(spark.createDataFrame(mapped_rows(3, day="tue"), MAPPED), KEY, lake=lake)
    table.append(table.to_arrow(where="id = 3").slice(0, 1).set_column(0, "id", pa.array([4])))
    lake.delta.rename_column(KEY, "id", "number")
    update(spark, KEY, {"number": "number + 10", "part.x": "0"}, "number = 1", lake=lake)
    delete(spark, KEY, "number = 2", lake=lake)
    delete(spark, KEY, "day = 'none'", lake=lake)
    more = spark.createDataFrame([(5, "wed", 50)], "number long, day string, more long")
    write(more, KEY, lake=lake, merge_schema=True)
    again = spark.createDataFrame([(6, "tue", 60)], "number long, day string, more long")
    write(again, KEY, lake=lake, mode="overwrite", partition_overwrite="dynamic")
    merge(again, KEY, "target.number = source.number", lake=lake).when_matched_update(
        {"more": "source.more + 1"}
    ).commit()
    wanted = [(5, "wed", 50), (6, "tue", 61), (11, "mon", None)]
    found = read(spark, KEY, lake=lake).select("number", "day", "more").collect()
    assert sorted(map(tuple, found), key=itemgetter(0)) == wanted
    assert read(spark, KEY, lake=lake, where="part.x = 0").select("part.l").collect()[0][0][0]["y"] == "1"
    rows = table.to_arrow().to_pylist()
    assert sorted((row["number"], row["day"], row["more"]) for row in rows) == wanted
    table.backfill_to_version()
    theirs = pa.table(DeltaTable(table.location).scan()).to_pylist()
    assert sorted(map(repr, theirs)) == sorted(map(repr, rows))
    fed = changes(spark, KEY, from_version=table.version, lake=lake).select("number", "more", "_change_type")
    assert sorted(map(tuple, fed.collect())) == [(6, 60, "update_preimage"), (6, 61, "update_postimage")]
    delete(spark, KEY, "day = 'tue'", lake=lake)
    write(more.limit(0), KEY, lake=lake, mode="overwrite", replace_where="day = 'wed'")
    assert [row["number"] for row in table.to_arrow().to_pylist()] == [11]
    frame = spark.createDataFrame([(7, "thu")], "number long, day string")
    frame.write.format("penstock").option("lake", lake.url).option("table", KEY).mode("append").save()
    source = spark.read.format("penstock").option("lake", lake.url).option("table", KEY).load()
    assert sorted(row[0] for row in source.select("number").collect()) == [7, 11]
    other = spark.createDataFrame([(8, 1.5)], "number long, other double")
    write(other, KEY, lake=lake, mode="overwrite", overwrite_schema=True)
    assert table.to_arrow().to_pylist() == [{"number": 8, "other": 1.5}]
