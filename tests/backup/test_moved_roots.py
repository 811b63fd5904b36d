"""Files of a lake that were moved: the lake, and all that read its tables, find them at the new place.

In each test the old place is gone, and nothing may appear there again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import lance
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import (
    CommitVetoed,
    InvalidRequest,
    LakeNotFound,
    LocationRefused,
    Unavailable,
    UnsupportedFormat,
)
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.rest.api import LANCE
from penstock.kernel.description import BACKUPS_VERSION, MOVED_ROOTS_VERSION, read_description
from penstock.kernel.settings import Settings
from penstock.lake.backup import backup_lake, restore_backup, verify_backup
from penstock.lake.checks import Proposed
from penstock.lake.embedded import Embedded
from penstock.lake.moved_locations import list_location_fields
from penstock.lake.root_maps import map_root, unmap_root
from penstock.model.nessie import DeltaTable
from penstock.server.access import OpenGate
from penstock.server.nessie.v2 import V2
from penstock.storage.moved_roots import MovedRoot
from tests.lance.rest.talking import Talk, lance_at
from tests.remote.serving import serving
from tests.server.running import local, shared_pool
from tests.servers.s3 import S3Place

NOW = Settings(grace_s=0, data_grace_days=0, idempotency_days=0, nobody_writes=True)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def fill(lake: Lake) -> None:
    """A table of each format, with a past, a tag, a branch, and a branch that was merged."""
    lake.create_table("a.delta", data=ids(1))
    lake.table("a.lance").write(ids(1), format="lance")
    lake.table("a.files").files.put("one.csv", b"1")
    lake.tag("first").create()
    lake.branch("dev").create()
    lake.branch("dev").table("a.delta").append(ids(7))
    lake.branch("dev").table("a.lance").append(ids(7))
    lake.branch("merged").create()
    lake.branch("merged").table("a.lance").append(ids(5))
    lake.table("a.lance").append(ids(2))
    lake.table("a.delta").append(ids(2, 5))
    lake.merge("merged")
    lake.table("a.files").files.put("one.csv", b"2")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return tmp_path / "old"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


@pytest.fixture
def place(tmp_path: Path, old: Path) -> Path:
    """A lake whose warehouse is at the old place; closed."""
    with penstock.init(tmp_path / "lake", warehouse=str(old), author="ada") as lake:
        fill(lake)
        lake.finish_background()
    return tmp_path / "lake"


@pytest.fixture
def moved(place: Path, old: Path, new: Path) -> Iterator[Path]:
    """The same lake with its warehouse at the new place. At the end, nothing is at the old one."""
    shutil.move(old, new)
    map_root(place, str(old), str(new))
    yield place
    assert not old.exists()


def rows(lake: Lake) -> dict[str, object]:
    """What every reference has, of every table."""
    found: dict[str, object] = {}
    for name in ("main", "dev", "first"):
        at = lake.at(name)
        found[f"{name} delta"] = sorted(at.table("a.delta").snapshot().to_arrow()["id"].to_pylist())
        found[f"{name} lance"] = sorted(at.table("a.lance").to_lance().to_table()["id"].to_pylist())
        found[f"{name} files"] = at.table("a.files").files.read("one.csv")
    return found


ROWS = {
    "main delta": [1, 2, 5],
    "main lance": [1, 2, 5],
    "main files": b"2",
    "dev delta": [1, 7],
    "dev lance": [1, 7],
    "dev files": b"1",
    "first delta": [1],
    "first lance": [1],
    "first files": b"1",
}


def lance_rows(table: Any) -> list[int]:
    return sorted(table.to_lance().to_table()["id"].to_pylist())


def delta_rows(table: Any) -> list[int]:
    return sorted(table.snapshot().to_arrow()["id"].to_pylist())


def data_files(folder: Path) -> list[Path]:
    """Files with rows, of tables of all formats."""
    kinds = (".parquet", ".lance", ".csv")
    found = (one for one in folder.rglob("*") if one.is_file() and one.suffix in kinds)
    return [one for one in found if "_delta_log" not in one.parts]


def copies(folder: Path) -> list[Path]:
    """Manifests of Lance versions with the places where files are now."""
    return [one for one in folder.rglob("*") if "apart-" in str(one.relative_to(folder)) and one.is_file()]


# -- reading -------------------------------------------------------------------------------------------------


def test_all_tables_are_read_at_all_references_and_their_commits_are_the_same(
    place: Path, old: Path, new: Path
) -> None:
    with penstock.open(place) as lake:
        commits = [one.id for one in lake.log("dev")], [one.id for one in lake.log()]
    shutil.move(old, new)
    assert map_root(place, str(old), str(new)).missing == ()
    with penstock.open(place) as lake:
        assert rows(lake) == ROWS
        assert ([one.id for one in lake.log("dev")], [one.id for one in lake.log()]) == commits
        assert lake.warehouse == str(new)
        assert lake.roots == (str(new),)
        for key in ("a.delta", "a.lance"):
            assert lake.table(key).location.startswith(f"{new}/")
            head = lake.kernel.resolve_revision("main")[0]
            assert isinstance(lake.catalogue, Embedded)
            content = lake.catalogue.read_content_at(head, lake.table(key).key)
            assert isinstance(content, DeltaTable | LanceTable)
            assert content.location.startswith(f"{old}/")
        assert lake.table("a.files").files.stat("one.csv").address.startswith(f"{new}/")
        assert not lake.fsck().damages
    assert not old.exists()


def test_every_version_of_a_lance_table_is_read_through_the_lake(moved: Path) -> None:
    with penstock.open(moved) as lake:
        newest = lake.table("a.lance").to_lance().version
        found = [
            sorted(lake.table("a.lance").to_lance(version=one).to_table()["id"].to_pylist())
            for one in range(1, newest + 1)
        ]
        assert found[0] == [1]
        assert found[-1] == [1, 2, 5]
        assert len(found) >= 3
        dev = lake.branch("dev").table("a.lance")
        assert sorted(dev.to_lance().to_table(filter="id > 1")["id"].to_pylist()) == [7]
        assert dev.to_lance(version=1).to_table()["id"].to_pylist() == [1]
        dev.append(ids(8))
        assert lance_rows(dev) == [1, 7, 8]
        lake.branch("merged").table("a.lance").append(ids(9))
        assert lance_rows(lake.branch("merged").table("a.lance")) == [1, 5, 9]
        lake.merge("dev")
        assert lance_rows(lake.table("a.lance")) == [1, 2, 5, 7, 8]


def test_other_readers_find_the_tables_at_the_new_place(moved: Path) -> None:
    with penstock.open(moved) as lake:
        delta, vectors = lake.table("a.delta").location, lake.table("a.lance").location
        assert sorted(deltalake.DeltaTable(delta).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 5]
        assert sorted(duckdb.sql(f"select id from '{delta}/*.parquet'").fetchall()) == [(1,), (2,), (5,)]
        assert lance.dataset(vectors, version=1).to_table()["id"].to_pylist() == [1]
        lake.table("a.lance").append(ids(9))  # it names the places of today, also for files of before
        lake.finish_background()
        assert sorted(lance.dataset(vectors).to_table()["id"].to_pylist()) == [1, 2, 5, 9]


# -- writing -------------------------------------------------------------------------------------------------


def test_all_formats_are_written_branched_merged_reverted_and_restored(moved: Path, new: Path) -> None:
    with penstock.open(moved, author="ada") as lake:
        for key, read in (("a.delta", delta_rows), ("a.lance", lance_rows)):
            lake.table(key).append(ids(10))
            lake.branch(f"b.{key}").create()
            lake.branch(f"b.{key}").table(key).append(ids(11))
            lake.table(key).append(ids(12))
            lake.merge(f"b.{key}")
            assert read(lake.table(key)) == [1, 2, 5, 10, 11, 12]
            lake.revert("main")
            assert read(lake.table(key)) == [1, 2, 5, 10, 12]
            lake.table(key).restore(ref="first")
            assert read(lake.table(key)) == [1]
        lake.merge("dev", default="force")
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 7]
        lake.table("a.files").files.put("two.csv", b"3")
        assert lake.table("a.files").files.read("two.csv") == b"3"
        with lake.transaction() as tx:
            tx.write(ids(20), "a.delta")
            tx.write(ids(20), "a.lance")
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 7, 20]
        lake.finish_background()
        assert not lake.fsck().damages
        found = deltalake.DeltaTable(lake.table("a.delta").location).to_pyarrow_table()["id"].to_pylist()
        assert sorted(found) == [1, 7, 20]
        assert sorted(lance.dataset(lake.table("a.lance").location).to_table()["id"].to_pylist()) == [
            1,
            7,
            20,
        ]
    with penstock.open(moved) as again:
        assert lance_rows(again.table("a.lance")) == [1, 7, 20]
        assert again.table("a.lance").location.startswith(f"{new}/")


def test_new_tables_are_stored_below_the_old_root_and_made_below_the_new_one(
    moved: Path, old: Path, new: Path
) -> None:
    with penstock.open(moved, author="ada") as lake:
        lake.create_table("b.delta", data=ids(1))
        lake.table("b.lance").write(ids(1), format="lance")
        lake.create_table("b.placed", data=ids(3), location=str(new / "placed"))
        deltalake.write_deltalake(str(new / "adopted"), ids(4))
        lake.delta.adopt(str(new / "adopted"), "b.adopted")
        head = lake.kernel.resolve_revision("main")[0]
        for key in ("b.delta", "b.lance", "b.placed", "b.adopted"):
            assert lake.table(key).location.startswith(f"{new}/")
            assert isinstance(lake.catalogue, Embedded)
            content = lake.catalogue.read_content_at(head, lake.table(key).key)
            assert isinstance(content, DeltaTable | LanceTable)
            assert content.location.startswith(f"{old}/")
        with pytest.raises(LocationRefused, match="placed"):
            lake.create_table("b.again", data=ids(3), location=str(new / "placed" / "inside"))
        lake.finish_background()
        assert (new / "placed" / "_delta_log").is_dir()


def test_a_content_that_was_read_can_be_put_at_another_key(moved: Path) -> None:
    with penstock.open(moved, author="ada") as lake:
        content = lake.table("a.delta").content
        lake.branch().commit(
            [penstock.Delete(lake.table("a.delta").key), penstock.Put(penstock.Key("c"), content)]
        )
        assert delta_rows(lake.table("c")) == [1, 2, 5]
        assert lake.table("c").content == content


def test_a_delta_log_with_absolute_paths_of_the_old_place_is_read_and_written(
    tmp_path: Path, old: Path, new: Path
) -> None:
    folder = old / "odd"
    with penstock.init(tmp_path / "lake", warehouse=str(old), author="ada") as lake:
        deltalake.write_deltalake(str(folder), ids(1, 2))
        log = folder / "_delta_log" / f"{0:020}.json"
        (name,) = (one.name for one in folder.glob("*.parquet"))
        log.write_text(log.read_text().replace(f'"path":"{name}"', f'"path":"{folder}/{name}"'))
        lake.delta.adopt(str(folder), "odd")
        lake.finish_background()
    shutil.move(old, new)
    map_root(tmp_path / "lake", str(old), str(new))
    with penstock.open(tmp_path / "lake", author="ada") as lake:
        assert delta_rows(lake.table("odd")) == [1, 2]
        lake.table("odd").append(ids(3))
        lake.finish_background()
    with penstock.open(tmp_path / "lake", author="ada", settings=NOW) as lake:
        assert lake.sweep_tables(remove_data=True)
        assert delta_rows(lake.table("odd")) == [1, 2, 3]
    shutil.copytree(new, tmp_path / "third")
    (tmp_path / "third" / "odd" / name).unlink()
    with pytest.raises(InvalidRequest, match=rf"'odd' at 'main' \(version 2\): {name} is gone"):
        map_root(tmp_path / "lake", str(new), str(tmp_path / "third"))


# -- care ----------------------------------------------------------------------------------------------------


def test_sweeps_and_erases_remove_files_at_the_new_place(moved: Path, new: Path) -> None:
    with penstock.open(moved, author="ada") as lake:
        for name in ("dev", "merged"):
            lake.branch(name).delete()
        lake.tag("first").delete()
        for key in ("a.delta", "a.lance"):
            lake.table(key).overwrite(ids(3))
        lake.table("a.files").files.put("one.csv", b"3")
        lake.finish_background()
        lake.keep_history("*", max_commits=1)
        for one in range(1, lake.table("a.lance").to_lance().version):
            lake.table("a.lance").to_lance(version=one).count_rows()
    before = data_files(new)
    assert copies(new)
    with penstock.open(moved, author="ada", settings=NOW) as lake:
        for key in ("a.delta", "a.lance", "a.files"):
            done = lake.erase(key, all_references=True)
            assert done.finished, done
        lake.sweep()
        swept = lake.sweep_tables(remove_data=True)
        assert all(one.location.startswith(f"{new}/") and not one.problem for one in swept)
        assert not lake.sweep_files(remove_data=True).problem
        lake.finish_background()
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [3]
        assert lake.table("a.files").files.read("one.csv") == b"3"
        assert not lake.fsck().damages
    assert len(before) == 12
    assert len(data_files(new)) == 3
    assert not copies(new)


@pytest.mark.parametrize("is_apart", [False, True], ids=["here", "in a row worker"])
def test_queries_of_expectations_read_the_new_place(moved: Path, is_apart: bool) -> None:
    with penstock.open(moved, author="ada") as lake:
        assert isinstance(lake.catalogue, Embedded)
        lake.catalogue.engine.pool = shared_pool() if is_apart else None
        lake.table("a.rows").files.put("a.csv", b"id\n1\n")
        lake.expect("small files", "select * from a.rows where id > 100")
        with pytest.raises(CommitVetoed):
            lake.table("a.rows").files.put("b.csv", b"id\n101\n")
        for kind in ("delta", "lance"):
            lake.expect(f"small {kind}", f"select * from a.{kind} where id > 100")
            with pytest.raises(CommitVetoed):
                lake.table(f"a.{kind}").append(ids(101))
            lake.table(f"a.{kind}").append(ids(100))
        lake.catalogue.engine.pool = None


def test_checks_of_programs_see_new_places(moved: Path, new: Path) -> None:
    seen: list[str] = []

    def look(proposed: Proposed) -> None:
        content = proposed.get("a.delta")
        assert isinstance(content, DeltaTable)
        seen.extend([content.location, next(iter(proposed.files("a.files").walk())).address])
        assert proposed.table("a.lance").to_arrow().num_rows == 3

    with penstock.open(moved, author="ada") as lake:
        lake.add_check("look", look)
        lake.table("a.delta").append(ids(3))
    assert len(seen) == 2
    assert all(one.startswith(f"{new}/") for one in seen)


def test_branches_and_tags_of_lances_own_are_made_and_read(moved: Path) -> None:
    with penstock.open(moved, author="ada") as lake:
        dataset = lake.table("a.lance").to_lance()
        dataset.tags.create("now", dataset.version)
        own = dataset.create_branch("own")
        assert sorted(own.to_table()["id"].to_pylist()) == [1, 2, 5]
        lake.finish_background()
        there = lance.dataset(lake.table("a.lance").location)
        assert "now" in there.tags.list()
        assert "own" in there.branches.list()
        assert not lake.fsck().damages


def test_a_client_of_a_server_gets_and_gives_new_places(moved: Path, new: Path) -> None:
    with (
        penstock.open(moved, author="ada") as embedded,
        serving(embedded.catalogue, gate=OpenGate()) as server,
        penstock.open(server.url, author="bob") as lake,
    ):
        assert lake.warehouse == str(new)
        assert lake.roots == (str(new),)
        assert rows(lake) == ROWS
        lake.table("a.delta").append(ids(30))
        lake.table("a.lance").append(ids(30))
        lake.table("a.files").files.put("three.csv", b"30")
        lake.create_table("b.placed", data=ids(3), location=str(new / "placed"))
        assert lake.table("b.placed").location == str(new / "placed")
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 2, 5, 30]


def test_apis_of_lance_and_nessie_answer_with_new_places(moved: Path, new: Path) -> None:
    with (
        penstock.open(moved, author="ada") as lake,
        local(lake.catalogue, [LANCE, V2], gate=OpenGate()) as server,
    ):
        client = lance_at(f"{server.url}/lance")
        opened = lance.dataset(namespace_client=client, table_id=["a", "lance"])
        assert opened.uri.removeprefix("file://").startswith(f"{new}/")
        assert sorted(opened.to_table()["id"].to_pylist()) == [1, 2, 5]
        lance.write_dataset(ids(6), namespace_client=client, table_id=["a", "lance"], mode="append")
        talk = Talk(server, "/lance")
        assert talk("/table/a$lance/count_rows", {}).body == 4
        assert talk("/table/a$lance/insert?mode=append", ids(7)).status == 200
        assert lance_rows(lake.table("a.lance")) == [1, 2, 5, 6, 7]
        found = server.ask("GET", "/api/v2/trees/main/contents/a.lance")
        assert found.status == 200
        assert f"{new}/" in json.dumps(found.json)
        assert str(new.parent / "old") not in json.dumps(found.json)


def test_a_table_that_is_ahead_of_the_lake_is_resynced_at_the_new_place(
    place: Path, old: Path, new: Path, tmp_path: Path
) -> None:
    backup_lake(place, tmp_path / "before.backup")
    with penstock.open(place, author="ada") as lake:
        lake.table("a.delta").append(ids(40))
        lake.table("a.lance").append(ids(40))
        lake.create_table("a.later", data=ids(1))
        lake.finish_background()
    shutil.rmtree(place)
    shutil.move(old, new)
    restore_backup(tmp_path / "before.backup", place, source_is_gone=True, moved_roots={str(old): str(new)})
    with penstock.open(place, author="ada") as lake:
        done = lake.resync()
        assert sorted(str(one.key) for one in done.tables) == ["a.delta", "a.lance", "a.later"]
        assert all(one.location.startswith(f"{new}/") and not one.problem for one in done.tables)
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 2, 5, 40]
        lake.table("a.later").append(ids(2))
        assert not lake.fsck().damages
    assert not old.exists()


# -- backups -------------------------------------------------------------------------------------------------


def test_a_backup_with_data_is_restored_to_another_place(
    place: Path, old: Path, new: Path, tmp_path: Path
) -> None:
    found = backup_lake(place, tmp_path / "backups", data=True).point.data
    assert found is not None
    shutil.rmtree(place)
    shutil.rmtree(old)
    made = restore_backup(
        tmp_path / "backups", tmp_path / "again", source_is_gone=True, moved_roots={str(old): str(new)}
    )
    assert made.put_back == (found.files, found.size_bytes)
    assert made.moved_roots == (MovedRoot(str(old), str(new)),)
    with penstock.open(tmp_path / "again", author="ada") as lake:
        assert rows(lake) == ROWS
        lake.table("a.delta").append(ids(3))
        lake.table("a.lance").append(ids(3))
        lake.finish_background()
        assert not lake.fsck().damages
    again = backup_lake(tmp_path / "again", tmp_path / "backups", data=True).point.data
    assert again is not None
    assert again.missing == ()
    assert verify_backup(tmp_path / "backups").damages == ()
    shutil.rmtree(tmp_path / "again")
    shutil.rmtree(new)
    assert not old.exists()
    third = tmp_path / "third"
    restore_backup(
        tmp_path / "backups", tmp_path / "again", source_is_gone=True, moved_roots={str(new): str(third)}
    )
    with penstock.open(tmp_path / "again") as lake:
        assert lance_rows(lake.table("a.lance")) == [1, 2, 3, 5]
        assert lake.warehouse == str(third)
        assert read_description(lake.kernel.store).moved_roots == (
            MovedRoot(str(old), str(third), (str(new),)),
        )
    assert not new.exists()


def test_files_that_are_not_at_the_new_place_are_named_and_no_lake_is_made(
    place: Path, old: Path, new: Path, tmp_path: Path
) -> None:
    backup_lake(place, tmp_path / "nightly.backup")
    shutil.copytree(old, new)
    (gone,) = (one for one in new.rglob("*.parquet") if "_penstock" in one.parts)
    gone.unlink()
    roots = {str(old): str(new)}
    with pytest.raises(InvalidRequest, match=r"'a.delta' at 'dev' \(version \d\): .*parquet is gone"):
        restore_backup(tmp_path / "nightly.backup", tmp_path / "again", moved_roots=roots)
    with pytest.raises(LakeNotFound):
        penstock.open(tmp_path / "again", create=False)
    made = restore_backup(
        tmp_path / "nightly.backup", tmp_path / "again", moved_roots=roots, allow_missing=True
    )
    assert len(made.missing) == 1


def test_a_copy_beside_the_lake_reads_the_new_place_and_takes_over_with_the_same_mapping(
    place: Path, old: Path, new: Path, tmp_path: Path
) -> None:
    backup_lake(place, tmp_path / "nightly.backup")
    shutil.copytree(old, new)
    roots, target = {str(old): str(new)}, tmp_path / "again"
    made = restore_backup(tmp_path / "nightly.backup", target, moved_roots=roots)
    assert not made.owns_tables
    with penstock.open(target) as lake:
        assert rows(lake) == ROWS
        assert lake.table("a.delta").location.startswith(f"{new}/")
    with pytest.raises(InvalidRequest, match="has other mapped roots"):
        restore_backup(
            tmp_path / "nightly.backup", target, own=True, moved_roots={str(old): str(tmp_path / "third")}
        )
    assert restore_backup(tmp_path / "nightly.backup", target, own=True).owns_tables
    before = {str(one): one.read_bytes() for one in old.rglob("*") if one.is_file()}
    with penstock.open(target, author="ada") as lake:
        lake.table("a.delta").append(ids(9))
        lake.table("a.lance").append(ids(9))
        lake.finish_background()
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 2, 5, 9]
    assert {str(one): one.read_bytes() for one in old.rglob("*") if one.is_file()} == before


# -- mapping -------------------------------------------------------------------------------------------------


def test_nothing_is_mapped_while_files_are_missing(place: Path, old: Path, new: Path) -> None:
    with pytest.raises(
        InvalidRequest, match="files of tables are missing at the new location; nothing was changed"
    ):
        map_root(place, str(old), str(new))
    assert not new.exists()
    with penstock.open(place) as lake:
        assert rows(lake) == ROWS
        assert read_description(lake.kernel.store).format_version < MOVED_ROOTS_VERSION
    shutil.move(old, new)
    map_root(place, str(old), str(new))
    with penstock.open(place) as lake:
        assert rows(lake) == ROWS


def test_a_process_that_had_the_lake_open_says_that_it_has_to_open_it_again(
    place: Path, old: Path, new: Path
) -> None:
    with penstock.open(place, author="ada") as stale:
        shutil.copytree(old, new)
        map_root(place, str(old), str(new))
        before = data_files(old)
        for work in (
            lambda: stale.table("a.delta").append(ids(3)),
            lambda: stale.sweep_tables(remove_data=True),
            lambda: stale.sweep_files(remove_data=True),
            lambda: stale.erase("a.delta"),
            stale.resync,
        ):
            with pytest.raises(Unavailable, match="Open the lake again"):
                work()
        assert data_files(old) == before
    with penstock.open(place, author="ada") as lake:
        lake.table("a.delta").append(ids(3))
        assert delta_rows(lake.table("a.delta")) == [1, 2, 3, 5]


def test_a_root_moves_twice_and_back(moved: Path, old: Path, new: Path, tmp_path: Path) -> None:
    third = tmp_path / "third"
    shutil.move(new, third)
    assert map_root(moved, str(new), str(third)).moved_roots == (
        MovedRoot(str(old), str(third), (str(new),)),
    )
    with penstock.open(moved, author="ada") as lake:
        assert rows(lake) == ROWS
        lake.table("a.lance").append(ids(3))
        lake.finish_background()
    shutil.move(third, old)
    assert unmap_root(moved, str(third)).moved_roots == ()
    with penstock.open(moved, author="ada") as lake:
        assert lake.warehouse == str(old)
        assert lance_rows(lake.table("a.lance")) == [1, 2, 3, 5]
        assert delta_rows(lake.table("a.delta")) == [1, 2, 5]
    shutil.rmtree(old)


def test_one_folder_below_a_root_may_move_by_itself(place: Path, old: Path, tmp_path: Path) -> None:
    with penstock.open(place) as lake:
        table = Path(lake.table("a.delta").location)
    aside = tmp_path / "aside" / "t"
    aside.parent.mkdir()
    shutil.move(table, aside)
    map_root(place, str(table), str(aside))
    with (
        penstock.open(place, author="ada") as embedded,
        serving(embedded.catalogue, gate=OpenGate()) as server,
    ):
        assert rows(embedded) == ROWS
        assert embedded.table("a.delta").location == str(aside)
        assert embedded.roots == (str(old), str(aside))
        with penstock.open(server.url, author="bob") as lake:
            lake.table("a.delta").append(ids(3))
            assert delta_rows(lake.table("a.delta")) == [1, 2, 3, 5]
    assert not table.exists()


def test_a_place_where_the_lake_has_tables_is_refused(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with penstock.open(place, author="ada") as lake:
        lake.add_root(str(other))
        lake.create_table("b.placed", data=ids(3), location=str(other / "placed"))
        lake.finish_background()
        lake.remove_root(str(other))
    for taken in (other, other / "placed", other / "placed" / "below"):
        with pytest.raises(InvalidRequest, match="has, or had, a table at that location"):
            map_root(place, str(tmp_path / "nowhere"), str(taken))


def test_no_root_is_added_above_or_below_a_place_that_files_have_moved_to(
    place: Path, old: Path, new: Path, tmp_path: Path
) -> None:
    with penstock.open(place, author="ada") as stale:  # which does not map what it is given
        shutil.copytree(old, new)
        map_root(place, str(old), str(new))
        with penstock.open(place, author="ada") as lake:
            for one, root in ((stale, tmp_path), (stale, new), (stale, new / "below"), (lake, tmp_path)):
                with pytest.raises(
                    InvalidRequest, match=f"were moved to {new}, so that a location"
                ) as refused:
                    one.add_root(str(root))
                assert refused.value.details["locations"] == [str(root), str(new)]
            assert lake.roots == (str(new),)
            assert lake.add_root(str(tmp_path / "other")) == (str(new), str(tmp_path / "other"))
            assert lake.add_root(str(new / "below"))[-1] == str(new / "below")
            lake.create_table("b.placed", data=ids(3), location=str(new / "below" / "placed"))
            assert delta_rows(lake.table("b.placed")) == [3]
            lake.remove_root(str(tmp_path / "other"), str(new / "below"))
            assert lake.roots == (str(new),)


def test_a_penstock_that_does_not_know_of_moved_roots_refuses_the_lake(
    moved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.kernel.description.FORMAT_VERSION", BACKUPS_VERSION)
    with pytest.raises(UnsupportedFormat, match="has format version 7"):
        penstock.open(moved)


def test_a_copy_and_a_moved_lake_keep_the_mapping(moved: Path, new: Path, tmp_path: Path) -> None:
    penstock.copy(moved, tmp_path / "copy")
    penstock.move(moved, tmp_path / "elsewhere")
    for one in ("copy", "elsewhere"):
        with penstock.open(tmp_path / one) as lake:
            assert rows(lake) == ROWS
            assert lake.warehouse == str(new)


@pytest.fixture
def bucket(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> S3Place:
    where = {
        "AWS_ENDPOINT_URL": s3_place.endpoint or "",
        "AWS_REGION": s3_place.region,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in (s3_place.environment | where).items():
        monkeypatch.setenv(name, value)
    return s3_place


@pytest.mark.verify
def test_files_of_a_bucket_move_to_another_prefix(tmp_path: Path, bucket: S3Place) -> None:
    root = f"s3://{bucket.bucket}/{bucket.prefix}"
    old, new = f"{root}/old", f"{root}/new"
    with penstock.init(tmp_path / "lake", warehouse=old, author="ada") as lake:
        fill(lake)
        lake.finish_background()
    with closing(bucket.client()) as client:
        listed = client.list_objects_v2(Bucket=bucket.bucket, Prefix=f"{bucket.prefix}/old/")
        assert not listed["IsTruncated"]
        for name in [one["Key"] for one in listed["Contents"]]:
            copied = name.replace(f"{bucket.prefix}/old/", f"{bucket.prefix}/new/", 1)
            source = {"Bucket": bucket.bucket, "Key": name}
            client.copy_object(Bucket=bucket.bucket, Key=copied, CopySource=source)
            client.delete_object(**source)
    map_root(tmp_path / "lake", old, new)
    with penstock.open(tmp_path / "lake", author="ada") as lake:
        assert lake.warehouse == new
        assert rows(lake) == ROWS
        lake.table("a.delta").append(ids(3))
        lake.branch("late").create()
        lake.branch("late").table("a.lance").append(ids(3))
        lake.merge("late")
        assert delta_rows(lake.table("a.delta")) == lance_rows(lake.table("a.lance")) == [1, 2, 3, 5]
        lake.finish_background()
        assert not lake.fsck().damages
        assert sorted(lance.dataset(lake.table("a.lance").location).to_table()["id"].to_pylist()) == [
            1,
            2,
            3,
            5,
        ]
    with closing(bucket.client()) as client:
        left = client.list_objects_v2(Bucket=bucket.bucket, Prefix=f"{bucket.prefix}/old/")
        assert left["KeyCount"] == 0


def _structs(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _structs(one)


NO_LOCATIONS = {
    ("FilesTableInfo", "root"),
    ("WriteFiles", "folder"),
    ("ListFiles", "folders"),
    ("LanceBranch", "manifest_size"),
    ("LanceTag", "manifest_size"),
    ("About", "moved_roots"),
    ("About", "url"),
}
"""Fields that are called as locations are, and are none: a hash, a name in the pool, the lake's own place…"""
CALLED = {
    "location",
    "folder",
    "folders",
    "root",
    "roots",
    "warehouse",
    "address",
    "place",
    "manifest",
    "url",
}


def test_every_field_of_calls_and_answers_that_is_a_location_is_mapped() -> None:
    homes = re.compile(r"penstock\.(lake|formats\.\w+\.lake)\..*(answers|calls?)")
    kinds = [one for one in _structs(msgspec.Struct) if homes.fullmatch(one.__module__)]
    assert {"About", "SweepTables", "LanceVersion", "FileEntry"} < {one.__name__ for one in kinds}
    named = {
        (kind.__name__, name)
        for kind in kinds
        for name in kind.__struct_fields__
        if CALLED & set(name.split("_"))
    }
    mapped = {(kind.__name__, name) for kind in kinds for name in list_location_fields(kind)}
    assert named - mapped == NO_LOCATIONS
