"""Reverts of commits that were undone and done again before, on this branch or on another one: nothing is
there twice, and nothing that a later commit deleted comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from tests.formats.delta.sides import Side, create, foreign_ids, rows


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


def revert(lake: Lake, commit: str, branch: str = "main") -> str:
    lake.revert(commit, branch)
    return lake.branch(branch).head


def test_rows_that_a_merged_branch_brought_back_and_wrote_anew_are_a_conflict(lake: Lake) -> None:
    main = create(lake)
    appended = main.append(9, 10, 11).commit.id
    overwritten = main.overwrite(17).commit.id
    lake.merge("main", "dev")
    revert(lake, overwritten, "dev")
    Side(lake, "dev").delete(10)
    lake.merge("dev", "main")
    assert main.ids() == [1, 2, 3, 4, 5, 6, 9, 11]
    with pytest.raises(MergeConflict, match=r"\(DELETE\) of commit .* wrote rows of"):
        lake.revert(appended)
    assert main.ids() == [1, 2, 3, 4, 5, 6, 9, 11]


def test_a_deletion_that_a_merged_branch_has_undone_is_not_undone_twice(lake: Lake) -> None:
    main = create(lake)
    removed = main.remove_unread(5, 6).commit.id
    lake.merge("main", "dev")
    revert(lake, removed, "dev")
    Side(lake, "dev").delete(5)
    lake.merge("dev", "main")
    assert main.ids() == [1, 2, 3, 4, 6]
    revert(lake, removed)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 6]


def test_a_row_deleted_after_an_overwrite_was_undone_stays_deleted(lake: Lake) -> None:
    main = create(lake)
    overwritten = main.overwrite(9).commit.id
    first = revert(lake, overwritten)
    again = revert(lake, first)
    revert(lake, overwritten)
    main.delete(4)
    revert(lake, again)
    assert main.ids() == [1, 2, 3, 5, 6]


def test_a_row_whose_deletion_was_undone_and_done_again_stays_deleted(lake: Lake) -> None:
    main = create(lake)
    overwritten = main.overwrite(9).commit.id
    revert(lake, overwritten)
    deleted = main.delete(4).commit.id
    revert(lake, revert(lake, deleted))
    assert main.ids() == [1, 2, 3, 5, 6]
    revert(lake, overwritten)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 5, 6]


def test_an_append_that_was_undone_stays_so_when_an_overwrite_is_undone_twice(lake: Lake) -> None:
    main = create(lake)
    appended = main.append(7).commit.id
    overwritten = main.overwrite(9).commit.id
    revert(lake, overwritten)
    revert(lake, appended)
    revert(lake, overwritten)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


def test_an_overwrite_that_was_undone_and_brought_again_is_undone_again(lake: Lake) -> None:
    main = create(lake)
    overwritten = main.overwrite(9).commit.id
    revert(lake, overwritten)
    lake.transplant(overwritten)
    assert main.ids() == [9]
    revert(lake, overwritten)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("day", [None, "wed"])
def test_what_an_overwrite_took_when_it_was_brought_again_is_a_conflict(lake: Lake, day: str | None) -> None:
    main = create(lake)
    overwritten = main.overwrite(9, day=day).commit.id
    revert(lake, overwritten)
    main.append(7, day=day or "mon")
    again = lake.transplant(overwritten).head
    assert 7 not in main.ids()
    with pytest.raises(MergeConflict, match=r"repeated it, and also removed .* revert that commit instead"):
        lake.revert(overwritten)
    revert(lake, again)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7]


def test_an_overwrite_that_stands_again_is_not_brought_again(lake: Lake) -> None:
    """The revert of its revert finds no file to change, since another one replaced all: it counts, too."""
    main = create(lake)
    overwritten = main.overwrite(9).commit.id
    undone = lake.revert(overwritten).head
    main.overwrite(10)
    lake.revert(undone)
    lake.transplant(overwritten)
    assert main.ids() == foreign_ids(lake) == [10]


def test_a_deletion_that_was_undone_and_brought_again_is_undone_again(lake: Lake) -> None:
    main = create(lake)
    removed = main.remove_unread(5, 6).commit.id
    revert(lake, removed)
    lake.transplant(removed)
    assert main.ids() == [1, 2, 3, 4]
    revert(lake, removed)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


def test_an_append_that_was_undone_twice_is_brought_again(lake: Lake) -> None:
    main = create(lake)
    appended = main.append(7).commit.id
    revert(lake, revert(lake, appended))
    revert(lake, appended)
    lake.transplant(appended)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7]


def test_rows_that_were_brought_again_and_deleted_do_not_come_back_with_a_revert_of_their_revert(
    lake: Lake,
) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    appended = main.append(7, 8, 9).commit.id
    undone = revert(lake, appended)
    lake.transplant(appended)
    main.compact("mon")
    main.mask(8)
    revert(lake, undone)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7, 9]


def compacted_on_a_branch(lake: Lake) -> tuple[str, str]:
    """A commit that appends 7, 8 and 9 on a branch and is merged together with a compaction: its id, and the
    merge's."""
    create(lake, "dev", "fix")
    fix, dev = Side(lake, "fix"), Side(lake, "dev")
    appended = fix.append(7, 8, 9).commit.id
    fix.compact("mon")
    dev.append(11)
    merged = lake.merge("fix", "dev").head
    assert dev.ids() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    return appended, merged


