"""The life of a job: done once however often it is tried, never after it was aborted, superseded or late."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

import penstock
from penstock.errors import InvalidRequest, JobOver, OutcomeUnknown, PenstockError, Unavailable
from penstock.formats.files.lake.calls import AbortJob, BeginJob, WriteFiles
from penstock.kernel.reachable import show_no_progress
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.spark import ConcurrentJobsWarning
from penstock.spark.requests import WriteResult
from penstock.spark.sessions import session
from tests.spark.files.cases import (
    WAIT_S,
    after_writing,
    entries,
    head,
    ids,
    in_pool,
    jobs,
    repeated,
    rows,
    save,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# -- once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("job_id", UUID(int=7)),
        ("job_id", "a" * 32),
        ("job_id", "nightly 2026-11-15"),
        ("idempotency_key", "nightly"),
    ],
    ids=["uuid", "hexadecimal", "text", "key"],
)
def test_property_6_a_job_that_is_repeated_is_told_what_it_came_to_and_spark_does_not_run(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, argument: str, name: Any
) -> None:
    first = save(rows(spark, 0), **{argument: name})
    after_writing(monkeypatch, lambda: pytest.fail("Spark has run"))
    assert save(rows(spark, 0), mode="error", **{argument: name}) == repeated(first)
    assert len(lake.log()) == 1
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_an_id_is_of_one_job_and_a_job_writes_one_table(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0), job_id="b" * 32)
    with pytest.raises(InvalidRequest, match="give this job another id"):
        save(rows(spark, 0), "raw.other", job_id="b" * 32)
    assert not lake.table("raw.other").exists


def test_a_job_that_had_nothing_to_do_has_nothing_to_do_again(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    before = head(lake)
    nothing = rows(spark, 0).where("id < 0")
    assert save(nothing, job_id="nightly") is None
    assert save(rows(spark, 10), job_id="nightly") is None
    assert head(lake) == before
    assert jobs(lake)[0].state is JobState.COMMITTED


def test_a_job_that_failed_may_be_tried_again(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(penstock.errors.CommitConflict):
        _fill_and_fail(spark)
    lake.table("raw.events").files.delete("there")
    assert save(rows(spark, 0), mode="error", job_id="nightly") is not None
    assert ids(lake, "raw.events") == [0, 1, 2]
    assert [one.state for one in jobs(lake)] == [JobState.COMMITTED]


def _fill_and_fail(spark: SparkSession) -> None:
    from penstock.spark.session_lakes import get_lake

    get_lake(spark).table("raw.events").files.put("there", b"1")
    save(rows(spark, 0), mode="error", job_id="nightly")


# -- never -------------------------------------------------------------------------------------------------


def failing(spark: SparkSession) -> DataFrame:
    """Rows of which the last one cannot be computed, after others were written."""
    return spark.range(0, 4, numPartitions=2).selectExpr("if(id = 3, raise_error('no such row'), id) as id")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_property_5_a_job_that_fails_leaves_the_branch_as_it_was_and_no_files(
    spark: SparkSession, lake: Lake, mode: str
) -> None:
    save(rows(spark, 0))
    before, files = head(lake), in_pool(lake)
    with pytest.raises(Exception, match="no such row"):
        save(failing(spark), mode=mode, success_file=True)
    assert head(lake) == before
    assert jobs(lake)[0].state is JobState.ABORTED
    # An attempt of a task that Spark has not stopped yet may still write: nobody ever sees that.
    deadline = time.monotonic() + WAIT_S
    while in_pool(lake) != files and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {one.address for one in entries(lake, "raw.events")} == in_pool(lake) == files


def test_an_interrupt_ends_the_job(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    after_writing(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(rows(spark, 0))
    assert (jobs(lake)[0].state, jobs(lake)[0].why) == (JobState.ABORTED, "KeyboardInterrupt: ")
    assert in_pool(lake) == set()
    assert not lake.table("raw.events").exists


def test_property_23_a_job_that_somebody_aborts_while_it_runs_does_not_land(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written, is_aborted = Event(), Event()

    def meanwhile() -> None:
        is_written.set()
        assert is_aborted.wait(WAIT_S)

    after_writing(monkeypatch, meanwhile)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(save, rows(spark, 0))
        assert is_written.wait(WAIT_S)
        (job,) = jobs(lake)
        assert lake.do(AbortJob(id=job.id, why="it was a mistake")).state is JobState.ABORTED
        is_aborted.set()
        with pytest.raises(JobOver, match=f"job {job.id} was aborted: it was a mistake"):
            running.result(WAIT_S)
    assert in_pool(lake) == set()
    assert not lake.table("raw.events").exists


def test_property_23_a_job_that_has_landed_cannot_be_aborted(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0), job_id="a" * 32)
    assert lake.do(AbortJob(id="a" * 32)).state is JobState.COMMITTED
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_property_25_of_two_attempts_of_a_job_the_newer_one_lands(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer: list[WriteResult | None] = []

    def begin_again() -> None:
        if not newer:
            newer.append(None)
            newer[0] = save(rows(spark, 10), job_id="nightly")

    after_writing(monkeypatch, begin_again)
    with pytest.raises(JobOver, match="newer attempt"):
        save(rows(spark, 0), job_id="nightly")
    assert ids(lake, "raw.events") == [10, 11, 12]
    assert in_pool(lake) == {one.address for one in entries(lake, "raw.events")}
    assert save(rows(spark, 0), job_id="nightly") == repeated(newer[0])


def test_a_job_that_takes_too_long_does_not_land(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_it_is_late() -> None:
        deadline = time.monotonic() + WAIT_S
        while not jobs(lake)[0].is_late and time.monotonic() < deadline:
            time.sleep(0.01)

    after_writing(monkeypatch, until_it_is_late)
    with pytest.raises(JobOver, match="timed out"):
        save(rows(spark, 0), timeout_s=0.05)
    assert not lake.table("raw.events").exists
    assert in_pool(lake) == set()


# -- answers that are lost -------------------------------------------------------------------------------


def lost(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Callable[[], PenstockError], *, lands: bool
) -> None:
    """Have no answer come to the first commit of a job, which lands or does not."""
    original, pending = lake.catalogue.do, [True]

    def do(call: Call[Any], progress: Any = show_no_progress) -> Any:
        if isinstance(call, WriteFiles) and pending:
            pending.clear()
            if lands:
                original(call, progress)
            raise error()
        return original(call, progress)

    monkeypatch.setattr(lake.catalogue, "do", do)


@pytest.mark.parametrize("lands", [True, False])
def test_property_21_after_a_lost_answer_the_job_can_be_asked_for_again_by_its_id(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    lost(lake, monkeypatch, lambda: OutcomeUnknown("nobody answered"), lands=lands)
    with pytest.raises(OutcomeUnknown, match=r"nobody answered\n  The job is [0-9a-f]{32}") as unknown:
        save(rows(spark, 0))
    assert len(in_pool(lake)) == 1  # a commit may name them
    done = save(rows(spark, 0), job_id=unknown.value.details["job"])
    assert done is not None
    assert done.commit is not None
    assert [one.id for one in lake.log()] == [done.commit.id]
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_files_stay_where_it_is_not_certain_that_they_did_not_land(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(lake, monkeypatch, lambda: Unavailable("the store is gone"), lands=True)
    with pytest.raises(Unavailable):
        save(rows(spark, 0))
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_what_cannot_be_aborted_does_not_hide_why_the_job_failed(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Property 22."""
    original = lake.catalogue.do

    def do(call: Call[Any], progress: Any = show_no_progress) -> Any:
        if isinstance(call, AbortJob):
            raise Unavailable("the store is gone")
        return original(call, progress)

    monkeypatch.setattr(lake.catalogue, "do", do)
    with pytest.raises(Exception, match="no such row"):
        save(failing(spark))


