"""A connection: HTTP/1.1 as uvicorn speaks it, with limits on those who send too much, or do not read.

An offer to go on in another protocol, as Java's client makes with every first request, is not taken up: the
request is answered in HTTP/1.1. The parser stops after the head of such a request all the same, so that its
body is read by a fresh one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import Throttled
from penstock.server.request_slots import RequestSlot, normalise_client_address
from penstock.server.sockets import ConnectionLimits, encode_refusal

HEAD_MAX_BYTES: Final = 64 * 1024
"""Of a request's address with its headers, and of the headers that may follow a body."""
WAITING_MAX: Final = 64
"""How many requests may wait on one connection, the one being answered among them."""
UNREAD_AT_END_MAX_S: Final = 1.0
"""How long a server that stops waits for a client that reads nothing of its answer."""

REFUSED_MAX_S: Final = 1.0
"""How long a connection that is refused may take to send what it is refused for."""

_FRAMING: Final = (b"content-length", b"transfer-encoding")


class ServerConnection(HttpToolsProtocol):
    """Closes a connection that sends no request, one whose head does not end, or one that is not read.

    A head that is too large is answered by 431, one that takes too long by nothing: its sender does not read.
    Where too many requests wait, those within the limit are answered, the last one saying that the connection
    is closed; of the others none has begun, so that they can be sent again.
    """

    head_timeout_s: float = 30.0
    sockets: ConnectionLimits | None = None
    """Whether there is room for a connection; without them, there always is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = self._silent_bytes = 0
        self._told = 0
        """How often the parser said something."""
        self._is_in_head = self._is_too_large = self._is_resuming = self._is_full = False
        self._framing = b""
        """The headers of the request that say how long its body is."""
        self._open: deque[RequestResponseCycle] = deque()
        """Requests in the order of their answers; those in front may have been answered meanwhile."""
        self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._place: RequestSlot | None = None
        self._refusal = b""
        """What a connection is answered that there is no room for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.sockets is not None and not self._has_place(self.sockets):
            self._timer = self.loop.call_later(min(REFUSED_MAX_S, self.head_timeout_s), transport.close)
            return
        self._start_timer()
        self._watch_reader(self.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._watch is not None:
            self._watch.cancel()
        if self.sockets is not None and self._place is not None:
            self.sockets.return_slot(self._place)
        for cycle in self._open:  # uvicorn thinks of the last one only
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refusal:
            self.transport.write(self._refusal)
            self.transport.close()
            return
        if self._is_full:
            self.flow.pause_reading()  # until the next answer, so that little is read to be dropped
            return
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._parse_bytes(data)
        except httptools.HttpParserError:
            self._give_up()
        if self.cycle is None or self.cycle.response_complete:
            self._start_timer()
        else:
            self._stop_timer()

    def _parse_bytes(self, data: bytes) -> bytes:
        """Have the parser read, and return what comes after an offer of another protocol, where it stops."""
        limit, rest = self._told, b""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            rest = data[stopped.args[0] :]
            self._decline_offer()
        # What the parser says nothing about is kept by it: part of a header that does not end.
        self._silent_bytes = self._silent_bytes + len(data) if limit == self._told else 0
        if self._silent_bytes > HEAD_MAX_BYTES:
            self._is_too_large = True
            raise httptools.HttpParserError("a header is too large")
        return rest

    # -- what the parser says ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._told += 1
        if not self._is_resuming:
            self._is_in_head, self._head_bytes = True, 0
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._told += 1
        if not self._is_resuming:
            self._count_bytes(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._told += 1
        if not self._is_resuming:
            self._count_bytes(len(name) + len(value) + len(b": \r\n"))
            if self._is_in_head:  # headers after a body are nobody's business
                super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._told += 1
        if self._is_resuming:
            return
        self._is_in_head, self._head_bytes = False, 0
        self._make_room()
        self._framing = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING)
        super().on_headers_complete()
        self._open.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._told += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._told += 1
        if not (self.parser.should_upgrade() and self._framing):  # else its body is still to come
            super().on_message_complete()

    def _count_bytes(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_MAX_BYTES:
            self._is_too_large = True
            raise ValueError(
                "the request's header is too large"
            )  # ends the parser, and comes to data_received

    # -- offers of another protocol ------------------------------------------------------------------------

    def _decline_offer(self) -> None:
        """Go on in HTTP/1.1 where the parser stopped, with a parser that has read no such offer."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if self._framing:
            self._is_resuming = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % self._framing)
            self._is_resuming = False

    # -- limits --------------------------------------------------------------------------------------------

    def _has_place(self, sockets: ConnectionLimits) -> bool:
        """Whether there is room for this connection. If not, it is told so when it asks something: an answer
        that comes before the question is lost."""
        socket = self.transport.get_extra_info("socket")
        try:
            self._place = sockets.admit_connection(normalise_client_address(self.client), socket.fileno())
        except Throttled as error:
            self._refusal = encode_refusal(error)
        return self._place is not None

    def _make_room(self) -> None:
        """Forget requests that were answered. If too many are left, the last of them ends the connection."""
        while self._open and self._open[0].response_complete:
            self._open.popleft()
        if len(self._open) == WAITING_MAX:
            self._is_full, self._open[-1].keep_alive = True, False
            raise ValueError("too many requests wait")  # ends the parser, and comes to data_received

    def _give_up(self) -> None:
        """Read no more requests. The connection is closed now, or when those that wait are answered."""
        if self._is_full:
            self.logger.warning(
                "closing a connection: more than %d requests were sent on it without waiting for a response",
                WAITING_MAX,
            )
        else:
            self.logger.warning(
                "closing a connection: it sent an invalid request, or a header that is too large"
            )
            self.send_400_response("this is not an HTTP/1.1 request")

    def send_400_response(self, msg: str) -> None:
        if not self._is_too_large:
            super().send_400_response(msg)
            return
        message = b"the request's head is larger than %d bytes" % HEAD_MAX_BYTES
        head = (
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
            b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n" % len(message)
        )
        self.transport.write(head + message)
        self.transport.close()

    def shutdown(self) -> None:
        super().shutdown()
        if self._watch is not None:
            self._watch.cancel()
            self._watch_reader(min(UNREAD_AT_END_MAX_S, self.head_timeout_s))

    def _watch_reader(self, every_s: float) -> None:
        """Give up a client that has read nothing of its answer since the last look."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes and unread_bytes == self._unread_bytes:
            self.transport.abort()
            return
        self._unread_bytes = unread_bytes
        self._watch = self.loop.call_later(every_s, self._watch_reader, every_s)

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_connection_class(
    head_timeout_s: float, sockets: ConnectionLimits | None = None
) -> type[ServerConnection]:
    """The class of connections with a time limit; uvicorn makes them itself."""
    return type("Connection", (ServerConnection,), {"head_timeout_s": head_timeout_s, "sockets": sockets})