def test_a_commit_that_a_merge_brought_in_sum_is_not_brought_again(lake: Lake) -> None:
    appended, _ = compacted_on_a_branch(lake)
    assert not lake.transplant(appended, "dev").applied
    assert Side(lake, "dev").ids() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]


def test_a_commit_that_a_merge_brought_in_sum_is_brought_again_once_the_merge_is_reverted(lake: Lake) -> None:
    appended, merged = compacted_on_a_branch(lake)
    dev = Side(lake, "dev")
    undone = revert(lake, merged, "dev")
    assert dev.ids() == [1, 2, 3, 4, 5, 6, 11]
    revert(lake, undone, "dev")
    assert not lake.transplant(appended, "dev").applied
    assert dev.ids() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    revert(lake, merged, "dev")
    lake.transplant(appended, "dev")
    assert dev.ids() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    lake.merge("dev", "main")
    assert foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]


def test_a_commit_whose_rows_a_revert_brought_back_in_another_file_is_not_brought_again(lake: Lake) -> None:
    appended, merged = compacted_on_a_branch(lake)
    dev = Side(lake, "dev")
    undone = revert(lake, merged, "dev")
    lake.transplant(appended, "dev")
    with pytest.raises(MergeConflict):  # the rows would be there twice
        lake.revert(undone, "dev")
    assert dev.ids() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]


def test_a_commit_that_was_undone_on_a_merged_branch_is_brought_again(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    appended = main.append(7).commit.id
    lake.merge("main", "dev")
    revert(lake, appended, "dev")
    dev.append(11)
    lake.merge("dev", "main")
    assert main.ids() == [1, 2, 3, 4, 5, 6, 11]
    lake.transplant(appended)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7, 11]


def test_a_merge_of_which_each_commit_was_undone_is_brought_again_as_a_whole(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    commits = [dev.append(7).commit.id, dev.append(8).commit.id]
    merged = lake.merge("dev", "main").head
    main.append(11)
    for one in commits:
        revert(lake, one)
    assert main.ids() == [1, 2, 3, 4, 5, 6, 11]
    lake.transplant(merged)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 7, 8, 11]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_merge_that_was_taken_as_it_is_is_brought_again_as_a_whole(
    lake: Lake, order: tuple[int, int]
) -> None:
    create(lake, "dev", "fix")
    dev, fix = Side(lake, "dev"), Side(lake, "fix")
    commits = [dev.append(7).commit.id, dev.append(8).commit.id]
    merged = lake.merge("dev", "fix").head
    for one in order:
        revert(lake, commits[one], "fix")
    assert fix.ids() == [1, 2, 3, 4, 5, 6]
    lake.transplant(merged, "fix")
    assert fix.ids() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_overwrite_that_was_brought_again_is_not_brought_a_third_time(lake: Lake) -> None:
    main = create(lake)
    overwritten = main.overwrite(9).commit.id
    revert(lake, overwritten)
    lake.transplant(overwritten)
    main.append(20)
    assert not lake.transplant(overwritten).applied
    assert main.ids() == foreign_ids(lake) == [9, 20]


def test_rows_that_were_deleted_since_do_not_come_with_files_that_a_revert_touched(lake: Lake) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    both = pa.concat_tables([rows(7), rows(8, 9, day="tue")])
    appended = main.table.append(both).commit.id
    main.delete(7)
    masked = main.mask(9).commit.id
    revert(lake, masked)
    assert not lake.transplant(appended).applied
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6, 8, 9]


def test_a_vector_that_stands_is_not_written_again_with_files_that_a_revert_touched(lake: Lake) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    masked = main.mask_and_append(3, 7, 8).commit.id
    again = main.mask(8).commit.id
    revert(lake, again)
    assert not lake.transplant(masked).applied
    assert main.ids() == foreign_ids(lake) == [1, 2, 4, 5, 6, 7, 8]


def test_a_row_whose_deletion_by_a_vector_was_undone_and_done_again_stays_deleted(lake: Lake) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    masked = main.mask(3).commit.id
    revert(lake, masked)
    again = main.mask(3).commit.id
    revert(lake, revert(lake, again))
    assert main.ids() == [1, 2, 4, 5, 6]
    revert(lake, masked)
    assert main.ids() == foreign_ids(lake) == [1, 2, 4, 5, 6]
    revert(lake, again)
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


