"""Clients that take a large answer: part by part, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import IO, Any, Final

from penstock.server.request_body import ClientGone
from penstock.server.threads import HandlerThreads

CHUNK_BYTES: Final = 256 * 1024
TAKEN_MIN_BYTES_PER_S: Final = 1024 * 1024
"""How fast a client takes a large answer at least, on average."""


async def send_file(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    threads: HandlerThreads,
    file: IO[bytes],
    size_bytes: int,
    patience_s: float,
    is_gone: Callable[[], bool],
) -> None:
    """Send a body part by part, as its client takes it; ``ClientGone`` if that takes too long."""
    try:
        async with asyncio.timeout(patience_s + size_bytes / TAKEN_MIN_BYTES_PER_S):
            remaining = size_bytes
            while remaining and not is_gone():
                part = await threads.run_task(partial(file.read, min(remaining, CHUNK_BYTES)))
                remaining -= len(part)
                await send({"type": "http.response.body", "body": part, "more_body": remaining > 0})
    except TimeoutError:
        raise ClientGone from None
