"""What a client asks of an S3 server, counted on the way there."""

from __future__ import annotations

import re
from collections import Counter
from time import perf_counter
from typing import NamedTuple
from urllib.parse import unquote

from tests.servers.process import HOST
from tests.servers.proxy import Link, Proxy

REQUEST = re.compile(rb"\A(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n((?:[^\r]+\r\n)*)")
SOURCE = re.compile(rb"^x-amz-copy-source: *(\S+)", re.IGNORECASE | re.MULTILINE)
SIZE = re.compile(rb"^(?:x-amz-decoded-content-length|content-length): *(\d+)", re.IGNORECASE | re.MULTILINE)


class Asked(NamedTuple):
    """A request: what S3 calls it, and the name that it is about."""

    kind: str
    name: str
    size: int
    """Of what it brings, in bytes."""
    source: str
    """What it copies."""
    at_s: float


class Counting(Proxy):
    """A way to a server that keeps a note of every request."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.asked: list[Asked] = []

    def kinds(self, part: str = "") -> Counter[str]:
        """How many requests of each kind there were for names that have this part."""
        return Counter(one.kind for one in self.asked if part in one.name)

    def clear(self) -> None:
        self.asked = []

    async def _listen(self) -> None:
        self._server = await self.loop.create_server(lambda: CountingLink(self), HOST, self.port, backlog=512)
        self.port = int(self._server.sockets[0].getsockname()[1])


class CountingLink(Link):
    """A client says one thing at a time, so a request begins where bytes of its own arrive."""

    def __init__(self, proxy: Counting) -> None:
        super().__init__(proxy)
        self._counting = proxy

    def data_received(self, data: bytes) -> None:
        found = REQUEST.match(data)
        if found is not None:
            self._counting.asked.append(_meant(found[1].decode(), found[2].decode(), found[3]))
        super().data_received(data)


def _meant(method: str, target: str, headers: bytes) -> Asked:
    path, _, query = target.partition("?")
    name, kind = unquote(path), method
    source = SOURCE.search(headers)
    if method == "GET" and ("list-type=2" in query or "prefix=" in query):
        prefix = next((part for part in query.split("&") if part.startswith("prefix=")), "")
        kind, name = "LIST", f"{name}?{unquote(prefix)}"
    elif source is not None:
        kind = "COPY"
    elif method == "POST" and query.startswith("delete"):
        kind = "DELETE"
    size = max((int(one) for one in SIZE.findall(headers)), default=0) if kind == "PUT" else 0
    return Asked(kind, name, size, unquote(source[1].decode()) if source else "", perf_counter())
