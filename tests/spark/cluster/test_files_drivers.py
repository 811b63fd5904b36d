"""A driver that is killed while it writes files: the name of its job tells anybody what came of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import Unavailable
from penstock.model.jobs import JobState
from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.drivers import Driver, driver
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Stop

JOB = Job(format="csv", mode="overwrite", first=1000, idempotency_key="tonight")
EARLIER = Job(format="csv")


@pytest.fixture
def before(spark: Driver, events: FilesScene) -> str:
    """The commit that the branch ends with: a table with rows that the job is to overwrite."""
    return spark.do(EARLIER).commit


@pytest.fixture
def doomed(cluster: Cluster, events: FilesScene, before: str) -> Iterator[Driver]:
    """A driver of the test's own."""
    with driver(cluster, events.address, events.directory) as started:
        yield started


@pytest.mark.reliability
def test_properties_5_20_k6_killed_before_it_commits_nothing_is_seen_and_another_job_can_do_it(
    doomed: Driver, spark: Driver, events: FilesScene, before: str
) -> None:
    """All tasks but one are done, and that one is, too, but nobody has heard of it."""
    gate = events.gate()
    faults = (f"committed wait 0 9 {gate}",)
    with events.watched(list(EARLIER.ids)):
        doomed.begin(Job(format="csv", mode="overwrite", idempotency_key="tonight", faults=faults))
        gate.wait()
        doomed.kill()
        gate.go()
        assert events.head == before
    left = events.job(JOB)
    assert left is not None
    assert left.state is JobState.RUNNING
    other = Job(format="csv", mode="overwrite", first=1000, idempotency_key="another name")
    events.check_landed(spark.do(other).commit, other)
    events.sweep()


@pytest.mark.reliability
def test_properties_5_21_k7_killed_and_its_commit_got_lost_nothing_is_seen_and_the_job_runs_again(
    doomed: Driver, spark: Driver, events: FilesScene, before: str
) -> None:
    stop = Stop()

    def lose() -> None:
        stop()
        raise Unavailable("the request got lost")

    events.door.before = lose
    with events.watched(list(EARLIER.ids)):
        doomed.begin(JOB)
        stop.wait()
        doomed.kill()
        stop.go()
        assert events.head == before
    left = events.leftovers()
    assert len(left) >= JOB.tasks
    events.door.open(events.lake)
    events.check_landed(spark.do(JOB).commit, JOB)
    assert events.leftovers() >= left
    events.sweep()


def test_property_21_k7_killed_before_its_commit_had_its_turn_all_of_it_lands_and_the_job_says_so(
    doomed: Driver, spark: Driver, events: FilesScene, before: str
) -> None:
    stop = Stop()
    events.door.before = stop
    with events.watched(list(EARLIER.ids), list(JOB.ids)):
        doomed.begin(JOB)
        stop.wait()
        doomed.kill()
        assert events.head == before
        done = Stop()
        events.door.after = done
        stop.go()
        done.wait()
        done.go()
    _check_decided(spark, events)


@pytest.mark.reliability
def test_property_6_k8_killed_before_it_hears_of_its_commit_repeating_the_job_finds_it(
    doomed: Driver, spark: Driver, events: FilesScene
) -> None:
    stop = Stop()
    events.door.after = stop
    with events.watched(list(EARLIER.ids), list(JOB.ids)):
        doomed.begin(JOB)
        stop.wait()
        doomed.kill()
        stop.go()
    _check_decided(spark, events)


@pytest.mark.reliability
@pytest.mark.parametrize("job_branch", [False, True], ids=["on the branch", "on its own branch"])
def test_property_7_k9_killed_when_it_has_committed_the_rows_are_there_and_a_sweep_takes_the_rest(
    doomed: Driver, spark: Driver, events: FilesScene, job_branch: bool
) -> None:
    """An attempt of a task that was not needed is still at work then."""
    slow = events.gate()
    faults = (f"commit wait 0 1 {slow}",)
    job = Job(
        format="csv",
        mode="overwrite",
        first=1000,
        idempotency_key="tonight",
        job_branch=job_branch,
        faults=faults,
    )
    doomed.do(job)
    doomed.kill()
    slow.go()
    assert events.leftovers(0)
    _check_decided(spark, events)
    events.sweep()


def _check_decided(spark: Driver, events: FilesScene) -> None:
    """The job has landed, anybody is told so by its name, and repeating it writes nothing."""
    known = events.job(JOB)
    assert known is not None
    assert (known.state, known.commit) == (JobState.COMMITTED, events.head)
    events.door.open(events.lake)
    files = events.leftovers()
    events.check_landed(spark.do(JOB).commit, JOB)
    assert known.commit == events.head
    assert events.leftovers() == files
