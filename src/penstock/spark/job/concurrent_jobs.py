"""Jobs that write the same table at the same time."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Final

_LOG: Final = logging.getLogger("penstock.spark")


class ConcurrentJobsWarning(UserWarning):
    """Another job writes the same table on the same branch right now.

    Both may commit: what comes of that is decided by their modes, when each has its turn.
    """


def warn_of_others(others: str) -> None:
    """Warn of jobs that write the same table, if there are any, where Penstock was called."""
    if others:
        _LOG.info(others)
        warnings.warn(others, ConcurrentJobsWarning, stacklevel=_find_caller_level())


def _find_caller_level() -> int:
    """How far up from the function that asks the first code is that is not Penstock's own."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "penstock":
        frame, level = frame.f_back, level + 1
    return level
