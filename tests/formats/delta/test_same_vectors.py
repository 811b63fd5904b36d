"""Two branches delete the same rows of a file. An inline deletion vector is named by its bytes, so both sides
name the same file, as if one had the commit of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.lake.table import Table

Change = Callable[[Table], object]
Brings = Callable[[Lake], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table of one file, on main and dev."""
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        lake.create_table("t", data=rows(3, 4, 5, 6), properties={"delta.enableDeletionVectors": "true"})
        lake.branch("dev").create()
        yield lake
        assert lake.fsck().damages == ()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([0] * len(ids), pa.int64())})


def values(lake: Lake, ref: str | None = None) -> dict[int, int]:
    table = lake.table("t", ref).to_arrow()
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def delete(table: Table) -> None:
    table.delete("id = 4")


def update(table: Table) -> None:
    table.update({"v": 1}, "id = 4")


def merge(lake: Lake) -> None:
    lake.merge("dev")


def transplant(lake: Lake) -> None:
    lake.transplant("dev")


def rebase(lake: Lake) -> None:
    lake.rebase("dev", "main")


@pytest.mark.parametrize("bring", [merge, transplant, rebase])
@pytest.mark.parametrize(("ours", "theirs"), [(delete, update), (update, delete), (update, update)])
def test_a_row_that_one_side_deletes_and_the_other_updates_is_a_conflict(
    lake: Lake, ours: Change, theirs: Change, bring: Brings
) -> None:
    ours(lake.table("t"))
    theirs(lake.table("t", "dev"))
    with pytest.raises(MergeConflict):
        bring(lake)
    assert values(lake) == ({3: 0, 5: 0, 6: 0} if ours is delete else {3: 0, 4: 1, 5: 0, 6: 0})


@pytest.mark.parametrize("bring", [merge, transplant, rebase])
def test_so_it_is_where_the_branch_did_more_since(lake: Lake, bring: Brings) -> None:
    delete(lake.table("t"))
    update(lake.table("t", "dev"))
    head = lake.branch("dev").head
    lake.table("t", "dev").append(rows(7))
    with pytest.raises(MergeConflict):
        lake.transplant([head, lake.branch("dev").head]) if bring is transplant else bring(lake)
    assert values(lake) == {3: 0, 5: 0, 6: 0}


@pytest.mark.parametrize("bring", [merge, transplant, rebase])
def test_rows_that_both_sides_delete_are_deleted_once(lake: Lake, bring: Brings) -> None:
    delete(lake.table("t"))
    delete(lake.table("t", "dev"))
    head = lake.branch("dev").head
    lake.table("t", "dev").append(rows(7))
    if bring is transplant:
        lake.transplant([head, lake.branch("dev").head])
    else:
        bring(lake)
    assert values(lake, "dev" if bring is rebase else None) == {3: 0, 5: 0, 6: 0, 7: 0}


@pytest.mark.parametrize("change", [delete, update])
def test_what_was_transplanted_does_not_conflict_with_itself(lake: Lake, change: Change) -> None:
    change(lake.table("t", "dev"))
    lake.table("t").append(rows(9))
    lake.transplant("dev")
    wanted = values(lake)
    head = lake.branch().head
    lake.transplant("dev")
    assert lake.branch().head == head
    lake.table("t", "dev").append(rows(7))
    lake.merge("dev")
    assert values(lake) == {**wanted, 7: 0}


def test_a_deletion_that_came_with_other_commits_is_not_repeated(lake: Lake) -> None:
    """The target has it in the sum of a merge."""
    lake.table("t", "dev").append(rows(7))
    delete(lake.table("t", "dev"))
    deletion = lake.branch("dev").head
    lake.table("t").append(rows(9))
    lake.merge("dev")
    wanted = values(lake)
    lake.transplant(deletion)
    assert values(lake) == wanted == {3: 0, 5: 0, 6: 0, 7: 0, 9: 0}
