"""Jobs of Spark whose committers are compared; run by ``committer.py``, in a process of its own.

    python -m benchmarks.committer_spark LAKE ENDPOINT JAR[,JAR…]

Each line of the input is a job, as JSON; it is answered with a line that says how long it took. What opens
the bucket is in the environment. The program ends with its input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

import penstock
import penstock.spark
from penstock.formats.files.lake.calls import BeginJob, WriteFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake

OWN: Final = "ours"
PROTOCOL: Final = "spark.sql.sources.commitProtocolClass"
PARQUET: Final = "spark.sql.parquet.output.committer.class"
VERSION: Final = "mapreduce.fileoutputcommitter.algorithm.version"
FACTORY: Final = "mapreduce.outputcommitter.factory"
SPARKS: Final = {
    PROTOCOL: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    PARQUET: "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
HADOOP: Final = "org.apache.hadoop.mapreduce.lib.output"
CLOUD: Final = "org.apache.spark.internal.io.cloud"
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "v1": SPARKS,
    "v2": SPARKS,
    "manifest": SPARKS,
    "magic": {
        PROTOCOL: f"{CLOUD}.PathOutputCommitProtocol",
        PARQUET: f"{CLOUD}.BindingParquetOutputCommitter",
    },
}
OPTIONS: Final[dict[str, dict[str, str]]] = {
    # Hadoop's default for s3a is another one by now, with which Spark's own protocol writes in place.
    "v1": {VERSION: "1", f"{FACTORY}.scheme.s3a": f"{HADOOP}.FileOutputCommitterFactory"},
    "v2": {VERSION: "2", f"{FACTORY}.scheme.s3a": f"{HADOOP}.FileOutputCommitterFactory"},
    "manifest": {f"{FACTORY}.class": f"{HADOOP}.committer.manifest.ManifestCommitterFactory"},
    "magic": {
        f"{FACTORY}.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
        "fs.s3a.committer.name": "magic",
    },
}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run."""

    committer: str
    """``v1``, ``v2``, ``manifest``, ``magic`` or ``ours``."""
    format: str
    partitions: int = 0
    """One file in each; 0 for a table without partitions."""
    files: int = 1
    rows: int
    place: str
    """A folder that is not there yet; for ours, the name of a table."""


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job took."""

    wall_s: float
    begun_s: float
    """By the clock that the requests are timed with."""
    ended_s: float
    commit_s: float
    """What of it came when all tasks were done: the job's commit."""
    tasks_commit_s: float
    """What the commits of the tasks took, all together."""
    calls: int = 0
    """Ours: of the lake, while it committed."""


def main() -> None:
    address, endpoint, jars = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with penstock.open(address, author="spark") as lake:
        spark = penstock.spark.session(lake, conf=_settings(endpoint, jars))
        own = {name: spark.conf.get(name) for name in SPARKS}
        spark.range(1).count()
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            took = _run(spark, lake, msgspec.json.decode(line, type=Job), own)
            print(msgspec.json.encode(took).decode(), file=answers, flush=True)
        spark.stop()


def _settings(endpoint: str, jars: str) -> dict[str, str]:
    return {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    }


def _run(spark: SparkSession, lake: Lake, job: Job, own: dict[str, Any]) -> Took:
    df = _rows(spark, job)
    if job.committer == OWN:
        for name, value in own.items():
            spark.conf.set(name, value)
        return _ours(df, lake, job)
    for name, value in SETTINGS[job.committer].items():
        spark.conf.set(name, value)
    writer = df.write.format(job.format).options(**OPTIONS[job.committer])
    if job.partitions:
        writer = writer.partitionBy("p")
    begun_s = perf_counter()
    writer.save(job.place)
    ended_s = perf_counter()
    task_s, job_s = _commit_times(spark)
    return Took(
        wall_s=ended_s - begun_s, begun_s=begun_s, ended_s=ended_s, commit_s=job_s, tasks_commit_s=task_s
    )


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    if not job.partitions:
        return spark.range(0, job.rows, 1, job.files).selectExpr(
            "id", "sha2(cast(id AS STRING), 512) AS noise", "id * 1.5 AS amount"
        )
    rows = spark.range(0, job.rows, 1, 4).selectExpr(
        f"id % {job.partitions} AS p", "id", "concat('review ', id) AS review", "CAST(id % 5 AS INT) AS stars"
    )
    return rows.repartition(job.files, "p")


def _ours(df: DataFrame, lake: Lake, job: Job) -> Took:
    with _timed(lake) as timed:
        begun_s = perf_counter()
        penstock.spark.write(
            df, job.place, format=job.format, partition_by=["p"] if job.partitions else None, lake=lake
        )
        ended_s = perf_counter()
    task_s, job_s = _commit_times(df.sparkSession)
    return Took(
        wall_s=ended_s - begun_s,
        begun_s=begun_s,
        ended_s=ended_s,
        commit_s=job_s + timed["s"],
        tasks_commit_s=task_s,
        calls=int(timed["calls"]),
    )


@contextmanager
def _timed(lake: Lake) -> Iterator[dict[str, float]]:
    """What the calls of the lake take that a job makes."""
    told: dict[str, float] = {"s": 0.0, "calls": 0}
    do = lake.catalogue.do

    def timed(call: Any, *more: Any) -> Any:
        begun_s = perf_counter()
        try:
            return do(call, *more)
        finally:
            told["calls"] += 1
            if isinstance(call, BeginJob | WriteFiles):
                told["s"] += perf_counter() - begun_s

    lake.catalogue.do = timed  # type: ignore[assignment]
    try:
        yield told
    finally:
        lake.catalogue.do = do  # type: ignore[method-assign]


def _commit_times(spark: SparkSession) -> tuple[float, float]:
    """What Spark says of its last write: the seconds of the tasks' commits, and of the job's."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    for at in reversed(range(executions.size())):
        execution = executions.apply(at)
        values = store.executionMetrics(execution.executionId())
        found: dict[str, float] = {}
        metrics = execution.metrics()
        for number in range(metrics.size()):
            metric = metrics.apply(number)
            told = values.get(metric.accumulatorId())
            if metric.name() in ("task commit time", "job commit time") and told.isDefined():
                found[metric.name()] = _seconds(str(told.get()))
        if found:
            return found.get("task commit time", 0.0), found.get("job commit time", 0.0)
    return 0.0, 0.0


def _seconds(text: str) -> float:
    """A time as Spark tells it: ``12 ms``, ``3.4 s``, ``1.2 m``, after ``total (…)\\n`` if of several."""
    number, unit = text.splitlines()[-1].split(" (")[0].split()
    return float(number) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[unit]


if __name__ == "__main__":
    main()
