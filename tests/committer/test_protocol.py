"""Spark's calls of the commit protocol, in orders in which a scheduler may make them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "5e"
MESSAGE_MAX_BYTES = 128 * 1024 * 1024
"""What Spark sends at most, unless it is told otherwise: `spark.rpc.message.maxSize`."""


class Calls:
    """The protocol of a job, as a driver has it, and tasks of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        jvm: Any = spark._jvm
        self._jvm, self._root = jvm, root
        self.protocol = jvm.io.penstock.spark.CommitProtocol(JOB, root.as_uri(), False)
        self.context = self._context(0, 0)

    def task(self, number: int, attempt: int = 0) -> Task:
        protocol = self._jvm.io.penstock.spark.CommitProtocol(JOB, self._root.as_uri(), False)
        return Task(self._jvm, protocol, self._context(number, attempt))

    def commit(self, *messages: Any) -> list[str]:
        """Commit the job; the names of the files that its driver is told of."""
        given = self._jvm.java.util.ArrayList()
        for one in messages:
            given.add(one)
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self.protocol.commitJob(self.context, converters.asScala(given).toSeq())
        return names(self._jvm.io.penstock.spark.CommitProtocol.take(JOB))

    def _context(self, number: int, attempt: int) -> Any:
        configuration = self._jvm.org.apache.hadoop.conf.Configuration()
        for name in ("penstock.attempt", "penstock.attempt"):
            configuration.set(name, JOB)
        configuration.set("penstock.footers", "false")
        mapreduce = self._jvm.org.apache.hadoop.mapreduce
        id_ = mapreduce.TaskAttemptID("202611150000", 0, mapreduce.TaskType.MAP, number, attempt)
        return mapreduce.task.TaskAttemptContextImpl(configuration, id_)


class Task:
    """An attempt of a task, as an executor has it."""

    def __init__(self, jvm: Any, protocol: Any, context: Any) -> None:
        self._jvm, self._protocol, self._context = jvm, protocol, context
        protocol.setupTask(context)

    def write(self, folder: str = "") -> Path:
        """A file with a byte in it."""
        option = self._jvm.scala.Option.apply(folder) if folder else self._jvm.scala.Option.empty()
        spec = self._jvm.org.apache.spark.internal.io.FileNameSpec("", ".c000.csv")
        file = Path(urlsplit(self._protocol.newTaskTempFile(self._context, option, spec)).path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1")
        return file

    def commit(self) -> Any:
        return self._protocol.commitTask(self._context)

    def abort(self) -> None:
        self._protocol.abortTask(self._context)


def names(packed: bytes) -> list[str]:
    return sorted(json.loads(line)["name"] for line in gzip.decompress(packed).splitlines())


@pytest.fixture
def calls(spark: SparkSession, tmp_path: Path) -> Calls:
    if not jar.has_protocol(spark):
        pytest.skip("there is no jar")
    found = Calls(spark, tmp_path)
    found.protocol.setupJob(found.context)
    return found


def test_property_15_a_task_that_commits_twice_says_the_same_twice_and_counts_once(calls: Calls) -> None:
    task = calls.task(3)
    files = [task.write(), task.write("p=1")]
    first, second = task.commit(), task.commit()
    assert bytes(first.obj()) == bytes(second.obj())
    assert len(calls.commit(second)) == len(files)
    assert all(file.exists() for file in files)


def test_property_16_a_task_that_never_committed_gives_the_job_nothing(calls: Calls) -> None:
    done, left = calls.task(0), calls.task(1)
    kept, lost = done.write(), left.write()
    assert calls.commit(done.commit()) == [kept.name]
    assert lost.exists(), "it may still be at work"


def test_property_13_attempts_of_one_task_with_one_number_never_share_a_file(calls: Calls) -> None:
    """As when a stage is tried again. The one that is aborted takes nothing of the other's."""
    first, second = calls.task(3, attempt=0), calls.task(3, attempt=0)
    kept, gone = first.write("p=1"), second.write("p=1")
    assert kept != gone
    message = first.commit()
    second.commit()
    second.abort()
    assert (kept.exists(), gone.exists()) == (True, False)
    assert calls.commit(message) == [f"p=1/{kept.name}"]


def test_properties_18_19_tasks_with_no_file_with_many_and_in_the_same_folder_all_count(calls: Calls) -> None:
    empty, one, other = calls.task(0), calls.task(1), calls.task(2)
    files = [one.write("a=1/b=2/c=3"), other.write("a=1/b=2/c=3"), other.write("a=1/b=2/c=3"), other.write()]
    told = calls.commit(empty.commit(), one.commit(), other.commit())
    assert [Path(name).name for name in told] == [file.name for file in sorted(files, key=_below)]
    assert len(set(told)) == 4


def _below(file: Path) -> str:
    return f"a=1/b=2/c=3/{file.name}" if file.parent.name == "c=3" else file.name


def test_property_22_a_job_is_aborted_twice_and_before_it_was_set_up(
    spark: SparkSession, calls: Calls, tmp_path: Path
) -> None:
    unborn = Calls(spark, tmp_path / "unborn")
    unborn.protocol.abortJob(unborn.context)
    unborn.protocol.abortJob(unborn.context)
    task = calls.task(0)
    file = task.write()
    calls.protocol.onTaskCommit(task.commit())
    calls.protocol.abortJob(calls.context)
    calls.protocol.abortJob(calls.context)
    assert not file.exists()


def test_property_33_a_partition_with_a_place_of_its_own_is_refused(calls: Calls) -> None:
    with pytest.raises(Exception, match="does not support adding files with an absolute path"):
        calls.protocol.newTaskTempFileAbsPath(calls.context, "file:/elsewhere", None)


def test_property_53_what_a_task_tells_of_its_files_is_small(calls: Calls) -> None:
    """Ten thousand files, each below folders of half a kilobyte, are far from what Spark can send."""
    task = calls.task(0)
    for number in range(20):
        task.write(f"{number:02d}{'x' * 250}=1/{'y' * 250}=2")
    told = len(bytes(task.commit().obj()))
    assert told / 20 * 10_000 < MESSAGE_MAX_BYTES / 8
