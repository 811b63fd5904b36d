"""Deadlines: until when somebody waits for the answer to a request, and what of that time is left.

A server sets one for the thread that works on a request. A program that uses its own lake sets none, and its
settings alone count.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import monotonic
from typing import Final, NamedTuple


class TimeLimit(NamedTuple):
    """How long something may take, and the option that says so."""

    seconds: float
    option: str


_DUE: Final[ContextVar[tuple[float, str] | None]] = ContextVar("penstock_due", default=None)


class due:  # noqa: N801 - it is used as a function is
    """Let the work of this thread be due at a time, as ``time.monotonic`` tells it, because of an option."""

    __slots__ = ("_before", "_due")

    def __init__(self, at_s: float, option: str) -> None:
        self._due = at_s, option

    def __enter__(self) -> None:
        self._before = _DUE.set(self._due)

    def __exit__(self, *_: object) -> None:
        _DUE.reset(self._before)


def time_limit(seconds: float, option: str) -> TimeLimit:
    """A limit of an option, or what is left until the work is due if that is less."""
    outer = _DUE.get()
    if outer is not None and (left_s := max(0.0, outer[0] - monotonic())) < seconds:
        return TimeLimit(left_s, outer[1])
    return TimeLimit(seconds, option)
