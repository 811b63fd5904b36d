"""The connection to a server: its address, the caller's token, and one exchange of a request and its answer.

Nothing is repeated here, no redirect is followed, and no proxy is used: ``HTTP_PROXY`` and such are not read.
Certificates are checked against those of the system, or of ``SSL_CERT_FILE``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NewConnectionError,
    ReadTimeoutError,
)

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.reachable import Progress
from penstock.model.decoders import get_json_decoder
from penstock.wire.requests import WireRequest

PREFIX: Final = "/api/penstock/v1"
LINES: Final = "application/x-ndjson"
KEPT_MAX: Final = 64
"""Connections that are kept open for the next request."""

TOKEN: Final = "PENSTOCK_TOKEN"
TOKEN_FILE: Final = "PENSTOCK_TOKEN_FILE"
INSECURE: Final = "PENSTOCK_INSECURE"

_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of bytes that are not of TLS at all."""

_NESSIE: Final = re.compile("/api/v[12]/*$")


class RequestNotSent(Exception):
    """No connection was made: the server knows nothing of the request."""

    def __init__(self, why: str, *, is_final: bool = False, error: PenstockError | None = None) -> None:
        super().__init__(why)
        self.is_final = is_final
        """Whether trying again is of no use."""
        self.error = error
        """What to raise, if it is not the server's fault."""


class LostAnswer(Exception):
    """The connection was lost before the whole answer came: the request may have been carried out."""


class ServerReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes

    @property
    def is_json(self) -> bool:
        return "json" in self.headers.get("content-type", "")

    @property
    def retry_after_s(self) -> float:
        """How long the server asks to wait; nothing if it does not say."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdecimal() else 0.0


class _AnswerLine(msgspec.Struct):
    """One line of a long answer: how far the work is, or what it came to."""

    progress: tuple[str, int] | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class Connection:
    """Connections to one server. May be used by many threads, and after a fork."""

    def __init__(self, url: str, token: str | None, connect_timeout_s: float) -> None:
        self._address = _parse_url(url)
        self.url = f"{self._address.scheme}://{self._address.netloc}{self._base_url}"
        """The server's address, as errors name it."""
        secret = _choose_token(token, os.environ)
        if secret:
            _require_safe(self._address, os.environ)
        self._headers = {"Accept": "application/json", "User-Agent": "penstock"}
        if secret:
            self._headers["Authorization"] = f"Bearer {secret}"
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._pool, self._process = self._make_pool(), os.getpid()
        self.has_answered = False
        """Whether there ever was a server at the address."""

    def __repr__(self) -> str:
        return f"<Connection to {self.url}>"

    def close(self) -> None:
        self._pool.close()

    def send_and_wait(self, request: WireRequest, timeout_s: float) -> ServerReply:
        """Send a request and wait for its whole answer; ``RequestNotSent`` or ``Lost`` if there is none."""
        with self._classify_loss():
            return _read_reply(self._open_response(request, timeout_s, preload=True))

    def send_and_follow_progress(
        self, request: WireRequest, timeout_s: float, progress: Progress
    ) -> ServerReply:
        """As ``exchange``, for long work: tells how far it is; so long the server may say nothing."""
        with self._classify_loss():
            response = self._open_response(request, timeout_s, preload=False)
            try:
                if LINES not in response.headers.get("content-type", ""):
                    return _read_reply(response)
                for text in _read_lines(response):
                    line = get_json_decoder(_AnswerLine).decode(text)
                    if line.progress is not None:
                        progress(*line.progress)
                        continue
                    is_error = bytes(line.error) != b""
                    return ServerReply(
                        status=500 if is_error else 200,
                        headers={"content-type": "application/json"},
                        body=text if is_error else bytes(line.result),
                    )
            except msgspec.MsgspecError as problem:
                raise LostAnswer(f"a line of the response cannot be parsed: {problem}") from None
            finally:
                response.close()
            raise LostAnswer("the response was cut off")

    @property
    def sent_s(self) -> float:
        """When this thread had sent its last request as a whole; now, if it has not."""
        return _sent.at_s if _sent.at_s is not None else time.monotonic()

    @contextmanager
    def _classify_loss(self) -> Iterator[None]:
        """Tell apart what never reached the server from what may have.

        A server that is not known to be there may not exist at all: there is no use in waiting for it.
        """
        try:
            yield
        except ClosedPoolError:
            closed = InvalidRequest(f"{self.url} was closed; open the lake again")
            raise RequestNotSent("closed", is_final=True, error=closed) from None
        except (NewConnectionError, ConnectTimeoutError) as problem:
            raise RequestNotSent(_describe_problem(problem), is_final=not self.has_answered) from None
        except (HTTPError, OSError) as problem:
            raise LostAnswer(_describe_problem(problem)) from None

    @property
    def _base_url(self) -> str:
        return (self._address.path or "").rstrip("/").removesuffix(PREFIX)

    def _open_response(
        self, request: WireRequest, timeout_s: float, preload: bool
    ) -> urllib3.BaseHTTPResponse:
        _sent.at_s = None
        response = self._get_own_pool().urlopen(
            request.method,
            self._base_url + PREFIX + request.target,
            body=request.body,
            headers={**self._headers, **request.headers},
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=self._connect_timeout_s, read=timeout_s),
            preload_content=preload,
        )
        self.has_answered = True
        return response

    def _get_own_pool(self) -> urllib3.HTTPConnectionPool:
        """The pool of this process: a connection that a fork inherited is still the parent's."""
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    self._pool, self._process = self._make_pool(), os.getpid()
        return self._pool

    def _make_pool(self) -> urllib3.HTTPConnectionPool:
        host, port = self._address.host or "", self._address.port
        if self._address.scheme == "http":
            return _PlainPool(host, port, maxsize=KEPT_MAX)
        context = ssl.create_default_context()
        return _SecurePool(host, port, maxsize=KEPT_MAX, ssl_context=context)


