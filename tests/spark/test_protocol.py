"""The commit protocol: where files of a job go, what the driver is told, and what is none of its work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.lake.job_outputs import CHANGES, JobTarget
from penstock.formats.delta.spark.job import jobs
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = r"%s-00000-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-]c000\.zstd\.parquet"
PART, CDC = NAME % "part", NAME % "cdc"


@pytest.mark.parametrize(
    ("changes", "partitioned", "prefix_length", "subdirectory", "expected"),
    [
        pytest.param(False, False, 0, "", {("", PART)}, id="plain"),
        pytest.param(False, True, 0, "", {("p=a%2Fb", f"p=a%2Fb/{PART}")}, id="partition"),
        pytest.param(False, True, 3, "", {("p=a%2Fb", f"[A-Za-z0-9]{{3}}/{PART}")}, id="prefix"),
        pytest.param(False, True, 0, "sub/dir", {("p=a%2Fb", f"sub/dir/p=a%2Fb/{PART}")}, id="subdirectory"),
        pytest.param(True, False, 0, "", {("", PART), ("", f"_change_data/{CDC}")}, id="changes"),
        pytest.param(
            True,
            True,
            0,
            "",
            {("p=a%2Fb", f"p=a%2Fb/{PART}"), ("p=a%2Fb", f"_change_data/p=a%2Fb/{CDC}")},
            id="changes of a partition",
        ),
        pytest.param(
            True,
            True,
            2,
            "sub",
            {
                ("p=a%2Fb", f"sub/[A-Za-z0-9]{{2}}/{PART}"),
                ("p=a%2Fb", f"sub/_change_data/[A-Za-z0-9]{{2}}/{CDC}"),
            },
            id="everything",
        ),
    ],
)
def test_files_go_where_the_job_says_and_the_driver_is_told(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    changes: bool,
    partitioned: bool,
    prefix_length: int,
    subdirectory: str,
    expected: set[tuple[str, str]],
) -> None:
    root = tmp_path / "a table"
    flags = "false, true" if changes else "false"
    rows = spark.sql(f"select 1L as id, explode(array({flags})) as {CHANGES}, 'a/b' as p").coalesce(1)
    target = JobTarget(
        place=lake.places.open_place(str(root)),
        partition_by=("p",) if partitioned else (),
        has_changes=changes,
        subdirectory=subdirectory,
        prefix_length=prefix_length,
        columns=(("id",),),
    )
    files = jobs.write_rows(rows if changes else rows.drop(CHANGES), target, uuid4())
    assert len(files) == len(expected)
    for partition, pattern in expected:
        (found,) = [one for one in files if re.fullmatch(pattern, one.name)]
        assert found.partition == partition
        assert found.is_change == ("cdc" in pattern)
        assert (root / found.name).stat().st_size == found.size
        assert found.rows == 1
        assert [(one.path, one.min) for one in found.columns] == [(("id",), (1).to_bytes(8, "little"))]


def test_a_write_of_somebody_else_in_the_same_session_is_sparks_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "plain"
    spark.sql("select id, id % 2 as p from range(4)").write.partitionBy("p").parquet(str(place))
    assert (place / "_SUCCESS").exists()
    assert {one.name for one in place.iterdir() if one.is_dir()} == {"p=0", "p=1"}
    spark.sql("select 9L as id, 1L as p").write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy("p").parquet(str(place))
    assert sorted(row.id for row in spark.read.parquet(str(place)).collect()) == [0, 2, 9]


def test_a_job_that_fails_takes_the_files_of_its_tasks_along(spark: SparkSession, tmp_path: Path) -> None:
    protocol, context = _task(spark, tmp_path)
    protocol.setupJob(context)
    message, file = _committed(spark, protocol, context)
    protocol.onTaskCommit(message)
    assert file.exists()
    protocol.abortJob(context)
    assert not file.exists()
    protocol.abortJob(context)


def test_a_task_that_fails_takes_its_own_files_along_and_no_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    protocol, context = _task(spark, tmp_path)
    _, first = _committed(spark, protocol, context)
    _, second = _committed(spark, protocol, context)
    assert first != second
    protocol.abortTask(context)
    assert first.exists()
    assert not second.exists()


def test_what_a_job_writes_is_nobodys_when_it_fails(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    root = tmp_path / "table"
    target = JobTarget(place=lake.places.open_place(str(root)))
    job = uuid4()
    # One task, so that none is left that still runs when the job is over.
    rows = spark.sql("select if(id = 7, raise_error('no'), id) as id from range(0, 8, 1, 1)")
    with pytest.raises(Exception, match="USER_RAISED"):
        jobs.write_rows(rows, target, job)
    assert _protocol(spark).take(job.hex) is None
    assert list(root.rglob("*.parquet")) == []


def test_the_files_of_a_job_are_given_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    job = uuid4()
    target = JobTarget(place=lake.places.open_place(str(tmp_path / "table")))
    assert sum(one.rows for one in jobs.write_rows(spark.range(1), target, job)) == 1
    assert _protocol(spark).take(job.hex) is None


def test_absolute_paths_are_refused_for_our_jobs(spark: SparkSession) -> None:
    protocol, context = _task(spark)
    with pytest.raises(
        Exception, match=r"does not support adding files with an absolute path \(file:/elsewhere\)"
    ):
        protocol.newTaskTempFileAbsPath(context, "file:/elsewhere", _spec(spark))


def test_what_the_protocol_does_is_logged_when_its_logger_is_switched_on(spark: SparkSession) -> None:
    assert spark._jvm is not None
    log4j: Any = spark._jvm.org.apache.logging.log4j
    logger = log4j.LogManager.getLogger("io.penstock.spark.CommitProtocol")
    written = spark._jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, written, "told", False, True)
    appender.start()
    logger.addAppender(appender)
    protocol, context = _task(spark)
    protocol.setupTask(context)
    assert written.toString() == ""
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.DEBUG)
    try:
        protocol.setupTask(context)
        protocol.newTaskTempFile(context, spark._jvm.scala.Option.apply("p=1"), _spec(spark))
    finally:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.WARN)
        logger.removeAppender(appender)
    told = written.toString()
    assert re.search(r"job 5e: task attempt_\S+ begins", told)
    assert re.search(r"job 5e: task attempt_\S+ writes p=1/part-00003-", told)


def _protocol(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.io.penstock.spark.CommitProtocol


def _task(spark: SparkSession, root: Path | None = None) -> tuple[Any, Any]:
    """A protocol and the third task of a job of ours, as an executor has them."""
    jvm: Any = spark._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("penstock.attempt", "5e")
    mapreduce = jvm.org.apache.hadoop.mapreduce
    attempt = mapreduce.TaskAttemptID("202611150000", 0, mapreduce.TaskType.MAP, 3, 0)
    context = mapreduce.task.TaskAttemptContextImpl(configuration, attempt)
    place = "file:/table" if root is None else root.as_uri()
    return _protocol(spark)("5e", place, False), context


def _committed(spark: SparkSession, protocol: Any, context: Any) -> tuple[Any, Path]:
    """A task that has written a file: what it tells the driver, and the file."""
    protocol.setupTask(context)
    jvm: Any = spark._jvm
    name = protocol.newTaskTempFile(context, jvm.scala.Option.empty(), _spec(spark))
    file = Path(urlsplit(name).path)
    pq.write_table(pa.table({"id": [1]}), file)
    return protocol.commitTask(context), file


def _spec(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.internal.io.FileNameSpec("", ".c000.zstd.parquet")
