"""Health: what the server says about itself, to probes, to Prometheus and to people.

``/healthz`` says that the process is there, ``/readyz`` whether it should be sent requests, ``/metrics`` what
it did, ``/openapi.json`` and ``/docs`` what it can be asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import Denied, PenstockError, StorageFull, StorageRefused, Unavailable
from penstock.lake.calls import GetAbout, ListReferences
from penstock.lake.catalogue import Catalogue
from penstock.lake.embedded import Embedded
from penstock.model.tokens import Role
from penstock.server import api_page, openapi
from penstock.server.access import AccessGate
from penstock.server.error_redaction import redact_error
from penstock.server.routes import Api, HttpAnswer, Route, RouteRequest
from penstock.server.writability import Writability
from penstock.wire import json
from penstock.wire.errors import ErrorBody, encode_error

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PROBE_TIMEOUT_S: Final = 2.0
PROBE_EVERY_S: Final = 1.0
"""However often somebody asks, the store is not asked more often."""

R = TypeVar("R")


class Health(msgspec.Struct, frozen=True):
    """That the server is there, or ready."""

    status: str = "ok"


class Readiness:
    """Whether a server should be sent requests: its store answers, its lake stays, it is not stopping, and
    writes land, as far as is known."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._writability = Writability(catalogue) if isinstance(catalogue, Embedded) else None
        self._lock = threading.Lock()
        self._probe: _LakeProbe | None = None
        self.is_draining = False

    def note_error(self, error: PenstockError) -> None:
        """Take notice of an error that a request was answered with: the next look looks closer."""
        if self._writability is not None:
            self._writability.note_error(error)

    def require_ready(self, *, writes: bool = True) -> None:
        """Raises why no requests should be sent here, or no reads if ``writes`` says no."""
        if self.is_draining:
            raise Unavailable("the server is stopping")
        with self._lock:
            if self._probe is None or self._probe.is_old():
                self._probe = _LakeProbe(self._catalogue, self._writability)
            probe = self._probe
        if not probe.ended.wait(PROBE_TIMEOUT_S):
            raise Unavailable(f"the lake has not answered for {PROBE_TIMEOUT_S:g} s")
        if probe.problem is not None:
            raise probe.problem
        if writes and probe.write_problem is not None:
            raise probe.write_problem


