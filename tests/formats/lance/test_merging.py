"""A branch of a Lance table lands as one version: as it is, or grafted; or it is refused (L1, L2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace import RenameTableRequest

from penstock import Delete, Key, Lake
from penstock.errors import KeyNotFound, MergeConflict
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance, GetLanceTable
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import make_manifest_path
from penstock.formats.lance.plugin import LancePlugin
from penstock.model.merges import KeyMerge, MergeMode
from tests.formats.lance.tables import (
    content,
    delete,
    embedded,
    filtered,
    keys_of,
    keys_seen,
    manifest,
    newest,
    opened,
    rows,
    state,
    versions,
    write,
)
from tests.plugins import plugin_of

lance = pytest.importorskip("lance")


def refusal(lake: Lake, source: str = "dev", target: str = "main") -> str:
    """Why a merge is refused; nothing has changed by it."""
    before = content(lake, target)
    with pytest.raises(MergeConflict) as refused:
        lake.merge(source, target)
    assert content(lake, target) == before
    return str(refused.value)


# -- one side changed it -----------------------------------------------------------------------------------


def test_l1_a_branch_writes_to_a_line_of_its_own(forked: Lake) -> None:
    write(forked, "dev", 10)
    assert state(forked, "dev").chain.startswith("_penstock/")
    assert state(forked).chain == ""
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 10]
    assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5]


def test_all_that_was_done_on_a_branch_lands_as_one_version(forked: Lake) -> None:
    write(forked, "dev", 10, 11)
    delete(forked, "dev", 1, 11)
    opened(forked, "dev").add_columns({"w": "k * 2"})
    more = pa.table({"k": [2, 12], "v": [0.5, 12.0], "w": [7, 8]})
    merging = opened(forked, "dev").merge_insert("k")
    merging.when_matched_update_all().when_not_matched_insert_all().execute(more)
    wanted = opened(forked, "dev").to_table().sort_by("k")
    forked.merge("dev", "main")
    assert newest(forked)[0] == 3
    assert opened(forked).to_table().sort_by("k") == wanted
    assert keys_seen(forked) == keys_of(forked) == [2, 3, 4, 5, 10, 12]


def test_a_branch_that_has_not_written_goes_along_with_the_default_branch(forked: Lake) -> None:
    write(forked, "main", 6)
    forked.merge("main", "dev")
    assert state(forked, "dev") == state(forked)
    write(forked, "dev", 7)
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 6, 7]


def test_l1_a_line_gets_one_version_for_what_the_default_branch_has(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.merge("dev", "main")
    write(forked, "main", 6)
    opened(forked).update({"v": "0.0"}, where="k = 1")
    before = newest(forked, "dev")[0]
    forked.merge("main", "dev")
    assert newest(forked, "dev")[0] == before + 1
    assert keys_of(forked, "dev") == keys_of(forked) == [1, 2, 3, 4, 5, 6, 10]
    write(forked, "dev", 12)
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 6, 10, 12]


def test_a_table_that_was_made_on_a_branch_lands_in_its_own_folder(lake: Lake) -> None:
    lake.branch().create_namespace("raw")
    lake.branch("dev").create()
    write(lake, "dev", 1, mode="create", table="raw.new")
    write(lake, "dev", 2, table="raw.new")
    lake.merge("dev", "main")
    assert (newest(lake, table="raw.new")[0], state(lake, table="raw.new").owner) == (1, b"")
    assert keys_seen(lake, "raw.new") == keys_of(lake, table="raw.new") == [1, 2]
    write(lake, "dev", 3, table="raw.new")
    lake.merge("dev", "main")
    write(lake, "main", 4, table="raw.new")
    assert keys_seen(lake, "raw.new") == [1, 2, 3, 4]


def test_a_branch_of_a_branch_lands_there_and_further(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.branch("feature").create(at="dev")
    write(forked, "feature", 20)
    write(forked, "dev", 11)
    forked.merge("feature", "dev")
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 10, 11, 20]
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 11, 20]


def test_a_table_that_was_dropped_on_a_branch_goes_if_nobody_wrote_to_it(forked: Lake) -> None:
    forked.branch("dev").commit([Delete(Key("items"))])
    forked.merge("dev", "main")
    with pytest.raises(KeyNotFound):
        forked.do(GetLanceTable(key=Key("items")))


def test_a_table_that_was_dropped_here_and_written_to_there_is_somebodys_to_decide(forked: Lake) -> None:
    write(forked, "dev", 6)
    forked.branch().commit([Delete(Key("items"))])
    with pytest.raises(MergeConflict, match="dropped or renamed here"):
        forked.merge("dev", "main")


def test_a_table_that_was_dropped_on_a_branch_stays_if_somebody_wrote_to_it(forked: Lake) -> None:
    forked.branch("dev").commit([Delete(Key("items"))])
    write(forked, "main", 6)
    assert "dropped or renamed on the other side" in refusal(forked)


# -- both sides changed it ---------------------------------------------------------------------------------


def test_l1_appends_and_deletions_of_both_sides_come_together(forked: Lake) -> None:
    write(forked, "dev", 10, 11)
    delete(forked, "dev", 4)
    write(forked, "main", 20)
    delete(forked, "main", 2)
    forked.merge("dev", "main")
    assert newest(forked)[0] == 5
    assert keys_of(forked) == keys_seen(forked) == [1, 3, 5, 10, 11, 20]


def test_a_fragment_that_was_deleted_as_a_whole_goes(forked: Lake) -> None:
    delete(forked, "dev", 4, 5)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    assert newest(forked)[1].operation is ManifestOperation.DELETE
    assert keys_seen(forked) == [1, 2, 3, 20]


def test_rows_that_were_appended_and_deleted_on_a_line_stay_away(forked: Lake) -> None:
    write(forked, "dev", 10, 11, 12)
    delete(forked, "dev", 11)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 12, 20]


def test_rows_are_deleted_in_a_fragment_that_has_another_number_here(forked: Lake) -> None:
    write(forked, "dev", 10, 11)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    delete(forked, "dev", 10)
    write(forked, "main", 21)
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 11, 20, 21]
    opened(forked).optimize.compact_files()
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 11, 20, 21]


def test_what_was_grafted_can_be_read_written_compacted_and_indexed(forked: Lake) -> None:
    opened(forked).create_scalar_index("k", "BTREE")
    forked.merge("main", "dev")
    write(forked, "dev", 10, 11)
    delete(forked, "dev", 3)
    write(forked, "main", 20)
    stale = opened(forked)
    forked.merge("dev", "main")
    lance.write_dataset(rows(30), stale, mode="append")
    wanted = [1, 2, 4, 5, 10, 11, 20, 30]
    assert keys_of(forked) == wanted
    assert opened(forked).to_table(filter="k = 11")["k"].to_pylist() == [11]
    opened(forked).optimize.compact_files()
    opened(forked).optimize.optimize_indices()
    assert keys_of(forked) == keys_seen(forked) == wanted
    assert opened(forked).to_table(filter="k = 11 or k = 3")["k"].to_pylist() == [11]


@pytest.mark.parametrize(
    "done",
    [
        lambda table: table.update({"v": "0.0"}, where="k = 1"),
        lambda table: table.optimize.compact_files(),
        lambda table: table.create_scalar_index("k", "BTREE"),
        lambda table: table.drop_columns(["v"]),
    ],
    ids=["update", "compaction", "index", "dropped column"],
)
def test_what_lance_lets_through_comes_on_top_of_other_changes(
    forked: Lake, done: Callable[[object], object]
) -> None:
    done(opened(forked, "dev"))
    write(forked, "main", 20)
    delete(forked, "main", 2)
    forked.merge("dev", "main")
    assert keys_of(forked) == keys_seen(forked) == [1, 3, 4, 5, 20]
    stale = opened(forked)
    assert stale.to_table(filter="k = 1 or k = 20").num_rows == 2
    lance.write_dataset(rows(21).select(stale.schema.names), stale, mode="append")
    opened(forked).optimize.compact_files()
    assert opened(forked).to_table(filter="k = 1 or k = 21").num_rows == 2
    assert keys_seen(forked) == [1, 3, 4, 5, 20, 21]


def test_an_index_that_a_branch_made_works_in_a_table_that_went_on(forked: Lake) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    write(forked, "dev", 10)
    write(forked, "main", 20)
    opened(forked).update({"v": "0.5"}, where="k = 4")
    forked.merge("dev", "main")
    assert filtered(forked, "main", 1, 4, 10, 20) == [1, 4, 10, 20]
    assert opened(forked).to_table(filter="k = 4")["v"].to_pylist() == [0.5]


def test_rows_come_to_a_table_that_got_a_column_and_have_nulls_there(forked: Lake) -> None:
    write(forked, "dev", 10)
    delete(forked, "dev", 2)
    opened(forked, "dev").optimize.compact_files()
    opened(forked).add_columns({"w": "k * 2"})
    opened(forked).add_columns(pa.field("x", pa.int64()))
    forked.merge("dev", "main")
    found = opened(forked).to_table().sort_by("k")
    assert (found["k"].to_pylist(), found["w"].to_pylist()) == ([1, 3, 4, 5, 10], [2, 6, 8, 10, None])
    assert keys_seen(forked) == [1, 3, 4, 5, 10]


def test_a_column_without_values_that_both_sides_got_is_one_column(forked: Lake) -> None:
    for branch in ("dev", "main"):
        opened(forked, branch).add_columns(pa.field("w", pa.int64()))
    opened(forked, "dev").update({"w": "7"}, where="k = 1")
    write(forked, "main", 20)
    forked.merge("dev", "main")
    found = opened(forked).to_table().sort_by("k")
    assert (found["k"].to_pylist(), found["w"].to_pylist()) == ([1, 2, 3, 4, 5, 20], [7, *[None] * 5])


def test_values_of_a_column_that_both_sides_got_are_not_lost(forked: Lake) -> None:
    opened(forked, "dev").add_columns({"w": "k * 2"})
    opened(forked, "dev").optimize.compact_files()
    opened(forked).add_columns(pa.field("w", pa.int64()))
    assert "got the same columns on both sides" in refusal(forked)


def test_a_branch_that_got_a_column_takes_in_the_other_rows_first_and_lands_then(forked: Lake) -> None:
    opened(forked, "dev").add_columns({"w": "k * 2"})
    write(forked, "main", 20)
    assert "merge the other way first" in refusal(forked)
    forked.merge("main", "dev")
    opened(forked, "dev").update({"w": "k * 2"}, where="w is null")
    forked.merge("dev", "main")
    found = opened(forked).to_table().sort_by("k")
    assert (found["k"].to_pylist(), found["w"].to_pylist()) == ([1, 2, 3, 4, 5, 20], [2, 4, 6, 8, 10, 40])


def test_values_of_a_column_that_one_side_got_are_not_lost_by_an_update_of_the_other(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    opened(forked).add_columns({"w": "k * 2"})
    assert "would lose their values" in refusal(forked)


def test_a_column_that_became_another_one_is_told(forked: Lake) -> None:
    write(forked, "dev", 10)
    opened(forked).alter_columns({"path": "v", "data_type": pa.float32()})
    assert "its column 'v'" in refusal(forked)


def test_nothing_is_grafted_onto_a_table_that_was_overwritten(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 1, mode="overwrite")
    assert "the target has had overwrite, after which" in refusal(forked)


def test_deletions_in_one_fragment_are_united(forked: Lake) -> None:
    delete(forked, "dev", 1, 4)
    delete(forked, "main", 2)
    forked.merge("dev", "main")
    assert keys_of(forked) == keys_seen(forked) == [3, 5]
    assert newest(forked)[1].operation is ManifestOperation.DELETE
    delete(forked, "main", 3)
    delete(forked, "dev", 2)
    forked.merge("dev", "main")
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == keys_seen(forked) == [5]
    opened(forked).optimize.compact_files()
    assert keys_seen(forked) == [5]


def test_deletions_of_more_rows_than_a_short_list_holds_are_united(lake: Lake) -> None:
    """Lance lists many deleted rows in another kind of file than a few."""
    write(lake, "main", *range(20_000), mode="create")
    lake.branch("dev").create()
    opened(lake, "dev").delete("k % 3 = 0")
    opened(lake).delete("k % 2 = 0")
    lake.merge("dev", "main")
    assert keys_seen(lake) == [key for key in range(20_000) if key % 3 and key % 2]
    assert keys_of(lake) == keys_seen(lake)


def test_rows_that_were_deleted_in_a_fragment_that_was_compacted_here_go(forked: Lake) -> None:
    delete(forked, "main", 1)
    opened(forked).optimize.compact_files()
    write(forked, "main", 6)
    opened(forked).optimize.compact_files()
    delete(forked, "dev", 3, 4)
    opened(forked, "dev").update({"v": "0.5"}, where="k = 5")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [2, 5, 6]
    assert opened(forked).to_table(filter="k = 5")["v"].to_pylist() == [0.5]


def test_rows_that_were_appended_and_compacted_with_others_come_without_these(forked: Lake) -> None:
    write(forked, "dev", 10, 11)
    opened(forked, "dev").optimize.compact_files()
    delete(forked, "dev", 11, 2)
    write(forked, "main", 20)
    delete(forked, "main", 1)
    forked.merge("dev", "main")
    assert keys_of(forked) == keys_seen(forked) == [3, 4, 5, 10, 20]
    forked.merge("main", "dev")
    assert keys_of(forked, "dev") == [3, 4, 5, 10, 20]


def test_rows_that_both_sides_updated_are_named_by_their_data_files(forked: Lake) -> None:
    opened(forked, "dev").update({"v": "0.5"}, where="k = 1")
    opened(forked).update({"v": "1.5"}, where="k = 1")
    with pytest.raises(MergeConflict) as refused:
        forked.merge("dev", "main")
    (conflict,) = refused.value.conflicts
    assert "(data/" in conflict.why
    assert "the same rows" in conflict.why


def write_column_anew(lake: Lake, branch: str = "main") -> None:
    """Give rows of the first fragment other values, in a file beside the one that they are in."""
    table = opened(lake, branch)
    values = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "v": [0.1, 0.2, 0.3]})
    fragment, fields = table.get_fragments()[0].update_columns(values, left_on="k")
    rewritten = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    client = {"namespace_client": lake.lance(branch), "table_id": ["items"]}
    lance.LanceDataset.commit(table, rewritten, read_version=table.version, **client)


@pytest.mark.parametrize(("source", "target"), [("dev", "main"), ("main", "dev")])
def test_columns_that_were_written_anew_in_place_stay_with_rows_that_nobody_else_touched(
    forked: Lake, source: str, target: str
) -> None:
    """Lance writes a column of a fragment anew, and leaves the others, where many rows get a new value."""
    write_column_anew(forked)
    write(forked, "dev", 10)
    delete(forked, "dev", 5)
    forked.merge(source, target)
    found = opened(forked, target).to_table().sort_by("k")
    assert found["k"].to_pylist() == [1, 2, 3, 4, 10]
    assert found["v"].to_pylist() == [0.1, 0.2, 0.3, 4.0, 10.0]


@pytest.mark.parametrize(("source", "target"), [("dev", "main"), ("main", "dev")])
@pytest.mark.parametrize("branch", ["dev", "main"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_columns_that_were_written_anew_in_place_clash_with_deletions_there(
    forked: Lake, branch: str, source: str, target: str, *, is_compacted: bool
) -> None:
    write_column_anew(forked, branch)
    if is_compacted:
        opened(forked, branch).optimize.compact_files()
    delete(forked, "main" if branch == "dev" else "dev", 2)
    assert "one side rewrote columns of data files" in refusal(forked, source, target)


def test_appends_go_with_an_update_that_the_target_has(forked: Lake) -> None:
    write(forked, "dev", 10)
    opened(forked).update({"v": "0.0"}, where="k = 1")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]
    assert opened(forked).to_table(filter="k = 1")["v"].to_pylist() == [0.0]


def test_tables_whose_rows_have_numbers_are_not_grafted_and_land_as_they_are(lake: Lake) -> None:
    lance.write_dataset(
        rows(1, 2),
        namespace_client=lake.lance(),
        table_id=["items"],
        enable_stable_row_ids=True,
    )
    lake.branch("dev").create()
    write(lake, "dev", 3)
    delete(lake, "dev", 1)
    lake.merge("dev", "main")
    write(lake, "main", 4)
    assert keys_seen(lake) == [2, 3, 4]
    ids = opened(lake).to_table(columns=["k"], with_row_id=True)["_rowid"].to_pylist()
    assert len(set(ids)) == 3
    write(lake, "dev", 5)
    assert "stable row ids" in refusal(lake)


def test_a_state_at_which_the_sides_parted_and_which_is_gone_is_told(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    Path(content(forked).location, make_manifest_path("", "", 2)).unlink()
    plugin_of(embedded(forked), LancePlugin).parts.manifests._kept.clear()
    assert "is missing or was replaced" in refusal(forked)
    forked.merge("dev", "main", keys={Key("items"): KeyMerge(mode=MergeMode.FORCE)})
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]


# -- what it leaves ----------------------------------------------------------------------------------------


def test_a_line_that_has_no_files_left_in_a_table_is_no_base_of_it(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.merge("dev", "main")
    assert len(manifest(forked).bases) == 1
    opened(forked).optimize.compact_files()
    forked.branch("other").create()
    write(forked, "other", 11)
    forked.merge("other", "main")
    assert [one.path.rpartition("/")[2] for one in manifest(forked).bases] == [
        state(forked, "other").chain.strip("/").rpartition("/")[2]
    ]


def test_versions_that_were_there_can_still_be_read_after_a_merge(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    for number, wanted in ((1, 3), (2, 5), (3, 6), (4, 7)):
        found = lance.dataset(namespace_client=forked.lance(), table_id=["items"], version=number)
        assert found.count_rows() == wanted
    assert [number for number, _ in versions(forked).list_versions()] == [4, 3, 2, 1]


def test_private_tables_merge_and_nobody_sees_it_who_does_not_ask(lake: Lake) -> None:
    lake.do(CommitLance(operations=(DeclareLance(key=Key("items"), is_private=True),)))
    write(lake, "main", 1)
    lake.branch("dev").create()
    write(lake, "dev", 2)
    write(lake, "main", 3)
    lake.merge("dev", "main")
    assert keys_of(lake) == [1, 2, 3]
    place = plugin_of(embedded(lake), LancePlugin).parts.places.open_place(content(lake).location)
    assert [one.key for one in place.list("_versions") if one.key.endswith(".manifest")] == []


def test_a_table_that_was_renamed_on_a_branch_goes_on_under_its_new_name(forked: Lake) -> None:
    request = RenameTableRequest(id=["items"], new_table_name="things")
    forked.lance("dev").rename_table(request)
    write(forked, "dev", 6, table="things")
    forked.merge("dev", "main")
    assert (newest(forked, table="things")[0], keys_seen(forked, "things")) == (3, [1, 2, 3, 4, 5, 6])
    write(forked, "main", 7, table="things")
    write(forked, "dev", 8, table="things")
    forked.merge("dev", "main")
    assert keys_seen(forked, "things") == [1, 2, 3, 4, 5, 6, 7, 8]
