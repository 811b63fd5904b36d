"""How long things are known, what a job costs among many others, and clocks that do not agree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from penstock.errors import InvalidRequest, JobOver
from penstock.formats.files.lake.calls import ListJobs
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.jobs import JOBS, PREFIX
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.jobs import ABANDONED_AFTER_US, Job, JobState
from penstock.stores.memory import MemoryStore
from penstock.testing.counting_store import CountingStore
from penstock.testing.faults import FaultyStore, Point
from tests.jobs import lakes
from tests.jobs.lakes import DAY_S, EVENTS, HOUR_S, ID, START_US, A, B, Running, SetClock, open_lake, told

ODD = {
    "as they come": Settings(),
    "keys are forgotten long before jobs": Settings(
        idempotency_days=0.01, data_grace_days=60, nobody_writes=True
    ),
    "jobs are short": Settings(idempotency_days=7, data_grace_days=0.01, nobody_writes=True),
}


class Died(BaseException):
    """The process is gone."""


def die() -> None:
    raise Died


@pytest.mark.parametrize("again", [A, B], ids=["the same attempt", "a new attempt"])
@pytest.mark.parametrize("settings", ODD.values(), ids=ODD)
def test_a_job_that_landed_and_was_not_noted_is_known_after_its_key_is_forgotten(
    settings: Settings, again: str
) -> None:
    clock = SetClock()
    inner = MemoryStore(clock)
    store = FaultyStore(inner)
    lake = open_lake(store, clock, settings)
    lakes.begin(lake)
    store.at(Point.AFTER_SWAP, die, name="main")
    with pytest.raises(Died):
        lakes.commit(lake)
    later = open_lake(inner, clock, settings)
    landed = later.show().id
    clock.go_on(30 * DAY_S)
    later.sweep()
    assert later.outcome(ID) is None  # nothing but the log tells any more
    begun = lakes.begin(later, B).job if again == B else None
    assert lakes.commit(later, A).head == landed
    assert (begun is None) or (begun.state, begun.commit) == (JobState.COMMITTED, landed)
    assert lakes.files(later) == [A]


def test_a_job_may_take_half_of_the_time_that_its_files_stay() -> None:
    lake = open_lake(MemoryStore(), settings=Settings(data_grace_days=1, nobody_writes=True))
    for timeout_s in (0, -1, 12 * HOUR_S + 1, float("inf"), float("nan")):
        with pytest.raises(InvalidRequest, match=r"at most 43200 \(0\.5 days"):
            lakes.begin(lake, timeout_s=timeout_s)
    begun = lakes.begin(lake, timeout_s=12 * HOUR_S).job
    assert (begun.expires - begun.began).total_seconds() == 12 * HOUR_S


def test_a_job_that_took_too_long_cannot_commit_and_says_so() -> None:
    clock = SetClock()
    lake = open_lake(MemoryStore(), clock)
    lakes.begin(lake, timeout_s=60)
    clock.go_on(61)
    assert lakes.job(lake).is_late
    assert told(lambda: lakes.commit(lake)) == "over"
    assert lakes.files(lake) == []


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])
def test_property_56_clocks_an_hour_apart_change_nothing_but_times(ahead_s: float) -> None:
    inner = MemoryStore()
    one = open_lake(inner, SetClock())
    other = open_lake(inner, SetClock(START_US + int(ahead_s * 1e6)))
    lakes.begin(one, A)
    JobAttempts(one.kernel).send_commit(ID, A, str(EVENTS), "main")
    begun = lakes.begin(other, B, id="2" * 32)  # it leaves the other's job alone
    assert [job.state for job in begun.others] == [JobState.COMMITTING]
    assert lakes.abort(other).state is JobState.COMMITTING
    assert lakes.commit(one, A).commit is not None
    assert lakes.commit(one, B, id="2" * 32).commit is not None
    assert lakes.job(other).state is lakes.job(other, "2" * 32).state is JobState.COMMITTED
    lakes.begin(other, A, id="3" * 32)
    lakes.begin(one, B, id="3" * 32)
    assert told(lambda: lakes.commit(other, A, id="3" * 32, added=())) == "over"
    assert told(lambda: lakes.commit(other, B, id="3" * 32, added=())) == ""


@pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.COMMITTING])
def test_a_job_that_its_process_left_is_ended_when_its_time_is_long_over(
    state: JobState, own_branch: bool
) -> None:
    clock = SetClock()
    lake = open_lake(MemoryStore(), clock)
    lakes.begin(lake, timeout_s=60, own_branch=own_branch)
    if state is JobState.COMMITTING:
        JobAttempts(lake.kernel).send_commit(ID, A, str(EVENTS), "main")
    clock.go_on(61)
    lakes.begin(lake, B, id="2" * 32)
    assert lakes.job(lake).state is state
    clock.go_on(ABANDONED_AFTER_US / 1e6)
    lakes.begin(lake, B, id="3" * 32)
    assert lakes.job(lake).state is JobState.ABORTED
    assert lakes.branches(lake) == ["main"]
    assert told(lambda: lakes.commit(lake)) == "over"


def test_a_person_can_abort_what_nobody_is_committing_any_more() -> None:
    clock = SetClock()
    lake = open_lake(MemoryStore(), clock)
    lakes.begin(lake, timeout_s=60)
    JobAttempts(lake.kernel).send_commit(ID, A, str(EVENTS), "main")
    assert lakes.abort(lake).state is JobState.COMMITTING
    clock.go_on(61 + ABANDONED_AFTER_US / 1e6)
    assert lakes.abort(lake).state is JobState.ABORTED
    assert told(lambda: lakes.commit(lake)) == "over"


def test_a_job_begins_at_the_same_cost_among_ten_thousand_that_have_ended() -> None:
    clock = SetClock()
    store = CountingStore(MemoryStore(clock))
    lake = open_lake(store, clock)
    lakes.begin(lake, B, id="2" * 32)
    few = _cost(store, lake, "3" * 32)
    lakes.abort(lake, id="3" * 32)
    _add_ended(store, 10_000, lakes.row(lake, "2" * 32))
    many = _cost(store, lake, "4" * 32)
    assert many[0] <= few[0] + 1
    assert many[1] <= few[1] + 20
    before = store.counts
    assert [job.id for job in lake.do(ListJobs())] == ["4" * 32, "2" * 32]
    assert (store.counts - before).rows_read <= 4


@pytest.mark.parametrize("change", ["forgotten", "begun anew"])
def test_a_list_of_jobs_goes_on_after_one_that_was_forgotten_or_begun_anew_meanwhile(change: str) -> None:
    clock = SetClock()
    store = MemoryStore(clock)
    lake = open_lake(store, clock)
    ids = [UUID(int=2**100 + number).hex for number in range(6)]
    for one in ids:
        clock.go_on(60)
        lakes.begin(lake, A, id=one)
        lakes.abort(lake, id=one)
    page = lake.do(ListJobs(all=True, limit=2))
    clock.go_on(30 * DAY_S if change == "forgotten" else 60)
    if change == "forgotten":
        JobAttempts(lake.kernel).jobs.forget_job(page[-1].id)
    else:
        lakes.begin(lake, B, id=page[-1].id)
    found = [job.id for job in page]
    while page := lake.do(ListJobs(all=True, limit=2, after=page[-1].id)):
        found += [job.id for job in page]
    assert {*found} == {*ids}
    assert len(found) <= 2 + len(ids)


def test_a_job_that_comes_on_two_pages_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock()
    lake = open_lake(MemoryStore(clock), clock)
    ids = [UUID(int=2**100 + number).hex for number in range(6)]
    for one in ids:
        clock.go_on(60)
        lakes.begin(lake, A, id=one)
        lakes.abort(lake, id=one)
    clock.go_on(30 * DAY_S)
    jobs, do, asked = JobAttempts(lake.kernel).jobs, lake.do, []

    def forgetting(call: Any) -> Any:
        asked.append(call.after)
        page = do(call)
        if len(asked) == 1:
            jobs.forget_job(page[-1].id)
        return page

    monkeypatch.setattr(lake.catalogue, "page_max", 2)
    monkeypatch.setattr(lake, "do", forgetting)
    assert sorted(job.id for job in lake.jobs(all=True)) == ids
    assert len(asked) > 3


def test_jobs_that_ended_long_ago_are_forgotten_as_others_begin() -> None:
    clock = SetClock()
    store = MemoryStore(clock)
    lake = open_lake(store, clock)
    lakes.begin(lake, B, id="2" * 32)
    _add_ended(store, 200, lakes.row(lake, "2" * 32))
    clock.go_on(30 * DAY_S)
    for number in range(100):
        id_ = UUID(int=2**100 + number).hex
        lakes.begin(lake, A, id=id_)
        lakes.abort(lake, id=id_)
    old = [
        job
        for job in JobAttempts(lake.kernel).jobs.list_jobs()
        if job.changed_us < clock.now_us - 8 * DAY_S * 1e6
    ]
    assert len(old) < 40


def _cost(store: CountingStore, lake: Lake, id_: str) -> tuple[int, int]:
    before = store.counts
    lakes.begin(lake, A, id=id_)
    cost = store.counts - before
    return cost.requests, cost.rows_read


def _add_ended(store: CountingStore | MemoryStore, count: int, like: Job | None) -> None:
    assert like is not None
    for number in range(count):
        id_ = UUID(int=(number * 2**128) // count).hex
        ended = msgspec.structs.replace(like, id=id_, state=JobState.ABORTED)
        with store.turn(PREFIX + id_) as turn:
            turn.advance({}, JOBS.encode_row(ended.id, ended))


@pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])
def test_an_attempt_that_stood_still_until_all_receipts_were_forgotten_does_not_land(
    own_branch: bool,
) -> None:
    clock = SetClock()
    store = FaultyStore(MemoryStore(clock), locking=False)
    lake, other = open_lake(store, clock), open_lake(store.inner, clock)
    lakes.begin(lake, A, own_branch=own_branch)
    gate = store.pause(Point.TURN, name="main")
    older = Running(lambda: lakes.commit(lake, A))
    gate.wait_until_reached()
    lakes.begin(other, B, own_branch=own_branch)
    lakes.commit(other, B)
    clock.go_on(30 * DAY_S)
    assert other.sweep().receipts > 0
    gate.open()
    with pytest.raises(JobOver):
        older.result()
    assert lakes.files(other) == [B]