# -- a branch of its own -----------------------------------------------------------------------------------


def test_a_job_may_work_on_a_branch_of_its_own_which_is_gone_afterwards(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    seen: list[list[str]] = []
    after_writing(monkeypatch, lambda: seen.append([one.name for one in lake.branches("jobs/")]))
    done = save(rows(spark, 10), job_branch=True, job_id="b" * 32)
    assert seen == [["jobs/" + "b" * 32]]
    assert lake.branches("jobs/") == []
    assert ids(lake, "raw.events") == [0, 1, 2, 10, 11, 12]
    assert done is not None
    assert done.commit is not None
    assert lake.log(limit=1)[0].id == done.commit.id
    assert done.commit.properties["penstock.job"] == ("b" * 32,)
    assert save(rows(spark, 10), job_branch=True, job_id="b" * 32) == repeated(done)


def test_overwrites_on_branches_of_their_own_do_not_unite(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 10), mode="overwrite", job_branch=True)
    save(rows(spark, 20), mode="overwrite", job_branch=True)
    assert ids(lake, "raw.events") == [20, 21, 22]


def test_property_52_a_job_that_fails_leaves_no_branch(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(Exception, match="no such row"):
        save(failing(spark), job_branch=True)
    assert lake.branches("jobs/") == []


def test_property_20_a_branch_that_a_dead_job_has_left_is_used_by_its_next_attempt(
    spark: SparkSession, lake: Lake
) -> None:
    dead = BeginJob(id="c" * 32, fence=uuid4().hex, key=Key.parse("raw.events"), own_branch=True)
    left = lake.do(dead).job.own_branch
    assert [one.name for one in lake.branches("jobs/")] == [left]
    save(rows(spark, 0), job_branch=True, job_id="c" * 32)
    assert lake.branches("jobs/") == []
    assert ids(lake, "raw.events") == [0, 1, 2]


# -- jobs that meet ----------------------------------------------------------------------------------------


def test_a_job_that_begins_where_another_one_runs_is_told_so_and_where_it_was_called(
    spark: SparkSession, lake: Lake
) -> None:
    other = BeginJob(id="d" * 32, fence=uuid4().hex, key=Key.parse("raw.events"), what="append csv files")
    lake.do(other)
    with pytest.warns(
        ConcurrentJobsWarning, match=rf"on 'main' by other jobs too: {'d' * 32} \(append csv files"
    ) as told:
        save(rows(spark, 0))
    assert [Path(one.filename).name for one in told] == ["cases.py"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(rows(spark, 0), "raw.elsewhere")


def test_a_warning_that_is_an_error_ends_the_job(spark: SparkSession, lake: Lake) -> None:
    lake.do(BeginJob(id="d" * 32, fence=uuid4().hex, key=Key.parse("raw.events")))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConcurrentJobsWarning)
        with pytest.raises(ConcurrentJobsWarning):
            save(rows(spark, 0))
    assert {one.id: one.state for one in jobs(lake)}.pop("d" * 32) is JobState.RUNNING
    assert sorted(one.state for one in jobs(lake)) == ["aborted", "running"]


# -- many files --------------------------------------------------------------------------------------------


def test_more_files_than_a_request_names_are_told_by_a_list_beside_them(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.formats.files.lake import job_markers as files_beside

    monkeypatch.setattr(files_beside, "SENT_MAX", 1)
    save(rows(spark, 0, parts=(1, 2)), partition_by="p")
    assert len(entries(lake, "raw.events")) == 2
    assert len([one for one in in_pool(lake) if one.endswith(".list")]) == 1


def test_a_session_beside_writes_to_its_own_lake(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "other") as other:
        beside = session(other)
        save(rows(beside, 0))
        assert ids(other, "raw.events") == [0, 1, 2]
        assert not lake.table("raw.events").exists
