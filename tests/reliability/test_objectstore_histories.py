"""Histories on bare object storage: threads, processes that are killed, sweeps while others commit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event

import msgspec
import pytest

from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.model.references import Kind
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Store
from penstock.testing import HistoryChecker, Recorder
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.drill import new_lake
from penstock.testing.recorder import load
from penstock.testing.threads import at_once
from tests.reliability.test_histories import threads_on
from tests.reliability.worker import Task
from tests.servers.s3 import S3Place

WORKER = Path(__file__).with_name("objectstore_worker.py")
ROOT = Path(__file__).parents[2]
WAIT_S = 0.5
PROCESS_MAX_S = 120.0
MOMENTS = ("before put objects", "after put objects", "before put rows", "after put rows", "before get rows")


def opened(url: str, handles: int) -> list[Store]:
    return [ObjectStore(url, announce_wait_s=WAIT_S) for _ in range(handles)]


def closed(stores: Sequence[Store]) -> None:
    for store in stores:
        store.close()


@pytest.mark.parametrize("handles", [1, 3])
def test_threads_on_a_directory_leave_one_history(handles: int, tmp_path: Path, seed: int) -> None:
    stores = opened(f"file://{tmp_path}/lake", handles)
    threads_on(stores, threads=6, count=8, seed=seed)
    closed(stores)


def test_threads_on_a_server_leave_one_history(s3_place: S3Place, seed: int) -> None:
    stores = opened(s3_place.url, 2)
    threads_on(stores, threads=4, count=6, seed=seed)
    closed(stores)


@pytest.mark.reliability
def test_threads_on_a_server_leave_one_history_for_long(s3_place: S3Place, seed: int) -> None:
    stores = opened(s3_place.url, 3)
    threads_on(stores, threads=12, count=40, seed=seed)
    closed(stores)


def run(tasks: Sequence[Task]) -> list[int]:
    """Run processes, begun together, to their end; how each ended."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), msgspec.json.encode(task).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
        )
        for task in tasks
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            line = worker.stdout.readline()
            assert line == "ready\n", worker.communicate()[1]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            _, errors = worker.communicate(timeout=PROCESS_MAX_S)
            assert not errors, errors
        return [worker.returncode for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def kill_in_turn(lake: Path, kills: int, count: int, seed: int) -> int:
    """Two processes commit; one is killed at a request, the next takes up what it left, and so on."""
    chance = random.Random(seed)
    [store] = opened(f"file://{lake}", 1)
    new_lake(store)
    journals: list[Path] = []
    previous = ""
    for number in range(kills):
        pair = [lake.with_name(f"{lake.name}-{number}-{who}.journal") for who in "ab"]
        journals += pair
        doomed, other = (
            Task(
                lake=str(lake),
                journal=str(journal),
                client=journal.stem,
                count=count,
                seed=chance.randrange(2**32),
                kill_at=MOMENTS[number % len(MOMENTS)] if journal is pair[0] else "",
                kill_after=chance.randrange(count // 4),
                resume=previous if journal is pair[1] else "",
            )
            for journal in pair
        )
        assert run([doomed, other]) == [-signal.SIGKILL, 0]
        previous = doomed.journal
    kernel = Kernel(store)
    chain = read_chain(kernel)
    violations = HistoryChecker(load(journals)).check(chain)
    assert not violations, "\n".join(map(str, violations[:20]))
    assert fsck(kernel).damages == ()
    store.close()
    return len(chain.links)


def test_processes_that_are_killed_leave_one_history(tmp_path: Path, seed: int) -> None:
    assert kill_in_turn(tmp_path / "lake", kills=2, count=15, seed=seed) > 10


@pytest.mark.reliability
def test_many_processes_that_are_killed_leave_one_history(tmp_path: Path, seed: int) -> None:
    assert kill_in_turn(tmp_path / "lake", kills=25, count=40, seed=seed) > 300


def sweep_while_committing(open_store: Callable[[], Store], commits: int, seed: int) -> tuple[int, int]:
    """Scratch branches come and go, so that what they leave is swept while others store the same again."""
    writing, sweeping = open_store(), open_store()
    new_lake(writing)
    hasty = Settings(grace_s=2.0, write_timeout_s=60, tries_max=100_000, nobody_writes=True)
    kernel, keeper = Kernel(writing, (), hasty), Kernel(sweeping, (), hasty)
    recorder, done = Recorder("writer"), Event()
    removed = 0

    def write() -> None:
        chance = random.Random(seed)
        client = Client(kernel, recorder)
        try:
            for number in range(commits):
                name, head = f"scratch{number}", kernel.references.get_reference("main").head
                kernel.references.create_reference(name, Kind.BRANCH, head)
                values = {f"table{n}": f"value {chance.randrange(3)}" for n in range(20)}
                Client(kernel, Recorder("scratch"), name).write(values)
                kernel.references.delete_reference(name, leave_log=False)
                client.write(dict.fromkeys(chance.sample([*values], 3), f"value {chance.randrange(3)}"))
        finally:
            done.set()

    def keep_clean() -> None:
        nonlocal removed
        while not done.wait(0.2):
            removed += sweep_objects(keeper).removed

    at_once(write, keep_clean)
    removed += sweep_objects(keeper).removed
    fresh = Kernel(sweeping)
    chain = read_chain(fresh)
    violations = HistoryChecker(recorder.events).check(chain)
    assert not violations, "\n".join(map(str, violations[:20]))
    assert fsck(fresh).damages == ()
    closed([writing, sweeping])
    return len(chain.links), removed


@pytest.mark.reliability
@pytest.mark.parametrize("attempt", range(3))
def test_sweeping_while_others_commit_loses_nothing(attempt: int, tmp_path: Path, seed: int) -> None:
    open_store = partial(ObjectStore, f"file://{tmp_path}/lake", announce_wait_s=WAIT_S)
    links, removed = sweep_while_committing(open_store, commits=300, seed=seed + attempt)
    assert links > 250
    assert removed > 100
