"""Streams by name: ``readStream.table`` and ``writeStream.toTable`` of a lake's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest, NotManaged, PenstockError
from penstock.lake.lake import Lake
from penstock.spark.spark_errors import unwrap
from tests.spark.sql_session import run
from tests.transactions.pipelines import ids, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def copy(stream: DataFrame, table: str, checkpoint: Path, mode: str = "append") -> None:
    """Stream into a table what there is, and end."""
    query = stream.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).toTable(table).awaitTermination()


def test_a_stream_reads_one_table_and_writes_another_by_their_names(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.table("s.a").write(rows(1))
    lake.table("s.a").write(rows(2))
    stream = spark.readStream.option("maxFilesPerTrigger", 1).table("lake.s.a").where("id < 5")
    copy(stream, "lake.s.b", tmp_path / "checkpoint")
    assert ids(lake, "s.b") == [1, 2]
    lake.table("s.a").write(rows(3, 9))
    copy(spark.readStream.table("lake.s.a").where("id < 5"), "lake.s.b", tmp_path / "checkpoint")
    assert ids(lake, "s.b") == [1, 2, 3]
    assert lake.transactions() == []


@pytest.mark.verify
def test_a_stream_stays_on_the_branch_that_it_began_on(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.table("s.a").write(rows(1))
    lake.table("s.b").write(rows(0))
    lake.branch("dev").create()
    lake.table("s.a", "dev").write(rows(2))
    run(spark, "USE REFERENCE dev IN lake")
    stream = spark.readStream.table("lake.s.a")
    query = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("lake.s.b")
    # What the session does next is no part of the stream.
    run(spark, "USE REFERENCE main IN lake", "BEGIN TRANSACTION IN lake")
    query.processAllAvailable()
    query.stop()
    run(spark, "ROLLBACK IN lake")
    assert ids(lake, "s.b", "dev") == [0, 1, 2]
    assert ids(lake, "s.b") == [0]


@pytest.mark.verify
def test_the_mode_complete_replaces_the_rows(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    lake.table("s.a").write(rows(1, 2))
    for expected in (2, 3):
        counted = spark.readStream.table("lake.s.a").groupBy().count().withColumnRenamed("count", "id")
        copy(counted, "lake.s.n", tmp_path / "checkpoint", "complete")
        assert ids(lake, "s.n") == [expected]
        lake.table("s.a").write(rows(3))


def test_what_cannot_be_streamed_is_refused_before_the_stream_begins(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.table("s.a").write(rows(1))
    lake.table("s.f").write(rows(1), format="parquet")

    def refusal(source: str, target: str, mode: str = "append", **options: str) -> PenstockError | None:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, the caller asks
            copy(spark.readStream.options(**options).table(source), target, tmp_path / "checkpoint", mode)
        return unwrap(caught.value)

    assert isinstance(refusal("lake.s.f", "lake.s.a"), NotManaged)
    assert isinstance(refusal("lake.s.a", "lake.s.f"), NotManaged)
    assert isinstance(refusal("lake.s.a", "lake.s.a", "update"), InvalidRequest)
    assert isinstance(refusal("lake.s.a", "lake.s.a", startingVerson="0"), InvalidRequest)
    run(spark, "BEGIN TRANSACTION IN lake")
    assert isinstance(refusal("lake.s.a", "lake.s.a"), InvalidRequest)
    run(spark, "ROLLBACK IN lake")
    assert ids(lake, "s.a") == [1]
