"""Files of tables that no commit names go when they are old; nothing that a kept commit needs does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake

import penstock
from penstock import Settings
from penstock.errors import PenstockError, Unavailable
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.nessie import IcebergTable
from penstock.storage.places import Place
from tests.formats.delta.rows import vector_data, vector_file_data, z85
from tests.owner.orders import add, left_unpublished, log_file, unpublished
from tests.sweep.tables import LateClock, abandoned, data_files, ids, only, root_of, rows

PATIENT = Settings(publish_wait_s=60.0)
"""A commit is answered when it is published, or when something stands against that."""
Opening = Callable[[], Lake]
"""Opens the lake anew, as another process does."""


@pytest.fixture
def opening(tmp_path: Path, later: LateClock) -> Iterator[Opening]:
    opened: list[Lake] = []

    def opening() -> Lake:
        opened.append(penstock.open(tmp_path / "lake", author="tester", clock=later, settings=PATIENT))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


@pytest.fixture
def lake(opening: Opening) -> Lake:
    return opening()


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table that has been swept since it was created."""
    created = lake.create_table("orders", data=rows(1))
    shutil.rmtree(root_of(created) / "_penstock" / "creating")
    return created


def test_the_note_of_a_creation_goes_when_the_table_is_there(lake: Lake, later: LateClock) -> None:
    note = root_of(lake.create_table("orders", data=rows(1))) / "_penstock" / "creating" / lake.id
    assert note.is_file()
    later.days = 8
    assert only(lake.sweep_tables()).scratch_files == 1
    assert not note.exists()


def test_what_a_job_did_not_commit_goes_when_it_is_older_than_the_grace_time(
    lake: Lake, table: Table, later: LateClock
) -> None:
    table.append(rows(2))
    root = root_of(table)
    committed = data_files(root)
    left = abandoned(lake, table) | abandoned(lake, table, folder="_penstock/data")
    later.days = 6.9
    young = only(lake.sweep_tables(remove_data=True))
    assert (young.data_files, young.waiting, young.kept) == (0, 2, 2)
    assert data_files(root) == committed | left
    later.days = 7.1
    told = only(lake.sweep_tables(remove_data=True))
    assert (told.data_files, told.waiting, told.kept, told.data_removed) == (2, 0, 2, True)
    assert set(told.names) == left
    assert told.data_bytes > 0
    assert data_files(root) == committed
    assert ids(table) == [1, 2]
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0


def test_files_under_random_prefixes_and_in_folders_of_jobs_go_by_the_same_rules(
    lake: Lake, table: Table, later: LateClock
) -> None:
    root = root_of(table)
    committed = data_files(root)
    job = f"job={'0a' * 16}"
    folders = ("aB", "_change_data/aB", f"_penstock/data/{job}", f"_change_data/{job}/_temporary/0/task_1")
    left = {name for folder in folders for name in abandoned(lake, table, folder=folder)}
    later.days = 6.9
    assert only(lake.sweep_tables(remove_data=True)).waiting == len(folders)
    assert data_files(root) == committed | left
    later.days = 7.1
    assert set(only(lake.sweep_tables(remove_data=True)).names) == left
    assert data_files(root) == committed


def test_data_files_are_only_counted_unless_it_is_asked_to_remove_them(
    lake: Lake, table: Table, later: LateClock
) -> None:
    left = abandoned(lake, table)
    root = root_of(table)
    body = root / "_penstock" / "bodies" / "0.json"
    body.parent.mkdir(parents=True)
    body.write_bytes(b"{}")
    later.days = 8
    for remove_data in (False, True):
        told = only(lake.sweep_tables(remove_data=remove_data, dry_run=True))
        assert (told.data_files, told.scratch_files, told.data_removed, told.dry_run) == (1, 1, False, True)
        assert body.exists()
    told = only(lake.sweep_tables())
    assert (told.data_files, told.scratch_files, told.data_removed, told.dry_run) == (1, 1, False, False)
    assert not body.exists()
    assert left < data_files(root)


def test_files_of_others_stay(lake: Lake, table: Table, later: LateClock) -> None:
    root = root_of(table)
    names = ["notes.txt", "orders.parquet", "backup/part-1.parquet", "_penstock/mine.txt", "x/y.crc"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"somebody's")
    before = {one for one in root.rglob("*") if one.is_file()}
    later.days = 400
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    assert before <= {one for one in root.rglob("*") if one.is_file()}


