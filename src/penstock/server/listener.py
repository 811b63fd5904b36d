"""Listening: the socket that a server is reached by, and what keeps it from having one."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import Final

from penstock.errors import InvalidRequest

BACKLOG: Final = 256
"""Connections that wait to be taken. All of them may be taken at once, before the first is found to be one
too many: the files that a server keeps for itself are enough for them."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket; ``InvalidRequest`` says why there is none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as problem:
        raise InvalidRequest(_explain_bind_error(problem, host, port), host=host, port=port) from None
    return listener


def _explain_bind_error(problem: OSError, host: str, port: int) -> str:
    if isinstance(problem, socket.gaierror):
        return f"--host: unknown host '{host}'; give an address of this machine"
    if problem.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use by another program; choose another --port, or --port 0 for any free one"
        )
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"--host: '{host}' is not an address of this machine; use 0.0.0.0 for all addresses"
    if problem.errno == errno.EACCES:
        return f"--port: port {port} needs administrator rights; use 1024 or above"
    return f"cannot serve at {host} port {port}: {problem.strerror}"


def get_url(listener: socket.socket) -> str:
    """Where this machine reaches the server, also if it listens at all addresses."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
