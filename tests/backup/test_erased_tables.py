"""An erase and backups: a backup that still has the rows is in its way, and later ones are whole."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import EraseRefused
from penstock.kernel.backup_registry import register_backup
from penstock.lake.answers import ErasedTable
from penstock.lake.backup import backup_lake, expire_backups, restore_backup, verify_backup
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from tests.erase.tables import alone, people, where_is
from tests.sweep.tables import LateClock


def test_an_erase_names_the_backups_that_hold_the_rows_and_later_backups_are_whole(tmp_path: Path) -> None:
    target = tmp_path / "nightly.backup"
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("a.t", data=pa.table({"id": [1, 2]}))
        lake.table("a.t").overwrite(pa.table({"id": [1]}))
        lake.finish_background()
        number = backup_lake(tmp_path / "lake", target).point.id
        with pytest.raises(EraseRefused, match=f"backup {number} at .*penstock backups expire"):
            lake.erase("a.t")
        expire_backups(tmp_path / "lake", target, number)
        lake.erase("a.t")
        lake.branch("later").create()
        backup_lake(tmp_path / "lake", target)
        lake.table("a.t").append(pa.table({"id": [3]}))
        lake.finish_background()
        made = backup_lake(tmp_path / "lake", target)
    assert not made.point.is_whole
    assert verify_backup(target).damages == ()
    restore_backup(target, tmp_path / "again")
    with penstock.open(tmp_path / "again") as again:
        assert sorted(again.table("a.t").to_arrow()["id"].to_pylist()) == [1, 3]
        assert again.fsck().damages == ()


def test_what_was_erased_at_a_tag_does_not_keep_a_backup_from_being_restored(tmp_path: Path) -> None:
    target = tmp_path / "nightly.backup"
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("a.t", data=pa.table({"id": [1, 2]}))
        lake.table("a.f").files.write({"1.csv": b"id\n1\n", "2.csv": b"id\n2\n"})
        lake.tag("before").create()
        lake.table("a.t").overwrite(pa.table({"id": [1]}))
        lake.table("a.f").files.delete("2.csv")
        lake.finish_background()
        lake.erase("a.t", all_references=True)
        lake.erase("a.f", all_references=True)
        backup_lake(tmp_path / "lake", target, verify=True)
    assert restore_backup(target, tmp_path / "again").missing == ()
    with penstock.open(tmp_path / "again") as again:
        assert again.table("a.t").to_arrow()["id"].to_pylist() == [1]
        assert [one.path for one in again.table("a.f").files.walk()] == ["1.csv"]
        assert again.fsck().damages == ()


DROPPED, TO_A_MOMENT = "dropped", "to a moment"
ERASES = ("whole", DROPPED, TO_A_MOMENT)


def fill(path: Path) -> None:
    """A table of two rows, of which one was deleted a month ago."""
    clock = LateClock()
    with penstock.open(path, create=True, author="ada", clock=clock) as lake:
        clock.days = -30
        lake.create_table("t", data=people())
        lake.table("t").overwrite(people().slice(2, 1))
        lake.finish_background()


def erase(lake: Lake, kind: str) -> ErasedTable:
    if kind == TO_A_MOMENT:
        return lake.erase("t", older_than=timedelta(days=1))
    return lake.erase("t", dropped=kind == DROPPED)


@pytest.mark.parametrize("data", [False, True], ids=["without data", "with data"])
@pytest.mark.parametrize("kind", ERASES)
def test_an_erase_names_a_backup_that_came_after_its_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, data: bool
) -> None:
    path, target = tmp_path / "lake", tmp_path / "backups"
    fill(path)
    made, set_horizon = list[str](), EraseRun._set_horizon

    def back_up_first(run: EraseRun, *given: Any) -> Any:
        if not made:
            made.append(backup_lake(path, target, data=data).point.id)
        return set_horizon(run, *given)

    monkeypatch.setattr(EraseRun, "_set_horizon", back_up_first)
    with alone(path) as lake:
        if kind == DROPPED:
            lake.branch().drop("t")
        for _ in range(2):
            with pytest.raises(EraseRefused, match=r"backup .*penstock backups expire") as refused:
                erase(lake, kind)
            [holder] = refused.value.details["holders"]
            assert made[0] in holder
        assert where_is(path), "nothing was removed"
        expire_backups(path, target, made[0])
        assert erase(lake, kind).finished
        assert where_is(tmp_path) == []
        backup_lake(path, target, data=data)
        assert erase(lake, kind).finished, "later backups do not contain these rows"
    assert where_is(tmp_path) == []
    assert verify_backup(target).damages == ()


@pytest.mark.parametrize("data", [False, True], ids=["without data", "with data"])
@pytest.mark.parametrize("kind", ERASES)
def test_a_backup_that_read_the_lake_before_an_erase_and_is_noted_after_reads_it_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, data: bool
) -> None:
    path, target = tmp_path / "lake", tmp_path / "backups"
    fill(path)
    erased = list[bool]()

    def erase_first(*given: Any, **more: Any) -> Any:
        if not erased:
            with alone(path) as lake:
                erased.append(erase(lake, kind).finished)
        return register_backup(*given, **more)

    monkeypatch.setattr("penstock.kernel.backup.register_backup", erase_first)
    with alone(path) as lake:
        if kind == DROPPED:
            lake.branch().drop("t")
        backup_lake(path, target, data=data)
        assert erased == [True]
        assert erase(lake, kind).finished, "the backup does not contain these rows"
    assert where_is(tmp_path) == []
    assert verify_backup(target).damages == ()
    restore_backup(target, tmp_path / "again")


@pytest.mark.parametrize("data", [False, True], ids=["without data", "with data"])
def test_an_erase_of_a_lance_table_is_refused_while_a_backup_has_it_and_goes_on_without(
    tmp_path: Path, data: bool
) -> None:
    path, target = tmp_path / "lake", tmp_path / "backups"
    with penstock.open(path, create=True, author="ada") as lake:
        lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"], mode="create")
        lance.dataset(namespace_client=lake.lance(), table_id=["t"]).delete("id = 2")
        number = backup_lake(path, target, data=data).point.id
    with alone(path) as lake:
        before, files = lake.branch().head, where_is(path)
        what = "backup with data" if data else "backup"
        with pytest.raises(EraseRefused, match=f"{what} {number} at .*penstock backups expire") as refused:
            lake.erase("t", all_references=True)
        assert refused.value.details["holders"] == [f"{what} {number} at {target}"]
        assert (lake.branch().head, where_is(path)) == (before, files), "nothing was changed"
        assert any(number in line for line in lake.erase("t", dry_run=True).left)
    assert where_is(path), "the lake keeps it, as it is in use"
    expire_backups(path, target, number)
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path) == []
        backup_lake(path, target, data=data)
        assert lake.erase("t").finished, "later backups do not contain these rows"
        assert lake.table("t").to_arrow()["id"].to_pylist() == [1, 3]
    assert verify_backup(target).damages == ()
    assert where_is(target) == []