@pytest.mark.parametrize("target", [".", "day=x", "other table", "itself", "nothing"])
def test_links_are_not_followed(lake: Lake, table: Table, later: LateClock, target: str) -> None:
    other = lake.create_table("visits", data=pa.table({"id": [1], "day": ["x"]}), partition_by=["day"])
    root = root_of(other)
    to = {"other table": str(root_of(table)), "itself": "latest=1", "nothing": "gone"}.get(target, target)
    (root / "latest=1").symlink_to(to)
    left = abandoned(lake, other, day=["y"])
    later.days = 30
    found = {str(one.key): one for one in lake.sweep_tables(remove_data=True)}
    assert [(one.problem, one.kept) for one in found.values()] == [("", 1), ("", 1)]
    assert set(found["visits"].names) == left
    lake.delta.clean_log("visits")
    assert (root / "latest=1").is_symlink()
    assert ids(other) == ids(table) == [1]


def test_a_lake_that_is_reached_by_a_link_is_swept(tmp_path: Path, later: LateClock) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "lake").symlink_to("disk")
    with penstock.open(tmp_path / "lake", author="tester", clock=later) as lake:
        lake.add_root(str(tmp_path))
        (tmp_path / "tables").symlink_to("elsewhere")
        (tmp_path / "elsewhere").mkdir()
        table = lake.create_table("orders", data=rows(1))
        other = lake.create_table("visits", data=rows(1), location=str(tmp_path / "tables" / "visits"))
        for one in (table, other):
            abandoned(lake, one)
        later.days = 8
        assert [one.data_files for one in lake.sweep_tables(remove_data=True)] == [1, 1]
        assert ids(table) == ids(other) == [1]


def test_a_file_that_is_a_link_is_read_and_kept_where_a_commit_names_it(
    lake: Lake, table: Table, tmp_path: Path, later: LateClock
) -> None:
    """As where somebody moved old files to another disk."""
    table.backfill_to_version()
    root = root_of(table)
    (named,) = data_files(root)
    (left,) = abandoned(lake, table)
    for name in (named, left, f"_delta_log/{0:020}.json"):
        moved = tmp_path / Path(name).name
        (root / name).rename(moved)
        (root / name).symlink_to(moved)
    later.days = 8
    told = only(lake.sweep_tables(remove_data=True))
    assert (told.kept, told.names) == (1, (left,))
    assert (tmp_path / left).exists(), "the link is gone, and not what it leads to"
    assert ids(table) == [1]


@pytest.mark.parametrize("folder", ["region=eu", "Region=EU", "aB"])
def test_a_table_inside_of_an_adopted_one_keeps_its_files(
    lake: Lake, tmp_path: Path, later: LateClock, folder: str
) -> None:
    place = tmp_path / "sales"
    write_deltalake(place, rows(1))
    write_deltalake(place / folder, rows(2))
    lake.add_root(str(tmp_path))
    lake.delta.adopt(str(place), "sales")
    left = abandoned(lake, lake.table("sales"))
    later.days = 30
    told = only(lake.sweep_tables(remove_data=True))
    assert set(told.names) == left
    assert ForeignTable(str(place / folder)).to_pyarrow_table()["id"].to_pylist() == [2]


def test_a_table_of_another_lake_inside_of_an_adopted_one_keeps_its_files(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    place = tmp_path / "sales"
    for one in (place, place / "region=eu"):
        write_deltalake(one, rows(1))
    with penstock.open(tmp_path / "other", author="tester") as other:
        for each, where, key in ((other, place / "region=eu", "eu"), (lake, place, "sales")):
            each.add_root(str(tmp_path))
            each.delta.adopt(str(where), key)
        other.table("eu").append(rows(2))
        later.days = 30
        assert only(lake.sweep_tables(remove_data=True)).names == ()
        assert ids(other.table("eu")) == [1, 2]


def test_random_prefixes_of_the_length_that_the_table_wants_are_known(lake: Lake, later: LateClock) -> None:
    table = lake.create_table("orders", data=rows(1), properties={"delta.randomPrefixLength": "4"})
    left = abandoned(lake, table, folder="aBcD")
    others = abandoned(lake, table, folder="aBcDe")
    later.days = 8
    assert set(only(lake.sweep_tables(remove_data=True)).names) == left
    assert others < data_files(root_of(table))


def test_what_branches_and_tags_have_stays(lake: Lake, table: Table, later: LateClock) -> None:
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(2))
    lake.tag("v1").create(at="dev")
    branch.table("orders").overwrite(rows(3))
    abandoned(lake, table)
    later.days = 8
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert ids(lake.table("orders", "dev")) == [3]
    assert ids(lake.table("orders", "v1")) == [1, 2]
    assert ids(table) == [1]


