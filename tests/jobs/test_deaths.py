"""Processes that die, and answers that are lost, at every write of a job: the job can always be decided."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import OutcomeUnknown, TryAgainError, Unavailable
from penstock.formats.files.lake.calls import NewFile
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from tests.jobs import lakes
from tests.jobs.lakes import A, B, check_sound, open_lake

OWN = pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])
WORKER = Path(__file__).with_name("dying_process.py")
POINTS = (Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP)
SWAPS_MAX = 12
"""More than a job makes."""


class Died(BaseException):
    """The process is gone."""


def die() -> None:
    raise Died


def run(lake: Lake, fence: str, own_branch: bool) -> str:
    """A job as a client runs it; the commit that it came to."""
    begun = lakes.begin(lake, fence, own_branch=own_branch).job
    if begun.state is JobState.COMMITTED:
        return begun.commit
    written = lakes.commit(lake, fence)
    assert written.commit is not None
    return written.commit.id


@OWN
@pytest.mark.parametrize("again", [A, B], ids=["the same attempt", "a new attempt"])
@pytest.mark.parametrize("point", POINTS)
def test_properties_6_20_21_a_job_that_died_anywhere_runs_again_to_one_commit(
    point: Point, again: str, own_branch: bool
) -> None:
    for number in range(SWAPS_MAX):
        inner = MemoryStore()
        open_lake(inner)
        store = FaultyStore(inner, locking=False)
        lake = open_lake(store)
        store.at(point, die, skip=number)
        try:
            run(lake, A, own_branch)
        except Died:
            pass
        else:
            assert number > 2  # nothing was left to die at
            return
        rerun = open_lake(inner)
        was_landed = len(lakes.files(rerun))
        head = rerun.kernel.references.get_reference("main").id
        commit = run(rerun, again, own_branch)
        check_sound(rerun)
        assert len(lakes.files(rerun)) == 1
        assert rerun.show().id == commit
        assert (commit == head) == bool(was_landed)
        assert lakes.branches(rerun) == ["main"]
    raise AssertionError("a job writes more often than it should")


@OWN
def test_property_6_answers_that_are_lost_anywhere_change_nothing(database: Store, own_branch: bool) -> None:
    for number in range(4):
        store = FaultyStore(database)
        lake = open_lake(store)
        store.lose_answer(skip=number)
        id_ = str(number) * 32
        lakes.begin(lake, A, id=id_, own_branch=own_branch)
        path = (NewFile(path=id_, size=1),)
        written = lakes.commit(lake, A, id=id_, added=path)
        assert written.commit is not None
        assert lakes.job(lake, id_).commit == written.commit.id == lake.show().id
        assert lakes.commit(lake, A, id=id_, added=path).commit == written.commit
        assert len(lakes.files(lake)) == number + 1
        assert lakes.branches(lake) == ["main"]


@OWN
def test_properties_6_7_a_client_that_is_left_in_doubt_sends_the_same_again(own_branch: bool) -> None:
    settings = Settings(tries_max=2, backoff_min_ms=0)
    for number in range(SWAPS_MAX):
        inner = MemoryStore()
        store = FaultyStore(inner)
        lake = open_lake(store, settings=settings)
        store.lose_answer(skip=number, times=1)
        store.fail(Point.TURN, Unavailable("away"), skip=number + 1, times=3)
        doubts, commit = 0, ""
        while not commit:
            assert doubts < 10
            try:
                commit = run(lake, A, own_branch)
            except (OutcomeUnknown, TryAgainError):
                doubts += 1
        assert lakes.files(lake) == [A]
        assert lakes.job(lake).commit == commit == lake.show().id
        if number > 6:
            assert not doubts


@OWN
@pytest.mark.parametrize("number", range(4), ids=["begun", "committing", "landed", "noted"])
def test_properties_7_20_21_a_process_that_is_killed_leaves_a_job_that_can_be_decided(
    number: int, own_branch: bool, tmp_path: Path
) -> None:
    place = tmp_path / "lake"
    with penstock.init(place):
        pass
    swaps = {0: 0, 1: 1, 2: 2, 3: 3}[number] if not own_branch else {0: 1, 1: 2, 2: 4, 3: 5}[number]
    done = subprocess.run(
        [sys.executable, str(WORKER), str(place), str(swaps), str(int(own_branch))],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with penstock.open(place, create=False) as lake:
        expected = [JobState.RUNNING, JobState.COMMITTING, JobState.COMMITTED, JobState.COMMITTED][number]
        assert lakes.job(lake).state is expected
        landed = lakes.files(lake)
        assert landed == ([A] if number >= 2 else [])
        head = lake.kernel.references.get_reference("main").id
        commit = run(lake, B, own_branch)
        assert lakes.files(lake) == (landed or [B])
        assert (commit == head) == bool(landed)
        check_sound(lake)
        assert lakes.branches(lake) == ["main"]
        assert not lake.fsck().damages
