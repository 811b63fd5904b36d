"""Several at one job at once: each race is forced by stopping one of them at a point of the store."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.errors import JobOver, OutcomeUnknown
from penstock.formats.files.intents import WriteCondition
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.jobs import PREFIX, JobRows
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.jobs import Job, JobState
from penstock.model.references import Event
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from tests.jobs import lakes
from tests.jobs.lakes import ID, A, B, Running, check_sound, open_lake, told

ROW = PREFIX + ID
QUICK = Settings(tries_max=5, backoff_min_ms=0)
OWN = pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])


def test_property_23_an_abort_that_is_first_at_the_jobs_row_keeps_the_commit_from_landing() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake)
    gate = store.pause(Point.BEFORE_SWAP, name=ROW)
    committing = Running(lambda: lakes.commit(lake))
    gate.wait_until_reached()
    assert lakes.abort(other).state is JobState.ABORTED
    gate.open()
    with pytest.raises(JobOver, match="not wanted"):
        committing.result()
    assert lakes.files(other) == []
    assert lakes.job(lake).state is lakes.job(other).state is JobState.ABORTED


def test_property_23_an_abort_that_comes_second_is_told_of_the_commit() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake)
    gate = store.pause(Point.BEFORE_SWAP, name=ROW)
    aborting = Running(lambda: lakes.abort(lake))
    gate.wait_until_reached()
    written = lakes.commit(other)
    gate.open()
    found = aborting.result()
    assert written.commit is not None
    assert (found.state, found.commit) == (JobState.COMMITTED, written.commit.id)
    check_sound(other)


def test_property_23_an_abort_while_the_commit_is_in_flight_does_not_claim_what_it_cannot_know() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake)
    gate = store.pause(Point.BEFORE_SWAP, name="main")
    committing = Running(lambda: lakes.commit(lake))
    gate.wait_until_reached()
    assert lakes.abort(other).state is JobState.COMMITTING
    gate.open()
    assert committing.result().commit is not None
    assert lakes.abort(other).state is JobState.COMMITTED


@OWN
@pytest.mark.parametrize("point", [Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP])
def test_an_attempt_that_is_superseded_while_it_commits_never_lands_beside_the_newer_one(
    point: Point, own_branch: bool
) -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake, A, own_branch=own_branch)
    gate = store.pause(point, name="main")
    older = Running(lambda: lakes.commit(lake, A))
    gate.wait_until_reached()
    assert lakes.begin(other, B, own_branch=own_branch).job.state is JobState.RUNNING
    written = lakes.commit(other, B)
    gate.open()
    with pytest.raises(JobOver, match="a newer attempt has begun"):
        older.result()
    assert lakes.files(other) == [B]
    assert lakes.job(other).commit == other.show().id == (written.commit and written.commit.id)
    assert lakes.branches(other) == ["main"]


@pytest.mark.parametrize("point", [Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP])
def test_an_attempt_that_is_superseded_before_it_commits_to_its_own_branch_is_told_that_it_is_over(
    point: Point,
) -> None:
    """The newer attempt removes the branch under its hands."""
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    own = lakes.begin(lake, A, own_branch=True).job.own_branch
    gate = store.pause(point, name=own)
    older = Running(lambda: lakes.commit(lake, A))
    gate.wait_until_reached()
    lakes.begin(other, B, own_branch=True)
    assert own not in lakes.branches(other)
    gate.open()
    with pytest.raises(JobOver):
        older.result()
    assert lakes.job(other).state is JobState.RUNNING
    assert lakes.commit(other, B).commit is not None
    assert lakes.files(other) == [B]
    assert lakes.branches(other) == ["main"]


@OWN
def test_a_job_that_only_fills_an_empty_table_makes_no_commit_if_it_was_filled_meanwhile(
    own_branch: bool,
) -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake, A, own_branch=own_branch)
    lakes.begin(lake, B, id="2" * 32)
    lakes.commit(lake, B, id="2" * 32)
    head = lake.resolve("main")
    written = lakes.commit(lake, A, when=WriteCondition.IGNORE)
    assert (written.commit, written.head) == (None, head)
    assert lake.resolve("main") == head
    assert lakes.files(lake) == [B]
    assert lakes.job(lake).state is JobState.COMMITTED
    assert lakes.commit(lake, A, when=WriteCondition.IGNORE).commit is None
    assert lakes.branches(lake) == ["main"]


@OWN
def test_a_job_that_only_fills_an_empty_table_fills_it_once(own_branch: bool) -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake, A, own_branch=own_branch)
    written = lakes.commit(lake, A, when=WriteCondition.IGNORE)
    assert written.commit is not None
    assert lakes.commit(lake, A, when=WriteCondition.IGNORE).commit == written.commit
    assert lakes.files(lake) == [A]
    assert lakes.branches(lake) == ["main"]


@OWN
def test_an_attempt_that_is_superseded_and_then_aborted_while_it_commits_never_lands(
    own_branch: bool,
) -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake, A, own_branch=own_branch)
    gate = store.pause(Point.BEFORE_SWAP, name="main")
    older = Running(lambda: lakes.commit(lake, A))
    gate.wait_until_reached()
    lakes.begin(other, B, own_branch=own_branch)
    assert lakes.abort(other).state is JobState.ABORTED
    gate.open()
    with pytest.raises(JobOver):
        older.result()
    assert lakes.files(other) == []
    assert lakes.branches(other) == ["main"]


@OWN
def test_an_attempt_that_has_landed_when_a_newer_one_begins_is_the_jobs_end(own_branch: bool) -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake, A, own_branch=own_branch)
    gate = store.pause(Point.AFTER_SWAP, name="main")
    older = Running(lambda: lakes.commit(lake, A))
    gate.wait_until_reached()
    begun = lakes.begin(other, B, own_branch=own_branch).job
    gate.open()
    landed = older.result().commit
    assert landed is not None
    assert (begun.state, begun.commit) == (JobState.COMMITTED, landed.id)
    assert told(lambda: lakes.commit(other, B)) == "over"
    assert lakes.files(other) == [A]


def test_a_commit_that_is_sent_twice_is_refused_to_both_or_to_none() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake)
    gate = store.pause(Point.TURN, name="main")
    first = Running(lambda: lakes.commit(lake, when="empty"))
    gate.wait_until_reached()
    lakes.begin(other, B, id="2" * 32)
    lakes.commit(other, B, id="2" * 32)
    assert told(lambda: lakes.commit(other, when="empty")) == "CommitConflict"  # the table has a file now
    lakes.begin(other, B, id="3" * 32)
    lakes.commit(other, B, id="3" * 32, added=(), replaced=("",))  # and now it has none
    gate.open()
    with pytest.raises(JobOver, match="cancelled before it was applied: cannot commit"):
        first.result()
    assert lakes.files(other) == []
    assert lakes.job(other).state is JobState.ABORTED


def test_a_sending_that_is_refused_after_another_one_landed_is_answered_by_that() -> None:
    store = FaultyStore(MemoryStore(), locking=False)
    lake, other = open_lake(store), open_lake(store.inner)
    lakes.begin(lake)
    gate = store.pause(Point.TURN, name="main")
    first = Running(lambda: lakes.commit(lake, when="empty"))
    gate.wait_until_reached()
    landed = lakes.commit(other, when="empty")
    gate.open()
    assert first.result().commit == landed.commit
    assert len(lakes.files(other)) == 1


def test_a_commit_that_was_called_off_is_told_in_the_log_and_leaves_the_head() -> None:
    lake = open_lake(MemoryStore())
    before = lake.kernel.references.get_reference("main")
    lakes.begin(lake)
    JobAttempts(lake.kernel).send_commit(ID, A, "raw.events", "main")
    lakes.begin(lake, B)
    after = lake.kernel.references.get_reference("main")
    assert (after.head, after.position) == (before.head, before.position + 1)
    assert lake.reflog()[0].event == Event.ABORT
    assert lake.outcome(ID) is None
    assert not lake.fsck().damages
    assert lakes.commit(lake, B).commit is not None
    assert not lake.fsck().damages


@OWN
def test_two_attempts_that_begin_and_commit_at_once_leave_one_commit(
    database: Store, own_branch: bool
) -> None:
    settings = Settings(tries_max=10_000, write_timeout_s=60)
    one, other = open_lake(database, settings=settings), open_lake(database, settings=settings)

    def run(lake: Lake, fence: str) -> str:
        return told(lambda: lakes.begin(lake, fence, own_branch=own_branch)) or told(
            lambda: lakes.commit(lake, fence)
        )

    for round_ in range(3):
        fences = [f"{round_}{letter}" * 16 for letter in "ab"]
        works = [Running(partial(run, lake, fence)) for lake, fence in zip((one, other), fences, strict=True)]
        outcomes = [work.result() for work in works]
        assert set(outcomes) <= {"", "over"}
        check_sound(one)
        if round_ == 0:
            assert "" in outcomes
    assert len(lakes.files(one)) == 1
    assert lakes.branches(one) == ["main"]


def test_of_two_who_send_an_attempt_at_one_instant_neither_takes_itself_to_be_alone() -> None:
    """Both write the same row. Who does not know whether it did must not take the other's for its own: a
    refusal of a commit that was sent once ends the job, while the other's may still land."""
    store = FaultyStore(MemoryStore(), locking=False)
    lake = open_lake(store, lakes.SetClock())
    lakes.begin(lake, A)
    here, there = (
        JobRows(each, QUICK, lake.kernel.graces, lambda: lakes.START_US) for each in (store, store.inner)
    )

    def send(jobs: JobRows) -> Job:
        return jobs.commit_begins(ID, A, str(lakes.EVENTS), "main", 1)

    def overtake() -> None:
        send(there)
        raise OutcomeUnknown("the answer was lost, and nothing was written")

    store.at(Point.BEFORE_SWAP, overtake, name=ROW)
    assert send(here).sends == 2
