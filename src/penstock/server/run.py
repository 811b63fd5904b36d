"""Running: a process, or several, that serve one lake until they are told to stop.

``SIGTERM`` and ``SIGINT`` stop it in good order: no new connections, open requests end, then the lake
is closed. A second signal ends it at once, which a lake survives as it survives a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from math import inf
from time import monotonic
from types import FrameType
from typing import Final, TypeAlias

import uvicorn

from penstock.errors import InvalidRequest
from penstock.formats.registry import list_table_formats, list_usable_formats
from penstock.kernel.settings import Settings
from penstock.lake.calls import GetAbout, ListTokens
from penstock.lake.catalogue import Catalogue
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.opener import is_remote, open_lake
from penstock.metrics.meter import SILENT, Meter
from penstock.server.acceptor import Acceptor
from penstock.server.access import AccessGate, OpenGate, TokenGate
from penstock.server.access.format_rules import load_format_rules
from penstock.server.app import Application
from penstock.server.background_sweep import BackgroundSweep
from penstock.server.connection import make_connection_class
from penstock.server.error_redaction import RedactingCatalogue
from penstock.server.health import Readiness, make_server_api
from penstock.server.library_preload import has_row_libraries, import_libraries
from penstock.server.limits import CHECKS_SHARE
from penstock.server.listener import get_url, is_loopback, open_listener
from penstock.server.logs import Log, LogLevel, take_over
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.native import make_native_api
from penstock.server.nessie.v1 import V1
from penstock.server.nessie.v2 import V2
from penstock.server.options import ServerOptions
from penstock.server.request_counts import count_requests
from penstock.server.routes import Api
from penstock.server.same_origin import OwnPages
from penstock.server.sockets import ConnectionLimits
from penstock.server.transaction_reaper import TransactionReaper
from penstock.server.ui.api import make_ui_api
from penstock.server.workers import supervise_workers

KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle; longer than most clients keep one, so that they close it."""

DRAIN_LOOK_EVERY_S: Final = 0.02

SWITCH_INTERVAL_S: Final = 0.005
"""How long a thread computes while others want to, as Python has it. Short requests wait for the store before
that, and each switch costs something."""
LONG_SWITCH_INTERVAL_S: Final = 0.0002
"""The same while reads compute for long: the event loop is among those who want to, and every answer waits
for it, several times."""

ONE_PROCESS: Final = ("memory:", "rocksdb:")
"""Lakes that only one process can have open."""

Announce: TypeAlias = Callable[[str, str], None]
"""Called with the lake's place and the server's URL once requests are answered."""


def serve_lake(serving: ServerOptions, announce: Announce) -> None:
    """Serve until a signal comes. Raises what stands against it before anything is served."""
    check_serving(serving)
    log = Log(sys.stderr.buffer, serving.log_level, serving.logs_for_people)
    if serving.workers > 1:
        with open_lake_to_serve(serving, SILENT) as lake:
            place, doubts = lake.url, list(_list_startup_warnings(serving, lake))
        with open_listener(serving.host, serving.port) as listener:
            supervise_workers(
                serving,
                listener,
                log,
                lambda: _announce_start(serving, listener, place, doubts, log, announce),
            )
        return
    figures = MetricsEndpoint()
    with (
        open_lake_to_serve(serving, figures.meter) as lake,
        open_listener(serving.host, serving.port) as listener,
    ):
        place, doubts = lake.url, list(_list_startup_warnings(serving, lake))
        service = ServerProcess(lake.catalogue, serving, figures)
        service.serve_until_signal(
            listener, lambda: _announce_start(serving, listener, place, doubts, log, announce)
        )


def _announce_start(
    serving: ServerOptions,
    listener: socket.socket,
    address: str,
    doubts: list[str],
    log: Log,
    announce: Announce,
) -> None:
    """Announce that the server accepts requests: to the caller, and in the log."""
    for doubt in doubts:
        log.log_message(LogLevel.WARNING, doubt)
    url = get_url(listener)
    if not serving.logs_for_people:  # a terminal shows what is announced
        count = f"{serving.workers} worker{'s' if serving.workers > 1 else ''}"
        log.log_message(
            LogLevel.INFO, f"serving {address} at {url} with {count}, Penstock {version('penstock')}"
        )
    announce(address, url)


def _list_startup_warnings(serving: ServerOptions, lake: Lake) -> Iterator[str]:
    """Warnings about options and settings that make a server unsafe or useless."""
    if serving.is_insecure and not is_loopback(serving.host):
        yield f"--insecure: everybody who can reach {serving.host} can read and change the whole lake"
    if not serving.is_open and not has_tokens(lake):
        yield f"every request will be refused: {_explain_missing_tokens(lake)}"
    if not serving.is_dev and not lake.catalogue.do(GetAbout()).roots:
        yield (
            "every table will be refused: the lake has no root, and a server accepts only tables below a "
            f"root. Add one with 'penstock --lake {lake.url} root add s3://…'"
        )