def test_what_older_versions_have_stays_as_long_as_commits_lead_there(
    lake: Lake, table: Table, later: LateClock
) -> None:
    for number in (2, 3, 4):
        table.overwrite(rows(number))
    table.backfill_to_version()
    lake.delta.checkpoint("orders")
    left = abandoned(lake, table)
    later.days = 8
    told = only(lake.sweep_tables(remove_data=True))
    assert set(told.names) == left
    assert [ids(table, version) for version in range(4)] == [[1], [2], [3], [4]]
    assert [ids(lake.table("orders", f"main~{back}")) for back in range(4)] == [[4], [3], [2], [1]]


def test_what_history_has_forgotten_goes_with_the_log_that_names_it(
    opening: Opening, later: LateClock
) -> None:
    lake = opening()
    table = lake.create_table("orders", data=rows(1))
    for number in (2, 3, 4):
        table.overwrite(rows(number))
    table.backfill_to_version()
    lake.keep_history(max_commits=1)
    later.days = 400
    lake.delta.checkpoint("orders")
    table.append(rows(5))
    later.days = 402
    lake.sweep()
    lake = opening()
    table = lake.table("orders")
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0, "the log still tells of them"
    lake.delta.clean_log("orders")
    assert only(lake.sweep_tables(remove_data=True)).data_files == 2
    assert ids(table) == [4, 5]
    assert ids(table, 3) == [4]
    assert sorted(ForeignTable(str(root_of(table))).to_pyarrow_table()["id"].to_pylist()) == [4, 5]


def test_what_only_a_checkpoint_tells_of_stays(opening: Opening, later: LateClock) -> None:
    lake = opening()
    table = lake.create_table("orders", data=rows(1))
    table.append(rows(2))
    table.append(rows(3))
    table.backfill_to_version()
    lake.delta.checkpoint("orders")
    table.append(rows(4))
    lake.keep_history(max_commits=1)
    left = abandoned(lake, table)
    later.days = 400
    lake.sweep()
    lake = opening()
    table = lake.table("orders")
    lake.delta.clean_log("orders")
    assert not log_file(table, 1).exists()
    assert set(only(lake.sweep_tables(remove_data=True)).names) == left
    assert ids(table) == [1, 2, 3, 4]


def test_what_a_branch_has_since_before_the_horizon_stays(opening: Opening, later: LateClock) -> None:
    lake = opening()
    lake.create_table("orders", data=rows(1))
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(2))
    root = root_of(lake.create_table("visits", data=rows(7), branch="dev"))
    for number in range(3):
        branch.put("other", IcebergTable(metadata_location=f"s3://bucket/{number}"))
    lake.keep_history(max_commits=1)
    later.days = 30
    lake.sweep()
    lake = opening()
    assert len(lake.log("dev")) == 1
    assert [one.data_files for one in lake.sweep_tables(remove_data=True)] == [0, 0]
    assert ids(lake.table("orders", "dev")) == [1, 2]
    assert len(data_files(root)) == 1


def test_what_a_deleted_branch_had_goes_after_the_grace_period_of_the_lake(
    lake: Lake, table: Table, later: LateClock
) -> None:
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(2))
    later.days = 8
    branch.delete()
    later.days = 8.9
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0, "the branch can still be brought back"
    later.days = 9.1
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert ids(table) == [1]


def test_what_a_merge_brought_stays_when_the_branch_is_gone(
    lake: Lake, table: Table, later: LateClock
) -> None:
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(2))
    table.append(rows(3))
    lake.merge("dev", "main")
    branch.delete()
    later.days = 30
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    assert ids(table) == [1, 2, 3]


def test_what_is_not_published_stays(lake: Lake, table: Table, later: LateClock) -> None:
    left = {f"part-{version}.parquet" for version in (1, 2)}
    for name in left:
        (root_of(table) / name).write_bytes(b"1")
    with unpublished(table):
        table.append_actions([add("part-1.parquet")])
    table.append_actions([add("part-2.parquet")])
    assert not log_file(table, 1).exists()
    later.days = 30
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    assert left < data_files(root_of(table))


