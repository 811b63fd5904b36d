"""Code that knows Spark only, and writes to a path: its jobs are held to the same, with a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.jobs import JobState
from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.drivers import Driver, driver
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Stop
from tests.spark.cluster.test_attempts import POINTS

pytestmark = pytest.mark.reliability


@pytest.fixture
def own(cluster: Cluster, events: FilesScene) -> Iterator[Driver]:
    """A driver whose session works with the lake of the test."""
    with driver(cluster, events.address, events.directory) as started:
        yield started


def test_properties_5_8_9_12_attempts_that_fail_die_or_come_late_leave_each_row_once(
    own: Driver, events: FilesScene
) -> None:
    faults = tuple(f"{point} fail {task} 1" for task, point in enumerate(POINTS))
    first = Job(format="csv", is_plain=True, tasks=len(POINTS), faults=faults, idempotency_key="first")
    with events.watched([], list(first.ids)):
        assert not own.do(first).error
    events.check_landed(_commit(events, first), first)

    dying = Job(
        format="csv", is_plain=True, first=1000, faults=("committed die 0 1",), idempotency_key="second"
    )
    with events.watched(list(first.ids), [*first.ids, *dying.ids]):
        assert not own.do(dying).error
    events.check_landed(_commit(events, dying), first, dying)

    slow, over = events.gate(), events.gate()
    late = (f"commit wait 0 1 {slow}", f"committed wait 0 1 {over}")
    third = Job(
        format="csv", is_plain=True, first=2000, mode="overwrite", faults=late, idempotency_key="third"
    )
    with events.watched([*first.ids, *dying.ids], list(third.ids)):
        assert not own.do(third).error
        slow.go()
        over.wait()
    over.go()
    events.check_landed(_commit(events, third), third)

    failing = Job(format="csv", is_plain=True, mode="overwrite", faults=("last fail 1 100",), first=3000)
    with events.watched(list(third.ids)):
        assert "a fault at last" in own.do(failing).message
    events.check_landed(_commit(events, third), third)
    events.sweep()


@pytest.mark.parametrize("moment", ["before", "after"], ids=["K7", "K8"])
def test_properties_6_21_a_driver_that_is_killed_while_it_commits_has_landed_once(
    own: Driver, spark: Driver, events: FilesScene, moment: str
) -> None:
    """Another driver, which knows the lake, is told so when it repeats the job under its name."""
    job = Job(format="csv", is_plain=True, idempotency_key="tonight")
    stop, done = Stop(), Stop()
    setattr(events.door, moment, stop)
    with events.watched([], list(job.ids)):
        own.begin(job)
        stop.wait()
        own.kill()
        if moment == "before":
            events.door.after = done
            stop.go()
            done.wait()
            done.go()
        else:
            stop.go()
    events.door.open(events.lake)
    landed = _commit(events, job)
    again = Job(format="csv", idempotency_key="tonight")
    assert spark.do(again).commit == landed
    events.check_landed(landed, job)


def _commit(events: FilesScene, job: Job) -> str:
    known = events.job(job)
    assert known is not None
    assert known.state is JobState.COMMITTED
    return known.commit
