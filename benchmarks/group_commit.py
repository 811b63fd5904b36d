"""How many commits a second one branch takes from many writers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from statistics import median
from typing import NamedTuple, TypeAlias

from benchmarks.lakes import MAIN, META, RandomPuts, Workshop, put
from benchmarks.report import Findings, Goal, at_least, table
from benchmarks.writers import Written, write_for
from penstock import Put, Settings
from penstock.errors import ReferenceChanged
from penstock.kernel.kernel import Kernel

QUESTION = "How many one-key commits a second does one branch take from many writers, and who sets the limit?"

RATE_LEAST = 5000
PART_OF_UNSAFE_LEAST = 0.6

Commit: TypeAlias = Callable[[Kernel, Put], object]
Next: TypeAlias = Callable[[int], Put]
"""What a thread puts next."""


class Way(NamedTuple):
    """A way to commit that is compared with others."""

    name: str
    synchronous: str
    settings: Settings
    commit: Commit


class Run(NamedTuple):
    """What one round of one way came to."""

    written: Written
    commits_per_swap: float


def _plainly(kernel: Kernel, operation: Put) -> None:
    kernel.commit(MAIN, [operation], META)


def _naively(kernel: Kernel, operation: Put) -> None:
    """Read the head, build on it, swap; if somebody was faster wait a little and begin anew."""
    wait_ms = kernel.settings.backoff_min_ms
    while True:
        head = kernel.references.get_reference(MAIN).head
        try:
            kernel.commit(MAIN, [operation], META, if_head=head)
            return
        except ReferenceChanged:
            time.sleep(random.uniform(0, wait_ms) / 1000)
            wait_ms = min(wait_ms * 2, kernel.settings.backoff_max_ms)


DURABLE = Way("group commit", "FULL", Settings(), _plainly)
UNSAFE = Way("group commit, synchronous=OFF", "OFF", Settings(), _plainly)
SINGLY = Way("one commit a swap, queued", "FULL", Settings(batch_max=1), _plainly)
NAIVE = Way("one commit a swap, retried", "FULL", Settings(batch_max=1), _naively)
WAYS = (DURABLE, UNSAFE, SINGLY, NAIVE)


def ask(workshop: Workshop) -> Findings:
    tables = workshop.size(100_000, 2000)
    rows, goals = [], []
    for shape in ("own table", "random keys"):
        for threads in (1, 16, 64):
            runs = _rounds(workshop, tables, threads, _shape(shape, tables, threads))
            for way in WAYS:
                done = runs[way.name]
                rates = [run.written.rate for run in done]
                against = [
                    a.written.rate / max(b.written.rate, 1.0)
                    for a, b in zip(done, runs[UNSAFE.name], strict=True)
                ]
                figures = (
                    median(rates),
                    median(against),
                    median(run.written.latency_ms(0.5) for run in done),
                    median(run.written.latency_ms(0.99) for run in done),
                    median(run.commits_per_swap for run in done),
                )
                rows.append([shape, threads, way.name, *figures])
                if way is DURABLE and threads == 64:
                    goals += _goals(shape, median(rates), median(against))
    columns = ["keys", "threads", "way", "commits/s", "of OFF", "p50 ms", "p99 ms", "commits a swap"]
    note = (
        "Medians of rounds in which all four ways had their turn. 'Of OFF' compares with the same round "
        "without waiting for the disk, which is what the queue alone could do. Retried: each thread reads "
        "the head, commits on condition that it is still the head, and begins anew after a growing random "
        "wait if not."
    )
    return Findings(
        tables=(table(f"One-key commits to one branch, SQLite, {tables:,} keys", columns, rows, note),),
        goals=tuple(goals),
    )


def _shape(shape: str, tables: int, threads: int) -> Next:
    if shape == "random keys":
        puts = RandomPuts(tables)
        return lambda _thread: puts()
    versions = count(1)
    return lambda thread: put(thread * (tables // threads), next(versions))


def _rounds(workshop: Workshop, tables: int, threads: int, following: Next) -> dict[str, list[Run]]:
    """Rounds of all ways in turn, each on a lake of its own."""
    rounds, seconds = workshop.size(5, 1), 0.05 if workshop.quick else 1.5
    runs: dict[str, list[Run]] = {way.name: [] for way in WAYS}
    with ExitStack() as opened:
        lake = workshop.keys(tables)
        kernels = [
            opened.enter_context(workshop.kernel(lake, synchronous=way.synchronous, settings=way.settings))
            for way in WAYS
        ]
        for number in range(rounds):
            turns = list(zip(WAYS, kernels, strict=True))
            for way, kernel in turns[number % len(turns) :] + turns[: number % len(turns)]:
                runs[way.name].append(_run(way, kernel, threads, seconds, following))
    return runs


def _run(way: Way, kernel: Kernel, threads: int, seconds: float, following: Next) -> Run:
    before = kernel.references.get_reference(MAIN).position
    written = write_for(seconds, threads, lambda thread, _: way.commit(kernel, following(thread)))
    swaps = kernel.references.get_reference(MAIN).position - before
    return Run(written, len(written.latencies_s) / swaps)


def _goals(shape: str, rate: float, part: float) -> list[Goal]:
    return [
        at_least(f"durable commits of 64 threads, {shape}", rate, RATE_LEAST, "/s"),
        at_least(f"of the rate with synchronous=OFF, {shape}", part * 100, PART_OF_UNSAFE_LEAST * 100, "%"),
    ]
