"""Jobs that write the same table at the same time."""

from __future__ import annotations

import logging
import warnings
from typing import Final

_LOG: Final = logging.getLogger("penstock.spark")


class ConcurrentJobsWarning(UserWarning):
    """Another job writes the same table on the same branch right now.

    Both may commit: what comes of that is decided by their modes, when each has its turn.
    """


def warn_of_others(others: str, stacklevel: int) -> None:
    """Warn of jobs that write the same table, if there are any."""
    if others:
        _LOG.info(others)
        warnings.warn(others, ConcurrentJobsWarning, stacklevel=stacklevel + 1)
