"""A commit on a Lance table is undone by rows, whatever came after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance_namespace as spec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock import Delete, Key, Lake
from penstock.errors import MergeConflict
from penstock.formats.lance import lineage
from penstock.formats.lance.fragments import FolderVersion, list_fragments
from penstock.formats.lance.reversal import _list_covered_fragments as covered
from penstock.formats.lance.table_merge import TableMerge
from tests.formats.lance.tables import (
    content,
    delete,
    filtered,
    keys_of,
    keys_seen,
    manifest,
    newest,
    opened,
    rows,
    write,
)

lance = pytest.importorskip("lance")


def commit(lake: Lake, do: Callable[[], object], branch: str = "main") -> str:
    """The id of the commit that something makes on a branch."""
    do()
    return lake.resolve(branch)


def values(lake: Lake, ref: str = "main") -> dict[int, float]:
    found = opened(lake, ref).to_table(columns=["k", "v"])
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def append(lake: Lake, *keys: int, branch: str = "main") -> str:
    return commit(lake, lambda: write(lake, branch, *keys), branch)


def update(lake: Lake, key: int, value: float, branch: str = "main") -> str:
    return commit(lake, lambda: opened(lake, branch).update({"v": str(value)}, where=f"k = {key}"), branch)


def remove(lake: Lake, *keys: int, branch: str = "main") -> str:
    return commit(lake, lambda: delete(lake, branch, *keys), branch)


def upsert(lake: Lake, table: pa.Table, branch: str = "main") -> str:
    merge = opened(lake, branch).merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    return commit(lake, lambda: merge.execute(table), branch)


def compact(lake: Lake, branch: str = "main") -> str:
    return commit(lake, opened(lake, branch).optimize.compact_files, branch)


# -- rows --------------------------------------------------------------------------------------------------


def test_rows_that_were_appended_go_and_later_ones_stay(forked: Lake) -> None:
    bad = append(forked, 6)
    append(forked, 7)
    forked.revert(bad, "main")
    assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5, 7]
    assert newest(forked)[0] == 5


def test_rows_that_were_deleted_come_back_and_others_stay_deleted(forked: Lake) -> None:
    bad = remove(forked, 1, 4)
    remove(forked, 2)
    append(forked, 6)
    forked.revert(bad, "main")
    assert keys_of(forked) == keys_seen(forked) == [1, 3, 4, 5, 6]


def test_a_fragment_that_was_deleted_as_a_whole_comes_back(forked: Lake) -> None:
    bad = remove(forked, 1, 2, 3)
    append(forked, 6)
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


def test_rows_that_were_updated_have_their_old_values_again(forked: Lake) -> None:
    bad = update(forked, 1, 0.5)
    update(forked, 2, 0.7)
    append(forked, 6)
    forked.revert(bad, "main")
    assert values(forked) == {1: 1.0, 2: 0.7, 3: 3.0, 4: 4.0, 5: 5.0, 6: 6.0}
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


def test_an_overwrite_is_undone_and_later_rows_stay(forked: Lake) -> None:
    bad = commit(forked, lambda: write(forked, "main", 10, 11, mode="overwrite"))
    append(forked, 12)
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 12]


def test_what_is_gone_already_is_no_conflict(forked: Lake) -> None:
    bad = append(forked, 6, 7)
    remove(forked, 6)
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]
    head = forked.branch().head
    forked.revert(bad, "main")
    assert forked.branch().head == head, "nothing is left to be undone"


@pytest.mark.parametrize("is_before", [True, False])
def test_compaction_is_no_conflict(forked: Lake, is_before: bool) -> None:
    if is_before:
        append(forked, 6)
        compact(forked)
    added, changed, gone = append(forked, 7), update(forked, 1, 0.5), remove(forked, 4)
    append(forked, 8)
    compact(forked)
    append(forked, 9)
    compact(forked)
    for bad in (changed, added, gone):
        forked.revert(bad, "main")
    sixth = [6] if is_before else []
    assert keys_seen(forked) == [1, 2, 3, 4, 5, *sixth, 8, 9]
    assert values(forked)[1] == 1.0
    compact(forked)
    assert keys_seen(forked) == [1, 2, 3, 4, 5, *sixth, 8, 9]


def test_a_compaction_is_reverted_without_a_change_of_rows(forked: Lake) -> None:
    done = compact(forked)
    append(forked, 6)
    forked.revert(done, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


def test_a_revert_is_reverted(forked: Lake) -> None:
    bad = update(forked, 1, 0.5)
    append(forked, 6)
    for wanted in (1.0, 0.5, 1.0):
        forked.revert(bad, "main")
        bad = forked.resolve("main")
        append(forked, int(10 * wanted) + newest(forked)[0] * 100)
        assert values(forked)[1] == wanted
    assert len(keys_seen(forked)) == 9


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_reverts_come_in_any_order(forked: Lake, order: tuple[int, ...]) -> None:
    bad = append(forked, 6), update(forked, 1, 0.5), remove(forked, 4)
    append(forked, 7)
    for place in order:
        forked.revert(bad[place], "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 7]
    assert values(forked)[1] == 1.0


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_commit_that_was_reverted_comes_back_by_a_transplant(forked: Lake, is_newest: bool) -> None:
    bad = update(forked, 1, 0.5)
    if not is_newest:
        append(forked, 6)
    forked.revert(bad, "main")
    forked.transplant([bad], "main")
    assert values(forked)[1] == 0.5
    forked.transplant([bad], "main")
    assert values(forked)[1] == 0.5
    assert keys_seen(forked) == [1, 2, 3, 4, 5] + ([] if is_newest else [6])


def test_rows_that_were_deleted_since_do_not_come_back_by_a_transplant(forked: Lake) -> None:
    bad = append(forked, 6, 7)
    remove(forked, 6)
    forked.revert(bad, "main")
    with pytest.raises(MergeConflict, match="has deleted or updated rows that the commit added"):
        forked.transplant([bad], "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]


def test_a_reverted_commit_comes_back_by_a_revert_where_too_much_was_done_for_a_transplant(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = append(forked, 6)
    update(forked, 1, 0.5)
    update(forked, 2, 0.5)
    undone = commit(forked, lambda: forked.revert(bad, "main"))
    monkeypatch.setattr(lineage, "TRACED_MAX", 1)
    with pytest.raises(MergeConflict, match="its history since then is no longer complete"):
        forked.transplant([bad], "main")
    append(forked, 7)
    forked.revert(undone, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6, 7]


def test_a_revert_is_repeated_on_a_branch_that_has_what_it_undid(forked: Lake) -> None:
    bad = remove(forked, 1)
    forked.branch("release").create()
    append(forked, 6)
    undone = commit(forked, lambda: forked.revert(bad, "main"))
    append(forked, 7, branch="release")
    forked.transplant([undone], "release")
    assert keys_of(forked, "release") == [1, 2, 3, 4, 5, 7]


def test_a_revert_is_not_repeated_where_its_rows_never_were(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(forked, 1, 0.5)
    update(forked, 2, 0.5)
    bad = remove(forked, 1)
    append(forked, 6)
    undone = commit(forked, lambda: forked.revert(bad, "main"))
    append(forked, 10, branch="dev")
    with pytest.raises(MergeConflict, match="never had, on this branch, the rows"):
        forked.transplant([undone], "dev")
    gone = remove(forked, 10, branch="dev")
    monkeypatch.setattr(lineage, "TRACED_MAX", 1)
    with pytest.raises(MergeConflict, match="revert the original commit on this branch instead"):
        forked.transplant([undone], "dev")
    forked.revert(gone, "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 10]


def test_rows_whose_files_were_cleaned_up_are_not_promised(forked: Lake) -> None:
    bad = remove(forked, 1, 2, 3)
    append(forked, 6)
    there = {file for one in list_fragments(FolderVersion(manifest(forked), "")) for file in one.files}
    data = Path(content(forked).location) / "data"
    (gone,) = (file for file in data.iterdir() if f"/data/{file.name}" not in there)
    gone.rename(data.parent / gone.name)
    with pytest.raises(
        MergeConflict, match=r"were cleaned up: .*, whose rows would be restored, no longer exists"
    ):
        forked.revert(bad, "main")
    forked.revert(bad, "main", keys={"items": "drop"})
    assert keys_seen(forked) == [4, 5, 6]
    (data.parent / gone.name).rename(gone)
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


# -- branches, merges, transactions ------------------------------------------------------------------------


def test_a_commit_is_reverted_on_a_branch(forked: Lake) -> None:
    bad = append(forked, 6, branch="dev")
    update(forked, 1, 0.5, "dev")
    forked.revert(bad, "dev")
    assert keys_of(forked, "dev") == keys_seen(forked) == [1, 2, 3, 4, 5]
    assert (values(forked, "dev")[1], values(forked)[1]) == (0.5, 1.0)
    forked.merge("dev", "main")
    assert values(forked)[1] == 0.5


@pytest.mark.parametrize("is_grafted", [True, False])
def test_a_commit_that_came_by_a_merge_is_reverted(forked: Lake, is_grafted: bool) -> None:
    bad = update(forked, 1, 0.5, "dev")
    append(forked, 6, branch="dev")
    if is_grafted:
        append(forked, 20)
        compact(forked)
    forked.merge("dev", "main")
    append(forked, 21)
    forked.revert(bad, "main")
    assert values(forked)[1] == 1.0
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6, *([20] if is_grafted else []), 21]
    forked.merge("main", "dev")
    assert values(forked, "dev") == values(forked)


@pytest.mark.parametrize("is_grafted", [True, False])
def test_a_merge_is_reverted(forked: Lake, is_grafted: bool) -> None:
    update(forked, 1, 0.5, "dev")
    append(forked, 6, branch="dev")
    remove(forked, 4, branch="dev")
    if is_grafted:
        append(forked, 20)
    merged = commit(forked, lambda: forked.merge("dev", "main"))
    append(forked, 21)
    forked.revert(merged, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, *([20] if is_grafted else []), 21]
    assert values(forked)[1] == 1.0


def test_a_merge_of_which_a_part_was_reverted_is_a_conflict(forked: Lake) -> None:
    update(forked, 1, 0.5, "dev")
    gone = remove(forked, 1, branch="dev")
    append(forked, 20)
    merged = commit(forked, lambda: forked.merge("dev", "main"))
    forked.revert(gone, "main")
    assert values(forked)[1] == 0.5
    with pytest.raises(MergeConflict, match="already had a part of the commit reverted"):
        forked.revert(merged, "main")
    forked.revert("main", "main")
    forked.revert(merged, "main")
    assert values(forked) == {key: float(key) for key in (1, 2, 3, 4, 5, 20)}


def test_branches_merge_after_a_revert(forked: Lake) -> None:
    bad = append(forked, 6)
    forked.revert(bad, "main")
    append(forked, 7)
    append(forked, 8, branch="dev")
    remove(forked, 2, branch="dev")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 3, 4, 5, 7, 8]
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [1, 3, 4, 5, 7, 8]


def test_a_branch_that_has_a_reverted_commit_does_not_bring_it_back(forked: Lake) -> None:
    bad = append(forked, 6)
    forked.branch("later").create()
    append(forked, 7)
    forked.revert(bad, "main")
    append(forked, 8, branch="later")
    forked.merge("later", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 7, 8]


def test_a_transaction_over_several_tables_is_reverted(forked: Lake) -> None:
    write(forked, "main", 1, mode="create", table="others")
    with forked.transaction("main") as tx:
        write(forked, tx.branch, 6)
        opened(forked, tx.branch).update({"v": "0.5"}, where="k = 1")
        write(forked, tx.branch, 2, table="others")
        tx.land()
    landed = forked.resolve("main")
    append(forked, 7)
    write(forked, "main", 3, table="others")
    forked.revert(landed, "main")
    assert (keys_seen(forked), keys_seen(forked, "others")) == ([1, 2, 3, 4, 5, 7], [1, 3])
    assert values(forked)[1] == 1.0


# -- tables that come and go -------------------------------------------------------------------------------


def test_the_commit_that_created_a_table_is_reverted(lake: Lake) -> None:
    with lake.transaction("main") as tx:
        write(lake, tx.branch, 1, mode="create")
        tx.land()
    created = lake.resolve("main")
    lake.revert(created, "main")
    assert lake.tables() == []
    lake.revert("main", "main")
    assert keys_seen(lake) == [1]


def test_a_table_that_was_changed_since_its_creation_is_not_reverted_away(lake: Lake) -> None:
    with lake.transaction("main") as tx:
        write(lake, tx.branch, 1, mode="create")
        tx.land()
    created = lake.resolve("main")
    later = append(lake, 2)
    with pytest.raises(MergeConflict, match="was created or renamed by the commit, and changed since") as it:
        lake.revert(created, "main")
    assert later[:8] in str(it.value)
    lake.revert(created, "main", keys={"items": "drop"})
    assert keys_seen(lake) == [1, 2]
    lake.lance().drop_table(spec.DropTableRequest(id=["items"]))
    lake.revert(created, "main")


def test_a_table_that_was_dropped_comes_back(forked: Lake) -> None:
    append(forked, 6)
    dropped = commit(forked, lambda: forked.branch().commit([Delete(Key("items"))]))
    write(forked, "main", 1, mode="create", table="others")
    forked.revert(dropped, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]
    forked.revert(dropped, "main")
    append(forked, 7)
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6, 7]


def test_a_commit_of_a_table_that_was_dropped_waits_for_the_table(forked: Lake) -> None:
    bad = append(forked, 6)
    dropped = commit(forked, lambda: forked.branch().commit([Delete(Key("items"))]))
    with pytest.raises(MergeConflict, match="was dropped or renamed after the commit to be reverted") as it:
        forked.revert(bad, "main")
    assert dropped[:8] in str(it.value)
    forked.revert(dropped, "main")
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]


def test_another_table_in_its_place_is_a_conflict(forked: Lake) -> None:
    dropped = commit(forked, lambda: forked.branch().commit([Delete(Key("items"))]))
    write(forked, "main", 9, mode="create")
    with pytest.raises(MergeConflict, match="is not the table that the commit changed"):
        forked.revert(dropped, "main")
    forked.revert(dropped, "main", keys={"items": "drop"})
    assert keys_seen(forked) == [9]
    forked.lance().rename_table(spec.RenameTableRequest(id=["items"], new_table_name="newer"))
    forked.revert(dropped, "main")
    assert (keys_seen(forked), keys_seen(forked, "newer")) == ([1, 2, 3, 4, 5], [9])


# -- conflicts, and the ways out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "later", "why"),
    [
        (
            lambda lake: append(lake, 6),
            lambda lake: update(lake, 6, 0.5),
            "1 row that the commit added was up",
        ),
        (
            lambda lake: update(lake, 1, 0.5),
            lambda lake: update(lake, 1, 0.7),
            "the commit added was updated",
        ),
        (
            lambda lake: update(lake, 1, 0.5),
            lambda lake: remove(lake, 1),
            "the commit had updated was deleted",
        ),
        (
            lambda lake: append(lake, 6),
            lambda lake: commit(lake, lambda: write(lake, "main", 9, mode="overwrite")),
            "1 row that the commit added was updated or rewritten",
        ),
        (lambda lake: remove(lake, 1), lambda lake: upsert(lake, rows(1)), "by a merge insert"),
    ],
)
def test_rows_that_were_changed_since_are_a_conflict_with_ways_out(
    forked: Lake, bad: Callable[[Lake], str], later: Callable[[Lake], str], why: str
) -> None:
    before = values(forked)
    done = bad(forked)
    changed = later(forked)
    append(forked, 30)
    now = values(forked)
    with pytest.raises(MergeConflict, match=why) as it:
        forked.revert(done, "main")
    assert changed[:8] in str(it.value)
    assert "data/" in str(it.value)
    assert values(forked) == now
    forked.revert(done, "main", keys={"items": "drop"})
    assert values(forked) == now
    fork = forked.branch("fork")
    fork.create()
    forked.revert(changed, "fork")
    forked.revert(done, "fork")
    assert values(forked, "fork") == before | {30: 30.0}
    forked.revert(done, "main", keys={"items": "force"})
    assert values(forked) == before


def test_rows_that_came_back_and_were_updated_are_a_conflict(forked: Lake) -> None:
    bad = remove(forked, 1)
    append(forked, 6)
    forked.revert(bad, "main")
    update(forked, 1, 0.5)
    with pytest.raises(MergeConflict, match="a later commit restored, was updated"):
        forked.revert(bad, "main")
    assert values(forked)[1] == 0.5


def test_an_update_of_other_rows_by_a_merge_insert_is_no_conflict(forked: Lake) -> None:
    gone, added = remove(forked, 1), append(forked, 6)
    upsert(forked, rows(2).set_column(1, "v", pa.array([0.5])))
    forked.revert(gone, "main")
    upsert(forked, rows(7))
    forked.revert(added, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 7]


# -- columns, settings, indexes ----------------------------------------------------------------------------


def test_a_column_that_was_added_goes(forked: Lake) -> None:
    bad = commit(forked, lambda: opened(forked).add_columns({"x": "k * 2"}))
    more = pa.table({"k": pa.array([6], pa.int64()), "v": [6.0], "x": pa.array([12], pa.int64())})
    commit(forked, lambda: lance.write_dataset(more, opened(forked), mode="append"))
    compact(forked)
    remove(forked, 2)
    forked.revert(bad, "main")
    assert opened(forked).schema.names == ["k", "v"]
    assert keys_seen(forked) == [1, 3, 4, 5, 6]
    append(forked, 7)
    opened(forked).add_columns({"y": "k * 3"})
    assert opened(forked).to_table(columns=["y"])["y"].to_pylist() == [3, 9, 12, 15, 18, 21]


def test_a_column_that_was_dropped_comes_back_with_its_values(forked: Lake) -> None:
    opened(forked).add_columns({"x": "k * 2"})
    bad = commit(forked, lambda: opened(forked).drop_columns(["x"]))
    append(forked, 6)
    remove(forked, 2)
    forked.revert(bad, "main")
    found = opened(forked).to_table(columns=["k", "x"])
    assert dict(zip(found["k"].to_pylist(), found["x"].to_pylist(), strict=True)) == {
        1: 2,
        3: 6,
        4: 8,
        5: 10,
        6: None,
    }


@pytest.mark.parametrize("later", [compact, lambda lake: update(lake, 1, 0.5)])
def test_a_dropped_column_whose_rows_were_written_anew_is_a_conflict(
    forked: Lake, later: Callable[[Lake], str]
) -> None:
    opened(forked).add_columns({"x": "k * 2"})
    bad = commit(forked, lambda: opened(forked).drop_columns(["x"]))
    later(forked)
    with pytest.raises(MergeConflict, match="a column that the commit had dropped"):
        forked.revert(bad, "main")


def test_columns_that_came_later_stay(forked: Lake) -> None:
    bad = commit(forked, lambda: opened(forked).add_columns({"x": "k * 2"}))
    opened(forked).add_columns({"y": "k * 3"})
    forked.revert(bad, "main")
    assert opened(forked).to_table().to_pydict() == {
        "k": [1, 2, 3, 4, 5],
        "v": [1.0, 2.0, 3.0, 4.0, 5.0],
        "y": [3, 6, 9, 12, 15],
    }


def test_a_column_that_was_renamed_has_its_old_name_again(forked: Lake) -> None:
    bad = commit(forked, lambda: opened(forked).alter_columns({"path": "v", "name": "w"}))
    more = pa.table({"k": pa.array([6], pa.int64()), "w": [6.0]})
    commit(forked, lambda: lance.write_dataset(more, opened(forked), mode="append"))
    forked.revert(bad, "main")
    assert values(forked) == {key: float(key) for key in range(1, 7)}


def test_a_column_of_another_type_with_rows_since_is_a_conflict(forked: Lake) -> None:
    bad = commit(forked, lambda: opened(forked).alter_columns({"path": "v", "data_type": pa.float32()}))
    more = pa.table({"k": pa.array([6], pa.int64()), "v": pa.array([6.0], pa.float32())})
    commit(forked, lambda: lance.write_dataset(more, opened(forked), mode="append"))
    with pytest.raises(MergeConflict, match="do not fit the columns that the table had before"):
        forked.revert(bad, "main")
    remove(forked, 6)
    forked.revert(bad, "main")
    assert opened(forked).schema.field("v").type == pa.float64()
    assert values(forked) == {key: float(key) for key in range(1, 6)}


def test_settings_go_back_one_by_one(forked: Lake) -> None:
    opened(forked).update_config({"a": "1", "b": "1"})
    bad = commit(forked, lambda: opened(forked).update_config({"a": "2", "c": "2"}))
    opened(forked).update_config({"b": "3"})
    append(forked, 6)
    forked.revert(bad, "main")
    assert opened(forked).config() == {"a": "1", "b": "3"}
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]
    again = commit(forked, lambda: opened(forked).update_config({"a": "5"}))
    opened(forked).update_config({"a": "6"})
    with pytest.raises(MergeConflict, match="config 'a' changed again by a later commit"):
        forked.revert(again, "main")


def indexes(lake: Lake) -> dict[str, frozenset[int]]:
    """The fragments that each index covers, of those that are there."""
    return {one.get_text(3) or "": covered(one) for one in manifest(lake).indexes}


def numbers(lake: Lake) -> frozenset[int]:
    return frozenset(one.number for one in list_fragments(FolderVersion(manifest(lake), "")))


def test_an_index_that_was_created_goes(forked: Lake) -> None:
    bad = commit(forked, lambda: opened(forked).create_scalar_index("k", "BTREE"))
    append(forked, 6)
    opened(forked).optimize.optimize_indices()
    compact(forked)
    forked.revert(bad, "main")
    assert indexes(forked) == {}
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]


def test_an_index_that_was_dropped_comes_back_for_what_it_covers(forked: Lake) -> None:
    gone = remove(forked, 1)
    opened(forked).create_scalar_index("k", "BTREE")
    bad = commit(forked, lambda: opened(forked).drop_index("k_idx"))
    append(forked, 6)
    forked.revert(gone, "main")
    forked.revert(bad, "main")
    assert filtered(forked, "main", 1, 2, 5, 6) == [1, 2, 5, 6]
    assert indexes(forked)["k_idx"] <= numbers(forked)


def test_an_index_covers_no_rows_that_it_does_not_know(forked: Lake) -> None:
    opened(forked).create_scalar_index("k", "BTREE")
    added = append(forked, 6, 7)
    changed, gone = update(forked, 2, 0.5), remove(forked, 1, 4, 5)
    opened(forked).create_scalar_index("k", "BTREE", replace=True)
    for bad in (gone, added, changed):
        forked.revert(bad, "main")
        assert filtered(forked, "main", *range(1, 9)) == keys_of(forked)
        assert indexes(forked)["k_idx"] <= numbers(forked), "no index covers what is not there"
    assert keys_of(forked) == [1, 2, 3, 4, 5]
    opened(forked).optimize.optimize_indices()
    assert filtered(forked, "main", *range(1, 9)) == [1, 2, 3, 4, 5]


def test_rows_with_numbers_of_their_own_keep_them(lake: Lake) -> None:
    lance.write_dataset(
        rows(1, 2, 3), namespace_client=lake.lance(), table_id=["items"], enable_stable_row_ids=True
    )
    write(lake, "main", 4, 5)
    was = row_ids(lake)
    opened(lake).create_scalar_index("k", "BTREE")
    changed, gone, added = update(lake, 2, 0.5), remove(lake, 4), append(lake, 6)
    append(lake, 7)
    compact(lake)
    for bad in (gone, added, changed):
        lake.revert(bad, "main")
        assert filtered(lake, "main", *range(1, 9)) == keys_of(lake)
    found = row_ids(lake)
    assert {key: found[key] for key in was} == was
    assert len(set(found.values())) == len(found) == 6
    assert values(lake) == {key: float(key) for key in (1, 2, 3, 4, 5, 7)}
    assert keys_seen(lake) == [1, 2, 3, 4, 5, 7]


def row_ids(lake: Lake) -> dict[int, int]:
    found = opened(lake).to_table(columns=["k"], with_row_id=True)
    return dict(zip(found["k"].to_pylist(), found["_rowid"].to_pylist(), strict=True))


# -- what it costs, and who comes at the same time ---------------------------------------------------------


def test_a_dry_run_writes_nothing(forked: Lake) -> None:
    bad = update(forked, 1, 0.5)
    append(forked, 6)
    forked.finish_background()
    place = Path(content(forked).location)
    files = sorted(place.rglob("*"))
    head = forked.branch().head
    found = forked.revert(bad, "main", dry_run=True)
    assert not found.conflicts
    assert (sorted(place.rglob("*")), forked.branch().head) == (files, head)


def test_a_revert_reads_what_the_commit_changed(forked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the files of deleted rows of all that others have changed since."""
    for key in range(10, 40):
        append(forked, key, key + 100)
    bad = update(forked, 1, 0.5)
    for key in range(10, 40):
        remove(forked, key)
    names: list[str] = []
    original = TableMerge.revert_table

    def watched(self: TableMerge, *sides: Any) -> Any:
        landing = self._landing
        deletions = landing._read_deletions

        def noted(path: str) -> Any:
            names.append(path)
            return deletions(path)

        monkeypatch.setattr(landing, "_read_deletions", noted)
        return original(self, *sides)

    monkeypatch.setattr(TableMerge, "revert_table", watched)
    forked.revert(bad, "main")
    assert len(names) <= 2
    assert values(forked)[1] == 1.0


