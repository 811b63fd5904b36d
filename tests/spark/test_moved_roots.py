"""Spark with a lake whose files were moved: it reads and writes tables of each format at the new place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import spark as penstock_spark
from penstock.lake.lake import Lake
from penstock.lake.root_maps import map_root
from tests.transactions.pipelines import FORMATS, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake with a table of each format, and one with absolute paths, whose warehouse has moved."""
    old, new = tmp_path / "old", tmp_path / "new"
    with penstock.init(tmp_path / "lake", warehouse=str(old), author="ada") as made:
        for kind in FORMATS:
            made.table(f"s.{kind}").write(rows(1, 2), format=kind)
        deltalake.write_deltalake(str(old / "odd"), pa.table({"id": pa.array([1, 2], pa.int64())}))
        log = old / "odd" / "_delta_log" / f"{0:020}.json"
        (name,) = (one.name for one in (old / "odd").glob("*.parquet"))
        log.write_text(log.read_text().replace(f'"path":"{name}"', f'"path":"{old}/odd/{name}"'))
        made.delta.adopt(str(old / "odd"), "s.odd")
        made.branch("dev").create()
        for kind in FORMATS:
            made.branch("dev").table(f"s.{kind}").write(rows(3))
        made.merge("dev")
        made.finish_background()
    shutil.move(old, new)
    map_root(tmp_path / "lake", str(old), str(new))
    with penstock.open(tmp_path / "lake", author="ada") as opened:
        yield opened
        opened.finish_background()
    assert not old.exists()


def frame(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(one,) for one in ids], "id long").coalesce(1)


def found(df: DataFrame) -> list[int]:
    return sorted(one[0] for one in df.select("id").collect())


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "delta" else pytest.mark.verify) for kind in FORMATS]
)
def test_a_table_is_read_and_written_where_its_files_are_now(
    lake: Lake, spark: SparkSession, kind: str
) -> None:
    assert found(penstock_spark.read(spark, f"s.{kind}")) == [1, 2, 3]
    penstock_spark.write(frame(spark, 4), f"s.{kind}", format=kind, mode="append")
    assert found(penstock_spark.read(spark, f"s.{kind}")) == [1, 2, 3, 4]
    penstock_spark.write(frame(spark, 9), f"new.{kind}", format=kind)
    assert found(penstock_spark.read(spark, f"new.{kind}")) == [9]


@pytest.mark.verify
def test_absolute_paths_of_the_old_place_are_followed(lake: Lake, spark: SparkSession) -> None:
    assert found(penstock_spark.read(spark, "s.odd")) == [1, 2]
    assert found(spark.read.format("penstock").options(lake=lake.url, table="s.odd").load()) == [1, 2]
    penstock_spark.write(frame(spark, 3), "s.odd", mode="append")
    assert found(penstock_spark.read(spark, "s.odd")) == [1, 2, 3]
