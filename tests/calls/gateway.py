"""A gateway between a client and a server, which spoils answers: a proxy of HTTP that can be told to fail.

    with Gateway(server.port) as gateway:
        with gateway.spoiling("POST", "/api/penstock/v1/commits", lost):
            ...                                   # the next answer from there does not come

A fault is a function of the request and what the server answered to it; ``None`` closes the connection.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import AdministratorError
from penstock.wire.errors import encode_error

PAGE = b"<html><title>Sign in</title></html>"


class Reply(NamedTuple):
    """An answer on its way to the client."""

    status: int
    content_type: str
    body: bytes
    left_out_bytes: int = 0
    """So many bytes of it do not come: the connection is cut instead."""


Forward = Callable[[], Reply]
Fault = Callable[[Forward], Reply | None]
"""Is given what asks the server, and may leave it; answers what the client gets, ``None`` for nothing."""


def lost_before_it_arrived(_: Forward) -> None:
    """The connection is cut before the server hears anything."""


def lost(forward: Forward) -> None:
    """The connection is cut after the server has answered."""
    forward()


def cut_off(forward: Forward) -> Reply:
    """The connection is cut in the middle of the answer."""
    reply = forward()
    return reply._replace(left_out_bytes=len(reply.body) // 2 + 1)


def page(forward: Forward) -> Reply:
    """Something in between answers with a page of its own: somebody has to sign in."""
    forward()
    return Reply(200, "text/html", PAGE)


def half(forward: Forward) -> Reply:
    """Half of the answer comes as if it were the whole one."""
    reply = forward()
    return reply._replace(body=reply.body[: len(reply.body) // 2])


def bad_gateway(forward: Forward) -> Reply:
    """Something in between has waited for too long."""
    forward()
    return Reply(502, "text/html", PAGE)


def own_fault(forward: Forward) -> Reply:
    """The server fails after it has done what it was asked."""
    forward()
    error = AdministratorError("internal error of the server")
    return Reply(500, "application/json", encode_error(error, "r1"))


def page_instead(_: Forward) -> Reply:
    """Something in between answers with a page of its own, and hands nothing on."""
    return Reply(200, "text/html", PAGE)


class Gateway:
    """Forwards requests to a port of this machine, until it is told to spoil some."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.spoilt = 0
        """How many answers were spoilt since it was last told to."""
        self.keys: list[str | None] = []
        """The idempotency keys of those requests, and of the same ones that were passed on."""
        self._lock = threading.Lock()
        self._fault: tuple[str, str, Fault, int | None] | None = None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Gateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @contextmanager
    def spoiling(self, method: str, target: str, fault: Fault, times: int | None = 1) -> Iterator[None]:
        """Spoil the next answers to requests of a method at a path; all of them without a number."""
        with self._lock:
            self._fault = (method, urlsplit(target).path, fault, times)
            self.spoilt, self.keys = 0, []
        try:
            yield
        finally:
            with self._lock:
                self._fault = None

    def answer(self, method: str, target: str, key: str | None, forward: Forward) -> Reply | None:
        with self._lock:
            fault = self._fault
            is_meant = fault is not None and (method, urlsplit(target).path) == fault[:2]
            if is_meant:
                self.keys.append(key)
            is_spoilt = fault is not None and is_meant and (fault[3] is None or self.spoilt < fault[3])
            self.spoilt += is_spoilt
        return fault[2](forward) if is_spoilt and fault is not None else forward()


def _handler(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.close_connection = True
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                return
            self.close_connection = False
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            key = self.headers.get("idempotency-key")
            reply = gateway.answer(self.command, self.path, key, lambda: self._forward(body))
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("content-type", reply.content_type)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.left_out_bytes])
            self.close_connection = reply.left_out_bytes > 0

        def _forward(self, body: bytes) -> Reply:
            upstream = http.client.HTTPConnection("127.0.0.1", gateway.target_port, timeout=30)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                answer = upstream.getresponse()
                return Reply(answer.status, answer.getheader("content-type", ""), answer.read())
            finally:
                upstream.close()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