class _LastSendTime(threading.local):
    """When the last request of a thread was sent. A large one may be on its way for long before that."""

    at_s: float | None = None


_sent: Final = _LastSendTime()


class _PlainConnection(HTTPConnection):
    def request(self, *positional: Any, **named: Any) -> None:
        super().request(*positional, **named)
        _sent.at_s = time.monotonic()


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SecureConnection(HTTPSConnection):
    """A connection over TLS. Until both sides have agreed on it, nothing of a request is sent."""

    def connect(self) -> None:
        try:
            super().connect()
        except ssl.SSLCertVerificationError as problem:
            reason = (
                f"its certificate is not trusted ({problem.verify_message}); set SSL_CERT_FILE to a file "
                "with the certificates to trust"
            )
            raise RequestNotSent(reason, is_final=True) from None
        except ssl.SSLError as problem:
            if problem.reason in _NOT_TLS:
                raise _no_tls_error(self.host, self.port) from None
            raise NewConnectionError(self, "TLS failed") from problem
        except OSError as problem:
            raise NewConnectionError(self, "TLS failed") from problem

    def request(self, *positional: Any, **named: Any) -> None:
        super().request(*positional, **named)
        _sent.at_s = time.monotonic()


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _no_tls_error(host: str, port: int) -> RequestNotSent:
    """The server does not speak TLS, and will not do so the next time."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    error = InvalidRequest(
        f"the server at {place} does not speak TLS; use http://{place}, or the address of a proxy that does"
    )
    return RequestNotSent(str(error), is_final=True, error=error)


def _read_reply(response: urllib3.BaseHTTPResponse) -> ServerReply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ServerReply(status=response.status, headers=headers, body=response.data)


def _read_lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _describe_problem(problem: Exception) -> str:
    """What went wrong, without the library's own words around it."""
    if isinstance(problem, ReadTimeoutError):
        return "there was no answer in time"
    cause: BaseException = problem.__cause__ or problem
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return f"TLS failed ({cause.reason.lower().replace('_', ' ')})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(problem).rpartition(": ")[2] or type(problem).__name__


# -- address and token ---------------------------------------------------------------------------------


def _parse_url(url: str) -> urllib3.util.Url:
    try:
        address = urllib3.util.parse_url(url)
    except LocationParseError:
        raise InvalidRequest(
            "the server's address cannot be read; write it like https://host:19120"
        ) from None
    if address.auth is not None:
        raise InvalidRequest(
            f"the address of {address.host} contains a user or password; a server needs a token, in {TOKEN}"
        )
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidRequest(f"{url!r} is not the address of a server; write it like https://host:19120")
    if address.query is not None or address.fragment is not None:
        raise InvalidRequest(
            "a server's address must not contain '?' or '#'; write it like https://host:19120"
        )
    if match := _NESSIE.search(address.path or ""):
        lake = f"{address.scheme}://{address.netloc}{(address.path or '')[: match.start()]}"
        raise InvalidRequest(f"{url} is the address of Nessie's API; the address of the lake is {lake}")
    return address


def _choose_token(given_token: str | None, environment: Mapping[str, str]) -> str:
    """The caller's token: as given, else of the environment, else none."""
    token = given_token if given_token is not None else environment.get(TOKEN, "")
    if not token and given_token is None and (file := environment.get(TOKEN_FILE, "")):
        try:
            token = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
            raise InvalidRequest(f"{TOKEN_FILE} names {file}, which cannot be read: {reason}") from None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("the token contains characters that are not allowed in a token")
    return token


def _require_safe(address: urllib3.util.Url, environment: Mapping[str, str]) -> None:
    """Whoever listens on the way could use a token that is sent in the open."""
    if address.scheme == "https" or _is_loopback(address.host or "") or environment.get(INSECURE):
        return
    raise InvalidRequest(
        f"the token would be sent to {address.host} unencrypted: use https://, or set {INSECURE}=1 if the "
        "network is safe"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
