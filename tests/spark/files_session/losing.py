"""A way to a server on which the answers to some requests are lost, after the server has given them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

ANSWER_MAX_S = 30


class Losing(ThreadingHTTPServer):
    """Passes requests on, and the answers back; the first one to each of some paths it keeps."""

    daemon_threads = True

    def __init__(self, target: str, lost: set[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target, self.lost = urlsplit(target).netloc, lost
        self.asked: list[str] = []

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Losing

    def do_POST(self) -> None:
        step = self.path.rpartition("/")[2]
        self.server.asked.append(step)
        body = self.rfile.read(int(self.headers["content-length"]))
        there = HTTPConnection(self.server.target, timeout=ANSWER_MAX_S)
        kept = {
            name: self.headers[name] for name in ("content-type", "content-encoding") if self.headers[name]
        }
        there.request("POST", self.path, body, kept)
        answer = there.getresponse()
        told = answer.read()
        there.close()
        if step in self.server.lost:
            self.server.lost.discard(step)
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def losing(target: str, lost: set[str]) -> Iterator[Losing]:
    server = Losing(target, lost)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