class _LakeProbe:
    """One look at the lake, in a thread of its own, for nobody knows how long it takes."""

    def __init__(self, catalogue: Catalogue, writability: Writability | None) -> None:
        self.problem: PenstockError | None = None
        self.write_problem: PenstockError | None = None
        self.ended = threading.Event()
        self._ended_s = 0.0
        threading.Thread(
            target=self._probe_store, args=(catalogue, writability), name="readiness", daemon=True
        ).start()

    def is_old(self) -> bool:
        """Whether another look is worth its while; never while this one goes on."""
        return self.ended.is_set() and monotonic() - self._ended_s > PROBE_EVERY_S

    def _probe_store(self, catalogue: Catalogue, writability: Writability | None) -> None:
        try:
            about = catalogue.do(GetAbout())
            catalogue.do(ListReferences(limit=1))
            if about.moving_to:
                self.problem = Unavailable(
                    "the lake is being moved, or has moved, to another location; start a server on it there"
                )
            elif writability is not None:
                self.write_problem = _explain_not_ready(writability.require_writable)
        except PenstockError as error:
            self.problem = _reason_for_anybody(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the server is not ready
            self.problem = Unavailable(f"the lake does not answer: {type(error).__name__}")
        finally:
            self._ended_s = monotonic()
            self.ended.set()


def _explain_not_ready(look: Callable[[], None]) -> PenstockError | None:
    try:
        look()
    except PenstockError as error:
        return _reason_for_anybody(error)
    return None


def _reason_for_anybody(error: PenstockError) -> PenstockError:
    """Why a server is not ready, in words that may be told to anybody."""
    kind: type[PenstockError] = Unavailable
    if isinstance(error, StorageFull):
        kind = StorageFull
    elif isinstance(error, Denied):  # nobody's grants were asked for: the database or storage refuses
        kind = StorageRefused
    return kind(f"{redact_error(error).message} ({error.code})", **redact_error(error).details)


class ReadinessQuery(msgspec.Struct, frozen=True):
    """What is asked of readiness."""

    writes: bool = True
    """Whether writes have to land. Without them, a server is ready that answers reads."""


def read_figures(gate: AccessGate, metrics: Callable[[], bytes], headers: Mapping[str, str]) -> bytes:
    """What ``/metrics`` says. Figures name branches, so they are for those who may read every branch."""
    if not gate(headers).find_keys_granted_everywhere(Role.READ).are_all:
        raise Denied("metrics name every branch: a token needs the grant 'read' to see them")
    return metrics()


def make_server_api(
    apis: Sequence[Api], readiness: Readiness, gate: AccessGate, metrics: Callable[[], bytes]
) -> Api:
    """The routes that belong to no API but to the server, which describe all the others too."""

    def answer_ready(ask: RouteRequest) -> Health:
        readiness.require_ready(writes=ask.query.writes)
        return Health("ready")

    def answer_metrics(ask: RouteRequest) -> HttpAnswer:
        return HttpAnswer(body=read_figures(gate, metrics, ask.headers), content_type=METRICS_TYPE)

    @_make_once
    def encode_description() -> bytes:
        return msgspec.json.encode(openapi.describe_apis((api, *apis)))

    @_make_once
    def render_description() -> HttpAnswer:
        return api_page.render_api_page(msgspec.json.decode(encode_description()))

    api = Api(
        name="server",
        prefix="",
        title="The server",
        description="Health, metrics and the description of all routes.",
        routes=(
            _make_get_route(
                "/healthz",
                lambda _: Health(),
                "Check whether the process is running",
                Health,
                is_instant=True,
            ),
            _make_get_route(
                "/readyz",
                answer_ready,
                "Check whether the server is ready for requests",
                Health,
                query=ReadinessQuery,
            ),
            _make_get_route(
                "/metrics", answer_metrics, "Metrics for Prometheus", str, "text/plain", is_public=False
            ),
            _make_get_route(
                "/openapi.json",
                lambda _: HttpAnswer(body=encode_description()),
                "All routes, as an OpenAPI document",
                dict,
            ),
            _make_get_route(
                "/docs", lambda _: render_description(), "All routes, as a web page", str, "text/html"
            ),
            _make_get_route(
                "/", lambda _: render_description(), "All routes, as a web page", str, "text/html"
            ),
        ),
        codec=json,
        error=_make_error_answer,
        error_schema=ErrorBody,
        strict_query=False,
    )
    return api


def _make_once(make: Callable[[], R]) -> Callable[[], R]:
    """What a function makes, once: it takes long, and of those who ask at once all wait for the first."""
    cached, lock = cache(make), threading.Lock()

    def get_cached() -> R:
        with lock:
            return cached()

    return get_cached


def _make_get_route(
    path: str,
    handle: Callable[[RouteRequest], Any],
    summary: str,
    answer: Any,
    produces: str = "application/json",
    *,
    is_public: bool = True,
    query: Any = None,
    is_instant: bool = False,
) -> Route:
    return Route(
        method="GET",
        path=path,
        handle=handle,
        summary=summary,
        query=query,
        answer=answer,
        produces=produces,
        is_public=is_public,
        is_vital=True,
        is_instant=is_instant,
    )


def _make_error_answer(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    # That storage refuses the server is no refusal of who asks whether it is ready.
    status = Unavailable.http_status if isinstance(error, StorageRefused) else error.http_status
    return HttpAnswer(status=status, body=encode_error(error, headers["x-request-id"]))
