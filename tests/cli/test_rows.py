"""Rows that are changed from the command line, and files that are kept in order."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from tests.cli.conftest import Terminal, anywhere


@pytest.fixture
def filled(terminal: Terminal) -> Terminal:
    with penstock.open(terminal.place) as lake:
        for number in range(3):
            lake.table("shop.items").write({"id": [2 * number, 2 * number + 1], "price": [1.0, 2.0]})
    return terminal


def rows(terminal: Terminal) -> list[list[object]]:
    found: list[list[object]] = terminal.json("sql", "select id, price from shop.items order by id")["rows"]
    return found


@anywhere
def test_rows_are_deleted_and_updated(filled: Terminal) -> None:
    assert filled("delete-rows", "shop.items", "--where", "id > 3").lines == [
        "deleted 2 rows: version 3 of shop.items"
    ]
    changed = filled.json("update-rows", "shop.items", "--set", "price=price * 2", "--where", "id = 1")
    assert (changed["updated"], changed["version"]) == (1, 4)
    assert rows(filled) == [[0, 1.0], [1, 4.0], [2, 1.0], [3, 2.0]]
    assert filled("delete-rows", "shop.items", "--where", "id > 30").lines == ["nothing to change"]
    assert "say which rows" in filled("delete-rows", "shop.items", status=2).err
    assert (
        "takes COLUMN=EXPRESSION" in filled("update-rows", "shop.items", "--set", "x", "--all", status=2).err
    )


@anywhere
def test_a_file_is_merged_into_a_table(filled: Terminal) -> None:
    path = filled.place.parent / "new.parquet"
    pq.write_table(pa.table({"id": [1, 9], "price": [5.0, 6.0]}), path)
    assert filled("upsert", "shop.items", str(path), "--on", "id").lines == [
        "updated 1 row, inserted 1 row: version 3 of shop.items"
    ]
    csv = filled.place.parent / "new.csv"
    csv.write_text("id,price\n9,7.5\n")
    changed = filled.json("upsert", "shop.items", str(csv), "--on", "id", "--delete-missing")
    assert (changed["updated"], changed["deleted"]) == (1, 6)
    assert rows(filled) == [[9, 7.5]]


@anywhere
def test_files_are_put_together(filled: Terminal) -> None:
    assert filled("optimize", "shop.items").lines[0].startswith("3 files (")
    assert filled("maintain", "--all").lines == ["shop.items  nothing to rewrite"]
    assert filled.json("maintain", "shop.items")["tables"][0]["problem"] is None
    assert "give tables, or --all" in filled("maintain", status=2).err
