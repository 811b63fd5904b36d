"""A merge of rows without Spark beside deltalake's: ``python -m benchmarks.row_merge [ROWS] [SOURCE_ROWS]``.

Each side runs in a process of its own, of which the time, the time of the processor and the memory are told.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

ROWS = 5_000_000
SOURCE_ROWS = 500_000
PIECES = 10


def make_rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "amount": pa.array([number % 1000 / 7 for number in numbers], pa.float64()),
            "name": pa.array([f"name {number % 100_000}" for number in numbers]),
        }
    )


def make_source(rows: int, count: int) -> pa.Table:
    """Half of it updates rows all over the table, half of it is new."""
    step = max(1, rows // (count // 2))
    old = pa.array([number * step for number in range(count // 2)], pa.int64())
    new = pa.array(range(rows, rows + count - count // 2), pa.int64())
    ids = pa.concat_arrays([old, new])
    return pa.table({"id": ids, "amount": pa.repeat(1.5, count), "name": pa.repeat("merged", count)})


def merge_with_penstock(place: str, source: pa.Table) -> int:
    import penstock

    with penstock.open(place) as lake:
        merge = lake.table("t").merge(source, on=["id"])
        changed = merge.when_matched_update_all().when_not_matched_insert_all().commit()
    return (changed.updated or 0) + (changed.inserted or 0)


def merge_with_deltalake(place: str, source: pa.Table) -> int:
    import deltalake

    merge = deltalake.DeltaTable(place).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return int(done["num_target_rows_updated"]) + int(done["num_target_rows_inserted"])


def run(engine: str, place: str, rows: int, count: int, results: Any) -> None:
    source = make_source(rows, count)
    began, busy = time.perf_counter(), time.process_time()
    changed = (merge_with_penstock if engine == "penstock" else merge_with_deltalake)(place, source)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    results.put((engine, changed, seconds, busy, memory_mib))


def fill(place: Path, rows: int) -> None:
    import deltalake

    import penstock

    with penstock.open(place / "lake", author="bench") as lake:
        for piece in range(PIECES):
            part = make_rows(piece * rows // PIECES, rows // PIECES)
            lake.table("t").write(part)
            deltalake.write_deltalake(str(place / "plain"), part, mode="append")


def main(rows: int = ROWS, count: int = SOURCE_ROWS) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        filling = context.Process(target=fill, args=(place, rows))
        filling.start()
        filling.join()
        for engine, where in (("penstock", "lake"), ("deltalake", "plain")):
            results: Any = context.Queue()
            process = context.Process(target=run, args=(engine, str(place / where), rows, count, results))
            process.start()
            name, changed, seconds, busy, memory_mib = results.get()
            process.join()
            took = f"{seconds:.1f} s, {busy:.1f} s of the processor"
            print(f"{name:10} {changed:,} rows changed in {took}, at most {memory_mib:,.0f} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
