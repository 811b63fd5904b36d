"""A state of earlier comes back as a new version, since a published chain does not go back (M1)."""

from __future__ import annotations

import pytest

from penstock import Delete, Key, Lake
from penstock.errors import InvalidRequest, MergeConflict
from penstock.formats.lance.lake.calls import AlterLance, CommitLance, DeclareLance, PutLanceTag
from penstock.model.merges import KeyMerge, MergeMode
from tests.formats.lance.tables import (
    content,
    delete,
    keys_of,
    keys_seen,
    newest,
    opened,
    state,
    versions,
    write,
)

ITEMS = Key("items")


def test_m1_a_revert_is_a_new_version(forked: Lake) -> None:
    write(forked, "main", 6)
    forked.revert("main", "main")
    assert newest(forked)[0] == 4
    assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5]
    write(forked, "main", 7)
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 7]


def test_a_table_that_was_reverted_counts_as_unchanged(forked: Lake) -> None:
    write(forked, "main", 6)
    forked.revert("main", "main")
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]
    assert opened(forked).to_table(filter="v = 0.5")["k"].to_pylist() == [1]


def test_commits_are_reverted_one_after_the_other_the_newest_first(forked: Lake) -> None:
    sixth = write_commit(forked, 6)
    seventh = write_commit(forked, 7)
    opened(forked).update({"v": "0.5"}, where="k = 1")
    for done in (forked.resolve("main"), seventh, sixth):
        forked.revert(done, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]
    assert opened(forked).to_table(filter="v = 0.5").num_rows == 0


def write_commit(lake: Lake, key: int) -> str:
    write(lake, "main", key)
    return lake.resolve("main")


def test_m1_a_forced_merge_takes_the_other_side_as_a_new_version(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    delete(forked, "main", 1, 2)
    forked.merge("dev", "main", keys={ITEMS: KeyMerge(mode=MergeMode.FORCE)})
    assert newest(forked)[0] == 4
    assert keys_seen(forked) == [1, 2, 3, 4, 5]
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 20]


def test_a_side_that_is_left_out_stays_out(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.merge("dev", "main", keys={ITEMS: KeyMerge(mode=MergeMode.DROP)})
    assert keys_seen(forked) == [1, 2, 3, 4, 5]


def test_what_was_left_out_stays_out_when_more_comes(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("dev", "main", keys={ITEMS: KeyMerge(mode=MergeMode.DROP)})
    write(forked, "dev", 11)
    opened(forked, "dev").optimize.compact_files()
    delete(forked, "dev", 2)
    delete(forked, "main", 3)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 4, 5, 11, 20]


def test_m1_a_dropped_table_goes_on_from_where_it_was(forked: Lake) -> None:
    forked.branch().commit([Delete(ITEMS)])
    forked.revert("main", "main")
    assert (newest(forked)[0], keys_seen(forked)) == (2, [1, 2, 3, 4, 5])
    write(forked, "main", 6)
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


def test_m1_a_dropped_table_comes_back_from_a_branch_as_a_new_version(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.branch().commit([Delete(ITEMS)])
    forked.merge("dev", "main", keys={ITEMS: KeyMerge(mode=MergeMode.FORCE)})
    assert newest(forked)[0] == 3
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]


def test_a_first_version_cannot_be_undone(lake: Lake) -> None:
    lake.do(CommitLance(operations=(DeclareLance(key=ITEMS),)))
    write(lake, "main", 1)
    with pytest.raises(MergeConflict, match="drop the table"):
        lake.revert("main", "main")


def test_tags_and_properties_go_back_with_the_commit_that_made_them(forked: Lake) -> None:
    tag = PutLanceTag(key=ITEMS, tag_name="v1", version=1)
    forked.do(CommitLance(operations=(tag, AlterLance(key=ITEMS, properties={"owner": "ann"}))))
    forked.revert("main", "main")
    assert versions(forked).list_tags() == {}
    assert state(forked).properties == {}
    assert newest(forked)[0] == 2, "no version is made where none is needed"


def test_a_branch_of_lances_own_goes_and_comes_back_with_its_commit(forked: Lake) -> None:
    opened(forked).create_branch("exp")
    forked.revert("main", "main")
    assert versions(forked).list_branches() == {}
    forked.revert("main", "main")
    assert opened(forked).checkout_version(("exp", None)).count_rows() == 5


def test_m1_the_default_branch_cannot_be_moved_where_a_table_has_other_versions(forked: Lake) -> None:
    before = forked.branch().head
    write(forked, "main", 6)
    held = content(forked)
    with pytest.raises(InvalidRequest, match="versions that differ"):
        forked.branch().assign(before)
    assert content(forked) == held
