"""Branches that merge again and again, both ways and by way of others: nothing twice, nothing lost."""

from __future__ import annotations

import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.lance.branch_chains import (
    WriteTarget,
    find_chain,
    find_free_chain,
    list_possible_chains,
)
from tests.formats.lance.tables import (
    content,
    delete,
    embedded,
    keys_of,
    keys_seen,
    newest,
    opened,
    state,
    versions,
    write,
)

START = [1, 2, 3, 4, 5]


def test_a_branch_that_is_merged_twice_brings_what_is_new(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.merge("dev", "main")
    write(forked, "dev", 11)
    opened(forked, "dev").update({"v": "0.5"}, where="k = 10")
    forked.merge("dev", "main")
    assert newest(forked)[0] == 4
    assert keys_seen(forked) == [*START, 10, 11]
    assert opened(forked).to_table(filter="v = 0.5")["k"].to_pylist() == [10]


def test_a_branch_that_is_merged_twice_with_changes_between_is_grafted_twice(forked: Lake) -> None:
    for number in range(3):
        write(forked, "dev", 10 + number)
        write(forked, "main", 20 + number)
        forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11, 12, 20, 21, 22]


def test_the_default_branch_comes_to_a_branch_and_goes_back_with_it(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [*START, 10, 20]
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 20]
    write(forked, "main", 21)
    delete(forked, "dev", 20)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 21]
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [*START, 10, 21]


def test_an_update_from_before_the_sides_met_is_no_change_of_afterwards(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    forked.merge("dev", "main")
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 20]
    opened(forked).update({"v": "1.5"}, where="k = 20")
    write(forked, "dev", 11)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11, 20]


def test_an_update_that_a_branch_has_from_a_third_one_is_a_change_of_it(forked: Lake) -> None:
    forked.branch("third").create()
    opened(forked, "third").update({"v": "0.5"}, where="k = 1")
    forked.merge("third", "dev")
    write(forked, "dev", 10)
    opened(forked).update({"v": "1.5"}, where="k = 1")
    with pytest.raises(MergeConflict, match="the same rows updated"):
        forked.merge("dev", "main")


def test_a_branch_takes_in_whatever_the_default_branch_did_and_puts_its_own_changes_on_top(
    forked: Lake,
) -> None:
    write(forked, "dev", 10, 11)
    delete(forked, "dev", 11)
    delete(forked, "dev", 4)
    opened(forked).update({"v": "0.5"}, where="k = 1")
    write(forked, "main", 20)
    opened(forked).create_scalar_index("k", "BTREE")
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 5, 10, 20]
    assert opened(forked, "dev").to_table(filter="k = 1 or k = 10")["v"].to_pylist() == [0.5, 10.0]
    write(forked, "dev", 12)
    write(forked, "main", 21)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 5, 10, 12, 20, 21]
    assert opened(forked).to_table(filter="k = 12 or k = 1")["v"].to_pylist() == [0.5, 12.0]


@pytest.mark.parametrize(("source", "target"), [("main", "dev"), ("dev", "main")])
def test_updates_of_different_rows_come_together_and_those_of_one_row_do_not(
    forked: Lake, source: str, target: str
) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    opened(forked).update({"v": "1.5"}, where="k in (2, 4)")
    forked.merge(source, target)
    found = opened(forked, target).to_table().sort_by("k")
    assert found["k"].to_pylist() == START
    assert found["v"].to_pylist() == [0.5, 1.5, 3.0, 1.5, 5.0]
    opened(forked, "dev").update({"v": "2.5"}, where="k = 5")
    delete(forked, "main", 5)
    with pytest.raises(MergeConflict, match="the same rows updated or deleted on both sides"):
        forked.merge(source, target)


def test_two_branches_that_have_a_third_one_both_bring_it_once(forked: Lake) -> None:
    forked.branch("third").create()
    write(forked, "third", 30)
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("third", "dev")
    forked.merge("third", "main")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 20, 30]


def test_a_branch_that_took_one_commit_of_another_does_not_get_its_rows_twice(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "dev", 11)
    write(forked, "main", 20)
    forked.transplant("dev~2..dev~1", "main")
    assert keys_seen(forked) == [*START, 10, 20]
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11, 20]


