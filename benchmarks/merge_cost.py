"""What a merge costs: what changed, or what exists?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import log2
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.lakes import MAIN, META, Workshop, counting, database, put
from benchmarks.report import Cell, Findings, Goal, at_most, table
from penstock.kernel.kernel import Kernel
from penstock.model.encoding import ObjectId
from penstock.model.references import Kind
from penstock.stores.sqlite import SqliteStore

QUESTION = "Does merging the same number of changed keys cost more in a large lake than in a small one?"

SOURCE: Final = "dev"
RATIO_MAX: Final = {"random": 8, "neighbouring": 2}


class Case(NamedTuple):
    """A lake, which of its keys change, and the seconds that each round's merges took."""

    tables: int
    shape: str
    lake: Path
    kernel: Kernel
    warm_s: list[float]
    cold_s: list[float]


def ask(workshop: Workshop) -> Findings:
    sizes = workshop.size(10_000, 1000), workshop.size(1_000_000, 4000)
    changed = workshop.size(1000, 100)
    rows: list[list[Cell]] = []
    goals = []
    for shape in RATIO_MAX:
        with ExitStack() as opened:
            cases = [_open(workshop, opened, tables, shape) for tables in sizes]
            for number in range(workshop.size(9, 1)):
                for case in cases:
                    case.warm_s.append(_merge_warm(case, changed, number))
                    case.cold_s.append(_merge_cold(case, changed, number))
            nodes = 0.0
            for case in cases:
                read, requests, written = _count(case, changed)
                nodes = max(nodes, written / (changed * log2(case.tables)))
                times = [median(case.warm_s) * 1000, median(case.cold_s) * 1000]
                rows.append([shape, case.tables, *times, written, read, requests])
        goals += _goals(shape, sizes, changed, cases, nodes)
    columns = ["keys", "lake", "warm ms", "cold ms", "nodes written", "nodes read cold", "requests cold"]
    note = (
        "One commit on the source changes the keys, one commit on the target another key, then the merge is "
        "timed: by the kernel that made these commits (warm), and by one with nothing in memory (cold)."
    )
    title = f"Merging {changed:,} changed keys, SQLite, durable"
    return Findings(tables=(table(title, columns, rows, note),), goals=tuple(goals))


def _open(workshop: Workshop, opened: ExitStack, tables: int, shape: str) -> Case:
    lake = opened.enter_context(workshop.copy(workshop.keys(tables)))
    kernel = Kernel(SqliteStore(database(lake)))
    opened.callback(kernel.close)
    return Case(tables, shape, lake, kernel, [], [])


def _fork(case: Case, changed: int, seed: int) -> ObjectId:
    """A branch with changed keys, and a target that moved on; the branch's head."""
    kernel, random = case.kernel, Random(seed)
    references = kernel.references
    source = references.create_reference(SOURCE, Kind.BRANCH, references.get_reference(MAIN).head)
    if case.shape == "random":
        *indexes, other = random.sample(range(case.tables), changed + 1)
    else:
        first = random.randrange(case.tables - changed)
        *indexes, other = range(first, first + changed + 1)
    head = kernel.commit(source.name, [put(index, seed + 1) for index in indexes], META).head
    kernel.commit(MAIN, [put(other, -seed - 1)], META)
    references.delete_reference(source.name, leave_log=False)
    return head


def _merge_warm(case: Case, changed: int, seed: int) -> float:
    return _timed(case.kernel, _fork(case, changed, 3 * seed))


def _merge_cold(case: Case, changed: int, seed: int) -> float:
    head = _fork(case, changed, 3 * seed + 1)
    kernel = Kernel(SqliteStore(database(case.lake)))
    try:
        return _timed(kernel, head)
    finally:
        kernel.close()


def _timed(kernel: Kernel, source: ObjectId) -> float:
    start = perf_counter()
    kernel.merge(source, MAIN, META)
    return perf_counter() - start


def _count(case: Case, changed: int) -> tuple[int, int, int]:
    """Nodes read, requests and nodes written of a merge by a kernel with nothing in memory."""
    head = _fork(case, changed, 1_000_000)
    with counting(case.lake) as (kernel, store):
        kernel.merge(head, MAIN, META)
        return store.nodes_read, store.counts.requests, store.nodes_written


def _goals(shape: str, sizes: Sequence[int], changed: int, cases: Sequence[Case], nodes: float) -> list[Goal]:
    small, large = cases
    sides = f"{changed:,} {shape} keys into {sizes[1]:,} : into {sizes[0]:,}"
    warm = [b / a for a, b in zip(small.warm_s, large.warm_s, strict=True)]
    cold = [b / a for a, b in zip(small.cold_s, large.cold_s, strict=True)]
    return [
        at_most(f"time to merge {sides}, warm", median(warm), RATIO_MAX[shape], "times"),
        at_most(f"time to merge {sides}, cold", median(cold), RATIO_MAX[shape], "times"),
        at_most(f"nodes written to merge {shape} keys", nodes, 1, "× changed × log2 n"),
    ]
