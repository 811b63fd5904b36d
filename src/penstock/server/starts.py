"""Starts: of one caller's reads, a few begin at a time, and the others when these are done.

A read computes for a moment before it needs a turn (``turns``). If sixty began at once, everybody else would
wait for sixty such moments. One that has not ended soon waits for a store, or for its turn, and the next one
begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any, Final, NamedTuple

from penstock.server.threads import Ended, Threads, Work

AT_ONCE: Final = 4
"""Reads of one caller that begin at the same time."""
YOUNG_S: Final = 0.025
"""How long a read that goes on keeps others of its caller from beginning."""


class Starts:
    """Gives reads to threads. Used by the thread of the event loop alone."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._lines: dict[str, _Line] = {}

    def run(self, caller: str, work: Work, ended: Ended) -> asyncio.Future[Any]:
        """As ``Threads.run``, when it is the caller's time. What nobody waits for any more is not begun."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = _Line()
        if len(line.young) < AT_ONCE and not line.waiting:
            return self.threads.run(work, _Begun(self, caller, line, ended).end)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        line.waiting.append(_Waiting(work, ended, future))
        self.go_on(caller, line)
        return future

    def go_on(self, caller: str, line: _Line) -> None:
        """Begin what may begin of a caller's reads. While some wait, a timer looks how old others are."""
        line.forget_old()
        while line.waiting and len(line.young) < AT_ONCE:
            one = line.waiting.popleft()
            if one.future.done():
                one.ended()
            else:
                self.threads.run(one.work, _Begun(self, caller, line, one.ended).end, one.future)
        if line.waiting:
            if line.timer is None:
                left_s = max(next(iter(line.young)).began_s + YOUNG_S - monotonic(), 0.0)
                line.timer = asyncio.get_running_loop().call_later(left_s, self._look, caller, line)
        elif not line.young and self._lines.get(caller) is line:
            del self._lines[caller]

    def _look(self, caller: str, line: _Line) -> None:
        line.timer = None
        self.go_on(caller, line)


class _Waiting(NamedTuple):
    work: Work
    ended: Ended
    future: asyncio.Future[Any]


class _Line:
    """The reads of one caller: which have just begun, the oldest first, and which wait to."""

    def __init__(self) -> None:
        self.young: dict[_Begun, None] = {}
        self.waiting: deque[_Waiting] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def forget_old(self) -> None:
        """Reads that have gone on for some time keep nobody from beginning."""
        before_s = monotonic() - YOUNG_S
        while self.young and (oldest := next(iter(self.young))).began_s <= before_s:
            del self.young[oldest]


class _Begun:
    """A read that has begun, and is young until it ends or some time has passed."""

    __slots__ = ("_caller", "_ended", "_line", "_starts", "began_s")

    def __init__(self, starts: Starts, caller: str, line: _Line, ended: Ended) -> None:
        self._starts, self._caller, self._line, self._ended = starts, caller, line, ended
        self.began_s = monotonic()
        line.young[self] = None

    def end(self) -> None:
        self._ended()
        line = self._line
        line.young.pop(self, None)
        if line.waiting or not line.young:
            self._starts.go_on(self._caller, line)
