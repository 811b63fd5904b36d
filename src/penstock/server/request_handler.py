"""Handling: from a request that has arrived to its answer. All of it runs in a worker thread.

The catalogue that a handler is given is guarded by what the caller may do: this is the one place where
requests of all APIs pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from penstock.errors import (
    InvalidRequest,
    MethodNotAllowed,
    PenstockError,
    TooLarge,
    TryAgainError,
    Unauthenticated,
    UnsupportedMediaType,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.time_limits import deadline, paced_reads
from penstock.lake.catalogue import Catalogue
from penstock.processes.pool import ProcessPool, return_false
from penstock.server.access import AccessGate, Caller, CheckedCatalogue, UnmarkedKeys
from penstock.server.error_redaction import RedactingCatalogue, get_whole_message
from penstock.server.headers import Headers
from penstock.server.limits import Limits
from penstock.server.logs import Log, LogLevel
from penstock.server.read_turns import ReadAbandoned, ReadPace
from penstock.server.route_matcher import MatchedRoute, list_parameters
from penstock.server.routes import Api, HttpAnswer, Route, RouteRequest
from penstock.server.validation_messages import in_plain_words

QUERY_FIELDS_MAX: Final = 2_000
RETRY_AFTER_S: Final = 1
JSON: Final = "application/json"
UNCOUNTED_MAX_BYTES: Final = 256 * 1024
"""A smaller body is decoded as it is."""
STATUS_CLIENT_GONE: Final = 499
"""In the log and in metrics; there is nobody to send it to."""
FAULT: Final = "a request failed with an unexpected error"

Note: TypeAlias = Callable[[PenstockError], None]
"""Takes notice of an error that a request is answered with."""


class ReceivedRequest(NamedTuple):
    """A request that has arrived."""

    found: MatchedRoute
    query: bytes
    headers: Headers
    body: bytes
    request_id: str
    caller: Caller | None = None
    """Who asks, if that was found out before the body was read."""
    deadline_s: float = inf
    """When nobody waits for the answer any longer, as ``time.monotonic`` tells it."""
    is_cancelled: Callable[[], bool] = return_false
    pace: ReadPace | None = None
    """When a read waits for others, or ends."""
    share: str = ""
    """Whose places, turns and row workers it uses."""


class HandledRequest(NamedTuple):
    """An answer, and what the log says about it."""

    answer: HttpAnswer
    who: str = ""
    error: str = ""
    message: str = ""
    """What went wrong, with what only those who run the server may know."""


class RequestHandler:
    """Answers requests. Whatever goes wrong becomes an answer too, said in the words of the request's API."""

    def __init__(
        self,
        catalogue: Catalogue,
        gate: AccessGate,
        limits: Limits,
        log: Log,
        pool: ProcessPool,
        note: Note = lambda _: None,
    ) -> None:
        self._catalogue, self._gate, self._limits, self._log = catalogue, gate, limits, log
        self._pool, self._note = pool, note
        self._commit_s = limits.request_timeout_s - limits.checks_timeout_s
        self._discreet = RedactingCatalogue(catalogue)
        self._unmarked = UnmarkedKeys(self._discreet)

    def admit_caller(self, headers: Mapping[str, str]) -> Caller:
        """Who asks; ``Unauthenticated`` if nobody who is known."""
        return self._gate(headers)

    def __call__(self, request: ReceivedRequest, progress: Progress = show_no_progress) -> HandledRequest:
        pace = request.pace
        if pace is None:
            return self._handle_call(request, progress)
        pace.begin_read()
        try:
            with paced_reads(pace.yield_if_awaited):
                return self._handle_call(request, progress)
        finally:
            pace.end_read()

    def _handle_call(self, request: ReceivedRequest, progress: Progress) -> HandledRequest:
        api, route, _, path = request.found
        who = ""
        try:
            catalogue: Catalogue = self._discreet
            if not route.is_public:
                caller = request.caller or self._gate(request.headers)
                behind = self._catalogue if caller.is_admin else self._discreet
                catalogue = CheckedCatalogue(behind, caller, request.deadline_s, self._unmarked)
                who = caller.name
            if route.check_headers is not None:
                route.check_headers(request.headers)
            ask = RouteRequest(
                catalogue=catalogue,
                path=path,
                query=_parse_query_type(api, route, request.query),
                body=self._read_body(api, route, request),
                headers=request.headers,
                who=who,
                request_id=request.request_id,
                share=request.share,
                limits=self._limits,
                pool=self._pool,
                deadline_s=request.deadline_s,
                is_cancelled=request.is_cancelled,
                progress=progress,
            )
            with deadline(request.deadline_s - self._commit_s, "request_timeout_s"):
                return HandledRequest(_encode_answer(api, route, route.handle(ask)), who)
        except PenstockError as error:
            if not route.is_vital:
                self._note(error)
            return answer_error(api, error, request.headers, who)
        except ReadAbandoned:
            return HandledRequest(HttpAnswer(status=STATUS_CLIENT_GONE), who, "client_gone")
        except Exception as error:  # noqa: BLE001 - a bug of ours, which no client is shown
            return HandledRequest(self.answer_bug(api, error, request.headers), who, "internal", FAULT)

    def answer_bug(self, api: Api, error: Exception, headers: Mapping[str, str]) -> HttpAnswer:
        """The answer to a request that met a bug. The log has all of it, the client gets the request's id."""
        request_id = headers["x-request-id"]
        self._log.log_message(LogLevel.ERROR, FAULT, error, request_id=request_id, error="internal")
        fault_error = PenstockError(f"internal error of the server; see {request_id} in its log")
        return make_error_answer(api, fault_error, headers)

    def _read_body(self, api: Api, route: Route, request: ReceivedRequest) -> Any:
        if route.body is None:
            return None
        if not request.body:
            if route.body_required:
                raise InvalidRequest("the request needs a body, but has none")
            return None
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and kind not in route.media_types:
            raise UnsupportedMediaType(
                f"the body is of type '{kind}'; expected {' or '.join(route.media_types)}",
                accepted=route.media_types,
            )
        data = unpack_body(
            request.body, request.headers.get("content-encoding", ""), self._limits.body_max_bytes
        )
        if len(data) > UNCOUNTED_MAX_BYTES and route.media_types[0] == JSON:
            require_few_values(data, self._limits.values_max)
        return _parse_values(api.codec.decode, data, api, route.body)


