"""Drivers in processes of their own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.jobs import Answer, Job

ROOT = Path(__file__).parents[3]
ANSWER_MAX_S = 200.0
"""Less than a test may take: so that what fails says what the driver did."""


class Ended(Exception):
    """A driver is gone; the message holds the last it said."""


class Driver:
    """A running driver, which does one job after the other."""

    def __init__(self, cluster: Cluster, address: str, directory: Path) -> None:
        self.log = directory / f"driver-{len(list(directory.glob('driver-*')))}"
        told = [cluster.master, str(cluster.faults), address]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster.program", *told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # what was read is not kept here, where nobody who waits sees it
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        self._owed = 0
        """How many jobs it has not answered."""
        self._is_ready = False

    @property
    def is_free(self) -> bool:
        """Whether it lives, and has answered all that it was told; it may still be starting."""
        return self.process.poll() is None and not self._owed

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self._line()
            self._is_ready = True

    def begin(self, job: Job) -> None:
        """Have a job done; it answers when it is over."""
        assert self.process.stdin is not None
        self._owed += 1
        self.process.stdin.write(msgspec.json.encode(job) + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Answer:
        """What came of the job that was begun; ``Ended`` if the driver did not live to tell."""
        answer = msgspec.json.decode(self._line(), type=Answer)
        self._owed -= 1
        return answer

    def do(self, job: Job) -> Answer:
        self.begin(job)
        return self.answer()

    def kill(self) -> None:
        """As when its machine is gone: Python and Java at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        is_there, _, _ = select.select([self.process.stdout], [], [], ANSWER_MAX_S)
        assert is_there, f"the driver says nothing for {ANSWER_MAX_S:g} s: {self._last_words()}"
        line = self.process.stdout.readline()
        if not line:
            raise Ended(self._last_words())
        return line

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


class DriverSeat:
    """Where one test after the other finds a driver: the same, unless one before it left it busy or dead."""

    def __init__(self, cluster: Cluster, address: str, directory: Path) -> None:
        self._cluster, self._address, self._directory = cluster, address, directory
        self._driver: Driver | None = None

    def free_driver(self) -> Driver:
        """A driver that has nothing to do, and owes nobody an answer."""
        if self._driver is None or not self._driver.is_free:
            self.close()
            self._driver = Driver(self._cluster, self._address, self._directory)
        self._driver.wait_until_ready()
        return self._driver

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


@contextmanager
def driver(cluster: Cluster, address: str, directory: Path) -> Iterator[Driver]:
    """A driver while the block runs."""
    started = Driver(cluster, address, directory)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.close()
