"""Large data files are read a part at a time, whatever their row groups are, and give the same rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

import penstock
from penstock.formats.delta.log import scan
from penstock.formats.rows import parquet_batches
from penstock.storage.places import Place
from tests.formats.delta.logs import Table

ROWS = 40_000
NESTED = pa.struct([("x.y", pa.int64()), ("z", pa.list_(pa.string()))])


def make_rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table({
        "id": pa.array(numbers, pa.int64()),
        "a.b": pa.array([f"{number * 2654435761 % 2**61:x}" for number in numbers]),
        "a": pa.array([{"x.y": n, "z": [str(n)] * (n % 3)} for n in numbers], NESTED),
    })  # fmt: skip


@pytest.fixture
def fetched(table: Table, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is fetched of files: of those of the table, none is so small that it is fetched whole."""
    sizes: list[int] = []
    read_range = Place.read_range

    def counted(place: Place, name: str, start: int, length: int) -> bytes | None:
        sizes.append(length)
        return read_range(place, name, start, length)

    monkeypatch.setattr(Place, "read_range", counted)
    monkeypatch.setattr("penstock.formats.delta.log.scan.WHOLE_MAX_BYTES", 0)
    return sizes


def write(table: Table, group_rows: int) -> tuple[pa.Table, int]:
    """A table of one file, with row groups of so many rows, and the size of the file."""
    rows = make_rows()
    write_deltalake(table.root, rows)
    (file,) = table.root.glob("*.parquet")
    pq.write_table(rows, file, row_group_size=group_rows, data_page_size=2000, use_dictionary=False)
    size = file.stat().st_size
    (log,) = (table.root / "_delta_log").glob("*.json")
    (add,) = penstock.read_delta(table.root).files()
    log.write_text(log.read_text().replace(f'"size":{add.size}', f'"size":{size}'))
    return rows, size


def first_and_rest(batches: Any, fetched: list[int]) -> tuple[int, pa.Table]:
    """How much was fetched for the first batch, and all rows."""
    first = next(batches)
    so_far = sum(fetched)
    return so_far, pa.Table.from_batches([first, *batches])


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("columns", [None, ["id"], ["a", "a.b"]])
@pytest.mark.parametrize(("part", "group_rows"), [(100_000, 2000), (1, 2000), (100_000, ROWS)])
def test_of_a_large_file_a_part_is_fetched_at_a_time(
    table: Table,
    fetched: list[int],
    monkeypatch: pytest.MonkeyPatch,
    part: int,
    group_rows: int,
    columns: list[str] | None,
    is_near: bool,
) -> None:
    if not is_near:  # as in a bucket, where each question takes time
        far = partial(parquet_batches.read_batches, is_near=False)
        monkeypatch.setattr(scan, "read_batches", lambda *given, **_: far(*given))
    for name, size in {
        "PART_BYTES": part, "GROUP_MAX_BYTES": part, "COLUMN_BYTES": 1000, "BATCH_BYTES": 50_000
    }.items():  # fmt: skip
        monkeypatch.setattr(parquet_batches, name, size)
    rows, size = write(table, group_rows)
    del fetched[:]
    so_far, found = first_and_rest(iter(penstock.read_delta(table.root).to_batches(columns)), fetched)
    assert found.equals(rows if columns is None else rows.select(columns))
    assert so_far < size / 2, "the first batch comes before most of the file was fetched"


def test_batches_of_wide_rows_have_fewer_of_them(table: Table, fetched: list[int]) -> None:
    rows = pa.table({"id": range(100), "note": [bytes([number]) * 1_000_000 for number in range(100)]})
    write_deltalake(table.root, rows)
    batches = list(penstock.read_delta(table.root).to_batches())
    assert max(batch.nbytes for batch in batches) < 2 * parquet_batches.BATCH_BYTES
    assert pa.Table.from_batches(batches)["note"].to_pylist() == rows["note"].to_pylist()
