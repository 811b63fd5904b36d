"""How fast a sweep gets through a long history."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from time import perf_counter

from benchmarks.lakes import MAIN, Workshop, database, grow
from benchmarks.report import Cell, Findings, table
from penstock.kernel.kernel import Kernel
from penstock.kernel.sweep import SweepResult, sweep_objects
from penstock.model.clock import now_us
from penstock.model.references import Kind
from penstock.stores.sqlite import SqliteStore

QUESTION = "How many objects a second does a sweep mark, and how many does it look through and remove?"

LATER_US = 30 * 24 * 3600 * 1_000_000
"""Long enough for everything unreachable to be due, idempotency keys included."""


class Watch:
    """Notes when marking ended, from the progress that a sweep tells."""

    def __init__(self) -> None:
        self.started = perf_counter()
        self.marked_at = 0.0
        self.counts: dict[str, int] = {}

    def __call__(self, what: str, count: int) -> None:
        if what == "scanned" and not self.marked_at:
            self.marked_at = perf_counter()
        self.counts[what] = count


def ask(workshop: Workshop) -> Findings:
    length = workshop.size(100_000, 300)
    dropped = length // 10
    with workshop.copy(workshop.history(length)) as lake:
        _drop_a_branch(lake, dropped)
        rows = [row for dry_run in (True, False) for row in _sweep(lake, dry_run)]
    title = (
        f"Sweep of {length:,} commits on main and {dropped:,} on a branch that was deleted, SQLite, durable"
    )
    note = "No goal: these figures say how long to expect a sweep to take."
    return Findings(tables=(table(title, ["sweep", "step", "objects", "s", "objects/s"], rows, note),))


def _drop_a_branch(lake: Path, commits: int) -> None:
    """Commits that nothing leads to any more."""
    with closing(Kernel(SqliteStore(database(lake), synchronous="OFF"))) as kernel:
        kernel.references.create_reference("gone", Kind.BRANCH, kernel.references.get_reference(MAIN).head)
        head = kernel.history.read_commit(kernel.references.get_reference(MAIN).head)
        grow(kernel, "gone", head.depth + commits)
        kernel.references.delete_reference("gone", leave_log=False)


def _sweep(lake: Path, dry_run: bool) -> list[list[Cell]]:
    later = lambda: now_us() + LATER_US  # noqa: E731
    with closing(Kernel(SqliteStore(database(lake)), clock=later)) as kernel:
        watch = Watch()
        swept: SweepResult = sweep_objects(kernel, dry_run=dry_run, progress=watch)
        ended = perf_counter()
    mark_s, collect_s = watch.marked_at - watch.started, ended - watch.marked_at
    name = "dry run" if dry_run else "sweep"
    read, scanned = watch.counts["read"], watch.counts["scanned"]
    rows: list[list[Cell]] = [
        [name, "mark: read what is reachable", read, mark_s, read / mark_s],
        [name, "look through all", scanned, collect_s, scanned / collect_s],
    ]
    if not dry_run:
        rows[1][1] = "look through all and remove"
        rows.append([name, "removed, of these", swept.removed, None, None])
        rows.append([name, "idempotency keys, of these", swept.receipts, None, None])
    return rows
