"""Servers that tests talk to: the program as users start it, and one in this process with its own routes."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import uvicorn

from penstock.lake.catalogue import Catalogue
from penstock.metrics.memory import Metrics
from penstock.processes.pool import ProcessPool
from penstock.server.access import AccessGate, OpenGate
from penstock.server.app import ROW_WORK_IMPORTS, Application
from penstock.server.connection import make_connection_class
from penstock.server.limits import Limits
from penstock.server.logs import Log, LogLevel
from penstock.server.routes import Api
from penstock.server.sockets import ConnectionLimits
from tests.queue.hooks import wait_until

ANSWER_MAX_S = 60.0
END_MAX_S = 60.0


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """Of the error, as Penstock's own API says it."""
        return self.json["error"]["code"]

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Client:
    """Asks a server, one connection for each request unless ``connection`` is used."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Any = None,
        headers: Mapping[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Reply:
        """One request; a body that is not bytes is sent as JSON."""
        told = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            told.setdefault("content-type", "application/json")
        with contextlib.ExitStack() as held:
            if connection is None:
                connection = held.enter_context(contextlib.closing(self.connection()))
            connection.request(method, path, body, told)
            answer = connection.getresponse()
            return Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_MAX_S)

    def raw(self) -> socket.socket:
        """A bare connection, to say what no client would."""
        return socket.create_connection((self.host, self.port), timeout=ANSWER_MAX_S)

    def send_raw(self, data: bytes) -> bytes:
        """All that the server answers to some bytes until it closes the connection."""
        with self.raw() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


class Program(Client):
    """``penstock serve`` in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], ready: str, log: Path) -> None:
        self.process, self.ready, self._log = process, ready, log
        super().__init__(json.loads(ready)["url"] if ready.startswith("{") else ready.rsplit(maxsplit=1)[-1])

    @property
    def log(self) -> str:
        """What it has logged until now, with all that a single worker has answered.

        A request is noted right after its answer is sent, and before the next request is looked at. With a
        query, the health is not answered by the acceptor.
        """
        with contextlib.suppress(OSError, http.client.HTTPException):  # it has ended, and noted everything
            self.get("/healthz?of=loop")
        return self._log.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.splitlines()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end, and return the status that it ends with."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(END_MAX_S)


@contextlib.contextmanager
def program(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None, dev: bool = True
) -> Iterator[Program]:
    """A started server; it is killed at the end if it has not ended by itself.

    It has one row worker unless ``environment`` says otherwise: each one imports Lance.
    """
    log = folder / f"log-{len(list(folder.glob('log-*')))}"
    told = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--port", "0", *options]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--dev"] if dev else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env={**told, "PENSTOCK_SERVE_ROW_WORKERS": "1", **(environment or {})},
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode()
        if not ready:
            process.wait(END_MAX_S)
            raise AssertionError(f"the server did not start: {log.read_text()}")
        yield Program(process, ready, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class LoopServer(uvicorn.Server):
    """Uvicorn's server, whose event loop can be waited for, and which ends when it is told to and not at its
    next look, a tenth of a second later: hundreds of tests end one each."""

    loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._told, self.loop = asyncio.Event(), asyncio.get_running_loop()
        await super().startup(sockets)

    def end_turn(self) -> None:
        """Wait until the loop has ended what it does now. A request is noted right after its answer is sent,
        with nothing in between."""
        has_ended = threading.Event()
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing more is noted
                self.loop.call_soon_threadsafe(has_ended.set)
                assert has_ended.wait(ANSWER_MAX_S), "the server hangs"

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Let the loop do nothing meanwhile: what clients send in the block is there when it goes on."""
        is_held, goes_on = threading.Event(), threading.Event()

        def stand_still() -> None:
            is_held.set()
            assert goes_on.wait(ANSWER_MAX_S)

        wait_until(lambda: self.loop is not None)
        assert self.loop is not None
        self.loop.call_soon_threadsafe(stand_still)
        assert is_held.wait(ANSWER_MAX_S), "the server hangs"
        try:
            yield
        finally:
            goes_on.set()

    def stop(self) -> None:
        self.should_exit = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it saw so by itself, and its loop is closed
                self.loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        looks = 0
        while not await self.on_tick(looks):
            looks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """At once, unless somebody is still connected or being answered: then it ends as ever."""
        for listening in [*self.servers, *(sockets or ())]:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(10):  # a connection that is closed is gone with one of the next turns of the loop
            await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


class Local(Client):
    """A server in this process."""

    def __init__(
        self, url: str, application: Application, server: LoopServer, log: io.BytesIO, metrics: Metrics
    ) -> None:
        super().__init__(url)
        self.application, self._server, self._log, self._metrics = application, server, log, metrics

    @property
    def log(self) -> str:
        """What it has logged, with all that it has answered."""
        self._server.end_turn()
        return self._log.getvalue().decode()

    def send_at_once(self, data: bytes, connection: socket.socket | None = None) -> socket.socket:
        """A connection whose first bytes the server sees as soon as the connection itself: however slow a
        client is, none of the time that it has to send them is used up."""
        made = connection or socket.socket()
        made.settimeout(ANSWER_MAX_S)
        with self._server.hold():
            made.connect((self.host, self.port))
            made.sendall(data)
        return made

    @property
    def connections(self) -> int:
        """How many are open, as the server sees it."""
        return len(self._server.server_state.connections)

    @property
    def metrics(self) -> Metrics:
        """What it has counted, with all that it has answered."""
        self._server.end_turn()
        return self._metrics

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.splitlines()]


@functools.cache
def shared_pool() -> ProcessPool:
    """Processes for work on rows that all servers of a test run share: starting one takes a second or two."""
    pool = ProcessPool(Limits().processes, ROW_WORK_IMPORTS)
    atexit.register(pool.close)
    return pool


@contextlib.contextmanager
def local(
    catalogue: Catalogue,
    apis: Sequence[Api],
    *,
    limits: Limits = Limits(),
    gate: AccessGate | None = None,
    head_timeout_s: float = 30.0,
    drain_timeout_s: float = 10.0,
    pool: ProcessPool | None = None,
    bounds_connections: bool = False,
) -> Iterator[Local]:
    """Serve APIs in a thread until the block ends."""
    log, metrics = io.BytesIO(), Metrics()
    lines = Log(log, LogLevel.DEBUG)
    application = Application(
        catalogue,
        apis,
        gate=gate or OpenGate(),
        log=lines,
        limits=limits,
        meter=metrics,
        pool=pool or shared_pool(),
    )
    sockets = ConnectionLimits(limits, lines, metrics) if bounds_connections else None
    config = uvicorn.Config(
        application,
        http=make_connection_class(head_timeout_s, sockets),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=drain_timeout_s,  # type: ignore[arg-type]
    )
    server = LoopServer(config)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Local(f"http://127.0.0.1:{port}", application, server, log, metrics)
    finally:
        server.stop()
        thread.join()
        application.stop()
