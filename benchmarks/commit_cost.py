"""What a commit of one key costs, in small lakes and in large ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from math import log2
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import NamedTuple

from benchmarks.counting import KINDS, KindCountingStore
from benchmarks.lakes import MAIN, META, RandomPuts, Workshop, counting, database, in_memory
from benchmarks.report import Cell, Findings, Goal, Table, at_most, table
from benchmarks.writers import write_each
from penstock.kernel.chain import FOLD_OPERATIONS
from penstock.kernel.kernel import Kernel
from penstock.model.objects import Node

QUESTION = "Does a commit of one key cost more in a large lake than in a small one, and what does it store?"

CYCLE = FOLD_OPERATIONS + 1
"""One-key commits from one folding of the recent changes into the tree to the next."""
RATIO_MAX = 2
STORED_MAX_BYTES = 4096


class Lake(NamedTuple):
    """A lake that is being measured, and the seconds that each round's commits took."""

    tables: int
    kernel: Kernel
    puts: RandomPuts
    rounds: list[list[float]]

    @property
    def median_s(self) -> float:
        return median(second for one in self.rounds for second in one)

    @property
    def mean_s(self) -> float:
        """Of a whole cycle, the folding included; the median over the rounds."""
        return median(fmean(one) for one in self.rounds)

    @property
    def fold_s(self) -> float:
        """The longest commit of a cycle; the median over the rounds."""
        return median(max(one) for one in self.rounds)


def ask(workshop: Workshop) -> Findings:
    sizes = [1000, 4000] if workshop.quick else [1000, 10_000, 100_000, 1_000_000]
    times, goals = _times(workshop, sizes)
    work, work_goals = _work(workshop, sizes)
    stored, stored_goals = _stored(workshop, workshop.size(100_000, 4000))
    many = _many(workshop, sizes[-1])
    return Findings(tables=(times, work, many, stored), goals=(*goals, *work_goals, *stored_goals))


def _times(workshop: Workshop, sizes: Sequence[int]) -> tuple[Table, list[Goal]]:
    rows: list[list[Cell]] = []
    goals = []
    for store in ("sqlite, durable", "memory"):
        with ExitStack() as opened:
            lakes = [Lake(size, _open(workshop, opened, store, size), RandomPuts(size), []) for size in sizes]
            # In turns, a cycle each: what disturbs the machine disturbs all sizes alike.
            for number in range(1 + workshop.size(9, 1)):
                for lake in lakes:
                    times = _cycle(lake.kernel, lake.puts)
                    if number > 0:  # the first one warms up
                        lake.rounds.append(times)
            first, last = lakes[0], lakes[-1]
            for lake in lakes:
                figures = (lake.median_s * 1000, lake.mean_s * 1000, lake.fold_s * 1000)
                rows.append([store, lake.tables, *figures, *_ratios(lake, first)])
            sides = f"{last.tables:,} : {first.tables:,} keys, {store}"
            by_median, by_mean = _ratios(last, first)
            goals.append(at_most(f"median time of a one-key commit, {sides}", by_median, RATIO_MAX, "times"))
            goals.append(at_most(f"mean time, folding included, {sides}", by_mean, RATIO_MAX, "times"))
    columns = ["store", "keys", "median ms", "mean ms", "longest ms", "median ratio", "mean ratio"]
    note = (
        f"Random existing keys, one writer. Every {CYCLE} commits one folds the changes of all of them into "
        "the tree: the longest. The mean is over such a cycle, so it includes its share of the folding. "
        "Waiting for the disk is a part of durable commits that no size changes; memory does not wait."
    )
    return table("Time of a one-key commit", columns, rows, note), goals


def _ratios(one: Lake, other: Lake) -> tuple[float, float]:
    """How many times longer than the other's a lake's commits took, by median and by mean."""
    return one.median_s / other.median_s, one.mean_s / other.mean_s


def _open(workshop: Workshop, opened: ExitStack, store: str, tables: int) -> Kernel:
    if store == "memory":
        return opened.enter_context(closing(in_memory(workshop.keys(tables))))
    return opened.enter_context(workshop.kernel(workshop.keys(tables)))


def _cycle(kernel: Kernel, puts: RandomPuts) -> list[float]:
    """The times of as many commits as lie between two foldings."""
    times = []
    for _ in range(CYCLE):
        operations = [puts()]
        start = perf_counter()
        kernel.commit(MAIN, operations, META)
        times.append(perf_counter() - start)
    return times


