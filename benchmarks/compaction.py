"""How long it takes to put very many small files of a Delta table together on Spark, beside plain Spark."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from benchmarks.row_changes_engine import COLUMNS, cpu_s
from penstock.lake.lake import Lake
from penstock.spark import optimize, read, session, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUESTION = "How long does it take to put very many small files together on Spark, beside plain Spark?"

TIMES_MOST: Final = 1.1
FILES: Final = 5000
ROUNDS: Final = 2
ROWS_EACH: Final = 2000
TASKS: Final = 4
KEY: Final = "bench.small"
TARGET: Final = 32 * 1024 * 1024


class Took(NamedTuple):
    """What one way took."""

    s: float
    cpu_s: float
    files: int


def ask(workshop: Workshop) -> Findings:
    files, rounds = workshop.size(FILES, 20), workshop.size(ROUNDS, 1)
    with workshop.place() as place, penstock.init(place / "lake") as lake:
        spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.warehouse.dir": place / "tables"})
        try:
            times = _measure(spark, lake, place, files, rounds)
        finally:
            spark.stop()
    ours, theirs = times["Penstock: optimize"], times["plain Spark, into as many files"]
    rows: list[list[Cell]] = [
        [what, median(one.s for one in took), median(one.cpu_s for one in took), took[-1].files]
        for what, took in times.items()
    ]
    pairs = list(zip(ours, theirs, strict=True))
    return Findings(
        tables=(
            table(
                f"{files:,} files of {ROWS_EACH:,} rows each",
                ("way", "s", "CPU s", "files afterwards"),
                rows,
                "Medians of rounds in turns. Plain Spark reads a folder of the same small files, with their "
                "checksums, and writes another one with the same compression. Penstock also makes files "
                "durable and commits.",
            ),
        ),
        goals=(
            at_most("optimize, of plain Spark's time", median(a.s / b.s for a, b in pairs), TIMES_MOST),
            at_most(
                "CPU of optimize, of plain Spark's", median(a.cpu_s / b.cpu_s for a, b in pairs), TIMES_MOST
            ),
        ),
    )


def _measure(spark: SparkSession, lake: Lake, place: Path, files: int, rounds: int) -> dict[str, list[Took]]:
    df = spark.range(0, files * ROWS_EACH, 1, TASKS).selectExpr(*COLUMNS)
    each = {"maxRecordsPerFile": str(ROWS_EACH)}
    write(df, KEY, options=each)
    plain, target = place / "plain", place / "written"
    small = lake.table(KEY)
    plain.mkdir()
    for file in (names := list(Path(small.location).glob("*.parquet"))):
        shutil.copy(file, plain)
        # Both read the sums that Spark writes beside each file, and checks the file by.
        shutil.copy(file.with_name(f".{file.name}.crc"), plain)
    assert len(list(small.snapshot().files())) == len(names) == files
    version = small.version

    def ours() -> int:
        done = optimize(spark, KEY, target_file_bytes=TARGET)
        assert done.files_removed == files
        return done.files_added

    def theirs(count: int | None) -> int:
        shutil.rmtree(target, ignore_errors=True)
        rows = spark.read.parquet(str(plain))
        (rows if count is None else rows.coalesce(count)).write.parquet(str(target))
        return len(list(target.glob("*.parquet")))

    made = [0]
    times: dict[str, list[Took]] = {}
    for number in range(rounds + 1):  # the first is for warming up
        for what, do in (
            ("Penstock: optimize", ours),
            ("plain Spark, into as many files", lambda: theirs(made[-1])),
            ("plain Spark, as it comes", lambda: theirs(None)),
        ):
            took = _timed(spark, do)
            print(f"{number}. {what}: {took.s:.1f} s, {took.cpu_s:.1f} CPU s", file=sys.stderr, flush=True)
            if do is ours:
                made.append(took.files)
            if number:
                times.setdefault(what, []).append(took)
        assert _digest(read(spark, KEY)) == _digest(spark.read.parquet(str(target)))
        lake.table(KEY).restore(version=version)
    return times


def _timed(spark: SparkSession, do: Callable[[], int]) -> Took:
    start, busy = perf_counter(), cpu_s(spark)
    files = do()
    return Took(perf_counter() - start, cpu_s(spark) - busy, files)


def _digest(rows: DataFrame) -> object:
    told = "sum(pmod(xxhash64(id, amount, customer, day), 1000000007))"
    return rows.selectExpr("count(*)", "sum(id)", told).collect()
