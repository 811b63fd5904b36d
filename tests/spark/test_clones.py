"""Spark with clones: it reads and changes them, with files of the source and with files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import spark as penstock_spark
from penstock.lake.lake import Lake
from tests.spark.reading_tables import ENGINES, using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table with partitions, vectors and a feed, and a clone of it that has files of its own as well."""
    with penstock.init(tmp_path / "lake", warehouse=str(tmp_path / "ware house")) as lake:
        days = pa.table({"id": pa.array(range(1, 9), pa.int64()), "day": ["a b", "c"] * 4})
        lake.delta.create("source", data=days, partition_by="day", properties=PROPERTIES)
        lake.table("source").delete("id = 1")
        lake.delta.clone("source", "clone")
        lake.table("source").delete("id > 4")
        lake.table("clone").append(pa.table({"id": pa.array([20], pa.int64()), "day": ["c"]}))
        yield lake


def found(df: DataFrame) -> list[int]:
    return sorted(row[0] for row in df.select("id").collect())


@pytest.mark.verify
@pytest.mark.parametrize("engine", ENGINES)
def test_spark_reads_filters_and_changes_a_clone(lake: Lake, spark: SparkSession, engine: str) -> None:
    spark = using(spark, engine)
    read = penstock_spark.read(spark, "clone")
    assert found(read) == [2, 3, 4, 5, 6, 7, 8, 20]
    assert found(read.where("id < 4")) == [2, 3]
    assert found(read.where("id > 10")) == [20]
    assert found(read.where("day = 'a b'")) == [3, 5, 7]
    penstock_spark.delete(spark, "clone", "id in (3, 20)")
    assert sorted(lake.table("clone").to_arrow()["id"].to_pylist()) == [2, 4, 5, 6, 7, 8]
    penstock_spark.optimize(spark, "clone")
    assert found(penstock_spark.read(spark, "clone")) == [2, 4, 5, 6, 7, 8]
    assert found(penstock_spark.read(spark, "source")) == [2, 3, 4]


@pytest.mark.verify
def test_the_source_of_a_stream_and_the_data_source_read_a_clone(lake: Lake, spark: SparkSession) -> None:
    loaded = spark.read.format("penstock").options(lake=lake.url, table="clone").load()
    assert found(loaded) == [2, 3, 4, 5, 6, 7, 8, 20]


@pytest.mark.verify
def test_the_feed_of_a_clone_begins_with_its_rows(lake: Lake, spark: SparkSession) -> None:
    changes = penstock_spark.changes(spark, "clone", 0)
    assert found(changes.where("_change_type = 'insert'")) == [2, 3, 4, 5, 6, 7, 8, 20]
