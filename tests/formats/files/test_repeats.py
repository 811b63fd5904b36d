"""Commits to tables of files that are repeated on another branch, or undone (rule K2)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.files import merge_rules
from tests.formats.files.lakes import EVENTS, address, overwrite, paths, write

# -- one commit at a time ----------------------------------------------------------------------------------


def test_a_commit_is_repeated_without_what_came_before_it(forked: Lake) -> None:
    write(forked, "b", branch="dev")
    write(forked, "c", branch="dev")
    write(forked, "d")
    forked.transplant("dev")
    assert paths(forked) == ["c", "d", "day=1/a", "day=2/a"]


def test_an_overwrite_that_is_repeated_takes_what_is_there(forked: Lake) -> None:
    write(forked, "b", branch="dev")
    overwrite(forked, "c", branch="dev")
    write(forked, "d")
    forked.transplant("dev~2..dev")
    assert paths(forked) == ["c"]
    assert [paths(forked, f"main~{back}") for back in (1, 2)] == [
        ["b", "d", "day=1/a", "day=2/a"],
        ["d", "day=1/a", "day=2/a"],
    ]


def test_what_was_repeated_can_be_merged_as_the_first_one_can(forked: Lake) -> None:
    forked.branch("copy").create()
    overwrite(forked, "b", branch="dev")
    write(forked, "x", branch="copy")
    forked.transplant("dev", "copy")
    overwrite(forked, "c")
    forked.merge("copy")
    assert paths(forked) == ["b"]


def test_a_branch_is_rebased_by_its_writes(forked: Lake) -> None:
    write(forked, "b", branch="dev")
    write(forked, "day=1/b", branch="dev", replaced=["day=1/"])
    write(forked, "day=1/c", "c")
    forked.rebase("dev")
    assert paths(forked, "dev") == ["b", "c", "day=1/b", "day=2/a"]


def test_a_rebase_past_a_merge_does_not_repeat_what_was_overwritten_on_the_new_base(forked: Lake) -> None:
    """The overwrite is the base's own: carried out again, it would take what the base wrote after it."""
    write(forked, "b", branch="dev")
    write(forked, "day=1/c", replaced=["day=1/"])
    forked.merge("main", "dev")
    write(forked, "day=1/d")
    forked.rebase("dev")
    assert paths(forked, "dev") == ["b", "day=1/c", "day=1/d", "day=2/a"]


def test_a_rebase_past_a_merge_of_two_commits_that_the_new_base_has_is_no_union(forked: Lake) -> None:
    """The merge brought nothing of its own, and what it brought was overwritten there since."""
    overwrite(forked, "day=1/d", "day=2/d", branch="dev")
    write(forked, "day=1/m", replaced=["day=1/"])
    forked.branch("base").create(at="dev")
    forked.merge("main", "base")
    write(forked, "day=1/b", "day=2/b", branch="base", replaced=["day=1/", "day=2/"])
    forked.merge("main", "dev")
    forked.rebase("dev", "base")
    assert paths(forked, "dev") == paths(forked, "base") == ["day=1/b", "day=2/b"]


def test_a_rebase_past_a_merge_brings_back_nothing_that_the_new_base_removed(forked: Lake) -> None:
    write(forked, "day=1/d", branch="dev")
    write(forked, "day=1/m")
    forked.branch("base").create(at="dev")
    forked.merge("main", "base")
    write(forked, branch="base", removed=["day=1/d"])
    forked.merge("main", "dev")
    write(forked, "day=2/own", branch="dev")
    forked.rebase("dev", "base")
    assert paths(forked, "dev") == ["day=1/a", "day=1/m", "day=2/a", "day=2/own"]


@pytest.fixture
def featured(forked: Lake) -> Lake:
    """A branch that merged another one, which began at an overwrite of the new base."""
    overwrite(forked, "day=1/m", "day=2/m")
    forked.branch("feature").create()
    write(forked, "day=1/f", branch="feature")
    write(forked, "day=1/d", branch="dev")
    forked.merge("feature", "dev")
    return forked


