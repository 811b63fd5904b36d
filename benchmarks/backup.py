"""How fast a backup is, and whether a later one costs what changed."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.lakes import MAIN, Workshop, database, grow, load
from benchmarks.report import Cell, Findings, at_least, at_most, table
from penstock.kernel.backup import BackupMaker, BackupResult, verify_kernel
from penstock.kernel.backup_points import PointStore, read_points
from penstock.kernel.copy import CopyProgress, show_no_progress
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
        size_mb, checked = first.point.size_bytes / MB, watch.checking
        copied = Taken(first_s.wall_s - checked.wall_s, first_s.cpu_s - checked.cpu_s)
        mb_s = size_mb / copied.wall_s
        for what, taken in (("first: copied", copied), ("first: read back", checked)):
            rows.append([what, first.point.objects, size_mb, *taken.cells(size_mb)])
        with closing(SqliteStore(place / "nightly.backup")) as store:
            started = Taken.now()
            (point,) = read_points(store)
            assert not verify_kernel(Kernel(PointStore(store, point))).damages
            proved = started.since()
        rows.append(["first: --verify", first.point.objects, size_mb, *proved.cells(size_mb)])
        later_objects = 0
        for _ in range(2):
            with closing(Kernel(SqliteStore(database(lake), synchronous="OFF"))) as kernel:
                head = kernel.history.read_commit(kernel.references.get_reference(MAIN).head)
                grow(kernel, MAIN, head.depth + changed)
            later, later_s = _back_up(lake, place / "nightly.backup")
            later_objects = later.point.objects
            size_mb = later.point.size_bytes / MB
            rows.append([f"{changed:,} commits later", later.point.objects, size_mb, *later_s.cells(size_mb)])
        nothing, nothing_s = _back_up(lake, place / "nightly.backup")
        rows.append(
            ["nothing later", nothing.point.objects, nothing.point.size_bytes / MB, *nothing_s, None, None]
        )
    rows.append(["the disk: a file written and synchronised", None, None, None, None, disk_mb_s, None])
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
    columns = ["backup", "objects", "MB", "s", "CPU s", "MB/s", "MB per CPU s"]
    note = (
        "The first backup is read back, and all objects are compared with their ids; later ones check what "
        "they copy. --verify does what fsck does. CPU seconds are those of all threads and of SQLite."
    )
    return Findings(tables=(table(title, columns, rows, note),), goals=goals)


class Taken(NamedTuple):
    """How long something took, and how much computing."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Taken:
        return cls(perf_counter(), process_time())

    def since(self) -> Taken:
        now = Taken.now()
        return Taken(max(now.wall_s - self.wall_s, 1e-6), max(now.cpu_s - self.cpu_s, 1e-6))

    def cells(self, size_mb: float) -> list[Cell]:
        return [self.wall_s, self.cpu_s, size_mb / self.wall_s, size_mb / self.cpu_s]


class Watch:
    """Notes how long a backup reads back what it has copied, from its progress."""

    def __init__(self) -> None:
        self._began: Taken | None = None
        self.checking = Taken(1e-6, 1e-6)

    def __call__(self, what: str, count: int, total: int) -> None:  # noqa: ARG002
        if what == "checking objects":
            self._began = self._began or Taken.now()
            self.checking = self._began.since()


def _back_up(lake: Path, target: Path, watch: CopyProgress = show_no_progress) -> tuple[BackupResult, Taken]:
    with closing(Kernel(SqliteStore(database(lake)))) as kernel, closing(SqliteStore(target)) as store:
        started = Taken.now()
        made = BackupMaker(store, Settings(), progress=watch).make_backup(kernel, source_place=str(lake))
        return made, started.since()


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
