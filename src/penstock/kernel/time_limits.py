"""How long things may take: writes are tried again, requests are due, and long reads give way to others.

Tries are bounded in number and in total time, with exponential, random waits. Until when somebody waits for
an answer, and what a step of a long read does, is set by whoever works for somebody else, such as a server,
for its own thread alone. A program that uses its own lake sets neither, and its settings alone count.

Every walk over history, keys or references calls ``step`` for each piece of its work: it gives way there, and
ends there when nobody waits for its answer any more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Final, NamedTuple, TypeVar

from penstock.errors import (
    OutcomeUnknown,
    PenstockError,
    RetriesExhausted,
    StorageFull,
    TimedOut,
    Unavailable,
)
from penstock.kernel.settings import Settings

DOUBLINGS_MAX = 30

R = TypeVar("R")


class WriteRetries:
    """The tries that one write has.

    >>> tries = Tries(Settings(tries_max=2, backoff_min_ms=0))
    >>> tries.again("it moved"); tries.count
    1
    """

    def __init__(
        self,
        settings: Settings,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings, self._sleep, self._monotonic, self._uniform = settings, sleep, monotonic, uniform
        self._deadline = monotonic() + settings.write_timeout_s
        self.count = 0

    @property
    def left_s(self) -> float:
        """How much time is left."""
        return max(0.0, self._deadline - self._monotonic())

    def extend_time(self, seconds: float) -> None:
        """Allow for time that was spent waiting for others to land."""
        self._deadline += seconds

    def wait_for_next_try(self, why: str | Unavailable | OutcomeUnknown) -> None:
        """Wait, then go on.

        ``RetriesExhausted`` if there are no tries or no time left, or what the store has said. That it is
        full is raised at once: it stays so until somebody makes room.
        """
        self.count += 1
        if isinstance(why, StorageFull):
            raise why
        longest_ms = self._settings.backoff_min_ms * 2 ** min(self.count - 1, DOUBLINGS_MAX)
        wait_s = self._uniform(0, min(longest_ms, self._settings.backoff_max_ms) / 1000)
        if self.count >= self._settings.tries_max or self._monotonic() + wait_s > self._deadline:
            if isinstance(why, PenstockError):
                raise why
            given_up = f"gave up after {self.count} tries within {self._settings.write_timeout_s:g} s: {why}"
            raise RetriesExhausted(
                f"{given_up}. Nothing was changed; try again when there is less traffic, or raise "
                "write_timeout_s.",
                tries=self.count,
                reason=given_up,
            )
        self._sleep(wait_s)


def retry_reads(settings: Settings, ask: Callable[[], R]) -> R:
    """Ask a store for something that bears repetition, again where it does not answer for a moment."""
    tries = WriteRetries(settings)
    while True:
        try:
            return ask()
        except Unavailable as unavailable:
            tries.wait_for_next_try(unavailable)


def describe_reason(problem: PenstockError) -> str:
    """Why tries were in vain, without what that says of the request: an earlier try may have been applied."""
    reason: str = problem.details.get("reason", problem.message)
    return reason.rstrip(".")


class TimeLimit(NamedTuple):
    """How long something may take, and the option that says so."""

    seconds: float
    option: str


_DUE: Final[ContextVar[tuple[float, str] | None]] = ContextVar("penstock_due", default=None)


class deadline:  # noqa: N801 - it is used as a function is
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


_STEP: Final[ContextVar[Callable[[], None] | None]] = ContextVar("penstock_step", default=None)


def check_read_may_go_on() -> None:
    """Say that a piece of a long read is done. Raises what ends the read, if it is to end."""
    take = _STEP.get()
    if take is not None:
        take()


class paced_reads:  # noqa: N801 - it is used as a function is
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


def limit_reads(limit_s: float) -> paced_reads:
    """Have the reads of this thread end with ``TimedOut`` once they have taken so long, beside whatever else
    their steps do: for what is shown only if it is found soon."""
    outer, ends_s = _STEP.get(), monotonic() + limit_s

    def check_time() -> None:
        if outer is not None:
            outer()
        if monotonic() > ends_s:
            raise TimedOut(f"reading the lake took longer than {limit_s:g} s and was stopped")

    return paced_reads(check_time)
