"""A connection: HTTP/1.1 as uvicorn speaks it, with a limit on how long and how large a request's head is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_MAX_BYTES: Final = 64 * 1024
"""Of a request line with its headers; beyond that, what is read at once."""


class Connection(HttpToolsProtocol):
    """Closes a connection that sends no request, or one whose head does not end.

    A head that is too large is answered by 431, one that takes too long by nothing: its sender does not read.
    """

    head_timeout_s: float = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES:
                self._refuse()
                return
        if not self.transport.is_closing():
            super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_timer()
        else:
            self._stop_timer()

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Clients that offer HTTP/2 are answered in HTTP/1.1, and nobody needs to know."""

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        said = b"the request's head is larger than %d bytes" % HEAD_MAX_BYTES
        head = (
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
            b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n" % len(said)
        )
        self.transport.write(head + said)
        self.transport.close()


def connection_type(head_timeout_s: float) -> type[Connection]:
    """The class of connections with a time limit; uvicorn makes them itself."""
    return type("Connection", (Connection,), {"head_timeout_s": head_timeout_s})
