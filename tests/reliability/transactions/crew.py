"""Worker processes that go from lake to lake; one that is killed on the way is replaced."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from tests.reliability.transactions.worker import Task

ROOT = Path(__file__).parents[3]
WORKER = "tests.reliability.transactions.worker"


class Crew:
    """Processes that are ready for a task each. None outlives the block."""

    def __init__(self, size: int) -> None:
        self._workers = [_Worker() for _ in range(size)]

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._workers:
            one.end()

    def run(self, tasks: Sequence[Task], after_death: Callable[[Task], None]) -> None:
        """Have tasks done at the same time, at most one a process.

        As soon as a process has killed itself as it was told, ``after_death`` is called, while the others go
        on. An error of a process is one here.
        """
        assert len(tasks) <= len(self._workers)
        with ThreadPoolExecutor(len(tasks)) as pool:
            list(pool.map(lambda number: self._do(number, tasks[number], after_death), range(len(tasks))))

    def _do(self, number: int, task: Task, after_death: Callable[[Task], None]) -> None:
        worker = self._workers[number]
        if worker.do(task):
            return
        self._workers[number] = _Worker()  # which is ready when the next task comes
        code, said = worker.end()
        assert task.kill_at is not None, f"{task.name} failed:\n{said}"
        assert code == -signal.SIGKILL, f"{task.name} failed before it was killed:\n{said}"
        after_death(task)


class _Worker:
    def __init__(self) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is there as long as this
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )
        self._is_ready = False

    def do(self, task: Task) -> bool:
        """Have a task done; whether the process lived to say so."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._is_ready:
            if self._process.stdout.readline() != "ready\n":
                return False
            self._is_ready = True
        self._process.stdin.write(msgspec.json.encode(task).decode() + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() == "done\n"

    def end(self) -> tuple[int, str]:
        """End the process if it still lives; how it ended, and the last of what it complained of."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        with self._errors as errors:
            errors.seek(0)
            return self._process.returncode, errors.read()[-5000:]