def answer_error(api: Api, error: PenstockError, headers: Mapping[str, str], who: str = "") -> HandledRequest:
    """A request that is answered by an error."""
    return HandledRequest(make_error_answer(api, error, headers), who, error.code, get_whole_message(error))


def make_error_answer(api: Api, error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    """An error as an API says it, with the headers that its status asks for."""
    answer = api.error(error, headers)
    more: list[tuple[str, str]] = []
    if isinstance(error, Unauthenticated):
        more.append(("www-authenticate", 'Bearer realm="penstock"'))
    elif isinstance(error, MethodNotAllowed):
        more.append(("allow", ", ".join(error.details["allowed"])))
    elif isinstance(error, TryAgainError):
        more.append(("retry-after", str(RETRY_AFTER_S)))
    present = {name.lower() for name, _ in answer.headers}
    added = tuple(pair for pair in more if pair[0] not in present)
    return HttpAnswer(
        status=answer.status,
        body=answer.body,
        headers=(*answer.headers, *added),
        content_type=answer.content_type,
    )


def _encode_answer(api: Api, route: Route, value: Any) -> HttpAnswer:
    if isinstance(value, HttpAnswer):
        return value
    if value is None and route.answer is None:
        return HttpAnswer(status=204 if route.status == 200 else route.status)
    return HttpAnswer(status=route.status, body=api.codec.encode(value, route.answer))


_parameters: Callable[[Any], dict[str, bool]] = cache(list_parameters)


def _parse_query_type(api: Api, route: Route, raw: bytes) -> Any:
    """The query as the route's type; ``InvalidRequest`` names the parameter that is wrong."""
    parameters = _parameters(route.query)
    values: dict[str, Any] = {}
    for name, value in _parse_query(raw) if raw else ():
        is_several = parameters.get(name)
        if is_several is None:
            if api.strict_query:
                raise InvalidRequest(
                    f"unknown query parameter '{name}'; the parameters are: "
                    f"{', '.join(parameters) or 'none'}",
                    field=name,
                )
        elif is_several:
            values.setdefault(name, []).append(value)
        elif name not in values:
            values[name] = value
        elif api.strict_query:
            raise InvalidRequest(f"the query parameter '{name}' is given twice", field=name)
    return _parse_values(api.codec.convert, values, api, route.query) if route.query is not None else None


def _parse_values(read: Callable[[Any, Any], Any], given: Any, api: Api, kind: Any) -> Any:
    try:
        return read(given, kind)
    except InvalidRequest as refused:
        raise in_plain_words(refused, api.codec, kind) from None


def _parse_query(raw: bytes) -> list[tuple[str, str]]:
    try:
        text = raw.decode("ascii")
        if "%" not in text and "+" not in text and text.count("&") < QUERY_FIELDS_MAX:  # as most are
            parts = [part.partition("=") for part in text.split("&") if part]
            return [(name, value) for name, _, value in parts]
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise InvalidRequest(
            f"the query is not percent-encoded UTF-8, or has more than {QUERY_FIELDS_MAX:,} fields"
        ) from None


def require_few_values(data: bytes, values_max: int) -> None:
    """``TooLarge`` if a body in JSON would become too many objects: each takes far more memory than its text.

    Texts, objects and lists are counted by how they begin, which takes no memory and little time. Quotes
    within a text, such as the lines of a Delta commit, have a backslash before them and are not counted.
    """
    texts = (data.count(b'"') - data.count(b'\\"')) // 2
    count = texts + data.count(b"{") + data.count(b"[")
    if count > values_max:
        raise TooLarge(
            f"the body has about {count:,} values, but this server accepts at most {values_max:,}: make "
            "several requests, or start the server with a larger --operations-max (one operation allows 50 "
            "values)",
            values_max=values_max,
        )


def unpack_body(body: bytes, encoding: str, size_max_bytes: int) -> bytes:
    """A body without its ``Content-Encoding``; one that grows beyond the limit is not unpacked further."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType(
            f"the body's Content-Encoding is '{encoding}'; only gzip and deflate are supported"
        )
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        data = unpacker.decompress(body, size_max_bytes + 1)
    except zlib.error:
        raise InvalidRequest(
            f"the body is not compressed with {encoding}, although its header says so"
        ) from None
    if len(data) > size_max_bytes:
        raise TooLarge(
            f"the decompressed body is larger than the {size_max_bytes:,} bytes that this server accepts",
            body_max_bytes=size_max_bytes,
        )
    if not unpacker.eof:
        raise InvalidRequest(f"the body, compressed with {encoding}, is cut off")
    if unpacker.unused_data:  # such as a second part, which must not be lost without a word
        raise InvalidRequest(
            f"the body, compressed with {encoding}, continues after its end: compress it as one stream"
        )
    return data
