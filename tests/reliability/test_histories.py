"""Histories of many clients, in threads and in processes: every promise about the branch is kept."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest

from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from penstock.testing import CountingStore, FaultyStore, HistoryChecker, Recorder
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.drill import new_lake
from penstock.testing.faults import Point
from penstock.testing.recorder import Answer
from penstock.testing.threads import at_once
from tests.chance import share
from tests.reliability.processes import check_lake, run_all
from tests.reliability.worker import Task, work

PATIENT = Settings(write_timeout_s=60, tries_max=100_000)


def threads_on(stores: list[Store], threads: int, count: int, seed: int) -> HistoryChecker:
    """Threads that share kernels, one a store; the stores are handles on the same data."""
    new_lake(stores[0])
    kernels = [Kernel(store, (), PATIENT) for store in stores]
    recorders = [Recorder(f"thread{number}") for number in range(threads)]

    def run(number: int) -> None:
        client = Client(kernels[number % len(kernels)], recorders[number])
        work(client, random.Random(seed + number), count)

    at_once(*(partial(run, number) for number in range(threads)))
    checker = HistoryChecker(event for recorder in recorders for event in recorder.events)
    fresh = Kernel(stores[0])
    violations = checker.check(read_chain(fresh))
    assert not violations, "\n".join(map(str, violations[:20]))
    assert fsck(fresh).damages == ()
    answers = {answer: [one.answer for one in checker.attempts].count(answer) for answer in Answer}
    assert answers[Answer.OK] > len(checker.attempts) // 4, answers
    assert answers[Answer.UNKNOWN] == answers[Answer.NOT_NOW] == 0, answers
    return checker


def stores_of(kind: str, place: Path, handles: int) -> list[Store]:
    if kind == "memory":
        data = MemoryStore()
        slow = [FaultyStore(data) for _ in range(handles)]
        for store in slow:  # or a thread is done before the next one starts, and nobody meets anybody
            store.at(Point.BEFORE_OBJECTS, partial(time.sleep, 0.001), times=None)
        return list(slow)
    opened = [SqliteStore(place / "penstock.db") for _ in range(handles)]
    return [FaultyStore(store, locking=kind == "sqlite") for store in opened]


@pytest.mark.parametrize("handles", [1, 3])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "sqlite without locks"])
def test_threads_leave_one_history(kind: str, handles: int, tmp_path: Path, seed: int) -> None:
    checker = threads_on(stores_of(kind, tmp_path, handles), threads=8, count=20, seed=seed)
    assert any(one.answer is Answer.REFUSED for one in checker.attempts), "nobody met anybody"


@pytest.mark.reliability
@pytest.mark.parametrize("handles", [1, 3])
@pytest.mark.parametrize("kind", share(["memory", "sqlite", "sqlite without locks"]))
def test_threads_leave_one_history_for_long(kind: str, handles: int, tmp_path: Path, seed: int) -> None:
    for attempt in range(3):
        place = tmp_path / str(attempt)
        place.mkdir()
        threads_on(stores_of(kind, place, handles), threads=32, count=150, seed=seed + 1000 * attempt)


def test_swaps_are_really_lost_where_nothing_is_locked(tmp_path: Path, seed: int) -> None:
    """Else the histories above would prove nothing about the second family."""
    counting = [CountingStore(store) for store in stores_of("sqlite without locks", tmp_path, 3)]
    threads_on(list(counting), threads=9, count=15, seed=seed)
    assert sum(store.counts.swaps_lost for store in counting) > 0


def processes_on(lake: Path, processes: int, count: int, locking: bool, seed: int) -> int:
    lake.mkdir(parents=True)
    store = SqliteStore(lake / "penstock.db")
    new_lake(store)
    store.close()
    tasks = [
        Task(
            lake=str(lake),
            journal=str(lake / f"process{number}.journal"),
            client=f"process{number}",
            count=count,
            seed=seed + number,
            locking=locking,
        )
        for number in range(processes)
    ]
    assert run_all(tasks) == [0] * processes
    return check_lake(lake, (Path(task.journal) for task in tasks))


@pytest.mark.parametrize("locking", [True, False])
def test_processes_leave_one_history(locking: bool, tmp_path: Path, seed: int) -> None:
    assert processes_on(tmp_path / "lake", processes=3, count=40, locking=locking, seed=seed) > 30


@pytest.mark.reliability
@pytest.mark.parametrize("locking", [True, False])
def test_processes_leave_one_history_for_long(locking: bool, tmp_path: Path, seed: int) -> None:
    assert processes_on(tmp_path / "lake", processes=6, count=1000, locking=locking, seed=seed) > 1500
