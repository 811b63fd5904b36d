"""A watch over a client that waits for an answer: if it goes away, what is done for it ends, and its place is
somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.server.read_turns import ReadPace
from penstock.server.request_body import ClientGone, Receive

WATCH_AFTER_S: Final = 0.1
"""When it is first looked whether the client is still there: most reads are answered by then."""


class ClientWatch:
    """Looks whether the client of a request is still there, from ``begin`` to ``end``. A read is abandoned by
    its pace; other work asks ``is_gone``."""

    def __init__(self, pace: ReadPace | None, receive: Receive) -> None:
        self._pace, self._receive = pace, receive
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False

    def is_gone(self) -> bool:
        """May be asked by any thread."""
        return self._is_gone

    def begin_watch(self, future: asyncio.Future[Any]) -> None:
        """If the client goes away, nobody waits for the work, and the future raises ``ClientGone``."""
        self._task = asyncio.get_running_loop().create_task(self._check_future(future))

    def end_watch(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _check_future(self, future: asyncio.Future[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._pace is not None:
            self._pace.abandon_read()
        if not future.done():
            future.set_exception(ClientGone())
