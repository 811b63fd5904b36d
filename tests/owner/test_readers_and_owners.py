"""Tables that come, grow, go and come back, on a disk and in a bucket, as deltalake sees them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from penstock.errors import CommitConflict
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.interop.delta.homes import Home, home_on

KEY = "orders"
WRITERS = 8
APPENDS_EACH = 4
RACING_WRITERS = 2
RACING_MAX = 400
WAIT_S = 60.0


@pytest.fixture(params=["disk", "bucket"])
def home(request: pytest.FixtureRequest) -> Home:
    return home_on(request.param, request)


def data(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def write(home: Home, location: str, *ids: int) -> None:
    """What a writer does that knows nothing of lakes."""
    write_deltalake(location, data(*ids), mode="append", storage_options=home.options)


def theirs(home: Home, location: str, version: int | None = None) -> list[int]:
    found = DeltaTable(location, version=version, storage_options=home.options)
    return sorted(pa.table(found.scan()).column("id").to_pylist())


def ours(table: Table, version: int | None = None) -> list[int]:
    return sorted(table.snapshot(version).to_arrow().column("id").to_pylist())


def test_what_eight_threads_append_is_published_as_one_line_of_versions(home: Home) -> None:
    with home.lake() as lake:
        lake.create_table(KEY, schema=data().schema)
        together = Barrier(WRITERS)

        def appender(number: int) -> list[int]:
            together.wait(WAIT_S)
            ids = range(number * APPENDS_EACH, (number + 1) * APPENDS_EACH)
            return [lake.table(KEY).append(data(one)).version for one in ids]

        with ThreadPoolExecutor(WRITERS) as threads:
            versions = sorted(v for each in threads.map(appender, range(WRITERS)) for v in each)
        newest = WRITERS * APPENDS_EACH
        assert versions == list(range(1, newest + 1))
        table = lake.table(KEY)
        assert table.backfill_to_version() == newest
        location = table.snapshot().location
        assert theirs(home, location) == list(range(newest))
        for version in range(0, newest, APPENDS_EACH):
            assert len(found := theirs(home, location, version)) == version
            assert found == ours(table, version)


def test_a_table_that_is_handed_back_keeps_its_versions_and_can_come_again(home: Home) -> None:
    with home.lake() as lake:
        table = lake.create_table(KEY, data=data(1))
        table.append(data(2))
        location = table.snapshot().location
        with pytest.raises(DeltaError, match="managedCommits"):
            write(home, location, 99)
        released = lake.delta.release(KEY)
        assert not table.exists
        versions = [theirs(home, location, one) for one in range(released.version + 1)]
        assert versions == [[1], [1, 2], [1, 2]]

        assert str(lake.delta.adopt(location, KEY).key) == KEY
        with pytest.raises(DeltaError, match="managedCommits"):
            write(home, location, 99)
        table.append(data(3))
        table.backfill_to_version()
        assert theirs(home, location) == ours(table) == [1, 2, 3]
        assert theirs(home, location, released.version) == ours(table, released.version) == [1, 2]


def test_no_append_of_a_writer_that_races_the_adoption_is_lost(home: Home) -> None:
    location = f"{home.tables}/{KEY}"
    write(home, location, 0)
    running, adopted = Barrier(RACING_WRITERS + 1), Event()

    def writer(number: int) -> list[int]:
        """Append until the table is refused; what landed."""
        landed: list[int] = []
        for one in range(number, RACING_MAX, RACING_WRITERS):
            may_land = not adopted.is_set()
            try:
                write(home, location, one)
            except DeltaError as problem:
                if "managedCommits" in str(problem):
                    return landed
            else:
                assert may_land, "a table that a lake owns was written"
                landed.append(one)
            if one == number:
                running.wait(WAIT_S)
        raise AssertionError("the table was never refused")

    with home.lake() as lake, ThreadPoolExecutor(RACING_WRITERS) as threads:
        racing = [threads.submit(writer, number + 1) for number in range(RACING_WRITERS)]
        running.wait(WAIT_S)
        adopt(lake, location)
        adopted.set()
        landed = sorted(one for each in racing for one in each.result(WAIT_S))
        table = lake.table(KEY)
        table.append(data(-1))
        table.backfill_to_version()
        assert theirs(home, location) == ours(table) == [-1, 0, *landed]


def adopt(lake: Lake, location: str) -> Any:
    """Take over a table, however often others come first."""
    while True:
        try:
            return lake.delta.adopt(location, KEY)
        except CommitConflict:
            assert not lake.table(KEY).exists


def test_a_table_of_a_lost_lake_is_taken_back_with_all_that_it_published(home: Home) -> None:
    with home.lake("lost") as lake:
        table = lake.create_table(KEY, data=data(1))
        table.append(data(2))
        table.backfill_to_version()
        location, lost, newest = table.snapshot().location, lake.id, table.snapshot().version
    shutil.rmtree(home.directory / "lost")

    with home.lake("next") as lake:
        recovered = lake.delta.recover(location, KEY, lost=lost)
        assert (recovered.version, recovered.doubtful) == (newest, ())
        table = lake.table(KEY)
        lake.branch("side").create()
        lake.table(KEY, "side").append(data(3))
        table.append(data(4))
        lake.merge("side")
        table.backfill_to_version()
        assert theirs(home, location) == ours(table) == [1, 2, 3, 4]
        assert theirs(home, location, newest) == ours(table, newest) == [1, 2]
        with pytest.raises(DeltaError, match="managedCommits"):
            write(home, location, 99)
