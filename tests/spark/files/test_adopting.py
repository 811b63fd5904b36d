"""Writing files without Penstock's jar: Spark's own committer, and the same promises."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import CommitConflict, InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import write
from tests.spark.files.cases import (
    about,
    after_writing,
    by_folder,
    entries,
    head,
    ids,
    in_pool,
    jobs,
    paths,
    rows,
    save,
)
from tests.spark.reading_tables import using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bare(spark: SparkSession) -> SparkSession:
    """A session that has to do without our jar."""
    return using(spark, "fallback")


def test_a_session_is_told_what_it_lacks(
    bare: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        save(rows(bare, 0))
    assert "jar is not in this Spark session" in caplog.text
    assert ids(lake, "raw.events") == [0, 1, 2]


@pytest.mark.parametrize("name", ["orc", "csv", "json"])
def test_every_format_becomes_files_and_nothing_beside_them(
    bare: SparkSession, lake: Lake, name: str
) -> None:
    done = write(rows(bare, 0), "raw.events", format=name, success_file=True)
    assert done is not None
    assert done.commit is not None
    marker, file = entries(lake, "raw.events")
    assert (marker.path, file.path.endswith(f".{name}")) == ("_SUCCESS", True)
    assert file.size == Path(file.address).stat().st_size
    assert in_pool(lake) == {marker.address, file.address}
    assert done.commit.properties["rows"] == ("3",)


@pytest.mark.verify
def test_modes_mean_the_same(bare: SparkSession, lake: Lake) -> None:
    save(rows(bare, 0, parts=(1, 2)), partition_by="p", mode="error")
    save(rows(bare, 500, parts=(2,)), mode="overwrite", partition_overwrite="dynamic")
    assert by_folder(lake, "raw.events") == {"p=1": [10, 11, 12], "p=2": [520, 521, 522]}
    with pytest.raises(CommitConflict, match="already has files"):
        save(rows(bare, 0, parts=(1,)), mode="error")
    assert save(rows(bare, 0, parts=(1,)), mode="ignore") is None
    save(rows(bare, 0, parts=(1,)).where("id < 0"), mode="overwrite", partition_overwrite="static")
    assert (paths(lake, "raw.events"), about(lake, "raw.events").layout.partition_by) == ([], ("p",))


@pytest.mark.verify
def test_a_job_that_fails_or_is_refused_leaves_nothing(
    bare: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="no such row"):
        save(bare.range(4).selectExpr("if(id = 3, raise_error('no such row'), id) as id"))
    with pytest.raises(InvalidRequest, match="'nowhere'"):
        write(rows(bare, 0), "raw.events", format="nowhere")
    after_writing(monkeypatch, lambda: lake.table("raw.events").files.put("by/hand", b"1"))
    with pytest.raises(CommitConflict):
        save(rows(bare, 0), mode="error")
    before = head(lake)
    assert {one.state for one in jobs(lake)} == {"aborted"}
    assert in_pool(lake) == {one.address for one in entries(lake, "raw.events")}
    assert head(lake) == before
