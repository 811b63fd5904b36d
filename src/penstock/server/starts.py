"""Starts: of one caller's reads, a few begin at a time, and the others when these are done.

A read computes for a moment before it needs a turn (``turns``). If sixty began at once, everybody else would
wait for sixty such moments. One that has not ended soon waits for a store, or for its turn, and the next one
begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(caller, _Line())
        line.waiting.append(_Waiting(work, ended, future))
        self.go_on(caller, line)
        return future

    def go_on(self, caller: str, line: _Line) -> None:
        """Begin what may begin of a caller's reads."""
        while line.waiting and line.young < AT_ONCE:
            one = line.waiting.popleft()
            if one.future.done():
                one.ended()
                continue
            _Begun(self, caller, line, one)
        if not line.waiting and not line.young:
            self._lines.pop(caller, None)


class _Waiting(NamedTuple):
    work: Work
    ended: Ended
    future: asyncio.Future[Any]


class _Line:
    """The reads of one caller: how many have just begun, and which wait to."""

    def __init__(self) -> None:
        self.young = 0
        self.waiting: deque[_Waiting] = deque()


class _Begun:
    """A read that has begun, and is young until it ends or some time has passed."""

    def __init__(self, starts: Starts, caller: str, line: _Line, one: _Waiting) -> None:
        self._starts, self._caller, self._line, self._one = starts, caller, line, one
        self._is_young = True
        line.young += 1
        self._timer = asyncio.get_running_loop().call_later(YOUNG_S, self._age)
        starts.threads.run(one.work, self._end, one.future)

    def _age(self) -> None:
        if self._is_young:
            self._is_young = False
            self._line.young -= 1
            self._starts.go_on(self._caller, self._line)

    def _end(self) -> None:
        self._timer.cancel()
        self._one.ended()
        self._age()
