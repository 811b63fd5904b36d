"""Pipelines that run at once on one main: threads of several processes, with a lake in each of them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock import Lake, Settings
from penstock.lake.transactions.transaction import Transaction

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

PIPELINES: Final = 16
ROWS: Final = 100
SHARED: Final = {"shared.delta": None, "shared.lance": "lance", "shared.files": "parquet"}
RETRIES: Final = 1000
"""Nobody gives up: how often pipelines begin anew is what is asked for."""
START_TIMEOUT_S: Final = 120.0
SETTINGS: Final = Settings(write_timeout_s=60.0)
"""As ever, but for a machine that has so much to do that ten seconds may not be enough."""


class Landed(NamedTuple):
    """One run of a pipeline that has landed."""

    began_s: float
    ended_s: float
    tries: int


class Ran(NamedTuple):
    """What all pipelines came to in the time that they had."""

    rate: float
    """Runs that landed within the time, per second."""
    tries: float
    """Per run."""
    latencies_s: list[float]
    """Shortest first, tries that came to nothing included."""

    def latency_ms(self, part: float) -> float:
        """How long at most this part of the runs took."""
        return self.latencies_s[min(int(part * len(self.latencies_s)), len(self.latencies_s) - 1)] * 1000


class Load(NamedTuple):
    """What one process does: some of the pipelines, for a time."""

    place: str
    way: str
    pipelines: range
    seconds: float


# -- ways of doing the same --------------------------------------------------------------------------------

Run = Callable[[Lake, int], int]
"""One run of one pipeline; returns how often it was tried."""


def own(pipeline: int) -> str:
    return f"own.p{pipeline:02}"


def rows(pipeline: int) -> pa.Table:
    return pa.table({"who": pa.array([pipeline] * ROWS), "id": pa.array(range(ROWS))})


def _write(lake: Lake, branch: str | None, pipeline: int, shared: tuple[str, ...]) -> None:
    for name in (own(pipeline), *shared):
        lake.table(name, branch).write(rows(pipeline))


def _one_by_one(shared: tuple[str, ...], lake: Lake, pipeline: int) -> int:
    _write(lake, None, pipeline, shared)
    return 1


def _together(
    shared: tuple[str, ...],
    isolation: str,
    reads: Callable[[Transaction, int], object],
    lake: Lake,
    pipeline: int,
) -> int:
    def run(tx: Transaction) -> None:
        reads(tx, pipeline)
        _write(lake, tx.branch, pipeline, shared)

    return lake.run(run, isolation=isolation, retries=RETRIES).tries


def _nothing(tx: Transaction, pipeline: int) -> None:
    """A pipeline that only appends."""


def _own(tx: Transaction, pipeline: int) -> object:
    return tx.table(own(pipeline)).to_arrow(columns=["id"])


def _partition(tx: Transaction, pipeline: int) -> object:
    return tx.table("shared.delta").to_arrow(columns=["id"], where=f"who = {pipeline}")


def _all(tx: Transaction, pipeline: int) -> object:  # noqa: ARG001 - as the others
    return tx.table("shared.delta").version  # of its rows there are more and more


DELTA: Final = ("shared.delta",)
ALL: Final = tuple(SHARED)
ONE_BY_ONE: Final = "one by one"
TOGETHER: Final = "a transaction"
OWN: Final = "serializable, reads its own table"
PARTITION: Final = "serializable, reads its own partition of the shared table"
EVERYTHING: Final = "serializable, reads the shared table"
ALL_ONE_BY_ONE: Final = "one by one, three formats"
ALL_TOGETHER: Final = "a transaction, three formats"

WAYS: Final[Mapping[str, Run]] = {
    ONE_BY_ONE: partial(_one_by_one, DELTA),
    TOGETHER: partial(_together, DELTA, "snapshot", _nothing),
    OWN: partial(_together, DELTA, "serializable", _own),
    PARTITION: partial(_together, DELTA, "serializable", _partition),
    EVERYTHING: partial(_together, DELTA, "serializable", _all),
    ALL_ONE_BY_ONE: partial(_one_by_one, ALL),
    ALL_TOGETHER: partial(_together, ALL, "snapshot", _nothing),
}
"""Each appends to a table of the pipeline's own, and to one that all share or to one of each format."""


