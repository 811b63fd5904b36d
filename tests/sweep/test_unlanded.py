"""Folders of tables that were never created go, if it is sure that they were to be this lake's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

import penstock
from penstock.errors import Unavailable
from penstock.formats.delta.lake.calls import CreateTable
from penstock.formats.delta.lake.table import encode_actions
from penstock.formats.delta.lake.unlanded_tables import UnlandedTable, UnlandedTableSweeper
from penstock.formats.delta.publishing.side_files import note_creation
from penstock.lake.answers import SweptTable
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.storage.locations import make_own_place
from penstock.storage.places import Place
from tests.owner.orders import add
from tests.sweep.tables import LateClock, ids, root_of, rows

PART = "part-00000-12345678-9abc-4def-8123-456789abcdef-c000.zstd.parquet"
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester", clock=later) as lake:
        yield lake


@pytest.fixture(autouse=True)
def table(lake: Lake) -> Table:
    return lake.create_table("orders", data=rows(1))


def unlanded(lake: Lake, *, remove: bool = True, dry_run: bool = False) -> list[SweptTable]:
    """What a sweep tells of folders of tables that were never created."""
    found = {str(one.key): one for one in lake.sweep_tables(remove_data=remove, dry_run=dry_run)}
    orders = found.pop("orders")
    assert (orders.problem, orders.data_files) == ("", 0)
    return [*found.values()]


def died(lake: Lake, *names: str, note: str | None = "") -> Path:
    """The folder of a job that wrote files and died before it could ask for its table."""
    place = lake.places.open_place(make_own_place(lake.warehouse, uuid4()))
    if note is not None:
        note_creation(place, note or lake.id)
    for name in names or (PART, f".{PART}.crc", "_penstock/bodies/0.json", f"_penstock/data/day=1/{PART}"):
        place.put(name, b"data")
    return Path(place.url)


def files(root: Path) -> set[str]:
    return {
        str(one.relative_to(root)) for one in root.rglob("*") if one.is_file() and ".locks" not in one.parts
    }


def test_what_a_job_left_of_a_table_that_it_did_not_create_goes_after_the_grace_time(
    lake: Lake, later: LateClock
) -> None:
    root = died(lake)
    before = files(root)
    later.days = 6.9
    assert unlanded(lake) == []
    assert files(root) == before
    later.days = 7.1
    for counted in (unlanded(lake, remove=False), unlanded(lake, dry_run=True)):
        (told,) = counted
        assert told.problem == ""
        assert (told.location, told.data_files, told.data_bytes, told.data_removed) == (
            str(root),
            4,
            16,
            False,
        )
        assert files(root) == before
    (told,) = unlanded(lake)
    assert (str(told.key), told.data_files, told.data_removed) == (root.name, 4, True)
    assert not root.exists()
    assert unlanded(lake) == []


def test_a_note_that_a_refused_job_left_goes_with_its_folder(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART)
    (root / PART).unlink()
    later.days = 8
    assert [one.data_files for one in unlanded(lake)] == [0]
    assert not root.exists()


def test_what_may_be_another_lakes_is_told_and_stays(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART, note=None)
    later.days = 30
    (told,) = unlanded(lake)
    assert (str(told.key), told.data_files, told.data_removed) == (root.name, 0, False)
    assert f"{root} has old files (1)" in told.problem
    assert files(root) == {PART}


def test_what_another_lake_has_noted_stays(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART, note=str(uuid4()))
    later.days = 30
    assert unlanded(lake) == []
    assert PART in files(root)


@pytest.mark.parametrize(
    "name",
    [
        f"_delta_log/{0:020}.json",
        f"_delta_log/{0:020}.crc",
        "_delta_log/_commits/notes.json",
        "notes.txt",
        "_penstock/notes.txt",
        f"day=1/_delta_log/{0:020}.json",
    ],
)
def test_a_folder_with_anything_else_in_it_stays_as_it_is(lake: Lake, later: LateClock, name: str) -> None:
    root = died(lake, PART, f"day=1/{PART}", name)
    before = files(root)
    later.days = 30
    assert unlanded(lake) == []
    assert files(root) == before


@pytest.mark.parametrize("end", ["aborted", "its lease ran out", "deleted", "landed"])
def test_a_table_that_was_created_where_nothing_is_left_of_it_goes(
    lake: Lake, later: LateClock, end: str
) -> None:
    tx = lake.transaction(lease_s=1800)
    branch = lake.branch("dev").create().name if end == "deleted" else tx.branch
    created = lake.create_table("new", data=rows(1, 2), branch=branch)
    root = root_of(created)
    created.append(rows(3))
    if end == "deleted":
        lake.branch("dev").delete()
    elif end == "landed":
        tx.land()
    elif end == "aborted":
        tx.abort()
    later.days = 40
    lake.sweep()  # what a deleted branch left behind is kept for a while
    before = files(root)
    found = [one for one in lake.sweep_tables(remove_data=True) if one.location == str(root)]
    if end == "landed":
        assert ids(lake.table("new")) == [1, 2, 3]
    else:
        assert [(one.problem, one.data_removed) for one in found] == [("", True)]
        assert before
        assert not root.exists()


def test_a_folder_with_one_young_file_stays(lake: Lake) -> None:
    root = died(lake, PART, f"day=1/{PART}")
    for name in files(root) - {PART}:
        os.utime(root / name, (0, 0))
    before = files(root)
    assert unlanded(lake) == []
    assert files(root) == before


def test_folders_that_are_not_named_by_an_id_stay(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART)
    moved = root.rename(root.with_name(root.name.upper()))
    shutil.copytree(moved, root.with_name("orders"))
    later.days = 30
    assert unlanded(lake) == []
    assert PART in files(moved) & files(root.with_name("orders"))


@pytest.mark.parametrize("fate", ["kept", "dropped", "deleted"])
def test_a_table_that_a_commit_has_or_had_is_none_of_these(lake: Lake, later: LateClock, fate: str) -> None:
    """Also one of which nothing is published yet, so that its folder does not tell that it was created."""
    branch = lake.branch("dev").create()
    root = Path(lake.create_table("visits", data=rows(1), branch="dev").get_commits().location)
    note_creation(lake.places.open_place(str(root)), lake.id)
    later.days = 30
    if fate == "dropped":
        branch.drop("visits")
    if fate == "deleted":
        branch.delete()
    for line in (root / "_penstock").glob("[0-9a-f]" * 32):
        shutil.rmtree(line)
    before = {one for one in files(root) if one.endswith(".parquet")}
    assert len(before) == 1
    told = [one for one in unlanded(lake) if str(one.key) != "visits"]
    assert told == []
    assert before <= files(root)


def test_a_table_that_is_created_after_the_first_look_is_seen_by_the_second(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later than a job may do it: its files are older than the grace time."""
    root = died(lake, PART)
    found = UnlandedTableSweeper._find_unlanded
    seen: list[UnlandedTable] = []

    def landing(tables: UnlandedTableSweeper) -> Iterator[UnlandedTable]:
        seen.extend(found(tables))
        lake.do(
            CreateTable(
                key=Key("late"),
                schema=SCHEMA,
                id=UUID(root.name),
                actions=encode_actions([add(PART, size=4)]).decode(),
            )
        )
        yield from seen

    later.days = 30
    monkeypatch.setattr(UnlandedTableSweeper, "_find_unlanded", landing)
    assert unlanded(lake) == []
    assert [str(one.table) for one in seen] == [root.name]
    assert PART in files(root)


