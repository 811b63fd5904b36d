"""A way to a server, on which something can happen after a request was sent and before it arrives.

with Forwarder(uri) as forwarder:
    ...                                                   # a client of forwarder.uri
    forwarder.meet("/history/commit", lambda: ...)        # runs before the next commit is passed on
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3

PASSED_ON = ("accept", "accept-encoding", "content-type", "content-encoding", "nessie-client-spec")
PASSED_BACK = ("content-type", "content-encoding")


class Forwarder:
    """Passes requests on to a server, and answers back."""

    def __init__(self, uri: str) -> None:
        self.target = uri
        self.statuses: list[int] = []
        self._path_end = ""
        self._act: Callable[[], object] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="forwarder", daemon=True)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def meet(self, path_end: str, act: Callable[[], object]) -> None:
        """Act once, before the next request whose path ends so; keep how such are answered from now on."""
        self._path_end, self._act, self.statuses = path_end, act, []

    def passes(self, path: str) -> bool:
        """Called for each request before it is passed on: whether it is one of those to be met."""
        is_met = bool(self._path_end) and path.endswith(self._path_end)
        act = self._act if is_met else None
        if act is not None:
            self._act = None
            act()
        return is_met

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        forwarder = self
        pool = urllib3.PoolManager()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = self.body()
                is_met = forwarder.passes(self.path)
                answer = pool.request(
                    self.command,
                    forwarder.target + self.path,
                    body=body,
                    headers={
                        name: value for name, value in self.headers.items() if name.lower() in PASSED_ON
                    },
                    decode_content=False,
                    retries=False,
                )
                if is_met:
                    forwarder.statuses.append(answer.status)
                self.send_response(answer.status)
                for name in PASSED_BACK:
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(answer.data)))
                self.end_headers()
                self.wfile.write(answer.data)

            do_GET = do_POST = do_PUT = do_DELETE = forward  # noqa: N815 - the base class names them so

            def body(self) -> bytes | None:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    length = int(self.headers.get("Content-Length", 0))
                    return self.rfile.read(length) if length else None
                chunks = []
                while length := int(self.rfile.readline(), 16):
                    chunks.append(self.rfile.read(length))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(chunks)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        return Handler
