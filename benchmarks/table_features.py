"""What features of a Delta table cost when Spark writes and reads it, beside the same table without them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Findings, Goal, Table, at_most, table
from benchmarks.row_changes_engine import cpu_s
from benchmarks.spark import QUERIES, rows
from penstock.spark import delete, read, session, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = "What do features of a Delta table cost when Spark writes and reads it?"

ROWS: Final = 5_000_000
"""How many are written at once."""
ROWS_READ: Final = 40_000_000
"""How many a table has that is read: a query takes from half a second to some seconds."""
ROUNDS: Final = 3
ROUNDS_OF_READS: Final = 7
TIMES_MOST: Final = 1.1
ALL: Final = "all three"
FEATURES: Final = {
    "column mapping": {"delta.columnMapping.mode": "name"},
    "row tracking": {"delta.enableRowTracking": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
}
TABLES: Final = {
    "none": {"delta.enableDeletionVectors": "false"},
    **FEATURES,
    ALL: {name: value for properties in FEATURES.values() for name, value in properties.items()},
}
NONE: Final = "none"
READ: Final = -1
"""In place of the number of a round: the tables that are read."""
GONE: Final = "id % 1000 = 3"
"""Which rows of the tables are deleted before they are read: one of a thousand, in every file."""


class Took(NamedTuple):
    """What one round took."""

    s: float
    cpu_s: float


Times = dict[tuple[str, str], list[Took]]
"""By what was done and by table, round by round."""


def ask(workshop: Workshop) -> Findings:
    count, rounds = workshop.size(ROWS, 20_000), workshop.size(ROUNDS, 1)
    read_count, rounds_of_reads = workshop.size(ROWS_READ, 40_000), workshop.size(ROUNDS_OF_READS, 1)
    with workshop.place() as place, penstock.init(place / "lake") as lake:
        spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.warehouse.dir": place / "tables"})
        try:
            times = _measure_writes(spark, count, rounds)
            times_of_reads = _measure_reads(spark, read_count, rounds_of_reads)
        finally:
            spark.stop()
    note = (
        "Before they are read, one row of a thousand is deleted in every file: tables with vectors mark "
        "it, the others have new files."
    )
    return Findings(
        tables=(
            _table(times, f"Writing Delta tables of {count:,} rows of four columns", ""),
            _table(times_of_reads, f"Reading Delta tables of {read_count:,} rows of four columns", note),
        ),
        goals=(*_goals(times), *_goals(times_of_reads)),
    )


def _measure_writes(spark: SparkSession, count: int, rounds: int) -> Times:
    data = rows(spark, count)

    def write_table(name: str, number: int) -> None:
        write(data, _key(name, number), properties=TABLES[name])

    return _measure(spark, rounds, {"write": write_table})


def _measure_reads(spark: SparkSession, count: int, rounds: int) -> Times:
    data = rows(spark, count)
    for name in TABLES:
        write(data, _key(name, READ), properties=TABLES[name])
        delete(spark, _key(name, READ), GONE)
    works: dict[str, Callable[[str, int], object]] = {}
    for what, query in QUERIES.items():
        where = f"id BETWEEN {count // 2} AND {count // 2 + 1000}" if what == "a range" else "true"
        works[f"read {what}"] = partial(_ask_table, spark, query, where)
    times = _measure(spark, rounds, works)
    digests = {
        name: read(spark, _key(name, READ)).selectExpr("count(*)", "sum(id)").collect() for name in TABLES
    }
    assert len({str(one) for one in digests.values()}) == 1, digests
    return times


def _ask_table(spark: SparkSession, query: str, where: str, name: str, _: int) -> object:
    return read(spark, _key(name, READ)).where(where).selectExpr(query).collect()


def _measure(spark: SparkSession, rounds: int, works: Mapping[str, Callable[[str, int], object]]) -> Times:
    """Each work on every table in turns, each table first now and then; the first round is for warming up."""
    times: Times = {}
    order = list(TABLES)
    for number in range(rounds + 1):
        for what, work in works.items():
            for name in order:
                gc.collect()
                took = _timed(spark, partial(work, name, number))
                if number:
                    times.setdefault((what, name), []).append(took)
        order = [*order[1:], order[0]]
    return times


def _key(name: str, number: int) -> str:
    return f"bench.{name.replace(' ', '_')}_{'read' if number == READ else number}"


def _timed(spark: SparkSession, work: Callable[[], object]) -> Took:
    started_s, busy_s = perf_counter(), cpu_s(spark)
    work()
    return Took(perf_counter() - started_s, cpu_s(spark) - busy_s)


def _table(times: Times, title: str, note: str) -> Table:
    return table(
        title,
        ("", "feature", "seconds", "CPU s", "times without", "CPU s of those without"),
        [
            [what, name, median(one.s for one in took), median(one.cpu_s for one in took),
             *_ratios(took, times[what, NONE])]
            for what in dict.fromkeys(what for what, _ in times)
            for name in TABLES
            for took in [times[what, name]]
        ],
        note=f"Medians of rounds in turns. {note}".strip(),
    )  # fmt: skip


def _ratios(took: list[Took], without: list[Took]) -> tuple[float, float]:
    pairs = list(zip(took, without, strict=True))
    return (
        median(one.s / other.s for one, other in pairs),
        median(one.cpu_s / max(other.cpu_s, 0.01) for one, other in pairs),
    )


def _goals(times: Times) -> Iterator[Goal]:
    for (what, name), took in times.items():
        if name != NONE:
            ratio, _ = _ratios(took, times[what, NONE])
            yield at_most(f"{what} with {name}, of the time without", ratio, TIMES_MOST)