def test_a_removal_that_is_interrupted_is_taken_up_by_the_next(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = died(lake, *(f"day={number}/{PART}" for number in range(5)))
    delete = Place.delete

    live = lake.table("orders").location

    def killed(place: Place, names: list[str]) -> None:
        if place.url == live:
            return delete(place, names)
        delete(place, names[:2])
        raise Unavailable("the storage went away")

    later.days = 8
    with monkeypatch.context() as patched:
        patched.setattr(Place, "delete", killed)
        (told,) = unlanded(lake)
    assert (told.problem, told.data_removed) == ("the storage went away", False)
    assert [one.data_files for one in unlanded(lake)] == [3]
    assert not root.exists()


def test_the_note_of_a_table_that_was_created_goes_as_what_lies_beside_its_log(
    lake: Lake, table: Table, later: LateClock
) -> None:
    note_creation(lake.places.open_place(table.location), lake.id)
    later.days = 1.1
    assert [one.scratch_files for one in lake.sweep_tables()] == [1]
    assert not (root_of(table) / "_penstock" / "creating" / lake.id).exists()
    assert ids(table) == [1]


def test_pages_come_to_an_end_with_folders_of_tables_that_were_not_created(
    lake: Lake, later: LateClock
) -> None:
    for key in "abc":
        lake.create_table(key, data=rows(1))
    roots = [died(lake, PART) for _ in range(3)]
    later.days = 8
    lake.catalogue.page_max = 3  # of four tables, so that there is room for one more on the second page
    for left in (2, 1, 0):
        told = lake.sweep_tables(remove_data=True)
        assert {"a", "b", "c", "orders"} < {str(one.key) for one in told}
        assert len(told) == 5
        assert sum(map(Path.exists, roots)) == left
