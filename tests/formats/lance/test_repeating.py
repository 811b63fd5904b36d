"""Commits that were repeated on another branch: their rows are there once, or the merge says why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.lance import landing
from tests.formats.lance.tables import delete, keys_of, keys_seen, opened, write

START = [1, 2, 3, 4, 5]
REPEATED = "came to one side by a repeated commit"


def compact(lake: Lake, branch: str = "main") -> None:
    opened(lake, branch).optimize.compact_files()


def update(lake: Lake) -> None:
    opened(lake).update({"v": "7.5"}, where="k = 10")


def remove(lake: Lake) -> None:
    delete(lake, "main", 10)


@pytest.mark.parametrize("main_changed", [True, False], ids=["grafted", "whole"])
@pytest.mark.parametrize("rewritten", [compact, update, remove])
def test_rows_that_a_transplant_brought_do_not_come_again_after_they_were_rewritten(
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


def test_a_branch_whose_commit_was_transplanted_does_not_take_it_in_again(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    compact(forked)
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [*START, 10]


def test_a_rebased_branch_does_not_get_what_it_was_before(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.branch("old").create("dev")
    forked.rebase("dev", "main")
    compact(forked, "dev")
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("old", "dev")
    forked.merge("dev", "main")
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("old", "main")
    assert keys_seen(forked) == [*START, 10, 20]


def test_what_a_merge_brought_is_known_to_have_come_by_a_transplant(forked: Lake) -> None:
    """By way of a third branch."""
    forked.branch("third").create()
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.transplant("dev~1..dev", "main")
    write(forked, "third", 30)
    forked.merge("main", "third")
    compact(forked, "third")
    with pytest.raises(MergeConflict, match=REPEATED):
        forked.merge("dev", "third")
    assert keys_of(forked, "third") == [*START, 10, 20, 30]


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
    monkeypatch.setattr(landing, "TAKEN_MAX", 0)
    write(forked, "dev", 10)
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match="1 fragments from repeated commits"):
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
    before = keys_of(forked, target)
    with pytest.raises(MergeConflict, match="by repeating them there"):
        forked.merge(source, target)
    assert keys_of(forked, target) == before
