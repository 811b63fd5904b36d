"""The clocks: that of the day, which is handed to whoever needs it, and one that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Microseconds since 1970."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_utc_datetime(time_us: int) -> datetime:
    """A stored time, as people and programs hold it. What is damaged or was written by others may lie beyond
    the years 1 to 9999: it becomes the first or the last moment of these."""
    return _EPOCH + timedelta(microseconds=min(max(time_us, TIME_MIN_US), TIME_MAX_US))


def to_microseconds(time: datetime) -> int:
    """A time as it is stored; one without a time zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


TIME_MIN_US: Final = to_microseconds(datetime.min.replace(tzinfo=UTC))
TIME_MAX_US: Final = to_microseconds(datetime.max.replace(tzinfo=UTC))


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1000


def elapsed_s() -> float:
    """A clock of this machine that nobody sets and that runs while the machine sleeps."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
