"""A request's body on its way: how large it will be, and what has come of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from penstock.errors import TooLarge
from penstock.server.large_bodies import LARGE_BODY_BYTES, LargeBodySlot

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(Exception):
    """The client went away before its request was complete."""


def get_body_size(headers: Mapping[str, str]) -> float:
    """How many bytes the body will have; endless if its end is only known when it comes."""
    if "transfer-encoding" in headers:
        return math.inf
    declared = headers.get("content-length")
    return int(declared) if declared is not None else 0


class RequestBody:
    """A body that arrives part by part. A large one waits for a place before the rest of it is read."""

    def __init__(
        self, receive: Receive, size_max_bytes: int, take_place: Callable[[], Awaitable[LargeBodySlot]]
    ) -> None:
        self._receive, self._size_max_bytes = receive, size_max_bytes
        self._take_place = take_place
        self.place: LargeBodySlot | None = None
        self.waits_for_place = False
        self._parts: list[bytes] = []
        self.size_bytes = 0

    @property
    def whole_body(self) -> bytes:
        return b"".join(self._parts)

    async def arrives_within(self, limit_s: float) -> bool:
        """Whether all of it is there in time; if not, what has come is kept, and the rest can be awaited."""
        try:
            async with asyncio.timeout(limit_s):
                while await self._receive_part():
                    pass
        except TimeoutError:
            return False
        return True

    async def _receive_part(self) -> bool:
        if self.size_bytes > LARGE_BODY_BYTES and self.place is None:
            self.waits_for_place = True
            self.place = await self._take_place()
            self.waits_for_place = False
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        self._parts.append(part)
        self.size_bytes += len(part)
        if self.size_bytes > self._size_max_bytes:
            raise too_large_error(self._size_max_bytes)
        return bool(message.get("more_body"))


def too_large_error(most: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than the {most:,} bytes that this server accepts", body_max_bytes=most
    )
