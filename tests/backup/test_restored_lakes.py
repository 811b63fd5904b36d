"""A lake restored from a backup: what it owns, what it may write, and what it says of files that are gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import (
    EraseRefused,
    InvalidRequest,
    LakeExists,
    LakeMoved,
    LakeNotFound,
    ManagedElsewhere,
    NotManaged,
    PenstockError,
    Unavailable,
)
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.copy import _LakeCopy
from penstock.kernel.description import LakeDescription, read_description
from penstock.kernel.settings import Settings
from penstock.lake.backup import backup_lake, restore_backup, verify_backup
from penstock.lake.copy import cancel_move
from penstock.storage.places import POOL
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore, Gate, Point
from tests.copy.lakes import QUICK, Killed, Life, MortalStore, new_store, reopened, rows, table
from tests.sweep.tables import LateClock

NOW = Settings(grace_s=0, data_grace_days=0, idempotency_days=0, nobody_writes=True)


def numbers(lake: Lake) -> list[int]:
    """The rows of the Delta table; the Lance table and the table of files can be read as well."""
    assert lake.table("a.lance").to_lance().to_table()["id"].to_pylist() == [1]
    assert lake.table("a.files").files.read("one.csv") == b"1"
    return sorted(lake.at().table("a.delta").snapshot().to_arrow()["id"].to_pylist())


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake with a table of each format, closed."""
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("a.delta", data=ids(1))
        lake.table("a.lance").write(ids(1), format="lance")
        lake.table("a.files").files.put("one.csv", b"1")
        lake.expect("no rows of nobody", "select * from a.delta where id < 0")
        lake.finish_background()
    return tmp_path / "lake"


@pytest.fixture
def backup(place: Path, tmp_path: Path) -> Path:
    backup_lake(place, tmp_path / "nightly.backup")
    return tmp_path / "nightly.backup"


