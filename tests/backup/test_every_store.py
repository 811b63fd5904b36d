"""Every store can be backed up, and can hold backups: the first one, later ones, and what is restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.kernel.backup import BackupResult
from penstock.lake.backup import (
    backup_lake,
    expire_backups,
    list_backups,
    registered_backups,
    restore_backup,
    verify_backup,
)
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake, open_lake
from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Row, Store
from tests.copy.lakes import fill, rows, table
from tests.disks import disks_are_not_waited_for

__all__ = ["disks_are_not_waited_for"]

Find: TypeAlias = Callable[[pytest.FixtureRequest, Path], str]


def _postgresql(request: pytest.FixtureRequest, _: Path) -> str:
    return str(request.getfixturevalue("postgres_schema_url"))


def _mongodb(request: pytest.FixtureRequest, _: Path) -> str:
    return str(request.getfixturevalue("mongodb_url"))


def _dynamodb(request: pytest.FixtureRequest, _: Path) -> str:
    return str(request.getfixturevalue("dynamodb_place").url)


def _s3(request: pytest.FixtureRequest, _: Path) -> str:
    return str(request.getfixturevalue("s3_place").url)


def _rocksdb(_: pytest.FixtureRequest, directory: Path) -> str:
    return f"rocksdb://{directory}/rocksdb"


def _files(_: pytest.FixtureRequest, directory: Path) -> str:
    return f"file://{directory}/files"


@pytest.fixture(
    params=[
        pytest.param(_postgresql, id="postgresql"),
        pytest.param(_rocksdb, id="rocksdb"),
        pytest.param(_files, id="files"),
        pytest.param(_s3, id="s3", marks=pytest.mark.verify),
        pytest.param(_mongodb, id="mongodb", marks=pytest.mark.verify),
        pytest.param(_dynamodb, id="dynamodb", marks=pytest.mark.verify),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing is yet, in a store that is not SQLite."""
    find: Find = request.param
    return find(request, tmp_path)


@contextmanager
def opened(place: str) -> Iterator[Store]:
    store = open_store(place, False, now_us)
    try:
        yield store
    finally:
        store.close()


def make_lake(place: str) -> None:
    init_lake(place).close()
    with open_lake(place, create=False, author="ada") as lake:
        fill(lake, 3, 12)
        lake.create_token("ada", "write")


def write_more(lake: Lake) -> None:
    fill(lake, 4, 5, "later-")
    lake.branch().put("later", table("later", 300_000), idempotency_key="later")


def rows_at(place: str) -> dict[str, Row]:
    with opened(place) as store:
        return rows(store)


def back_up_twice(source: str, target: str) -> tuple[BackupResult, BackupResult]:
    first = backup_lake(source, target)
    with open_lake(source, create=False, author="ada") as lake:
        write_more(lake)
    return first, backup_lake(source, target, verify=True)


def test_each_store_is_backed_up_and_its_backup_holds_what_it_has(place: str, tmp_path: Path) -> None:
    make_lake(place)
    before = rows_at(place)
    target = str(tmp_path / "nightly.backup")
    first, later = back_up_twice(place, target)
    assert (first.point.is_whole, first.is_verified) == (True, True)
    assert (later.point.is_whole, later.is_verified) == (False, True)
    assert 0 < later.point.objects < first.point.objects
    after = rows_at(place)
    assert after != before
    for point, wanted in ((first.point, before), (later.point, after)):
        again = str(tmp_path / point.id)
        restore_backup(target, again, at=point.id)
        assert rows_at(again) == wanted
    for one in (place, tmp_path / later.point.id):
        with open_lake(one, create=False) as lake:
            assert lake.fsck().damages == ()
    assert [one.id for one in registered_backups(place)] == [first.point.id, later.point.id]


def test_each_store_holds_backups_that_a_lake_is_restored_from(place: str, tmp_path: Path) -> None:
    source = str(tmp_path / "lake")
    make_lake(source)
    before = rows_at(source)
    if place.startswith(("file:", "s3:")):
        ObjectStore(place, announce_wait_s=0.2).close()  # or what is removed is announced a minute before
    first, later = back_up_twice(source, place)
    assert 0 < later.point.objects < first.point.objects
    assert [one.id for one in list_backups(place)] == [first.point.id, later.point.id]
    restore_backup(place, tmp_path / "first", at=first.point.id)
    assert rows_at(str(tmp_path / "first")) == before
    assert expire_backups(source, place, keep_last=1) == [first.point.id]
    assert verify_backup(place).damages == ()
    restored = restore_backup(place, tmp_path / "again", own=True)
    assert restored.owns_tables
    with open_lake(tmp_path / "again", create=False, author="ada") as again:
        assert again.outcome("later") is not None
        assert again.fsck().damages == ()
        again.branch().put("goes_on", table("goes on"))
