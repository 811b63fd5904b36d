"""What it costs to write and read tables of a lake from Spark, beside plain Parquet and Delta Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import penstock
from benchmarks.delta_tables import SCHEMA, add
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, Table, at_most, table
from penstock import Lake
from penstock.lake.call import Call
from penstock.spark import read, session, write
from penstock.storage.buckets import BucketEntry
from penstock.storage.local import LocalBucket
from tests.interop import installed
from tests.servers.process import Missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTION = "What does it cost to write and read tables of a lake from Spark, beside plain Parquet?"

TIMES_MOST: Final = 1.1
COMMIT_MOST_S: Final = 5
ROUNDS: Final = 3
TASKS: Final = 4
COLUMNS: Final = (
    "id",
    "id * 1.5 AS amount",
    "concat('customer ', id % 100000) AS customer",
    "date_add(date'2026-01-01', CAST(id % 365 AS INT)) AS day",
)
DELTA_PROGRAM: Final = Path(__file__).parent / "spark_delta.py"


class Took(NamedTuple):
    """What one thing took, round by round, in seconds."""

    what: str
    rounds: list[float]

    @property
    def s(self) -> float:
        return median(self.rounds)


class Seen(NamedTuple):
    """What a job or a read asked of others."""

    calls: list[str]
    """Of the lake, by name."""
    listings: list[str]
    """Folders that were listed by Penstock."""
    discovered: list[int]
    """Files that Spark found by listing."""

    @property
    def data_listings(self) -> int:
        """How often anything but a table's log was listed."""
        return sum("_delta_log" not in one for one in self.listings) + sum(map(bool, self.discovered))


def ask(workshop: Workshop) -> Findings:
    with workshop.place() as place, penstock.init(place / "lake") as lake:
        spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.warehouse.dir": place / "tables"})
        try:
            write(rows(spark, 1000), "warm.up")
            sizes = (workshop.size(5_000_000, 20_000), workshop.size(20_000_000, 40_000))
            written = [_writing(spark, place, count) for count in sizes]
            delta = _delta_spark(place, sizes[0])
            reading = _reading(spark, lake, sizes[1])
            many = _many_files(spark, lake, workshop.size(4000, 40))
            opening = _opening(spark, lake, workshop.size(100_000, 300))
        finally:
            spark.stop()
    tables = (_writes_table(sizes, written, delta), _reads_table(sizes[1], reading), many[0], opening[0])
    goals = [
        at_most(f"write {count:,} rows, of plain Parquet's time", ours.s / plain.s, TIMES_MOST)
        for count, (plain, ours) in zip(sizes, written, strict=True)
    ]
    goals += [
        at_most(f"read {plain.what}, of plain Parquet's time", ours.s / plain.s, TIMES_MOST)
        for plain, ours in reading
    ]
    return Findings(tables=tables, goals=(*goals, *many[1], *opening[1]))


def rows(spark: SparkSession, count: int, tasks: int = TASKS) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr(*COLUMNS)


# -- writing -----------------------------------------------------------------------------------------------


def _writing(spark: SparkSession, place: Path, count: int) -> tuple[Took, Took]:
    """Plain Parquet and a new table of the lake, in turns."""
    plain, ours = Took("plain Parquet", []), Took("Penstock", [])
    df = rows(spark, count)
    for number in range(ROUNDS):
        directory = str(place / f"plain{number}")
        plain.rounds.append(_timed(partial(df.write.parquet, directory)))
        ours.rounds.append(_timed(partial(write, df, f"bench.rows{count}_{number}")))
        shutil.rmtree(directory)
    return plain, ours


def _delta_spark(place: Path, count: int) -> tuple[Took, Took] | None:
    """Plain Parquet and a Delta table, by Delta Spark in the PySpark that it needs; nothing without it."""
    try:
        python, jars = installed.python_environment("spark") / "python", installed.java_libraries("delta")
    except Missing as missing:
        print(f"Delta Spark is left out: {missing}", file=sys.stderr)
        return None
    asked = [str(python), str(DELTA_PROGRAM), str(place / "delta"), str(count), str(ROUNDS), str(jars)]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr, file=sys.stderr)
        return None
    plain, delta = json.loads(found.stdout.splitlines()[-1])
    return Took("plain Parquet", plain), Took("Delta Spark", delta)


def _writes_table(
    sizes: tuple[int, ...], written: list[tuple[Took, Took]], delta: tuple[Took, Took] | None
) -> Table:
    found: list[list[Cell]] = []
    for count, (plain, ours) in zip(sizes, written, strict=True):
        found += [[count, one.what, one.s, count / one.s / 1e6, one.s / plain.s] for one in (plain, ours)]
    if delta is not None:
        count, plain = sizes[0], delta[0]
        found += [
            [count, f"{one.what}, its PySpark", one.s, count / one.s / 1e6, one.s / plain.s] for one in delta
        ]
    return table(
        "A new table from four columns, four tasks",
        ("rows", "writer", "seconds", "million rows/s", "times plain"),
        found,
        note="Penstock also makes files durable and commits; Delta Spark runs in the PySpark it is made for",
    )