def _work(workshop: Workshop, sizes: Sequence[int]) -> tuple[Table, list[Goal]]:
    rows: list[list[Cell]] = []
    reads, writes = 0.0, 0.0
    for tables in sizes:
        with workshop.copy(workshop.keys(tables)) as lake:
            levels = _levels(lake)
            puts = RandomPuts(tables)
            cold = [_cold(lake, puts) for _ in range(workshop.size(50, 3))]
            with counting(lake) as (kernel, store):
                most = _most_written(kernel, store, puts)
                per_commit = store.nodes_written / CYCLE
        reads = max(reads, max(nodes for nodes, _ in cold) / log2(tables))
        writes = max(writes, per_commit / log2(tables))
        cold_reads = [fmean(nodes for nodes, _ in cold), max(nodes for nodes, _ in cold)]
        rows.append([tables, log2(tables), levels, *cold_reads, fmean(r for _, r in cold), per_commit, most])
    columns = ["keys", "log2 n", "levels", "nodes read cold", "at most", "requests"]
    columns += ["nodes written a commit", "by the folding one"]
    note = (
        "Cold: by a kernel with nothing in memory, so the paths to the table and to its namespace, with the "
        f"request for the branch and the swap. Written: over the {CYCLE} commits of a cycle, and by the one "
        "of them that folds."
    )
    goals = [
        at_most("nodes read by a cold one-key commit", reads, 1, "× log2 n"),
        at_most("nodes written a one-key commit", writes, 1, "× log2 n"),
    ]
    return table("Nodes read and written by a one-key commit", columns, rows, note), goals


def _levels(lake: Path) -> int:
    """How many nodes lie on the way from the root to a table."""
    with counting(lake) as (kernel, _):
        head = kernel.history.read_commit(kernel.references.get_reference(MAIN).head)
        top = kernel.objects.get(head.root)
    return top.level + 1 if isinstance(top, Node) else 1


def _cold(lake: Path, puts: RandomPuts) -> tuple[int, int]:
    """Nodes read and requests made by a kernel's first commit."""
    with counting(lake) as (kernel, store):
        kernel.commit(MAIN, [puts()], META)
        return store.nodes_read, store.counts.requests


def _most_written(kernel: Kernel, store: KindCountingStore, puts: RandomPuts) -> int:
    """The most nodes that one commit of a cycle writes."""
    most = 0
    for _ in range(CYCLE):
        before = store.nodes_written
        kernel.commit(MAIN, [puts()], META)
        most = max(most, store.nodes_written - before)
    return most


def _many(workshop: Workshop, tables: int) -> Table:
    """No goal: how requests grow with the keys of a commit, for stores that are a network away."""
    rows: list[list[Cell]] = []
    puts = RandomPuts(tables)
    with workshop.copy(workshop.keys(tables)) as lake:
        for keys in (1, 10, 100, workshop.size(1000, 200)):
            chosen = {operation.key: operation for operation in (puts() for _ in range(keys))}
            with counting(lake) as (kernel, store):
                kernel.commit(MAIN, list(chosen.values()), META)
                counts = store.counts
            rows.append([len(chosen), counts.requests, counts.objects_read, store.nodes_written])
    columns = ["keys in the commit", "requests", "objects read", "nodes written"]
    title = f"A cold commit of many random keys, {tables:,} keys"
    return table(title, columns, rows, "By a kernel with nothing in memory. No goal.")


def _stored(workshop: Workshop, tables: int) -> tuple[Table, list[Goal]]:
    rows, goals = [], []
    for threads in (1, 64):
        row, total = _stored_by(workshop, tables, threads)
        rows.append(row)
        name = f"stored by a one-key commit, {tables:,} keys, {threads} thread{'s' if threads > 1 else ''}"
        goals.append(at_most(name, total, STORED_MAX_BYTES, "bytes"))
    columns = ["threads", "commits a swap", "bytes a commit", "commit", "segments", "nodes", "log", "receipt"]
    note = (
        "Random keys. The last column is what the database file grew by, with SQLite's own index and pages."
    )
    title = f"Bytes stored by a one-key commit, {tables:,} keys"
    return table(title, [*columns, "file bytes"], rows, note), goals


def _stored_by(workshop: Workshop, tables: int, threads: int) -> tuple[list[Cell], float]:
    """What threads store by one-key commits: the row of the table, and the bytes a commit."""
    puts, each = RandomPuts(tables), workshop.size(CYCLE * 20, CYCLE * 2) // threads
    commits = each * threads
    with workshop.copy(workshop.keys(tables)) as lake:
        before = _file_bytes(lake)
        with counting(lake) as (kernel, store):
            write_each(each, threads, lambda _thread, _number: kernel.commit(MAIN, [puts()], META))
        grown = _file_bytes(lake) - before
    sizes = {kind: store.written_bytes[kind] / commits for kind in KINDS}
    total, nodes = sum(sizes.values()), sizes["leaf"] + sizes["node"]
    parts = [sizes["commit"], sizes["segment"], nodes, sizes["log"], sizes["receipt"]]
    return [threads, commits / store.counts.swaps, total, *parts, grown / commits], total


def _file_bytes(lake: Path) -> int:
    """Closed databases only: the last connection moves the log into the file."""
    return database(lake).stat().st_size
