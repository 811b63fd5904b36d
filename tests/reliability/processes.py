"""Real processes on one lake: starting them together, killing them, and checking what they left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

import penstock
from penstock.testing import HistoryChecker
from penstock.testing.chain import read_chain
from penstock.testing.recorder import load
from tests.reliability.worker import Task

WORKER = Path(__file__).with_name("worker.py")
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


def run_all(tasks: Sequence[Task]) -> list[int]:
    """Run tasks to their end and return how each process ended; an error of theirs is one here."""
    with started(tasks) as workers:
        return [finish(worker) for worker in workers]


def finish(worker: subprocess.Popen[str]) -> int:
    _, errors = worker.communicate(timeout=WAIT_MAX_S)
    assert not errors, errors
    return worker.returncode


def check_lake(lake: Path, journals: Iterable[Path]) -> int:
    """Open a lake and check it against what was written down, and against itself; how many commits it has."""
    checker = HistoryChecker(load(journals))
    with penstock.open(lake, create=False) as opened:
        chain = read_chain(opened.kernel)
        violations = checker.check(chain)
        assert not violations, "\n".join(map(str, violations[:20]))
        damages = opened.fsck().damages
        assert not damages, "\n".join(map(str, damages[:20]))
    return len(chain.links)
