"""Streaming: the answer of long work, a line of JSON now and then and one with the result at the end.

Work that fails before it told anything is answered like any other request, with the error's own status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec

from penstock.kernel.reachable import Progress
from penstock.server.client_watch import ClientWatch
from penstock.server.request_handler import HandledRequest

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LINES: Final = "application/x-ndjson"
LINE_EVERY_S: Final = 0.1
"""Work tells how far it is more often than anybody wants to read."""


async def stream_answer(
    run: Callable[[Callable[[], HandledRequest]], asyncio.Future[Any]],
    work: Callable[[Progress], HandledRequest],
    begin: Callable[[str], Awaitable[None]],
    send: Send,
    watch: ClientWatch | None = None,
) -> HandledRequest:
    """Have work done in a thread, and send its lines once the answer was begun.

    An error that comes before the first line is returned without anything being sent. If the client goes
    away, the work goes on, unless there is a watch over it.
    """
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    teller = _ProgressWriter(asyncio.get_running_loop(), lines)
    future = run(partial(work, teller))
    if watch is not None:
        watch.begin_watch(future)
    future.add_done_callback(lambda _: lines.put_nowait(None))
    line = await lines.get()
    if line is None and future.result().error:
        early: HandledRequest = future.result()
        return early
    await begin(LINES)
    while line is not None:
        await send({"type": "http.response.body", "body": line, "more_body": True})
        line = await lines.get()
    handled: HandledRequest = future.result()
    await send({"type": "http.response.body", "body": _encode_last_line(handled)})
    return handled


class _ProgressWriter:
    """Writes the progress of long work as lines of the response."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
        self._loop, self._lines, self._next_s = loop, lines, 0.0

    def __call__(self, subject: str, count: int) -> None:
        now_s = monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_EVERY_S
            line = msgspec.json.encode({"progress": (subject, count)}) + b"\n"
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _encode_last_line(handled: HandledRequest) -> bytes:
    body = handled.answer.body
    return (body if handled.error else b'{"result":' + (body or b"null") + b"}") + b"\n"
