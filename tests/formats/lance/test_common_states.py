"""Sides that have several states in common: a merge goes by all of them, and brings nothing back or twice."""

from __future__ import annotations

import lance_namespace as spec
import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from tests.formats.lance.tables import delete, keys_of, keys_seen, opened, write

START = [1, 2, 3, 4, 5]


def third_taken_by_both(lake: Lake) -> None:
    """A branch that is merged, and takes in a third one that the default branch takes in as well."""
    lake.branch("third").create()
    write(lake, "dev", 10)
    lake.merge("dev", "main")
    write(lake, "third", 30, 31)
    lake.merge("third", "dev")
    lake.merge("third", "main")


def test_rows_of_a_third_branch_that_one_side_deleted_do_not_come_back(forked: Lake) -> None:
    third_taken_by_both(forked)
    delete(forked, "main", 30, 31)
    write(forked, "dev", 11)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11]
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [*START, 10, 11]


def test_a_table_that_both_sides_renamed_is_found_in_each_common_state(forked: Lake) -> None:
    third_taken_by_both(forked)
    delete(forked, "main", 30, 31)
    write(forked, "dev", 11)
    for branch in ("main", "dev"):
        wish = spec.RenameTableRequest(id=["items"], new_table_name="things")
        forked.lance(branch).rename_table(wish)
    forked.merge("dev", "main")
    assert keys_of(forked, "main", "things") == [*START, 10, 11]


@pytest.fixture
def two_taken_by_both(forked: Lake) -> Lake:
    """Two sides, with rows of their own, that have both taken in the same two branches."""
    for name, key in (("one", 30), ("two", 40)):
        forked.branch(name).create()
        write(forked, name, key)
    write(forked, "dev", 10)
    write(forked, "main", 20)
    for target in ("main", "dev"):
        for source in ("one", "two"):
            forked.merge(source, target)
    return forked


@pytest.mark.parametrize(("one", "other"), [("main", "dev"), ("dev", "main")], ids=["target", "source"])
def test_rows_of_two_branches_that_one_side_deleted_do_not_come_back(
    two_taken_by_both: Lake, one: str, other: str
) -> None:
    lake = two_taken_by_both
    delete(lake, one, 40)
    delete(lake, one, 30)
    write(lake, other, 11)
    lake.merge("dev", "main")
    lake.merge("main", "dev")
    assert keys_seen(lake) == keys_of(lake, "dev") == [*START, 10, 11, 20]


def test_rows_of_two_branches_that_one_side_compacted_are_there_once(two_taken_by_both: Lake) -> None:
    lake = two_taken_by_both
    opened(lake).optimize.compact_files()
    lake.merge("dev", "main")
    assert keys_seen(lake) == [*START, 10, 20, 30, 40]


@pytest.mark.parametrize("gone", [(10, 11), (20,)], ids=["its-own", "the-others"])
@pytest.mark.parametrize("rewriting", ["compaction", "update"])
def test_a_deletion_after_crossed_merges_is_not_lost_where_the_rows_were_rewritten(
    forked: Lake, rewriting: str, gone: tuple[int, ...]
) -> None:
    """Only one of the states that both sides come from has the fragment."""
    write(forked, "dev", 10, 11)
    write(forked, "main", 20)
    forked.branch("main-then").create("main")
    forked.branch("dev-then").create("dev")
    forked.merge("main-then", "dev")
    forked.merge("dev-then", "main")
    if rewriting == "compaction":
        opened(forked).optimize.compact_files()
    else:
        opened(forked).update({"v": "7.5"}, where=f"k in ({', '.join(map(str, gone))})")
    delete(forked, "dev", *gone)
    if rewriting == "compaction":
        forked.merge("dev", "main")
        assert keys_seen(forked) == sorted({*START, 10, 11, 20} - {*gone})
        return
    with pytest.raises(MergeConflict, match="had the same rows updated or deleted on both sides"):
        forked.merge("dev", "main")
    assert keys_seen(forked) == [*START, 10, 11, 20]
