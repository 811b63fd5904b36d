"""Lance's own branches and tags, and properties, when branches of the lake merge: three-way, never lost."""

from __future__ import annotations

import pytest

from penstock import Key, Lake
from penstock.errors import MergeConflict
from penstock.formats.lance.lake.calls import (
    AlterLance,
    CommitLance,
    DeleteLanceVersions,
    DropLanceBranch,
    DropLanceTag,
    LanceOperation,
    PutLanceBranch,
    PutLanceTag,
)
from tests.formats.lance.tables import keys_of, keys_seen, newest, opened, rows, state, versions, write

ITEMS = Key("items")


def do(lake: Lake, branch: str, *operations: LanceOperation) -> None:
    lake.do(CommitLance(branch=branch, operations=operations))


def tag(name: str, version: int) -> PutLanceTag:
    return PutLanceTag(key=ITEMS, tag_name=name, version=version)


def tags(lake: Lake, ref: str = "main") -> dict[str, int]:
    return {name: one.version for name, one in versions(lake, ref).list_tags().items()}


def test_tags_of_both_sides_come_together(forked: Lake) -> None:
    do(forked, "main", tag("old", 1))
    do(forked, "dev", tag("first", 1))
    forked.merge("dev", "main")
    assert tags(forked) == {"old": 1, "first": 1}
    do(forked, "dev", DropLanceTag(key=ITEMS, tag_name="first"))
    forked.merge("dev", "main")
    assert tags(forked) == {"old": 1}


def test_a_tag_at_the_newest_version_of_a_branch_is_at_the_version_that_it_becomes(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "dev", 11)
    do(forked, "dev", tag("done", 4))
    forked.merge("dev", "main")
    assert tags(forked) == {"done": newest(forked)[0]} == {"done": 3}


def test_a_tag_at_a_version_that_does_not_come_along_is_a_reason_to_refuse(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "dev", 11)
    do(forked, "dev", tag("half", 3))
    with pytest.raises(MergeConflict, match="tag 'half' on the source branch, at version 3"):
        forked.merge("dev", "main")
    do(forked, "dev", DropLanceTag(key=ITEMS, tag_name="half"))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 11]


def test_a_tag_that_both_sides_made_is_named(forked: Lake) -> None:
    do(forked, "main", tag("v", 1))
    do(forked, "dev", tag("v", 2))
    with pytest.raises(MergeConflict) as refused:
        forked.merge("dev", "main")
    assert [one.path for one in refused.value.conflicts] == ["tag 'v'"]


def test_properties_merge_one_by_one(forked: Lake) -> None:
    do(forked, "main", AlterLance(key=ITEMS, properties={"a": "1"}))
    do(forked, "dev", AlterLance(key=ITEMS, properties={"b": "2"}))
    forked.merge("dev", "main")
    assert state(forked).properties == {"a": "1", "b": "2"}
    do(forked, "main", AlterLance(key=ITEMS, properties={"b": None}))
    do(forked, "dev", AlterLance(key=ITEMS, properties={"b": "3"}))
    with pytest.raises(MergeConflict, match="property"):
        forked.merge("dev", "main")


def test_a_branch_of_lances_own_that_was_made_on_a_branch_is_refused_and_not_lost(forked: Lake) -> None:
    write(forked, "dev", 10)
    do(forked, "dev", PutLanceBranch(key=ITEMS, branch="exp"))
    with pytest.raises(MergeConflict, match="Lance's own branch 'exp'"):
        forked.merge("dev", "main")
    do(forked, "dev", DropLanceBranch(key=ITEMS, branch="exp"))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]


def test_a_branch_of_lances_own_comes_to_a_branch_of_the_lake(forked: Lake) -> None:
    write(forked, "dev", 10)
    do(forked, "main", PutLanceBranch(key=ITEMS, branch="exp", version=1))
    forked.merge("main", "dev")
    assert set(versions(forked, "dev").list_branches()) == {"exp"}
    assert opened(forked, "dev").checkout_version(("exp", None)).count_rows() == 3
    do(forked, "main", DropLanceBranch(key=ITEMS, branch="exp"))
    forked.merge("main", "dev")
    assert versions(forked, "dev").list_branches() == {}


def test_what_a_branch_did_to_lances_own_branch_comes_to_the_default_branch_again_and_again(
    forked: Lake,
) -> None:
    do(forked, "main", PutLanceBranch(key=ITEMS, branch="exp", version=1))
    forked.merge("main", "dev")
    for key in (10, 11):
        opened(forked, "dev").checkout_version(("exp", None)).insert(rows(key))
        forked.merge("dev", "main")
    for ref in ("main", "dev"):
        found = opened(forked, ref).checkout_version(("exp", None)).to_table()["k"].to_pylist()
        assert sorted(found) == [1, 2, 3, 10, 11]


def test_versions_that_are_forgotten_on_a_branch_are_forgotten_where_it_lands(forked: Lake) -> None:
    do(forked, "dev", DeleteLanceVersions(key=ITEMS, ranges=((1, 2),)))
    forked.merge("dev", "main")
    assert [number for number, _ in versions(forked).list_versions()] == [2]
    assert keys_of(forked) == [1, 2, 3, 4, 5]


def test_a_version_that_something_leads_to_is_not_forgotten_by_a_merge(forked: Lake) -> None:
    do(forked, "dev", DeleteLanceVersions(key=ITEMS, ranges=((1, 2),)))
    do(forked, "main", tag("first", 1))
    forked.merge("dev", "main")
    assert [number for number, _ in versions(forked).list_versions()] == [2, 1]


def test_a_version_of_a_line_is_not_forgotten_because_the_other_side_never_had_it(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "dev", 11)
    forked.merge("dev", "main")
    write(forked, "main", 20)
    forked.merge("main", "dev")
    assert [number for number, _ in versions(forked, "dev").list_versions()] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("named", "what"),
    [
        (PutLanceTag(key=ITEMS, tag_name="keep", branch="exp", version=2), "tagged"),
        (PutLanceBranch(key=ITEMS, branch="more", parent="exp", version=2), "forked"),
    ],
    ids=["tag", "fork"],
)
@pytest.mark.parametrize("way", ["branch", "transaction"])
def test_a_branch_does_not_go_that_somebody_else_has_named_meanwhile(
    forked: Lake, named: LanceOperation, what: str, way: str
) -> None:
    do(forked, "main", PutLanceBranch(key=ITEMS, branch="exp", version=2))
    forked.merge("main", "dev")
    tx = forked.transaction()
    do(forked, "dev" if way == "branch" else tx.branch, DropLanceBranch(key=ITEMS, branch="exp"))
    do(forked, "main", named)
    land = tx.land if way == "transaction" else lambda: forked.merge("dev", "main")
    with pytest.raises(MergeConflict, match=f"'exp' dropped on one side, and {what} on the other"):
        land()
    assert "exp" in versions(forked).list_branches()
    assert not forked.fsck().damages
