"""A branch has a file by a commit that was transplanted to it. Where a write took that file, a merge of the
branch does not bring it again: its rows may be in what the write put in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake

FORMATS = ("parquet", "delta", "lance")


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table with a row, and branches of it; main has two more rows, and so has dev, by a transplant."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1), format=request.param)
        for name in ("dev", "other"):
            lake.branch(name).create()
        lake.table("t").write(rows(2, 3), mode="append")
        lake.transplant(lake.branch().head, "dev")
        yield lake
        assert lake.fsck().damages == ()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake, ref: str | None = None) -> list[int]:
    found: list[int] = sorted(lake.table("t", ref).to_arrow()["id"].to_pylist())
    return found


def test_rows_that_were_written_anew_do_not_come_twice_and_deleted_ones_not_again(lake: Lake) -> None:
    lake.table("t").write(rows(1, 2), mode="overwrite")
    lake.merge("dev")
    assert ids(lake) == [1, 2]
    lake.merge("main", "dev")
    assert ids(lake, "dev") == [1, 2]


@pytest.mark.parametrize("lake", ["parquet", "delta"], indirect=True)
def test_what_else_the_branch_wrote_comes(lake: Lake) -> None:
    lake.table("t").write(rows(1, 2), mode="overwrite")
    lake.table("t", "dev").write(rows(4), mode="append")
    lake.merge("dev")
    assert ids(lake) == [1, 2, 4]
    lake.merge("main", "dev")
    assert ids(lake, "dev") == [1, 2, 4]


def test_so_it_is_where_a_transaction_wrote_them_anew_and_for_a_preview(lake: Lake) -> None:
    with lake.transaction() as transaction:
        transaction.write(rows(1, 2), "t", mode="overwrite")
    head = lake.branch().head
    assert not lake.merge("dev", dry_run=True).conflicts
    assert lake.branch().head == head
    lake.merge("dev")
    assert ids(lake) == [1, 2]


def test_rows_that_nobody_took_are_there_once(lake: Lake) -> None:
    lake.table("t").write(rows(5), mode="append")
    lake.merge("dev")
    assert ids(lake) == [1, 2, 3, 5]


@pytest.mark.parametrize("lake", ["parquet", "delta"], indirect=True)
def test_so_it_is_where_a_merge_brought_the_overwrite(lake: Lake) -> None:
    lake.table("t", "other").write(rows(1, 9), mode="overwrite")
    lake.merge("other")
    assert ids(lake) == [1, 9]
    lake.merge("dev")
    assert ids(lake) == [1, 9]
