"""Pace: how a long read gives way to others, and ends when nobody waits for its answer any more.

Every walk over history, keys or references calls ``step`` for each piece of its work. Whoever runs the walk
for somebody else, such as a server, sets what a step does while it runs, in its own thread alone. A program
that reads its own lake sets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Final

from penstock.errors import TimedOut

_STEP: Final[ContextVar[Callable[[], None] | None]] = ContextVar("penstock_step", default=None)


def step() -> None:
    """Say that a piece of a long read is done. Raises what ends the read, if it is to end."""
    take = _STEP.get()
    if take is not None:
        take()


class paced:  # noqa: N801 - it is used as a function is
    """Have ``take`` called at every step of the reads of this thread; nothing, where it must not be stopped.

    A step may wait, or raise. So nobody holds a lock around one that others need, and who moves a row, or
    leads a batch of others' requests, is not paced. Every request passes here, so it is no generator, which
    would cost three times as much.
    """

    __slots__ = ("_before", "_take")

    def __init__(self, take: Callable[[], None] | None) -> None:
        self._take = take

    def __enter__(self) -> None:
        self._before = _STEP.set(self._take)

    def __exit__(self, *_: object) -> None:
        _STEP.reset(self._before)


def limit_reads(limit_s: float) -> paced:
    """Have the reads of this thread end with ``TimedOut`` once they have taken so long, beside whatever else
    their steps do: for what is shown only if it is found soon."""
    outer, ends_s = _STEP.get(), monotonic() + limit_s

    def take() -> None:
        if outer is not None:
            outer()
        if monotonic() > ends_s:
            raise TimedOut(f"this took longer than {limit_s:g} s and was stopped")

    return paced(take)
