"""`kill -9` of a committing process, at random and at chosen points, while others go on.

After every kill the lake is opened and checked as it is; then whoever takes over makes the victim's open
requests again, under the same keys, and the lake is checked once more.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.stores.sqlite import SqliteStore
from penstock.testing.drill import new_lake
from penstock.testing.faults import Point
from penstock.testing.recorder import Answer, attempts, load
from tests.reliability.processes import check_lake, finish, run_all, started
from tests.reliability.worker import IN_COMMIT, Task

AT_RANDOM = "at random"
CHOSEN = [Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, IN_COMMIT, Point.AFTER_SWAP]
QUICK = [
    Point.BEFORE_SWAP,
    IN_COMMIT,
    *(pytest.param(one, marks=pytest.mark.verify) for one in (Point.TURN, Point.BEFORE_OBJECTS)),
    *(pytest.param(one, marks=pytest.mark.verify) for one in (Point.AFTER_SWAP, AT_RANDOM)),
]
"""All of them; `make test` kills where most can go wrong: when objects are there and the row is not, and in
between."""


class Kills:
    """Rounds of killing on one lake."""

    def __init__(self, lake: Path, seed: int) -> None:
        self._lake, self._chance = lake, random.Random(seed)
        self.journals: list[Path] = []
        lake.mkdir(parents=True)
        store = SqliteStore(lake / "penstock.db")
        new_lake(store)
        store.close()

    def round(self, kill_at: str, locking: bool, count: int) -> None:
        """Kill one of three processes, check; have its open requests made again, check."""
        number = len(self.journals)
        others = [self._task(f"other{number}-{each}", count, locking) for each in range(2)]
        chosen = "" if kill_at == AT_RANDOM else str(kill_at)
        victim = self._task(
            f"victim{number}", 10_000, locking, kill_at=chosen, kill_after=self._chance.randrange(25)
        )
        with started([victim, *others]) as workers:
            if kill_at == AT_RANDOM:
                self._wait_for_work(Path(victim.journal))
                time.sleep(self._chance.random() * 0.1)
                workers[0].kill()
            assert finish(workers[0]) == -signal.SIGKILL
            assert [finish(worker) for worker in workers[1:]] == [0, 0]
        check_lake(self._lake, self.journals)
        heir = self._task(f"heir{number}", 5, True, resume=victim.journal)
        assert run_all([heir]) == [0]
        check_lake(self._lake, self.journals)
        self._check_settled(Path(victim.journal))

    def _task(self, client: str, count: int, locking: bool, **special: Any) -> Task:
        journal = self._lake / f"{client}.journal"
        self.journals.append(journal)
        return Task(
            lake=str(self._lake),
            journal=str(journal),
            client=client,
            count=count,
            seed=self._chance.randrange(2**32),
            locking=locking,
            **special,
        )

    def _wait_for_work(self, journal: Path) -> None:
        """Until a process has made some requests."""
        lines = self._chance.randrange(1, 60)
        deadline = time.monotonic() + 60
        while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline, "the victim does nothing"
            time.sleep(0.001)

    def _check_settled(self, journal: Path) -> None:
        """Every request of a killed process that could be made again has an answer now."""
        everyone = attempts(load(self.journals))
        settled = {one.call.key for one in everyone if one.answer is not Answer.UNKNOWN}
        open_keys = {one.call.key for one in attempts(load([journal]))}
        assert open_keys <= settled


@pytest.mark.parametrize("kill_at", QUICK)
def test_a_killed_process_leaves_a_whole_lake(kill_at: str, tmp_path: Path, seed: int) -> None:
    Kills(tmp_path / "lake", seed).round(kill_at, locking=True, count=40)


@pytest.mark.parametrize("kill_at", [Point.BEFORE_SWAP, pytest.param(AT_RANDOM, marks=pytest.mark.verify)])
def test_a_killed_process_leaves_a_whole_lake_where_nothing_is_locked(
    kill_at: str, tmp_path: Path, seed: int
) -> None:
    Kills(tmp_path / "lake", seed).round(kill_at, locking=False, count=40)


@pytest.mark.reliability
@pytest.mark.parametrize("locking", [True, False])
@pytest.mark.parametrize("kill_at", [*CHOSEN, AT_RANDOM])
def test_killed_processes_leave_a_whole_lake(kill_at: str, locking: bool, tmp_path: Path, seed: int) -> None:
    """12 times 10 kills."""
    kills = Kills(tmp_path / "lake", seed)
    for _ in range(10):
        kills.round(kill_at, locking, count=120)
