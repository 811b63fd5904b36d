"""Rows that a side has written into other files, as a compaction does, are there once after a merge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake, ref: str | None = None) -> list[int]:
    found: list[int] = sorted(lake.table("t", ref).to_arrow()["id"].to_pylist())
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table of two files on two branches."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1), format="parquet")
        lake.table("t").write(rows(2), mode="append")
        lake.branch("dev").create()
        yield lake
        assert lake.fsck().damages == ()


@pytest.mark.parametrize("bring", ["merge", "transplant", "rebase"])
def test_a_table_that_both_sides_compacted_is_a_conflict(lake: Lake, bring: str) -> None:
    lake.table("t").optimize()
    lake.table("t", "dev").optimize()
    with pytest.raises(MergeConflict, match="that one side rewrote into others"):
        getattr(lake, bring)("dev")
    assert ids(lake) == [1, 2]
    how = {"t": "drop"}
    getattr(lake, bring)("dev", keys=how)
    assert (ids(lake), ids(lake, "dev")) == ([1, 2], [1, 2])


@pytest.mark.parametrize("source", ["dev", "main"])
def test_rows_that_a_side_removed_do_not_come_back_by_a_compaction(lake: Lake, source: str) -> None:
    (path, _) = [file.path for file in lake.table("t").files.list()]
    lake.table("t").files.delete(path)
    lake.table("t", "dev").optimize()
    with pytest.raises(MergeConflict, match="that one side rewrote into others") as refused:
        lake.merge(source, "main" if source == "dev" else "dev")
    assert [conflict.path for conflict in refused.value.conflicts] == [path]


def test_rows_that_were_overwritten_do_not_come_back_by_a_compaction(lake: Lake) -> None:
    lake.table("t").write(rows(9), mode="overwrite")
    lake.table("t", "dev").optimize()
    with pytest.raises(MergeConflict, match="that one side rewrote into others"):
        lake.merge("dev")
    lake.merge("main", "dev")
    assert ids(lake, "dev") == [9]


def test_a_file_that_both_have_goes_where_the_source_has_compacted_it(lake: Lake) -> None:
    lake.table("t", "dev").write(rows(3), mode="append")
    lake.transplant("dev")
    lake.table("t", "dev").optimize()
    lake.merge("dev")
    assert ids(lake) == [1, 2, 3]


def test_one_compaction_that_both_have_is_no_conflict(lake: Lake) -> None:
    lake.table("t", "dev").optimize()
    lake.transplant("dev")
    lake.table("t").write(rows(3), mode="append")
    lake.table("t", "dev").write(rows(4), mode="append")
    lake.transplant("dev~1")
    lake.merge("dev")
    assert ids(lake) == [1, 2, 3, 4]


def test_what_one_side_compacted_and_the_other_appended_to_is_no_conflict(lake: Lake) -> None:
    lake.table("t", "dev").optimize()
    lake.table("t").write(rows(3), mode="append")
    lake.merge("dev")
    lake.table("t").optimize()
    lake.table("t", "dev").write(rows(4), mode="append")
    lake.merge("dev")
    assert ids(lake) == [1, 2, 3, 4]


def test_a_compaction_of_rows_that_the_target_never_had_is_a_conflict(lake: Lake) -> None:
    lake.table("t", "dev").write(rows(3), mode="append")
    lake.table("t", "dev").optimize()
    with pytest.raises(MergeConflict, match="that one side rewrote into others"):
        lake.transplant("dev")
    lake.merge("dev")
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize("since", ["overwrite", "delete", "compaction", "transaction"])
@pytest.mark.parametrize("made_on", ["main", "dev"])
def test_a_compaction_that_was_undone_comes_not_again_where_its_files_are_gone(
    lake: Lake, since: str, made_on: str
) -> None:
    lake.table("t", made_on).optimize()
    compaction = lake.branch(made_on).head
    if made_on == "dev":
        lake.transplant(compaction)
    lake.revert("main")
    table = lake.table("t")
    if since == "overwrite":
        table.write(rows(1, 3), mode="overwrite")
    elif since == "delete":
        table.files.delete(table.files.list()[0].path)
    elif since == "compaction":
        table.write(rows(3), mode="append")
        table.optimize()
    else:
        with lake.transaction() as transaction:
            transaction.write(rows(1, 3), "t", mode="overwrite")
    before = ids(lake)
    with pytest.raises(MergeConflict, match="that one side rewrote into others"):
        lake.transplant(compaction)
    assert ids(lake) == before


def test_a_compaction_that_was_undone_comes_again_beside_rows_that_came_since(lake: Lake) -> None:
    lake.table("t").optimize()
    compaction = lake.branch().head
    lake.revert("main")
    lake.table("t").write(rows(3), mode="append")
    lake.transplant(compaction)
    assert ids(lake) == [1, 2, 3]
    assert len(lake.table("t").files.list()) == 2


@pytest.mark.parametrize("by", ["revert", "revert of a revert"])
def test_rows_that_were_removed_after_a_compaction_do_not_come_back_by_its_undo(lake: Lake, by: str) -> None:
    lake.table("t").optimize()
    undone = lake.branch().head
    if by == "revert of a revert":
        lake.revert(undone)
        undone = lake.branch().head
    table = lake.table("t")
    table.files.delete(table.files.list()[0].path)
    removed, before = lake.branch().head, ids(lake)
    with pytest.raises(MergeConflict, match="had files of the commit to be reverted removed"):
        lake.revert(undone)
    assert ids(lake) == before
    lake.revert(removed)
    lake.revert(undone)
    assert ids(lake) == [1, 2]


def test_two_sides_that_only_removed_a_file_agree(lake: Lake) -> None:
    (path, _) = [file.path for file in lake.table("t").files.list()]
    for branch in ("main", "dev"):
        lake.table("t", branch).files.delete(path)
        lake.table("t", branch).write(rows(5), mode="append")
    lake.merge("dev")
    assert ids(lake)[-2:] == [5, 5]
    assert len(ids(lake)) == 3


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_commit_whose_rows_were_compacted_since_is_not_undone_by_itself(lake: Lake, mode: str) -> None:
    lake.table("t").write(rows(1, 3), mode=mode)
    lake.table("t").write(rows(4), mode="append")
    undone = lake.resolve("main~1")
    before = ids(lake)
    lake.table("t").optimize()
    with pytest.raises(MergeConflict, match="in files that a later commit wrote"):
        lake.revert(undone)
    assert ids(lake) == before
    if mode == "append":
        lake.revert("main")
        lake.revert(undone)
        assert ids(lake) == [1, 2, 4]
    else:
        lake.revert(undone, keys={"t": "force"})
        assert ids(lake) == [1, 2]


@pytest.mark.parametrize("commits_kept", [4, 7])
def test_a_commit_is_not_undone_beside_a_branch_whose_history_has_expired(
    tmp_path: Path, commits_kept: int
) -> None:
    settings = penstock.Settings(grace_s=0, nobody_writes=True)
    with penstock.open(tmp_path / "lake", create=True, settings=settings) as lake:
        lake.table("t").write(rows(1), format="parquet")
        lake.branch("dev").create()
        for number in range(10, 16):
            lake.table("t", "dev").write(rows(number), mode="append")
        lake.table("t").write(rows(2), mode="append")
        commit = lake.branch().head
        lake.merge("dev")
        lake.branch("dev").delete()
        lake.table("t").optimize()
        lake.keep_history(max_commits=commits_kept)
        assert lake.sweep().removed > 0
    with penstock.open(tmp_path / "lake") as lake:
        before = ids(lake)
        with pytest.raises(MergeConflict, match="in files that a later commit wrote"):
            lake.revert(commit)
        assert ids(lake) == before
