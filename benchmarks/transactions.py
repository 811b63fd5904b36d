"""What does a transaction cost beside the same writes one by one, and how many pipelines run at once?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, Table, at_most, table
from benchmarks.transactions_pipelines import (
    ALL_ONE_BY_ONE,
    ALL_TOGETHER,
    ONE_BY_ONE,
    PIPELINES,
    ROWS,
    TOGETHER,
    WAYS,
    Ran,
    fleet,
)
from benchmarks.transactions_writes import (
    FORMATS,
    Ground,
    Took,
    Work,
    Write,
    arrow_writes,
    ground,
    kernel_writes,
    spark_writes,
)
from penstock.spark import session

QUESTION = (
    "What does a transaction cost beside the same writes one by one, and how many pipelines run at once?"
)

TIMES_MOST: Final = 1.1
CONSTANT_MOST_S: Final = 0.5
TABLES: Final = (1, 10, 100)
ALL: Final = "all three"
KERNEL: Final = "the kernel alone"
ARROW: Final = "Arrow"
SPARK: Final = "Spark"


class Compared(NamedTuple):
    """The same writes in both ways, round by round."""

    engine: str
    kind: str
    writes: int
    apart: list[Took]
    together: list[Took]

    @property
    def times(self) -> float:
        return median(a.s / b.s for a, b in zip(self.together, self.apart, strict=True))

    @property
    def beyond_s(self) -> float:
        """What a transaction takes beyond what it may take for each write."""
        return median(a.s - TIMES_MOST * b.s for a, b in zip(self.together, self.apart, strict=True))

    @property
    def ends_ms(self) -> tuple[float, float, float]:
        """How long it took to begin, to land and to publish."""
        parts = ((took.begin_s, took.land_s, took.publish_s) for took in self.together)
        begin_s, land_s, publish_s = map(median, zip(*parts, strict=True))
        return begin_s * 1000, land_s * 1000, publish_s * 1000

    @property
    def apart_s(self) -> float:
        return median(one.s for one in self.apart)

    @property
    def together_s(self) -> float:
        return median(one.s for one in self.together)


Pipelines = dict[tuple[int, str], list[Ran]]
"""By processes and way: what each round saw."""


def ask(workshop: Workshop) -> Findings:
    pipelines = _pipelines(workshop)  # before there is a Spark, which would not leave the cores to them
    tables = list(_many_tables(workshop))
    writes = [*_by_arrow(workshop), *_by_spark(workshop)]
    return Findings(
        tables=(
            _writes_table(writes),
            _tables_table(tables),
            _work_table(tables),
            _pipelines_table(pipelines),
        ),
        goals=tuple(_goals(writes, tables, pipelines)),
    )


# -- the same writes, both ways ----------------------------------------------------------------------------


def _compared(place: Ground, engine: str, kind: str, writes: Sequence[Write], rounds: int) -> Compared:
    """Both ways in turns, and each of them first in every other round."""
    found = Compared(engine, kind, len(writes), [], [])
    for one in range(rounds):
        if one % 2:
            found.together.append(place.together(writes))
        found.apart.append(place.one_by_one(writes))
        if not one % 2:
            found.together.append(place.together(writes))
    return found


def _by_arrow(workshop: Workshop) -> Iterator[Compared]:
    tables, rows = workshop.size(4, 1), workshop.size(10_000, 10)
    with workshop.place() as place, ground(place / "lake") as made:
        by_kind = {kind: arrow_writes(made.lake, kind, tables, rows) for kind in FORMATS}
        yield from _by_kind(made, ARROW, by_kind, workshop.size(12, 1))


def _by_spark(workshop: Workshop) -> Iterator[Compared]:
    tables, rows = workshop.size(3, 1), workshop.size(100_000, 10)
    with workshop.place() as place, ground(place / "lake") as made:
        conf = {
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": place / "tables",
        }
        spark = session(made.lake, master="local[2]", conf=conf)
        try:
            by_kind = {kind: spark_writes(made.lake, spark, kind, tables, rows) for kind in FORMATS}
            yield from _by_kind(made, SPARK, by_kind, workshop.size(3, 1))
        finally:
            spark.stop()


def _by_kind(made: Ground, engine: str, by_kind: dict[str, list[Write]], rounds: int) -> Iterator[Compared]:
    """Tables of each format, and all together. The first writes create them, and warm both ways up."""
    everything = [one for writes in by_kind.values() for one in writes]
    made.one_by_one(everything)
    made.together(everything)
    for kind, writes in by_kind.items():
        yield _compared(made, engine, kind, writes, rounds)
    yield _compared(made, engine, ALL, everything, rounds)


WRITES_COLUMNS: Final = (
    "engine",
    "tables",
    "writes",
    "one by one, s",
    "transaction, s",
    "times",
    f"beyond {TIMES_MOST} times, s",
    "begin ms",
    "land ms",
    "publish ms",
)


def _writes_table(writes: Iterable[Compared]) -> Table:
    rows: list[list[Cell]] = [
        [
            one.engine,
            one.kind,
            one.writes,
            one.apart_s,
            one.together_s,
            one.times,
            one.beyond_s,
            *one.ends_ms,
        ]
        for one in writes
    ]
    return table(
        "The same appends, one by one on main and in one transaction",
        WRITES_COLUMNS,
        rows,
        "Both ways take turns on the same tables, of which each is written once, and end when every reader "
        "finds what was written. One by one that is waited for at each write; a transaction publishes all "
        "of it when it has landed, which is the last figure and within the time.",
    )


# -- more and more tables ----------------------------------------------------------------------------------


def _many_tables(workshop: Workshop) -> Iterator[Compared]:
    sizes, rows = ((1, 3) if workshop.quick else TABLES), workshop.size(100, 10)
    for kind in (KERNEL, *FORMATS):
        with workshop.place() as place, ground(place / "lake") as made:
            most = max(sizes)
            writes = (
                kernel_writes(made.lake, most)
                if kind == KERNEL
                else arrow_writes(made.lake, kind, most, rows)
            )
            made.together(writes)  # creates them
            for tables in sizes:
                rounds = workshop.size(5 if tables < most else 3, 1)
                yield _compared(made, ARROW, kind, writes[:tables], rounds)


TABLES_COLUMNS: Final = (
    "tables of",
    "tables",
    "one by one, ms a table",
    "transaction, ms a table",
    "times",
    "begin ms",
    "land ms",
    "publish ms",
    "land, ms a table",
)


def _tables_table(found: Iterable[Compared]) -> Table:
    rows: list[list[Cell]] = [
        [
            one.kind,
            one.writes,
            one.apart_s * 1000 / one.writes,
            one.together_s * 1000 / one.writes,
            one.times,
            *one.ends_ms,
            one.ends_ms[1] / one.writes,
        ]
        for one in found
    ]
    return table(
        "1, 10 and 100 tables in one transaction",
        TABLES_COLUMNS,
        rows,
        "Each table is written once, with 100 rows by Arrow; of the kernel alone, a new value is put.",
    )


def _work_table(found: Iterable[Compared]) -> Table:
    rows: list[list[Cell]] = []
    for one in found:
        for way, rounds in (("one by one", one.apart), ("transaction", one.together)):
            least = min((took.work for took in rounds), key=attrgetter("syncs", "requests"))
            rows.append([one.kind, one.writes, way, *least])
    return table(
        "What that comes to",
        ("tables of", "tables", "way", *(name.replace("_", " ") for name in Work._fields)),
        rows,
        "Of the round that came to least: in others, checkpoints of Delta tables were due. Commits are those "
        "of main and of the transaction's own branch. The lake's store waits for the disk at each swap of a "
        "row: a transaction swaps one when it begins, one for each write, and three at its end (it is sent, "
        "it lands, that is noted). Syncs are files and folders of tables that Penstock waits for, with "
        "those of publishing.",
    )


# -- many pipelines ----------------------------------------------------------------------------------------


def _pipelines(workshop: Workshop) -> Pipelines:
    seconds, count = (0.2, 2) if workshop.quick else (2.0, PIPELINES)
    found: Pipelines = {}
    with workshop.place() as place:
        for processes in (2,) if workshop.quick else (1, 4):
            with fleet(processes) as running:
                for number in range(workshop.size(2, 1)):
                    for way in WAYS:
                        lake = _lake(place, processes, way, number)
                        ran = running.measure(lake, way, seconds, count)
                        found.setdefault((processes, way), []).append(ran)
    return found


def _lake(place: Path, processes: int, way: str, number: int) -> Path:
    return place / f"p{processes}w{list(WAYS).index(way)}r{number}"


def _pipelines_table(found: Pipelines) -> Table:
    rows: list[list[Cell]] = []
    for (processes, way), rounds in found.items():
        beside = found[processes, ALL_ONE_BY_ONE if way in (ALL_ONE_BY_ONE, ALL_TOGETHER) else ONE_BY_ONE]
        rows.append(
            [
                processes,
                way,
                median(one.rate for one in rounds),
                median(a.rate / b.rate if b.rate else 0.0 for a, b in zip(rounds, beside, strict=True)),
                median(one.tries for one in rounds),
                median(one.latency_ms(0.5) for one in rounds),
                median(one.latency_ms(0.99) for one in rounds),
            ]
        )
    return table(
        f"{PIPELINES} pipelines at once on one main",
        ("processes", "way", "runs/s", "times one by one", "tries a run", "p50 ms", "p99 ms"),
        rows,
        f"A run appends {ROWS} rows to a Delta table of the pipeline's own and to one that all of them "
        "share, or to one of each format that all share. Pipelines are threads of so many processes, on one "
        "lake in SQLite. One by one, a run is two commits, or four, that others see one after the other; "
        "with `lake.run` it is all or nothing, and a run that has read what changed meanwhile begins anew. "
        "At the end every run is in every table that is shared, once.",
    )


# -- goals -------------------------------------------------------------------------------------------------


def _goals(writes: list[Compared], tables: list[Compared], pipelines: Pipelines) -> Iterator[Goal]:
    most = max(one.writes for one in tables)
    asked = [(f"{one.writes} writes by {one.engine}", one) for one in writes if one.kind == ALL]
    asked += [(f"{most} tables, {one.kind}", one) for one in tables if one.writes == most]
    for what, one in asked:
        beyond = f"{what}, in a transaction, beyond {TIMES_MOST} times one by one"
        yield at_most(beyond, one.beyond_s, CONSTANT_MOST_S, "s")
    for (processes, way), rounds in pipelines.items():
        if way in (TOGETHER, ALL_TOGETHER):
            what = f"tries a run of {PIPELINES} pipelines that append, {processes} processes, {way}"
            yield at_most(what, max(one.tries for one in rounds), 1)