def test_beside_its_source_it_reads_managed_tables_and_changes_none(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    made = restore_backup(backup, tmp_path / "again")
    assert not made.owns_tables
    with penstock.open(tmp_path / "again") as again, penstock.open(place) as lake:
        assert (again.forked_from, again.id != lake.id) == (lake.id, True)
        assert numbers(again) == [1]
        assert [one.name for one in again.expectations()] == [one.name for one in lake.expectations()]
        with pytest.raises(NotManaged, match=r"as its owner, so this lake only reads it"):
            again.table("a.delta").append(ids(2))
        with pytest.raises(ManagedElsewhere, match="is read-only here"):
            again.table("a.lance").append(ids(2))
        lake.table("a.delta").append(ids(3))
        lake.finish_background()
        assert (numbers(lake), numbers(again)) == ([1, 3], [1])
    assert sorted(deltalake.DeltaTable(_location(place)).to_pyarrow_table()["id"].to_pylist()) == [1, 3]


def _location(place: Path) -> str:
    with penstock.open(place) as lake:
        return lake.table("a.delta").location


def test_in_place_of_a_lake_that_is_gone_it_owns_its_tables(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    with penstock.open(place) as lake:
        identity = lake.id
    for name in ("penstock.db", "penstock.db-wal", "penstock.db-shm"):
        (place / name).unlink(missing_ok=True)
    with pytest.raises(InvalidRequest, match="other files in it"):
        restore_backup(backup, place)  # the warehouse is there
    made = restore_backup(backup, tmp_path / "again", source_is_gone=True)
    assert made.owns_tables
    with penstock.open(tmp_path / "again") as again:
        assert again.id == identity
        again.table("a.delta").append(ids(2))
        again.finish_background()
        location = again.table("a.delta").location
    assert sorted(deltalake.DeltaTable(location).to_pyarrow_table()["id"].to_pylist()) == [1, 2]


def pool_of(place: Path) -> Path:
    with penstock.open(place) as lake:
        return Path(lake.warehouse) / POOL


def read_description_at(place: Path) -> LakeDescription:
    with penstock.open(place) as lake:
        return read_description(lake.kernel.store)


def remove_database(place: Path) -> None:
    for name in ("penstock.db", "penstock.db-wal", "penstock.db-shm"):
        (place / name).unlink(missing_ok=True)


def test_a_lake_that_was_restored_before_is_not_restored_as_a_second_owner(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    remove_database(place)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert restore_backup(backup, first, source_is_gone=True).owns_tables
    with pytest.raises(InvalidRequest, match=rf"at {first} still accepts writes: --own"):
        restore_backup(backup, second, source_is_gone=True)
    assert not restore_backup(backup, second).owns_tables
    assert restore_backup(backup, second, own=True).owns_tables
    with penstock.open(first) as lake, pytest.raises(LakeMoved):
        lake.table("a.delta").append(ids(2))
    with pytest.raises(InvalidRequest, match=rf"at {second} still accepts writes: --own"):
        restore_backup(backup, third, source_is_gone=True)
    remove_database(second)
    with pytest.raises(InvalidRequest, match=rf"at {second} cannot be reached"):
        restore_backup(backup, third, own=True)
    assert restore_backup(backup, third, source_is_gone=True).owns_tables
    assert restore_backup(backup, third, source_is_gone=True).was_restored


def test_a_restore_that_was_killed_makes_no_second_owner_when_it_goes_on(
    place: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, later = tmp_path / "killed", tmp_path / "later"

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("penstock.kernel.copy._LakeCopy._copy_objects", die)
        with pytest.raises(Killed):
            restore_backup(backup, killed, own=True)
    assert restore_backup(backup, later).owns_tables
    with pytest.raises(InvalidRequest, match=rf"at {later} still accepts writes"):
        restore_backup(backup, killed, source_is_gone=True)


def test_a_lake_that_was_moved_since_the_backup_is_sealed_where_it_is(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    penstock.move(place, tmp_path / "moved")
    assert restore_backup(backup, tmp_path / "again", own=True).owns_tables
    with penstock.open(tmp_path / "moved") as lake, pytest.raises(LakeMoved):
        lake.table("a.delta").append(ids(2))


def test_a_lake_that_was_moved_is_found_though_its_former_place_is_gone(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    penstock.move(place, tmp_path / "moved")
    remove_database(place)
    with pytest.raises(InvalidRequest, match=rf"at {tmp_path / 'moved'} still accepts writes"):
        restore_backup(backup, tmp_path / "again", source_is_gone=True)


def is_found_where_it_moved(place: Path, backup: Path, target: Path) -> bool:
    """Whether a restore knows where a lake is whose former place is gone."""
    remove_database(place)
    with pytest.raises(InvalidRequest, match=rf"at {target} still accepts writes"):
        restore_backup(backup, place.parent / "again", source_is_gone=True)
    return True


def test_a_lake_is_found_though_who_moved_it_died_before_an_answer(
    place: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr("penstock.kernel.copy._LakeCopy._make_result", die)
    with pytest.raises(Killed):
        penstock.move(place, tmp_path / "moved")
    assert is_found_where_it_moved(place, backup, tmp_path / "moved")


def test_a_move_that_cannot_be_noted_is_refused_before_anything_is_written(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    forks = pool_of(place) / "forks"
    forks.parent.mkdir(exist_ok=True)
    forks.write_text("no folder can be made here")
    with pytest.raises(PenstockError, match="Run the same command where the warehouse can be written"):
        penstock.move(place, tmp_path / "moved")
    with pytest.raises(LakeNotFound):
        penstock.open(tmp_path / "moved", create=False)
    with penstock.open(place) as lake:
        lake.table("a.delta").append(ids(2))
    forks.unlink()
    penstock.move(place, tmp_path / "moved")
    assert is_found_where_it_moved(place, backup, tmp_path / "moved")


def test_the_note_of_a_move_is_needed_to_give_the_lake_away(
    place: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the move began, and somebody removed it, and with it the right to write it again."""
    forks = pool_of(place) / "forks"
    copy_objects = _LakeCopy._copy_objects

    def remove_note(self: _LakeCopy) -> None:
        copy_objects(self)
        shutil.rmtree(forks)
        forks.write_text("no folder can be made here")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.kernel.copy._LakeCopy._copy_objects", remove_note)
        with pytest.raises(PenstockError, match="'penstock move SOURCE --cancel' cancels it"):
            penstock.move(place, tmp_path / "moved")
    assert read_description_at(place).sealed is not None
    cancel_move(place)
    with penstock.open(place) as lake:
        lake.table("a.delta").append(ids(2))
    forks.unlink()
    penstock.move(place, tmp_path / "elsewhere")
    assert is_found_where_it_moved(place, backup, tmp_path / "elsewhere")


def test_a_lake_that_got_its_first_table_while_it_moved_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seal = tmp_path / "lake", _LakeCopy._seal_source
    penstock.open(place, create=True, author="ada").close()

    def create_table(self: _LakeCopy) -> None:
        with penstock.open(place) as lake:
            lake.create_table("a.delta", data=ids(1))
        backup_lake(place, tmp_path / "nightly.backup")
        seal(self)

    monkeypatch.setattr("penstock.kernel.copy._LakeCopy._seal_source", create_table)
    penstock.move(place, tmp_path / "moved")
    assert is_found_where_it_moved(place, tmp_path / "nightly.backup", tmp_path / "moved")


def test_a_move_that_was_refused_leaves_the_note_of_a_copy_under_way_as_it_is(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go to one place, and the copy has just begun."""
    target, seen = tmp_path / "there", list[bytes]()
    begin = _LakeCopy._begin_target

    def move_first(self: _LakeCopy) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr("penstock.kernel.copy._LakeCopy._begin_target", begin)
            patched.setattr("penstock.kernel.copy._LakeCopy._seal_source", die)
            with pytest.raises(Killed):
                penstock.move(place, target)
        seen.extend(note.read_bytes() for note in (pool_of(place) / "forks").iterdir())
        return begin(self)

    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr("penstock.kernel.copy._LakeCopy._begin_target", move_first)
    with pytest.raises(InvalidRequest, match="holds part of a move"):
        penstock.copy(place, target)
    (note,) = seen
    assert b"until_us" not in note or b'"until_us":null' in note


def test_what_a_restored_lake_writes_is_not_swept_by_a_lake_that_is_restored_beside_it(
    place: Path, tmp_path: Path
) -> None:
    clock = LateClock()
    with penstock.open(place, clock=clock) as lake:
        lake.table("f").files.write({"a.csv": b"1"})
    backup_lake(place, tmp_path / "nightly.backup", clock=clock)
    remove_database(place)
    owner, other = tmp_path / "owner", tmp_path / "other"
    restore_backup(tmp_path / "nightly.backup", owner, source_is_gone=True, clock=clock)
    restore_backup(tmp_path / "nightly.backup", other, clock=clock)
    with penstock.open(owner, clock=clock) as lake:
        lake.table("f").files.write({"b.csv": b"2"})
    clock.days = 40
    with penstock.open(other, clock=clock) as lake:
        lake.sweep()
        lake.sweep_files(remove_data=True)
    with penstock.open(owner, clock=clock) as lake:
        lake.sweep()
        lake.sweep_files(remove_data=True)
        assert lake.table("f").files.read("b.csv") == b"2"


def test_a_restore_that_ended_publishes_nothing_any_more(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The restored lake is opened for a moment, and publishes what the backup has and the table's log lacks;
    its store is closed afterwards."""
    others = {*enumerate_threads()}
    before, during = gates = Gate(), Gate()
    at = [before]
    real_work, real_register = Publisher.publish_task, penstock.lake.backup._register_again

    def work(self: Publisher, *task: Any) -> None:
        at[0]()
        real_work(self, *task)

    def register(*given: Any) -> tuple[str, ...]:
        during.wait_until_reached()
        return real_register(*given)

    monkeypatch.setattr(Publisher, "publish_task", work)
    monkeypatch.setattr("penstock.lake.backup._register_again", register)
    impatient = Settings(publish_wait_s=0.0, publish_close_s=0.0)
    with penstock.open(place, settings=impatient) as lake:
        lake.table("a.delta").append(ids(2))
    backup_lake(place, tmp_path / "nightly.backup", settings=impatient, register=False)
    (place / "penstock.db").rename(tmp_path / "gone.db")
    at[0] = during
    restore_backup(tmp_path / "nightly.backup", tmp_path / "again", source_is_gone=True, settings=impatient)
    for gate in gates:
        gate.open()
    for thread in {one for one in enumerate_threads() if one.name == "penstock-publisher"} - others:
        thread.join(60)
        assert not thread.is_alive()
    assert "not published" not in caplog.text


def test_what_became_of_a_source_that_cannot_be_seen_is_not_guessed(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    place.rename(tmp_path / "unmounted")
    made = restore_backup(backup, tmp_path / "again", allow_missing=True)
    assert not made.owns_tables
    with pytest.raises(InvalidRequest, match=r"cannot be reached from here.*\n.*--source-is-gone"):
        restore_backup(backup, tmp_path / "other", own=True, allow_missing=True)


def test_to_own_the_tables_seals_the_source_for_good(place: Path, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="still accepts writes: --own makes it read-only"):
        restore_backup(backup, tmp_path / "again", source_is_gone=True)
    made = restore_backup(backup, tmp_path / "again", own=True)
    assert made.owns_tables
    with penstock.open(place) as lake, penstock.open(tmp_path / "again") as again:
        assert lake.id == again.id
        with pytest.raises(LakeMoved, match="again"):
            lake.table("a.delta").append(ids(2))
        again.table("a.delta").append(ids(3))
        assert numbers(again) == [1, 3]


def test_a_copy_takes_the_place_of_its_source_later(place: Path, backup: Path, tmp_path: Path) -> None:
    restore_backup(backup, tmp_path / "again")
    with penstock.open(tmp_path / "again") as again:
        again.branch("mine").create()
    made = restore_backup(backup, tmp_path / "again", own=True)
    assert (made.owns_tables, made.copied.repeated) == (True, True)
    with penstock.open(place) as lake, penstock.open(tmp_path / "again") as again:
        assert (again.id, again.forked_from) == (lake.id, "")
        assert "mine" in [one.name for one in again.branches()]
        again.table("a.delta").append(ids(2))
        assert numbers(again) == [1, 2]
        with pytest.raises(LakeMoved):
            lake.table("a.delta").append(ids(3))
        assert again.sweep().removed == 0


def test_a_source_that_moved_is_looked_for_where_it_is_now(place: Path, backup: Path, tmp_path: Path) -> None:
    penstock.move(place, tmp_path / "moved")
    assert not restore_backup(backup, tmp_path / "again").owns_tables
    with pytest.raises(InvalidRequest, match="accepts writes"):
        restore_backup(backup, tmp_path / "other", source_is_gone=True)
    with penstock.open(tmp_path / "moved") as lake:
        lake.table("a.delta").append(ids(2))


def test_files_that_are_gone_are_named_before_anything_is_written(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    folder = Path(_location(place))
    gone = next(one for one in folder.rglob("*.parquet") if "_delta_log" not in str(one))
    gone.unlink()
    with pytest.raises(InvalidRequest) as refused:
        restore_backup(backup, tmp_path / "again")
    assert f"'a.delta' at 'main' (version 0): {gone.relative_to(folder)} is gone" in refused.value.message
    assert "--missing-ok" in refused.value.message
    made = restore_backup(backup, tmp_path / "again", allow_missing=True)
    assert [one for one in made.missing if "a.delta" in one]


def test_a_sweep_leaves_the_files_that_a_backup_counts_on(place: Path, backup: Path, tmp_path: Path) -> None:
    """An overwrite, a horizon, and a sweep of everything: the backup's rows can still be read."""
    with penstock.open(place) as lake:
        for number in range(3):
            lake.table("a.delta").overwrite(ids(10 + number))
        lake.table("a.files").files.delete("one.csv")
        lake.keep_history("*", max_commits=1)
        lake.finish_background()
    with penstock.open(place, settings=NOW) as lake:
        lake.sweep()
        lake.sweep_tables(remove_data=True)
        lake.sweep_files(remove_data=True)
    restore_backup(backup, tmp_path / "again")
    with penstock.open(tmp_path / "again") as again:
        assert numbers(again) == [1]


def test_an_older_backup_is_restored_by_id_and_by_time(tmp_path: Path) -> None:
    store, target = new_store(1, 5), MemoryStore()
    first = backup_lake(store, target, settings=QUICK).point
    was = rows(store)
    reopened(store).branch().put("t", table("later"))
    second = backup_lake(store, target, settings=QUICK).point
    for at in (first.id, first.id[:-1], "2099-01-01T00:00:00+00:00", None):
        place = MemoryStore()
        restore_backup(target, place, at=at, source_is_gone=True)
        assert rows(place) == (was if at and at.startswith(first.id[:-1]) else rows(store))
    with pytest.raises(InvalidRequest, match="the oldest backup"):
        restore_backup(target, MemoryStore(), at="2001-01-01", source_is_gone=True)
    with pytest.raises(InvalidRequest, match="is neither a backup"):
        restore_backup(target, MemoryStore(), at="nonsense", source_is_gone=True)
    assert verify_backup(target, second.id).damages == ()


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("owns", [True, False])
def test_a_restore_killed_anywhere_is_completed_by_the_same_restore(owns: bool, is_after: bool) -> None:
    source, target = new_store(5, 8), MemoryStore()
    backup_lake(source, target, settings=QUICK)
    whole = Life()
    restore_backup(target, MortalStore(MemoryStore(), whole), source_is_gone=owns, settings=QUICK)
    for last in range(whole.calls):
        place = MemoryStore()
        with pytest.raises(Killed):
            restore_backup(
                target, MortalStore(place, Life(last, is_after)), source_is_gone=owns, settings=QUICK
            )
        restore_backup(target, place, source_is_gone=owns, settings=QUICK)
        assert rows(place) == rows(source)
        assert (read_description(place).id == read_description(source).id) == owns
        assert reopened(place).fsck().damages == ()


def test_part_of_a_restore_is_completed_by_that_restore_only() -> None:
    source, target, place = new_store(5, 8), MemoryStore(), MemoryStore()
    first = backup_lake(source, target, settings=QUICK).point.id
    reopened(source).branch().put("t", table("later"))
    backup_lake(source, target, settings=QUICK)
    dying = FaultyStore(place)
    dying.fail(Point.STORE, Killed())
    with pytest.raises(Killed):
        restore_backup(target, dying, at=first, source_is_gone=True, settings=QUICK)
    with pytest.raises(Unavailable, match="'penstock restore-backup' again"):
        reopened(place)
    with pytest.raises(InvalidRequest, match="holds part of a restore"):
        restore_backup(target, place, source_is_gone=True, settings=QUICK)
    restore_backup(target, place, at=first, source_is_gone=True, settings=QUICK)
    with pytest.raises(LakeExists):
        restore_backup(target, place, source_is_gone=True, settings=QUICK)


def test_a_restored_lake_goes_on_with_the_backups_of_the_one_before(tmp_path: Path) -> None:
    source, target, place = new_store(5, 8), MemoryStore(), MemoryStore()
    made = backup_lake(source, target, settings=QUICK).point.id
    restore_backup(target, place, source_is_gone=True, settings=QUICK)
    lake = reopened(place)
    assert [one.id for one in read_description(place).backups] == [made]
    lake.branch().put("t", table("later"))
    again = backup_lake(place, target, settings=QUICK)
    assert not again.point.is_whole
    assert again.point.objects < 10
    assert verify_backup(target).damages == ()


@pytest.mark.parametrize("is_first_a_copy", [False, True])
@pytest.mark.parametrize("has_data", [False, True])
def test_a_restored_lake_knows_the_backups_at_other_places(
    place: Path, tmp_path: Path, has_data: bool, is_first_a_copy: bool
) -> None:
    """Also one that was made after the backup that it is restored from, if it has the commits."""
    before = backup_lake(place, tmp_path / "before", data=has_data).point.id
    made = backup_lake(place, tmp_path / "nightly.backup").point.id
    after = backup_lake(place, tmp_path / "after", data=has_data).point.id
    if is_first_a_copy:
        restore_backup(tmp_path / "nightly.backup", tmp_path / "again")
    restored = restore_backup(tmp_path / "nightly.backup", tmp_path / "again", own=True)
    assert restored.unregistered == ()
    registered = penstock.registered_backups(tmp_path / "again")
    assert {one.id: one.keeps_files for one in registered} == {
        before: not has_data,
        made: True,
        after: not has_data,
    }
    with penstock.open(tmp_path / "again") as lake:
        with pytest.raises(EraseRefused) as refused:
            lake.erase("a.delta")
        assert all(number in str(refused.value) for number in (before, made, after))
        assert lake.fsck().damages == ()


def test_with_its_source_gone_a_restored_lake_knows_the_backups_of_before(
    place: Path, tmp_path: Path
) -> None:
    before = backup_lake(place, tmp_path / "before").point.id
    backup_lake(place, tmp_path / "nightly.backup")
    with penstock.open(place) as lake:
        lake.table("a.delta").append(ids(2))
        lake.finish_background()
    made = backup_lake(place, tmp_path / "nightly.backup").point.id
    penstock.expire_backups(place, tmp_path / "nightly.backup", keep_last=1)
    for name in ("penstock.db", "penstock.db-wal", "penstock.db-shm"):
        (place / name).unlink(missing_ok=True)
    restore_backup(tmp_path / "nightly.backup", tmp_path / "again", source_is_gone=True)
    assert [one.id for one in penstock.registered_backups(tmp_path / "again")] == [made, before]
    assert verify_backup(tmp_path / "nightly.backup").damages == ()


def test_a_backup_elsewhere_with_commits_that_a_restored_lake_lacks_is_named(
    place: Path, tmp_path: Path
) -> None:
    backup_lake(place, tmp_path / "nightly.backup")
    with penstock.open(place) as lake:
        lake.table("a.delta").append(ids(2))
        lake.finish_background()
    after = backup_lake(place, tmp_path / "after").point.id
    restored = restore_backup(tmp_path / "nightly.backup", tmp_path / "again", own=True)
    assert restored.unregistered == (f"{after} at {tmp_path / 'after'}",)
    with penstock.open(tmp_path / "again") as lake:
        assert lake.sweep(dry_run=True).removed == 0, "nothing is missing that a sweep has to mark"


def test_a_copied_file_of_a_backup_is_a_backup(place: Path, backup: Path, tmp_path: Path) -> None:
    shutil.copy(backup, tmp_path / "elsewhere.backup")
    assert verify_backup(tmp_path / "elsewhere.backup").damages == ()
    restore_backup(tmp_path / "elsewhere.backup", tmp_path / "again")
    store = SqliteStore(tmp_path / "again" / "penstock.db", create=False)
    assert read_description(store).arrival is not None
    store.close()
