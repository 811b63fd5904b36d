"""Running: a process, or several, that serve one lake until they are told to stop.

``SIGTERM`` and ``SIGINT`` stop it in good order: no new connections, open requests end, then the lake
is closed. A second signal ends it at once, which a lake survives as it survives a crash.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import uvicorn

from penstock.errors import InvalidRequest, Unavailable
from penstock.lake.calls import ListTokens
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.opening import is_remote, open_lake
from penstock.metrics.meter import SILENT, Meter
from penstock.server.access import Gate, OpenGate, TokenGate
from penstock.server.app import Application
from penstock.server.browsers import OwnPages
from penstock.server.connection import connection_type
from penstock.server.health import Readiness, server_api
from penstock.server.limits import Limits
from penstock.server.logs import Level, Log, take_over
from penstock.server.routes import Api

if TYPE_CHECKING:
    from penstock.server.figures import Figures

PORT: Final = 19120
KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle; longer than most clients keep one, so that they close it."""

ONE_PROCESS: Final = ("memory:", "rocksdb:")
"""Lakes that only one process can have open."""

Announce: TypeAlias = Callable[[str, str], None]
"""Called with the lake's place and the server's URL once requests are answered."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told."""

    lake: str
    host: str = "127.0.0.1"
    port: int = PORT
    workers: int = 1
    is_dev: bool = False
    """For everybody on this machine, with tables anywhere; a lake is made if none is there."""
    is_insecure: bool = False
    """Everybody may do everything."""
    limits: Limits = Limits()
    drain_timeout_s: float = 30.0
    log_level: Level = Level.INFO
    logs_for_people: bool = False

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self.is_dev or self.is_insecure


def serve(serving: Serving, announce: Announce) -> None:
    """Serve until a signal comes. Raises what stands against it before anything is served."""
    require_possible(serving)
    if serving.workers > 1:
        from penstock.server.workers import supervise

        with open_for(serving, SILENT) as lake:
            place = lake.url
        with bind(serving.host, serving.port) as listener:
            supervise(serving, listener, lambda: announce(place, url_of(listener)))
        return
    from penstock.server.figures import Figures

    figures = Figures()
    with open_for(serving, figures.meter) as lake, bind(serving.host, serving.port) as listener:
        service = Service(lake.catalogue, serving, figures)
        if not serving.is_open and not lake.catalogue.do(ListTokens()):
            service.log.say(Level.WARNING, f"every request will be refused: {_no_tokens(lake)}")
        service.run(listener, lambda: announce(lake.url, url_of(listener)))


def require_possible(serving: Serving) -> None:
    """``InvalidRequest`` if what a server is told contradicts itself, or would be careless."""
    if is_remote(serving.lake):
        raise InvalidRequest("a server serves a lake that is in a store, not one behind another server")
    if serving.is_dev and not is_loopback(serving.host):
        raise InvalidRequest(
            f"--dev lets everybody do everything, so it serves this machine only, not '{serving.host}'"
        )
    if serving.workers > 1 and serving.lake.startswith(ONE_PROCESS):
        raise InvalidRequest(
            f"only one process can have {serving.lake.partition(':')[0]}: lakes open: leave out --workers"
        )


def open_for(serving: Serving, meter: Meter) -> Lake:
    """The lake. ``InvalidRequest`` if it would be served to other machines and nobody could have a token."""
    create = serving.is_dev or serving.lake.startswith("memory:")
    lake = open_lake(serving.lake, create=create, meter=meter)
    try:
        if not serving.is_open and not is_loopback(serving.host) and not lake.catalogue.do(ListTokens()):
            raise InvalidRequest(
                f"'{serving.host}' can be reached from other machines, and {_no_tokens(lake)}, "
                "or say --insecure to let everybody do everything"
            )
    except BaseException:
        lake.close()
        raise
    return lake


def _no_tokens(lake: Lake) -> str:
    return (
        f"the lake has no tokens. Make one with 'penstock --lake {lake.url} token create NAME --grant admin'"
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; ``Unavailable`` says why there is none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except BaseException:
            listener.close()
            raise
    except OSError as problem:
        raise Unavailable(
            f"cannot serve at {host} port {port}: {problem.strerror}", host=host, port=port
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def all_apis() -> tuple[Api, ...]:
    """The APIs that a lake is offered through."""
    from penstock.server.native import NATIVE
    from penstock.server.nessie.v1 import V1
    from penstock.server.nessie.v2 import V2

    return (NATIVE, V2, V1)


class Service:
    """One process that serves a lake: its application, and when it stops."""

    def __init__(
        self,
        catalogue: Catalogue,
        serving: Serving,
        figures: Figures,
        *,
        apis: Sequence[Api] | None = None,
        worker: int = 0,
    ) -> None:
        self._serving = serving
        self.log = Log(sys.stderr.buffer, serving.log_level, serving.logs_for_people, worker)
        gate: Gate = TokenGate(catalogue)
        if serving.is_open:
            gate = OwnPages(OpenGate(any_location=serving.is_dev), any_name=not serving.is_dev)
        self.readiness = Readiness(catalogue)
        apis = all_apis() if apis is None else apis
        own = server_api(apis, self.readiness, gate, figures.text)
        self.application = Application(
            catalogue, (own, *apis), gate=gate, log=self.log, limits=serving.limits, meter=figures.meter
        )
        config = uvicorn.Config(
            self.application,
            http=connection_type(serving.limits.body_timeout_s),
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
        self._server = _Server(config, self.readiness)

    def run(self, listener: socket.socket, started: Callable[[], None]) -> None:
        """Serve until a signal comes, or ``stop``. Afterwards the lake can be closed.

        If requests do not end in time, the process does: a lake is not closed under those who write to it.
        """
        if threading.current_thread() is threading.main_thread():
            take_over(self.log)
        self._server.when_started = started
        self._server.run(sockets=[listener])
        self.application.stop()
        left = self.application.open_requests
        if left:
            limit_s = self._serving.drain_timeout_s
            self.log.say(Level.WARNING, f"{left} requests did not end within {limit_s:g} s and are given up")
            sys.stdout.flush()
            os._exit(1)

    def stop(self) -> None:
        """Stop in good order; may be called from anywhere."""
        self._server.stop()


class _Server(uvicorn.Server):
    """Uvicorn's server, which says when it has started and ends a process without a signal of its own."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness) -> None:
        super().__init__(config)
        self._readiness = readiness
        self.when_started: Callable[[], None] = lambda: None

    def stop(self) -> None:
        self._readiness.is_draining = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.when_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.should_exit:
            os._exit(128 + sig)
        self.stop()
