"""A backup with data whose target has no room left: it says so, and goes on once there is some."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import StorageFull
from penstock.kernel import backup
from penstock.lake import backup_files
from penstock.lake.backup import backup_lake, list_backups, verify_backup
from penstock.storage.places import Place
from tests.outages.conftest import SmallDisk
from tests.outages.hasty_leases import HastyLeases


def test_files_on_a_full_disk_say_so_and_the_repeat_goes_on(
    small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.table("a").files.write({f"{number}.bin": b"x" * 100_000 for number in range(20)})
    target, put, done = small_disk.path / "backups", Place.put, list[str]()

    def counting(place: Place, name: str, data: bytes) -> None:
        put(place, name, data)
        if place.url.startswith(str(target)):
            done.append(name)
            if len(done) == 5:
                small_disk.fill()

    # A lease that could not be given back, for want of room, is soon let go of.
    monkeypatch.setattr(backup, "Leases", HastyLeases)
    monkeypatch.setattr(backup_files, "FILE_WORKERS", 1)
    monkeypatch.setattr(Place, "put", counting)
    with pytest.raises(StorageFull, match="has no room left"):
        backup_lake(tmp_path / "lake", target, data=True)
    small_disk.make_room()
    assert [one.is_complete for one in list_backups(target)] == [False]
    again = backup_lake(tmp_path / "lake", target, data=True)
    assert len(again.completed) == 1
    assert len(done) == 20, "each was copied once"
    assert verify_backup(target).damages == ()
