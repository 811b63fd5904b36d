"""How values are stored in the files of a table does not hang on the session that writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from penstock.formats.delta.spark.job.jobs import SETTINGS
from penstock.formats.rows.arrow_types import pq
from penstock.lake.lake import Lake
from penstock.spark import merge
from penstock.spark.job.parquet_settings import (
    MICROSECONDS,
    TIMESTAMPS,
    UNSHREDDED,
    hold_settings,
    unset_settings,
)
from penstock.spark.writer import write
from tests.spark.reading_tables import in_each_engine, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = "select 1 as id, timestamp'9999-12-31 00:00:00.123456 UTC' as until"
CHOICES = {
    TIMESTAMPS: ("INT96", "TIMESTAMP_MILLIS", None),
    "spark.sql.parquet.writeLegacyFormat": ("true",),
    "spark.sql.parquet.fieldId.write.enabled": ("false",),
}


def stored(lake: Lake, key: str) -> set[str]:
    """How the files of a Delta table keep its times."""
    table = lake.table(key)
    files = [Path(table.location, one.path) for one in table.snapshot().files()]
    return {str(pq.ParquetFile(one).schema.column(1).logical_type) for one in files}


@in_each_engine
@pytest.mark.parametrize("chosen", CHOICES[TIMESTAMPS])
def test_times_are_kept_in_microseconds_whatever_the_session_says(
    spark: SparkSession, lake: Lake, engine: str, chosen: str | None
) -> None:
    pa = pytest.importorskip("pyarrow")
    deltalake = pytest.importorskip("deltalake")
    spark = using(spark, engine)
    if chosen is None:
        spark.conf.unset(TIMESTAMPS)
    else:
        spark.conf.set(TIMESTAMPS, chosen)
    write(spark.sql(FAR), "x.t")
    more = merge(spark.sql(FAR.replace("1 as", "2 as")), "x.t", "target.id = source.id")
    more.when_not_matched_insert({"id": "source.id", "until": "source.until"}).commit()
    assert len(stored(lake, "x.t")) == 1
    assert "microseconds" in stored(lake, "x.t").pop()
    table = lake.table("x.t")
    table.backfill_to_version()
    for rows in (table.to_arrow(), pa.table(deltalake.DeltaTable(table.location).to_pyarrow_table())):
        found = rows["until"].cast(pa.timestamp("us", "UTC")).to_pylist()
        assert {str(one) for one in found} == {"9999-12-31 00:00:00.123456+00:00"}
    assert (spark.conf.get(TIMESTAMPS), chosen) in {("INT96", None), (chosen, chosen)}


def test_files_of_other_tables_are_written_as_the_session_chooses_and_else_in_microseconds(
    spark: SparkSession, lake: Lake
) -> None:
    def kind(key: str) -> str:
        (file,) = lake.table(key).files.list()
        return str(pq.ParquetFile(file.address).schema.column(1).physical_type)

    spark.conf.unset(TIMESTAMPS)
    write(spark.sql(FAR), "raw.default", format="parquet")
    spark.conf.set(TIMESTAMPS, "INT96")
    write(spark.sql(FAR), "raw.chosen", format="parquet")
    assert (kind("raw.default"), kind("raw.chosen")) == ("INT64", "INT96")


def test_jobs_at_once_hold_settings_together_and_leave_them_as_they_were(
    spark: SparkSession, lake: Lake
) -> None:
    for name, (first, *_) in CHOICES.items():
        spark.conf.set(name, str(first))
    spark.conf.unset(TIMESTAMPS)
    both = Barrier(2, timeout=60)

    def delta() -> dict[str, Any]:
        with hold_settings(spark, SETTINGS):
            both.wait()
            both.wait()  # the other one has ended
            return {name: spark.conf.get(name) for name in SETTINGS}

    def files() -> None:
        both.wait()
        with hold_settings(spark, unset_settings(spark, MICROSECONDS)):
            pass
        both.wait()

    with ThreadPoolExecutor(2) as threads:
        held, other = threads.submit(delta), threads.submit(files)
        other.result(60)
        assert held.result(60) == SETTINGS
    assert spark.conf.get(TIMESTAMPS) == "INT96"
    assert spark.conf.get("spark.sql.parquet.writeLegacyFormat") == "true"
    assert unset_settings(spark, SETTINGS) == {**MICROSECONDS, **UNSHREDDED}


def test_many_writes_of_one_session_at_once_store_the_same(spark: SparkSession, lake: Lake) -> None:
    spark.conf.set(TIMESTAMPS, "INT96")
    write(spark.sql(FAR), "x.t")
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, spark.sql(FAR), "x.t") for _ in range(8)]:
            done.result(60)
    assert len(stored(lake, "x.t")) == 1
    assert spark.conf.get(TIMESTAMPS) == "INT96"
