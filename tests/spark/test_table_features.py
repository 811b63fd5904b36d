"""Spark writes tables with features that ask something of their writers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.delta.protocol.features import with_features
from penstock.formats.delta.spark.changes import delete, update
from penstock.formats.delta.spark.merges import merge
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.writing import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.orders"
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


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


# -- constraints -------------------------------------------------------------------------------------------

CHECKED = {
    "delta.constraints.positive": "id > 0",
    "delta.constraints.named": "length(name) < 5 AND id <> 13",
}


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("feed", ["true", "false"])
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
