"""What listing a few branches costs among very many tags."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from benchmarks.lakes import Workshop, database
from benchmarks.report import Cell, Findings, at_most, table
from penstock.kernel.kernel import Kernel
from penstock.model.references import Kind
from penstock.stores.sqlite import SqliteStore
from penstock.testing import CountingStore

QUESTION = "Does listing ten branches get slower when there are very many tags?"

BRANCHES = 10
PAGE = 50
PREFIX_RATIO_MAX = 4
"""A listing that starts where its prefix does takes little more for each row than any other."""


class Listing(NamedTuple):
    """Something to list, among how many tags, and how often in a row for one time."""

    what: str
    tags: int
    ask: Callable[[Kernel], object]
    repeats: int = 50


class Counted(NamedTuple):
    """Rows that came out, and steps that it took to find them."""

    rows: int
    steps: int


class StepCountingStore(SqliteStore):
    """Counts the steps of SQLite's virtual machine: every row that a query looks at takes some."""

    steps = 0

    def _open_connection(self) -> sqlite3.Connection:
        connection = super()._open_connection()
        connection.set_progress_handler(self._step, 1)
        return connection

    def _step(self) -> int:
        self.steps += 1
        return 0


def ask(workshop: Workshop) -> Findings:
    tags = workshop.size(100_000, 500)
    lakes = {0: workshop.tags(0, BRANCHES), tags: workshop.tags(tags, BRANCHES)}
    listings = _listings(tags)
    times = _times(workshop, lakes, listings)
    counts = [_count(lakes[listing.tags], listing) for listing in listings]
    rows: list[list[Cell]] = [
        [listing.what, listing.tags, *counted, median(seconds) * 1000]
        for listing, counted, seconds in zip(listings, counts, times, strict=True)
    ]
    note = (
        "Steps are those of SQLite's virtual machine, counted: a query that looks at rows only to leave them "
        "out takes more of them."
    )
    (_, without), (_, among), page, prefix = counts[:4]
    by_prefix = (prefix.steps / prefix.rows) / (page.steps / page.rows)
    return Findings(
        tables=(table("Listing references", ["what", "tags", "rows", "steps", "ms"], rows, note),),
        goals=(
            at_most(f"steps to list {BRANCHES} branches, {tags:,} tags : none", among / without, 1, "times"),
            at_most("steps a tag, listed by prefix : by page", by_prefix, PREFIX_RATIO_MAX, "times"),
        ),
    )


def _listings(tags: int) -> list[Listing]:
    middle = f"v{tags // 2:06}"

    def branches(kernel: Kernel) -> object:
        return list(kernel.references.list_all_references(Kind.BRANCH))

    def page(kernel: Kernel) -> object:
        return kernel.references.list_references(Kind.TAG, after=middle, limit=PAGE)

    def prefix(kernel: Kernel) -> object:
        return kernel.references.list_references(Kind.TAG, prefix=middle[:-1], limit=PAGE)

    def every(kernel: Kernel) -> object:
        return list(kernel.references.list_all_references(Kind.TAG))

    return [
        Listing(f"list {BRANCHES} branches", 0, branches),
        Listing(f"list {BRANCHES} branches", tags, branches),
        Listing(f"a page of {PAGE} tags, from the middle", tags, page),
        Listing("ten tags by their prefix, in the middle", tags, prefix),
        Listing("all tags", tags, every, repeats=1),
    ]


def _times(workshop: Workshop, lakes: dict[int, Path], listings: Sequence[Listing]) -> list[list[float]]:
    """Each listing's seconds, asked in turns."""
    kernels = {tags: Kernel(SqliteStore(database(lake))) for tags, lake in lakes.items()}
    times: list[list[float]] = [[] for _ in listings]
    for _ in range(workshop.size(9, 1)):
        for listing, seconds in zip(listings, times, strict=True):
            kernel = kernels[listing.tags]
            start = perf_counter()
            for _ in range(listing.repeats):
                listing.ask(kernel)
            seconds.append((perf_counter() - start) / listing.repeats)
    for kernel in kernels.values():
        kernel.close()
    return times


def _count(lake: Path, listing: Listing) -> Counted:
    """Rows that come out of the store, and steps that SQLite takes to find them."""
    steps = StepCountingStore(database(lake))
    store = CountingStore(steps)
    with closing(Kernel(store)) as kernel:
        listing.ask(kernel)  # the first time also reads the schema
        steps.steps = 0
        store.reset()
        listing.ask(kernel)
        return Counted(store.counts.rows_read, steps.steps)