def test_a_large_commit_whose_body_lies_beside_the_log_names_its_files(
    lake: Lake, table: Table, later: LateClock
) -> None:
    names = [f"part-{number:0200}.parquet" for number in range(700)]
    branch = lake.branch("dev").create()
    branch.table("orders").append_actions([add(name) for name in names])
    (root_of(table) / names[500]).write_bytes(b"1")
    later.days = 30
    told = only(lake.sweep_tables(remove_data=True))
    assert (told.data_files, told.scratch_files) == (0, 0)
    assert (root_of(table) / names[500]).exists()


def test_a_dropped_table_is_left_alone_and_can_be_brought_back(
    lake: Lake, table: Table, later: LateClock
) -> None:
    table.append(rows(2))
    root = root_of(table)
    abandoned(lake, table)
    lake.branch("dev").create()
    lake.branch().drop("orders")
    later.days = 30
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1, "the branch has it still"
    assert ids(lake.table("orders", "dev")) == [1, 2]
    abandoned(lake, lake.table("orders", "dev"))
    lake.branch("dev").delete()
    later.days = 60
    before = data_files(root)
    assert lake.sweep_tables(remove_data=True) == []
    assert data_files(root) == before
    lake.revert("main")
    assert ids(lake.table("orders")) == [1, 2]


def test_a_released_table_belongs_to_the_file_system(lake: Lake, table: Table, later: LateClock) -> None:
    lake.branch("old").create()
    root = root_of(table)
    left = abandoned(lake, table)
    lake.delta.release("orders")
    write_deltalake(root, rows(5), mode="append")
    later.days = 30
    assert lake.sweep_tables(remove_data=True) == [], "although an older branch has it"
    assert left < data_files(root)
    lake.delta.adopt(str(root), "orders")
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1, "it is the lake's again"
    assert ids(lake.table("orders")) == [1, 5]
    assert ids(lake.table("orders", "main~3")) == [1]


def test_a_table_that_was_adopted_again_and_dropped_is_swept_as_long_as_a_branch_has_it(
    lake: Lake, table: Table, later: LateClock
) -> None:
    """It has another id since it was adopted again, and its log names that one."""
    lake.branch("old").create()
    root = root_of(table)
    lake.delta.release("orders")
    lake.delta.adopt(str(root), "again")
    lake.table("again").append(rows(2))
    left = abandoned(lake, lake.table("again"))
    lake.branch().drop("again")
    later.days = 30
    told = only(lake.sweep_tables(remove_data=True))
    assert set(told.names) == left
    assert ids(lake.table("orders", "old")) == [1]
    lake.revert("main")
    assert ids(lake.table("again")) == [1, 2]


def test_a_log_that_names_a_table_which_the_lake_never_had_is_not_swept(
    lake: Lake, table: Table, later: LateClock
) -> None:
    other = lake.create_table("visits", data=rows(1))
    for one in (table, other):
        one.backfill_to_version()
    abandoned(lake, table)
    shutil.copy(log_file(other, 0), log_file(table, 0))
    later.days = 30
    before = data_files(root_of(table))
    told = {str(one.key): one for one in lake.sweep_tables(remove_data=True)}["orders"]
    assert told.problem
    assert data_files(root_of(table)) == before


