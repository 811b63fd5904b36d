"""A disk that fills up under a backup: it says so, the lake is as it was, and repeated it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Key, Put
from penstock.errors import StorageFull
from penstock.kernel import backup, object_copy
from penstock.lake.backup import backup_lake, list_backups, restore_backup, verify_backup
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake, open_lake
from tests.copy.lakes import table
from tests.outages.conftest import SmallDisk
from tests.outages.hasty_leases import HastyLeases

TARGETS = {
    "one file": "{}/nightly.backup",
    "a directory": "{}/backups",
    "rocksdb": "rocksdb://{}/backups",
    "files": "file://{}/backups",
}


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are small, and a lease that could not be given back, for want of room, is soon let go of."""
    monkeypatch.setattr(object_copy, "SCAN_PAGE", 20)
    monkeypatch.setattr(object_copy, "PAGES_MAX", 1)
    monkeypatch.setattr(backup, "Leases", HastyLeases)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    init_lake(str(tmp_path / "lake")).close()
    with open_lake(tmp_path / "lake", author="ada") as made:
        made.branch().commit([Put(Key(f"t{number}"), table(number, 20_000)) for number in range(150)])
        yield made


class _Filling:
    """Fills the disk once so many objects are copied, and notes the numbers that it is told."""

    def __init__(self, disk: SmallDisk, after: int) -> None:
        self._disk, self._after, self.counts = disk, after, list[int]()

    def __call__(self, what: str, count: int, total: int) -> None:
        if what == "copying objects":
            self.counts.append(count)
            if count >= self._after:
                self._disk.fill()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_backup_whose_disk_fills_up_goes_on_once_there_is_room(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path, target: str
) -> None:
    place = target.format(small_disk.path)
    before = lake.branch().head, [one.id for one in lake.log(limit=None)]
    with pytest.raises(StorageFull, match="has no room left") as refused:
        backup_lake(tmp_path / "lake", place, progress=_Filling(small_disk, 60))
    assert str(small_disk.path) in refused.value.message
    assert "Free space there" in refused.value.message
    assert (lake.branch().head, [one.id for one in lake.log(limit=None)]) == before
    assert lake.fsck().damages == ()
    lake.branch().put("meanwhile", table("meanwhile"))
    small_disk.make_room()
    (left,) = list_backups(place)
    assert not left.is_complete
    seen = _Filling(small_disk, 1_000_000)
    made = backup_lake(tmp_path / "lake", place, progress=seen)
    assert made.completed == (left.id,)
    assert seen.counts[0] >= 60, "what was copied is not copied again"
    for point in list_backups(place):
        assert point.is_complete
        assert verify_backup(place, point.id).damages == ()
    restore_backup(place, tmp_path / "again", own=True)
    with open_lake(tmp_path / "again", author="ada") as again:
        assert again.branch().head == lake.branch().head


@pytest.mark.parametrize("target", [TARGETS["one file"], TARGETS["files"]], ids=["one file", "files"])
def test_a_later_backup_on_a_full_disk_leaves_the_ones_before_it_whole(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path, target: str
) -> None:
    place = target.format(small_disk.path)
    first = backup_lake(tmp_path / "lake", place).point.id
    lake.branch().put("later", table("later", 200_000))
    small_disk.fill()
    with pytest.raises(StorageFull, match="has no room left"):
        backup_lake(tmp_path / "lake", place)
    small_disk.make_room()
    assert [one.id for one in list_backups(place) if one.is_complete] == [first]
    assert verify_backup(place).damages == ()
    made = backup_lake(tmp_path / "lake", place)
    assert not made.point.is_whole
    assert verify_backup(place).damages == ()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_first_backup_on_a_full_disk_says_so(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path, target: str
) -> None:
    small_disk.fill()
    with pytest.raises(StorageFull, match="has no room left"):
        backup_lake(tmp_path / "lake", target.format(small_disk.path))
    assert lake.fsck().damages == ()


def test_a_restore_to_a_full_disk_says_so_and_goes_on_once_there_is_room(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path
) -> None:
    backup_lake(tmp_path / "lake", tmp_path / "nightly.backup")
    fill: Callable[[str, int, int], None] = _Filling(small_disk, 60)
    with pytest.raises(StorageFull, match="has no room left"):
        restore_backup(tmp_path / "nightly.backup", small_disk.path / "again", progress=fill)
    small_disk.make_room()
    restore_backup(tmp_path / "nightly.backup", small_disk.path / "again")
    with open_lake(small_disk.path / "again") as again:
        assert again.branch().head == lake.branch().head
        assert again.fsck().damages == ()
