"""Spark with S3, in a process of its own, for its class path is: writes tables of a lake, step by step.

    python program.py LAKE ENDPOINT JAR[,JAR…]

The tables are in the bucket that the environment opens; Spark gets there by the endpoint. Each step is a line
of the input, and is answered with a line of JSON: the version that the table has then, or what was read. The
program ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import penstock
import penstock.spark
from penstock.spark.session_lakes import get_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.requests import WriteResult

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
KEY = "sales.orders"


def main() -> None:
    address, endpoint, jars = sys.argv[1:]
    # Whatever else is printed, by the Java machine too, goes to the errors; the output holds answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with penstock.open(address, author="spark") as lake:
        spark = penstock.spark.session(lake, master="local[2]", conf=_settings(endpoint, jars))
        spark.range(1).count()
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(STEPS[line.strip()](spark)), file=answers, flush=True)
        spark.stop()


def _settings(endpoint: str, jars: str) -> dict[str, str]:
    return {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        # A name is never used twice, so it need not be looked for before a file is made.
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    }


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, 1, 4).selectExpr(
        "id",
        "element_at(array('plain', 'a b', 'ü/%=:?#&', '100%', NULL), CAST(id % 5 AS INT) + 1) AS kind",
        "CAST(id / 4 AS DECIMAL(10, 2)) AS amount",
        "timestamp_micros(1767225600000000 + id) AS at",
    )


def create(spark: SparkSession) -> Any:
    properties = {"delta.enableChangeDataFeed": "true"}
    made = penstock.spark.write(rows(spark, 0, 40), KEY, partition_by=["kind"], properties=properties)
    return _version(made)


def append(spark: SparkSession) -> Any:
    made = penstock.spark.write(rows(spark, 100, 40), KEY)
    return _version(made)


def append_plain(spark: SparkSession) -> Any:
    made = penstock.spark.write(rows(spark, 0, 400), "sales.plain")
    return _version(made)


def overwrite_some(spark: SparkSession) -> Any:
    some = rows(spark, 200, 40).where("kind = 'a b'")
    made = penstock.spark.write(some, KEY, mode="overwrite", partition_overwrite="dynamic")
    return _version(made)


def update(spark: SparkSession) -> Any:
    made = penstock.spark.update(spark, KEY, {"amount": "amount + 1"}, "id = 3 OR id = 104")
    return _version(made)


def branch(spark: SparkSession) -> Any:
    lake = get_lake(spark)
    lake.branch("side").create()
    penstock.spark.write(rows(spark, 300, 40), KEY, branch="side")
    lake.merge("side")
    return lake.table(KEY).version


def read(spark: SparkSession) -> Any:
    return sorted(_plain(row) for row in penstock.spark.read(spark, KEY).collect())


def changes(spark: SparkSession) -> Any:
    feed = penstock.spark.changes(spark, KEY, 0).select("id", "_change_type", "_commit_version")
    return sorted(list(row) for row in feed.collect())


def _version(made: WriteResult | None) -> int | None:
    return None if made is None else made.version


def _plain(row: Any) -> list[str]:
    return [str(row["id"]).zfill(6), str(row["kind"]), str(row["amount"]), str(row["at"])]


STEPS: dict[str, Callable[[SparkSession], Any]] = {
    step.__name__: step
    for step in (create, append, append_plain, overwrite_some, update, branch, read, changes)
}


if __name__ == "__main__":
    main()
