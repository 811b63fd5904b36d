"""The application: the way of a request from its connection to a handler, and of the answer back.

The event loop finds the route, counts, and moves bytes. Everything that decodes, waits or computes is done
by ``handling`` in a worker thread, once the request is complete. A request that takes too long is answered,
but its thread goes on, and keeps its place among the open requests until it ends.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections.abc import Iterable, MutableMapping
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Final

import msgspec

from penstock.errors import PenstockError, Throttled, TimedOut
from penstock.lake.catalogue import Catalogue
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import HTTP_OPEN_REQUESTS, HTTP_REQUESTS, HTTP_SECONDS
from penstock.server.access import Caller, Gate
from penstock.server.body import Body, ClientGone, Receive, body_size, too_large
from penstock.server.handling import Handled, Handling, Received, failed
from penstock.server.headers import Headers
from penstock.server.limits import Limits
from penstock.server.logs import Level, Line, Log, now
from penstock.server.matching import Found, Matching
from penstock.server.routes import Answer, Api, Route
from penstock.server.streaming import Send, stream
from penstock.server.threads import Threads
from penstock.wire.requests import KEY_HEADER

VITAL_MAX: Final = 16
"""Vital requests at the same time. They have threads of their own: a busy server still says how it is."""
BODY_FROM_ANYBODY_MAX_BYTES: Final = 64 * 1024
BODY_FROM_ANYBODY_MAX_S: Final = 0.2
"""A body that may be larger, or does not come at once, is only read once it is known who sends it: nobody
unknown can hold the places of others by sending nothing."""
ARRIVING_MAX: Final = 8
"""Requests that arrive from somebody who is not known yet, for each that may be open."""
STATUS_CLIENT_GONE: Final = 499
"""In the log and in metrics; there is nobody to send it to."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Exchange(msgspec.Struct):
    """One request and its answer, as the event loop sees them."""

    method: str
    path: str
    """As it was sent, still encoded."""
    headers: Headers
    request_id: str
    send: Send
    began_s: float
    found: Found | None = None
    request_bytes: int = 0
    is_read: bool = True
    """Whether the whole request has arrived, or soon will have: the connection can be used again."""
    is_begun: bool = False
    """Whether a handler was given the request, so that it may have an effect."""
    is_answered: bool = False


