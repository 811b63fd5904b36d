"""The process that accepts the connections of a server, and answers liveness probes.

``acceptor`` starts it by the path of this file, with nothing imported but a few modules of the standard
library: it takes few milliseconds to start and few megabytes, and no lock of the serving process keeps it
from answering. A connection whose first bytes are a probe is answered here. Every other one is handed over to
the serving process as an open descriptor, with all its bytes unread.

The channel is a pair of sockets. The serving process sends a byte from its event loop every now and then, and
whenever it has taken connections; if it stops sending, probes are answered by 503. This process sends a byte
for each connection and each probe.

Where several serving processes share the listener, each has a process like this one. If the serving process
does not take the connections that it is sent, this one accepts no more: they are left to the others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

CONNECTION: Final = b"c"
"""A connection is handed over; its descriptor comes with this byte."""
HEALTHY: Final = b"h"
"""A probe was answered by 200."""
STUCK: Final = b"s"
"""A probe was answered by 503."""

PROBES: Final = (b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.0\r\n")
HEAD_MAX_BYTES: Final = 4096
"""Of a probe. What is larger is handed over."""
HEAD_END: Final = b"\r\n\r\n"
NOT_PLAIN: Final = (b"\ncontent-length", b"\ntransfer-encoding", b"\nx-request-id", b"\nexpect", b"\nupgrade")
"""Headers of requests that the serving process answers, also if they ask for its health."""
SILENT_MAX_S: Final = 0.1
"""A connection that has sent nothing for so long is handed over."""
HELD_MAX: Final = 1024
"""Connections that are not handed over yet. Further ones wait to be accepted."""
UNTAKEN_MAX: Final = 32
"""Connections that are handed over to one of several serving processes before it takes any of them."""
OWN_DESCRIPTORS: Final = 32
"""Of this process, which are no connections, with some to spare."""
ACCEPT_AT_ONCE: Final = 16
PAUSE_S: Final = 0.1
"""After the system had no room for one more descriptor."""
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
GONE: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
"""The serving process has ended."""


class AcceptorLoop:
    """Accepts connections, and answers each or hands it over."""

    def __init__(
        self,
        listener: socket.socket,
        channel: socket.socket,
        stuck_s: float,
        untaken_s: float | None = None,
    ) -> None:
        """``untaken_s`` is for how long the serving process may be silent until connections are left to
        others; ``None`` if there are no others."""
        self._listener, self._channel, self._stuck_s = listener, channel, stuck_s
        self._untaken_s, self._untaken = untaken_s, 0
        self._selector = selectors.DefaultSelector()
        self._silent: dict[socket.socket, float] = {}
        """Connections that have sent nothing yet, and since when, the oldest first."""
        self._handed: deque[socket.socket] = deque()
        """Connections to be handed over, the oldest first."""
        self._beat_s: float | None = None
        self._accept_from_s = 0.0
        self._send_from_s: float | None = None
        """When connections are sent again, after the system took none."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._held_max = HELD_MAX
        if limit != resource.RLIM_INFINITY:
            self._held_max = max(1, min(HELD_MAX, limit - OWN_DESCRIPTORS))
        self._is_accepting = self._is_ending = False
        for endpoint in (listener, channel):
            endpoint.setblocking(False)

    def run_until_closed(self) -> None:
        """Until the serving process closes its end of the channel."""
        self._selector.register(self._channel, selectors.EVENT_READ, self._receive_sign_of_life)
        while not self._is_ending:
            self._update_accepting()
            for key, _ in self._selector.select(self._get_timeout_s()):
                act: Callable[[], None] = key.data
                act()
            self._hand_over_silent()
            if self._send_from_s is not None and time.monotonic() >= self._send_from_s:
                self._send_connections()
        self._stop_accepting()

    def _get_timeout_s(self) -> float | None:
        """How long there is nothing to do, if nobody sends anything."""
        is_pausing = self._send_from_s is not None or time.monotonic() < self._accept_from_s
        return SILENT_MAX_S if self._silent or is_pausing else None

    def _update_accepting(self) -> None:
        """Nothing is accepted before the serving process sends its first byte, nor beyond the limit, nor in
        the pause after the system had no room, nor what others may take sooner."""
        has_room = len(self._silent) + len(self._handed) < self._held_max
        is_time = time.monotonic() >= self._accept_from_s
        accepts = (
            self._beat_s is not None and has_room and is_time and not self._must_leave_to_other_workers()
        )
        if accepts and not self._is_accepting:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept_connections)
        elif self._is_accepting and not accepts:
            self._selector.unregister(self._listener)
        self._is_accepting = accepts

    def _must_leave_to_other_workers(self) -> bool:
        """Whether the serving process is too late in taking connections, and there are others that can."""
        if self._untaken_s is None or self._beat_s is None:
            return False
        has_room = self._untaken + len(self._silent) + len(self._handed) < UNTAKEN_MAX
        return not has_room or time.monotonic() - self._beat_s > self._untaken_s

    def _accept_connections(self) -> None:
        self._receive_sign_of_life()  # what came since the listener was found ready
        for _ in range(ACCEPT_AT_ONCE):
            if self._is_ending or self._must_leave_to_other_workers():
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as problem:  # else another process was faster, or the client has gone
                if problem.errno in EXHAUSTED:
                    self._accept_from_s = time.monotonic() + PAUSE_S
                return
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._silent[connection] = time.monotonic()
            self._selector.register(
                connection, selectors.EVENT_READ, lambda one=connection: self._serve_connection(one)
            )

    def _serve_connection(self, connection: socket.socket) -> None:
        """Answer or hand over a connection that has sent something."""
        if connection not in self._silent:
            return
        self._forget_connection(connection)
        try:
            head = connection.recv(HEAD_MAX_BYTES, socket.MSG_PEEK)
            if not head:
                connection.close()
            elif is_plain_probe(head):
                connection.recv(len(head))
                self._answer_health_check(connection)
            else:
                self._hand_over_connection(connection)
        except OSError:
            connection.close()

    def _answer_health_check(self, connection: socket.socket) -> None:
        self._receive_sign_of_life()
        silent_s = time.monotonic() - (self._beat_s or 0.0)
        is_stuck = silent_s > self._stuck_s
        with connection:
            connection.send(_make_stuck_response(silent_s) if is_stuck else _make_healthy_response())
        if not self._handed:  # else the channel is full, and the probe is not counted
            with contextlib.suppress(OSError):
                self._channel.send(STUCK if is_stuck else HEALTHY)

    def _hand_over_silent(self) -> None:
        before_s = time.monotonic() - SILENT_MAX_S
        while self._silent:
            connection, since_s = next(iter(self._silent.items()))
            if since_s > before_s and not self._is_ending:
                return
            self._forget_connection(connection)
            self._hand_over_connection(connection)

    def _forget_connection(self, connection: socket.socket) -> None:
        del self._silent[connection]
        self._selector.unregister(connection)

    def _hand_over_connection(self, connection: socket.socket) -> None:
        self._handed.append(connection)
        if len(self._handed) == 1:
            self._send_connections()

    def _send_connections(self) -> None:
        """Send the connections that wait for it, as many as the channel takes now."""
        self._send_from_s = None
        while self._handed:
            try:
                socket.send_fds(self._channel, [CONNECTION], [self._handed[0].fileno()])
            except BlockingIOError:
                self._wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
                return
            except OSError as problem:
                if problem.errno not in GONE:  # such as too many descriptors that are under way
                    self._send_from_s = time.monotonic() + PAUSE_S
                    self._wait_for(selectors.EVENT_READ)
                    return
            self._handed.popleft().close()
            self._untaken += 1
        self._wait_for(selectors.EVENT_READ)

    def _wait_for(self, events: int) -> None:
        if self._selector.get_key(self._channel).events != events:
            act = self._receive_sign_of_life if events == selectors.EVENT_READ else self._exchange_with_server
            self._selector.modify(self._channel, events, act)

    def _exchange_with_server(self) -> None:
        self._receive_sign_of_life()
        self._send_connections()

    def _receive_sign_of_life(self) -> None:
        """Note that the event loop of the serving process runs, or that it has no more use for this one."""
        try:
            while data := self._channel.recv(4096):
                self._beat_s, self._untaken = time.monotonic(), 0
                if len(data) < 4096:
                    return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._is_ending = True

    def _stop_accepting(self) -> None:
        """Accept nothing more, and hand over what was accepted, as far as the other side still takes it."""
        self._listener.close()
        self._channel.setblocking(True)
        self._channel.settimeout(1.0)
        self._hand_over_silent()
        with contextlib.suppress(OSError):
            for connection in self._handed:
                socket.send_fds(self._channel, [CONNECTION], [connection.fileno()])


