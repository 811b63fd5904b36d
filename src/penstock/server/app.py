"""The application: the way of a request from its connection to a handler, and of the answer back.

The event loop finds the route, counts, and moves bytes. Everything that decodes, waits or computes is done by
``handling`` in a worker thread, once the request is complete. A request that takes too long is answered, but
its thread keeps its place among the open requests until it ends: a read ends at its next step, a write when
it is done. Callers have a share of the places each (``places``), and of the time that reads compute
(``read_turns``).
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
from penstock.formats.registry import list_table_formats
from penstock.lake.catalogue import Catalogue
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import HTTP_OPEN_REQUESTS, HTTP_REFUSALS, HTTP_REQUESTS, HTTP_SECONDS
from penstock.processes.pool import ProcessPool, return_false
from penstock.server.access import AccessGate, Caller
from penstock.server.answer_stream import Send, stream_answer
from penstock.server.client_watch import WATCH_AFTER_S, ClientWatch
from penstock.server.file_sender import send_file
from penstock.server.headers import Headers
from penstock.server.large_bodies import LARGE_BODIES_MAX, LargeBodySlots
from penstock.server.limits import Limits
from penstock.server.logs import Log, LogLevel, LogLineWriter, format_current_time, mask_secrets
from penstock.server.read_start_queue import ReadStarter
from penstock.server.read_turns import ReadPace, ReadTurns
from penstock.server.request_body import ClientGone, Receive, RequestBody, get_body_size, too_large_error
from penstock.server.request_handler import (
    STATUS_CLIENT_GONE,
    HandledRequest,
    Note,
    ReceivedRequest,
    RequestHandler,
    answer_error,
)
from penstock.server.request_slots import RequestSlot, RequestSlots, normalise_client_address
from penstock.server.route_matcher import MatchedRoute, RouteMatcher
from penstock.server.routes import Api, HttpAnswer, Route
from penstock.server.threads import Ended, HandlerThreads, Work
from penstock.wire.requests import KEY_HEADER

VITAL_MAX: Final = 16
"""Vital requests at the same time. They have threads of their own: a busy server still says how it is."""
BODY_FROM_ANYBODY_MAX_BYTES: Final = 64 * 1024
BODY_FROM_ANYBODY_MAX_S: Final = 0.2
"""A body that may be larger, or does not come at once, is only read once it is known who sends it: nobody
unknown can hold the places of others by sending nothing."""
ARRIVING_MAX: Final = 8
"""Requests that arrive from somebody who is not known yet, for each that may be open."""
ROW_WORK_IMPORTS: Final = (
    *(name for declared in list_table_formats() for name in declared.row_work_imports),
    "penstock.lake.audits.row_work",
    "penstock.server.ui.row_work",
    "duckdb",
)
"""What row workers have ready before they are given work."""

READ_PART: Final = 0.9
"""The part of a request's time after which a read stops by itself, so that its answer can say how far it
came."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class HttpExchange(msgspec.Struct):
    """One request and its answer, as the event loop sees them."""

    method: str
    path: str
    """As it was sent, still encoded."""
    headers: Headers
    request_id: str
    send: Send
    began_s: float
    client: tuple[str, int] | None = None
    """Where the connection comes from."""
    share: str = ""
    """Whose places and turns the request uses."""
    found: MatchedRoute | None = None
    request_bytes: int = 0
    is_read: bool = True
    """Whether the whole request has arrived, or soon will have: the connection can be used again."""
    is_begun: bool = False
    """Whether a handler was given the request, so that it may have an effect."""
    is_answered: bool = False
    answer_bytes: int = 0
    watch: ClientWatch | None = None

    @property
    def address(self) -> str:
        return normalise_client_address(self.client)


