"""Writes to measure transactions with: the same ones, one by one on main or all in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from benchmarks.counting import KindCountingStore, counted_syncs
from penstock import IcebergTable, Lake, Settings
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.lance.plugin import LancePlugin
from penstock.spark import write
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from tests.plugins import plugin_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {"Delta": None, "Lance": "lance", "files": "parquet"}
"""What a new table is written as."""
NAMESPACE: Final = "bench"
WAITS: Final = Settings(publish_wait_s=60.0, promote_wait_s=60.0)
"""A commit of main answers when every reader finds what it wrote."""
LOOK_S: Final = 0.001

Write: TypeAlias = Callable[[str | None], object]
"""One write to one table, on main or on the branch that is named."""


# -- what is written ---------------------------------------------------------------------------------------


def key(kind: str, number: int) -> str:
    return f"{NAMESPACE}.{kind.lower()}{number:03}"


def arrow_writes(lake: Lake, kind: str, tables: int, rows: int) -> list[Write]:
    """Rows appended to tables of one format by Arrow."""
    data = pa.table({"id": pa.array(range(rows)), "amount": pa.array([n / 4 for n in range(rows)])})

    def one(name: str) -> Write:
        return lambda branch: lake.table(name, branch).write(data, format=FORMATS[kind])

    return [one(key(kind, number)) for number in range(tables)]


def spark_writes(lake: Lake, spark: SparkSession, kind: str, tables: int, rows: int) -> list[Write]:
    """The same by Spark, as jobs of two tasks."""
    data: DataFrame = spark.range(0, rows, 1, 2).selectExpr("id", "id / 4 AS amount")
    given: Any = {} if FORMATS[kind] is None else {"format": FORMATS[kind]}

    def one(name: str) -> Write:
        return lambda branch: write(data, name, branch=branch, lake=lake, **given)

    return [one(key(kind, number)) for number in range(tables)]


def kernel_writes(lake: Lake, tables: int) -> list[Write]:
    """New values of tables that others keep: what is left where no data is written."""
    versions = count(1)

    def one(name: str) -> Write:
        def put(branch: str | None) -> object:
            version = next(versions)
            location = f"s3://lake/{name}/metadata/{version:05}.metadata.json"
            content = IcebergTable(metadata_location=location, snapshot_id=version)
            return lake.branch(branch).put(name, content)

        return put

    return [one(key("kept", number)) for number in range(tables)]


# -- what it took ------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """What some writes came to."""

    commits: int
    """Of any branch, a transaction's own ones with them."""
    swaps: int
    """Of rows of references. The store waits for the disk at each."""
    requests: int
    """Of the lake's store."""
    store_bytes: int
    syncs: int
    """Files and folders of tables that this process waits for."""
    files: int
    """That are new, where tables are."""
    file_bytes: int


class Took(NamedTuple):
    """How long some writes took, and what they came to."""

    s: float
    begin_s: float
    """Of that, until the transaction was begun."""
    land_s: float
    """Of that, until it had landed, from its last write on."""
    publish_s: float
    """Of that, until every reader found what was written, from there on."""
    work: Work


class Ground:
    """A lake on a disk whose store counts."""

    def __init__(self, place: Path, lake: Lake, store: KindCountingStore) -> None:
        self.place, self.lake, self._store = place, lake, store

    def one_by_one(self, writes: Sequence[Write]) -> Took:
        """Every write is a commit of main."""

        def run() -> tuple[float, float]:
            for one in writes:
                one(None)
            return 0.0, 0.0

        return self._took(run)

    def together(self, writes: Sequence[Write]) -> Took:
        """All writes are in a transaction, which lands on main."""

        def run() -> tuple[float, float]:
            start = perf_counter()
            transaction = self.lake.transaction()
            begun = perf_counter()
            for one in writes:
                one(transaction.branch)
            written = perf_counter()
            transaction.land()
            return begun - start, perf_counter() - written

        return self._took(run)

    def _took(self, run: Callable[[], tuple[float, float]]) -> Took:
        before = self._files()
        self._store.reset()
        with counted_syncs() as syncs:
            start = perf_counter()
            begin_s, land_s = run()
            answered = perf_counter()
            self._wait()
            ended = perf_counter()
        counts, commits = self._store.counts, self._store.written["commit"]
        new = {path: size for path, size in self._files().items() if path not in before}
        work = Work(
            commits,
            counts.swaps,
            counts.requests,
            counts.bytes_written,
            len(syncs),
            len(new),
            sum(new.values()),
        )
        return Took(ended - start, begin_s, land_s, ended - answered, work)

    def _wait(self) -> None:
        """Until nothing is left to be published, so that no way leaves work to the other one."""
        catalogue = self.lake.catalogue
        while (
            plugin_of(catalogue, DeltaPlugin).parts.publisher.list_unpublished()
            or plugin_of(catalogue, LancePlugin).parts.promoter.list_unpublished()
        ):
            sleep(LOOK_S)

    def _files(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, _, names in os.walk(self.place):
            for name in names:
                if not name.startswith(DATABASE_FILE):
                    path = os.path.join(folder, name)  # noqa: PTH118 - there are many
                    found[path] = os.stat(path).st_size  # noqa: PTH116
        return found


@contextmanager
def ground(place: Path) -> Iterator[Ground]:
    """A new lake, with the namespace of all tables."""
    penstock.init(place).close()
    store = KindCountingStore(SqliteStore(place / DATABASE_FILE))
    with penstock.open(store, settings=WAITS) as lake:
        lake.branch().create_namespace(NAMESPACE)
        yield Ground(place, lake, store)
