"""Threads: where handlers run, since they wait for stores and the event loop must not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], Any]
Ended: TypeAlias = Callable[[], None]


class Threads:
    """Up to so many threads, made when they are needed; used from one event loop.

    It does what an executor of the standard library does at a third of its cost: results of several threads
    are brought to the loop together. Its threads do not keep the process from ending, so that a store that
    never answers cannot either.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = self._busy = 0
        self._waiting: SimpleQueue[tuple[Work, asyncio.Future[Any], Ended] | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None, Ended]] = deque()
        self._lock = Lock()
        self._announced = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> int:
        """How many pieces of work were given and are not finished."""
        return self._busy

    def run(
        self, work: Work, ended: Ended = lambda: None, future: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[Any]:
        """Have work done by the next free thread. Its result, or what it raises, becomes that of the future:
        a new one, unless one is given.

        The event loop calls ``ended`` when the work has ended, also if nobody waits for its result any more.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if future is None:
            future = self._loop.create_future()
        self._busy += 1
        self._waiting.put((work, future, ended))
        if self._busy > self._count and self._count < self._count_max:
            self._count += 1
            Thread(target=self._serve, name=f"request-{self._count}", daemon=True).start()
        return future

    def stop(self) -> None:
        """Let the threads end, once they have done what was given to them."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _serve(self) -> None:
        while True:
            item = self._waiting.get()
            if item is None:
                return
            work, future, ended = item
            try:
                result, error = work(), None
            except BaseException as raised:  # noqa: BLE001 - it is raised where the result is awaited
                result, error = None, raised
            self._finish(future, result, error, ended)
            del item, work, future, result, error, ended

    def _finish(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None, ended: Ended
    ) -> None:
        assert self._loop is not None
        with self._lock:
            self._done.append((future, result, error, ended))
            if self._announced:
                return
            self._announced = True
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            done, self._done = self._done, deque()
            self._announced = False
        self._busy -= len(done)
        for future, result, error, ended in done:
            ended()
            if future.done():  # nobody waits any more
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