@pytest.mark.parametrize("other", [lambda lake: append(lake, 7), compact, lambda lake: remove(lake, 2)])
def test_a_revert_that_is_overtaken_is_done_on_what_is_there_then(
    forked: Lake, monkeypatch: pytest.MonkeyPatch, other: Callable[[Lake], str]
) -> None:
    bad = append(forked, 6)
    append(forked, 8)
    original, calls = TableMerge.revert_table, list[int]()

    def overtaken(self: TableMerge, *sides: Any) -> Any:
        found = original(self, *sides)
        calls.append(1)
        if len(calls) == 1:
            other(forked)
        return found

    monkeypatch.setattr(TableMerge, "revert_table", overtaken)
    forked.revert(bad, "main")
    assert len(calls) > 1
    assert 6 not in keys_of(forked)
    assert keys_of(forked) == keys_seen(forked)


@pytest.mark.parametrize("what", ["append", "delete", "update", "compact", "index"])
def test_who_writes_with_a_handle_from_before_a_revert_loses_nothing(forked: Lake, what: str) -> None:
    gone = remove(forked, 1)
    added = append(forked, 6)
    append(forked, 7)
    stale = opened(forked)
    forked.revert(gone, "main")
    forked.revert(added, "main")
    now = [1, 2, 3, 4, 5, 7]
    attempts: dict[str, tuple[Callable[[], object], list[int]]] = {
        "append": (lambda: lance.write_dataset(rows(8), stale, mode="append"), [*now, 8]),
        "delete": (lambda: stale.delete("k = 2"), [1, 3, 4, 5, 7]),
        "update": (lambda: stale.update({"v": "0.5"}, where="k = 3"), now),
        "compact": (stale.optimize.compact_files, now),
        "index": (lambda: stale.create_scalar_index("k", "BTREE"), now),
    }
    attempt, expected = attempts[what]
    try:
        attempt()
    except OSError:  # Lance asks to do it again
        expected = now
    assert keys_of(forked) == keys_seen(forked) == expected
    if what == "index" and indexes(forked):
        assert filtered(forked, "main", *range(1, 9)) == expected


def test_lancedb_opens_what_was_reverted(forked: Lake) -> None:
    lancedb = pytest.importorskip("lancedb")
    bad = update(forked, 1, 0.5)
    append(forked, 6)
    forked.revert(bad, "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6]
    place = Path(content(forked).location)
    linked = place.parent / "linked"
    linked.mkdir()
    (linked / "items.lance").symlink_to(place)
    assert lancedb.connect(linked).open_table("items").count_rows() == 6
