"""The clock, to be handed in: nothing else in Penstock asks for the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Microseconds since 1970."""


def utc(time_us: int) -> datetime:
    """A stored time, as people and programs hold it."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1000
