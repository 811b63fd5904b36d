"""Writes and reads a table over Spark Connect, and prints what errors come to: see ``test_failures``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark.spark_errors import unwrap


def main(url: str, key: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"lake": url, "table": key}
    missing = {**options, "table": "sales.nothing"}
    spark.range(3).write.format("penstock").options(**options).mode("append").save()
    print(spark.read.format("penstock").options(**options).load().count())
    print(name_of(lambda: spark.read.format("penstock").options(**missing).load().count()))
    wrong = spark.range(3).withColumnRenamed("id", "other")
    print(name_of(lambda: wrong.write.format("penstock").options(**options).mode("append").save()))
    spark.stop()


def name_of(work: Callable[[], Any]) -> str:
    """The kind of the error of Penstock that is behind what Spark raises."""
    try:
        work()
    except Exception as error:
        return type(unwrap(error)).__name__
    return "nothing"


if __name__ == "__main__":
    main(*sys.argv[1:])
