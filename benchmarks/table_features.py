"""What features of a Delta table cost when Spark writes and reads it, beside the same table without them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
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
ROUNDS: Final = 3
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
    with workshop.place() as place, penstock.init(place / "lake") as lake:
        spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.warehouse.dir": place / "tables"})
        try:
            times = _measure(spark, count, rounds)
        finally:
            spark.stop()
    return Findings(tables=tuple(_tables(times, count)), goals=tuple(_goals(times)))


def _measure(spark: SparkSession, count: int, rounds: int) -> Times:
    """Every table is written and read in turns, each of them first now and then; the first round is for
    warming up."""
    times: Times = {}
    data, order = rows(spark, count), list(TABLES)

    def take(what: str, work: Callable[[str], object], number: int) -> None:
        nonlocal order
        for name in order:
            gc.collect()
            took = _timed(spark, lambda name=name: work(name))  # type: ignore[misc]
            if number:
                times.setdefault((what, name), []).append(took)
        order = [*order[1:], order[0]]

    for number in range(rounds + 1):
        take("write", lambda name: write(data, _key(name, number), properties=TABLES[name]), number)  # noqa: B023
    for name in TABLES:
        delete(spark, _key(name, 0), GONE)
    for number in range(rounds + 1):
        for what, query in QUERIES.items():
            where = f"id BETWEEN {count // 2} AND {count // 2 + 1000}" if what == "a range" else "true"
            take(
                f"read {what}",
                lambda name, where=where, query=query: (  # type: ignore[misc]
                    read(spark, _key(name, 0)).where(where).selectExpr(query).collect()
                ),
                number,
            )
    digests = {
        name: read(spark, _key(name, 0)).selectExpr("count(*)", "sum(id)").collect() for name in TABLES
    }
    assert len({str(one) for one in digests.values()}) == 1, digests
    return times


def _key(name: str, number: int) -> str:
    return f"bench.{name.replace(' ', '_')}_{number}"


def _timed(spark: SparkSession, work: Callable[[], object]) -> Took:
    started_s, busy_s = perf_counter(), cpu_s(spark)
    work()
    return Took(perf_counter() - started_s, cpu_s(spark) - busy_s)


def _tables(times: Times, count: int) -> Iterator[Table]:
    yield table(
        f"A Delta table of {count:,} rows of four columns",
        ("", "feature", "seconds", "CPU s", "times without", "CPU s of those without"),
        [
            [what, name, median(one.s for one in took), median(one.cpu_s for one in took),
             *_ratios(took, times[what, NONE])]
            for what in dict.fromkeys(what for what, _ in times)
            for name in TABLES
            for took in [times[what, name]]
        ],
        note="Medians of rounds in turns. Before they are read, one row of a thousand is deleted in every "
        "file: tables with vectors mark it, the others have new files.",
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