def is_plain_probe(head: bytes) -> bool:
    """Whether these bytes are one whole request for the server's health, and nothing but that."""
    if not head.startswith(PROBES) or head.find(HEAD_END) != len(head) - len(HEAD_END):
        return False
    lower = head.lower()
    return not any(name in lower for name in NOT_PLAIN)


def _make_healthy_response() -> bytes:
    return _encode_response(b"200 OK", b'{"status":"ok"}', os.urandom(8).hex().encode())


def _make_stuck_response(silent_s: float) -> bytes:
    request_id = os.urandom(8).hex().encode()
    body = (
        b'{"error":{"code":"unavailable","message":'
        b'"the event loop of the serving process has not run for %d s","details":{}},"request_id":"%s"}'
        % (silent_s, request_id)
    )
    return _encode_response(b"503 Service Unavailable", body, request_id)


def _encode_response(status: bytes, body: bytes, request_id: bytes) -> bytes:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()
    return (
        b"HTTP/1.1 %s\r\ndate: %s\r\nx-request-id: %s\r\nx-content-type-options: nosniff\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
        % (status, date, request_id, len(body), body)
    )


def main(listener: int, channel: int, stuck_s: float, untaken_s: float | None = None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the serving process gets them, and ends this one
        signal.signal(number, signal.SIG_IGN)
    sockets = socket.socket(fileno=listener), socket.socket(fileno=channel)
    AcceptorLoop(*sockets, stuck_s, untaken_s).run_until_closed()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
