"""Trying again: bounded in number and in total time, with exponential, random waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import OutcomeUnknown, RetriesExhausted, TryAgainError, Unavailable
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

    def again(self, why: str | Unavailable) -> None:
        """Wait, then go on.

        ``RetriesExhausted`` if there are no tries or no time left; ``Unavailable`` if the store is away.
        """
        self.count += 1
        longest_ms = self._settings.backoff_min_ms * 2 ** min(self.count - 1, DOUBLINGS_MAX)
        wait_s = self._uniform(0, min(longest_ms, self._settings.backoff_max_ms) / 1000)
        if self.count >= self._settings.tries_max or self._monotonic() + wait_s > self._deadline:
            if isinstance(why, Unavailable):
                raise why
            raise RetriesExhausted(
                f"gave up after {self.count} tries within {self._settings.write_timeout_s:g} s: {why}. "
                "Nothing was changed; try again when there is less traffic, or raise write_timeout_s.",
                tries=self.count,
            )
        self._sleep(wait_s)


def until_moved(
    settings: Settings,
    move: Callable[[bool], tuple[R] | None],
    lost: str,
    doubtful: Callable[[], OutcomeUnknown],
) -> R:
    """Move a row, again where another process was faster or the store did not say what happened.

    ``move`` is told whether an earlier try may have moved it, and answers with what came of it, or with
    nothing if it was ``lost``. Where it stays unknown, what ``doubtful`` makes is raised.
    """
    tries, in_doubt = Tries(settings), False
    why: str | Unavailable
    while True:
        try:
            if (moved := move(in_doubt)) is not None:
                return moved[0]
            why = lost
        except OutcomeUnknown as unknown:
            in_doubt, why = True, str(unknown)
        except Unavailable as unavailable:
            why = unavailable
        try:
            tries.again(why)
        except TryAgainError:
            if not in_doubt:
                raise
            raise doubtful() from None
