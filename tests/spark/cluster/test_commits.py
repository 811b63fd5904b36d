"""The job's one commit: answered late, never, or refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.spark.cluster.drivers import Driver
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Scene

LATE_S = 4.0
"""Longer than a driver waits for an answer before it asks again."""


def test_a_commit_whose_answer_is_lost_happens_once_and_is_found_again(spark: Driver, scene: Scene) -> None:
    before = scene.lake.table("orders").version
    scene.door.after = once(lambda: scene.network.cut_after("to_client", 0))
    job = Job()
    answer = spark.do(job)
    assert scene.network.cuts
    assert answer.commit == scene.lake.resolve()
    assert scene.lake.table("orders").version == before + 1
    assert scene.ids() == list(job.ids)


@pytest.mark.reliability
def test_a_commit_that_is_answered_late_happens_once(spark: Driver, scene: Scene) -> None:
    late = threading.Event()
    scene.door.before = once(lambda: late.wait(LATE_S))
    job = Job(is_impatient=True)
    answer = spark.do(job)
    assert answer.commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
    assert scene.lake.table("orders").version == 1


def test_a_commit_that_is_never_answered_is_left_alone_and_repeating_the_job_finds_it(
    spark: Driver, scene: Scene
) -> None:
    """Files of a commit whose outcome nobody knows may be a table's: none is removed."""
    job = Job(idempotency_key="tonight", is_impatient=True)
    scene.door.after = scene.network.fall_silent
    with scene.watched([], list(job.ids)):
        answer = spark.do(job)
    assert answer.error == "OutcomeUnknown", answer
    assert scene.ids() == list(job.ids)
    scene.door.after = lambda: None
    scene.network.speak()
    assert spark.do(patient(job)).commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)


def test_a_job_that_is_refused_at_its_commit_leaves_what_others_made(spark: Driver, scene: Scene) -> None:
    """Whether a table may be created is decided at the commit, not when the job begins."""
    others = pa.table({"id": pa.array([7], pa.int64()), "kind": pa.array([1], pa.int32())})
    scene.door.before = once(lambda: scene.lake.create_table("new", data=others))
    job = Job(key="new", mode="error")
    with scene.watched([], [7], key="new"):
        answer = spark.do(job)
    assert answer.error == "CommitConflict", answer
    assert scene.ids("new") == [7]


def patient(job: Job) -> Job:
    """The same, by a driver that waits for its answers."""
    return msgspec.structs.replace(job, is_impatient=False)


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Something that is done the first time only."""
    left = [act]

    def do() -> None:
        if left:
            left.pop()()

    return do