# -- reading -----------------------------------------------------------------------------------------------

QUERIES: Final = {
    "all columns": "sum(hash(id, amount, customer, day)) AS found",
    "one column": "sum(id) AS found",
    "a range": "count(*) AS found",
}


def _reading(spark: SparkSession, lake: Lake, count: int) -> list[tuple[Took, Took]]:
    """The same files through the lake and by their directory, in turns, the DataFrame made anew each time."""
    key = f"bench.rows{count}_0"
    location = lake.table(key).location
    where = f"id BETWEEN {count // 2} AND {count // 2 + 1000}"
    found = []
    for what, query in QUERIES.items():
        asked = partial(_asked, query, where if what == "a range" else "true")
        plain, ours = [], []
        for _ in range(1 + ROUNDS):  # the first is for warming up
            plain.append(_timed(lambda asked=asked: asked(spark.read.parquet(location))))  # type: ignore[misc]
            ours.append(_timed(lambda asked=asked: asked(read(spark, key))))  # type: ignore[misc]
        found.append((Took(what, plain[1:]), Took(what, ours[1:])))
    return found


def _asked(query: str, where: str, df: DataFrame) -> object:
    return df.where(where).selectExpr(query).collect()


def _reads_table(count: int, reading: list[tuple[Took, Took]]) -> Table:
    return table(
        f"The same files of {count:,} rows",
        ("query", "spark.read.parquet, s", "Penstock, s", "times plain"),
        [[plain.what, plain.s, ours.s, ours.s / plain.s] for plain, ours in reading],
    )


# -- many files --------------------------------------------------------------------------------------------


def _many_files(spark: SparkSession, lake: Lake, files: int) -> tuple[Table, list[Goal]]:
    """A job with very many files: what comes after its tasks."""
    df = spark.range(0, files * 10, 1, TASKS).selectExpr("id", "CAST(id % 1000 AS INT) AS bucket")
    df = df.repartition(TASKS)
    lake.delta.create_empty("bench.many", df.schema.json(), partition_by=["bucket"])
    per_file = max(1, files * 10 // 1000 // TASKS)
    began: list[float] = []
    from penstock.formats.delta.spark.job import jobs

    run = jobs.write_rows

    def noting(*given: Any) -> Any:
        done = run(*given)
        began.append(perf_counter())
        return done

    with _seeing(spark, lake) as seen, patch.object(jobs, "write_rows", noting):
        start = perf_counter()
        write(df, "bench.many", options={"maxRecordsPerFile": str(min(per_file, 10))})
        end = perf_counter()
    count = sum(1 for _ in lake.table("bench.many").snapshot().files())
    commit_s = end - began[0]
    commits = sum(1 for one in seen.calls if one == "CommitTables")
    found = table(
        "One job with very many files",
        ("files", "tasks, s", "commit, s", "calls of the lake", "of these commits", "listings of data"),
        [[count, began[0] - start, commit_s, len(seen.calls), commits, seen.data_listings]],
    )
    goals = [
        at_most(f"commit of {count:,} files", commit_s, COMMIT_MOST_S, "s"),
        at_most("requests to commit", commits, 1),
        at_most("listings of data", seen.data_listings, 0),
    ]
    return found, goals


def _opening(spark: SparkSession, lake: Lake, files: int) -> tuple[Table, list[Goal]]:
    """A table of very many files, which Spark is to read."""
    lake.delta.create_empty("bench.wide", SCHEMA)
    lake.table("bench.wide").append_actions([add(number) for number in range(files)])
    with _seeing(spark, lake) as seen:
        took = [_timed(lambda: read(spark, "bench.wide")) for _ in range(ROUNDS)]
    found = table(
        "A DataFrame of a table with very many files",
        ("files", "seconds", "listings of data"),
        [[files, median(took), seen.data_listings]],
        note="nothing of the files is read: how long until there is a DataFrame",
    )
    return found, [at_most(f"listings of data to open {files:,} files", seen.data_listings, 0)]


def _timed(do: Callable[[], object]) -> float:
    start = perf_counter()
    do()
    return perf_counter() - start


@contextmanager
def _seeing(spark: SparkSession, lake: Lake) -> Iterator[Seen]:
    """What is asked of the lake, and which folders are listed, meanwhile."""
    seen = Seen([], [], [])
    metrics: Any = spark._jvm
    metrics = metrics.org.apache.spark.metrics.source.HiveCatalogMetrics
    before = metrics.METRIC_FILES_DISCOVERED().getCount()
    do, listed = lake.do, LocalBucket.list

    def asked(call: Call[Any]) -> Any:
        seen.calls.append(type(call).__name__)
        return do(call)

    def listing(self: LocalBucket, prefix: str, *rest: Any, **more: Any) -> AsyncIterator[BucketEntry]:
        seen.listings.append(prefix)
        return listed(self, prefix, *rest, **more)

    with patch.object(lake, "do", asked), patch.object(LocalBucket, "list", listing):
        yield seen
        seen.discovered.append(metrics.METRIC_FILES_DISCOVERED().getCount() - before)
