"""What must be known of a machine to read figures that were measured on it, and no more."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeAlias

SYNCS = 200
STAT = Path("/proc/stat")

Facts: TypeAlias = dict[str, str | int | float]


class Observation:
    """Watches a machine from its making to ``facts``: its disk, and what else it was doing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sync_s = _sync_s(directory)
        self._started, self._others_s = perf_counter(), _others_s()

    @property
    def took_s(self) -> float:
        return round(perf_counter() - self._started, 1)

    def facts(self) -> Facts:
        """Cores, versions, the date; how long the disk takes to make 4 KiB durable, before and after; and
        the share of all cores that other programs used in the meantime."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        busy = (_others_s() - self._others_s) / (os.cpu_count() or cores) / (perf_counter() - self._started)
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": cores,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "sqlite": sqlite3.sqlite_version,
            "system": f"{platform.system()} {platform.machine()}",
            "sync_ms": round((self._sync_s + _sync_s(self._directory)) / 2 * 1000, 3),
            "others_busy_percent": round(max(busy, 0) * 100),
        }


def _sync_s(directory: Path) -> float:
    """The median time of appending 4 KiB to a file and waiting until they are on the disk."""
    path, times = directory / "sync", []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            start = perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append(perf_counter() - start)
    path.unlink()
    return median(times)


def _others_s() -> float:
    """The seconds that all cores have worked for others than this process; 0 where nobody counts them."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = map(int, STAT.read_text().split("\n")[0].split()[1:9])
    own = os.times()
    all_s = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return all_s - own.user - own.system - own.children_user - own.children_system