def test_what_was_committed_before_the_table_was_adopted_stays(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    place = tmp_path / "free"
    for number in range(3):
        write_deltalake(place, rows(number), mode="append")
    lake.add_root(str(tmp_path))
    lake.delta.adopt(str(place), "free")
    table = lake.table("free")
    table.append(rows(9))
    left = abandoned(lake, table, 7)
    later.days = 30
    told = only(lake.sweep_tables(remove_data=True))
    assert set(told.names) == left
    assert ids(table) == [0, 1, 2, 9]
    assert ids(table, 0) == [0]


def test_files_of_the_change_feed_and_of_deletion_vectors_stay(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table = lake.create_table("orders", schema=rows().schema, properties=properties)
    root = root_of(table)
    (written,) = abandoned(lake, lake.create_table("other", schema=rows().schema), 1, 2, 3)
    shutil.copy(root_of(lake.table("other")) / written, root / written)
    size = (root / written).stat().st_size
    stats = '{"numRecords":3,"tightBounds":false}'
    table.append_actions([add(written, size=size, stats=stats)])
    identity = uuid4()
    data, (start,) = vector_file_data(vector_data([1]))
    (root / f"deletion_vector_{identity}.bin").write_bytes(data)
    (root / f"deletion_vector_{uuid4()}.bin").write_bytes(data)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": z85(identity.bytes),
        "offset": start,
        "sizeInBytes": len(data) - start - 8,
        "cardinality": 1,
    }
    (root / "_change_data").mkdir()
    for name in ("cdc-1.parquet", "cdc-2.parquet"):
        (root / "_change_data" / name).write_bytes(b"1")
    cdc = {"path": "_change_data/cdc-1.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    table.commit(
        2,
        [
            {"remove": {"path": written, "deletionTimestamp": 1, "dataChange": True}},
            add(written, size=size, stats=stats, deletionVector=vector),
            {"cdc": cdc},
        ],
    )
    later.days = 30
    found = {str(one.key): one for one in lake.sweep_tables(remove_data=True)}["orders"]
    assert (found.data_files, found.problem) == (2, "")
    assert (root / "_change_data" / "cdc-1.parquet").exists()
    assert not (root / "_change_data" / "cdc-2.parquet").exists()
    assert ids(table) == [1, 3]


def test_checksums_of_hadoop_go_with_their_files(lake: Lake, table: Table, later: LateClock) -> None:
    root = root_of(table)
    (committed,) = data_files(root)
    (left,) = abandoned(lake, table)
    for name in (committed, left, "part-gone.parquet"):
        (root / f".{name}.crc").write_bytes(b"crc")
    later.days = 8
    assert only(lake.sweep_tables(remove_data=True)).data_files == 3
    assert [one.name for one in root.glob(".*.crc")] == [f".{committed}.crc"]


def test_partitions_of_any_text_are_told_apart(lake: Lake, later: LateClock) -> None:
    days = ["a:b", "a b", "ü", "100%", "a/b", "%3A", None]
    schema = pa.schema({"id": pa.int64(), "day": pa.string()})
    table = lake.create_table("orders", schema=schema, partition_by=["day"])
    table.append(pa.table({"id": range(len(days)), "day": days}, schema=schema))
    abandoned(lake, table, *range(len(days)), day=days)
    later.days = 8
    told = only(lake.sweep_tables(remove_data=True))
    assert (told.data_files, told.kept) == (len(days), len(days))
    assert ids(table) == list(range(len(days)))


# -- what cannot be known -----------------------------------------------------------------------------------


def swept_with_problem(lake: Lake, root: Path) -> str:
    """The reason for which nothing of the only table is removed."""
    with suppress(PenstockError):  # what stands against the table may keep it from being published, too
        lake.finish_background()
    before = {one for one in root.rglob("*") if one.is_file()}
    (told,) = lake.sweep_tables(remove_data=True)
    assert {one for one in root.rglob("*") if one.is_file()} == before
    assert told.problem
    return told.problem


def test_nothing_goes_if_a_commit_of_the_log_is_damaged(lake: Lake, table: Table, later: LateClock) -> None:
    table.append(rows(2))
    table.append(rows(3))
    table.backfill_to_version()
    abandoned(lake, table)
    later.days = 30
    whole = log_file(table, 1).read_bytes()
    log_file(table, 1).write_bytes(b"{nonsense")
    assert "00000000000000000001.json" in swept_with_problem(lake, root_of(table))
    log_file(table, 1).unlink()
    assert swept_with_problem(lake, root_of(table))
    log_file(table, 1).write_bytes(whole)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1


def test_nothing_goes_if_versions_are_gone_that_a_commit_of_the_lake_has(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    place = tmp_path / "free"
    for number in range(3):
        write_deltalake(place, rows(number), mode="append")
    lake.add_root(str(tmp_path))
    lake.delta.adopt(str(place), "free")
    table = lake.table("free")
    for number in (3, 4):
        table.append(rows(number))
    table.backfill_to_version()
    lake.delta.checkpoint("free")
    abandoned(lake, table)
    later.days = 30
    for version in range(5):  # as another engine cleans up a log
        log_file(table, version).unlink()
    assert "version 2 " in swept_with_problem(lake, place)


def test_nothing_goes_if_a_file_of_a_branch_is_gone(lake: Lake, table: Table, later: LateClock) -> None:
    branch = lake.branch("dev").create()
    large = [add(f"{number:0200}") for number in range(700)]
    branch.table("orders").append_actions(large)
    abandoned(lake, table)
    (body,) = (root_of(table) / "_penstock" / "bodies").iterdir()
    kept = body.read_bytes()
    body.unlink()
    later.days = 30
    lake.close()
    with penstock.open(lake.url, clock=later) as again:
        assert body.name in swept_with_problem(again, root_of(again.table("orders")))
        body.write_bytes(kept)
        assert only(again.sweep_tables(remove_data=True)).data_files == 1


def test_nothing_goes_if_the_log_has_versions_that_the_lake_does_not_know(
    lake: Lake, table: Table, later: LateClock
) -> None:
    table.backfill_to_version()
    abandoned(lake, table)
    log_file(table, 1).write_bytes(b'{"commitInfo":{}}\n')
    later.days = 30
    assert "version 1" in swept_with_problem(lake, root_of(table))


def test_an_older_copy_of_a_lake_removes_nothing_of_what_came_since(tmp_path: Path, later: LateClock) -> None:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        lake.create_table("orders", data=rows(1), location=str(tmp_path / "orders"))
        lake.branch("dev").create()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.table("orders", "dev").append(rows(2))
        lake.table("orders").append(rows(3))
        lake.table("orders").backfill_to_version()
    later.days = 30
    with penstock.open(tmp_path / "copy", clock=later) as copy:
        assert "older copy" in swept_with_problem(copy, tmp_path / "orders")
    with penstock.open(tmp_path / "lake") as lake:
        assert ids(lake.table("orders", "dev")) == [1, 2]


def test_one_table_in_trouble_does_not_keep_others_from_being_swept(
    lake: Lake, table: Table, later: LateClock
) -> None:
    other = lake.create_table("visits", data=rows(1))
    for one in (table, other):
        one.backfill_to_version()
        abandoned(lake, one)
    log_file(table, 0).write_bytes(b"{nonsense")
    later.days = 30
    found = {str(one.key): one for one in lake.sweep_tables(remove_data=True)}
    assert found["orders"].problem
    assert (found["visits"].problem, found["visits"].data_files) == ("", 1)


def test_tables_are_asked_for_one_by_one_or_in_pages(lake: Lake, later: LateClock) -> None:
    keys = ["a", "b", "c"]
    for key in keys:
        abandoned(lake, lake.create_table(key, data=rows(1)))
    later.days = 30
    assert str(only(lake.sweep_tables("b")).key) == "b"
    lake.catalogue.page_max = 1
    assert sorted(str(one.key) for one in lake.sweep_tables()) == keys


def test_a_sweep_that_is_interrupted_is_taken_up_by_the_next(
    lake: Lake, table: Table, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {one for _ in range(5) for one in abandoned(lake, table)}
    root = root_of(table)
    delete = Place.delete

    def killed(place: Place, names: list[str]) -> None:
        delete(place, names[:2])
        raise Unavailable("the storage went away")

    later.days = 8
    with monkeypatch.context() as patched:
        patched.setattr(Place, "delete", killed)
        (told,) = lake.sweep_tables(remove_data=True)
    assert (told.problem, told.data_files) == ("the storage went away", 0)
    assert len(left & data_files(root)) == 3
    assert only(lake.sweep_tables(remove_data=True)).data_files == 3
    assert not left & data_files(root)
    assert ids(table) == [1]


def test_unfinished_writes_of_a_disk_go(lake: Lake, table: Table, later: LateClock) -> None:
    unfinished = root_of(table) / "_penstock" / ".unfinished" / "0123"
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_bytes(b"half")
    assert lake.sweep_tables()
    assert unfinished.exists()
    os.utime(unfinished, (0, 0))
    assert lake.sweep_tables(dry_run=True)
    assert unfinished.exists()
    assert lake.sweep_tables()
    assert not unfinished.exists()


def test_what_was_staged_goes_when_it_is_published(lake: Lake, table: Table, later: LateClock) -> None:
    left_unpublished(table, 1)
    staged = root_of(table) / "_delta_log" / "_commits"
    assert len([*staged.iterdir()]) == 1
    later.days = 8
    assert only(lake.sweep_tables(dry_run=True)).scratch_files == 0
    table.backfill_to_version()
    assert only(lake.sweep_tables()).scratch_files == 1
    assert [*staged.iterdir()] == []
