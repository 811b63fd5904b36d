"""What tests of writing files share: what a table has afterwards, and moments that jobs wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import PenstockError
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo, JobInfo
from penstock.formats.files.lake.calls import GetFilesTable, ListFiles, ListJobs
from penstock.formats.files.lake.save_job import JobOutput
from penstock.formats.files.spark import output
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark import write
from penstock.spark.requests import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 60

Result = TypeVar("Result")


def entries(lake: Lake, key: str, ref: str | None = None) -> list[FileEntry]:
    return [*lake.do(ListFiles(key=Key.parse(key), at=ref, limit=1000))]


def paths(lake: Lake, key: str, ref: str | None = None) -> list[str]:
    return [one.path for one in entries(lake, key, ref)]


def about(lake: Lake, key: str, ref: str | None = None) -> FilesTableInfo:
    return lake.do(GetFilesTable(key=Key.parse(key), at=ref))


def ids(lake: Lake, key: str, ref: str | None = None) -> list[int]:
    """The values of the column ``id`` in all Parquet files of a table."""
    found = [pq.read_table(one.address, partitioning=None) for one in entries(lake, key, ref)]
    return sorted(value for one in found for value in one.column("id").to_pylist())


def by_folder(lake: Lake, key: str) -> dict[str, list[int]]:
    """The same, by the folder that the files are in."""
    found: dict[str, list[int]] = {}
    for one in entries(lake, key):
        values = pq.read_table(one.address, partitioning=None).column("id").to_pylist()
        found.setdefault(one.path.rpartition("/")[0], []).extend(values)
    return {folder: sorted(values) for folder, values in found.items()}


def in_pool(lake: Lake) -> set[str]:
    """The files in the lake's pool, whether a table has them or not."""
    found = Path(lake.warehouse).glob("_penstock/data/2*/**/*")
    return {str(one) for one in found if one.is_file() and not one.name.startswith(".")}


def jobs(lake: Lake) -> list[JobInfo]:
    """All jobs that are known, newest first."""
    return [*lake.do(ListJobs(all=True))]


def head(lake: Lake, branch: str | None = None) -> str:
    return lake.branch(branch).head


def rows(spark: SparkSession, first: int, *, parts: Sequence[int] = ()) -> DataFrame:
    """Three rows in one file, with ids from ``first``; or three in each of some partitions by ``p``."""
    if not parts:
        return spark.range(first, first + 3, numPartitions=1)
    values = [(first + 10 * part + n, part) for part in parts for n in range(3)]
    return spark.createDataFrame(values, "id long, p int").coalesce(1)


def repeated(done: WriteResult | None) -> WriteResult:
    """What is told who asks again for a job that is done."""
    assert done is not None
    return msgspec.structs.replace(done, rows=None, is_repeated=True)


def save(df: DataFrame, key: str = "raw.events", mode: str = "append", **more: Any) -> WriteResult | None:
    return write(df, key, format="parquet", mode=mode, **more)


def after_writing(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], Any]) -> None:
    """Have something happen whenever a job has written its files, and before it commits them."""
    original = output.write_output

    def run(*given: Any) -> JobOutput:
        done = original(*given)
        happen()
        return done

    monkeypatch.setattr(output, "write_output", run)


def together(monkeypatch: pytest.MonkeyPatch, *work: Callable[[], Result]) -> list[Result | PenstockError]:
    """Run jobs at once: none commits before all have written. Returns what each came to."""
    all_written = Barrier(len(work))
    after_writing(monkeypatch, lambda: all_written.wait(WAIT_S))

    def one(do: Callable[[], Result]) -> Result | PenstockError:
        try:
            return do()
        except PenstockError as problem:
            return problem

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(one, work))
