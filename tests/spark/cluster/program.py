"""A driver: a Spark program of its own, so that it can be killed.

    python program.py MASTER FAULTS.jar LAKE

Each job is a line of the input, and is answered with a line of JSON: see ``jobs``. The program ends at once
with its input.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import penstock.spark
from penstock.errors import PenstockError
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.spark.requests import WriteResult
from tests.remote.patience import set_patience
from tests.spark.cluster.jobs import Answer, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENT = RemoteTimeouts(answer_timeout_s=60.0, total_s=120.0, wait_max_s=0.2, settle_s=0.5)
IMPATIENT = RemoteTimeouts(answer_timeout_s=3.0, total_s=4.0, wait_max_s=0.2, settle_s=0.5)


def main() -> None:
    master, faults, address = sys.argv[1:]
    # Whatever else is printed, by the Java machine too, goes to the errors; the output holds answers only.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(jobs,), daemon=True).start()
    with Lake(RemoteCatalogue(address), author="driver") as first:
        spark = penstock.spark.session(first, master=master, conf=_settings(faults))
        answers.write(b"ready\n")
        while True:
            job = msgspec.json.decode(jobs.get(), type=Job)
            # Behind the address there may be another lake than before.
            with Lake(RemoteCatalogue(address, patience=PATIENT), author="driver") as lake:
                set_patience(lake, IMPATIENT if job.is_impatient else PATIENT)
                answers.write(msgspec.json.encode(_answer(spark, lake, job)) + b"\n")


def _hear(jobs: queue.SimpleQueue[bytes]) -> None:
    """Take orders, also while a job runs: the end of them is the end of everything."""
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


def _settings(faults: str) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.memory": "512m",
        # One executor on each host, which leaves room for another driver's.
        "spark.executor.cores": "2",
        "spark.cores.max": "4",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # On the machines' own paths: the file system is needed before a session's jars are there.
        "spark.driver.extraClassPath": faults,
        "spark.executor.extraClassPath": faults,
        "spark.plugins": "faults.Faults",
        "spark.hadoop.fs.file.impl": "faults.FaultyFiles",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        # Otherwise only attempts that read little in their time get a second one, and these read nothing.
        "spark.speculation.efficiency.enabled": "false",
        "spark.excludeOnFailure.enabled": "false",
        "spark.sql.warehouse.dir": str(Path.cwd() / "warehouse"),
    }


def _answer(spark: SparkSession, lake: Lake, job: Job) -> Answer:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    spark.sparkContext.setLocalProperty("faults", ";".join(job.faults))
    try:
        done = _written(spark, lake, job)
    except PenstockError as problem:
        return Answer(error=type(problem).__name__, message=str(problem))
    except (PySparkException, Py4JError) as problem:
        return Answer(error=type(problem).__name__, message=str(problem))
    return Answer(commit="" if done is None or done.commit is None else done.commit.id)


def _written(spark: SparkSession, lake: Lake, job: Job) -> WriteResult | None:
    rows = _rows(spark, job)
    if job.is_plain:
        _write_plainly(rows, job)
        return None
    if job.format is not None:
        return penstock.spark.write(
            rows,
            job.key,
            lake=lake,
            format=job.format,
            mode=job.mode,
            branch=job.branch,
            job_branch=job.job_branch,
            job_id=job.idempotency_key,
        )
    return penstock.spark.write(
        rows,
        job.key,
        lake=lake,
        mode=job.mode,
        branch=job.branch,
        idempotency_key=job.idempotency_key,
    )


def _write_plainly(rows: DataFrame, job: Job) -> None:
    """By Spark's own call; what came of it, the lake knows."""
    options = {"penstock.table": job.key, "penstock.mode": job.mode, "penstock.job_id": job.idempotency_key}
    given = {name: value for name, value in options.items() if value is not None}
    writer = rows.write.format(job.format or "parquet").mode("append").options(**given)
    writer.save(str(Path.cwd() / "nowhere"))


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    """Numbers, so many in each task, with the points in the middle and at the end of a task's rows."""
    within, middle, last = f"(id - {job.first}) % {job.rows}", job.rows // 2, job.rows - 1
    point = f"CASE {within} WHEN {middle} THEN 'middle' WHEN {last} THEN 'last' ELSE '' END"
    rows = spark.range(job.first, job.first + job.tasks * job.rows, 1, job.tasks)
    if job.is_shuffled:
        return rows.repartition(job.tasks, "id").selectExpr("id", f"{job.kind} AS kind")
    return rows.selectExpr("id", f"{job.kind} AS kind").where(
        f"java_method('faults.Faults', 'row', {point}) IS NOT NULL"
    )


if __name__ == "__main__":
    main()