class Application:
    """An ASGI application that serves the APIs of one lake."""

    def __init__(
        self,
        catalogue: Catalogue,
        apis: Iterable[Api],
        *,
        gate: AccessGate,
        log: Log,
        limits: Limits = Limits(),
        meter: Meter = SILENT,
        pool: ProcessPool | None = None,
        note: Note = lambda _: None,
    ) -> None:
        """``pool`` is for work on rows; without one, the application has its own."""
        self._own_pool = ProcessPool(
            limits.processes, ROW_WORK_IMPORTS, partial(log.log_message, LogLevel.WARNING)
        )
        self.pool = pool or self._own_pool
        self._matching = RouteMatcher(apis)
        self._handling = RequestHandler(catalogue, gate, limits, log, self.pool, note)
        self._limits, self._log, self._meter = limits, log, meter
        self._gate = gate
        self._threads = HandlerThreads(limits.open_requests_max)
        self._vital_threads = HandlerThreads(VITAL_MAX)
        self._places = RequestSlots(limits.open_requests_max, limits.caller_requests_max)
        self.turns = ReadTurns(limits.long_reads_max, meter)
        self._large_bodies = LargeBodySlots()
        self._starts = ReadStarter(self._threads)
        self._arriving = 0
        self._open_told = -1
        """How many open requests the metrics tell."""

    @property
    def open_requests(self) -> int:
        """How many requests are being worked on, or read from callers who are known.

        Those that nobody waits for any more are among them, until they have ended.
        """
        return self._places.taken

    def stop(self) -> None:
        """Let the worker threads end once they have done what they do now; work on rows ends at once."""
        self._own_pool.close()
        self._threads.stop()
        self._vital_threads.stop()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_s = perf_counter()
        headers = _decode_headers(scope["headers"])
        path = scope["raw_path"].decode("latin-1")
        exchange = HttpExchange(scope["method"], path, headers, headers["x-request-id"], send, began_s)
        exchange.client = scope.get("client")
        exchange.is_read = get_body_size(headers) <= BODY_FROM_ANYBODY_MAX_BYTES
        try:
            exchange.found = self._matching.find_route(exchange.method, path)
            if exchange.found.api.add_credentials is not None:
                exchange.found.api.add_credentials(headers)
            handled = await self._serve_request(exchange, exchange.found, scope["query_string"], receive)
        except PenstockError as error:
            handled = self._refuse_request(exchange, error)
        except ClientGone:
            handled = HandledRequest(HttpAnswer(status=STATUS_CLIENT_GONE), error="client_gone")
            exchange.is_answered = True
        except Exception as error:  # noqa: BLE001 - a bug of ours, which no client is shown
            answer = self._handling.answer_bug(self._matching.find_api(path), error, headers)
            handled = HandledRequest(answer, error="internal")
        except asyncio.CancelledError:
            # The server stops and has waited long enough. A stream just breaks off.
            handled = self._refuse_request(exchange, _overdue_error("the server is stopping", exchange))
        if not exchange.is_answered:
            try:
                await self._send_answer(exchange, handled.answer)
            except (asyncio.CancelledError, ClientGone):  # the client does not read its answer in time
                handled = HandledRequest(HttpAnswer(status=STATUS_CLIENT_GONE), handled.who, "client_gone")
        if exchange.watch is not None:
            exchange.watch.end_watch()
        self._log_request(exchange, handled)

    async def _serve_request(
        self, exchange: HttpExchange, match: MatchedRoute, query: bytes, receive: Receive
    ) -> HandledRequest:
        """Read the request and have it handled."""
        route = match.route
        if route.is_instant:
            return self._handling(ReceivedRequest(match, query, exchange.headers, b"", exchange.request_id))
        exchange.share = self._find_share(exchange)
        body, caller, place = b"", None, None
        if get_body_size(exchange.headers):
            self._require_room(route, exchange)
            body, caller, place = await self._read_body_and_caller(exchange, match, receive)
        if place is None:
            place = self._take_place(route, exchange)
        request = self._build_request(exchange, match, query, body, caller, receive)
        exchange.is_begun = True
        ended = place.give_back  # it keeps its place until its thread has ended
        if route.streams:
            run = partial(self._run_request, exchange, request, ended=ended)
            begin = partial(_begin_stream, exchange)
            return await stream_answer(
                run, partial(self._handling, request), begin, exchange.send, exchange.watch
            )
        future = self._run_request(exchange, request, partial(self._handling, request), ended)
        handled: HandledRequest = await self._run_with_time_limit(future, exchange)
        return handled

    def _run_request(
        self, exchange: HttpExchange, request: ReceivedRequest, work: Work, ended: Ended
    ) -> asyncio.Future[Any]:
        """Have a request handled by a thread, when it is its time."""
        if request.pace is not None:
            return self._starts.start_read(exchange.share, work, ended)
        threads = self._vital_threads if request.found.route.is_vital else self._threads
        return threads.run_task(work, ended)

    def _build_request(
        self,
        exchange: HttpExchange,
        match: MatchedRoute,
        query: bytes,
        body: bytes,
        caller: Caller | None,
        receive: Receive,
    ) -> ReceivedRequest:
        """A request that has arrived. A read stops by itself shortly before nobody waits for it any more."""
        limit_s = self._limits.request_timeout_s * (1 if match.route.is_write else READ_PART)
        deadline_s = monotonic() + limit_s if not match.route.streams else math.inf
        pace = None
        if not match.route.is_write and not match.route.is_vital:
            pace = ReadPace(self.turns, exchange.share, deadline_s, self._meter)
        is_cancelled = return_false
        if exchange.is_read and (match.route.works_on_rows or match.route.ends_with_client):
            exchange.watch = ClientWatch(pace, receive)
            is_cancelled = exchange.watch.is_gone
        return ReceivedRequest(
            match,
            query,
            exchange.headers,
            body,
            exchange.request_id,
            caller,
            deadline_s,
            is_cancelled,
            pace,
            exchange.share,
        )

    async def _run_with_time_limit(self, future: asyncio.Future[Any], exchange: HttpExchange) -> Any:
        """What a thread comes to; ``TimedOut`` if that takes too long. A client that is watched is looked at
        after a moment; most reads are answered before, and have one timer only."""
        patience = _ResponseTimer(future, exchange, self._limits.request_timeout_s)
        try:
            return await future
        finally:
            patience.stop_timer()

    def _find_share(self, exchange: HttpExchange) -> str:
        """Whose share of the server a request uses: that of its token, if it is known already; else that of
        the address it comes from."""
        token = self._gate.recognise_caller(exchange.headers)
        return f"token {token}" if token else f"address {exchange.address}"

    def _require_room(self, route: Route, exchange: HttpExchange) -> None:
        """``Throttled`` if there is no place for a request."""
        if route.is_vital:
            if self._vital_threads.busy >= VITAL_MAX:
                raise self._full_error("places", VITAL_MAX)
            return
        if self._places.may_take(exchange.share):
            return
        if not self._places.has_free_slots():
            raise self._full_error("places", self._places.count_max)
        own = self._places.count_slots(exchange.share)
        self._meter.count(HTTP_REFUSALS, reason="caller_places")
        whose = "your token" if exchange.share.startswith("token ") else f"your address, {exchange.address},"
        raise Throttled(
            f"{whose} already has {own:,} open requests, and one caller can have no more at the moment: at "
            f"most {self._places.caller_max:,}, and fewer while other callers need them; try again shortly",
            caller_requests_max=self._places.caller_max,
            open_requests=own,
        )

    def _full_error(self, reason: str, most: int, subject: str = "requests") -> Throttled:
        self._meter.count(HTTP_REFUSALS, reason=reason)
        return Throttled(
            f"the server already has {most:,} {subject} open, as many as it accepts; try again shortly",
            open_requests_max=most,
        )

    def _take_place(self, route: Route, exchange: HttpExchange) -> RequestSlot:
        self._require_room(route, exchange)
        return self._places.take_slot(exchange.share) if not route.is_vital else RequestSlot()

    async def _read_body_and_caller(
        self, exchange: HttpExchange, match: MatchedRoute, receive: Receive
    ) -> tuple[bytes, Caller | None, RequestSlot | None]:
        """The body, and who sent it, with their place, if that had to be known first."""
        size, most = get_body_size(exchange.headers), self._limits.body_max_bytes
        if most < size < math.inf:
            raise too_large_error(most)
        exchange.is_read = False
        body = RequestBody(receive, most, lambda: self._large_bodies.wait_for_place(exchange.share))
        caller, place = None, None
        if size > BODY_FROM_ANYBODY_MAX_BYTES or not await self._is_body_at_hand(body):
            if match.route.body is None:
                return b"", None, None  # nobody would look at it; the connection is closed after the answer
            caller = await self._admit_caller(exchange, match.route)
            exchange.share = self._find_share(exchange)
            place = self._take_place(match.route, exchange)
            try:
                await self._read_rest(body)
            except BaseException:
                place.give_back()
                if body.place is not None:
                    body.place.give_back()
                raise
            place.give_back_with(body.place)
        exchange.is_read = True
        exchange.request_bytes = body.size_bytes
        return body.whole_body, caller, place

    async def _is_body_at_hand(self, body: RequestBody) -> bool:
        """Whether a body is there at once, whoever sends it."""
        if self._arriving >= ARRIVING_MAX * self._limits.open_requests_max:
            return False
        self._arriving += 1
        try:
            return await body.arrives_within(min(BODY_FROM_ANYBODY_MAX_S, self._limits.body_timeout_s))
        finally:
            self._arriving -= 1

    async def _admit_caller(self, exchange: HttpExchange, route: Route) -> Caller:
        """Who sends a request, before all of it is there. It may take a look at the store."""
        place = self._take_place(route, exchange)
        admission = self._threads.run_task(
            partial(self._handling.admit_caller, exchange.headers), place.give_back
        )
        caller: Caller = await self._run_with_time_limit(admission, exchange)
        return caller

    async def _read_rest(self, body: RequestBody) -> None:
        limit_s = self._limits.body_timeout_s
        if not await body.arrives_within(limit_s):
            if body.waits_for_place:
                raise self._full_error("large_bodies", LARGE_BODIES_MAX, "large bodies")
            raise TimedOut(
                f"the request's body did not arrive within {limit_s:g} s; nothing was done",
                body_timeout_s=limit_s,
            )

    async def _send_answer(self, exchange: HttpExchange, answer: HttpAnswer) -> None:
        exchange.answer_bytes = answer.size_bytes
        await exchange.send(_make_response_start(exchange, answer, exchange.answer_bytes))
        if answer.file is None:
            await exchange.send({"type": "http.response.body", "body": answer.body})
            return
        is_gone = exchange.watch.is_gone if exchange.watch is not None else return_false
        place = self._places.take_slot(exchange.share)  # it goes on to have one
        try:
            with answer.file as file:
                await send_file(
                    exchange.send,
                    self._threads,
                    file,
                    exchange.answer_bytes,
                    self._limits.body_timeout_s,
                    is_gone,
                )
        finally:
            place.give_back()

    def _refuse_request(self, exchange: HttpExchange, error: PenstockError) -> HandledRequest:
        api = self._matching.find_api(exchange.path)
        return answer_error(api, error, exchange.headers)

    def _log_request(self, exchange: HttpExchange, handled: HandledRequest) -> None:
        """Count a request, and write its line to the log."""
        took_s = perf_counter() - exchange.began_s
        match, status = exchange.found, handled.answer.status
        if self._meter is not SILENT:
            api = match.api.name if match is not None else ""
            label = match.label if match is not None else ""
            self._meter.count(HTTP_REQUESTS, api=api, route=label, status=str(status))
            self._meter.observe(HTTP_SECONDS, took_s, api=api, route=label)
            if self.open_requests != self._open_told:
                self._open_told = self.open_requests
                self._meter.gauge(HTTP_OPEN_REQUESTS, self._open_told)
        is_quiet = match is not None and match.route.is_vital and not match.route.is_write and status < 400
        level = _log_level(status)
        if self._log.wants_level(level) and not is_quiet:
            self._log.log_request(
                LogLineWriter(
                    time=format_current_time(),
                    level=level,
                    message="" if level is LogLevel.INFO else handled.message,
                    request_id=exchange.request_id,
                    method=exchange.method,
                    path=exchange.path,
                    status=status,
                    ms=round(took_s * 1000, 3),
                    who=handled.who,
                    request_bytes=exchange.request_bytes,
                    answer_bytes=exchange.answer_bytes or len(handled.answer.body),
                    error=handled.error,
                )
            )


