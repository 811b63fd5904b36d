"""Attempts of tasks that write files and fail, are killed, come twice or late: each row is there once."""

from __future__ import annotations

import pytest

from tests.spark.cluster.drivers import Driver
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import wait_until
from tests.spark.cluster.test_attempts import POINTS

DEATHS = [
    pytest.param("start", id="K1 before it is set up", marks=pytest.mark.reliability),
    pytest.param("middle", id="K2 while it writes", marks=pytest.mark.reliability),
    pytest.param("closed", id="K3 before it commits", marks=pytest.mark.reliability),
    pytest.param("commit", id="K4 while it commits", marks=pytest.mark.reliability),
    pytest.param("committed", id="K5 before the driver hears of it"),
]


@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.reliability)])
def test_properties_1_8_17_tasks_that_fail_at_any_point_are_done_again(
    spark: Driver, events: FilesScene, kind: str
) -> None:
    """Whatever an attempt had done when it failed: one attempt's files of each task are there, no others."""
    faults = tuple(f"{point} fail {task} 1" for task, point in enumerate(POINTS))
    job = Job(format=kind, tasks=len(POINTS), faults=faults)
    with events.watched([], list(job.ids)):
        answer = spark.do(job)
    events.check_landed(answer.commit, job)
    # An attempt that had committed does not remove what it wrote.
    assert events.leftovers(POINTS.index("committed"))


@pytest.mark.parametrize("point", DEATHS)
def test_properties_8_9_an_executor_that_is_killed_takes_no_row_with_it_and_leaves_none_twice(
    spark: Driver, events: FilesScene, point: str
) -> None:
    job = Job(format="parquet", faults=(f"{point} die 0 1",))
    with events.watched([], list(job.ids)):
        answer = spark.do(job)
    events.check_landed(answer.commit, job)
    assert bool(events.leftovers(0)) == (point != "start")
    events.sweep()


def test_property_10_of_two_attempts_that_commit_at_the_same_time_one_is_taken(
    spark: Driver, events: FilesScene
) -> None:
    both = events.gate()
    job = Job(format="csv", faults=(f"commit wait 0 2 {both}",))
    with events.watched([], list(job.ids)):
        spark.begin(job)
        both.wait(0)
        both.wait(1)
        both.go()
        answer = spark.answer()
    events.check_landed(answer.commit, job)


def test_property_11_a_stage_that_is_tried_again_has_attempts_of_the_same_number_and_each_row_once(
    spark: Driver, events: FilesScene
) -> None:
    """A task of the first try is cut off while it commits, and is let go when the job has landed."""
    slow, lost, over = events.gate(), events.gate(), events.gate()
    faults = (
        f"create wait 0 1 {lost}",
        "create fetch 0 1",
        f"commit wait 1 1 {slow}",
        f"committed wait 1 1 {over}",
    )
    job = Job(format="csv", is_shuffled=True, tasks=4, faults=faults)
    with events.watched([], list(job.ids)):
        spark.begin(job)
        lost.wait()
        slow.wait()
        lost.go()
        answer = spark.answer()
        slow.go()
        over.wait()
    over.go()
    assert "FetchFailed(" in spark.log.read_text(errors="replace")  # a whole stage was tried again
    events.check_landed(answer.commit, job)
    assert events.leftovers(1)


def test_properties_12_14_an_attempt_that_commits_when_the_job_has_landed_changes_nothing(
    spark: Driver, events: FilesScene
) -> None:
    """It was cut off, another attempt was faster, and it goes on as if nothing had been."""
    slow, over = events.gate(), events.gate()
    job = Job(format="csv", faults=(f"commit wait 0 1 {slow}", f"committed wait 0 1 {over}"))
    with events.watched([], list(job.ids)):
        answer = spark.do(job)
        slow.wait_for_interrupt()
        slow.go()
        over.wait()
    events.check_landed(answer.commit, job)
    over.go()
    more = Job(format="csv", first=1000)
    events.check_landed(spark.do(more).commit, job, more)
    assert events.leftovers(0)
    events.sweep()


def test_property_13_an_attempt_that_is_aborted_late_removes_its_own_file_only(
    spark: Driver, events: FilesScene
) -> None:
    slow = events.gate()
    job = Job(format="csv", faults=(f"middle wait 0 1 {slow}", "middle fail 0 1"))
    answer = spark.do(job)
    assert events.leftovers(0)
    slow.go()
    wait_until(lambda: not events.leftovers(0))
    events.check_landed(answer.commit, job)


def test_properties_5_14_an_attempt_that_goes_on_when_the_job_was_aborted_is_never_seen(
    spark: Driver, events: FilesScene
) -> None:
    """The job would have overwritten the table. It can be run again under its name."""
    first = Job(format="csv")
    before = spark.do(first).commit
    slow, over, failure = events.gate(), events.gate(), events.gate()
    faults = (
        f"commit wait 0 1 {slow}",
        f"committed wait 0 1 {over}",
        f"last wait 1 1 {failure}",
        "last fail 1 100",
    )
    failing = Job(format="csv", first=1000, mode="overwrite", idempotency_key="tonight", faults=faults)
    with events.watched(list(first.ids)):
        spark.begin(failing)
        slow.wait()
        failure.wait()
        failure.go()
        assert "a fault at last" in spark.answer().message
        assert events.head == before
        slow.go()
        over.wait()
        assert events.head == before
    again = Job(format="csv", first=1000, mode="overwrite", idempotency_key="tonight")
    with events.watched(list(first.ids), list(again.ids)):
        answer = spark.do(again)
    over.go()
    events.check_landed(answer.commit, again)
    events.sweep()
