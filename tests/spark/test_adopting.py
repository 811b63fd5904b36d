"""Writing without Penstock's jar: what a finished job has left is what is adopted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import UnsupportedFeature
from penstock.formats.delta.lake.job_outputs import CHANGES, JobTarget
from penstock.formats.delta.spark.job import jobs
from penstock.lake.lake import Lake
from penstock.spark.writer import write
from tests.spark.reading_tables import using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bare(spark: SparkSession) -> SparkSession:
    """A session that has to do without our jar."""
    return using(spark, "fallback")


def test_a_session_is_told_once_what_it_lacks(
    bare: SparkSession, lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = JobTarget(place=lake.places.open_place(str(tmp_path / "table")))
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        jobs.write_rows(bare.range(1), target, uuid4())
        jobs.write_rows(bare.range(1), target, uuid4())
    (told,) = [one.getMessage() for one in caplog.records if one.name == "penstock.spark"]
    assert "jar is not in this Spark session" in told


def test_ids_of_elements_are_not_written_without_the_jar(bare: SparkSession, lake: Lake) -> None:
    rows, suits = bare.sql("SELECT array(1) AS l"), {"delta.enableIcebergCompatV2": "true"}
    with pytest.raises(UnsupportedFeature, match="without Penstock's jar: write its rows without Spark"):
        write(rows, "shop.orders", lake=lake, properties=suits)


def test_jobs_write_apart_and_leave_nothing_but_their_files(
    bare: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root = tmp_path / "a table"
    target = JobTarget(place=lake.places.open_place(str(root)), partition_by=("p",), has_changes=True)
    rows = bare.sql(f"select id, id = 1 as {CHANGES}, 'a b' as p from range(2)").coalesce(1)
    job = uuid4()
    files = {one.is_change: one for one in jobs.write_rows(rows, target, job)}
    assert {one.partition for one in files.values()} == {"p=a b"}
    assert files[True].name.startswith(f"_change_data/job={job.hex}/p=a b/part-")
    assert files[False].name.startswith(f"_penstock/data/job={job.hex}/p=a b/part-")
    lying = {one for one in root.rglob("*") if one.is_file() and one.suffix != ".crc"}
    assert lying == {root / one.name for one in files.values()}
    jobs.write_rows(rows, target, uuid4())
    assert len(list(root.rglob("*.parquet"))) == 4


def test_the_feed_tells_the_very_rows_that_the_table_gets(
    bare: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    place = lake.places.open_place(str(tmp_path / "table"))
    target = JobTarget(place=place, has_changes=True, subdirectory="_penstock/data")
    rows = bare.sql(
        f"select explode(array(true, false)) as {CHANGES}, id from "
        "(select reflect('java.util.UUID', 'randomUUID') as id from range(20))"
    )
    files = jobs.write_rows(rows, target, job := uuid4())
    told = {one.name: pq.read_table(f"{place.url}/{one.name}")["id"].to_pylist() for one in files}
    changes = f"_penstock/data/_change_data/job={job.hex}/"
    assert all(one.is_change == one.name.startswith(changes) for one in files)
    fed = [id_ for name, ids in told.items() if name.startswith(changes) for id_ in ids]
    kept = [id_ for name, ids in told.items() if not name.startswith(changes) for id_ in ids]
    assert len(set(fed)) == 20
    assert sorted(fed) == sorted(kept)


def test_a_job_whose_changes_cannot_be_written_leaves_nothing(
    bare: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root, job = tmp_path / "table", uuid4()
    stray = root / "_change_data" / f"job={job.hex}" / "part-0.parquet"
    stray.parent.mkdir(parents=True)
    stray.touch()
    rows = bare.sql(f"select id, id = 1 as {CHANGES} from range(2)")
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        jobs.write_rows(rows, JobTarget(place=lake.places.open_place(str(root)), has_changes=True), job)
    assert [one for one in root.rglob("*.parquet") if "_penstock" in one.parts] == []


def test_a_footer_that_is_larger_than_most_is_read_whole(
    bare: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    names = [f"a column with a rather long name {number}" for number in range(400)]
    rows = bare.range(1).selectExpr(*(f"id as `{name}`" for name in names)).coalesce(1)
    target = JobTarget(place=lake.places.open_place(str(tmp_path / "wide")), columns=((names[-1],),))
    (file,) = jobs.write_rows(rows, target, uuid4())
    assert file.rows == 1
    (column,) = file.columns
    assert (column.path, column.nulls, column.min) == ((names[-1],), 0, bytes(8))


def test_what_others_keep_in_the_folder_is_not_adopted(
    bare: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    from penstock.formats.delta.spark.job.job_without_jar import _list_output

    root = tmp_path / "table"
    target = JobTarget(place=lake.places.open_place(str(root)))
    job = uuid4()
    (file,) = [one for one in jobs.write_rows(bare.range(1), target, job) if one.rows]
    folder = root / "_penstock" / "data" / f"job={job.hex}"
    data = (root / file.name).read_bytes()
    late = folder / "_temporary" / "0" / "attempt_1"
    late.mkdir(parents=True)
    for stray in (
        late / "part-1.parquet",
        folder / "_metadata.parquet",
        folder / ".part.parquet",
        folder / "x.crc",
    ):
        stray.write_bytes(data)
    found = _list_output(target.place, f"_penstock/data/job={job.hex}", target)
    assert [one.name for one in found if one.rows] == [file.name]
