"""Identity columns: numbers are reserved per table for all branches, and no number is given away twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.calls import ReserveIdentities
from penstock.formats.delta.protocol.column_rules import (
    EXPLICIT,
    HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
)
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.rows.schema import Field, StructType
from penstock.kernel.number_ranges import NUMBER_MAX, RangeRequest, reserve_numbers
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.stores.memory import MemoryStore
from tests.formats.delta.rows import as_rows

KEY = "shop.orders"


def schema(start: int = 1, step: int = 1, *, explicit: bool = False, mark: int | None = None) -> StructType:
    notes = {IDENTITY_START: start, IDENTITY_STEP: step, EXPLICIT: explicit}
    if mark is not None:
        notes[HIGH_WATER_MARK] = mark
    return StructType(
        (
            Field(name="id", type="long", nullable=True, metadata=notes),
            Field(name="name", type="string", nullable=True),
        )
    )


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def names(*values: str) -> pa.Table:
    return pa.table({"name": list(values)})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def mark(table: Table) -> Any:
    return table.snapshot().schema.fields[0].metadata.get(HIGH_WATER_MARK)


def test_rows_are_numbered_on_all_branches_and_no_number_is_there_twice(lake: Lake, duckdb: Any) -> None:
    table = lake.delta.create(KEY, schema=schema(10, 5))
    assert "identityColumns" in supported_features(table.snapshot().protocol)
    table.append(names("a", "b"))
    assert ids(table) == [10, 15]
    assert mark(table) == 15
    dev, other = lake.branch("dev").create(), lake.branch("other").create()
    lake.table(KEY, "dev").append(names("c"))
    lake.table(KEY, "other").append(names("d", "e"))
    table.append(names("f"))
    assert ids(lake.table(KEY, "dev")) == [10, 15, 20]
    dev.merge_into("main")
    assert mark(table) == 35
    other.merge_into("main")
    assert ids(table) == [10, 15, 20, 25, 30, 35]
    assert mark(table) == 35
    lake.table(KEY, "dev").append(names("g"))
    dev.merge_into("main")
    assert (ids(table)[-1], mark(table)) == (40, 40)
    table.backfill_to_version()
    theirs = duckdb.sql(f"SELECT * FROM delta_scan('{table.location}')").to_arrow_table()
    assert as_rows(theirs) == as_rows(table.to_arrow())


def test_a_renamed_column_goes_on_where_it_was(lake: Lake) -> None:
    table = lake.delta.create(KEY, schema=schema(), properties={"delta.columnMapping.mode": "name"})
    table.append(names("a"))
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(names("b"))
    lake.delta.rename_column(KEY, "id", "number")
    table.append(names("c"))
    assert sorted(table.to_arrow()["number"].to_pylist()) == [1, 3]


def test_a_mark_never_falls(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=names("a", "b"), schema=schema())
    assert (ids(table), mark(table)) == ([1, 2], 2)
    table.append(names("c"))
    first = lake.branch("main").head
    table.append(names("d"))
    lake.revert(first)
    assert (ids(table), mark(table)) == ([1, 2, 4], 4)
    lake.revert("main")
    assert (ids(table), mark(table)) == ([1, 2, 3, 4], 4)
    table.restore(version=0)
    assert (ids(table), mark(table)) == ([1, 2], 4)
    table.overwrite(names("e"))
    assert (ids(table), mark(table)) == ([5], 5)
    lake.branch("dev").create("main~3")
    lake.table(KEY, "dev").append(names("x"))
    assert 6 in ids(lake.table(KEY, "dev"))
    location = table.location
    lake.delta.release(KEY)
    lake.delta.adopt(location, KEY)
    lake.table(KEY).append(names("f"))
    assert ids(lake.table(KEY))[-1] > 5


def test_numbers_of_others_are_taken_where_the_column_allows_them(lake: Lake) -> None:
    strict = lake.delta.create("shop.strict", schema=schema())
    with pytest.raises(InvalidRequest, match="leave the column out"):
        strict.append(pa.table({"id": [1], "name": ["a"]}))
    table = lake.delta.create(KEY, schema=schema(1, 3, explicit=True))
    table.append(pa.table({"id": [7, 20], "name": ["a", "b"]}))
    assert mark(table) == 22  # the first number of the column that is not before 20
    table.append(names("c"))
    assert ids(table) == [7, 20, 25]
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(pa.table({"id": [100], "name": ["d"]}))
    table.append(names("e"))
    dev.merge_into("main")
    assert ids(table) == [7, 20, 25, 100, 103]
    table.append(pa.table({"id": [-5], "name": ["f"]}))
    table.append(names("g"))
    assert ids(table)[-1] == 106


def test_writers_at_the_same_moment_get_numbers_of_their_own(lake: Lake) -> None:
    table = lake.delta.create(KEY, schema=schema())
    barrier = Barrier(4)

    def write(number: int) -> None:
        barrier.wait()
        for _ in range(3):
            lake.table(KEY).append(names(*"abc"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert ids(table) == list(range(1, 37))
    assert mark(table) == 36


def test_a_transaction_numbers_rows_that_land_beside_others(lake: Lake) -> None:
    table = lake.delta.create(KEY, schema=schema())
    with lake.transaction() as tx:
        tx.table(KEY).append(names("a", "b"))
        table.append(names("c"))
    assert (ids(table), mark(table)) == ([1, 2, 3], 3)


def test_a_lake_that_lost_count_goes_on_after_all_branches(lake: Lake, tmp_path: Path) -> None:
    """Copies of a lake leave the count behind."""
    table = lake.delta.create(KEY, schema=schema())
    table.append(names("a"))
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(names("b", "c"))
    lake.finish_background()
    penstock.copy(lake.url, tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as copy:
        numbers = copy.do(ReserveIdentities(key=Key.parse(KEY), column="id", count=1))
    assert numbers.last == 4


def test_numbers_end_where_a_long_does() -> None:
    store, table = MemoryStore(), UUID(int=1)

    def reserve(start: int, step: int, reached: int | None, size: int, column: str) -> int:
        request = RangeRequest(start, step, reached, size)
        return reserve_numbers(store, Settings(), table, {column: request})[column]

    assert reserve(0, -2, None, 3, "down") == -4
    assert reserve(0, -2, -7, 1, "down") == -10
    assert reserve(NUMBER_MAX - 1, 1, None, 2, "end") == NUMBER_MAX
    with pytest.raises(InvalidRequest, match="fewer than 1 unused numbers left"):
        reserve(NUMBER_MAX - 1, 1, None, 1, "end")
    assert reserve(5, 1, 2, 1, "before") == 5
