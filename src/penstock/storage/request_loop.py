"""The thread that runs requests to buckets, for ordinary threads that wait for the answers.

``asyncio`` takes a fifth of the time in which a program begins, and a commit of a few keys needs no bucket.
So this module is loaded when the first bucket is opened, and others of ``storage`` load ``asyncio`` in the
functions that need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from threading import Thread
from typing import Any, Final, TypeVar

from penstock.errors import InvalidRequest

Answer = TypeVar("Answer")

LEAVE_MAX_S: Final = 5.0
"""How long closing waits for requests that are under way."""


class RequestLoop:
    """A thread that runs requests; others hand it work and wait for the answer."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="penstock-requests", daemon=True)
        self._thread.start()

    def run_coroutine(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer to some work, or the error it ended with."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise InvalidRequest("the lake was closed; open it again") from None
        try:
            return future.result()
        except (asyncio.CancelledError, CancelledError):
            raise InvalidRequest("the lake was closed during this operation; open it again") from None

    def close(self) -> None:
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._stop_loop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop_loop(self) -> None:
        pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=LEAVE_MAX_S)
        await self._loop.shutdown_default_executor()
