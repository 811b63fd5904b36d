"""Real processes that write to one Delta table: starting them, killing one, and checking what they left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock.lake.lake import Lake
from tests.formats.delta.logs import SCHEMA
from tests.owner.machine import Log
from tests.owner.machine_worker import KEY, Kept, Task

WORKER = Path(__file__).with_name("machine_worker.py")
ROOT = Path(__file__).parents[2]
WAIT_MAX_S = 240.0


@contextmanager
def started(tasks: Sequence[Task]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes for some tasks, which begin to work at the same time; none outlives the block."""
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), msgspec.json.encode(task).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for task in tasks
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise AssertionError(worker.communicate()[1])
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def finish(worker: subprocess.Popen[str]) -> int:
    """How a process ended; an error of its is one here."""
    _, errors = worker.communicate(timeout=WAIT_MAX_S)
    assert not errors, errors
    return worker.returncode


class Lakeside:
    """A lake with a Delta table on two branches, and the journals of all who wrote to it."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.chance = home, random.Random(seed)
        self.journals: list[Path] = []
        self._bytes: dict[int, bytes] = {}
        with penstock.open(home, create=True) as lake:
            lake.create_table(KEY, schema=SCHEMA)
            lake.delta.publish(KEY)
            lake.branch("dev").create()

    def task(self, client: str, count: int, **special: Any) -> Task:
        journal = self.home / f"{client}.journal"
        self.journals.append(journal)
        return Task(
            **{"lake": str(self.home)} | special,
            journal=str(journal),
            client=client,
            count=count,
            seed=self.chance.randrange(2**32),
        )

    def kill(self, steps: int | None, count: int = 20) -> None:
        """Kill one of two processes, check; have its open requests made again, check.

        Without ``steps``, it is killed at a moment that nobody chose.
        """
        number = len(self.journals)
        victim = self.task(f"victim-{number}", 10_000, steps=steps)
        other = self.task(f"other-{number}", count)
        with started([victim, other]) as workers:
            if steps is None:
                self._wait_for_work(Path(victim.journal))
                workers[0].kill()
            assert finish(workers[0]) == -signal.SIGKILL
            assert finish(workers[1]) == 0
        self.check()
        self.run([self.task(f"heir-{number}", 5, resume=victim.journal)])
        kept = self.check()
        victims = Kept.of([Path(victim.journal)])
        assert set(victims.asked) <= set(kept.told)

    def run(self, tasks: Sequence[Task]) -> None:
        """Let processes work to their end."""
        with started(tasks) as workers:
            assert [finish(worker) for worker in workers] == [0] * len(tasks)

    def check(self) -> Kept:
        """Against what was written down, and against itself."""
        kept = Kept.of(self.journals)
        with penstock.open(self.home, create=False, catch_up=False) as lake:
            got = lake.table(KEY).get_commits()
            log = Log(got)
            log.check()
            for version, data in enumerate(log.data):
                assert self._bytes.setdefault(version, data) == data
            attempts = list(log.attempts)
            assert set(Counter(attempts).values()) == {1}
            self._check_answers(lake, kept, attempts)
            assert _files(lake, "main") == log.states[-1]
            assert not lake.fsck().damages
        return kept

    def _check_answers(self, lake: Lake, kept: Kept, attempts: list[str]) -> None:
        """What landed is there, what was refused is not, and nobody has heard of anything else."""
        for branch in ("main", "dev"):
            files = _files(lake, branch)
            assert files <= {ask.file for ask in kept.asked.values() if not ask.merges}
            for key, told in kept.told.items():
                ask = kept.asked[key]
                if ask.merges:
                    continue
                if not told.landed:
                    assert ask.file not in files
                elif ask.branch == branch:
                    assert ask.file in files
                    if branch == "main":
                        assert told.version is not None
                        assert attempts[told.version] == str(ask.attempt)

    def _wait_for_work(self, journal: Path) -> None:
        """Until a process has made some requests."""
        lines = self.chance.randrange(1, 40)
        deadline = time.monotonic() + 60
        while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline, "the victim does nothing"
            time.sleep(0.001)
        time.sleep(self.chance.random() * 0.05)


def _files(lake: Lake, branch: str) -> frozenset[str]:
    return frozenset(one.path for one in lake.table(KEY, branch).snapshot().files())
