"""Commits that were repeated on another branch: their rows are there once, or the merge says why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.lance import version_writer
from tests.formats.lance.tables import delete, keys_of, keys_seen, opened, write

START = [1, 2, 3, 4, 5]
REPEATED = "one side got from transplanted or reverted commits"
ONCE = [*START, 10, 20]


def compact(lake: Lake, branch: str = "main") -> None:
    opened(lake, branch).optimize.compact_files()


def update(lake: Lake) -> None:
    opened(lake).update({"v": "7.5"}, where="k = 10")


def remove(lake: Lake) -> None:
    delete(lake, "main", 10)


@pytest.mark.parametrize("main_changed", [True, False], ids=["grafted", "whole"])
@pytest.mark.parametrize("rewritten", [update, remove])
def test_rows_that_a_transplant_brought_do_not_come_again_after_they_were_updated_or_deleted(
    forked: Lake, rewritten: Callable[[Lake], None], *, main_changed: bool
) -> None:
    write(forked, "dev", 10)
    if main_changed:
        write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    rewritten(forked)
    before = keys_seen(forked)
    write(forked, "dev", 11)
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("dev", "main")
    assert keys_seen(forked) == before


@pytest.mark.parametrize("main_changed", [True, False], ids=["grafted", "whole"])
def test_rows_that_a_transplant_brought_are_there_once_after_they_were_compacted(
    forked: Lake, *, main_changed: bool
) -> None:
    write(forked, "dev", 10)
    if main_changed:
        write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    compact(forked)
    write(forked, "dev", 11)
    delete(forked, "dev", 2)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 3, 4, 5, 10, 11, *([20] if main_changed else [])]
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == keys_seen(forked)


@pytest.mark.parametrize("rewritten", [compact, update])
def test_an_update_that_a_transplant_brought_is_no_clash(
    forked: Lake, rewritten: Callable[[Lake], None]
) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    write(forked, "main", 10, 20)
    forked.transplant("dev~1..dev", "main")
    rewritten(forked)
    write(forked, "dev", 11)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11, 20]
    assert opened(forked).to_table(filter="k = 1")["v"].to_pylist() == [0.5]


def test_a_branch_whose_commit_was_transplanted_does_not_take_it_in_again(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    compact(forked)
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == ONCE


def test_a_commit_that_was_transplanted_twice_is_there_once(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    compact(forked)
    before = forked.branch().head
    forked.transplant("dev~1..dev", "main")
    assert (forked.branch().head, keys_seen(forked)) == (before, ONCE)


def test_a_rebased_branch_does_not_get_what_it_was_before(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.branch("old").create("dev")
    forked.rebase("dev", "main")
    compact(forked, "dev")
    forked.merge("old", "dev")
    assert keys_of(forked, "dev") == ONCE
    forked.merge("dev", "main")
    forked.merge("old", "main")
    assert keys_seen(forked) == ONCE


def test_the_commits_that_are_missing_can_be_transplanted_where_rows_would_come_back(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.transplant("dev~1..dev", "main")
    remove(forked)
    write(forked, "dev", 11)
    with pytest.raises(MergeConflict, match="transplant the commits that are missing"):
        forked.merge("dev", "main")
    forked.transplant("dev~1..dev", "main")
    assert keys_seen(forked) == [*START, 11]


def test_a_deletion_of_rows_that_never_came_is_told(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    delete(forked, "dev", 1)
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match="no longer has the rows that the commit deletes"):
        forked.transplant("dev~1..dev", "main")
    assert 1 in keys_seen(forked)


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_transplanted_merge_brings_nothing_else_that_its_branch_had_done(forked: Lake, change: str) -> None:
    """Not to the branch that was merged either: its rows that main has changed are no part of the merge."""
    if change == "update":
        opened(forked).update({"v": "0.5"}, where="k = 1")
    else:
        delete(forked, "main", 1)
    delete(forked, "dev", 4)
    merged = forked.merge("dev", "main").head
    write(forked, "dev", 10)
    forked.transplant(merged, "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 5, 10]
    assert opened(forked, "dev").to_table(filter="k = 1")["v"].to_pylist() == [1.0]


def test_what_a_merge_brought_is_known_to_have_come_by_a_transplant(forked: Lake) -> None:
    """By way of a third branch."""
    forked.branch("third").create()
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    write(forked, "third", 30)
    forked.merge("main", "third")
    compact(forked, "third")
    forked.merge("dev", "third")
    assert keys_of(forked, "third") == [*START, 10, 20, 30]
    delete(forked, "third", 10)
    write(forked, "dev", 11)
    forked.merge("dev", "third")
    assert keys_of(forked, "third") == [*START, 11, 20, 30]


def test_other_branches_merge_although_a_transplant_was_compacted(forked: Lake) -> None:
    forked.branch("other").create()
    write(forked, "dev", 10)
    write(forked, "other", 40)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    compact(forked)
    forked.merge("other", "main")
    assert keys_seen(forked) == [*START, 10, 20, 40]


def test_a_transplant_of_more_fragments_than_are_remembered_is_refused(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_writer, "TAKEN_MAX", 0)
    write(forked, "dev", 10)
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match="1 fragments from transplanted or rebased commits"):
        forked.transplant("dev~1..dev", "main")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 20]


@pytest.mark.parametrize("rewritten", [compact, update])
@pytest.mark.parametrize(("source", "target"), [("main", "dev"), ("dev", "main")])
def test_rows_that_were_rewritten_where_they_are_from_are_not_there_twice(
    forked: Lake, rewritten: Callable[[Lake], None], source: str, target: str
) -> None:
    write(forked, "dev", 50)
    write(forked, "main", 10)
    forked.transplant("main~1..main", "dev")
    rewritten(forked)
    if rewritten is compact:
        forked.merge(source, target)
        assert keys_of(forked, target) == [*START, 10, 50]
        return
    before = keys_of(forked, target)
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge(source, target)
    assert keys_of(forked, target) == before


def test_a_row_that_a_repeated_update_made_and_one_side_deleted_is_a_clash(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    delete(forked, "dev", 1)
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 20]
