"""What finding the common ancestor of two branches costs in a long history."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import NamedTuple

from benchmarks.lakes import MAIN, META, TABLES_PER_SCHEMA, Workshop, counting, depth_of, put
from benchmarks.report import Cell, Findings, Goal, Table, at_most, table
from penstock.kernel.kernel import Kernel
from penstock.model.encoding import ObjectId
from penstock.model.references import Kind

QUESTION = "What does it cost to find where two branches forked, in a long history?"

BRANCH_COMMITS = 5
READS_MAX_PER_LOG = 4
"""How many commits a search over skip pointers may read each time a history doubles: two sides go back, and
each looks at where a jump leads and at a parent."""


class Fork(NamedTuple):
    """Two heads, and where they forked."""

    left: ObjectId
    right: ObjectId
    base: ObjectId
    depth: int


class Search(NamedTuple):
    """What one search for a common ancestor cost a kernel with nothing in memory."""

    commits: int
    requests: int
    seconds: float


def ask(workshop: Workshop) -> Findings:
    length = workshop.size(100_000, 300)
    every = workshop.size(1000, 100)
    depths = [10, length // 100, length // 2, length - 10]
    straight, straight_goals = _straight(workshop, workshop.history(length), length, depths)
    crossed, crossed_goals = _crossed(
        workshop, workshop.history(length, every), length, [*depths, length - 2]
    )
    growth = _growth(workshop, workshop.history(length), length)
    return Findings(tables=(straight, growth, crossed), goals=(*straight_goals, *crossed_goals))


def _straight(
    workshop: Workshop, template: Path, length: int, depths: Sequence[int]
) -> tuple[Table, list[Goal]]:
    with workshop.copy(template) as lake:
        forks = _fork(lake, depths)
        found = [_search(lake, fork) for fork in forks]
    rows = [
        [fork.depth, length - fork.depth, *one[:2], one.seconds * 1000]
        for fork, one in zip(forks, found, strict=True)
    ]
    columns = ["forked at depth", "commits since", "commits read", "requests", "ms"]
    title = (
        f"Straight history of {length:,} commits (log2 n = {log2(length):.0f}), a branch of {BRANCH_COMMITS}"
    )
    most = max(one.commits for one in found) / log2(length)
    goal = at_most("commits read to find a merge base, no merges", most, READS_MAX_PER_LOG, "× log2 n")
    return table(title, columns, rows, "By a kernel with nothing in memory."), [goal]


def _crossed(
    workshop: Workshop, template: Path, length: int, depths: Sequence[int]
) -> tuple[Table, list[Goal]]:
    rows: list[list[Cell]] = []
    between, behind = 0.0, 0.0
    with workshop.copy(template) as lake:
        for fork in _fork(lake, depths):
            found = _search(lake, fork)
            with counting(lake) as (kernel, _):
                merges = (
                    kernel.history.read_commit(fork.left).merges
                    - kernel.history.read_commit(fork.base).merges
                )
                before = kernel.history.read_commit(fork.base).merges
            since = length - fork.depth
            rows.append([fork.depth, since, merges, before, *found[:2], found.seconds * 1000])
            skipped = READS_MAX_PER_LOG * log2(length)
            if merges:
                # Both branches' commits since the fork, and of each merge the commit that it brought.
                between = max(between, found.commits / (since + merges + BRANCH_COMMITS + skipped))
            else:
                behind = max(behind, found.commits / log2(length))
    columns = [
        "forked at depth",
        "commits since",
        "merges since",
        "merges behind",
        "commits read",
        "requests",
    ]
    note = "Merges since the fork make the search read what lies between; those behind the fork cost nothing."
    goals = [
        at_most(
            "commits read, merges since the fork",
            between,
            1,
            f"× (what lies between + {READS_MAX_PER_LOG} log2 n)",
        ),
        at_most("commits read, merges behind the fork only", behind, READS_MAX_PER_LOG, "× log2 n"),
    ]
    return table(f"History of {length:,} commits with merges", [*columns, "ms"], rows, note), goals


def _growth(workshop: Workshop, template: Path, length: int) -> Table:
    """The same with shorter histories: the commits that lead to an earlier one of the same lake."""
    rows: list[list[Cell]] = []
    samples = workshop.size(40, 3)
    with workshop.copy(template) as lake:
        for shorter in (length // 100, length // 10, length):
            random = Random(shorter)
            forks = _fork(lake, [random.randrange(1, shorter) for _ in range(samples)], shorter)
            found = [_search(lake, fork) for fork in forks]
            counts = [one.commits for one in found]
            rows.append([shorter, log2(shorter), median(counts), max(counts), max(counts) / log2(shorter)])
    columns = ["commits", "log2 n", "read, median", "read, most", "most per log2 n"]
    return table(f"Straight histories, {samples} forks at random depths each", columns, rows)


def _fork(lake: Path, depths: Sequence[int], length: int | None = None) -> list[Fork]:
    """Branches that forked at given depths from main, or from an earlier commit of it."""
    forks = []
    with counting(lake) as (kernel, _):
        head, now = kernel.references.get_reference(MAIN).head, depth_of(kernel, MAIN)
        left = head if length is None else kernel.history.find_predecessor(head, now - length)
        for depth in depths:
            base = kernel.history.find_predecessor(head, now - depth)
            forks.append(Fork(left, _branch(kernel, base), base, depth))
    return forks


def _branch(kernel: Kernel, base: ObjectId) -> ObjectId:
    """A few commits on top of another; their newest."""
    kernel.references.create_reference("branch", Kind.BRANCH, base)
    head = base
    for number in range(BRANCH_COMMITS):
        head = kernel.commit("branch", [put(number % TABLES_PER_SCHEMA, -1 - number)], META).head
    kernel.references.delete_reference("branch", leave_log=False)
    return head


def _search(lake: Path, fork: Fork) -> Search:
    """The median time of three searches, and what the last one read; they all read the same."""
    times, commits, requests = [], 0, 0
    for _ in range(3):
        with counting(lake) as (kernel, store):
            start = perf_counter()
            bases = kernel.history.merge_bases(fork.left, fork.right)
            times.append(perf_counter() - start)
            if bases != [fork.base]:
                raise AssertionError(f"forked at {fork.base.hex()}, found {[one.hex() for one in bases]}")
            commits, requests = store.read["commit"], store.counts.requests
    return Search(commits, requests, median(times))
