"""An erase and backups: a backup that still has the rows is in its way, and later ones are whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import EraseRefused
from penstock.lake.backup import backup_lake, expire_backups, restore_backup, verify_backup


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
