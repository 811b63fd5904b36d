"""Routes: what an API of the server is made of, and what a handler is given and gives back.

An API is a table of routes with a codec and a way to say errors. The application finds the route, checks
who asks, reads and decodes the request, calls the handler in a worker thread, and encodes what it returns:
a handler takes values and returns a value or raises one of ``penstock.errors``. The same tables make the
OpenAPI description, so that there is no route that it does not name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.errors import PenstockError
from penstock.kernel.reachable import Progress
from penstock.processes.pool import ProcessPool, return_false
from penstock.server.headers import Headers
from penstock.server.limits import Limits

if TYPE_CHECKING:
    from penstock.lake.catalogue import Catalogue


class RouteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as a handler sees it."""

    catalogue: Catalogue
    """Guarded: it answers only what the caller may ask."""
    path: dict[str, str]
    """The path's parameters, percent-decoded once; values may contain ``/``."""
    query: Any
    """An instance of ``Route.query``, or ``None``."""
    body: Any
    """An instance of ``Route.body``, or ``None``."""
    headers: Headers
    """By names in lower case. ``x-request-id`` is always there, made up if the client sent none."""
    who: str
    """The name of the caller's token; empty without one."""
    request_id: str
    share: str
    """Whose places, turns and row workers the request uses."""
    limits: Limits
    pool: ProcessPool
    """Of processes, for work with what other people send: expressions, queries, rows."""
    deadline_s: float = inf
    """When nobody waits for the answer any longer, as ``time.monotonic`` tells it."""
    is_cancelled: Callable[[], bool] = return_false
    """Whether the client has gone, on routes that work on rows."""
    progress: Progress
    """Sends a line to the client on routes that stream, and does nothing on others."""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler may return instead of a plain value, and what every answer becomes in the end."""

    status: int = 200
    body: bytes = b""
    file: IO[bytes] | None = None
    """Has the body, if it is large. It is closed once it is sent."""
    headers: tuple[tuple[str, str], ...] = ()
    """Beside the type and length of the body, which are there anyway."""
    content_type: str = "application/json"

    @property
    def size_bytes(self) -> int:
        return len(self.body) if self.file is None else os.fstat(self.file.fileno()).st_size


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an API can be asked. Of several routes that match a request, the table's first is it."""

    method: str
    """``GET`` also answers ``HEAD``."""
    path: str
    """Relative to the API's prefix: ``/trees/{ref}/entries``. Requests may have one more slash at the end."""
    handle: Callable[[RouteRequest], Any]
    """Runs in a worker thread. Returns a value of the type ``answer``, ``None`` for no body, or an Answer."""
    summary: str
    description: str = ""
    query: Any = None
    """A struct. Its fields of several values may be given several times, the others once."""
    body: Any = None
    answer: Any = None
    status: int = 200
    """Of the answer. Without a type of answer, 200 becomes 204."""
    statuses: tuple[int, ...] = ()
    """Of errors, beyond those that any route of the API may answer with; for the OpenAPI description."""
    patterns: dict[str, str] = {}
    """Regular expressions of path parameters as they are sent, still encoded; ``[^/]+`` for the others.

    They must not contain groups that capture.
    """
    headers: dict[str, str] = {}
    """Request headers that the handler reads, and what each means; for the OpenAPI description."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of the body. A request that does not say what its body is, is taken to send the first one."""
    produces: str = "application/json"
    """The type of the answer's body, for the OpenAPI description."""
    streams: bool = False
    """Long work without a time limit. Its answer is lines of JSON: ``{"progress": [what, count]}`` now and
    then, and ``{"result": …}`` or the body of an error as the last one."""
    works_on_rows: bool = False
    """Whether a process apart from this one does it, whose work ends when the client goes away."""
    is_write: bool = False
    """Whether a request that takes too long may still be applied."""
    body_required: bool = True
    check_headers: Callable[[Mapping[str, str]], None] | None = None
    """Raises if a request may not be answered whatever it says: asked before its query and body are read."""
    is_public: bool = False
    """Answered to anybody."""
    is_vital: bool = False
    """Answered also when the server has no room for more requests."""
    is_instant: bool = False
    """Answered by the event loop itself, for it neither waits nor computes nor reads a body."""
    goes_on: bool = False
    """Whether work that only reads goes on although its client has gone, as its result stays."""

    @property
    def ends_with_client(self) -> bool:
        """Whether nobody needs the work once its client has gone."""
        return not (self.is_write or self.is_vital or self.goes_on)


class Codec(Protocol):
    """How an API writes its values. What cannot be read raises ``InvalidRequest`` that names the field."""

    def decode(self, data: bytes, type: Any, /) -> Any:  # noqa: A002
        """A value of the type, from a request's body."""

    def convert(self, values: Mapping[str, Any], type: Any, /) -> Any:  # noqa: A002
        """A value of the struct type, from each field's text: a list of texts where a field has several."""

    def encode(self, value: Any, type: Any, /) -> bytes:  # noqa: A002
        """The body of an answer."""

    def schema(self, types: Sequence[Any], /) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
        """The JSON schema of each type, and the components by name that they refer to.

        References are ``#/components/schemas/<name>``.
        """


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API: a table of routes below a prefix, and how it reads, writes and fails."""

    name: str
    """A word for metrics and the description: ``native``, ``nessie_v2``."""
    prefix: str
    """``/api/v2``."""
    title: str
    description: str
    routes: tuple[Route, ...]
    codec: Codec
    error: Callable[[PenstockError, Mapping[str, str]], HttpAnswer]
    """How this API says an error; the second is the request's headers, as in ``RouteRequest``."""
    error_schema: Any
    """The type of an error's body, for the OpenAPI description."""
    strict_query: bool
    """Whether a query parameter that the route does not know is refused."""
    imports: tuple[str, ...] = ()
    """Modules that its requests need and that take long to import; those of extras may be missing."""
    add_credentials: Callable[[Headers], None] | None = None
    """Adds the header by which a request shows its token, where it shows the token in another way."""
