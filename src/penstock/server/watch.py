"""A watch over a client that waits for an answer: if it goes away, what is done for it ends, and its place is
somebody else's."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any, Final

from penstock.server.body import ClientGone, Receive
from penstock.server.turns import Pace

WATCH_AFTER_S: Final = 0.1
"""When it is first looked whether the client is still there: most reads are answered by then."""


class Watch:
    """Looks whether the client of a request is still there, from ``over`` to ``end``. A read is abandoned by
    its pace; other work asks ``is_gone``."""

    def __init__(self, pace: Pace | None, receive: Receive) -> None:
        self._pace, self._receive = pace, receive
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = Event()

    def is_gone(self) -> bool:
        """May be asked by any thread."""
        return self._gone.is_set()

    def over(self, future: asyncio.Future[Any]) -> None:
        """Begin. If the client goes away, nobody waits for the work, and the future raises ``ClientGone``."""
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin, future)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self, future: asyncio.Future[Any]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look(future))

    async def _look(self, future: asyncio.Future[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if self._pace is not None:
            self._pace.abandon()
        if not future.done():
            future.set_exception(ClientGone())