class Application:
    """An ASGI application that serves the APIs of one lake."""

    def __init__(
        self,
        catalogue: Catalogue,
        apis: Iterable[Api],
        *,
        gate: Gate,
        log: Log,
        limits: Limits = Limits(),
        meter: Meter = SILENT,
    ) -> None:
        self._matching = Matching(apis)
        self._handling = Handling(catalogue, gate, limits, log)
        self._limits, self._log, self._meter = limits, log, meter
        self._threads = Threads(limits.open_requests_max)
        self._vital_threads = Threads(VITAL_MAX)
        self._arriving = self._reading = 0

    @property
    def open_requests(self) -> int:
        """How many requests are being worked on, or read from callers who are known.

        Those that nobody waits for any more are among them, until they have ended.
        """
        return self._reading + self._threads.busy

    def stop(self) -> None:
        """Let the worker threads end once they have done what they do now."""
        self._threads.stop()
        self._vital_threads.stop()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_s = perf_counter()
        headers = _headers(scope["headers"])
        path = scope["raw_path"].decode("latin-1")
        exchange = Exchange(scope["method"], path, headers, headers["x-request-id"], send, began_s)
        exchange.is_read = body_size(headers) <= BODY_FROM_ANYBODY_MAX_BYTES
        try:
            exchange.found = self._matching.find(exchange.method, path)
            handled = await self._serve(exchange, exchange.found, scope["query_string"], receive)
        except PenstockError as error:
            handled = self._refusal(exchange, error)
        except ClientGone:
            handled = Handled(Answer(status=STATUS_CLIENT_GONE), error="client_gone")
            exchange.is_answered = True
        except Exception as error:  # noqa: BLE001 - a bug of ours, which no client is shown
            answer = self._handling.fault(self._matching.api(path), error, headers)
            handled = Handled(answer, error="internal")
        except asyncio.CancelledError:
            # The server stops and has waited long enough. A stream just breaks off.
            handled = self._refusal(exchange, _overdue("the server is stopping", exchange))
        if not exchange.is_answered:
            try:
                await _send(exchange, handled.answer)
            except asyncio.CancelledError:  # the server stops, and the client does not read its answer
                handled = Handled(Answer(status=STATUS_CLIENT_GONE), handled.who, "client_gone")
        self._note(exchange, handled)

    async def _serve(self, exchange: Exchange, found: Found, query: bytes, receive: Receive) -> Handled:
        """Read the request and have it handled."""
        route = found.route
        threads = self._vital_threads if route.is_vital else self._threads
        self._require_room(route)
        body, caller = b"", None
        if body_size(exchange.headers):
            body, caller = await self._read(exchange, found, receive)
            self._require_room(route)
        deadline_s = monotonic() + self._limits.request_timeout_s if not route.streams else math.inf
        request = Received(found, query, exchange.headers, body, exchange.request_id, caller, deadline_s)
        exchange.is_begun = True
        if route.streams:
            begin = partial(_begin_stream, exchange)
            return await stream(threads, partial(self._handling, request), begin, exchange.send)
        handled: Handled = await self._in_time(threads.run(partial(self._handling, request)), exchange)
        return handled

    async def _in_time(self, future: asyncio.Future[Any], exchange: Exchange) -> Any:
        """What a thread comes to; ``TimedOut`` if that takes too long."""
        limit_s = self._limits.request_timeout_s
        timer = asyncio.get_running_loop().call_later(limit_s, _expire, future, exchange, limit_s)
        try:
            return await future
        finally:
            timer.cancel()

    def _require_room(self, route: Route) -> None:
        if route.is_vital:
            busy, most = self._vital_threads.busy, VITAL_MAX
        else:
            busy, most = self.open_requests, self._limits.open_requests_max
        if busy >= most:
            raise Throttled(
                f"the server has {most:,} requests open already, as many as it takes; try again shortly",
                open_requests_max=most,
            )

    async def _read(self, exchange: Exchange, found: Found, receive: Receive) -> tuple[bytes, Caller | None]:
        """The body, and who sent it if that had to be known first."""
        size, most = body_size(exchange.headers), self._limits.body_max_bytes
        if most < size < math.inf:
            raise too_large(most)
        exchange.is_read = False
        body, caller = Body(receive, most), None
        if size > BODY_FROM_ANYBODY_MAX_BYTES or not await self._arrives_soon(body):
            if found.route.body is None:
                return b"", None  # nobody would look at it; the connection is closed after the answer
            self._require_room(found.route)
            caller = await self._admitted(exchange)
            self._reading += 1
            try:
                await self._rest(body)
            finally:
                self._reading -= 1
        exchange.is_read = True
        exchange.request_bytes = body.size_bytes
        return body.whole, caller

    async def _arrives_soon(self, body: Body) -> bool:
        """Whether a body is there at once, whoever sends it."""
        if self._arriving >= ARRIVING_MAX * self._limits.open_requests_max:
            return False
        self._arriving += 1
        try:
            return await body.arrives_within(min(BODY_FROM_ANYBODY_MAX_S, self._limits.body_timeout_s))
        finally:
            self._arriving -= 1

    async def _admitted(self, exchange: Exchange) -> Caller:
        """Who sends a request, before all of it is there. It may take a look at the store."""
        admission = self._threads.run(partial(self._handling.admit, exchange.headers))
        caller: Caller = await self._in_time(admission, exchange)
        return caller

    async def _rest(self, body: Body) -> None:
        limit_s = self._limits.body_timeout_s
        if not await body.arrives_within(limit_s):
            raise TimedOut(
                f"the request's body did not arrive within {limit_s:g} s; nothing was done",
                body_timeout_s=limit_s,
            )

    def _refusal(self, exchange: Exchange, error: PenstockError) -> Handled:
        api = self._matching.api(exchange.path)
        return failed(api, error, exchange.headers)

    def _note(self, exchange: Exchange, handled: Handled) -> None:
        """Count a request, and write its line to the log."""
        took_s = perf_counter() - exchange.began_s
        found, status = exchange.found, handled.answer.status
        if self._meter is not SILENT:
            api = found.api.name if found is not None else ""
            label = found.label if found is not None else ""
            self._meter.count(HTTP_REQUESTS, api=api, route=label, status=str(status))
            self._meter.observe(HTTP_SECONDS, took_s, api=api, route=label)
            self._meter.gauge(HTTP_OPEN_REQUESTS, self.open_requests)
        is_quiet = found is not None and found.route.is_vital and not found.route.is_write and status < 400
        level = _level(status)
        if self._log.wants(level) and not is_quiet:
            self._log.request(
                Line(
                    time=now(),
                    level=level,
                    message="" if level is Level.INFO else handled.message,
                    request_id=exchange.request_id,
                    method=exchange.method,
                    path=exchange.path,
                    status=status,
                    ms=round(took_s * 1000, 3),
                    who=handled.who,
                    request_bytes=exchange.request_bytes,
                    answer_bytes=len(handled.answer.body),
                    error=handled.error,
                )
            )


def _level(status: int) -> Level:
    """Errors of the server or its store are for somebody to look at; so is that it cannot keep up."""
    if status >= 500:
        return Level.ERROR
    return Level.WARNING if status in (408, 429) else Level.INFO


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request, with a request id."""
    headers = Headers(raw)
    if not _REQUEST_ID.fullmatch(headers.get("x-request-id", "")):
        headers["x-request-id"] = secrets.token_hex(8)
    return headers


def _expire(future: asyncio.Future[Any], exchange: Exchange, limit_s: float) -> None:
    """Nobody waits any longer for what a thread does; it goes on, and its result is dropped."""
    if not future.done():
        why = f"the request took longer than {limit_s:g} s, this server's limit"
        future.set_exception(_overdue(why, exchange, request_timeout_s=limit_s))


def _overdue(why: str, exchange: Exchange, **details: float) -> TimedOut:
    if exchange.found is None or not exchange.found.route.is_write or not exchange.is_begun:
        what = "nothing was changed"
    elif KEY_HEADER.lower() in exchange.headers and KEY_HEADER in exchange.found.route.headers:
        what = "it may still be applied; repeat it with the same idempotency key to find out"
    else:
        what = "it may still be applied; look whether it was before you repeat it"
    return TimedOut(f"{why}; {what}", **details)


async def _send(exchange: Exchange, answer: Answer) -> None:
    await exchange.send(_start(exchange, answer, len(answer.body)))
    await exchange.send({"type": "http.response.body", "body": answer.body})


async def _begin_stream(exchange: Exchange, content_type: str) -> None:
    """Send the head of an answer of unknown length; its body is sent by who knows it."""
    exchange.is_answered = True
    await exchange.send(_start(exchange, Answer(content_type=content_type), None))


def _start(exchange: Exchange, answer: Answer, size_bytes: int | None) -> dict[str, Any]:
    headers = [(b"x-request-id", exchange.request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if answer.status not in (204, 304):
        headers.append((b"content-type", answer.content_type.encode()))
        if size_bytes is not None:
            headers.append((b"content-length", b"%d" % size_bytes))
    if not exchange.is_read:
        headers.append((b"connection", b"close"))
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    return {"type": "http.response.start", "status": answer.status, "headers": headers}
