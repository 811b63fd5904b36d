"""What a client asks of an S3 server, counted on the way there."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import unquote

from tests.servers.process import HOST
from tests.servers.proxy import Link, Proxy

REQUEST = re.compile(rb"\A(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n((?:[^\r]+\r\n)*)")
COPY = re.compile(rb"^x-amz-copy-source:", re.IGNORECASE | re.MULTILINE)


class Counting(Proxy):
    """A way to a server that keeps a note of every request: what it asks for, and the object's name."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.asked: list[tuple[str, str]] = []

    def kinds(self, part: str = "") -> Counter[str]:
        """How many requests of each kind there were for names that have this part."""
        return Counter(kind for kind, name in self.asked if part in name)

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
            method, target, headers = found[1].decode(), found[2].decode(), found[3]
            self._counting.asked.append(_meant(method, target, is_copy=COPY.search(headers) is not None))
        super().data_received(data)


def _meant(method: str, target: str, *, is_copy: bool) -> tuple[str, str]:
    """What S3 calls a request, and the name that it is about."""
    path, _, query = target.partition("?")
    name = unquote(path)
    if method == "GET" and ("list-type=2" in query or "prefix=" in query):
        prefix = next((part for part in query.split("&") if part.startswith("prefix=")), "")
        return "LIST", f"{name}?{unquote(prefix)}"
    if is_copy:
        return "COPY", name
    return ("DELETE" if method == "POST" and query.startswith("delete") else method), name
