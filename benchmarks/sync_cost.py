"""What it costs to see, before a process's first commit to a table, that it is not ahead of the lake."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final, NamedTuple
from unittest.mock import patch

from benchmarks.delta_cost import counted, grow
from benchmarks.delta_tables import TABLE, add, create
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from penstock.formats.delta.publishing.log_check import LogCheck

QUESTION = "What does it add to a process's first commit to see that a table is not ahead of the lake?"

COMMITS: Final = ("first", "next")
TIMES_MOST: Final = 1.01


class Cost(NamedTuple):
    """What one commit of a process cost, its publication included."""

    files: int
    """How many requests went to the table's storage."""
    calls: int
    """How many calls went to the lake's store."""
    cpu_ms: float


def ask(workshop: Workshop) -> Findings:
    versions, rounds = workshop.size(1000, 10), workshop.size(25, 2)
    with workshop.place() as place:
        with counted(place) as (lake, _, _):
            create(lake)
            grow(lake, None, 0, versions)
            lake.delta.publish(TABLE)
        found: dict[bool, list[list[Cost]]] = {True: [], False: []}
        _commits(place, 0, looks=True)  # modules are imported by now
        for number in range(1, rounds + 1):
            for looks in (True, False) if number % 2 else (False, True):
                found[looks].append(_commits(place, number, looks=looks))
    rows: list[list[Cell]] = []
    for at, which in enumerate(COMMITS):
        for looks in (True, False):
            costs = [one[at] for one in found[looks]]
            what = f"{which} commit" + ("" if looks else ", without the look")
            rows.append([what, *(median(getattr(one, field) for one in costs) for field in Cost._fields)])
    ratio = median(
        one[0].cpu_ms / other[0].cpu_ms for one, other in zip(found[True], found[False], strict=True)
    )
    (first, first_without, later, later_without) = rows
    goals = (
        at_most("storage requests that the look adds to a first commit", _more(first, first_without), 1),
        at_most("storage requests that the look adds to the next commit", _more(later, later_without), 0),
        at_most("store calls that the look adds to a first commit", _more(first, first_without, 2), 1),
        at_most("store calls that the look adds to the next commit", _more(later, later_without, 2), 0),
        at_most("CPU time of a first commit : of one without the look", ratio, TIMES_MOST, "times"),
    )
    title = f"Commits of a process that was just started, to a Delta table of {versions:,} versions"
    columns = ["commit", "storage requests", "store calls", "CPU ms"]
    note = (
        "On SQLite, durable, with a log on a local disk, each commit published before the next; medians. "
        "Without the look is with the comparison of the log left out: what it looked up, the publisher "
        "looks up then."
    )
    return Findings(tables=(table(title, columns, rows, note),), goals=goals)


def _commits(place: Path, number: int, *, looks: bool) -> list[Cost]:
    """What two commits of a lake cost that has nothing in memory."""
    costs: list[Cost] = []
    with ExitStack() as stack:
        if not looks:
            stack.enter_context(patch.object(LogCheck, "require_in_sync", lambda *_, **__: None))
        lake, store, storage = stack.enter_context(counted(place))
        for commit, _ in enumerate(COMMITS):
            store.reset()
            storage.clear()
            started_s = process_time()
            lake.table(TABLE).append_actions(add(1_000_000 + 10 * number + 2 * looks + commit))
            lake.table(TABLE).backfill_to_version()
            cpu_ms = (process_time() - started_s) * 1000
            costs.append(Cost(storage.reads + storage.writes, store.counts.requests, cpu_ms))
    return costs


def _more(with_look: list[Cell], without: list[Cell], column: int = 1) -> float:
    """By how much a figure of one row, the requests to storage if no column is given, is above another's."""
    return float(with_look[column] or 0) - float(without[column] or 0)
