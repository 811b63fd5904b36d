"""Backups with data have all files that they need: the source may be gone when they are restored."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any
from weakref import WeakSet

import deltalake
import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import Damaged, EraseRefused, InvalidRequest, LakeExists, LakeNotFound
from penstock.formats.delta.lake import needed_files as delta_needed
from penstock.kernel import backup_data
from penstock.kernel.backup import BackupMaker
from penstock.kernel.backup_data import BackupData, BackupFile, encode_folder, list_segments
from penstock.kernel.settings import Settings
from penstock.lake import backup_files
from penstock.lake.backup import (
    backup_lake,
    expire_backups,
    forget_backups,
    list_backups,
    registered_backups,
    restore_backup,
    verify_backup,
)
from penstock.model.objects import Large
from penstock.storage import places
from penstock.storage.places import Place
from penstock.stores.objectstore import ObjectStore
from tests.copy.lakes import Killed
from tests.erase.conftest import duckdb
from tests.servers.s3 import S3Place

__all__ = ["duckdb"]

NOW = Settings(grace_s=0, data_grace_days=0, idempotency_days=0, nobody_writes=True)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but those in which a directory keeps its own records."""
    found = (one for one in folder.rglob("*") if one.is_file() and ".locks" not in one.parts)
    return {str(one.relative_to(folder)): one.read_bytes() for one in found}


