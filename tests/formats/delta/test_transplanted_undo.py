"""An undo is transplanted to a branch that has what it undoes, by a transplant too: rows come back there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.lake.table import Table

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=[False, True], ids=["files", "vectors"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table with two rows; main has one more, and dev two others."""
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        lake.create_table("t", data=rows(1, 2), properties=VECTORS if request.param else {})
        lake.branch("dev").create()
        lake.table("t").append(rows(9))
        lake.table("t", "dev").append(rows(3, 4))
        yield lake
        assert lake.fsck().damages == ()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([0] * len(ids), pa.int64())})


def ids(lake: Lake, ref: str | None = None) -> list[int]:
    found: list[int] = sorted(lake.table("t", ref).to_arrow()["id"].to_pylist())
    return found


def delete_a_row(table: Table) -> None:
    table.delete("id = 4")


def delete_a_file(table: Table) -> None:
    table.delete("id > 2")


def update(table: Table) -> None:
    table.update({"v": 1}, "id = 4")


def overwrite(table: Table) -> None:
    table.overwrite(rows(7))


def optimize(table: Table) -> None:
    table.optimize()


def change_and_undo(lake: Lake, change: Callable[[Table], None], undo: str) -> list[str]:
    """Change the table on dev, and undo that: dev's three commits."""
    appended = lake.branch("dev").head
    change(lake.table("t", "dev"))
    changed = lake.branch("dev").head
    if undo == "revert":
        lake.revert(changed, "dev")
    else:
        lake.restore(["t"], to=appended, branch="dev")
    assert ids(lake, "dev") == [1, 2, 3, 4]
    return [appended, changed, lake.branch("dev").head]


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (delete_a_row, "revert"),
        (delete_a_file, "restore"),
        (update, "restore"),
        (overwrite, "revert"),
        (optimize, "revert"),
    ],
)
def test_what_an_undo_brings_back_comes_back_by_its_transplant_too(
    lake: Lake, change: Callable[[Table], None], undo: str
) -> None:
    commits = change_and_undo(lake, change, undo)
    for commit in commits:
        lake.transplant(commit)
    wanted = [1, 2, 3, 4] if change is overwrite else [1, 2, 3, 4, 9]
    assert ids(lake) == wanted
    head = lake.branch().head
    lake.transplant(commits[-1])  # it is there
    assert (ids(lake), lake.branch().head) == (wanted, head)
    lake.revert(head)
    assert ids(lake) != wanted or change in (optimize, update)
    lake.transplant(commits[-1])  # it was undone
    assert ids(lake) == wanted
    assert sorted(lake.table("t").to_arrow()["v"].to_pylist()) == [0] * len(wanted)


@pytest.mark.parametrize("undo", ["revert", "restore"])
def test_so_it_is_where_all_come_at_once(lake: Lake, undo: str) -> None:
    lake.transplant(change_and_undo(lake, delete_a_file, undo))
    assert ids(lake) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("lake", [False], indirect=True)
def test_rows_that_were_rewritten_do_not_come_twice(lake: Lake) -> None:
    """The branch has not deleted them, and holds them in another file."""
    appended, _, undone = change_and_undo(lake, delete_a_file, "revert")
    lake.transplant(appended)
    lake.table("t").optimize()
    with pytest.raises(MergeConflict, match="wrote rows of"):
        lake.transplant(undone)
    assert ids(lake) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_deletion_that_is_repeated_takes_no_rows_that_were_deleted_before_it(
    tmp_path: Path, is_restored: bool
) -> None:
    """One deletion marks a row of a file, the next one takes the rest of it, and both are undone."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        data = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64())})
        table = lake.delta.create("t", data=data, properties={"delta.enableDeletionVectors": "true"})
        created = lake.branch().head
        table.delete("id = 4")
        marked = lake.branch().head
        table.delete("id < 4")
        removed = lake.branch().head
        if is_restored:
            lake.restore(["t"], to=created)
        else:
            lake.revert(removed, "main")
            lake.revert(marked, "main")
        with pytest.raises(MergeConflict, match="that were deleted before are there again"):
            lake.transplant(removed, "main")
        lake.transplant(marked, "main")
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]
        lake.transplant(removed, "main")
        assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("has_vectors", [False, True])
def test_an_update_that_is_repeated_brings_no_rows_back_that_were_deleted_since(
    tmp_path: Path, has_vectors: bool
) -> None:
    properties = VECTORS if has_vectors else {}
    with penstock.open(tmp_path / "lake", create=True) as lake:
        table = lake.delta.create("t", data=rows(3, 4, 5, 6), properties=properties)
        merge = table.merge(rows(4, 6, 7, 8), "target.id = source.id").when_matched_update({"v": "1"})
        merge.when_not_matched_insert_all().commit()
        merged = lake.branch().head
        lake.revert(merged, "main")
        table.delete("id in (4, 5)")
        with pytest.raises(MergeConflict):
            lake.transplant(merged, "main")
        assert sorted(table.to_arrow()["id"].to_pylist()) == [3, 6]
