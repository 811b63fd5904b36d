"""Output: Spark writes the rows of a DataFrame to files in a job's own folder, and tells which these are.

The files are durable, and no part of any table. Where the session has Penstock's jar, tasks write straight to
the files' final names, which come to the driver in the tasks' messages. Where it has not, and over Spark
Connect, Spark's own committer moves the files of the attempts that count into the folder once the whole job
is done, and what lies there then is the list.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.save_job import JobFile, JobOutput, TaskFile, make_job_output
from penstock.lake.job_files import remove_files
from penstock.spark import jar
from penstock.spark.addresses import spark_address
from penstock.spark.job import durable_files, own_committer
from penstock.spark.job.parquet_settings import MICROSECONDS, hold_settings, unset_settings
from penstock.spark.job.task_files import take_files
from penstock.spark.row_refusals import raise_refusals
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

COUNT_TIMEOUT_S: Final = 30.0
COUNT_POLL_S: Final = 0.005

_NO_SOURCE: Final = ("[DATA_SOURCE_NOT_FOUND]", "Failed to find data source")
"""What Spark says of a format that it does not know, in errors of several classes."""
_AVRO: Final = "org.apache.spark:spark-avro_2.13"


class OutputTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job writes, and how."""

    pool: Place
    """Of the lake."""
    folder: str
    """The attempt's own, below the pool, with a slash at its end."""
    format: str
    """As Spark names it."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}
    """For Spark's writer."""


def write_output(df: DataFrame, target: OutputTarget, attempt: UUID) -> JobOutput:
    """Write all rows, and return the files that hold them, each row once. Without rows there are no files.

    ``attempt`` is new for every run. ``InvalidRequest`` for a format that this Spark has not, or that does
    not write files; else whatever Spark raises comes through. What is left in the folder then is the caller's
    to remove.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    durable_files.make_root(target.pool, target.folder)
    counted = Observation()
    observed = df.observe(counted, f.count(f.lit(1)).alias("rows"))
    writer = observed.write.format(target.format).mode("append").options(**target.options)
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    spark = df.sparkSession
    with _own_errors_raised(target.format), hold_settings(spark, unset_settings(spark, MICROSECONDS)):
        if jar.has_protocol(spark):
            files = _write_with_own_committer(spark, writer, target, attempt)
        else:
            own_committer.warn_of_renames(spark)
            files = _write_and_list(writer, target)
    finished_output = make_job_output(files, _observed_row_count(counted))
    if not finished_output.files:
        remove_files(target.pool, [target.folder + file.path for file in files])
    return finished_output


def _write_with_own_committer(
    spark: Any, writer: DataFrameWriter, target: OutputTarget, attempt: UUID
) -> list[JobFile]:
    writer = writer.options(**{"penstock.attempt": attempt.hex, "penstock.footers": "false"})
    writer.save(_make_target_url(target))
    files = take_files(spark, attempt, TaskFile)
    if files is None:
        raise _no_files_error(target)
    return [file.job_file for file in files]


def _write_and_list(writer: DataFrameWriter, target: OutputTarget) -> list[JobFile]:
    writer.options(**own_committer.COMMITTER).save(_make_target_url(target))
    is_disk = "://" not in target.pool.url
    files = [
        _make_job_file(target.folder, entry, is_disk)
        for entry in target.pool.entries(target.folder)
        if _is_data(entry.key.removeprefix(target.folder))
    ]
    durable_files.make_durable(target.pool, (target.folder + file.path for file in files))
    return files


def _make_job_file(folder: str, entry: BucketEntry, is_disk: bool) -> JobFile:
    path = entry.key.removeprefix(folder)
    tag = "" if is_disk else (entry.tag.etag or "").strip('"')
    return JobFile(
        path=path,
        partition=path.rpartition("/")[0],
        size=entry.size,
        modified_us=entry.modified_us,
        checksum=f"etag:{tag}" if tag else "",
    )


def _is_data(path: str) -> bool:
    """Whether a file below the job's folder is one of its rows: not what Hadoop keeps beside them."""
    first, last = path.partition("/")[0], path.rpartition("/")[2]
    return first != "_temporary" and not last.startswith((".", "_"))


def _observed_row_count(counted: Any) -> int | None:
    """How many rows Spark has counted; ``None`` if it does not say.

    The number comes to the driver by a queue that drops what is too much for it, and Spark itself would wait
    for ever then.
    """
    metrics = getattr(counted, "_jo", None)  # over Spark Connect it has come with the answer
    deadline_s = time.monotonic() + COUNT_TIMEOUT_S
    while metrics is not None and not metrics.future().isCompleted():
        if time.monotonic() > deadline_s:
            return None
        time.sleep(COUNT_POLL_S)
    rows: int | None = counted.get.get("rows")
    return rows


def _make_target_url(target: OutputTarget) -> str:
    return spark_address(f"{target.pool.url.rstrip('/')}/{target.folder.rstrip('/')}")


@contextmanager
def _own_errors_raised(name: str) -> Iterator[None]:
    """Raise Spark's error as the Penstock error that caused it, if there is one."""
    try:
        with raise_refusals():
            yield
    except Exception as problem:
        if not any(text in str(problem) for text in _NO_SOURCE):
            raise
        way = f"\n  Start Spark with spark.jars.packages={_AVRO}:…, with the version of this Spark."
        raise InvalidRequest(
            f"this Spark cannot write files of the format '{name}'{way if name.lower() == 'avro' else ''}",
            format=name,
        ) from None


def _no_files_error(target: OutputTarget) -> InvalidRequest:
    return InvalidRequest(
        f"Spark's data source '{target.format}' does not write files through Spark's commit protocol, so "
        "Penstock cannot determine what it wrote; use a file format, such as 'parquet'",
        format=target.format,
    )
