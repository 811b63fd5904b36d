"""Jobs whose lake is behind a server: the same, and nothing but their requests passes through it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import CommitConflict
from penstock.formats.files.lake import job_markers as files_beside
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from tests.remote.serving import serving
from tests.spark.files.cases import after_writing, entries, ids, in_pool, jobs, repeated, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def remote(lake: Lake) -> Iterator[Lake]:
    """The test's lake, as a client of its server has it."""
    with serving(lake.catalogue) as served, penstock.open(served.url) as opened:
        yield opened


def test_a_job_lands_once_and_is_known_to_all(
    spark: SparkSession, lake: Lake, remote: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_beside, "SENT_MAX", 1)
    first = save(rows(spark, 0, parts=(1, 2)), lake=remote, partition_by="p", job_id="nightly")
    assert save(rows(spark, 0, parts=(1, 2)), lake=remote, job_id="nightly") == repeated(first)
    assert ids(lake, "raw.events") == ids(remote, "raw.events") == [10, 11, 12, 20, 21, 22]
    assert [one.state for one in jobs(lake)] == [JobState.COMMITTED]


def test_a_refused_job_leaves_nothing(
    spark: SparkSession, lake: Lake, remote: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_writing(monkeypatch, lambda: lake.table("raw.events").files.put("by/hand", b"1"))
    with pytest.raises(CommitConflict, match=r"'raw\.events' has files"):
        save(rows(spark, 0), lake=remote, mode="error", job_branch=True)
    assert in_pool(lake) == {one.address for one in entries(lake, "raw.events")}
    assert [one.state for one in jobs(lake)] == [JobState.ABORTED]
    assert lake.branches("jobs/") == []
