"""Starts: of one caller's reads, a few begin at a time, and the others when these are done.

A read computes for a moment before it needs a turn (``read_turns``). If sixty began at once, everybody else
would
wait for sixty such moments. One that has not ended soon waits for a store, or for its turn, and the next one
begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any, Final

from penstock.server.threads import Ended, HandlerThreads, ThreadTask, Work

AT_ONCE: Final = 4
"""Reads of one caller that begin at the same time."""
YOUNG_S: Final = 0.025
"""How long a read that goes on keeps others of its caller from beginning."""


class ReadStarter:
    """Gives reads to threads. Used by the thread of the event loop alone."""

    def __init__(self, threads: HandlerThreads) -> None:
        self.threads = threads
        self._lines: dict[str, _StartLine] = {}

    def start_read(self, caller: str, work: Work, ended: Ended) -> asyncio.Future[Any]:
        """As ``HandlerThreads.run_task``, when it is the caller's time. What nobody waits for any more is not
        begun."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = _StartLine()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        task = ThreadTask(work, future, ended)
        if len(line.young) < AT_ONCE and not line.waiting:
            self.threads.start(task, _StartReader(self, caller, line))
        else:
            line.waiting.append(task)
            if line.timer is None:
                self.start_waiting_reads(caller, line)
        return future

    def start_waiting_reads(self, caller: str, line: _StartLine) -> None:
        """Begin what may begin of a caller's reads. While some wait, a timer looks how old others are."""
        line.forget_old()
        while len(line.young) < AT_ONCE and (task := line.next_task()) is not None:
            self.threads.start(task, _StartReader(self, caller, line))
        if line.waiting:
            if line.timer is None:
                oldest_s = min((reader.began_s for reader in line.young), default=0.0)
                left_s = max(oldest_s + YOUNG_S - monotonic(), 0.0)
                line.timer = asyncio.get_running_loop().call_later(left_s, self._start_next, caller, line)
        elif not line.young and self._lines.get(caller) is line:
            del self._lines[caller]

    def _start_next(self, caller: str, line: _StartLine) -> None:
        line.timer = None
        self.start_waiting_reads(caller, line)


class _StartLine:
    """The reads of one caller: which have just begun, and which wait to."""

    def __init__(self) -> None:
        self.young: set[_StartReader] = set()
        self.waiting: deque[ThreadTask] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def next_task(self) -> ThreadTask | None:
        """The read that has waited longest; also called by threads."""
        try:
            task = self.waiting.popleft()
        except IndexError:
            return None
        return task if not task.future.done() else task._replace(work=_do_nothing)

    def forget_old(self) -> None:
        """Reads that have gone on for some time keep nobody from beginning."""
        before_s = monotonic() - YOUNG_S
        for reader in [reader for reader in self.young if reader.began_s <= before_s]:
            reader.is_old = True
            self.young.discard(reader)


class _StartReader:
    """A thread that does reads of one caller, one after the other. It is young while its read is."""

    __slots__ = ("_caller", "_line", "_starts", "began_s", "is_old")

    def __init__(self, starts: ReadStarter, caller: str, line: _StartLine) -> None:
        self._starts, self._caller, self._line = starts, caller, line
        self.began_s, self.is_old = monotonic(), False
        line.young.add(self)

    def next_task(self) -> ThreadTask | None:
        """Another read of the caller, in place of one that has ended soon: the event loop would give it to
        another thread, and each time both would have to be woken up."""
        if self.is_old:
            return None
        self.began_s = monotonic()
        return self._line.next_task()

    def end_series(self) -> None:
        line = self._line
        line.young.discard(self)
        if line.waiting or not line.young:
            self._starts.start_waiting_reads(self._caller, line)


def _do_nothing() -> None:
    """Nobody waits for the read any more."""
