"""A server that answers what it is told to, whatever it is asked: any server or proxy that there may be."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.wire.errors import encode_error


class Said(NamedTuple):
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Scripted:
    """A running server: what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[Asked] = []


def refusal(error: PenstockError, **headers: str) -> Said:
    """An error, as Penstock says it."""
    return Said(error.http_status, encode_error(error, "r1"), headers=headers)


@contextmanager
def scripted(*answers: Said, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """A server that gives these answers one after the other, and the last one from then on."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.close_connection = True
            try:
                self.raw_requestline = self.rfile.readline(65537)
            except OSError:  # a client that does not trust the certificate goes away
                return
            if not self.raw_requestline or not self.parse_request():
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.asked.append(Asked(self.command, self.path, headers, body))
            said = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-type", said.content_type)
            self.send_header("content-length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = Scripted(http.server_address[1])
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
            server.url = server.url.replace("http://127.0.0.1", "https://localhost")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
