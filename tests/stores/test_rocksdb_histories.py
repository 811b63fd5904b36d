"""Many clients on a lake in RocksDB, in threads and through `kill -9`: every promise is kept."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.caching import CachingStore
from penstock.stores.rocksdb import RocksdbStore
from penstock.testing import HistoryChecker, Recorder
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.drill import new_lake
from penstock.testing.faults import Point
from penstock.testing.recorder import Answer, attempts, load
from penstock.testing.threads import at_once
from tests.reliability.worker import work
from tests.stores.rocksdb_worker import BEFORE_SYNC, RocksdbTask

ROOT = Path(__file__).parents[2]
PATIENT = Settings(write_timeout_s=60, tries_max=100_000)
AT_RANDOM = "at random"
POINTS = [Point.BEFORE_OBJECTS, BEFORE_SYNC, Point.AFTER_SWAP, AT_RANDOM]


def threads_on(place: Path, threads: int, count: int, kernels: int, seed: int) -> None:
    """Threads that share kernels, which share one store; kernels know nothing of each other."""
    store = RocksdbStore(place)
    new_lake(store)
    made = [
        Kernel(store if number % 2 else CachingStore(store, 10_000), (), PATIENT) for number in range(kernels)
    ]
    recorders = [Recorder(f"thread{number}") for number in range(threads)]

    def run(number: int) -> None:
        work(Client(made[number % kernels], recorders[number]), random.Random(seed + number), count)

    at_once(*(partial(run, number) for number in range(threads)))
    checker = HistoryChecker(event for recorder in recorders for event in recorder.events)
    fresh = Kernel(store)
    violations = checker.check(read_chain(fresh))
    assert not violations, "\n".join(map(str, violations[:20]))
    assert fsck(fresh).damages == ()
    answers = [one.answer for one in checker.attempts]
    assert answers.count(Answer.OK) > len(answers) // 4
    assert Answer.UNKNOWN not in answers
    assert Answer.NOT_NOW not in answers
    store.close()


@pytest.mark.parametrize("kernels", [1, 3])
def test_threads_leave_one_history(kernels: int, tmp_path: Path, seed: int) -> None:
    threads_on(tmp_path / "lake", 8, 20, kernels, seed)


@pytest.mark.reliability
@pytest.mark.parametrize("kernels", [1, 3])
def test_threads_leave_one_history_for_long(kernels: int, tmp_path: Path, seed: int) -> None:
    threads_on(tmp_path / "lake", 16, 400, kernels, seed)


class Kills:
    """Rounds of killing on one lake."""

    def __init__(self, place: Path, seed: int) -> None:
        self._place, self._chance = place, random.Random(seed)
        self._journals: list[Path] = []
        store = RocksdbStore(place / "lake")
        new_lake(store)
        store.close()

    def round(self, kill_at: str) -> None:
        """Kill the process, check what it left; have its open requests made again, check."""
        chosen = "" if kill_at == AT_RANDOM else kill_at
        victim = self._task("victim", 10_000, kill_at=chosen, kill_after=self._chance.randrange(10, 40))
        process = self._start(victim)
        if kill_at == AT_RANDOM:
            self._wait_for_work(victim.journals)
            process.kill()
        assert process.wait(120) == -signal.SIGKILL
        self._check()
        heir = self._task("heir", 5, resume=victim.journals)
        assert self._start(heir).wait(120) == 0
        self._check()
        settled = {one.call.key for one in attempts(load(self._journals)) if one.answer is not Answer.UNKNOWN}
        assert {one.call.key for one in attempts(load(victim.journals))} <= settled

    def _task(self, name: str, count: int, **special: Any) -> RocksdbTask:
        round_number = len(self._journals) // 3
        journals = [self._place / f"{name}{round_number}-{thread}.journal" for thread in range(3)]
        self._journals += journals
        return RocksdbTask(
            lake=str(self._place / "lake"),
            journals=[str(journal) for journal in journals],
            count=count,
            seed=self._chance.randrange(2**32),
            **special,
        )

    def _start(self, task: RocksdbTask) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.stores.rocksdb_worker", msgspec.json.encode(task).decode()]
        return subprocess.Popen(command, cwd=ROOT)

    def _wait_for_work(self, journals: list[str]) -> None:
        lines, deadline = self._chance.randrange(20, 200), time.monotonic() + 60
        while sum(Path(one).read_bytes().count(b"\n") for one in journals if Path(one).exists()) < lines:
            assert time.monotonic() < deadline, "the victim does nothing"
            time.sleep(0.001)

    def _check(self) -> None:
        store = RocksdbStore(self._place / "lake", create=False)
        kernel = Kernel(store)
        violations = HistoryChecker(load(self._journals)).check(read_chain(kernel))
        assert not violations, "\n".join(map(str, violations[:20]))
        assert fsck(kernel).damages == ()
        store.close()


@pytest.mark.parametrize("kill_at", POINTS)
def test_a_killed_process_leaves_a_whole_lake(kill_at: str, tmp_path: Path, seed: int) -> None:
    Kills(tmp_path, seed).round(kill_at)


@pytest.mark.reliability
@pytest.mark.parametrize("kill_at", POINTS)
def test_killed_processes_leave_a_whole_lake(kill_at: str, tmp_path: Path, seed: int) -> None:
    kills = Kills(tmp_path, seed)
    for _ in range(25):
        kills.round(kill_at)
