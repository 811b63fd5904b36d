"""How much DuckDB may take for a query: memory, room on a disk for what does not fit, and threads.

A program's own queries take what DuckDB gives them. Those of others, which a server runs, have bounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

MEMORY_MAX_BYTES: Final = 1024**3
"""Of one query, or a quarter of the machine's memory if that is less. What it needs beyond goes to a disk."""
SPILLED_MAX_BYTES: Final = 16 * 1024**3
"""On that disk, for a query that decides about a commit; …"""
LOOKED_MAX_BYTES: Final = 4 * 1024**3
"""… and for what somebody only looks at."""
THREADS_MAX: Final = 4
MEMORY_SHARE: Final = 2
"""Of the memory of a process, for DuckDB."""

_PROCESS_BYTES: Final[ContextVar[int | None]] = ContextVar("penstock_sql_process_bytes", default=None)


def bound_duckdb(memory_max_bytes: int, spilled_max_bytes: int = SPILLED_MAX_BYTES) -> dict[str, Any]:
    """Settings of DuckDB's by which a query takes no more."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "memory_limit": f"{min(MEMORY_MAX_BYTES, memory_max_bytes, memory // 4)}B",
        "max_temp_directory_size": f"{spilled_max_bytes}B",
        "threads": min(THREADS_MAX, os.cpu_count() or 1),
    }


@contextmanager
def bound_queries(process_bytes: int) -> Iterator[None]:
    """Bound the queries that are begun here, in a process that may have so much memory."""
    before = _PROCESS_BYTES.set(process_bytes)
    try:
        yield
    finally:
        _PROCESS_BYTES.reset(before)


def find_bounds() -> dict[str, Any]:
    """The settings for a query that is begun here; none in a program of the user's own."""
    process_bytes = _PROCESS_BYTES.get()
    return {} if process_bytes is None else bound_duckdb(process_bytes // MEMORY_SHARE, LOOKED_MAX_BYTES)
