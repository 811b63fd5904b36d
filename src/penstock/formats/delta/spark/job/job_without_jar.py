"""Jobs without Penstock's jar, and over Spark Connect: Spark's own committer writes, then the files are
adopted.

A job writes into a folder of its own, which no other job uses, and what it tells the change data feed into
another. Spark's committer, in its first version, moves the files of an attempt there only when the whole job
is done; so what lies there then is what the job wrote, and no attempt that comes too late can add to it. The
files stay where they are. This costs a rename of every file, which is a copy in a bucket, and a look at each
footer from here; and where there is a feed, a copy of the rows on the executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.errors import PenstockError, Unavailable
from penstock.formats.delta.lake.footers import READERS, footer_columns
from penstock.formats.delta.lake.job_outputs import CHANGES, JobTarget, ParquetOutput
from penstock.formats.delta.protocol.lint_files import BRANCH_DATA
from penstock.formats.delta.rows.footer_bytes import read_footer_bytes
from penstock.formats.rows.arrow_types import pa, pq
from penstock.spark.addresses import spark_address
from penstock.spark.job import durable_files
from penstock.spark.job.own_committer import COMMITTER, warn_of_renames
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_rows(df: DataFrame, target: JobTarget, job: UUID) -> list[ParquetOutput]:
    """As ``jobs.write_rows``. ``Unavailable`` if the files hold fewer or more rows than Spark says."""
    from pyspark.sql import functions as f

    warn_of_renames(df.sparkSession)
    data = f"{BRANCH_DATA}job={job.hex}"
    if not target.has_changes:
        return _write_rows(df, target, data)
    # Two writes from one set of rows: computed twice, a row could differ from what the feed says of it. Rows
    # that are lost together with an executor fail the job, for they cannot be computed again.
    rows = df.localCheckpoint()
    below = f"{target.subdirectory}/" if target.subdirectory else ""
    is_change = f.coalesce(f.col(CHANGES), f.lit(False))
    files = _write_rows(rows.where(~is_change).drop(CHANGES), target, data)
    try:
        changes = _write_rows(
            rows.where(is_change).drop(CHANGES), target, f"{below}_change_data/job={job.hex}", is_change=True
        )
    except BaseException:
        _remove_attempt(target.place, data)
        raise
    return files + changes


def _write_rows(
    df: DataFrame, target: JobTarget, folder: str, *, is_change: bool = False
) -> list[ParquetOutput]:
    """Write rows into a folder that nobody else uses. If that fails, nothing is left of it, as far as
    possible."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted = Observation()
    observed = df.observe(counted, f.count(f.lit(1)).alias("rows"))
    writer = observed.write.mode("error").options(**target.options, **COMMITTER)
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    try:
        writer.parquet(f"{spark_address(target.place.url)}/{folder}")
        files = _list_output(target.place, folder, target, is_change=is_change)
        _check_rows(files, counted.get["rows"], target.place)
    except BaseException:
        _remove_attempt(target.place, folder)
        raise
    return files


def _list_output(
    place: Place, folder: str, target: JobTarget, *, is_change: bool = False
) -> list[ParquetOutput]:
    """The files that a finished job wrote to its folder."""
    entries = [entry for entry in place.entries(folder) if _is_data(entry.key.removeprefix(f"{folder}/"))]
    durable_files.make_durable(place, (entry.key for entry in entries))
    with ThreadPoolExecutor(READERS) as threads:
        return list(threads.map(lambda one: _make_output(place, folder, one, target, is_change), entries))


def _is_data(name: str) -> bool:
    """Whether a file below the job's folder is one of its rows: not what Hadoop keeps beside them."""
    first, last = name.partition("/")[0], name.rpartition("/")[2]
    return first != "_temporary" and last.endswith(".parquet") and not last.startswith((".", "_"))


def _make_output(
    place: Place, folder: str, entry: BucketEntry, target: JobTarget, is_change: bool
) -> ParquetOutput:
    data = read_footer_bytes(place, entry.key, entry.size)
    if data is None:
        raise Unavailable(f"{place.url}/{entry.key} was written, but cannot be read; nothing was committed")
    footer = pq.read_metadata(pa.BufferReader(data))
    return ParquetOutput(
        name=entry.key,
        partition=entry.key.removeprefix(f"{folder}/").rpartition("/")[0],
        is_change=is_change,
        size=entry.size,
        modified_ms=entry.modified_us // 1000,
        rows=footer.num_rows,
        columns=footer_columns(footer, target.columns),
    )


# -- storage -----------------------------------------------------------------------------------------------


def _check_rows(files: Iterable[ParquetOutput], rows: int, place: Place) -> None:
    row_count = sum(file.rows for file in files)
    if row_count != rows:
        raise Unavailable(
            f"the job wrote {rows} rows to {place.url}, but the files there have {row_count}; nothing was "
            "committed"
        )


def _remove_attempt(place: Place, folder: str) -> None:
    """Remove what a job that failed has left, as far as possible. A sweep finds what an attempt adds
    later."""
    with suppress(PenstockError):
        place.delete([entry.key for entry in place.entries(folder)])