def test_a_merge_that_is_repeated_carries_out_no_overwrite_of_the_new_base_again(featured: Lake) -> None:
    overwrite(featured, "day=1/n", "day=2/n")
    featured.rebase("dev")
    assert paths(featured, "dev") == ["day=1/d", "day=1/f", "day=1/n", "day=2/n"]


def test_a_merge_that_is_repeated_brings_back_nothing_that_the_new_base_removed(featured: Lake) -> None:
    write(featured, removed=["day=2/m"])
    featured.rebase("dev")
    assert paths(featured, "dev") == ["day=1/d", "day=1/f", "day=1/m"]


@pytest.fixture
def settled(forked: Lake) -> Lake:
    """A merge on a branch by which somebody left out what the target has."""
    write(forked, "day=1/d", branch="dev")
    write(forked, "day=1/m", "day=2/m")
    forked.branch("base").create(at="dev")
    forked.merge("main", "base")
    forked.merge("main", "dev", keys={EVENTS: {"day=1/": "drop"}})
    return forked


def test_what_somebody_settled_by_a_merge_is_a_conflict_where_the_new_base_has_both_sides(
    settled: Lake,
) -> None:
    write(settled, branch="base", removed=["day=1/d"])
    with pytest.raises(MergeConflict):
        settled.rebase("dev", "base")


def test_what_somebody_settled_by_a_merge_is_repeated_on_what_was_merged(settled: Lake) -> None:
    settled.rebase("dev", "main")
    assert paths(settled, "dev") == ["day=1/a", "day=1/d", "day=2/a", "day=2/m"]


@pytest.mark.parametrize("how", ["transplant", "rebase"])
def test_a_commit_that_is_repeated_is_settled_by_folder(forked: Lake, how: str) -> None:
    write(forked, branch="dev", put=["day=1/a", "day=2/a"])
    write(forked, put=["day=1/a", "day=2/a"])
    before = {ref: address(forked, "day=1/a", ref) for ref in ("main", "dev")}
    bring = forked.transplant if how == "transplant" else forked.rebase
    bring("dev", keys={EVENTS: {"day=1/": "force", "day=2/": "drop"}})
    ref = "main" if how == "transplant" else "dev"
    assert address(forked, "day=1/a", ref) == before["dev"]
    assert address(forked, "day=2/a", ref) == address(forked, "day=2/a", "main")


# -- undoing -----------------------------------------------------------------------------------------------


def test_a_write_is_undone_although_others_came_after_it(forked: Lake) -> None:
    write(forked, "day=1/b", "day=2/b")
    write(forked, "day=1/c", put=["day=2/a"])
    forked.revert("main~1")
    assert paths(forked) == ["day=1/a", "day=1/c", "day=2/a"]


def test_an_overwrite_is_undone_beside_what_came_after_it(forked: Lake) -> None:
    overwrite(forked, "b")
    write(forked, "c")
    forked.revert("main~1")
    assert paths(forked) == ["c", "day=1/a", "day=2/a"]


def test_undoing_a_write_is_a_conflict_where_its_files_were_changed(forked: Lake) -> None:
    write(forked, "day=1/b", "day=1/c")
    write(forked, put=["day=1/b"])
    with pytest.raises(MergeConflict) as refused:
        forked.revert("main~1")
    assert [one.path for one in refused.value.conflicts] == ["day=1/b"]
    forked.revert("main~1", keys={EVENTS: {"day=1/": "force"}})
    assert paths(forked) == ["day=1/a", "day=2/a"]


def test_undoing_the_write_that_made_a_table_is_a_conflict_once_others_wrote(lake: Lake) -> None:
    write(lake, "a")
    write(lake, "b")
    with pytest.raises(MergeConflict):
        lake.revert("main~1")
    assert paths(lake) == ["a", "b"]


def test_undoing_an_overwrite_does_not_bring_back_what_a_later_one_would_have_taken(lake: Lake) -> None:
    overwrite(lake, "first")
    overwrite(lake, "second")
    overwrite(lake, "third")
    assert not lake.revert("main~1").applied
    assert paths(lake) == ["third"]