def test_commits_are_repeated_one_by_one_on_top_of_another_branch(forked: Lake) -> None:
    write(forked, "dev", 10)
    delete(forked, "dev", 4)
    write(forked, "main", 20)
    before = state(forked, "dev").chain
    forked.rebase("dev", "main")
    assert keys_of(forked, "dev") == [1, 2, 3, 5, 10, 20]
    assert state(forked, "dev").chain not in ("", before)
    write(forked, "dev", 11)
    assert keys_of(forked, "dev") == [1, 2, 3, 5, 10, 11, 20]
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 5, 10, 11, 20]


def test_a_branch_that_was_moved_back_writes_to_another_line(forked: Lake) -> None:
    start = forked.branch("dev").head
    write(forked, "dev", 10)
    given_up = state(forked, "dev").chain
    forked.finish_background()  # a line is given up if a version is in its folder that the branch has not
    forked.branch("dev").assign(start)
    incarnation = forked.kernel.branch("dev").incarnation
    asked = WriteTarget(incarnation), content(forked, "dev"), state(forked, "dev"), versions(forked, "dev")
    place = embedded(forked).places.open_place(content(forked).location)
    free = find_free_chain(place, *asked)
    assert free.folder != given_up
    assert find_chain(*asked).folder == given_up
    assert free in list_possible_chains(*asked)


def test_a_branch_that_was_moved_back_and_gets_a_merge_goes_on_in_another_line(forked: Lake) -> None:
    write(forked, "dev", 10)
    middle = forked.branch("dev").head
    write(forked, "dev", 11)
    given_up = state(forked, "dev").chain
    forked.finish_background()
    forked.branch("dev").assign(middle)
    write(forked, "main", 20)
    forked.merge("main", "dev")
    assert state(forked, "dev").chain != given_up
    assert keys_of(forked, "dev") == [*START, 10, 20]
    write(forked, "dev", 12)
    assert keys_of(forked, "dev") == [*START, 10, 12, 20]


def crossed(lake: Lake) -> None:
    """Two branches that took in one another at the same time."""
    lake.branch("main-then").create("main")
    lake.branch("dev-then").create("dev")
    lake.merge("dev-then", "main")
    lake.merge("main-then", "dev")


def test_branches_whose_merges_crossed_merge_on_both_ways(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    crossed(forked)
    assert keys_of(forked) == keys_of(forked, "dev") == [*START, 10, 20]
    forked.merge("dev", "main")
    forked.merge("main", "dev")
    write(forked, "dev", 11)
    forked.merge("dev", "main")
    forked.merge("main", "dev")
    assert keys_seen(forked) == keys_of(forked, "dev") == [*START, 10, 11, 20]


@pytest.mark.parametrize("key", [1, 4, 10, 12, 20])
@pytest.mark.parametrize(("one", "other"), [("main", "dev"), ("dev", "main")])
def test_rows_that_were_deleted_after_merges_crossed_do_not_come_back(
    forked: Lake, one: str, other: str, key: int
) -> None:
    """Whichever of the states that both come from is taken for the one where they parted."""
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.branch("main-then").create("main")
    forked.branch("dev-then").create("dev")
    write(forked, "dev", 12)
    forked.merge("dev-then", "main")
    forked.merge("main-then", "dev")
    if key == 12 and one == "main":
        forked.merge("dev", "main")
    delete(forked, one, key)
    write(forked, other, 30)
    forked.merge(other, one)
    forked.merge(one, other)
    left = sorted({*START, 10, 12, 20, 30} - {key})
    assert keys_of(forked, one) == keys_of(forked, other) == left
    assert keys_seen(forked) == left


def test_a_deletion_that_both_sides_have_by_crossed_merges_is_no_clash(forked: Lake) -> None:
    delete(forked, "dev", 1)
    delete(forked, "main", 4, 5)
    crossed(forked)
    delete(forked, "dev", 2)
    forked.merge("dev", "main")
    forked.merge("main", "dev")
    assert keys_seen(forked) == keys_of(forked, "dev") == [3]
