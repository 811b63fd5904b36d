"""What messages about a lake as a whole advise is done, and no row is lost that was acknowledged."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

import penstock
from penstock import Lake
from penstock.errors import Damaged, InvalidRequest, LakeMoved, PenstockError, Unavailable
from penstock.kernel.settings import Settings
from penstock.lake.copy import cancel_move, move_lake
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point
from tests.advice.rows import numbers, rows


class Killed(BaseException):
    """The process is no more."""


@pytest.fixture
def place(lake: Lake, tmp_path: Path) -> Path:
    """A lake with the rows 1 and 2 in a table, closed."""
    lake.create_table("a.t", data=rows(1))
    lake.table("a.t").append(rows(2))
    lake.finish_background()
    lake.close()
    return tmp_path / "lake"


def test_a_copy_that_was_killed_is_run_again_and_has_all_rows(place: Path) -> None:
    target = MemoryStore()
    dying = FaultyStore(target)
    dying.fail(Point.FETCH, Killed())
    with pytest.raises(Killed):
        move_lake(place, dying)
    with pytest.raises(PenstockError, match=r"to complete the copy, run the same 'penstock move' again"):
        penstock.open(target)
    move_lake(place, target)
    with penstock.open(target) as moved:
        moved.table("a.t").append(rows(3))
        moved.finish_background()  # now the table is ahead of the source
        with penstock.open(place) as source:
            assert (numbers(moved), numbers(source)) == ([1, 2, 3], [1, 2])
            with pytest.raises(LakeMoved, match="write there"):
                source.table("a.t").append(rows(4))


def test_a_cancelled_copy_is_deleted_and_begun_anew(place: Path) -> None:
    target = MemoryStore()
    dying = FaultyStore(target)
    dying.fail(Point.FETCH, Killed())
    with pytest.raises(Killed):
        move_lake(place, dying)
    with penstock.open(place) as lake, pytest.raises(LakeMoved, match="'penstock move SOURCE --cancel'"):
        lake.table("a.t").append(rows(3))
    cancel_move(place)
    with penstock.open(place) as lake:
        lake.table("a.t").append(rows(3))
        lake.finish_background()
    with pytest.raises(InvalidRequest, match=r"delete the database there first \(not the files of"):
        move_lake(place, target)
    anew = MemoryStore()  # the place without what was in its database
    move_lake(place, anew)
    with penstock.open(anew) as moved:
        moved.table("a.t").append(rows(4))
        assert numbers(moved) == [1, 2, 3, 4]
        assert moved.fsck().damages == ()


def test_a_lake_whose_database_is_damaged_comes_back_from_a_backup(place: Path, tmp_path: Path) -> None:
    database = place / "penstock.db"
    shutil.copy(database, tmp_path / "backup.db")
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM refs WHERE name LIKE '%lake%'")
    connection.close()
    with pytest.raises(Damaged, match="Restore the lake's database from a backup"):
        penstock.open(place).log()
    database.unlink()
    with pytest.raises(InvalidRequest, match="restore its database from a backup"):
        penstock.open(place).create_table("a.t", data=rows(9))
    shutil.copy(tmp_path / "backup.db", database)
    with penstock.open(place) as lake:
        lake.table("a.t").append(rows(3))
        assert numbers(lake) == [1, 2, 3]


def test_a_database_that_was_moved_away_is_put_back_with_all_rows(place: Path, tmp_path: Path) -> None:
    with penstock.open(place, settings=Settings(write_timeout_s=0.1)) as lake:
        lake.table("a.t").append(rows(3))
        place.rename(tmp_path / "away")
        with pytest.raises(Unavailable, match=r"put it back. If what is there now was put there on purpose"):
            lake.branch().put("a.other", penstock.IcebergTable(metadata_location="s3://lake/v1.json"))
        (tmp_path / "away").rename(place)
        lake.table("a.t").append(rows(4))
        assert numbers(lake) == [1, 2, 3, 4]


def test_a_directory_of_rocksdb_is_copied_and_read(tmp_path: Path) -> None:
    with penstock.open(f"rocksdb://{tmp_path}/lake", create=True) as lake:
        lake.branch().put("a", penstock.IcebergTable(metadata_location="s3://lake/v1.json"))
        written = lake.log()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    for place in ("copy", "lake"):
        with penstock.open(f"rocksdb://{tmp_path}/{place}") as lake:
            assert lake.log() == written
            assert lake.table("a").exists
