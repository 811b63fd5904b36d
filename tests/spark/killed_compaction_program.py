"""Compacts a table with Spark, by a function or by SQL, or appends to it so that it is compacted, and is
killed at a step: see ``test_killed_compactions``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import penstock
from penstock.formats.delta.lake.calls import CommitTables
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.spark.job import files
from penstock.formats.delta.spark.rewrites import compaction
from penstock.lake.lake import Lake
from penstock.spark.sessions import session
from penstock.spark.upkeep import optimize
from penstock.spark.writer import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_between_files(rows: DataFrame, *options: Any, **more: Any) -> Any:
    """Write some files by tasks one after the other, of which the second one kills the driver.

    Its JVM first: it would notice that Python is gone, and remove the files of its job in time.
    """
    gateway: Any = rows.sparkSession.sparkContext._gateway
    driver = (gateway.proc.pid, os.getpid())

    def kill(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() > 0:
            for process in driver:
                os.kill(process, signal.SIGKILL)
        yield from batches

    return files.write_files(rows.mapInArrow(kill, rows.schema), *options, **more)


def die_at(step: str) -> None:
    """Die at a step of a compaction, whatever it was asked by."""
    commit, do = DeltaJob.commit_actions, Lake.do

    def dying_do(lake: Lake, call: Any, *more: Any) -> Any:
        """The commit is sent, decided and written, and its answer never comes."""
        answer = do(lake, call, *more)
        if isinstance(call, CommitTables):
            die()
        return answer

    def dying_commit(job: DeltaJob, *options: Any, **more: Any) -> Any:
        if step == "before the commit":
            die()
        if step == "before the answer":
            Lake.do = dying_do  # type: ignore[method-assign, assignment]
        landed = commit(job, *options, **more)
        die()
        return landed

    def then_die_in_commit(*options: Any, **more: Any) -> Any:
        if step == "before the rewrite":
            die()
        written = files.write_files(*options, **more)
        DeltaJob.commit_actions = dying_commit  # type: ignore[method-assign, assignment]
        return written

    dying = die_between_files if step == "between the files" else then_die_in_commit
    setattr(compaction, "write_files", dying)  # noqa: B010 - a name that the module imports


def main(url: str, how: str, step: str) -> None:
    lake = penstock.open(url, author="tester")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {"spark.ui.enabled": False, "spark.driver.extraJavaOptions": quick}
    spark = session(lake, master="local[1]", conf=conf)
    die_at(step)
    if how == "optimize":
        optimize(spark, "t")
    elif how == "call":
        spark.sql("CALL lake.system.optimize('t')").collect()
    else:
        write(spark.sql("SELECT 1000L AS id, 'a' AS day").coalesce(1), "t", mode="append")


if __name__ == "__main__":
    main(*sys.argv[1:])