def _log_level(status: int) -> LogLevel:
    """Errors of the server or its store are for somebody to look at; so is that it cannot keep up."""
    if status >= 500:
        return LogLevel.ERROR
    return LogLevel.WARNING if status in (408, 429) else LogLevel.INFO


def _decode_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request, with a request id: it goes to the log, so it may not be a secret."""
    headers = Headers(raw)
    given_id = headers.get("x-request-id")
    if not given_id or not _REQUEST_ID.fullmatch(given_id) or mask_secrets(given_id) != given_id:
        headers["x-request-id"] = secrets.token_hex(8)
    return headers


class _ResponseTimer:
    """The time limit of a response, and when the connection is first checked for a client that has gone."""

    __slots__ = ("_exchange", "_future", "_limit_s", "_timer")

    def __init__(self, future: asyncio.Future[Any], exchange: HttpExchange, limit_s: float) -> None:
        self._future, self._exchange, self._limit_s = future, exchange, limit_s
        loop = asyncio.get_running_loop()
        if exchange.watch is None or limit_s <= WATCH_AFTER_S:
            self._timer = loop.call_later(limit_s, self._expire_response)
        else:
            self._timer = loop.call_later(WATCH_AFTER_S, self._watch_deadline)

    def stop_timer(self) -> None:
        self._timer.cancel()

    def _watch_deadline(self) -> None:
        assert self._exchange.watch is not None
        left_s = self._limit_s - WATCH_AFTER_S
        self._timer = asyncio.get_running_loop().call_later(left_s, self._expire_response)
        self._exchange.watch.begin_watch(self._future)

    def _expire_response(self) -> None:
        """Nobody waits any longer; the work goes on, and its result is dropped."""
        if not self._future.done():
            reason = f"the request took longer than {self._limit_s:g} s, this server's limit"
            overdue = _overdue_error(reason, self._exchange, request_timeout_s=self._limit_s)
            self._future.set_exception(overdue)


def _overdue_error(why: str, exchange: HttpExchange, **details: float) -> TimedOut:
    if exchange.found is None or not exchange.found.route.is_write or not exchange.is_begun:
        what = "nothing was changed"
    elif KEY_HEADER.lower() in exchange.headers and KEY_HEADER in exchange.found.route.headers:
        what = "it may still be applied; repeat it with the same idempotency key to find out"
    else:
        what = "it may still be applied; check whether it was before you repeat it"
    return TimedOut(f"{why}; {what}", **details)


async def _begin_stream(exchange: HttpExchange, content_type: str) -> None:
    """Send the head of an answer of unknown length; its body is sent by who knows it."""
    exchange.is_answered = True
    await exchange.send(_make_response_start(exchange, HttpAnswer(content_type=content_type), None))


def _make_response_start(
    exchange: HttpExchange, answer: HttpAnswer, size_bytes: int | None
) -> dict[str, Any]:
    headers = [(b"x-request-id", exchange.request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if answer.status not in (204, 304):
        headers.append((b"content-type", answer.content_type.encode()))
        if size_bytes is not None:
            headers.append((b"content-length", b"%d" % size_bytes))
    if not exchange.is_read:
        headers.append((b"connection", b"close"))
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    return {"type": "http.response.start", "status": answer.status, "headers": headers}
