"""The acceptor, as the serving process sees it: a process that accepts connections and answers probes.

Handlers compute in threads of the serving process, and its event loop waits for their interpreter lock. A
probe that waited with it would take as long as others make it wait. So ``/healthz`` is answered by a process
that does nothing else (``acceptor_process``), which also says so if the event loop does not run. If that
process is lost, the server accepts connections itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.metrics.meter import Meter
from penstock.metrics.table import HTTP_REQUESTS
from penstock.processes.frames import CLOSE_ON_EXEC
from penstock.server import acceptor_process
from penstock.server.acceptor_process import HEALTHY, STUCK
from penstock.server.logs import Log, LogLevel

BEAT_EVERY_S: Final = 0.5
STUCK_S: Final = 10.0
"""Probes are answered by 503 when the event loop has not run for so long."""
UNTAKEN_S: Final = 2.0
"""Connections are left to other workers when the event loop has not run for so long."""
RECEIVE_AT_ONCE: Final = 32
"""Connections that are taken before the event loop does something else."""
END_TIMEOUT_S: Final = 2.0
"""For the process to hand over what it has accepted, and to end."""


class Acceptor:
    """Gets connections from a process of its own. Used by the thread of the event loop alone."""

    def __init__(self, listener: socket.socket, log: Log, meter: Meter, *, is_shared: bool) -> None:
        """Start the process. It accepts nothing before ``begin``. ``OSError`` if it cannot be started.

        ``is_shared`` says that other workers accept connections from the listener as well.
        """
        self._log, self._meter = log, meter
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        try:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(Path(acceptor_process.__file__))),
                    *(str(listener.fileno()), str(theirs.fileno()), str(STUCK_S)),
                    *((str(UNTAKEN_S),) if is_shared else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno(), theirs.fileno()],
                process_group=0,  # Ctrl-C in a terminal is for the serving process
            )
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()
        self._is_stopping = False
        self._timer: asyncio.TimerHandle | None = None

    def start_accepting(self, protocol: Callable[[], asyncio.Protocol], lost: Callable[[], None]) -> None:
        """Have connections accepted. ``lost`` is called if the process ends by itself."""
        self._protocol, self._lost = protocol, lost
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel, self._receive_connections)
        self._signal_running()

    async def stop(self) -> None:
        """Have no more connections accepted. Those that were accepted already are taken."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), END_TIMEOUT_S)
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self._end_process()

    def _signal_running(self) -> None:
        self._show_running()
        self._timer = self._loop.call_later(BEAT_EVERY_S, self._signal_running)

    def _show_running(self) -> None:
        """Show the process that the event loop runs, and has taken the connections that came."""
        with contextlib.suppress(OSError):
            self._channel.send(b".")

    def _receive_connections(self) -> None:
        self._receive_some()
        if self._channel.fileno() >= 0 and not self._is_stopping:
            self._show_running()

    def _receive_some(self) -> None:
        for _ in range(RECEIVE_AT_ONCE):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._channel, 64, 8, CLOSE_ON_EXEC)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._end_of_channel()
                return
            for descriptor in descriptors:
                self._serve_connection(socket.socket(fileno=descriptor))
            for byte, status in ((HEALTHY, "200"), (STUCK, "503")):
                if count := data.count(byte):
                    self._meter.count(HTTP_REQUESTS, count, api="server", route="GET /healthz", status=status)

    def _serve_connection(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._connecting.add(task)
        task.add_done_callback(self._note_connected)

    def _note_connected(self, task: asyncio.Task[Any]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._log.log_message(
                LogLevel.WARNING, f"a connection was lost before its first request: {problem}"
            )

    def _end_of_channel(self) -> None:
        self._loop.remove_reader(self._channel)
        self._ended.set()
        if not self._is_stopping:
            self._end_process()
            status = self.process.returncode
            self._log.log_message(
                LogLevel.WARNING,
                f"the process that accepts connections ended with status {status}: the server accepts them "
                "itself from now on, and /healthz may be slow under load until the server is restarted",
            )
            self._lost()

    def _end_process(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
