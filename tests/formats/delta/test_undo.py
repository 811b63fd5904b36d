"""Reverts of Delta commits by files: what goes, what comes back, and what is a conflict. Rows are read by the
lake, and by deltalake and DuckDB from the published log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable as ForeignTable

import penstock
from penstock import Delete, Key, Lake, Put
from penstock.errors import MergeConflict
from penstock.formats.delta.branch_log import prepared_table
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.file_writer import write_files
from tests.formats.delta import sides
from tests.formats.delta.rows import inline_vector, vector_data
from tests.formats.delta.sides import KEY, Side, create, foreign_changes, foreign_ids, log

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
ALL = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


def duckdb_ids(duckdb: Any, lake: Lake) -> list[int]:
    lake.table(KEY).backfill_to_version()
    found = duckdb.sql(f"SELECT id FROM delta_scan('{lake.table(KEY).location}') ORDER BY id").fetchall()
    return [one for (one,) in found]


def head(lake: Lake, branch: str = "main") -> str:
    return lake.branch(branch).head


def holds(lake: Lake, *ids: int) -> None:
    """All readers of main find these rows, and the log has only grown."""
    expected = sorted(ids)
    assert Side(lake, "main").ids() == foreign_ids(lake) == expected


def told(lake: Lake, commit: str, on: str = "main", **how: Any) -> str:
    """Why a commit cannot be undone; nothing was changed, and a dry run tells the same."""
    before, written = head(lake, on), log(lake)
    with pytest.raises(MergeConflict) as caught:
        lake.revert(commit, on, **how)
    (conflict,) = caught.value.conflicts
    preview = lake.revert(commit, on, dry_run=True, **how)
    assert [one.why for one in preview.conflicts] == [conflict.why]
    assert (head(lake, on), log(lake)) == (before, written)
    return conflict.why


def test_a_bad_load_is_undone_after_the_next_one_ran(tmp_path: Path) -> None:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        t = lake.create_table("a.t", data=pa.table({"id": [1]}))
        bad = t.append(pa.table({"id": [2]}), message="bad").commit
        good = t.append(pa.table({"id": [3]}), message="good").commit
        lake.revert(bad.id, "main")
        assert sorted(t.to_arrow()["id"].to_pylist()) == [1, 3]
        t.backfill_to_version()
        foreign = ForeignTable(t.location)
        assert (foreign.version(), sorted(pa.table(foreign.scan())["id"].to_pylist())) == (3, [1, 3])
        lake.revert(good.id, "main")
        assert t.to_arrow()["id"].to_pylist() == [1]
        lake.transplant(good.id, "main")
        assert sorted(t.to_arrow()["id"].to_pylist()) == [1, 3]


def test_duckdb_reads_what_a_revert_has_left(lake: Lake, duckdb: Any) -> None:
    main = create(lake, properties=VECTORS)
    main.append(7, 8)
    undone = head(lake)
    main.mask(1)
    main.append(9)
    lake.revert(undone)
    assert main.ids() == foreign_ids(lake) == duckdb_ids(duckdb, lake) == [2, 3, 4, 5, 6, 9]


# --- later changes that are no conflict ---------------------------------------------------------------------


def test_an_append_goes_whatever_later_commits_did_to_other_files(lake: Lake) -> None:
    main = create(lake, properties=VECTORS)
    main.append(7, 8)
    undone = head(lake)
    main.append(9)
    main.delete(1)
    main.mask(3)
    main.compact("tue")
    main.overwrite(10, day="tue")
    main.add_column("note")
    main.set_property("owner", "etl")
    version = main.table.version
    lake.revert(undone)
    holds(lake, 2, 4, 9, 10)
    assert main.table.version == version + 1
    lake.revert(head(lake))
    holds(lake, 2, 4, 7, 8, 9, 10)


def test_a_delete_is_undone_beside_later_appends_and_deletes_in_other_files(lake: Lake) -> None:
    main = create(lake)
    main.delete(1)
    undone = head(lake)
    main.append(7)
    main.delete(5)
    lake.revert(undone)
    holds(lake, 1, 2, 3, 4, 6, 7)


def test_an_overwrite_is_undone_and_rows_that_were_appended_since_stay(lake: Lake) -> None:
    main = create(lake)
    main.overwrite(7)
    undone = head(lake)
    main.append(8)
    lake.revert(undone)
    holds(lake, *ALL, 8)
    lake.transplant(undone, "main")
    holds(lake, 7)


def test_rows_that_were_appended_and_deleted_as_whole_files_leave_nothing_to_do(lake: Lake) -> None:
    main = create(lake)
    main.append(7)
    undone = head(lake)
    main.delete(7)
    assert not lake.revert(undone).commits
    holds(lake, *ALL)


def test_a_compaction_is_undone_without_a_change_of_rows(lake: Lake) -> None:
    main = create(lake, properties=FEED)
    main.compact("mon")
    undone, version = head(lake), main.table.version
    main.append(7)
    lake.revert(undone)
    holds(lake, *ALL, 7)
    assert foreign_changes(lake, version) == [("insert", 7)]


# --- what later commits said --------------------------------------------------------------------------------


@pytest.mark.parametrize("day", [None, "mon"])
def test_nothing_comes_back_where_partitions_were_replaced_since(lake: Lake, day: str | None) -> None:
    main = create(lake)
    main.delete(1, 2)
    undone = head(lake)
    main.overwrite(7, day=day)
    now = main.ids()
    assert not lake.revert(undone).commits
    holds(lake, *now)
    lake.revert(head(lake))
    lake.revert(undone)
    holds(lake, *ALL)


def test_an_overwrite_that_found_and_left_nothing_still_says_that_nothing_is_there(lake: Lake) -> None:
    main = create(lake)
    main.delete(5, 6)
    undone = head(lake)
    main.overwrite(day="tue")
    lake.revert(undone)
    holds(lake, 1, 2, 3, 4)


def test_an_overwrite_of_all_is_undone_but_where_a_day_was_overwritten_since(lake: Lake) -> None:
    main = create(lake)
    main.overwrite(7)
    undone = head(lake)
    main.overwrite(8, day="tue")
    lake.revert(undone)
    holds(lake, 1, 2, 3, 4, 8)


def test_a_merge_carries_no_overwrite_that_was_undone_under_later_ones(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.overwrite(7)
    undone = head(lake, "dev")
    dev.overwrite(8, day="tue")
    lake.revert(undone, "dev")
    assert dev.ids() == [1, 2, 3, 4, 8]
    main.append(9)
    main.append(10, day="tue")
    dev.merge()
    holds(lake, 1, 2, 3, 4, 8, 9)


def test_a_merge_carries_an_overwrite_whose_revert_was_reverted(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.overwrite(7)
    lake.revert(head(lake, "dev"), "dev")
    lake.revert(head(lake, "dev"), "dev")
    assert dev.ids() == [7]
    main.append(9)
    dev.merge()
    holds(lake, 7)


# --- conflicts ----------------------------------------------------------------------------------------------


def test_rows_that_were_compacted_since_are_a_conflict_that_names_files_and_commit(lake: Lake) -> None:
    main = create(lake)
    main.append(7)
    undone = head(lake)
    (own,) = [one.path for one in main._holding(main.now(), [7])]
    main.compact("mon")
    rewriter = head(lake)
    (new,) = [one.path for one in main._holding(main.now(), [7])]
    why = told(lake, undone)
    for text in (own, new, "version 5 (OPTIMIZE)", f"commit {rewriter[:8]}", "'optimize'"):
        assert text in why
    lake.revert(rewriter)
    lake.revert(undone)
    holds(lake, *ALL)


def test_the_other_ways_out_of_a_conflict_lead_out(lake: Lake) -> None:
    main = create(lake)
    main.append(7, 8)
    undone = head(lake)
    main.delete(7)
    main.append(9)
    assert "wrote rows of" in told(lake, undone)
    lake.revert(undone, keys={KEY: "drop"})
    holds(lake, *ALL, 8, 9)
    lake.revert(undone, keys={KEY: "force"})
    holds(lake, *ALL)


def test_rows_that_a_commit_wrote_anew_and_others_deleted_since_do_not_come_back(lake: Lake) -> None:
    main = create(lake)
    main.delete(1)  # writes a file with 2
    undone = head(lake)
    main.delete(2)  # which goes as a whole
    assert "version 5 (DELETE)" in told(lake, undone)
    lake.revert(head(lake))
    lake.revert(undone)
    holds(lake, *ALL)


def test_an_update_that_moved_rows_is_a_conflict_though_its_file_is_there(lake: Lake) -> None:
    """A vector on a file together with a new file: rows of the one are in the other."""
    main = create(lake, properties=VECTORS)
    main.append(7, 8)
    undone = head(lake)
    now = main.now()
    (add,) = main._holding(now, [7])
    new = write_files(now.place, now.metadata, sides.rows(17))
    masked = _masked(add, [0], 2)
    main._commit(now, "UPDATE", [sides._removal(add), masked, *new], WriterReads(files=(add.key.path,)))
    assert new[0].path in told(lake, undone)
    lake.revert(head(lake))
    lake.revert(undone)
    holds(lake, *ALL)


def _masked(add: Add, gone: list[int], count: int) -> Add:
    stats = json.dumps({"numRecords": count, "tightBounds": False})
    vector = inline_vector(vector_data(gone), len(gone))
    return msgspec.structs.replace(add, deletion_vector=vector, stats=stats)


# --- deletion vectors ---------------------------------------------------------------------------------------


def test_a_delete_by_a_vector_is_undone_with_the_vector_from_before(lake: Lake) -> None:
    main = create(lake, properties=VECTORS)
    main.append(7, 8, 9)
    main.mask(7)
    before = [one for one in main.now().files() if one.deletion_vector is not None]
    main.mask(8)
    undone = head(lake)
    main.append(10)
    lake.revert(undone)
    assert [one for one in main.now().files() if one.deletion_vector is not None] == before
    holds(lake, *ALL, 8, 9, 10)


def test_vectors_of_one_file_are_undone_in_any_order_row_by_row(lake: Lake, duckdb: Any) -> None:
    main = create(lake, properties=VECTORS)
    main.append(*range(10, 20))
    commits = []
    for one in (10, 11, 12):
        main.mask(one)
        commits.append(head(lake))
    lake.revert(commits[1])
    holds(lake, *ALL, 11, *range(13, 20))
    lake.revert(commits[0])
    holds(lake, *ALL, 10, 11, *range(13, 20))
    lake.revert(commits[2])
    holds(lake, *ALL, *range(10, 20))
    assert not [one for one in main.now().files() if one.deletion_vector is not None]
    assert not lake.revert(commits[0]).commits, "it is undone already"
    lake.revert(head(lake))  # the revert of the third
    holds(lake, *ALL, 10, 11, *range(13, 20))
    main.mask(10)
    assert not lake.revert(commits[0]).commits, "somebody else deleted the row"
    assert duckdb_ids(duckdb, lake) == [*ALL, 11, *range(13, 20)]


def test_an_append_goes_with_whatever_vector_its_file_has_by_now(lake: Lake) -> None:
    main = create(lake, properties=VECTORS)
    main.append(7, 8)
    undone = head(lake)
    main.mask(7)
    lake.revert(undone)
    holds(lake, *ALL)


def test_a_file_that_is_gone_has_no_rows_to_bring_back(lake: Lake) -> None:
    main = create(lake, properties=VECTORS)
    main.append(7, 8)
    loaded, (path,) = head(lake), [one.path for one in main._holding(main.now(), [7])]
    main.mask(7)
    undone = head(lake)
    lake.revert(loaded)
    holds(lake, *ALL)
    why = told(lake, undone)
    assert f"removed {path}" in why
    assert f"commit {head(lake)[:8]}" in why
    lake.revert(head(lake))
    lake.revert(undone)
    holds(lake, *ALL, 7, 8)


# --- schema, properties, batches, feeds ---------------------------------------------------------------------


def test_a_column_goes_if_no_rows_came_since_that_use_it(lake: Lake) -> None:
    main = create(lake)
    main.add_column("note")
    undone = head(lake)
    main.add_column("price")
    lake.revert(undone)
    assert [one.name for one in main.now().schema.fields] == ["id", "day", "price"]
    holds(lake, *ALL)


def test_a_column_that_later_rows_use_is_a_conflict_with_its_name(lake: Lake) -> None:
    main = create(lake)
    main.add_column("note")
    undone = head(lake)
    more = pa.table({"id": [7], "day": ["mon"], "note": ["x"]})
    main.table.append(more, message="noted")
    later = head(lake)
    why = told(lake, undone)
    for text in ("'note'", "'noted'", later[:8]):
        assert text in why
    lake.revert(later)
    lake.revert(undone)
    assert [one.name for one in main.now().schema.fields] == ["id", "day"]
    holds(lake, *ALL)


def test_a_property_is_as_before_unless_others_changed_it_since(lake: Lake) -> None:
    main = create(lake)
    main.set_property("owner", "etl")
    undone = head(lake)
    main.set_property("colour", "red")
    lake.revert(undone)
    properties: Mapping[str, str] = main.now().metadata.configuration
    assert (properties.get("owner"), properties.get("colour")) == (None, "red")
    lake.revert(head(lake))
    main.set_property("owner", "ada")
    assert "the property 'owner' was changed since, by version" in told(lake, undone)
    lake.revert(head(lake))
    lake.revert(undone)
    assert "owner" not in main.now().metadata.configuration


def test_a_batch_of_a_stream_that_is_undone_stays_recorded(lake: Lake) -> None:
    main = create(lake)
    main.batch("stream", 1, 7)
    undone = head(lake)
    main.batch("stream", 2, 8)
    lake.revert(undone)
    holds(lake, *ALL, 8)
    lake.revert("main~1")
    holds(lake, *ALL)
    assert ForeignTable(main.table.location).transaction_version("stream") == 2
    lake.revert("main")
    lake.transplant(undone, "main")
    holds(lake, *ALL, 7, 8)


def test_readers_of_the_change_feed_see_what_a_revert_took_and_brought(lake: Lake) -> None:
    main = create(lake, properties=FEED)
    main.append(7)
    loaded = head(lake)
    main.delete(1, feed=True)
    deleted = head(lake)
    main.append(8)
    version = main.table.version
    lake.revert(loaded)
    lake.revert(deleted)
    holds(lake, *ALL, 8)
    changes = foreign_changes(lake, version + 1)
    net = {one: 0 for _, one in changes}
    for kind, one in changes:
        net[one] += 1 if kind in ("insert", "update_postimage") else -1
    assert {one: count for one, count in net.items() if count} == {1: 1, 7: -1}


def test_domains_are_as_before(lake: Lake) -> None:
    main = create(lake)
    main.bring_feature("domainMetadata")
    main.write_domain("team", "a")
    main.write_domain("team", "b")
    undone = head(lake)
    main.append(7)
    lake.revert(undone)
    (line,) = [line for line in _last_commit(lake) if "domainMetadata" in line]
    text = json.loads(line)
    assert text["domainMetadata"]["configuration"] == "a"


def _last_commit(lake: Lake) -> list[str]:
    return list(log(lake).values())[-1].decode().splitlines()


# --- tables that came and went ------------------------------------------------------------------------------


def test_a_table_goes_with_the_commit_that_made_it_unless_others_wrote_to_it(lake: Lake) -> None:
    create(lake)
    schema = lake.table(KEY).to_arrow().schema
    lake.create_table("sales.more", schema=schema, message="more")
    made = head(lake)
    lake.revert(made)
    assert [str(one.key) for one in lake.tables()] == [KEY]
    lake.revert(head(lake))
    lake.table("sales.more").append(pa.table({"id": [1], "day": ["mon"]}), message="rows")
    wrote = head(lake)
    why = told(lake, made)
    for text in ("was created by this commit, and written to since", wrote[:8], "'rows'"):
        assert text in why
    lake.revert(wrote)
    lake.revert(made)
    assert [str(one.key) for one in lake.tables()] == [KEY]
    lake.transplant(made, "main")
    assert lake.table("sales.more").to_arrow().num_rows == 0


def test_a_dropped_table_comes_back_and_not_over_another_one(lake: Lake) -> None:
    main = create(lake)
    lake.commit([Delete(Key.parse(KEY))])
    dropped = head(lake)
    lake.revert(dropped)
    holds(lake, *ALL)
    assert not lake.revert(dropped).commits
    lake.commit([Delete(Key.parse(KEY))])
    again = head(lake)
    lake.create_table(KEY, data=pa.table({"id": [9]}), message="anew")
    assert "another table was created with this name since" in told_of_drop(lake, again)
    lake.commit([Delete(Key.parse(KEY))])
    lake.revert(again)
    holds(lake, *ALL)
    assert main.ids() == ALL


def told_of_drop(lake: Lake, commit: str) -> str:
    with pytest.raises(MergeConflict) as caught:
        lake.revert(commit)
    return caught.value.conflicts[0].why


def test_a_table_that_was_renamed_gets_its_name_back_with_all_that_came_since(lake: Lake) -> None:
    main = create(lake)
    content = lake.at("main").get(KEY)
    assert content is not None
    lake.commit([Delete(Key.parse(KEY)), Put(Key.parse("sales.renamed"), content)])
    renamed = head(lake)
    lake.table("sales.renamed").append(pa.table({"id": [7], "day": ["mon"]}))
    appended = head(lake)
    lake.revert(renamed)
    assert [str(one.key) for one in lake.tables()] == [KEY]
    holds(lake, *ALL, 7)
    main.append(8)
    with pytest.raises(MergeConflict, match="was dropped or renamed after the commit to be reverted"):
        lake.revert(appended)
    lake.revert("main~1")
    lake.revert(appended)
    assert sorted(lake.table("sales.renamed").to_arrow()["id"].to_pylist()) == [*ALL, 8]


# --- branches and merges ------------------------------------------------------------------------------------


def test_a_commit_of_a_branch_is_undone_on_main_after_a_merge(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.append(7)
    undone = head(lake, "dev")
    dev.append(8)
    main.append(9)
    dev.merge()
    main.append(10)
    lake.revert(undone, "main")
    holds(lake, *ALL, 8, 9, 10)
    lake.revert(undone, "dev")
    assert dev.ids() == [*ALL, 8]


def test_rows_that_were_compacted_on_the_branch_are_a_conflict_on_main(lake: Lake) -> None:
    create(lake)
    dev = Side(lake, "dev")
    dev.append(7)
    undone = head(lake, "dev")
    dev.compact("mon")
    rewriter = head(lake, "dev")
    dev.merge()
    why = told(lake, undone)
    assert f"commit {rewriter[:8]}" in why


def test_an_overwrite_of_a_branch_whose_merge_took_rows_of_main_is_undone_with_the_merge(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.overwrite(7)
    undone = head(lake, "dev")
    main.append(9)
    dev.merge()
    merge = head(lake)
    holds(lake, 7)
    assert "revert that commit instead" in told(lake, undone)
    main.append(10)
    lake.revert(merge)
    holds(lake, *ALL, 9, 10)


def test_a_merge_that_was_reverted_comes_back_by_reverting_the_revert(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.append(7)
    dev.merge()
    merge = head(lake)
    main.append(8)
    lake.revert(merge)
    holds(lake, *ALL, 8)
    undo = head(lake)
    assert not dev.merge().commits, "main has those commits"
    dev.append(9)
    dev.merge()
    holds(lake, *ALL, 8, 9)
    lake.revert(undo)
    holds(lake, *ALL, 7, 8, 9)


def test_a_branch_that_took_main_in_undoes_its_own_commits(lake: Lake) -> None:
    main = create(lake)
    dev = Side(lake, "dev")
    dev.append(7)
    undone = head(lake, "dev")
    main.append(8)
    main.delete(1)
    theirs = head(lake)
    lake.merge("main", "dev")
    assert dev.ids() == [2, 3, 4, 5, 6, 7, 8]
    lake.revert(undone, "dev")
    assert dev.ids() == [2, 3, 4, 5, 6, 8]
    lake.revert(theirs, "dev")
    assert dev.ids() == [*ALL, 8]
    dev.merge()
    holds(lake, *ALL, 8)


def test_a_transaction_over_three_formats_is_undone_as_a_whole(lake: Lake) -> None:
    main = create(lake)
    with lake.transaction("main", message="night") as tx:
        tx.table(KEY).append(pa.table({"id": [7], "day": ["mon"]}))
        tx.create_table("sales.new", data=pa.table({"id": [1]}))
        tx.write(pa.table({"id": [1]}), "search.vectors", format="lance")
        tx.write(pa.table({"id": [1]}), "raw.events", format="parquet")
    undone = head(lake)
    main.append(8)
    lake.revert(undone)
    holds(lake, *ALL, 8)
    assert [str(one.key) for one in lake.tables()] == [KEY]
    lake.revert(head(lake))
    holds(lake, *ALL, 7, 8)
    for name in ("sales.new", "search.vectors", "raw.events"):
        assert lake.table(name).to_arrow().num_rows == 1


def test_a_dry_run_writes_nothing_even_of_a_large_commit(lake: Lake, tmp_path: Path) -> None:
    main = create(lake)
    now = main.now()
    (add,) = write_files(now.place, now.metadata, sides.rows(7))
    many = [msgspec.structs.replace(add, path=f"{add.path}-{number}") for number in range(800)]
    main._commit(now, "WRITE", [add, *many], WriterReads())
    lake.finish_background()
    before = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")}
    preview = lake.revert(head(lake), dry_run=True)
    assert not preview.conflicts
    assert preview.keys
    assert {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")} == before


def test_the_log_tells_a_revert_as_a_restore_of_plain_files(lake: Lake) -> None:
    main = create(lake)
    main.append(7)
    lake.revert(head(lake))
    actions = [json.loads(line) for line in _last_commit(lake)]
    info = actions[0]["commitInfo"]
    assert (info["operation"], info["operationParameters"]) == ("RESTORE", {"revertedVersion": "4"})
    assert [*actions[1]] == ["remove"]
    assert actions[1]["remove"]["dataChange"] is True


@pytest.mark.parametrize("first", ["delta", "lance", "parquet"])
@pytest.mark.parametrize("second", ["delta", "lance", "parquet"])
def test_a_revert_of_a_creation_leaves_a_table_that_came_to_the_key_since(
    lake: Lake, first: str, second: str
) -> None:
    with lake.transaction() as both:
        both.write(pa.table({"id": [1]}), "a.t", format=first)
        both.write(pa.table({"id": [1]}), "a.other", format=first)
    created = head(lake)
    lake.branch().drop("a.t")
    lake.table("a.t").write(pa.table({"id": [2]}), format=second)
    lake.revert(created)
    assert [str(one.key) for one in lake.tables()] == ["a.t"]
    assert lake.table("a.t").to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize("how", ["a revert of the newest commit", "a revert", "a transplant"])
def test_files_that_are_gone_from_storage_do_not_come_back(lake: Lake, how: str) -> None:
    main = create(lake)
    if how == "a transplant":
        commit = main.append(7).commit.id
        (gone,) = {one.path for one in main.now().files() if one.path in newest_paths(lake)}
        lake.revert(commit)
    else:
        (gone,) = (one.path for one in main.now().files() if one.partition_values["day"] == "tue")
        commit = main.remove_unread(5, 6).commit.id
    if how == "a revert":
        main.append(9)
    before = head(lake), main.ids()
    file = Path(main.now().location) / gone
    data = file.read_bytes()
    file.unlink()
    undo = lake.transplant if how == "a transplant" else lake.revert
    assert undo(commit, dry_run=True).conflicts
    with pytest.raises(MergeConflict, match=r"1 of its data files are gone from storage .* VACUUM"):
        undo(commit)
    assert (head(lake), main.ids()) == before
    file.write_bytes(data)
    undo(commit)
    back = [7] if how == "a transplant" else [5, 6]
    assert main.ids() == foreign_ids(lake) == sorted([*before[1], *back])


def newest_paths(lake: Lake) -> set[str]:
    """The files that the newest version of the log adds."""
    lines = [json.loads(one) for one in list(log(lake).values())[-1].splitlines()]
    return {one["add"]["path"] for one in lines if "add" in one}


def data_changes(lake: Lake) -> set[bool]:
    """What the newest version of the log says of the files that come and go."""
    newest = list(log(lake).values())[-1]
    lines = [json.loads(one) for one in newest.splitlines()]
    return {one[kind]["dataChange"] for one in lines for kind in ("add", "remove") if kind in one}


def test_a_revert_of_the_newest_compaction_tells_readers_of_changes_that_no_row_changed(lake: Lake) -> None:
    main = create(lake)
    compacted = main.compact("mon").commit.id
    lake.revert(compacted)
    assert data_changes(lake) == {False}
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("near", [0, 64])
def test_rows_that_a_restore_brings_back_in_a_compacted_file_are_new_rows_to_readers_of_changes(
    lake: Lake, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_table, "NEAR_VERSIONS", near)
    main = create(lake)
    main.compact("mon")
    (status,) = lake.delta.status(KEY)
    main.remove_unread(1)
    main.append(9)
    assert main.ids() == [5, 6, 9]
    lake.table(KEY).restore(version=status.latest_version)
    assert data_changes(lake) == {True}
    assert main.ids() == foreign_ids(lake) == [1, 2, 3, 4, 5, 6]
