"""A branch has a file by a commit that was transplanted to it. Where a write took that file, a merge of the
branch does not bring it again: its rows may be in what the write put in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.files import merge_rules
from penstock.formats.files.content import FilesTable

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


# -- a commit that is transplanted again -------------------------------------------------------------------


@pytest.fixture(params=FORMATS)
def repeated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table with a row on main and dev. Dev has two more rows, and main has them by a transplant."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1), format=request.param)
        lake.branch("dev").create()
        lake.table("t", "dev").write(rows(2, 3), mode="append")
        lake.transplant("dev")
        yield lake
        assert lake.fsck().damages == ()


FILES_AND_DELTA = pytest.mark.parametrize("repeated", ["parquet", "delta"], indirect=True)
FILES = pytest.mark.parametrize("repeated", ["parquet"], indirect=True)


def test_a_commit_whose_files_were_compacted_does_not_come_twice(repeated: Lake) -> None:
    repeated.table("t").optimize()
    head = repeated.branch().head
    repeated.transplant("dev")
    assert ids(repeated) == [1, 2, 3]
    assert repeated.branch().head == head


@FILES_AND_DELTA
def test_a_commit_whose_rows_were_overwritten_does_not_come_twice(repeated: Lake) -> None:
    repeated.table("t").write(rows(1, 2), mode="overwrite")
    repeated.transplant("dev")
    assert ids(repeated) == [1, 2]


@FILES_AND_DELTA
def test_nor_does_it_by_a_rebase(repeated: Lake) -> None:
    repeated.table("t").write(rows(1, 2, 3), mode="overwrite")
    repeated.rebase("dev")
    assert ids(repeated, "dev") == [1, 2, 3]


@pytest.mark.parametrize("commit", ["main~1", "copy"])
def test_nor_on_the_branch_on_which_it_was_made(repeated: Lake, commit: str) -> None:
    repeated.branch("copy").create(at="dev~1")
    repeated.transplant("main", "copy")
    repeated.table("t").optimize()
    repeated.transplant(commit)
    assert ids(repeated) == [1, 2, 3]


def test_nor_where_a_merge_brought_it(repeated: Lake) -> None:
    repeated.branch("other").create(at="dev~1")
    repeated.table("t", "other").write(rows(4), mode="append")
    commit = repeated.branch("other").head
    repeated.merge("other")
    repeated.table("t").optimize()
    repeated.transplant(commit)
    assert ids(repeated) == [1, 2, 3, 4]


@pytest.mark.parametrize("undo", ["revert", "restore"])
def test_a_commit_that_was_undone_comes_again(repeated: Lake, undo: str) -> None:
    if undo == "revert":
        repeated.revert("main")
    else:
        repeated.restore(["t"], to="main~1")
    assert ids(repeated) == [1]
    for _ in range(2):  # the second one finds it there
        repeated.transplant("dev")
        assert ids(repeated) == [1, 2, 3]
    repeated.revert("main")
    assert ids(repeated) == [1]


def test_a_commit_that_was_compacted_and_undone_comes_again(repeated: Lake) -> None:
    """What an undo took is not there any more, in whatever file it was."""
    commit = repeated.branch().head
    repeated.table("t").optimize()
    repeated.restore(["t"], to=f"{commit}~1")
    assert ids(repeated) == [1]
    repeated.transplant(commit)
    assert ids(repeated) == [1, 2, 3]


def test_a_commit_does_not_come_twice_where_an_undo_brought_the_compacted_file_back(repeated: Lake) -> None:
    commit = repeated.branch().head
    repeated.table("t").optimize()
    compacted = repeated.branch().head
    for state in (commit, compacted):
        repeated.restore(["t"], to=state)
    repeated.transplant(commit)
    assert ids(repeated) == [1, 2, 3]


@FILES
def test_it_is_a_conflict_where_files_came_from_elsewhere_instead(repeated: Lake) -> None:
    """Nobody can tell by the files of main alone that the one which dev compacted holds the rows."""
    commit = repeated.branch("dev").head
    repeated.table("t", "dev").optimize()
    repeated.transplant("dev", keys={"t": "force"})
    with pytest.raises(MergeConflict, match="may have the commit's rows in other files"):
        repeated.transplant(commit)
    assert ids(repeated) == [1, 2, 3]
    repeated.transplant(commit, keys={"t": "drop"})
    assert ids(repeated) == [1, 2, 3]


@FILES
def test_a_file_that_was_put_again_since_is_no_conflict(repeated: Lake) -> None:
    table = repeated.table("t", "dev")
    table.files.write({"note": b"1"})
    commit = repeated.branch("dev").head
    repeated.transplant(commit)
    repeated.table("t").files.write({"note": b"2"})
    repeated.transplant(commit)
    assert repeated.table("t").files.read("note") == b"2"


# -- a commit that removes what the target does not have ---------------------------------------------------


@pytest.fixture(params=FORMATS)
def added(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table with a row on main and dev; dev has two more, and main another one."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1), format=request.param)
        lake.branch("dev").create()
        lake.table("t", "dev").write(rows(2, 3), mode="append")
        lake.table("t").write(rows(9), mode="append")
        yield lake
        assert lake.fsck().damages == ()


def remove_rows(lake: Lake, ref: str) -> None:
    """Remove the two rows: a table of files has them in a file."""
    table = lake.table("t", ref)
    if isinstance(lake.at(ref).get("t"), FilesTable):
        (added,) = {file.path for file in table.files.list()} - {
            file.path for file in lake.table("t", f"{ref}~1").files.list()
        }
        table.files.delete(added)
    else:
        table.delete("id > 1")


def test_a_removal_of_rows_that_the_target_never_had_is_a_conflict(added: Lake) -> None:
    remove_rows(added, "dev")
    head = added.branch().head
    assert added.transplant("dev", dry_run=True).conflicts
    with pytest.raises(MergeConflict) as refused:
        added.transplant("dev")
    assert {str(each.key) for each in refused.value.conflicts} == {"t"}
    assert (ids(added), added.branch().head) == ([1, 9], head)
    added.transplant("dev", keys={"t": "drop"})
    assert ids(added) == [1, 9]


@pytest.mark.parametrize("added", ["parquet"], indirect=True)
def test_the_conflict_names_the_paths_which_can_be_left_out(added: Lake) -> None:
    table = added.table("t", "dev")
    table.files.write({"old/a.csv": b"1", "b.csv": b"2"})
    table.files.move("old/a.csv", "new/a.csv")
    with pytest.raises(MergeConflict, match="never had files that the commit removes") as refused:
        added.transplant("dev")
    assert [each.path for each in refused.value.conflicts] == ["old/a.csv"]
    added.transplant("dev", keys={"t": {"old/": "drop"}})
    assert added.table("t").files.read("new/a.csv") == b"1"


def test_a_removal_comes_with_the_commit_that_added_the_rows(added: Lake) -> None:
    commit = added.branch("dev").head
    remove_rows(added, "dev")
    added.transplant([commit, added.branch("dev").head])
    assert ids(added) == [1, 9]


@pytest.mark.parametrize("added", ["parquet"], indirect=True)
def test_a_removal_that_the_target_has_had_is_not_repeated(added: Lake) -> None:
    commit = added.branch("dev").head
    remove_rows(added, "dev")
    removal = added.branch("dev").head
    for _ in range(2):
        added.transplant([commit, removal])
        assert ids(added) == [1, 9]
    assert not added.transplant(removal).applied
    added.table("t").write(rows(5), mode="append")
    assert not added.transplant(removal).applied
    added.revert("main~1")
    assert ids(added) == [1, 2, 3, 5, 9]
    added.transplant(removal)
    assert ids(added) == [1, 5, 9]


# -- an undo on the target, and a merge of the branch ------------------------------------------------------


@FILES_AND_DELTA
@pytest.mark.parametrize("undo", ["revert", "restore"])
@pytest.mark.parametrize("bring", ["merge", "rebase"])
def test_an_undo_stands_although_the_branch_has_the_rows(repeated: Lake, undo: str, bring: str) -> None:
    if undo == "revert":
        repeated.revert("main")
    else:
        repeated.restore(["t"], to="main~1")
    repeated.table("t", "dev").write(rows(4), mode="append")
    if bring == "merge":
        repeated.merge("dev")
        assert ids(repeated) == [1, 4]
        repeated.merge("main", "dev")
    else:
        repeated.rebase("dev")
    assert ids(repeated, "dev") == [1, 4]


BOTH_HAVE_THEM, NONE_HAS_THEM = [1, 2, 3], [1]


@pytest.mark.parametrize("undo", ["revert", "restore"])
@pytest.mark.parametrize(
    ("repeated", "undone_on", "to_main", "to_dev"),
    [
        ("delta", "main", NONE_HAS_THEM, NONE_HAS_THEM),
        ("delta", "dev", BOTH_HAVE_THEM, BOTH_HAVE_THEM),
        ("parquet", "main", NONE_HAS_THEM, BOTH_HAVE_THEM),
        ("parquet", "dev", BOTH_HAVE_THEM, NONE_HAS_THEM),
        ("lance", "main", BOTH_HAVE_THEM, BOTH_HAVE_THEM),
        ("lance", "dev", BOTH_HAVE_THEM, BOTH_HAVE_THEM),
    ],
    indirect=["repeated"],
)
def test_what_a_merge_makes_of_an_undo_of_one_of_two_copies(
    repeated: Lake, undo: str, undone_on: str, to_main: list[int], to_dev: list[int]
) -> None:
    """As the guide says, format by format."""
    if undo == "revert":
        repeated.revert(undone_on, undone_on)
    else:
        repeated.restore(["t"], to=f"{undone_on}~1", branch=undone_on)
    repeated.branch("copy").create(at="dev")
    repeated.merge("main", "copy")
    assert ids(repeated, "copy") == to_dev
    repeated.merge("dev")
    assert ids(repeated) == to_main


@FILES
def test_a_revert_on_the_branch_on_which_it_was_made_stands(repeated: Lake) -> None:
    repeated.revert("dev", "dev")
    repeated.merge("main", "dev")
    assert ids(repeated, "dev") == [1]


@FILES_AND_DELTA
def test_an_undo_stands_for_a_preview(repeated: Lake) -> None:
    repeated.revert("main")
    (key,) = repeated.merge("dev", dry_run=True).keys
    assert key.change is None
    assert key.before == key.after


@FILES
def test_an_undo_stands_that_lands_while_a_merge_is_prepared(
    repeated: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is the same before and after, but not all that was done to it."""
    repeated.branch("target").create(at="dev~1")
    repeated.table("t", "target").write(rows(9), mode="append")
    plain, once = merge_rules.merge_files, iter([True])

    def and_an_undo_lands(*asked: Any) -> Any:
        done = plain(*asked)
        if next(once, False):
            repeated.transplant("dev", "target")
            repeated.revert("target", "target")
        return done

    monkeypatch.setattr(merge_rules, "merge_files", and_an_undo_lands)
    repeated.merge("dev", "target")
    assert ids(repeated, "target") == [1, 9]


