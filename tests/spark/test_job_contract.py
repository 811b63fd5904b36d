"""What every job of Spark's does, whichever way it commits: by Penstock's protocol, or by Spark's committer.

``jobs.write_rows`` is one function with two implementations. Writes, updates, deletions, merges and streams
stand on it, and are tested with the jar, and once each without it. So what the two may differ in is tested
here, and in ``test_footers.py`` what they tell of columns.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.lake.job_outputs import CHANGES, JobTarget, ParquetOutput
from penstock.formats.delta.spark.job import jobs
from penstock.lake.lake import Lake
from tests.spark.reading_tables import ENGINES, using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    return using(spark, request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a table"


def run(df: DataFrame, lake: Lake, root: Path, **how: Any) -> list[ParquetOutput]:
    """A job of its own."""
    return jobs.write_rows(df, JobTarget(place=lake.places.open_place(str(root)), **how), uuid4())


def lying(root: Path) -> set[str]:
    """The data files that are there, whether a job tells of them or not."""
    return {one.relative_to(root).as_posix() for one in root.rglob("*.parquet")}


def rows_in(root: Path, file: ParquetOutput) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.ParquetFile(root / file.name).read().to_pylist()
    return found


def test_each_row_is_in_one_file_that_is_told_and_no_other_file_is_there(
    engine: SparkSession, lake: Lake, root: Path
) -> None:
    files = run(engine.range(0, 30, 1, 3), lake, root)
    assert sorted(row["id"] for one in files for row in rows_in(root, one)) == list(range(30))
    assert [one.rows for one in files] == [10, 10, 10]
    assert {one.name for one in files} == lying(root)
    assert {(one.partition, one.is_change) for one in files} == {("", False)}
    for one in files:
        stat = (root / one.name).stat()
        assert (one.size, one.modified_ms) == (stat.st_size, stat.st_mtime_ns // 1_000_000)


def test_jobs_at_one_place_have_files_of_their_own(engine: SparkSession, lake: Lake, root: Path) -> None:
    first, second = (run(engine.range(0, 4, 1, 1), lake, root, subdirectory="sub") for _ in range(2))
    names = [one.name for one in (*first, *second)]
    assert len(set(names)) == len(names) == 2
    assert set(names) == lying(root)


@pytest.mark.parametrize("prefix_length", [0, 3], ids=["named", "spread"])
def test_a_partition_is_told_as_spark_names_its_folder_and_is_in_no_file(
    engine: SparkSession, lake: Lake, root: Path, prefix_length: int
) -> None:
    rows = engine.createDataFrame(
        [(1, "a/b", 7), (2, "ü = %", 7), (3, None, 7), (4, "a/b", None)], "id long, p string, q int"
    ).coalesce(1)
    files = run(rows, lake, root, partition_by=("p", "q"), prefix_length=prefix_length)
    null = "__HIVE_DEFAULT_PARTITION__"
    assert {one.partition: [row["id"] for row in rows_in(root, one)] for one in files} == {
        "p=a%2Fb/q=7": [1],
        "p=ü %3D %25/q=7": [2],
        f"p={null}/q=7": [3],
        f"p=a%2Fb/q={null}": [4],
    }
    assert {tuple(row) for one in files for row in rows_in(root, one)} == {("id",)}
    assert {one.name for one in files} == lying(root)


def test_files_have_the_columns_of_the_rows_in_their_order_and_of_their_types(
    engine: SparkSession, lake: Lake, root: Path
) -> None:
    rows = engine.sql(
        "select 1 as z, 'p' as part, named_struct('y', array(1L), 'x', map('k', date'2024-02-29')) as `a b`, "
        "timestamp'2024-01-01 00:00:00' as at, timestamp_ntz'2024-01-01 00:00:00' as local, "
        "cast(1.5 as decimal(20,2)) as money, unhex('ff') as raw"
    )
    (file,) = run(rows, lake, root, partition_by=("part",))
    kept = [one for one in rows.schema if one.name != "part"]
    assert pq.read_schema(root / file.name).names == [one.name for one in kept]
    read = engine.read.parquet(str(root / file.name)).schema
    assert [one.dataType.simpleString() for one in read] == [one.dataType.simpleString() for one in kept]


@pytest.mark.parametrize("by", [(), ("p",)], ids=["plain", "partitioned"])
def test_changes_are_files_apart_and_rows_of_which_nothing_is_said_are_none(
    engine: SparkSession, lake: Lake, root: Path, by: tuple[str, ...]
) -> None:
    rows = engine.createDataFrame(
        [(1, None, "a"), (2, False, "a"), (3, True, "a"), (4, True, "b")],
        f"id long, {CHANGES} boolean, p string",
    ).coalesce(1)
    rows = rows if by else rows.drop("p")
    files = run(rows, lake, root, has_changes=True, partition_by=by, subdirectory="sub")
    told = Counter((one.is_change, one.partition, row["id"]) for one in files for row in rows_in(root, one))
    part = {name: f"p={name}" if by else "" for name in "ab"}
    assert told == Counter(
        [(False, part["a"], 1), (False, part["a"], 2), (True, part["a"], 3), (True, part["b"], 4)]
    )
    assert {tuple(row) for one in files for row in rows_in(root, one)} == {("id",)}
    assert {one.is_change: "/_change_data/" in f"/{one.name}" for one in files} == {True: True, False: False}
    assert {one.name for one in files} == lying(root)


def test_a_partition_column_with_the_name_of_ours_is_a_partition_column(
    engine: SparkSession, lake: Lake, root: Path
) -> None:
    rows = engine.sql(f"select id, id = 1 as {CHANGES} from range(2)").coalesce(1)
    files = run(rows, lake, root, partition_by=(CHANGES,))
    assert {(one.partition, one.is_change) for one in files} == {
        (f"{CHANGES}=true", False),
        (f"{CHANGES}=false", False),
    }


@pytest.mark.parametrize("has_changes", [False, True], ids=["rows", "rows and changes"])
def test_a_job_whose_task_fails_raises_its_error_and_leaves_no_file(
    engine: SparkSession, lake: Lake, root: Path, has_changes: bool
) -> None:
    # One task, so that none is left that still runs when the job is over.
    failing = "if(id = 7, raise_error('no such row'), id) as id"
    rows = engine.sql(f"select {failing}, id % 2 = 0 as {CHANGES} from range(0, 8, 1, 1)")
    with pytest.raises(Exception, match="no such row"):
        run(rows if has_changes else rows.drop(CHANGES), lake, root, has_changes=has_changes)
    assert lying(root) == set()


@pytest.mark.parametrize("by", [(), ("p",)], ids=["plain", "partitioned"])
def test_without_rows_no_file_is_told_that_has_any(
    engine: SparkSession, lake: Lake, root: Path, by: tuple[str, ...]
) -> None:
    files = run(engine.sql("select id, id as p from range(0)"), lake, root, partition_by=by)
    assert sum(one.rows for one in files) == 0
    assert {one.name for one in files} == lying(root)


def test_options_reach_the_parquet_writer(engine: SparkSession, lake: Lake, root: Path) -> None:
    options = {"maxRecordsPerFile": "2", "compression": "gzip"}
    files = run(engine.range(0, 5, 1, 1), lake, root, options=options)
    assert sorted(one.rows for one in files) == [1, 2, 2]
    assert {pq.read_metadata(root / one.name).row_group(0).column(0).compression for one in files} == {"GZIP"}


def test_only_columns_that_are_wanted_and_there_are_told_of(
    engine: SparkSession, lake: Lake, root: Path
) -> None:
    rows = engine.sql("select 1L as id, named_struct('x', 2L, 'y', 3L) as part, 'p' as p").coalesce(1)
    (file,) = run(rows, lake, root, columns=(("id",), ("part", "y"), ("gone",), ("p",)), partition_by=("p",))
    told = [one for one in file.columns if one.nulls >= 0]
    assert [(one.path, one.type, one.nulls, one.min, one.max) for one in told] == [
        (("id",), "INT64", 0, (1).to_bytes(8, "little"), (1).to_bytes(8, "little")),
        (("part", "y"), "INT64", 0, (3).to_bytes(8, "little"), (3).to_bytes(8, "little")),
    ]
