"""Workers: several processes that serve one lake from one socket, and the one that looks after them.

A worker gets what it is told through its standard input, and drains when that ends: so none outlives its
supervisor, however that ended. One that dies is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

import msgspec

from penstock.errors import Unavailable
from penstock.kernel.settings import Settings
from penstock.server.logs import Log, LogLevel
from penstock.server.metrics_endpoint import DIRECTORY
from penstock.server.options import ServerOptions

START_TIMEOUT_S: Final = 30.0
"""How long one worker may take to start. All start at the same time, and share the processors."""
LOOK_EVERY_S: Final = 0.2
SHORT_LIFE_S: Final = 2.0
"""A worker that dies sooner is replaced only then, so that one that cannot live does not eat the machine."""


def supervise_workers(
    serving: ServerOptions, listener: socket.socket, log: Log, started: Callable[[], None]
) -> None:
    """Keep so many workers serving until a signal comes, then have them drain."""
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as figures:
        workers = [_Worker(serving, listener, Path(figures)) for _ in range(serving.workers)]
        with _watch_signals(workers) as stopped:
            try:
                for worker in workers:
                    worker.wait_until_ready()
                started()
                while not stopped.wait(LOOK_EVERY_S):
                    for index, worker in enumerate(workers):
                        workers[index] = worker.replace_if_dead(log)
            finally:
                # A worker that has drained closes its lake, which publishes.
                _drain_workers(workers, serving.drain_timeout_s + Settings().publish_close_s, log)
        log.log_message(LogLevel.INFO, "stopped, and all workers with it")


@contextlib.contextmanager
def _watch_signals(workers: list[_Worker]) -> Iterator[threading.Event]:
    """An event that a signal sets; a second one ends everything at once."""
    stopped = threading.Event()

    def stop_workers(number: int, _: FrameType | None) -> None:
        if stopped.is_set():
            for worker in workers:
                worker.process.kill()
            os._exit(128 + number)
        stopped.set()

    before = {
        signal_number: signal.signal(signal_number, stop_workers)
        for signal_number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


def _drain_workers(workers: list[_Worker], timeout_s: float, log: Log) -> None:
    for worker in workers:
        worker.process.terminate()
    until_s = monotonic() + timeout_s + 5.0
    for worker in workers:
        try:
            worker.process.wait(max(0.1, until_s - monotonic()))
        except subprocess.TimeoutExpired:
            log.log_message(LogLevel.WARNING, f"worker {worker.process.pid} did not stop, and is killed")
            worker.process.kill()
            worker.process.wait()


class _Worker:
    """One process that serves."""

    def __init__(self, serving: ServerOptions, listener: socket.socket, figures: Path) -> None:
        self._serving, self._listener, self._figures = serving, listener, figures
        self._began_s = monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.server.worker", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            # A terminal's Ctrl-C is for the supervisor, which tells its workers.
            process_group=0,
            env={**os.environ, DIRECTORY: str(figures)},
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(msgspec.json.encode(serving) + b"\n")
            self.process.stdin.flush()

    def wait_until_ready(self) -> None:
        """``Unavailable`` if the worker ends instead; it has said why on standard error."""
        assert self.process.stdout is not None
        killer = threading.Timer(START_TIMEOUT_S * self._serving.workers, self.process.kill)
        killer.start()
        try:
            if not self.process.stdout.readline():
                raise Unavailable("a worker did not start; the previous line of the log gives the reason")
        finally:
            killer.cancel()

    def replace_if_dead(self, log: Log) -> _Worker:
        """This worker, or another one in its place if it has died."""
        status = self.process.poll()
        if status is None or (status != 0 and monotonic() - self._began_s < SHORT_LIFE_S):
            return self
        log.log_message(
            LogLevel.ERROR, f"worker {self.process.pid} ended with status {status}; another one is started"
        )
        for gauge_file in self._figures.glob(f"gauge_*_{self.process.pid}.db"):
            gauge_file.unlink(missing_ok=True)
        return _Worker(self._serving, self._listener, self._figures)
