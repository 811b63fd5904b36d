"""A driver that is killed: all of its job is there or nothing, anybody can tell, and it can be run again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import Unavailable
from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.drivers import Driver, driver
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Scene, Stop

JOB = Job(idempotency_key="tonight")


@pytest.fixture
def doomed(cluster: Cluster, scene: Scene) -> Iterator[Driver]:
    """A driver of the test's own."""
    with driver(cluster, scene.address, scene.directory) as started:
        yield started


@pytest.mark.reliability
def test_a_driver_killed_while_its_tasks_run_leaves_nothing_to_be_seen(
    doomed: Driver, spark: Driver, scene: Scene
) -> None:
    before, gate = scene.lake.resolve(), scene.gate()
    with scene.watched([]):
        doomed.begin(Job(faults=(f"last wait 0 9 {gate}",)))
        gate.wait()
        doomed.kill()
        gate.go()
    assert scene.lake.resolve() == before
    assert scene.lake.outcome("tonight") is None
    assert spark.do(JOB).commit == scene.lake.resolve()
    assert scene.ids() == list(JOB.ids)


def test_a_driver_killed_before_its_commit_arrives_leaves_nothing_to_be_seen(
    doomed: Driver, spark: Driver, scene: Scene
) -> None:
    before, stop = scene.lake.resolve(), Stop()

    def lose() -> None:
        stop()
        raise Unavailable("the request got lost")

    scene.door.before = lose
    with scene.watched([]):
        doomed.begin(JOB)
        stop.wait()
        doomed.kill()
        stop.go()
    assert scene.lake.resolve() == before
    assert scene.lake.outcome("tonight") is None
    left = scene.leftovers()
    assert len(left) >= JOB.tasks
    scene.door.open(scene.lake)
    assert spark.do(JOB).commit == scene.lake.resolve()
    assert scene.ids() == list(JOB.ids)
    assert scene.leftovers() >= left
    scene.sweep()


def test_a_driver_killed_before_it_hears_of_its_commit_has_committed_and_repeating_the_job_finds_it(
    doomed: Driver, spark: Driver, scene: Scene
) -> None:
    stop = Stop()
    scene.door.after = stop
    with scene.watched([], list(JOB.ids)):
        doomed.begin(JOB)
        stop.wait()
        doomed.kill()
        stop.go()
    landed = scene.lake.outcome("tonight")
    assert landed is not None
    assert landed.id == scene.lake.resolve()
    scene.door.open(scene.lake)
    assert spark.do(JOB).commit == landed.id
    assert scene.ids() == list(JOB.ids)
    assert scene.lake.resolve() == landed.id
