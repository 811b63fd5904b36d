"""Limits of the processes of a pool, and how much memory one of them has."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

import msgspec

PROCESSES_MIN: Final = 3
"""So that a caller has two, and there is one for the next, also on a machine with one core."""
RESERVED_BYTES: Final = 1024**3
"""What libraries map and do not use: stacks of threads, arenas of allocators."""
_PAGE_BYTES: Final = resource.getpagesize()


class WorkerPoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much the processes of a pool may take."""

    count_max: int = 0
    """Processes at the same time; 0 for one more than cores, and at least three."""
    memory_max_bytes: int = 2 * 1024**3
    """Of each of them."""
    timeout_s: float = 30.0
    """For one piece of work."""
    queue_max: int = 32
    """Pieces of work that wait for a process."""
    memory_option: str = "memory_max_bytes"
    timeout_option: str = "timeout_s"
    queue_option: str = "queue_max"
    """How whoever runs the program sets these: for messages."""

    @property
    def count(self) -> int:
        return self.count_max or max(PROCESSES_MIN, (os.cpu_count() or 1) + 1)


def measure_own_memory(pid: int) -> int:
    """The memory that is a process's own: not the libraries that it shares with others, nor files that it
    has mapped. 0 if it is gone, or where this cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:  # noqa: PTH123 - a hundred times a second
            _, resident, shared, *_ = statm.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def bound_this_process(memory_max_bytes: int) -> None:
    """Have allocations fail in this process far beyond the limit.

    It is watched from outside, by what it uses: libraries reserve gigabytes of addresses that they never
    touch, so that a limit of addresses (``RLIMIT_AS``) says little. This is for what is faster than whoever
    watches: it counts memory that can be written to only.
    """
    if sys.platform != "linux":
        return
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        data = int(statm.read().split()[5]) * _PAGE_BYTES
    wanted_bytes = data + 2 * memory_max_bytes + RESERVED_BYTES
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = wanted_bytes if most == resource.RLIM_INFINITY else min(wanted_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
