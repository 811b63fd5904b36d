"""Deadlines: until when somebody waits for the answer to a request, and what of that time is left.

A server sets one for the thread that works on a request. A program that uses its own lake sets none, and its
settings alone count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final, NamedTuple


class TimeLimit(NamedTuple):
    """How long something may take, and the option that says so."""

    seconds: float
    option: str


_DUE: Final[ContextVar[tuple[float, str] | None]] = ContextVar("penstock_due", default=None)


@contextmanager
def due(at_s: float, option: str) -> Iterator[None]:
    """Let the work of this thread be due at a time, as ``time.monotonic`` tells it, because of an option."""
    token = _DUE.set((at_s, option))
    try:
        yield
    finally:
        _DUE.reset(token)


def time_limit(seconds: float, option: str) -> TimeLimit:
    """A limit of an option, or what is left until the work is due if that is less."""
    known = _DUE.get()
    if known is not None and (left_s := max(0.0, known[0] - monotonic())) < seconds:
        return TimeLimit(left_s, known[1])
    return TimeLimit(seconds, option)
