"""How fast a backup is, and whether a later one costs what changed."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from time import perf_counter

from benchmarks.lakes import MAIN, Workshop, database, grow, load
from benchmarks.report import Cell, Findings, at_least, at_most, table
from penstock.kernel.backup import BackedUp, BackupMaker
from penstock.kernel.copy import CopyProgress, silent
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.sqlite import SqliteStore

QUESTION = (
    "How fast is a backup of a large lake beside what the disk gives, and does a later one cost what changed?"
)

MB = 1_000_000
WANTED_MB_S = 50.0
DISK_SHARE = 0.5
"""If the disk gives less than twice what is wanted, this share of it will do."""


def ask(workshop: Workshop) -> Findings:
    keys, commits, changed = (
        workshop.size(1_000_000, 2000),
        workshop.size(100_000, 200),
        workshop.size(1000, 20),
    )
    rows: list[list[Cell]] = []
    with workshop.copy(workshop.history(commits)) as lake, workshop.place() as place:
        with closing(Kernel(SqliteStore(database(lake), synchronous="OFF"))) as kernel:
            load(kernel, keys)
        disk_mb_s = _disk_mb_s(place, workshop.size(500, 5))
        watch = Watch()
        first, first_s = _back_up(lake, place / "nightly.backup", watch)
        size_mb, copied_s = first.point.size_bytes / MB, first_s - watch.checking_s
        mb_s = size_mb / copied_s
        rows.append(["first: copied", first.point.objects, size_mb, copied_s, mb_s])
        rows.append(
            ["first: checked", first.point.objects, size_mb, watch.checking_s, size_mb / watch.checking_s]
        )
        later_objects = 0
        for _ in range(2):
            with closing(Kernel(SqliteStore(database(lake), synchronous="OFF"))) as kernel:
                head = kernel.history.commit(kernel.references.get(MAIN).head)
                grow(kernel, MAIN, head.depth + changed)
            later, later_s = _back_up(lake, place / "nightly.backup")
            later_objects = later.point.objects
            size_mb = later.point.size_bytes / MB
            rows.append(
                [f"{changed:,} commits later", later.point.objects, size_mb, later_s, size_mb / later_s]
            )
        nothing, nothing_s = _back_up(lake, place / "nightly.backup")
        rows.append(["nothing later", nothing.point.objects, nothing.point.size_bytes / MB, nothing_s, None])
    rows.append(["the disk: a file written and synchronised", None, None, None, disk_mb_s])
    goals = (
        at_least(
            "MB/s of the first backup, beside 50 or half of what the disk gives",
            mb_s,
            min(WANTED_MB_S, disk_mb_s * DISK_SHARE),
            " MB/s",
        ),
        at_most("objects of a backup per commit that landed since", later_objects / changed, 8.0),
    )
    title = f"Backup of {keys:,} keys and {commits:,} commits, SQLite to one file"
    columns = ["backup", "objects", "MB", "s", "MB/s"]
    note = "The first backup is read back and checked as a whole; later ones check what they copy."
    return Findings(tables=(table(title, columns, rows, note),), goals=goals)


class Watch:
    """Notes how long a backup checks what it has copied, from the progress that it tells."""

    def __init__(self) -> None:
        self._began_s = self._seen_s = 0.0

    def __call__(self, what: str, count: int, total: int) -> None:  # noqa: ARG002
        if what == "checking objects":
            self._seen_s = perf_counter()
            self._began_s = self._began_s or self._seen_s

    @property
    def checking_s(self) -> float:
        return max(self._seen_s - self._began_s, 1e-6)


def _back_up(lake: Path, target: Path, watch: CopyProgress = silent) -> tuple[BackedUp, float]:
    with closing(Kernel(SqliteStore(database(lake)))) as kernel, closing(SqliteStore(target)) as store:
        started = perf_counter()
        made = BackupMaker(store, Settings(), progress=watch).make(kernel, source_place=str(lake))
        return made, perf_counter() - started


def _disk_mb_s(place: Path, size_mb: int) -> float:
    """How fast the disk takes a file, written in pieces and made durable."""
    piece = os.urandom(MB)
    started = perf_counter()
    with (place / "plain").open("wb") as file:
        for _ in range(size_mb):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return size_mb / (perf_counter() - started)
