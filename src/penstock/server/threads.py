"""Threads: where handlers run, since they wait for stores and the event loop must not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol, TypeAlias

Work: TypeAlias = Callable[[], Any]
Ended: TypeAlias = Callable[[], None]


class ThreadTask(NamedTuple):
    """Work for a thread, who waits for it, and what the event loop does when it has ended."""

    work: Work
    future: asyncio.Future[Any]
    ended: Ended


class TaskSeries(Protocol):
    """Tasks that one thread does one after the other, without the event loop in between."""

    def next_task(self) -> ThreadTask | None:
        """The next one; called by the thread."""

    def end_series(self) -> None:
        """There was none; called by the event loop."""


class HandlerThreads:
    """Up to so many threads, made when they are needed; used from one event loop.

    It does what an executor of the standard library does at a third of its cost: results of several threads
    are brought to the loop together. Its threads do not keep the process from ending, so that a store that
    never answers cannot either.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = self._busy = 0
        self._waiting: SimpleQueue[tuple[ThreadTask, TaskSeries | None] | None] = SimpleQueue()
        self._done: deque[_DoneTask] = deque()
        self._lock = Lock()
        self._announced = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> int:
        """How many pieces of work, or series of them, were given and are not finished."""
        return self._busy

    def run_task(self, work: Work, ended: Ended = lambda: None) -> asyncio.Future[Any]:
        """Have work done by the next free thread. Its result, or what it raises, becomes that of the future.

        The event loop calls ``ended`` when the work has ended, also if nobody waits for its result any more.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.start(ThreadTask(work, future, ended))
        return future

    def start(self, task: ThreadTask, series: TaskSeries | None = None) -> None:
        """Have a task done by the next free thread, and after it those of its series."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._busy += 1
        self._waiting.put((task, series))
        if self._busy > self._count and self._count < self._count_max:
            self._count += 1
            Thread(target=self._run_tasks, name=f"request-{self._count}", daemon=True).start()

    def stop(self) -> None:
        """Let the threads end, once they have done what was given to them."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _run_tasks(self) -> None:
        while (item := self._waiting.get()) is not None:
            task: ThreadTask | None
            task, series = item
            del item
            while task is not None:
                task = self._run_task(task, series)
            del series

    def _run_task(self, task: ThreadTask, series: TaskSeries | None) -> ThreadTask | None:
        """Do one task, and return the next one of its series."""
        result, error = None, None
        try:
            result = task.work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the result is awaited
            error = raised
        following = series.next_task() if series is not None else None
        self._finish_task(_DoneTask(task, result, error, following is None, series))
        return following

    def _finish_task(self, task: _DoneTask) -> None:
        assert self._loop is not None
        with self._lock:
            self._done.append(task)
            if self._announced:
                return
            self._announced = True
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(self._deliver_results)

    def _deliver_results(self) -> None:
        with self._lock:
            finished, self._done = self._done, deque()
            self._announced = False
        for (_, future, ended), result, error, is_last, series in finished:
            if is_last:
                self._busy -= 1
            ended()
            if is_last and series is not None:
                series.end_series()
            if future.done():  # nobody waits any more
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)


class _DoneTask(NamedTuple):
    """A task that was done, and what it came to."""

    task: ThreadTask
    result: Any
    error: BaseException | None
    is_last: bool
    series: TaskSeries | None
