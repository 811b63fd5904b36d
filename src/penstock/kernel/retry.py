"""Trying again: bounded in number and in total time, with exponential, random waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import (
    OutcomeUnknown,
    PenstockError,
    RetriesExhausted,
    StorageFull,
    Unavailable,
)
from penstock.kernel.settings import Settings

DOUBLINGS_MAX = 30

R = TypeVar("R")


class Tries:
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

    def extend(self, seconds: float) -> None:
        """Allow for time that was spent waiting for others to land."""
        self._deadline += seconds

    def again(self, why: str | Unavailable | OutcomeUnknown) -> None:
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
    tries = Tries(settings)
    while True:
        try:
            return ask()
        except Unavailable as unavailable:
            tries.again(unavailable)


def reason_of(problem: PenstockError) -> str:
    """Why tries were in vain, without what that says of the request: an earlier try may have been applied."""
    reason: str = problem.details.get("reason", problem.message)
    return reason.rstrip(".")
