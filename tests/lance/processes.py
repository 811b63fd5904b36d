"""Real processes that work on one lake, and begin at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
WAIT_MAX_S = 900.0


@contextmanager
def started(program: str, tasks: Sequence[msgspec.Struct]) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each task, which says that it is ready and is told to go; none outlives the block."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", program, msgspec.json.encode(task).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
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


def finish(worker: subprocess.Popen[str]) -> None:
    """Wait until a process has done what it was told; an error of its is one here."""
    _, errors = worker.communicate(timeout=WAIT_MAX_S)
    assert worker.returncode == 0, errors
