"""Spark writes tables with features that ask something of their writers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.lake.lake import Lake
from penstock.spark.changing import delete, update
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
