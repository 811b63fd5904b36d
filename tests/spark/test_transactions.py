"""Spark in a transaction: what jobs write lands together, and what DataFrames read is remembered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock import spark as penstock_spark
from penstock.errors import InvalidRequest, MergeConflict
from penstock.lake.lake import Lake
from penstock.lake.transactions.engines import find_spark_session
from penstock.lake.transactions.transaction import Transaction
from penstock.model.keys import Key
from penstock.model.reads import Read
from tests.transactions.pipelines import FORMATS, ids, reads, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(one,) for one in ids], "id long").coalesce(1)


def found(df: DataFrame) -> list[int]:
    return sorted(one[0] for one in df.select("id").collect())


def test_jobs_of_three_formats_land_together(lake: Lake, spark: SparkSession) -> None:
    with lake.transaction() as tx:
        for kind in FORMATS:
            tx.write(frame(spark, 1), f"s.{kind}", format=None if kind == "delta" else kind)
            tx.write(rows(2), f"s.{kind}")
            assert found(tx.read(f"s.{kind}", spark=spark)) == [1, 2]
            assert found(tx.read(f"s.{kind}", spark=spark, where="id > 1", columns=["id"])) == [2]
        tx.view("s.delta", "s.lance", spark=spark)
        assert spark.sql("select * from delta join lance using (id)").count() == 2
        assert lake.tables() == []
    assert [ids(lake, f"s.{kind}") for kind in FORMATS] == [[1, 2], [1, 2], [1, 2]]
    assert len(lake.log()) == 1


def test_what_a_frame_shows_is_read_and_what_it_writes_is_not(lake: Lake, spark: SparkSession) -> None:
    for kind in FORMATS:
        lake.table(f"s.{kind}").write(rows(1, 2), format=kind)
    tx = lake.transaction(isolation="serializable")
    for kind in FORMATS:
        tx.write(frame(spark, 3), f"s.{kind}", format=None if kind == "delta" else kind)
    assert reads(tx, lake) == []
    tx.read("s.delta", spark=spark, where="id > 1")
    tx.read("s.parquet", spark=spark, format="parquet", folder="x", schema="id long")
    tx.read("s.lance", spark=spark)
    assert reads(tx, lake) == [
        Read(key=Key("s", "delta"), part="id > 1"),
        Read(key=Key("s", "lance")),
        Read(key=Key("s", "parquet"), part="x/"),
    ]


@pytest.mark.verify
def test_what_plain_code_of_spark_reads_is_remembered_too(lake: Lake, spark: SparkSession) -> None:
    lake.table("t").write(rows(1, 2))
    tx = lake.transaction()
    source = spark.read.format("penstock").options(lake=lake.url, table="t")
    assert found(source.options(ref=tx.branch, where="id > 1").load()) == [2]
    assert reads(tx, lake) == [Read(key=Key("t"), part="id > 1")]
    frame(spark, 3).write.format("penstock").options(lake=lake.url, table="t", branch=tx.branch).mode(
        "append"
    ).save()
    assert len(reads(tx, lake)) == 1


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_rows_that_are_deleted_by_a_condition_were_looked_at(
    lake: Lake, spark: SparkSession, isolation: str
) -> None:
    lake.table("t").write(rows(1, 2))
    tx = lake.transaction(isolation=isolation)
    penstock_spark.delete(spark, "t", "id >= 2", branch=tx.branch)
    lake.table("t").write(rows(3))
    if isolation == "snapshot":
        tx.land()
        assert ids(lake, "t") == [1, 3]
    else:
        with pytest.raises(MergeConflict, match="'t'"):
            tx.land()
        assert ids(lake, "t") == [1, 2, 3]


def test_a_frame_that_was_read_and_overwritten_is_run_again(lake: Lake, spark: SparkSession) -> None:
    lake.table("t").write(rows(1))
    tries: list[Transaction] = []

    def tenfold(tx: Transaction) -> None:
        tries.append(tx)
        df = tx.read("t", spark=spark).selectExpr("id * 10 as id")
        tx.write(df, "t", mode="overwrite")
        if len(tries) == 1:
            lake.table("t").write(rows(2))

    assert lake.run(tenfold).tries == 2
    assert ids(lake, "t") == [10, 20]


def test_without_a_session_the_way_out_is_told(lake: Lake) -> None:
    tx = lake.transaction()
    given = object()
    assert find_spark_session(given, "") is given
    with ThreadPoolExecutor(1) as thread:  # where no session is active, whatever other tests did
        read = thread.submit(tx.read, "s.t")
        with pytest.raises(InvalidRequest, match=r"read with tx\.table\('s\.t'\)\.to_arrow\(\)"):
            read.result(60)
