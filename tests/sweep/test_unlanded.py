"""Folders of tables that were never created go, if it is sure that they were to be this lake's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock.errors import Unavailable
from penstock.formats.delta.owner.ownership import own_place
from penstock.lake.answers import SweptTable
from penstock.lake.delta_unlanded import UnlandedTables, note_creation
from penstock.lake.lake import Lake
from penstock.model.content import DeltaTable
from penstock.storage.places import Place
from tests.sweep.tables import LateClock, abandoned, ids, only, root_of, rows

PART = "part-00000-12345678-9abc-4def-8123-456789abcdef-c000.zstd.parquet"


@pytest.fixture
def later() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester", clock=later) as lake:
        yield lake


def died(lake: Lake, *names: str, note: str | None = "") -> Path:
    """The folder of a job that wrote files and died before it could ask for its table."""
    place = lake.places.at(own_place(lake.warehouse, uuid4()))
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
    assert lake.sweep_tables(remove_data=True) == []
    assert files(root) == before
    later.days = 7.1
    for counted in (lake.sweep_tables(), lake.sweep_tables(remove_data=True, dry_run=True)):
        told = only(counted)
        assert (told.location, told.data_files, told.data_bytes, told.data_removed) == (
            str(root),
            4,
            16,
            False,
        )
        assert files(root) == before
    told = only(lake.sweep_tables(remove_data=True))
    assert (str(told.key), told.data_files, told.data_removed) == (root.name, 4, True)
    assert not root.exists()
    assert lake.sweep_tables(remove_data=True) == []


def test_a_note_that_a_refused_job_left_goes_with_its_folder(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART)
    (root / PART).unlink()
    later.days = 8
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    assert not root.exists()


def test_what_may_be_another_lakes_is_told_and_stays(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART, note=None)
    later.days = 30
    (told,) = lake.sweep_tables(remove_data=True)
    assert (told.data_files, told.data_removed) == (1, False)
    assert "may be another's" in told.problem
    assert files(root) == {PART}


def test_what_another_lake_has_noted_stays(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART, note=str(uuid4()))
    later.days = 30
    assert lake.sweep_tables(remove_data=True) == []
    assert PART in files(root)


@pytest.mark.parametrize(
    "name",
    [
        f"_delta_log/{0:020}.json",
        f"_delta_log/_commits/{0:020}.12345678-9abc-4def-8123-456789abcdef.json",
        f"_penstock/{'a' * 32}/{0:020}.12345678-9abc-4def-8123-456789abcdef.json",
        "notes.txt",
        "_penstock/notes.txt",
        f"day=1/_delta_log/{0:020}.json",
    ],
)
def test_a_folder_with_anything_else_in_it_stays_as_it_is(lake: Lake, later: LateClock, name: str) -> None:
    root = died(lake, PART, f"day=1/{PART}", name)
    before = files(root)
    later.days = 30
    assert lake.sweep_tables(remove_data=True) == []
    assert files(root) == before


def test_a_folder_with_one_young_file_stays(lake: Lake) -> None:
    root = died(lake, PART, f"day=1/{PART}")
    for name in files(root) - {PART}:
        os.utime(root / name, (0, 0))
    before = files(root)
    assert lake.sweep_tables(remove_data=True) == []
    assert files(root) == before


def test_folders_that_are_not_named_by_an_id_stay(lake: Lake, later: LateClock) -> None:
    root = died(lake, PART)
    moved = root.rename(root.with_name(root.name.upper()))
    shutil.copytree(moved, root.with_name("orders"))
    later.days = 30
    assert lake.sweep_tables(remove_data=True) == []
    assert PART in files(moved) & files(root.with_name("orders"))


def test_tables_that_any_commit_has_or_had_are_none_of_these(lake: Lake, later: LateClock) -> None:
    """Of tables that are not published, nothing in the folder tells that they were created."""
    roots = []
    lake.branch("dev").create()
    for key, branch in (("kept", "dev"), ("dropped", "dev"), ("left", "gone")):
        if branch == "gone":
            lake.branch("gone").create()
        table = lake.create_table(key, data=rows(1), branch=branch)
        roots.append(Path(table.get_commits().location))
        note_creation(lake.places.at(str(roots[-1])), lake.id)
    lake.branch("dev").drop("dropped")
    later.days = 30
    lake.branch("gone").delete()
    for root in roots:
        shutil.rmtree(root / "_delta_log", ignore_errors=True)
        for line in (root / "_penstock").glob("[0-9a-f]" * 32):
            shutil.rmtree(line)
    before = [files(root) for root in roots]
    assert [
        one.key for one in lake.sweep_tables(remove_data=True) if one.location in map(str, roots[1:])
    ] == []
    assert [PART.endswith(".parquet") and any(".parquet" in one for one in some) for some in before] == [
        True
    ] * 3
    assert [{one for one in files(root) if ".parquet" in one} for root in roots] == [
        {one for one in some if ".parquet" in one} for some in before
    ]


def test_a_table_that_is_created_after_the_first_look_is_seen_by_the_second(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later than a job may do it: its files are older than the grace time."""
    root = died(lake, PART)
    found = UnlandedTables._found
    content = lake.create_table("orders", data=rows(1)).get_commits()
    template = lake.at("main").get("orders")
    assert isinstance(template, DeltaTable) and content.location == template.location

    def landing(self: UnlandedTables) -> Iterator[object]:
        yield from [*found(self)]
        lake.create_table("late", schema=rows().schema)
        os.rename(root, root.with_name("kept"))
        shutil.copytree(root.with_name("kept"), root)
        monkeypatch.setattr(self._known, "_names", {*self._known._names, root.name})

    later.days = 30
    monkeypatch.setattr(UnlandedTables, "_found", landing)
    told = {one.location for one in lake.sweep_tables(remove_data=True)}
    assert str(root) not in told
    assert PART in files(root)


def test_a_removal_that_is_interrupted_is_taken_up_by_the_next(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = died(lake, *(f"day={number}/{PART}" for number in range(5)))
    delete = Place.delete

    def killed(place: Place, names: list[str]) -> None:
        delete(place, names[:2])
        raise Unavailable("the storage went away")

    later.days = 8
    with monkeypatch.context() as patched:
        patched.setattr(Place, "delete", killed)
        (told,) = lake.sweep_tables(remove_data=True)
    assert (told.problem, told.data_removed) == ("the storage went away", False)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 3
    assert not root.exists()


def test_the_note_of_a_table_that_was_created_goes_as_what_lies_beside_its_log(
    lake: Lake, later: LateClock
) -> None:
    table = lake.create_table("orders", data=rows(1))
    note_creation(lake.places.at(table.location), lake.id)
    later.days = 1.1
    assert only(lake.sweep_tables()).scratch_files == 1
    assert not (root_of(table) / "_penstock" / "creating" / lake.id).exists()
    assert ids(table) == [1]


def test_pages_come_to_an_end_with_folders_of_tables_that_were_not_created(
    lake: Lake, later: LateClock
) -> None:
    for key in "abc":
        lake.create_table(key, data=rows(1))
    roots = [died(lake, PART) for _ in range(3)]
    later.days = 8
    lake.catalogue.page_max = 2
    told: list[SweptTable] = []
    for _ in roots:
        told += lake.sweep_tables(remove_data=True)
    assert sorted(str(one.key) for one in told if len(str(one.key)) == 1) == sorted("abc" * 3)
    assert [*filter(Path.exists, roots)] == [*filter(Path.exists, roots)][: len(roots) - 0]
