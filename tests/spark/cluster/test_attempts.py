"""Attempts of tasks that fail, are killed, come twice or come late: the table has each row once."""

from __future__ import annotations

import pytest

from tests.spark.cluster.drivers import Driver
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Scene, wait_until

POINTS = ("create", "middle", "last", "close", "closed", "commit", "committed")


def test_tasks_that_fail_at_any_point_are_done_again_and_leave_each_row_once(
    spark: Driver, scene: Scene
) -> None:
    """Whatever an attempt had done when it failed: one attempt's files of each task are seen, no others."""
    faults = tuple(f"{point} fail {task} 1" for task, point in enumerate(POINTS))
    job = Job(tasks=len(POINTS), faults=faults)
    with scene.watched([], list(job.ids)):
        answer = spark.do(job)
    assert answer.commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
    # An attempt that had committed does not remove what it wrote.
    assert scene.leftovers(POINTS.index("committed"))


@pytest.mark.parametrize("point", ["middle", "committed"])
def test_an_executor_that_is_killed_takes_no_row_with_it_and_leaves_none_twice(
    spark: Driver, scene: Scene, point: str
) -> None:
    """Also when its task had committed and the driver had not heard of it: the task is done again."""
    job = Job(faults=(f"{point} die 0 1",))
    with scene.watched([], list(job.ids)):
        answer = spark.do(job)
    assert answer.commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
    assert scene.leftovers(0)


def test_a_job_that_fails_leaves_the_branch_as_it_was_and_can_be_run_again(
    spark: Driver, scene: Scene
) -> None:
    """Nothing of it is ever seen, nothing committed is removed, and the next job knows nothing of it."""
    first, again = Job(), Job(first=1000)
    spark.do(first)
    before = scene.lake.resolve()
    failing = Job(first=1000, mode="overwrite", faults=("last fail 1 100",))
    with scene.watched(list(first.ids)):
        answer = spark.do(failing)
    assert "a fault at last" in answer.message
    assert scene.lake.resolve() == before
    spark.do(again)
    assert scene.ids() == [*first.ids, *again.ids]


def test_an_attempt_that_commits_when_the_job_is_over_changes_nothing(spark: Driver, scene: Scene) -> None:
    """It was cut off, another attempt was faster, and it goes on as if nothing had been."""
    slow, over = scene.gate(), scene.gate()
    job = Job(faults=(f"commit wait 0 1 {slow}", f"committed wait 0 1 {over}"))
    with scene.watched([], list(job.ids)):
        assert spark.do(job).commit == scene.lake.resolve()
        slow.wait_for_interrupt()
        slow.go()
        over.wait()
    assert scene.ids() == list(job.ids)
    over.go()
    more = Job(first=1000)
    spark.do(more)
    assert scene.ids() == [*job.ids, *more.ids]
    assert scene.leftovers(0)
    scene.sweep()


def test_an_attempt_that_is_aborted_when_the_job_is_over_removes_its_own_file_only(
    spark: Driver, scene: Scene
) -> None:
    slow = scene.gate()
    job = Job(faults=(f"middle wait 0 1 {slow}", "middle fail 0 1"))
    assert spark.do(job).commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
    assert scene.leftovers(0)
    slow.go()
    wait_until(lambda: not scene.leftovers(0))
    assert scene.ids() == list(job.ids)


def test_of_two_attempts_that_commit_at_the_same_time_one_is_taken(spark: Driver, scene: Scene) -> None:
    both = scene.gate()
    job = Job(faults=(f"commit wait 0 2 {both}",))
    with scene.watched([], list(job.ids)):
        spark.begin(job)
        both.wait(0)
        both.wait(1)
        both.go()
        assert spark.answer().commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