def test_an_overwrite_of_a_day_is_undone_where_its_merge_took_other_days(lake: Lake) -> None:
    main, dev = create(lake), Side(lake, "dev")
    dev.overwrite(11)
    day = dev.overwrite(13, day="wed").commit.id
    main.append(16)
    lake.merge("dev", "main")
    assert main.ids() == [11, 13]
    revert(lake, day)
    assert main.ids() == foreign_ids(lake) == [11]


@pytest.mark.parametrize("undo", ["transplant", "revert"])
def test_files_that_came_and_went_within_a_merged_branch_and_were_restored_are_a_conflict(
    lake: Lake, undo: str
) -> None:
    """The merge has their rows in the file that they were compacted to."""
    lake.create_table("t", data=rows(1))
    for name in ("dev", "third"):
        lake.branch(name).create()
    dev = lake.table("t", "dev")
    appended = dev.append(rows(2, 3)).commit.id
    dev.optimize()
    merged = lake.merge("dev", "third").head
    branch = "dev" if undo == "transplant" else "third"
    lake.restore(["t"], to=appended, branch=branch)
    with pytest.raises(MergeConflict, match="with rows of the commit"):
        lake.transplant(merged, "dev") if undo == "transplant" else lake.revert(merged, "third")
    assert sorted(lake.table("t", branch).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    lake.revert(branch, branch)  # as the conflict advises
    lake.transplant(merged, "dev") if undo == "transplant" else lake.revert(merged, "third")
    expected = [1, 2, 3] if undo == "transplant" else [1]
    assert sorted(lake.table("t", branch).to_arrow()["id"].to_pylist()) == expected


def test_rows_that_were_restored_and_rewritten_are_a_conflict_with_what_took_their_place(lake: Lake) -> None:
    """The files that were restored are gone by now, and their rows are in others."""
    table = lake.create_table("t", data=rows(1, 2))
    first = lake.branch().head
    table.update({"day": "'tue'"}, "id = 1")
    table.overwrite(rows(3))
    overwritten = lake.branch().head
    lake.restore(["t"], to=first)
    table.update({"day": "'wed'"})
    with pytest.raises(MergeConflict, match=r"\(RESTORE\) of commit .* from before it"):
        lake.revert(overwritten)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("rewritten", ["main", "dev"])
def test_rows_that_a_merge_brought_and_the_next_one_rewrote_are_a_conflict(
    lake: Lake, rewritten: str
) -> None:
    """The branch takes main's versions as they are, so that the merge itself is no version of its line."""
    main = create(lake)
    Side(lake, "dev").append(9)
    main.append(10, 11)
    lake.merge("main", "dev")
    merged = lake.branch("dev").head
    main.delete(10) if rewritten == "main" else main.append(12)
    lake.merge("main", "dev")
    if rewritten == "dev":
        Side(lake, "dev").delete(10)
    with pytest.raises(MergeConflict, match=r"\(DELETE\) of commit .* wrote rows of"):
        lake.revert(merged, "dev")


def test_rows_that_a_merge_brought_go_after_the_next_one(lake: Lake) -> None:
    main = create(lake)
    Side(lake, "dev").append(9)
    main.append(10, 11)
    lake.merge("main", "dev")
    merged = lake.branch("dev").head
    main.append(12)
    lake.merge("main", "dev")
    lake.revert(merged, "dev")
    assert Side(lake, "dev").ids() == [1, 2, 3, 4, 5, 6, 9, 12]


def test_commits_that_change_what_a_table_is_clustered_by_are_undone_and_done_again(tmp_path: Path) -> None:
    """Newest first, and several at once; one whose change was changed since is a conflict."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        table = lake.delta.create("t", data=pa.table({"id": [1], "v": [1]}))

        def clustering() -> Any:
            domain = table.snapshot().log_snapshot.domains.get("delta.clustering")
            return None if domain is None else json.loads(domain.configuration)["clusteringColumns"]

        commits = []
        for columns in (["id"], ["v"], ["id", "v"]):
            lake.delta.cluster_by("t", columns)
            commits.append(lake.branch().head)
        with pytest.raises(MergeConflict, match=r"'delta\.clustering' was changed since, by version 3"):
            lake.revert(commits[1], "main")
        for commit, expected in zip(reversed(commits), ([["v"]], [["id"]], None), strict=True):
            lake.revert(commit, "main")
            assert clustering() == expected
        lake.transplant(commits, "main")
        assert clustering() == [["id"], ["v"]]
        version = table.version
        lake.transplant(commits[2], "main")
        assert table.version == version, "it stands"
