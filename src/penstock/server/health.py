"""Health: what the server says about itself, to probes, to Prometheus and to people.

``/healthz`` says that the process is there, ``/readyz`` whether it should be sent requests, ``/metrics`` what
it did, ``/openapi.json`` and ``/docs`` what it can be asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import monotonic
from typing import Any, Final

import msgspec

from penstock.errors import Denied, PenstockError, Unavailable
from penstock.lake.calls import GetAbout, ListReferences
from penstock.lake.catalogue import Catalogue
from penstock.model.tokens import Role
from penstock.server import openapi, page
from penstock.server.access import Gate
from penstock.server.routes import Answer, Api, Ask, Route
from penstock.wire import json
from penstock.wire.errors import Failure, encode_error

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PROBE_TIMEOUT_S: Final = 2.0
PROBE_EVERY_S: Final = 1.0
"""However often somebody asks, the store is not asked more often."""


class Health(msgspec.Struct, frozen=True):
    """That the server is there, or ready."""

    status: str = "ok"


class Readiness:
    """Whether a server should be sent requests: its store answers, its lake stays, and it is not stopping."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._probe: _Probe | None = None
        self.is_draining = False

    def require(self) -> None:
        """``Unavailable`` says why no requests should be sent here."""
        if self.is_draining:
            raise Unavailable("the server is stopping")
        with self._lock:
            if self._probe is None or self._probe.is_old():
                self._probe = _Probe(self._catalogue)
            probe = self._probe
        if not probe.ended.wait(PROBE_TIMEOUT_S):
            raise Unavailable(f"the store has not answered for {PROBE_TIMEOUT_S:g} s")
        if probe.problem:
            raise Unavailable(probe.problem)


class _Probe:
    """One look at the lake, in a thread of its own, for nobody knows how long it takes."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.problem = ""
        self.ended = threading.Event()
        self._ended_s = 0.0
        threading.Thread(target=self._look, args=(catalogue,), name="readiness", daemon=True).start()

    def is_old(self) -> bool:
        """Whether another look is worth its while; never while this one goes on."""
        return self.ended.is_set() and monotonic() - self._ended_s > PROBE_EVERY_S

    def _look(self, catalogue: Catalogue) -> None:
        try:
            about = catalogue.do(GetAbout())
            catalogue.do(ListReferences(limit=1))
            if about.moving_to:
                self.problem = "the lake is moving to another place, or has moved"
        except PenstockError as error:
            self.problem = f"the lake does not answer: {error.code}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the server is not ready
            self.problem = f"the lake does not answer: {type(error).__name__}"
        finally:
            self._ended_s = monotonic()
            self.ended.set()


def server_api(apis: Sequence[Api], readiness: Readiness, gate: Gate, metrics: Callable[[], bytes]) -> Api:
    """The routes that belong to no API but to the server, which describe all the others too."""

    def ready(_: Ask) -> Health:
        readiness.require()
        return Health("ready")

    def figures(ask: Ask) -> Answer:
        # Figures name branches, so they are for those who may read every branch.
        caller = gate(ask.headers)
        if not caller.keys_everywhere(Role.READ).are_all:
            raise Denied("metrics name every branch: a token needs the grant 'read' to see them")
        return Answer(body=metrics(), content_type=METRICS_TYPE)

    @cache
    def description() -> bytes:
        return msgspec.json.encode(openapi.describe((api, *apis)))

    @cache
    def readable() -> Answer:
        return page.render(msgspec.json.decode(description()))

    api = Api(
        name="server",
        prefix="",
        title="The server",
        description="What the server says about itself.",
        routes=(
            _get("/healthz", lambda _: Health(), "Whether the process is there", Health),
            _get("/readyz", ready, "Whether requests should be sent here", Health),
            _get("/metrics", figures, "Figures for Prometheus", str, "text/plain", is_public=False),
            _get("/openapi.json", lambda _: Answer(body=description()), "All routes, for programs", dict),
            _get("/docs", lambda _: readable(), "All routes, for people", str, "text/html"),
            _get("/", lambda _: readable(), "All routes, for people", str, "text/html"),
        ),
        codec=json,
        error=_error,
        error_schema=Failure,
        strict_query=False,
    )
    return api


def _get(
    path: str,
    handle: Callable[[Ask], Any],
    summary: str,
    answer: Any,
    produces: str = "application/json",
    *,
    is_public: bool = True,
) -> Route:
    return Route(
        method="GET",
        path=path,
        handle=handle,
        summary=summary,
        answer=answer,
        produces=produces,
        is_public=is_public,
        is_vital=True,
    )


def _error(error: PenstockError, headers: Mapping[str, str]) -> Answer:
    return Answer(status=error.http_status, body=encode_error(error, headers["x-request-id"]))
