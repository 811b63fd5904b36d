"""Starting a real server on a free port of this machine, and never leaving it behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

KEEPER = Path(__file__).with_name("keeper.py")
HOST = "127.0.0.1"
START_MAX_S = 60.0
ATTEMPTS = 3


class Missing(Exception):
    """A server's program is not on this machine; the message says how to get it."""


class DidNotStart(Exception):
    """A server ended, or did not answer in time; the message holds the last it said."""


class Process:
    """A server's running process."""

    def __init__(self, keeper: subprocess.Popen[str], pid: int, directory: Path) -> None:
        self._keeper = keeper
        self.pid = pid
        self.directory = directory

    def last_words(self) -> str:
        try:
            return (self.directory / "log").read_text(errors="replace")[-3000:]
        except OSError:
            return "(it left no log)"

    def has_ended(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Ask until the server answers; ``DidNotStart`` if it ends or takes too long."""
        deadline = time.monotonic() + START_MAX_S
        while not answers():
            if self.has_ended() or time.monotonic() > deadline:
                words = self.last_words()
                self.stop()
                raise DidNotStart(words)
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server and remove its directory."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        self._keeper.stdout.close()


def new_directory(user: str = "") -> Path:
    """A temporary directory that belongs to the user who will run the server."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-server-"))
    if user:
        shutil.chown(directory, user)
    return directory


def start(
    command: Sequence[str | Path],
    directory: Path,
    *,
    stop_signal: signal.Signals = signal.SIGTERM,
    user: str = "",
    environment: dict[str, str] | None = None,
) -> Process:
    """Start a server whose files lie in a directory of its own."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", KEEPER, directory, str(int(stop_signal)), user, *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    assert keeper.stdout is not None
    return Process(keeper, int(keeper.stdout.readline()), directory)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


@contextlib.contextmanager
def hold_port(port: int = 0) -> Iterator[int]:
    """A port that nobody else is given while the block runs, though nobody may be listening on it.

    It is bound here, and not listened on: whoever connects is refused until somebody listens, who has to say
    that the address may be in use (``SO_REUSEADDR``), as servers do.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))
        yield int(held.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether somebody listens on a port."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class Server(Protocol):
    """Whatever runs in a process and can say where it listens."""

    process: Process


AnyServer = TypeVar("AnyServer", bound=Server)


@contextlib.contextmanager
def running(launch: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    """A server while the block runs. Somebody else may take a free port first, so it is tried again."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(DidNotStart):
            server = launch()
            break
    else:
        server = launch()
    try:
        yield server
    finally:
        server.process.stop()
