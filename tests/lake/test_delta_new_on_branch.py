"""A table that begins on a branch, and is changed there in every way, arrives on main as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


def append(table: Any) -> None:
    table.append(pa.table({"id": [4], "day": ["c"]}))


def overwrite(table: Any) -> None:
    table.overwrite(pa.table({"id": [5], "day": ["a"]}))


def overwrite_a_partition(table: Any) -> None:
    table.overwrite(pa.table({"id": [6], "day": ["a"]}), partitions={"day": "a"})


@pytest.mark.parametrize(
    ("deeds", "ids"),
    [
        ([overwrite], [5]),
        ([overwrite_a_partition], [3, 6]),
        ([append, overwrite], [5]),
        ([overwrite, append], [4, 5]),
        ([append, overwrite_a_partition, append], [3, 4, 4, 6]),
        ([overwrite_a_partition, overwrite, overwrite_a_partition], [6]),
    ],
    ids=lambda value: "-".join(one.__name__ for one in value) if callable(value[0]) else "",
)
def test_a_table_made_and_replaced_on_a_branch_is_merged(
    tmp_path: Path, deeds: list[Any], ids: list[int]
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        side = lake.branch("side").create(at="main")
        lake.delta.create("sales.orders", data=ROWS, partition_by="day", branch="side")
        for deed in deeds:
            deed(side.table("sales.orders"))
        side.merge_into("main")
        assert sorted(lake.table("sales.orders").to_arrow()["id"].to_pylist()) == ids
        append(side.table("sales.orders"))  # and the two go on together
        overwrite_a_partition(lake.table("sales.orders"))
        side.merge_into("main")
        found = lake.table("sales.orders").to_arrow().to_pylist()
    assert [one["id"] for one in found if one["day"] == "a"] == [6]
    assert [one["id"] for one in found if one["day"] == "c"].count(4) == ids.count(4) + 1