# -- processes ---------------------------------------------------------------------------------------------


class Fleet:
    """Processes that run all pipelines together."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int) -> None:
        self._pool, self.processes = pool, processes

    def measure(self, place: Path, way: str, seconds: float, pipelines: int = PIPELINES) -> Ran:
        """Let pipelines run on a new lake for a time. What they say has landed must be there, and no more."""
        _prepare(place, pipelines)
        loads = [
            Load(str(place), way, range(process, pipelines, self.processes), seconds)
            for process in range(self.processes)
        ]
        found = [one for some in self._pool.map(_work, loads) for one in some]
        first = [one for one in found if one.began_s == 0]
        measured = [one for one in found if one.began_s]
        _check(place, len(found), ALL if way in (ALL_ONE_BY_ONE, ALL_TOGETHER) else DELTA)
        assert len(first) == pipelines
        start = min(one.began_s for one in measured)
        return Ran(
            sum(one.ended_s <= start + seconds for one in measured) / seconds,
            sum(one.tries for one in measured) / len(measured),
            sorted(one.ended_s - one.began_s for one in measured),
        )


@contextmanager
def fleet(processes: int) -> Iterator[Fleet]:
    """Processes that are there already when something is measured; they end with the block."""
    fresh = multiprocessing.get_context("spawn")  # Lance does not stand a fork
    start = fresh.Barrier(processes)
    with ProcessPoolExecutor(processes, fresh, initializer=_meet, initargs=(start,)) as pool:
        yield Fleet(pool, processes)


_start: Barrier
"""Where processes wait for each other. There is no other way to hand it to those of a pool."""


def _meet(start: Barrier) -> None:
    global _start  # noqa: PLW0603
    _start = start


def _work(load: Load) -> list[Landed]:
    """In a process of the fleet: run some pipelines, each in a thread. The first run of each is for warming
    up, and tells no time."""
    run = WAYS[load.way]
    landed: list[Landed] = []
    problems: list[BaseException] = []
    with penstock.open(load.place, settings=SETTINGS) as lake:
        landed += [Landed(0, 0, run(lake, pipeline)) for pipeline in load.pipelines]
        _start.wait(START_TIMEOUT_S)
        deadline = perf_counter() + load.seconds

        def work(pipeline: int) -> None:
            try:
                while (began := perf_counter()) < deadline:
                    tries = run(lake, pipeline)
                    landed.append(Landed(began, perf_counter(), tries))
            except BaseException as problem:  # noqa: BLE001 - it is raised again where the threads are joined
                problems.append(problem)

        threads = [Thread(target=work, args=(pipeline,)) for pipeline in load.pipelines]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    if problems:
        raise problems[0]
    return landed


def _prepare(place: Path, pipelines: int) -> None:
    """A new lake with all tables, each with the rows of one write."""
    with penstock.init(place) as lake, lake.transaction() as tx:
        for pipeline in range(pipelines):
            tx.table(own(pipeline)).write(rows(pipeline))
        for name, format_ in SHARED.items():
            more: dict[str, Any] = {} if format_ else {"partition_by": "who"}
            tx.table(name).write(rows(0), format=format_, **more)


def _check(place: Path, runs: int, shared: tuple[str, ...]) -> None:
    """Every run is in every table that is shared, once."""
    with penstock.open(place, create=True) as lake:
        for name in shared:
            there = lake.table(name).to_arrow(columns=["id"]).num_rows
            if there != (runs + 1) * ROWS:
                raise AssertionError(f"{name} has {there} rows, and {runs + 1} times {ROWS} were written")
