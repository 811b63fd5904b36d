"""The files of tables in a bucket are swept as those on a disk are."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.publishing.side_files import note_creation
from penstock.lake.lake import Lake
from penstock.storage import places
from penstock.storage.locations import make_own_place
from tests.sweep.tables import LateClock, abandoned, ids, only

DAYS = ["a:b", "a b", "ü", "100%", "a/b", "%3A", "a+b", None]
SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string()})


@pytest.fixture
def lake(lake_in_a_bucket: Lake) -> Lake:
    return lake_in_a_bucket


def test_what_jobs_left_in_a_bucket_goes_and_what_is_committed_stays(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LISTED_AT_ONCE", 3)
    data = pa.table({"id": range(len(DAYS)), "day": DAYS}, schema=SCHEMA)
    table = lake.create_table("orders", data=data, partition_by=["day"])
    branch = lake.branch("dev").create()
    branch.table("orders").append(pa.table({"id": [100], "day": ["a:b"]}, schema=SCHEMA))
    left = abandoned(lake, table, *range(len(DAYS)), day=DAYS)
    left |= abandoned(lake, table, 7, day=["x"], folder="_penstock/data")
    assert only(lake.sweep_tables(remove_data=True)).waiting == len(left)
    later.days = 8
    told = only(lake.sweep_tables(dry_run=True))
    assert set(told.names) == left
    assert only(lake.sweep_tables(remove_data=True)).data_files == len(left)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    place = lake.places.open_place(table.get_commits().location)
    assert not left & {one.key for one in place.entries()}
    assert ids(table) == list(range(len(DAYS)))
    assert ids(lake.table("orders", "dev")) == [*range(len(DAYS)), 100]


def test_folders_of_tables_that_were_never_created_are_found_in_a_bucket(
    lake: Lake, later: LateClock
) -> None:
    table = lake.create_table("orders", data=pa.table({"id": [1]}))
    died = [lake.places.open_place(make_own_place(lake.warehouse, uuid4())) for _ in range(3)]
    for place in died:
        note_creation(place, lake.id)
        for number in range(3):
            place.put(f"part-{number}.parquet", b"data")
    warehouse = lake.places.open_place(lake.warehouse)
    for name in ("notes.txt", "notes/1.txt", "others/1.txt"):
        warehouse.put(name, b"somebody's")
    given = [one.rpartition("/")[2] for one in (table.location, *(place.url for place in died))]
    assert [*warehouse.folders()] == sorted([*given, "notes", "others"])
    later.days = 8
    told = {one.location: one for one in lake.sweep_tables(remove_data=True)}
    assert {(told[place.url].data_files, told[place.url].problem) for place in died} == {(3, "")}
    assert [*warehouse.folders()] == sorted([given[0], "notes", "others"])
    assert ids(table) == [1]