def test_undoing_a_removal_does_not_bring_back_what_a_later_overwrite_would_have_taken(forked: Lake) -> None:
    write(forked, removed=["day=1/a", "day=2/a"])
    write(forked, "day=1/b", replaced=["day=1/"])
    forked.revert("main~1")
    assert paths(forked) == ["day=1/b", "day=2/a"]


def test_undoing_a_merge_does_not_bring_back_what_a_later_overwrite_would_have_taken(forked: Lake) -> None:
    overwrite(forked, "d", branch="dev")
    merged = forked.merge("dev").head
    write(forked, "day=1/b", replaced=["day=1/"])
    forked.revert(merged)
    assert paths(forked) == ["day=1/b", "day=2/a"]


def test_undoing_a_put_is_no_conflict_once_its_folder_was_replaced(forked: Lake) -> None:
    write(forked, put=["day=1/a", "day=2/a"])
    write(forked, "day=1/b", replaced=["day=1/"])
    before = address(forked, "day=2/a", "main~2")
    forked.revert("main~1")
    assert paths(forked) == ["day=1/b", "day=2/a"]
    assert address(forked, "day=2/a") == before


def test_what_was_overwritten_on_another_branch_meanwhile_does_not_come_back_by_itself(forked: Lake) -> None:
    """Nobody can tell what the merge would have left of it."""
    write(forked, "day=1/d", branch="dev", replaced=["day=1/"])
    undone = forked.branch("dev").head
    write(forked, "day=1/m", replaced=["day=1/"])
    forked.merge("dev")
    write(forked, "day=2/m")
    with pytest.raises(
        MergeConflict, match="was also overwritten on another branch, in the folder of 'day=1/a'"
    ):
        forked.revert(undone)
    forked.revert(undone, keys={EVENTS: {"day=1/": "force"}})
    assert paths(forked) == ["day=1/a", "day=2/a", "day=2/m"]


def test_what_was_removed_does_not_come_back_if_not_all_is_known_that_happened_since(forked: Lake) -> None:
    write(forked, removed=["day=1/a"])
    undone = forked.branch("main").head
    write(forked, "day=1/b")
    write(forked, "day=1/c")
    forked.revert("main~1")
    with pytest.raises(
        MergeConflict, match="was changed after the commit to be reverted, and not only by writes"
    ):
        forked.revert(undone)


def test_what_a_later_overwrite_would_have_taken_stays_away_also_if_the_table_is_as_it_was(
    forked: Lake,
) -> None:
    write(forked, removed=["day=1/a"])
    undone = forked.branch("main").head
    write(forked, "more")
    write(forked, removed=["more"], replaced=["day=1/"])
    forked.revert(undone)
    assert paths(forked) == ["day=2/a"]


@pytest.mark.parametrize("is_as_it_was", [True, False])
def test_what_was_removed_again_since_does_not_come_back(forked: Lake, is_as_it_was: bool) -> None:
    write(forked, removed=["day=1/a", "day=2/a"])
    undone = forked.branch("main").head
    write(forked, "day=1/a")
    write(forked, *([] if is_as_it_was else ["more"]), removed=["day=1/a"])
    forked.revert(undone)
    assert paths(forked) == (["day=2/a"] if is_as_it_was else ["day=2/a", "more"])


def test_what_another_branch_removed_too_does_not_come_back_by_itself(forked: Lake) -> None:
    write(forked, removed=["day=1/a"])
    undone = forked.branch("main").head
    write(forked, "day=2/d", removed=["day=1/a"], branch="dev")
    forked.merge("dev")
    with pytest.raises(MergeConflict, match="was also changed on another branch, at 'day=1/a'"):
        forked.revert(undone)
    forked.revert(undone, keys={EVENTS: {"day=1/": "drop"}})
    assert paths(forked) == ["day=2/a", "day=2/d"]


def test_a_write_that_came_by_a_merge_is_undone_on_the_target(forked: Lake) -> None:
    write(forked, removed=["day=1/a"], branch="dev")
    undone = forked.branch("dev").head
    write(forked, "day=2/m")
    forked.merge("dev")
    forked.revert(undone)
    assert paths(forked) == ["day=1/a", "day=2/a", "day=2/m"]


