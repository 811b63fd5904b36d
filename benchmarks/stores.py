"""How many commits a second each store takes from many writers, with the queue and without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, Table, at_least, table
from penstock.bench.benchmark import BenchmarkComparison, BenchmarkPlan, run_benchmark
from penstock.bench.benchmark_lake import own_lake
from penstock.bench.commit_strategies import CommitStrategy
from penstock.bench.load import LoadShape
from penstock.bench.measure import LoadMeasurement
from tests.servers import dynamodb, mongodb, postgresql, proxy, s3
from tests.servers.process import HOST, Missing

QUESTION = "How many commits a second does each store take from many writers, and what does the queue gain?"

TIMES_NAIVE_LEAST = 10
SLOW_RATE_LEAST = 250
REQUEST_MS = 60

COLUMNS = (
    "store", "writers", "way", "commits/s", "times naive", "p50 ms", "p99 ms", "commits a swap",
    "calls a commit", "lost swaps",
)  # fmt: skip

Started: TypeAlias = Callable[[Path], AbstractContextManager[str]]
"""Gives the URL of an empty store, and stops its server at the end."""


class Contender(NamedTuple):
    """A store to be measured. An embedded one has no server."""

    name: str
    started: Started
    embedded: bool = False


@contextmanager
def _embedded(url: str) -> Iterator[str]:
    yield url


@contextmanager
def _postgresql(_: Path) -> Iterator[str]:
    with postgresql.started() as server, postgresql.fresh_database(server.url) as url:
        yield url


@contextmanager
def _mongodb(_: Path) -> Iterator[str]:
    with mongodb.started() as server, mongodb.fresh_database(server.url) as url:
        yield url


@contextmanager
def _dynamodb(_: Path) -> Iterator[str]:
    with (
        dynamodb.started() as server,
        dynamodb.fresh_table(server.place) as place,
        _environment(place.environment),
    ):
        yield place.url


@contextmanager
def _seaweedfs(_: Path) -> Iterator[str]:
    with (
        s3.seaweedfs() as server,
        s3.fresh_place(server.bucket) as place,
        _environment(place.environment),
    ):
        yield place.url


@contextmanager
def _far_seaweedfs(_: Path) -> Iterator[str]:
    """The same, a long way off: every request takes its time to get there, and every answer to come back."""
    with (
        s3.seaweedfs() as server,
        proxy.slow(server.port, delay_s=REQUEST_MS / 2000) as port,
        s3.fresh_place(server.bucket) as near,
        _environment(near.environment),
    ):
        yield msgspec.structs.replace(near, endpoint=f"http://{HOST}:{port}").url


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for a while; it is how keys reach a store."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


POSTGRESQL = "PostgreSQL"
SLOW = f"SeaweedFS, {REQUEST_MS} ms a request"
CONTENDERS = (
    Contender("memory", lambda _: _embedded("memory:"), embedded=True),
    Contender("SQLite", lambda place: _embedded(str(place / "sqlite")), embedded=True),
    Contender("RocksDB", lambda place: _embedded(f"rocksdb://{place / 'rocksdb'}"), embedded=True),
    Contender("local directory", lambda place: _embedded(f"file://{place / 'bucket'}"), embedded=True),
    Contender(POSTGRESQL, _postgresql),
    Contender("MongoDB's substitute", _mongodb),
    Contender("DynamoDB Local", _dynamodb),
    Contender("SeaweedFS", _seaweedfs),
    Contender(SLOW, _far_seaweedfs),
)


def ask(workshop: Workshop) -> Findings:
    plan = BenchmarkPlan(seconds=3.0)
    if workshop.quick:
        plan = BenchmarkPlan(seconds=0.02, writers=(1, 4))
    found: dict[str, list[BenchmarkComparison]] = {}
    for one in CONTENDERS:
        if one.embedded or not workshop.quick:
            found |= _measured(one, workshop.directory, plan)
    return Findings(
        tables=tuple(_table(shape, found) for shape in LoadShape),
        goals=tuple(goal for name, pairs in found.items() for pair in pairs for goal in _goals(name, pair)),
    )


def _measured(one: Contender, directory: Path, plan: BenchmarkPlan) -> dict[str, list[BenchmarkComparison]]:
    """What came of a store; nothing if its server is not on this machine."""
    print(f"measuring {one.name}", file=sys.stderr, flush=True)
    try:
        with one.started(directory) as url, own_lake(url) as site:
            return {one.name: list(run_benchmark(site, plan))}
    except Missing as missing:
        print(f"{one.name} is left out: {missing}", file=sys.stderr, flush=True)
        return {}


def _table(shape: LoadShape, found: Mapping[str, list[BenchmarkComparison]]) -> Table:
    rows = [
        row
        for name, pairs in found.items()
        for pair in pairs
        if pair.shape is shape
        for row in _rows(name, pair)
    ]
    note = (
        "A commit changes one table. Calls are those of the port that wait for the store. Naive: each writer "
        "for itself, one commit a swap, retried after growing random waits."
    )
    return table(f"{shape}: {shape.description}", COLUMNS, rows, note)


def _rows(name: str, pair: BenchmarkComparison) -> Iterator[list[Cell]]:
    yield _row(name, pair, CommitStrategy.GROUP_COMMIT, pair.group, pair.times_naive)
    if pair.naive is not None:
        yield _row(name, pair, CommitStrategy.NAIVE, pair.naive, None)


def _row(
    name: str, pair: BenchmarkComparison, way: CommitStrategy, found: LoadMeasurement, times: float | None
) -> list[Cell]:
    return [
        name,
        pair.writers,
        way.value,
        found.commits_per_s,
        times,
        found.latency_ms(0.5),
        found.latency_ms(0.99),
        found.commits_per_swap,
        found.calls_per_commit,
        found.tally.lost_swaps,
    ]


def _goals(name: str, pair: BenchmarkComparison) -> Iterator[Goal]:
    if pair.shape is not LoadShape.ONE_BRANCH:
        return
    if name == POSTGRESQL and pair.writers == 16 and pair.times_naive is not None:
        what = "PostgreSQL, 16 writers on one branch, of the naive loop"
        yield at_least(what, pair.times_naive, TIMES_NAIVE_LEAST, "times")
    if name == SLOW and pair.writers == 64:
        yield at_least(f"{SLOW}, 64 writers on one branch", pair.group.commits_per_s, SLOW_RATE_LEAST, "/s")
