"""What was reverted on one branch and reaches another one by a merge.

A state that a revert has brought back is no news to a branch that has it, so that its own versions tell
nothing of the commit, nor of the revert. And a merge brings a revert together with what came after it.
"""

from __future__ import annotations

import pytest

from penstock import Lake
from penstock.errors import MergeConflict
from tests.formats.lance.tables import delete, keys_of, opened, write

lance = pytest.importorskip("lance")


def table(lake: Lake, ref: str = "main") -> list[tuple[int, float]]:
    """All rows, also those whose key is there twice."""
    found = opened(lake, ref).to_table(columns=["k", "v"])
    return sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def update(lake: Lake, branch: str, key: int, value: float) -> str:
    opened(lake, branch).update({"v": str(value)}, where=f"k = {key}")
    return lake.resolve(branch)


def revert(lake: Lake, commit: str, branch: str) -> str:
    lake.revert(commit, branch)
    return lake.resolve(branch)


def refusal_of_revert(lake: Lake, commit: str, branch: str) -> str:
    before = table(lake, branch)
    with pytest.raises(MergeConflict) as refused:
        lake.revert(commit, branch)
    assert table(lake, branch) == before
    return refused.value.conflicts[0].why


def refusal_of_merge(lake: Lake, source: str, target: str) -> str:
    before = table(lake, target)
    with pytest.raises(MergeConflict) as refused:
        lake.merge(source, target)
    assert table(lake, target) == before
    return refused.value.conflicts[0].why


def test_rows_that_a_branch_always_had_and_updated_do_not_come_back_by_a_revert(forked: Lake) -> None:
    appended = forked.resolve("dev")
    update(forked, "main", 5, 50.0)
    removal = revert(forked, appended, "dev")
    revert(forked, removal, "dev")
    forked.merge("dev", "main")
    assert "updated since" in refusal_of_revert(forked, removal, "main")


def test_rows_that_a_branch_always_had_stay_as_they_are_by_a_revert(forked: Lake) -> None:
    appended = forked.resolve("dev")
    update(forked, "main", 3, 30.0)
    removal = revert(forked, appended, "dev")
    revert(forked, removal, "dev")
    forked.merge("dev", "main")
    before = table(forked)
    forked.revert(removal, "main")
    assert table(forked) == before


def test_rows_that_one_merge_brought_back_and_updated_do_not_come_back_by_a_revert(forked: Lake) -> None:
    delete(forked, "dev", 5)
    removal = forked.resolve("dev")
    forked.merge("dev", "main")
    revert(forked, removal, "main")
    update(forked, "main", 5, 50.0)
    forked.merge("main", "dev")
    assert "updated since" in refusal_of_revert(forked, removal, "dev")


def test_rows_that_one_merge_brought_back_and_deleted_come_back_by_a_revert(forked: Lake) -> None:
    delete(forked, "dev", 5)
    removal = forked.resolve("dev")
    forked.merge("dev", "main")
    revert(forked, removal, "main")
    delete(forked, "main", 4, 5)
    forked.merge("main", "dev")
    forked.revert(removal, "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 5]


@pytest.mark.parametrize("longer", ["main", "feature"])
def test_a_merge_that_tells_of_an_earlier_deletion_hides_no_update(forked: Lake, longer: str) -> None:
    """Both sides of the last merge come from two commits. It goes by that of the longer branch."""
    forked.branch("feature").create()
    for key in (6, 7, 8):
        write(forked, longer, key)
    update(forked, "feature", 5, 50.0)
    delete(forked, "main", 5)
    removal = forked.resolve("main")
    write(forked, "main", 9)
    back = revert(forked, removal, "main")
    write(forked, "dev", 10)
    for source, target in (("main", "dev"), ("feature", "main"), ("dev", "feature"), ("feature", "main")):
        forked.merge(source, target)
    assert (5, 50.0) in table(forked)
    assert "1 row that the commit added was updated" in refusal_of_revert(forked, back, "main")


@pytest.mark.parametrize("way", [("feature", "dev"), ("dev", "feature")])
def test_an_update_that_one_side_had_reverted_is_a_conflict_with_a_deletion_of_its_rows(
    forked: Lake, way: tuple[str, str]
) -> None:
    forked.branch("feature").create()
    updated = update(forked, "main", 1, 10.0)
    forked.merge("main", "feature")
    revert(forked, updated, "main")
    write(forked, "dev", 6)
    forked.merge("main", "dev")
    delete(forked, "feature", 1)
    assert "because the change was reverted" in refusal_of_merge(forked, *way)


def test_an_append_that_one_side_had_reverted_and_the_other_deleted_is_no_conflict(forked: Lake) -> None:
    forked.branch("feature").create()
    write(forked, "main", 6)
    appended = forked.resolve("main")
    forked.merge("main", "feature")
    revert(forked, appended, "main")
    write(forked, "dev", 7)
    forked.merge("main", "dev")
    delete(forked, "feature", 6)
    forked.merge("feature", "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 7]


def test_an_update_that_both_sides_had_reverted_is_not_there_beside_its_former_row(forked: Lake) -> None:
    forked.branch("feature").create()
    updated = update(forked, "main", 1, 10.0)
    forked.branch("other").create()
    for branch, source, key in (("dev", "main", 6), ("feature", "other", 7)):
        revert(forked, updated, source)
        write(forked, branch, key)
        forked.merge(source, branch)
    update(forked, "feature", 1, 11.0)
    refusal_of_merge(forked, "feature", "dev")


def test_a_revert_that_a_merge_brought_and_that_was_undone_comes_back_by_a_transplant(forked: Lake) -> None:
    removal = revert(forked, forked.resolve("dev"), "dev")
    forked.merge("dev", "main")
    revert(forked, forked.resolve("main"), "main")
    assert keys_of(forked) == [1, 2, 3, 4, 5]
    forked.transplant([removal], "main")
    assert keys_of(forked) == [1, 2, 3]
    forked.transplant([removal], "main")
    assert keys_of(forked) == [1, 2, 3]