def check_serving(serving: ServerOptions) -> None:
    """``InvalidRequest`` if the options of a server contradict each other, or are unsafe."""
    if is_remote(serving.lake):
        raise InvalidRequest("a server cannot serve a lake that is behind another server")
    if serving.is_dev and not is_loopback(serving.host):
        raise InvalidRequest(
            f"--dev allows everybody everything, so it can only serve this machine, not '{serving.host}'"
        )
    limits = serving.limits
    if limits.expectation_timeout_s > limits.checks_timeout_s:
        needed_s = limits.expectation_timeout_s / CHECKS_SHARE
        raise InvalidRequest(
            f"--expectation-timeout-s {limits.expectation_timeout_s:g} is more than a request has for the "
            f"expectations of its branch: {limits.checks_timeout_s:g} of the {limits.request_timeout_s:g} "
            f"s of --request-timeout-s. Use --request-timeout-s {needed_s:g}, or a lower "
            "--expectation-timeout-s"
        )
    if serving.workers > 1 and serving.lake.startswith(ONE_PROCESS):
        raise InvalidRequest(
            f"only one process can have {serving.lake.partition(':')[0]}: lakes open: leave out --workers"
        )


def open_lake_to_serve(serving: ServerOptions, meter: Meter) -> Lake:
    """The lake. ``InvalidRequest`` if it would be served to other machines and nobody could have a token."""
    create = serving.is_dev or serving.lake.startswith("memory:")
    # Nobody who asked over the network waits for other readers: publishing goes on when they are answered.
    expectation_timeout_s = serving.limits.expectation_timeout_s or serving.limits.checks_timeout_s
    settings = Settings(publish_wait_s=0.0, expectation_timeout_s=expectation_timeout_s)
    lake = open_lake(serving.lake, create=create, meter=meter, settings=settings)
    try:
        if not serving.is_open and not is_loopback(serving.host) and not has_tokens(lake):
            raise InvalidRequest(
                f"'{serving.host}' can be reached from other machines, "
                f"but {_explain_missing_tokens(lake)}, or use "
                "--insecure to allow everybody everything"
            )
    except BaseException:
        lake.close()
        raise
    return lake


def has_tokens(lake: Lake) -> bool:
    """Whether there is a token that has not expired."""
    now = datetime.now(UTC)
    return any(token.expires is None or token.expires > now for token in lake.catalogue.do(ListTokens()))


def _explain_missing_tokens(lake: Lake) -> str:
    return (
        f"the lake has no valid token. Create one with 'penstock --lake {lake.url} token create NAME "
        "--grant admin'"
    )


def load_apis(log: Log | None = None) -> tuple[Api, ...]:
    """The APIs that a lake is offered through. What cannot be used of other packages is logged."""
    usable, problems = list_usable_formats()
    if log is not None:
        for problem in problems:
            log.log_message(LogLevel.WARNING, problem)
    further = (declared.load(api) for declared in (*list_table_formats(), *usable) for api in declared.apis)
    return (make_native_api(usable), V2, V1, *further)