def data_of(place: Path) -> dict[str, bytes]:
    return tree(place / "data")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake with a table of each format, with a past, a branch and a tag; closed."""
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("a.delta", data=ids(1))
        lake.table("a.lance").write(ids(1), format="lance")
        lake.table("a.files").files.put("one.csv", b"1")
        lake.tag("first").create()
        lake.branch("dev").create()
        lake.branch("dev").table("a.delta").append(ids(7))
        lake.branch("dev").table("a.lance").append(ids(7))
        lake.table("a.delta").overwrite(ids(2))
        lake.table("a.lance").overwrite(ids(2))
        lake.table("a.files").files.put("one.csv", b"2")
        lake.finish_background()
    return tmp_path / "lake"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def rows(lake: Lake) -> dict[str, object]:
    """What every reference has, of every table."""
    found: dict[str, object] = {}
    for name in ("main", "dev", "first"):
        at = lake.at(name)
        found[f"{name} delta"] = sorted(at.table("a.delta").snapshot().to_arrow()["id"].to_pylist())
        found[f"{name} lance"] = sorted(at.table("a.lance").to_lance().to_table()["id"].to_pylist())
        found[f"{name} files"] = at.table("a.files").files.read("one.csv")
    return found


def made(source: Path, target: Path, **chosen: object) -> BackupData:
    """The files of a backup with data that is made now."""
    found = backup_lake(source, target, data=True, **chosen).point.data  # type: ignore[arg-type]
    assert found is not None
    return found


def age(lake: Path) -> None:
    """Let a lake keep nothing but what its branches are at, and sweep all else."""
    with penstock.open(lake, settings=NOW) as opened:
        opened.keep_history("*", max_commits=1)
    with penstock.open(lake, settings=NOW) as opened:
        opened.tag("first").delete()
        opened.branch("dev").delete()
        opened.sweep()
        opened.sweep_tables(remove_data=True)
        opened.sweep_files(remove_data=True)


def test_with_its_source_gone_a_restored_lake_and_all_other_readers_have_the_same_rows(
    place: Path, target: Path
) -> None:
    with penstock.open(place) as lake:
        was, delta, vectors = rows(lake), lake.table("a.delta").location, lake.table("a.lance").location
    found = made(place, target, verify=True)
    assert (found.files, found.missing) == (found.new_files, ())
    shutil.rmtree(place)
    restored = restore_backup(target, place, source_is_gone=True)
    assert restored.put_back == (found.files, found.size_bytes)
    assert sorted(deltalake.DeltaTable(delta).to_pyarrow_table()["id"].to_pylist()) == [2]
    assert lance.dataset(vectors).to_table()["id"].to_pylist() == [2]
    with penstock.open(place) as again:
        assert rows(again) == was
        again.table("a.delta").append(ids(3))
        again.table("a.lance").append(ids(3))
        again.merge("dev", "main", default="force")
        again.finish_background()
        assert not again.fsck().damages
    assert verify_backup(target).damages == ()


def test_duckdb_reads_a_restored_delta_table_by_its_log(place: Path, target: Path, duckdb: Any) -> None:
    with penstock.open(place, author="ada") as lake:
        lake.table("a.delta").append(ids(3))
        lake.finish_background()
        location = lake.table("a.delta").location
    made(place, target)
    shutil.rmtree(place)
    restore_backup(target, place, source_is_gone=True)
    found = duckdb.sql(f"SELECT id FROM delta_scan('{location}') ORDER BY id").fetchall()
    assert found == [(2,), (3,)]  # the row that was overwritten has a file as well


def test_only_what_the_target_lacks_is_copied(place: Path, target: Path) -> None:
    first = made(place, target)
    again = made(place, target)
    assert (again.files, again.new_files, again.new_bytes) == (first.files, 0, 0)
    with penstock.open(place, author="ada") as lake:
        lake.table("a.files").files.put("two.csv", b"12345")
    assert made(place, target).new_bytes == 5
    assert list_backups(target)[-1].size_bytes < 20_000


def test_tables_outside_of_the_warehouse_and_what_clones_name_come_along(
    tmp_path: Path, target: Path
) -> None:
    other, clone = tmp_path / "other", tmp_path / "lake" / "warehouse" / "clones" / "b.lance"
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.add_root(str(other))
        lake.create_table("a.placed", data=ids(1), location=str(other / "placed"))
        deltalake.write_deltalake(str(other / "adopted"), ids(4, 5))
        lake.delta.adopt(str(other / "adopted"), "a.adopted")
        lance.write_dataset(ids(8), str(tmp_path / "lent.lance"))
        lance.dataset(str(tmp_path / "lent.lance")).shallow_clone(str(clone), 1)
        lake.import_lance(clone.parent)
        lake.finish_background()
    made(tmp_path / "lake", target, verify=True)
    for name in ("lake", "other", "lent.lance"):
        shutil.rmtree(tmp_path / name)
    restore_backup(target, tmp_path / "lake", source_is_gone=True)
    assert deltalake.DeltaTable(str(other / "placed")).to_pyarrow_table()["id"].to_pylist() == [1]
    assert sorted(deltalake.DeltaTable(str(other / "adopted")).to_pyarrow_table()["id"].to_pylist()) == [4, 5]
    assert lance.dataset(str(clone)).to_table()["id"].to_pylist() == [8]
    with penstock.open(tmp_path / "lake") as again:
        assert again.table("b").to_lance().to_table()["id"].to_pylist() == [8]


def test_a_table_with_absolute_paths_in_its_log_can_be_read_where_it_was(
    tmp_path: Path, target: Path
) -> None:
    folder = tmp_path / "lake" / "warehouse" / "odd"
    deltalake.write_deltalake(str(folder), ids(1, 2))
    log = folder / "_delta_log" / f"{0:020}.json"
    (name,) = (one.name for one in folder.glob("*.parquet"))
    log.write_text(log.read_text().replace(f'"path":"{name}"', f'"path":"{folder}/{name}"'))
    shutil.move(tmp_path / "lake", tmp_path / "aside")
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        shutil.move(tmp_path / "aside" / "warehouse", tmp_path / "lake" / "warehouse")
        lake.delta.adopt(str(folder), "odd")
        lake.finish_background()
    made(tmp_path / "lake", target)
    shutil.rmtree(tmp_path / "lake")
    restore_backup(target, tmp_path / "lake", source_is_gone=True)
    with penstock.open(tmp_path / "lake") as again:
        assert sorted(again.at().table("odd").snapshot().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_name_that_comes_again_with_other_bytes_is_another_file(tmp_path: Path, target: Path) -> None:
    """A table that is thrown away and made anew at its place has a log with the same names."""
    folder = tmp_path / "other" / "t"
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.add_root(str(tmp_path / "other"))
        for values in ((1,), (2,)):
            deltalake.write_deltalake(str(folder), ids(*values))
            lake.delta.adopt(str(folder), "t")
            lake.finish_background()
            made(tmp_path / "lake", target)
            if values == (1,):
                lake.branch().drop("t")
                lake.finish_background()
                shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "lake")
    for point, value in zip(list_backups(target), (1, 2), strict=True):
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        restore_backup(target, tmp_path / "lake", at=point.id, source_is_gone=True, allow_missing=True)
        assert deltalake.DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist() == [value]


# -- interrupted ---------------------------------------------------------------------------------------------


class Dying:
    """Ends the work of a backup when so many files have been written, before or after the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self.left, self.is_after, self.writes = 10**9, False, 0
        put = Place.put

        def dying(there: Place, name: str, data: bytes) -> None:
            if there.url.startswith(str(place)):
                self.writes += 1
                self.left -= 1
                if self.left < -self.is_after:
                    raise Killed  # and so it is with whatever another thread was about to write
                put(there, name, data)
                if self.left < 0:
                    raise Killed
            else:
                put(there, name, data)

        monkeypatch.setattr(Place, "put", dying)


