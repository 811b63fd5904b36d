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
    TryAgainError,
    Unavailable,
)
from penstock.kernel.pace import paced
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


def patiently(settings: Settings, ask: Callable[[], R]) -> R:
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


def until_moved(
    settings: Settings,
    move: Callable[[bool], tuple[R] | None],
    lost: str,
    doubtful: Callable[[str], OutcomeUnknown],
) -> R:
    """Move a row, again where another process was faster or the store did not say what happened.

    ``move`` is told whether an earlier try may have moved it, and answers with what came of it, or with
    nothing if it was ``lost``. Where it stays unknown, what ``doubtful`` makes of the reason is raised.
    """
    tries, in_doubt = Tries(settings), False
    why: str | Unavailable | OutcomeUnknown
    while True:
        try:
            with paced(None):
                moved = move(in_doubt)
            if moved is not None:
                return moved[0]
            why = lost
        except OutcomeUnknown as unknown:
            in_doubt, why = True, unknown
        except Unavailable as unavailable:
            why = unavailable
        try:
            tries.again(why)
        except (TryAgainError, OutcomeUnknown) as exhausted:
            if not in_doubt:
                raise
            raise doubtful(reason_of(exhausted)) from None