@FILES_AND_DELTA
@pytest.mark.parametrize("mode", ["overwrite", "compaction"])
def test_what_a_commit_removed_stays_with_what_it_added(repeated: Lake, mode: str) -> None:
    """An undo on the target took both: a merge that brought only the removal would lose rows."""
    repeated.merge("dev")
    repeated.branch("next").create()
    repeated.table("t").write(rows(9), mode="append")
    if mode == "overwrite":
        repeated.table("t", "next").write(rows(5), mode="overwrite")
    else:
        repeated.table("t", "next").optimize()
    repeated.transplant("next")
    repeated.revert("main")
    assert ids(repeated) == [1, 2, 3, 9]
    repeated.merge("next")
    assert ids(repeated) == [1, 2, 3, 9]


# -- an overwrite that is there already --------------------------------------------------------------------


@pytest.fixture(params=["parquet", "delta"])
def overwritten(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table that dev overwrote. Main has that by a transplant, and a row that came since."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1), format=request.param)
        lake.branch("dev").create()
        lake.table("t", "dev").write(rows(2, 3), mode="overwrite")
        lake.transplant("dev")
        lake.table("t").write(rows(9), mode="append")
        yield lake
        assert lake.fsck().damages == ()


@pytest.mark.parametrize("commit", ["dev", "main~1"])
def test_an_overwrite_that_is_transplanted_again_takes_no_rows_that_came_since(
    overwritten: Lake, commit: str
) -> None:
    overwritten.transplant(commit)
    assert ids(overwritten) == [2, 3, 9]


def test_an_overwrite_that_is_merged_takes_no_rows_that_came_after_its_transplant(overwritten: Lake) -> None:
    overwritten.table("t", "dev").write(rows(4), mode="append")
    overwritten.merge("dev")
    assert ids(overwritten) == [2, 3, 4, 9]


def test_an_overwrite_that_is_rebased_takes_no_rows_that_came_after_its_transplant(overwritten: Lake) -> None:
    overwritten.rebase("dev")
    assert ids(overwritten, "dev") == [2, 3, 9]


def test_a_later_overwrite_takes_them(overwritten: Lake) -> None:
    overwritten.table("t", "dev").write(rows(5), mode="overwrite")
    overwritten.merge("dev")
    assert ids(overwritten) == [5]


def test_an_overwrite_that_was_undone_takes_what_is_there_when_it_comes_again(overwritten: Lake) -> None:
    overwritten.revert("main~1")
    assert ids(overwritten) == [1, 9]
    overwritten.transplant("dev")
    assert ids(overwritten) == [2, 3]


def test_a_commit_that_was_undone_and_brought_again_is_undone_once_more(lake: Lake) -> None:
    """Its rows are those of one commit, by whatever way they came."""
    commit = lake.branch().head
    lake.table("t").write(rows(5), mode="append")
    for _ in range(2):
        lake.revert(commit)
        assert ids(lake) == [1, 5]
        lake.transplant(commit)
        assert ids(lake) == [1, 2, 3, 5]


# -- an undo on the branch, after a merge or a transplant of what it undoes --------------------------------


@pytest.fixture(params=["parquet", "delta"])
def undone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table that dev added rows to, overwrote, and set back; main has a row that dev has not."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("t").write(rows(1, 2), format=request.param)
        lake.branch("dev").create()
        lake.table("t").write(rows(9), mode="append")
        lake.table("t", "dev").write(rows(3, 4), mode="append")
        lake.table("t", "dev").write(rows(1, 2), mode="overwrite")
        lake.revert("dev", "dev")
        assert ids(lake, "dev") == [1, 2, 3, 4]
        yield lake
        assert lake.fsck().damages == ()


@pytest.mark.parametrize("bring", ["merge", "transplant", "rebase"])
def test_an_undo_brings_all_back_where_a_merge_had_carried_out_what_it_undoes(
    undone: Lake, bring: str
) -> None:
    """The merge removed the files because the branch had, and has them again."""
    undone.merge("dev~1")
    assert ids(undone) == [1, 2]
    if bring == "rebase":
        undone.rebase("dev")
        assert ids(undone, "dev") == [1, 2, 3, 4]
    else:
        undone.merge("dev") if bring == "merge" else undone.transplant("dev")
        assert ids(undone) == [1, 2, 3, 4]


def test_an_undo_brings_all_back_where_transplants_had_carried_out_what_it_undoes(undone: Lake) -> None:
    for commit in ("dev~2", "dev~1", "dev"):
        undone.transplant(commit)
    assert ids(undone) == [1, 2, 3, 4]


def test_what_a_merged_branch_ended_stays_so(lake: Lake) -> None:
    """The merge that takes the file brings what was decided on another branch than the one that has it."""
    lake.branch("third").create(at="main")
    lake.table("t", "third").write(rows(1, 2), mode="overwrite")
    lake.table("t").write(rows(5), mode="append")
    lake.merge("third", keys={"t": "force"})
    assert ids(lake) == [1, 2]
    lake.merge("dev")
    assert ids(lake) == [1, 2]
