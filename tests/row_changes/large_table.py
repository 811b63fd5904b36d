"""A Delta table that is larger than memory, changed in processes whose memory is measured: see
``test_large_tables``."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

import penstock
from penstock.lake.table import Table

NOTE: Final = 100
"""Bytes of a row that do not become fewer by compression; the first of them are those of its number."""
ROW_BYTES: Final = 8 + 8 + NOTE
GROUP_ROWS: Final = 500_000
SMALL_ROWS: Final = 500_000
NEW_ROWS: Final = 1000
EVERY: Final = 1000
"""Of so many rows, one changes: in every file."""
DELETED, UPDATED, MERGED, MARKED = 7, 8, 9, 10


def make_rows(numbers: range, amount: int = 0) -> pa.Table:
    count, ids = len(numbers), np.array(numbers, dtype=np.int64)
    notes = np.frombuffer(os.urandom(count * NOTE), dtype=np.uint8).reshape(count, NOTE).copy()
    notes[:, :8] = ids.view(np.uint8).reshape(count, 8)
    places = pa.py_buffer(np.arange(0, (count + 1) * NOTE, NOTE, dtype=np.int32))
    return pa.table({
        "id": pa.array(ids),
        "amount": pa.array(np.full(count, amount, dtype=np.int64)),
        "note": pa.Array.from_buffers(pa.binary(), count, [None, places, pa.py_buffer(notes)]),
    })  # fmt: skip


def make_table(place: Path, total_bytes: int, large_bytes: int) -> int:
    """A table of one large file and of many small ones; how many rows it has."""
    penstock.init(place).close()
    folder = place / "warehouse" / "t"
    folder.mkdir(parents=True)
    first = 0
    with pq.ParquetWriter(
        folder / "large.parquet", make_rows(range(1)).schema, use_dictionary=False
    ) as large:
        while first * ROW_BYTES < large_bytes:
            large.write_table(make_rows(range(first, first + GROUP_ROWS)), row_group_size=GROUP_ROWS)
            first += GROUP_ROWS
    while first * ROW_BYTES < total_bytes:
        rows = make_rows(range(first, first + SMALL_ROWS))
        pq.write_table(rows, folder / f"{first:010}.parquet", use_dictionary=False)
        first += SMALL_ROWS
    with penstock.open(place, author="tester") as lake:
        lake.delta.convert(folder, "t")
    return first


def delete(table: Table, _: int) -> int | None:
    return table.delete(f"id % {EVERY} = {DELETED}").deleted


def update(table: Table, _: int) -> int | None:
    return table.update({"amount": "amount + 1"}, f"id % {EVERY} = {UPDATED}").updated


def merge(table: Table, count: int) -> int | None:
    old, new = range(MERGED, count, EVERY), range(count, count + NEW_ROWS)
    source = pa.concat_tables([make_rows(old, 5), make_rows(new, 5)])
    merging = table.merge(source, on=["id"])
    changed = merging.when_matched_update_all().when_not_matched_insert_all().commit()
    assert changed.inserted == NEW_ROWS
    return changed.updated


def optimize(table: Table, _: int) -> int | None:
    return table.optimize(target_file_bytes=512 * 1024 * 1024).files_removed


def optimize_again(table: Table, _: int) -> int | None:
    return table.optimize(target_file_bytes=512 * 1024 * 1024).files_removed


def delete_by_vectors(table: Table, _: int) -> int | None:
    table.lake.delta.set_properties("t", {"delta.enableDeletionVectors": "true"})
    return table.delete(f"id % {EVERY} = {MARKED}").deleted


def read(table: Table, _: int) -> tuple[int, int, int]:
    """How many rows there are, and the sums of their numbers and amounts; every row has its own note."""
    rows = numbers = amounts = 0
    for batch in table.to_batches():
        ids = batch.column("id").to_numpy()
        notes = batch.column("note")
        start, end = notes.offset, notes.offset + len(notes)
        places = np.frombuffer(notes.buffers()[1], dtype=np.int32)[start : end + 1]
        assert (np.diff(places) == NOTE).all()
        data = np.frombuffer(notes.buffers()[2], dtype=np.uint8)[places[0] : places[-1]].reshape(-1, NOTE)
        assert (np.ascontiguousarray(data[:, :8]).view(np.int64).ravel() == ids).all()
        rows, numbers = rows + len(ids), numbers + int(ids.sum())
        amounts += int(batch.column("amount").to_numpy().sum())
    return rows, numbers, amounts


def measure(place: Path, change: Callable[[Table, int], Any], count: int) -> tuple[Any, int]:
    """What a change of the table answers, and how many bytes its process had in memory at most."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_run, args=(place, change, count, answers))
    process.start()
    process.join()
    assert process.exitcode == 0
    answer, peak_bytes = answers.get()
    return answer, peak_bytes


def _run(place: Path, change: Callable[[Table, int], Any], count: int, answers: Any) -> None:
    with penstock.open(place, author="tester") as lake:
        answer = change(lake.table("t"), count)
    # That of this process alone: getrusage tells of the one before exec too.
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    answers.put((answer, int(peak.split()[1]) * 1024))


def remove_former_files(place: Path) -> None:
    """Remove the files of earlier versions, which nobody reads any more here."""
    with penstock.open(place, author="tester") as lake:
        table = lake.table("t")
        lake.finish_background()
        current = {Path(table.location, file.key.path) for file in table.snapshot().files()}
    for file in set(_files(place)) - current:
        file.unlink()


def _files(place: Path) -> Iterator[Path]:
    return (place / "warehouse" / "t").glob("*.parquet")


def total_size(place: Path) -> int:
    return sum(file.stat().st_size for file in _files(place))