class ServerProcess:
    """One process that serves a lake: its application, and when it stops."""

    def __init__(
        self,
        catalogue: Catalogue,
        serving: ServerOptions,
        figures: MetricsEndpoint,
        *,
        apis: Sequence[Api] | None = None,
        worker: int = 0,
    ) -> None:
        self._serving = serving
        self.log = Log(sys.stderr.buffer, serving.log_level, serving.logs_for_people, worker)
        gate: AccessGate = TokenGate(RedactingCatalogue(catalogue))
        if serving.is_open:
            # Another site can let a name of its own lead to this machine's own addresses only.
            any_name = not is_loopback(serving.host)
            gate = OwnPages(OpenGate(any_location=serving.is_dev), any_name=any_name)
        self.readiness = Readiness(catalogue)
        self._apis = apis = load_apis(self.log) if apis is None else apis
        metrics = partial(_render_figures, catalogue, figures)
        own = make_server_api(apis, self.readiness, gate, metrics)
        self.application = Application(
            catalogue,
            (own, *apis, make_ui_api(gate)),
            gate=gate,
            log=self.log,
            limits=serving.limits,
            meter=figures.meter,
            note=self.readiness.note_error,
        )
        if isinstance(catalogue, Embedded):
            catalogue.engine.pool = self.application.pool
            catalogue.count_requests = lambda: count_requests(figures.render_metrics())
            catalogue.add_other_plugins()  # they catch up now, and not when the first request needs one
        self.sockets = ConnectionLimits(serving.limits, self.log, figures.meter)
        config = uvicorn.Config(
            self.application,
            http=make_connection_class(serving.limits.body_timeout_s, self.sockets),
            loop="uvloop",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=serving.drain_timeout_s,  # type: ignore[arg-type]
        )
        self._worker, self._meter = worker, figures.meter
        self._sweeping: BackgroundSweep | None = None
        self._settling: TransactionReaper | None = None
        if isinstance(catalogue, Embedded) and not catalogue.kernel.store.is_read_only:
            self._sweeping = BackgroundSweep(
                catalogue, self.log, every_hours=serving.sweep_every_hours, remove_data=serving.sweep_data
            )
            self._settling = TransactionReaper(catalogue, self.log)
        self._server = _Server(config, self.readiness, lambda: self.application.open_requests == 0)

    def serve_until_signal(self, listener: socket.socket, started: Callable[[], None]) -> None:
        """Serve until a signal comes, or ``stop``. Afterwards the lake can be closed.

        If requests do not end in time, the process does: a lake is not closed under those who write to it.
        """
        if threading.current_thread() is threading.main_thread():
            take_over(self.log)
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self.application.turns.when_used = _switch_threads
            self._server.acceptor = self._start_acceptor(listener)
        if self.sockets.capacity_warning:
            self.log.log_message(LogLevel.WARNING, self.sockets.capacity_warning)
        self._import_libraries()
        self._server.when_started = started
        background = [worker for worker in (self._sweeping, self._settling) if worker is not None]
        for worker in background:
            worker.start()
        self._server.run(sockets=[listener])
        for worker in background:
            worker.stop(self._serving.drain_timeout_s)
        self.application.stop()
        took_s, remaining = monotonic() - self._server.stopped_s, self.application.open_requests
        if remaining:
            given_up = (
                "1 request that did not end" if remaining == 1 else f"{remaining} requests that did not end"
            )
            self.log.log_message(LogLevel.WARNING, f"stopped after {took_s:.1f} s, and cancelled {given_up}")
            sys.stdout.flush()
            os._exit(1)
        if not self._worker:
            self.log.log_message(LogLevel.INFO, f"stopped {self._server.why}, after {took_s:.1f} s")

    def _start_acceptor(self, listener: socket.socket) -> Acceptor | None:
        """The process that accepts connections; without one, the server accepts them itself."""
        try:
            return Acceptor(listener, self.log, self._meter, is_shared=self._serving.workers > 1)
        except OSError as problem:
            self.log.log_message(
                LogLevel.WARNING, f"no process can be started to accept connections: {problem}"
            )
            return None

    def _import_libraries(self) -> None:
        """Have all libraries ready, here and in a first process that works on rows."""
        pool = self.application.pool
        if has_row_libraries():
            pool.start()  # it imports at the same time as this process
        import_libraries(self._apis, self.log)
        load_format_rules()  # loaded before the first request needs them
        if has_row_libraries():
            pool.await_started()

    def stop(self) -> None:
        """Stop in good order; may be called from anywhere."""
        self._server.stop()


def _switch_threads(is_computing: bool) -> None:
    """Let threads follow each other faster while reads compute for long."""
    sys.setswitchinterval(LONG_SWITCH_INTERVAL_S if is_computing else SWITCH_INTERVAL_S)


def _render_figures(catalogue: Catalogue, figures: MetricsEndpoint) -> bytes:
    """What ``/metrics`` says, up to date."""
    if isinstance(catalogue, Embedded):
        catalogue.report_metrics()
    return figures.render_metrics()


class _Server(uvicorn.Server):
    """Uvicorn's server, which says when it has started and ends a process without a signal of its own."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness, is_idle: Callable[[], bool]) -> None:
        super().__init__(config)
        self._readiness, self._is_idle = readiness, is_idle
        self.when_started: Callable[[], None] = lambda: None
        self.acceptor: Acceptor | None = None
        """Where connections come from; without one, from the listening socket."""
        self.stopped_s = inf
        """When it was told to stop."""
        self.why = "as told"

    def stop(self) -> None:
        self._readiness.is_draining = True
        self.stopped_s = min(self.stopped_s, monotonic())
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets if self.acceptor is None else [])
        if self.acceptor is not None:
            self.acceptor.start_accepting(self._make_protocol, partial(self._accept_directly, sockets or []))
        self.when_started()

    def _make_protocol(self) -> asyncio.Protocol:
        """A new connection, as ``startup`` makes them for a listening socket."""
        config = self.config
        protocol: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _accept_directly(self, sockets: list[socket.socket]) -> None:
        """Accept connections in this process: the acceptor is lost."""

        async def accept_connections() -> None:
            loop = asyncio.get_running_loop()
            self.servers += [
                await loop.create_server(self._make_protocol, sock=listener) for listener in sockets
            ]

        self._accepting = asyncio.get_running_loop().create_task(accept_connections())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for connections, and then for work that goes on although its request was answered."""
        if self.acceptor is not None:
            await self.acceptor.stop()
        await super().shutdown(sockets)
        until_s = self.stopped_s + (self.config.timeout_graceful_shutdown or 0)
        while not self._is_idle() and monotonic() < until_s:  # noqa: ASYNC110 - threads end when they do
            await asyncio.sleep(DRAIN_LOOK_EVERY_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            signal_number: signal.signal(signal_number, self.handle_exit)
            for signal_number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.should_exit:
            os._exit(128 + sig)
        self.why = f"by {signal.Signals(sig).name}"
        self.stop()