def test_an_overwrite_whose_merge_took_files_of_others_is_undone_with_the_merge(forked: Lake) -> None:
    write(forked, "day=1/d", branch="dev", replaced=["day=1/"])
    undone = forked.branch("dev").head
    write(forked, "day=1/m")
    merged = forked.merge("dev").head
    write(forked, "day=2/m")
    assert paths(forked) == ["day=1/d", "day=2/a", "day=2/m"]
    with pytest.raises(MergeConflict, match="the merge of that branch also removed 'day=1/m'"):
        forked.revert(undone)
    forked.revert(merged)
    assert paths(forked) == ["day=1/a", "day=1/m", "day=2/a", "day=2/m"]


def test_a_write_is_undone_and_done_again_as_often_as_wanted(forked: Lake) -> None:
    write(forked, "day=1/b", removed=["day=1/a"])
    undone = forked.branch("main").head
    for _ in range(2):
        again = forked.revert(undone).head
        assert paths(forked) == ["day=1/a", "day=2/a"]
        forked.revert(again)
        assert paths(forked) == ["day=1/b", "day=2/a"]


def test_a_folder_that_was_replaced_before_another_revert_is_in_doubt(forked: Lake) -> None:
    """It is not known whether the revert undid the overwrite."""
    write(forked, removed=["day=1/a"])
    undone = forked.branch("main").head
    write(forked, "more", replaced=["day=1/"])
    forked.revert("main")
    with pytest.raises(
        MergeConflict, match="was changed after the commit to be reverted, and not only by writes"
    ):
        forked.revert(undone)
    forked.revert(undone, keys={EVENTS: {"day=1/": "force"}})
    assert paths(forked) == ["day=1/a", "day=2/a"]


# -- what was asked although nothing differs ---------------------------------------------------------------


def _replace_without_a_trace(lake: Lake) -> None:
    """Overwrite a folder of ``dev`` that has no files there, so that the table is as it was in the end."""
    write(lake, "more", branch="dev")
    write(lake, branch="dev", removed=["more"], replaced=["day=3/"])


@pytest.mark.parametrize("how", ["merge", "transplant", "rebase"])
def test_an_overwrite_counts_also_if_the_table_is_as_it_was(forked: Lake, how: str) -> None:
    _replace_without_a_trace(forked)
    write(forked, "day=2/m", "day=3/m")
    if how == "merge":
        assert forked.merge("dev").applied
    elif how == "transplant":
        forked.transplant("dev~2..dev")
    else:
        forked.rebase("dev")
    assert paths(forked, "dev" if how == "rebase" else "main") == ["day=1/a", "day=2/a", "day=2/m"]


def test_an_overwrite_of_one_table_counts_in_a_commit_that_changes_another(forked: Lake) -> None:
    _replace_without_a_trace(forked)
    other = "raw.others"
    write(forked, "x", branch="dev", key=other)
    write(forked, "day=3/m")
    result = forked.merge("dev")
    assert {str(one.key) for one in result.keys} == {EVENTS, other}
    assert paths(forked) == ["day=1/a", "day=2/a"]


def test_writes_are_undone_one_after_the_other(forked: Lake) -> None:
    for name in ("b", "c", "d"):
        write(forked, f"day=1/{name}")
    b, c = (forked.resolve(f"main~{back}") for back in (2, 1))
    forked.revert(b)
    forked.revert(c)
    assert paths(forked) == ["day=1/a", "day=1/d", "day=2/a"]


def test_an_overwrite_that_lands_while_another_one_is_undone_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite(lake, "first")
    overwrite(lake, "second")
    write(lake, "more")
    plain, once = merge_rules.revert_files, iter([True])

    def and_another_lands(*asked: Any) -> Any:
        done = plain(*asked)
        if next(once, False):
            overwrite(lake, "third")
        return done

    monkeypatch.setattr(merge_rules, "revert_files", and_another_lands)
    lake.revert("main~1")
    assert paths(lake) == ["third"]
