"""The one commit of a job that writes files: answered never, or refused, with a real cluster before it."""

from __future__ import annotations

import pytest

from penstock.model.jobs import JobState
from tests.spark.cluster.drivers import Driver
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.test_commits import once, patient


def test_property_6_a_commit_whose_answer_is_lost_happens_once_and_is_found_again(
    spark: Driver, events: FilesScene
) -> None:
    events.door.after = once(lambda: events.network.cut_after("to_client", 0))
    job = Job(format="csv", idempotency_key="tonight")
    answer = spark.do(job)
    assert events.network.cuts
    events.check_landed(answer.commit, job)
    assert len(events.lake.log()) == 1


@pytest.mark.reliability
def test_property_6_a_commit_that_is_never_answered_is_left_alone_and_repeating_the_job_finds_it(
    spark: Driver, events: FilesScene
) -> None:
    """Files of a commit whose outcome nobody knows may be a table's: none is removed."""
    job = Job(format="parquet", idempotency_key="tonight", is_impatient=True)
    events.door.after = events.network.fall_silent
    with events.watched([], list(job.ids)):
        answer = spark.do(job)
    assert answer.error == "OutcomeUnknown", answer
    assert events.ids() == list(job.ids)
    events.door.after = lambda: None
    events.network.speak()
    events.check_landed(spark.do(patient(job)).commit, job)


def test_properties_39_45_a_job_that_is_refused_at_its_commit_leaves_what_others_made(
    spark: Driver, events: FilesScene
) -> None:
    """Whether a table may be created is decided at the commit, not when the job begins."""
    events.door.before = once(lambda: events.lake.table("orders").files.put("by/hand.csv", b"7,0\n"))
    job = Job(format="csv", mode="error", idempotency_key="tonight")
    with events.watched([], [7]):
        answer = spark.do(job)
    assert answer.error == "CommitConflict", answer
    assert events.ids() == [7]
    known = events.job(job)
    assert known is not None
    assert known.state is JobState.ABORTED
    assert not events.leftovers()
