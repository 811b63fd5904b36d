"""An option that names the lake is refused where Spark would take no notice of it, and write to the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import configure, write
from penstock.spark.jar import COMMIT_PROTOCOL_SETTING, has_protocol
from penstock.spark.settings import TABLES
from tests.spark.conftest import hide_classes
from tests.spark.files.cases import ids, jobs, rows
from tests.spark.reading_tables import SPARKS_OWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = {"penstock.table": "a.f"}


def uses(spark: SparkSession, path: str) -> list[Callable[[], Any]]:
    stream = spark.readStream.format("rate").load()
    directory = f"insert overwrite directory '{path}' using csv"
    return [
        lambda: rows(spark, 0).write.option("penstock.table", "a.f").parquet(path),
        lambda: rows(spark, 0).write.option(key="Penstock.Table", value="a.f"),
        lambda: rows(spark, 0).write.options(**NAMED).csv(path),
        lambda: rows(spark, 0).write.save(path, "json", **NAMED),
        lambda: stream.writeStream.options(**NAMED).start(path, format="parquet"),
        lambda: spark.sql(f"{directory} options ('penstock.table'='x') select 1"),
        lambda: spark.sql("create table t (id long) using parquet options (a 'b', penstock.table 'x')"),
    ]


@pytest.mark.parametrize("lack", ["classes", "protocol"])
def test_a_write_that_names_the_lake_is_refused_without_the_jar(
    spark: SparkSession, lake: Lake, tmp_path: Path, lack: str
) -> None:
    spark.conf.set(COMMIT_PROTOCOL_SETTING, SPARKS_OWN)
    if lack == "classes":
        hide_classes(spark)
    for use in uses(spark, str(tmp_path / "out")):
        with pytest.raises(InvalidRequest, match=r"'[Pp]enstock\.[Tt]able' needs Penstock, .* path only"):
            use()
    if lack == "classes":
        with pytest.raises(InvalidRequest, match=r"'penstock\.ref' needs Penstock"):
            spark.read.option("penstock.ref", "main").parquet(str(tmp_path))
    assert not (tmp_path / "out").exists()
    assert spark.sql("select 'options (penstock.table' as text").first()[0] == "options (penstock.table"  # type: ignore[index]
    write(rows(spark, 0), "a.f", format="parquet")  # what the error advises
    assert ids(lake, "a.f") == [0, 1, 2]


def test_a_session_that_has_the_jar_takes_them(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    if not has_protocol(spark):
        pytest.skip("Penstock's jar is not in this Spark")
    rows(spark, 0).write.mode("append").options(**NAMED).parquet(str(tmp_path / "out"))
    assert (ids(lake, "a.f"), len(jobs(lake))) == ([0, 1, 2], 1)


def test_paths_of_a_setting_are_refused_as_those_of_the_argument(spark: SparkSession, lake: Lake) -> None:
    hide_classes(spark)
    builder = type(spark).builder.config(TABLES, '{"/data/x": "raw.x"}')
    with pytest.raises(InvalidRequest, match="'tables' would have no effect"):
        configure(builder, lake)
