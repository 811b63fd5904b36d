"""Streams one table into another, and is killed when the first batch has landed: see ``test_streams``."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import penstock
from penstock.spark.sessions import session
from penstock.spark.streams import sink, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    lake = penstock.open(url)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {"spark.ui.enabled": False, "spark.driver.extraJavaOptions": quick}
    spark = session(lake, master="local[2]", conf=conf)
    write = sink(target)

    def write_and_die(rows: DataFrame, batch: int) -> None:
        write(rows, batch)
        os.kill(os.getpid(), signal.SIGKILL)

    rows = stream(spark, source, max_files_per_trigger=1).selectExpr("id * 10 AS id")
    query = rows.writeStream.foreachBatch(write_and_die).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
