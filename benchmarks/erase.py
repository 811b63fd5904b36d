"""How long it takes to erase one partition of a table, beside Delta Spark's DELETE and VACUUM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from penstock import Settings
from penstock.spark import delete, session, write
from tests.interop import installed
from tests.servers.process import Missing

QUESTION = "How long does it take to erase one partition of a table, beside Delta Spark's DELETE and VACUUM?"

TIMES_MOST: Final = 1.2
PARTITIONS: Final = 20
COLUMNS: Final = (
    "id",
    "id * 1.5 AS amount",
    "concat('customer ', id % 100000) AS customer",
    f"id % {PARTITIONS} AS region",
)
GONE: Final = "region = 7"
ALONE: Final = Settings(nobody_writes=True, grace_s=0, data_grace_days=0)
DELTA_PROGRAM: Final = Path(__file__).parent / "erase_delta.py"


class Took(NamedTuple):
    """What the two steps took, in seconds."""

    who: str
    delete_s: float
    erase_s: float

    @property
    def s(self) -> float:
        return self.delete_s + self.erase_s


def ask(workshop: Workshop) -> Findings:
    count = workshop.size(20_000_000, 40_000)
    with workshop.place() as place:
        ours = _penstock(place, count)
        theirs = _delta_spark(place, count)
    if theirs is None and not workshop.quick:
        raise SystemExit("without Delta Spark there is nothing to compare with: run `make interop`")
    told = [ours] if theirs is None else [theirs, ours]
    rows: list[list[Cell]] = [[one.who, one.delete_s, one.erase_s, one.s] for one in told]
    title = f"Erasing one of {PARTITIONS} partitions of a table of {count:,} rows, on this machine"
    note = "Delta Spark's VACUUM keeps the log, its checkpoints and their statistics; an erase ends them too."
    columns = ["", "delete, s", "VACUUM or erase, s", "both, s"]
    goals = () if theirs is None else (at_most("erase, of DELETE and VACUUM", ours.s / theirs.s, TIMES_MOST),)
    return Findings(tables=(table(title, columns, rows, note),), goals=goals)


def _penstock(place: Path, count: int) -> Took:
    with penstock.init(place / "lake") as lake:
        spark = session(lake, conf={"spark.ui.enabled": False, "spark.sql.warehouse.dir": place / "tables"})
        try:
            rows = spark.range(0, count, 1, 4).selectExpr(*COLUMNS)
            write(rows, "bench.rows", partition_by=["region"])
            lake.finish_background(60)
            start = perf_counter()
            delete(spark, "bench.rows", GONE)
            deleted = perf_counter()
        finally:
            spark.stop()
    begun = perf_counter()
    with penstock.open(place / "lake", settings=ALONE) as lake:
        assert lake.erase("bench.rows").finished
    return Took("Penstock: delete, erase", deleted - start, perf_counter() - begun)


def _delta_spark(place: Path, count: int) -> Took | None:
    """The same by Delta Spark, in the PySpark that it needs; nothing without it."""
    try:
        python, jars = installed.python_environment("spark") / "python", installed.java_libraries("delta")
    except Missing as missing:
        print(f"Delta Spark is left out: {missing}", file=sys.stderr)
        return None
    asked = [str(python), str(DELTA_PROGRAM), str(place / "delta"), str(count), GONE, str(jars), *COLUMNS]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr, file=sys.stderr)
        return None
    return Took("Delta Spark: DELETE, VACUUM", *json.loads(found.stdout.splitlines()[-1]))