@pytest.mark.parametrize("is_after", [False, True], ids=["before a write", "after a write"])
def test_killed_at_any_file_it_is_never_taken_for_whole_and_a_repeat_copies_the_rest(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    monkeypatch.setattr(backup_files, "FILE_WORKERS", 1)
    dying = Dying(monkeypatch, tmp_path / "backups")
    dying.is_after = is_after
    count = made(place, tmp_path / "backups0").files
    for last in range(0, count, 3):
        target = tmp_path / f"backups-{last}"
        dying.left = last
        with pytest.raises(Killed):
            made(place, target)
        (point,) = list_backups(target)
        assert not point.is_complete
        with pytest.raises(LakeNotFound, match="no complete backup"):
            restore_backup(target, tmp_path / "never", source_is_gone=True)
        _end_lease(target)
        dying.left, dying.writes = 10**9, 0
        again = backup_lake(place, target, data=True)
        assert again.completed == (point.id,)
        assert again.point.data is not None
        assert (dying.writes, again.point.data.new_files) == (count - last - is_after, 0)
        assert [verify_backup(target, one.id).damages for one in list_backups(target)] == [(), ()]


def _end_lease(target: Path) -> None:
    """Let the lease of a process that was killed run out."""
    from penstock.model.clock import now_us
    from penstock.stores import open_store

    store = open_store(str(target), False, now_us)
    with store.turn("@lease/backup") as turn:
        if turn.row is not None:
            turn.advance({}, None)
    store.close()


def test_two_at_once_to_one_target_are_both_whole(place: Path, target: Path) -> None:
    start = Barrier(2)

    def make() -> BackupData:
        start.wait()
        return made(place, target)

    with ThreadPoolExecutor(2) as both:
        first, second = [one.result() for one in [both.submit(make), both.submit(make)]]
    assert first.files == second.files == first.new_files + second.new_files
    assert all(verify_backup(target, one.id).damages == () for one in list_backups(target))


def test_a_removal_that_was_killed_is_completed_by_the_next(
    place: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(place, target)
    number = list_backups(target)[0].id
    delete = backup_files._delete_files
    monkeypatch.setattr(backup_files, "_delete_files", _killed)
    with pytest.raises(Killed):
        expire_backups(place, target, number)
    monkeypatch.setattr(backup_files, "_delete_files", delete)
    assert [one.id for one in registered_backups(place)] == [number]
    assert forget_backups(place, number) == [number]
    assert data_of(target) == {}


def test_a_left_backup_with_data_is_forgotten_when_its_files_are_gone(
    place: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(backup_files, "FILE_WORKERS", 1)
        Dying(dying, target).left = 3
        with pytest.raises(Killed):
            made(place, target)
    (left,) = list_backups(target)
    _end_lease(target)
    assert len(data_of(target)) == 3
    with monkeypatch.context() as dying:
        dying.setattr(BackupMaker, "_copy_all", _damaged)
        dying.setattr(backup_files, "_delete_files", _killed)
        with pytest.raises(Killed):
            made(place, target)
    assert [one.id for one in registered_backups(place)] == [left.id], "its rows are there"
    _end_lease(target)
    assert forget_backups(place, left.id) == [left.id]
    assert data_of(target) == {}


def _damaged(*_: object) -> None:
    raise Damaged("the lake has not all of it")


def _killed(*_: object) -> None:
    raise Killed


# -- while the lake goes on ----------------------------------------------------------------------------------


@pytest.fixture
def before_copying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something done once, when the files are known and before the first one is copied."""

    def before(work: Callable[[], object]) -> None:
        copy, waiting = backup_files.BackupFiles._copy_missing_files, [work]

        def then(files: backup_files.BackupFiles, *given: object) -> object:
            if waiting:
                waiting.pop()()
            return copy(files, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(backup_files.BackupFiles, "_copy_missing_files", then)

    return before


def test_a_sweep_meanwhile_leaves_what_a_registered_backup_copies(
    place: Path, target: Path, before_copying: Callable[[Callable[[], object]], None]
) -> None:
    with penstock.open(place) as lake:
        was = rows(lake)
    before_copying(lambda: age(place))
    assert made(place, target, verify=True).missing == ()
    shutil.rmtree(place)
    restore_backup(target, place, source_is_gone=True)
    with penstock.open(place) as again:
        assert rows(again) == was


def test_a_file_that_goes_away_meanwhile_is_named_and_the_repeat_begins_anew(
    place: Path, target: Path, before_copying: Callable[[Callable[[], object]], None]
) -> None:
    before_copying(lambda: age(place))
    with pytest.raises(Damaged, match=r"(?s)files of tables were removed while.*\.parquet"):
        made(place, target, register=False)
    (left,) = list_backups(target)
    again = backup_lake(place, target, data=True, register=False)
    assert (again.completed, [one.id for one in list_backups(target)]) == ((), [again.point.id])
    assert left.id != again.point.id
    assert again.point.data is not None
    assert again.point.data.missing == ()
    needed = again.point.data.files
    assert len(data_of(target)) == needed, "nothing is left of the one that was given up"


def test_what_is_gone_already_is_said_and_so_is_it_at_the_restore(place: Path, target: Path) -> None:
    with penstock.open(place) as lake:
        (name,) = (add.path for add in lake.at().table("a.delta").snapshot().files())
        (Path(lake.table("a.delta").location) / name).unlink()
    assert [one for one in made(place, target).missing if "'a.delta' at 'main'" in one and name in one]
    shutil.rmtree(place)
    with pytest.raises(InvalidRequest, match=name):
        restore_backup(target, place, source_is_gone=True)
    assert not (place / "warehouse").exists()
    assert restore_backup(target, place, source_is_gone=True, allow_missing=True).missing


def test_a_source_that_can_only_be_read_is_not_written_to(place: Path, target: Path) -> None:
    before = tree(place)
    for folder in (place, *place.rglob("*")):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    made(place, target, register=False)
    assert tree(place) == before
    assert registered_backups(place) == []


def test_the_lake_keeps_nothing_for_a_backup_that_has_its_files(place: Path, target: Path) -> None:
    with penstock.open(place) as lake:
        folder, was = Path(lake.table("a.delta").location), rows(lake)
    before = len([*folder.rglob("*.parquet")])
    found = made(place, target)
    (known,) = registered_backups(place)
    assert (known.has_data, known.keeps_files, known.data_bytes) == (True, False, found.size_bytes)
    age(place)
    assert len([*folder.rglob("*.parquet")]) < before
    with penstock.open(place) as lake:
        assert not lake.fsck().damages
    with pytest.raises(InvalidRequest, match=r"(?s)a\.delta.*The backup contains the files"):
        restore_backup(target, place.parent / "again")
    made_again = restore_backup(target, place.parent / "again", own=True)
    assert made_again.put_back is not None
    with penstock.open(place.parent / "again") as again:
        assert rows(again) == was


# -- removing, and places ------------------------------------------------------------------------------------


def test_removing_a_backup_removes_the_files_that_no_other_one_has(place: Path, target: Path) -> None:
    made(place, target)
    with_past = data_of(target)
    age(place)
    with penstock.open(place, author="ada") as lake:
        lake.table("a.files").files.put("two.csv", b"later")
    made(place, target)
    first, second = list_backups(target)
    both = data_of(target)
    assert with_past.items() < both.items()
    assert expire_backups(place, target, first.id) == [first.id]
    left = data_of(target)
    assert left.items() < both.items()
    assert second.data is not None
    assert len(left) == second.data.files
    assert verify_backup(target).damages == ()
    assert forget_backups(place, second.id) == [second.id]
    assert (data_of(target), list_backups(target), registered_backups(place)) == ({}, [], [])


def test_an_erase_is_refused_until_no_backup_has_the_rows_and_then_no_byte_is_left(
    tmp_path: Path, target: Path
) -> None:
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("a.t", data=pa.table({"name": ["kept", "marker-of-somebody"]}))
        lake.table("a.t").overwrite(pa.table({"name": ["kept"]}))
        lake.finish_background()
        number = backup_lake(tmp_path / "lake", target, data=True).point.id
        assert any(b"marker-of-somebody" in data for data in tree(target).values())
        refused = f"(?s)backup with data {number} at .*backups expire.*backups forget {number} --lost"
        with pytest.raises(EraseRefused, match=refused):
            lake.erase("a.t")
        forget_backups(tmp_path / "lake", number)
        assert not any(b"marker-of-somebody" in data for data in tree(target).values())
    with penstock.open(tmp_path / "lake", settings=NOW) as lake:
        assert lake.erase("a.t").finished
        made(tmp_path / "lake", target)
    assert not any(b"marker-of-somebody" in data for data in tree(target).values())


def test_an_erase_minds_a_backup_with_data_whose_history_the_lake_has_not_any_more(
    place: Path, target: Path
) -> None:
    made(place, target)
    with penstock.open(place, author="ada") as lake:
        lake.table("a.delta").overwrite(ids(5))
        lake.finish_background()
    age(place)
    with penstock.open(place, settings=NOW) as lake, pytest.raises(EraseRefused, match="backup with data"):
        lake.erase("a.delta")


def test_a_backup_with_data_that_is_lost_is_forgotten_only_if_that_is_said(place: Path, target: Path) -> None:
    made(place, target)
    (known,) = registered_backups(place)
    shutil.rmtree(target)
    with pytest.raises(InvalidRequest, match=r"(?s)cannot be found from here.*--lost"):
        forget_backups(place, known.id)
    assert registered_backups(place) == [known]
    assert forget_backups(place, known.id, lost=True) == [known.id]


@pytest.mark.parametrize("where", ["nightly.backup", "memory:", "postgresql://nowhere/db"])
def test_where_there_is_no_room_for_files_it_is_refused_before_anything_is_made(
    place: Path, tmp_path: Path, where: str
) -> None:
    path = str(tmp_path / where) if "backup" in where else where
    match = rf"(?s)^{re.escape(path)} is .*cannot hold the files of tables.*penstock backup DIRECTORY --data"
    with pytest.raises(InvalidRequest, match=match):
        backup_lake(place, path, data=True)
    assert not (tmp_path / "nightly.backup").exists()
    assert registered_backups(place) == []


def test_a_file_that_the_target_lost_is_found_and_copied_again(place: Path, target: Path) -> None:
    made(place, target)
    lost, cut, *_ = sorted(one for one in (target / "data").rglob("*.parquet") if one.is_file())
    lost.unlink()
    cut.write_bytes(b"PAR1")
    found = [str(one) for one in verify_backup(target).damages]
    assert len(found) == 2
    assert any(lost.name in one and "is missing" in one for one in found)
    assert any(cut.name in one and "has 4 bytes instead of" in one for one in found)
    shutil.move(place, place.parent / "aside")
    with pytest.raises(Damaged, match="missing from the backup"):
        restore_backup(target, place, source_is_gone=True)
    assert not place.exists()
    shutil.move(place.parent / "aside", place)
    assert made(place, target, verify=True).new_files == 2
    assert verify_backup(target).damages == ()


def test_another_file_in_the_place_of_one_is_left_alone(place: Path, target: Path) -> None:
    made(place, target)
    with penstock.open(place) as lake:
        (name,) = (add.path for add in lake.at().table("a.delta").snapshot().files())
        file = Path(lake.table("a.delta").location) / name
    shutil.rmtree(place)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"somebody's")
    with pytest.raises(InvalidRequest, match="another size"):
        restore_backup(target, place.parent / "again", source_is_gone=True)
    assert [one.name for one in file.parent.iterdir()] == [name]


def test_a_large_file_is_copied_in_pieces(place: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_files, "PIECE_BYTES", 1000)
    with penstock.open(place, author="ada") as lake:
        lake.table("a.files").files.put("large.bin", bytes(range(256)) * 40)
    made(place, target)
    assert any(data == bytes(range(256)) * 40 for data in data_of(target).values())
    shutil.rmtree(place)
    restore_backup(target, place, source_is_gone=True)
    with penstock.open(place) as again:
        assert again.table("a.files").files.read("large.bin") == bytes(range(256)) * 40


def test_a_large_file_that_another_takes_the_place_of_while_it_is_copied_is_not_mixed(
    place: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_files, "PIECE_BYTES", 100)
    with penstock.open(place) as lake:
        log = Path(lake.table("a.delta").location) / "_delta_log" / f"{0:020}.json"
    other = log.read_bytes().replace(b',"', b', "', 1)
    read_range, replaced = Place.read_range, list[bool]()

    def read(there: Place, name: str, start: int, length: int) -> bytes | None:
        if name.endswith(log.name) and start == 200 and not replaced:
            replaced.append(True)
            log.write_bytes(other)
        return read_range(there, name, start, length)

    monkeypatch.setattr(Place, "read_range", read)
    made(place, target)
    assert replaced
    (stored,) = (data for name, data in data_of(target).items() if f"{log.name}~" in name)
    assert stored == other


def test_files_of_others_below_the_place_of_backups_stay(place: Path, target: Path) -> None:
    made(place, target)
    mine = target / "data" / "mine" / "file.csv"
    mine.parent.mkdir()
    mine.write_text("not of a backup")
    expire_backups(place, target, list_backups(target)[0].id)
    assert data_of(target) == {"mine/file.csv": b"not of a backup"}


def test_nothing_is_put_back_beside_a_lake_that_is_there(place: Path, target: Path) -> None:
    made(place, target)
    age(place)
    before = tree(place / "warehouse")
    with pytest.raises(LakeExists, match="choose an empty location"):
        restore_backup(target, place, source_is_gone=True)
    assert tree(place / "warehouse") == before


def test_a_restore_that_is_complete_does_nothing_when_it_is_repeated(place: Path, target: Path) -> None:
    made(place, target)
    shutil.rmtree(place)
    assert not restore_backup(target, place, source_is_gone=True).was_restored
    with penstock.open(place, author="ada") as lake:
        lake.table("a.delta").overwrite(ids(9))
        lake.finish_background()
    forget_backups(place, *(one.id for one in registered_backups(place)), lost=True)
    age(place)
    before = tree(place / "warehouse")
    again = restore_backup(target, place, source_is_gone=True)
    assert (again.was_restored, again.put_back) == (True, None)
    assert tree(place / "warehouse") == before
    with penstock.open(place) as lake:
        assert lake.at().table("a.delta").snapshot().to_arrow()["id"].to_pylist() == [9]


# -- many files ----------------------------------------------------------------------------------------------


def test_of_many_files_a_list_at_a_time_is_in_memory(
    place: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_data, "LIST_FILES", 4)
    monkeypatch.setattr(backup_data, "LIST_MAX", 8)
    monkeypatch.setattr(backup_files, "NAMES_MAX", 20)
    monkeypatch.setattr(places, "LOOKED_UP_MAX", 2)
    with penstock.open(place, author="ada") as lake:
        for number in range(3):
            lake.create_table(f"many.t{number}", data=ids(number))
            for value in range(12):
                lake.table(f"many.t{number}").append(ids(value))
        lake.finish_background()
    largest = Largest(monkeypatch)
    words = AliveWords(monkeypatch)
    first = made(place, target, verify=True)
    assert first.files > 80
    assert words.most_alive <= 2, "of four tables: the one that was read last, and the one before"
    with penstock.open(place) as lake:
        was = rows(lake)
    older = list_backups(target)[0].id
    made(place, target)
    expire_backups(place, target, older)
    assert len(data_of(target)) == first.files
    shutil.rmtree(place)
    assert restore_backup(target, place, source_is_gone=True).put_back == (first.files, first.size_bytes)
    assert 0 < largest.count <= 8
    with penstock.open(place) as lake:
        assert rows(lake) == was


class Largest:
    """How many files were asked for, or listed, at once at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        sizes, encode = Place.sizes_in_order, encode_folder

        def sizes_counted(there: Place, names: Sequence[str]) -> dict[str, int]:
            found = sizes(there, names)
            self.count = max(self.count, len(names), len(found))
            return found

        def encode_counted(location: str, folder: str, files: Sequence[object]) -> object:
            self.count = max(self.count, len(files))
            return encode(location, folder, files)  # type: ignore[arg-type]

        monkeypatch.setattr(Place, "sizes_in_order", sizes_counted)
        monkeypatch.setattr(backup_files, "encode_folder", encode_counted)


class AliveWords:
    """Of how many Delta tables the names in their logs were in memory at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_alive = 0
        read = WeakSet[delta_needed._LogNeeds]()
        settle = delta_needed._LogNeeds.read_needs

        def settle_counted(word: delta_needed._LogNeeds) -> str:
            read.add(word)
            self.most_alive = max(self.most_alive, len(read))
            return settle(word)

        monkeypatch.setattr(delta_needed._LogNeeds, "read_needs", settle_counted)


def test_a_list_of_files_among_which_nothing_changed_is_stored_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backup_data, "LIST_FILES", 50)
    monkeypatch.setattr(backup_data, "LIST_MAX", 200)
    files = [BackupFile(f"part-{number:05}.parquet", number) for number in range(2000)]

    def lists(some: list[BackupFile]) -> set[Large]:
        return {encode_folder("/t", "t", one)[0].files for one in list_segments(some)}

    before, after = lists(files), lists([BackupFile("part-.parquet", 1), *files])
    assert len(before) > 20
    assert len(after - before) == 1


@pytest.fixture
def bucket(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> S3Place:
    for name, value in s3_place.environment.items():
        monkeypatch.setenv(name, value)
    return s3_place


@pytest.mark.verify
def test_a_backup_in_a_bucket(place: Path, bucket: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LOOKED_UP_MAX", 1)  # so that files are compared by lists
    with penstock.open(place) as lake:
        was = rows(lake)
    ObjectStore(bucket.url, announce_wait_s=0.2).close()  # or what is removed is announced a minute before
    first = backup_lake(place, bucket.url, data=True, verify=True).point
    assert first.data is not None
    assert backup_lake(place, bucket.url, data=True).point.data.new_files == 0  # type: ignore[union-attr]
    shutil.copytree(place, place.parent / "aside")
    shutil.rmtree(place)
    restore_backup(bucket.url, place, source_is_gone=True)
    with penstock.open(place) as again:
        assert rows(again) == was
    assert len(expire_backups(place, bucket.url, keep_last=1)) == 1
    assert verify_backup(bucket.url).damages == ()
    forget_backups(place, *(one.id for one in registered_backups(place)))
    assert list_backups(bucket.url) == []


@pytest.mark.verify
def test_a_store_that_is_open_says_where_its_bucket_is(place: Path, bucket: S3Place) -> None:
    """Its endpoint, too: the files of tables are there, and not at the service of that name."""
    ObjectStore(bucket.url, announce_wait_s=0.2).close()
    for _ in range(2):
        backup_lake(place, bucket.url, data=True)
        with penstock.open(place) as lake:
            lake.table("a.delta").append(ids(7))
    with closing(ObjectStore(bucket.url)) as store:
        assert verify_backup(store).damages == ()
        assert len(expire_backups(place, store, keep_last=1)) == 1
        assert verify_backup(store).damages == ()
