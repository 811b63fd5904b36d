"""How long a merge of rows without Spark takes, and how much memory, beside deltalake."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table

QUESTION = "How long does a merge of rows without Spark take, and how much memory, beside deltalake?"

ROWS: Final = 5_000_000
SOURCE_SHARE: Final = 0.1
PIECES: Final = 10
ROUNDS: Final = 3
TIMES_MOST: Final = 2.0
PEAK_MOST_MIB: Final = 1024
OURS: Final = "Penstock"
THEIRS: Final = "deltalake"


class Took(NamedTuple):
    """What one merge took."""

    changed: int
    s: float
    cpu_s: float
    peak_mib: float


def ask(workshop: Workshop) -> Findings:
    rows, rounds = workshop.size(ROWS, 2000), workshop.size(ROUNDS, 1)
    count = int(rows * SOURCE_SHARE)
    context = multiprocessing.get_context("spawn")
    times: dict[str, list[Took]] = {OURS: [], THEIRS: []}
    for number in range(rounds):
        with workshop.place() as place:
            filling = context.Process(target=fill, args=(place, rows))
            filling.start()
            filling.join()
            assert filling.exitcode == 0
            order = [OURS, THEIRS] if number % 2 == 0 else [THEIRS, OURS]
            for engine in order:
                results: Any = context.SimpleQueue()
                process = context.Process(target=run, args=(engine, place, rows, count, results))
                process.start()
                process.join()
                assert process.exitcode == 0
                times[engine].append(Took(*results.get()))
    assert {took.changed for each in times.values() for took in each} == {count}
    ours, theirs = times[OURS], times[THEIRS]
    peak = median(one.peak_mib for one in ours)
    pairs = list(zip(ours, theirs, strict=True))
    return Findings(
        tables=(
            table(
                f"A merge of {count:,} rows into {rows:,}, half of which are new",
                ("engine", "s", "CPU s", "peak MiB"),
                [_row(engine, took) for engine, took in times.items()],
                f"Medians of rounds in turns, each with tables of its own, of {PIECES} files, in a process "
                "of its own. Rows that change lie in all files.",
            ),
        ),
        goals=(
            at_most("a merge, of deltalake's time", median(a.s / b.s for a, b in pairs), TIMES_MOST),
            at_most(
                "CPU of a merge, of deltalake's", median(a.cpu_s / b.cpu_s for a, b in pairs), TIMES_MOST
            ),
            at_most("memory of a merge", peak, PEAK_MOST_MIB, "MiB"),
        ),
    )


def _row(engine: str, took: Sequence[Took]) -> list[Cell]:
    return [engine, *(median(one[at] for one in took) for at in range(1, len(Took._fields)))]


def make_rows(first: int, count: int) -> pa.Table:
    numbers = pa.array(range(first, first + count), pa.int64())
    remainder = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 100_000), 100_000))
    return pa.table(
        {
            "id": numbers,
            "amount": pc.divide(pc.cast(remainder, pa.float64()), 7.0),
            "name": pc.binary_join_element_wise("name", pc.cast(remainder, pa.string()), " "),
        }
    )


def make_source(rows: int, count: int) -> pa.Table:
    """Half of it updates rows all over the table, half of it is new."""
    step = max(1, rows // (count // 2))
    old = pa.array([number * step for number in range(count // 2)], pa.int64())
    new = pa.array(range(rows, rows + count - count // 2), pa.int64())
    ids = pa.concat_arrays([old, new])
    return pa.table({"id": ids, "amount": pa.repeat(1.5, count), "name": pa.repeat("merged", count)})


def fill(place: Path, rows: int) -> None:
    import deltalake

    import penstock

    with penstock.open(place / "lake", author="bench") as lake:
        for piece in range(PIECES):
            part = make_rows(piece * rows // PIECES, rows // PIECES)
            lake.table("t").write(part)
            deltalake.write_deltalake(str(place / "plain"), part, mode="append")


def run(engine: str, place: Path, rows: int, count: int, results: Any) -> None:
    source = make_source(rows, count)
    start, busy = time.perf_counter(), time.process_time()
    changed = merge_with_penstock(place, source) if engine == OURS else merge_with_deltalake(place, source)
    took = time.perf_counter() - start, time.process_time() - busy
    # That of this process alone: getrusage begins with the size of the one that started it.
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    results.put((changed, *took, 0.0 if peak is None else int(peak[1]) / 1024))


def merge_with_penstock(place: Path, source: pa.Table) -> int:
    import penstock

    with penstock.open(place / "lake") as lake:
        merge = lake.table("t").merge(source, on=["id"])
        changed = merge.when_matched_update_all().when_not_matched_insert_all().commit()
    return (changed.updated or 0) + (changed.inserted or 0)


def merge_with_deltalake(place: Path, source: pa.Table) -> int:
    import deltalake

    there = deltalake.DeltaTable(str(place / "plain"))
    merge = there.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return int(done["num_target_rows_updated"]) + int(done["num_target_rows_inserted"])
