"""A server sweeps its lake in the background: as often as it was told, by one worker at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

import penstock
from penstock.kernel.leases import Leases
from penstock.lake.calls import GetSetting, PutSetting
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.server.background_sweep import LEASE, NOTE, BackgroundSweep
from penstock.server.logs import Log, LogLevel
from penstock.storage.places import Place
from tests.sweep.pool import Pool
from tests.sweep.tables import LateClock, abandoned, data_files, ids, root_of, rows


@pytest.fixture
def later() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester", clock=later) as lake:
        yield lake


@pytest.fixture
def said() -> io.BytesIO:
    return io.BytesIO()


def sweeping(
    lake: Lake, said: io.BytesIO, hours: float = 24.0, *, remove_data: bool = False
) -> BackgroundSweep:
    assert isinstance(lake.catalogue, Embedded)
    return BackgroundSweep(
        lake.catalogue, Log(said, LogLevel.INFO), every_hours=hours, remove_data=remove_data
    )


def test_a_lake_is_swept_once_in_each_period_by_whomever(
    lake: Lake, later: LateClock, said: io.BytesIO
) -> None:
    one, other = sweeping(lake, said), sweeping(lake, said)
    assert not one.sweep_if_due(), "nobody has swept it before: it is swept one period from now"
    later.days = 0.9
    assert not one.sweep_if_due()
    later.days = 1.1
    assert one.sweep_if_due()
    assert not one.sweep_if_due()
    assert not other.sweep_if_due(), "a worker that starts later knows of it"
    later.days = 2.2
    assert other.sweep_if_due()
    assert said.getvalue().count(b"swept: ") == 2
    assert lake.do(GetSetting(name=NOTE))


@pytest.mark.parametrize("remove_data", [False, True])
def test_data_files_go_only_if_the_server_was_told_so(
    lake: Lake, later: LateClock, said: io.BytesIO, remove_data: bool
) -> None:
    table = lake.create_table("orders", data=rows(1))
    left = abandoned(lake, table)
    one = sweeping(lake, said, remove_data=remove_data)
    one.sweep_if_due()
    later.days = 8
    assert one.sweep_if_due()
    assert (left & data_files(root_of(table)) == set()) is remove_data
    assert (b"--remove-data" in said.getvalue()) is not remove_data
    assert ids(table) == [1]


@pytest.mark.parametrize("remove_data", [False, True])
def test_files_of_tables_of_files_are_swept_as_well(
    lake: Lake, later: LateClock, said: io.BytesIO, remove_data: bool
) -> None:
    pool = Pool(lake)
    folder = pool.write("events", "a")
    pool.put(folder, "x")
    one = sweeping(lake, said, remove_data=remove_data)
    one.sweep_if_due()
    later.days = 8
    assert one.sweep_if_due()
    assert (pool.files() == {f"{folder}a"}) is remove_data
    assert (b"--remove-data" in said.getvalue()) is not remove_data
    (pool.root / folder / "a").unlink()
    later.days = 10
    assert one.sweep_if_due()
    assert b"the files of tables were not all swept: " in said.getvalue()


def test_while_one_sweeps_no_other_does(
    lake: Lake, later: LateClock, said: io.BytesIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = sweeping(lake, said, remove_data=True), sweeping(lake, said, remove_data=True)
    abandoned(lake, lake.create_table("orders", data=rows(1)))
    one.sweep_if_due()
    later.days = 8
    begun, go_on = Event(), Event()
    delete = Place.delete

    def slow(place: Place, names: list[str]) -> None:
        begun.set()
        assert go_on.wait(20)
        delete(place, names)

    monkeypatch.setattr(Place, "delete", slow)
    thread = Thread(target=one.sweep_if_due)
    thread.start()
    assert begun.wait(20)
    assert not other.sweep_if_due()
    go_on.set()
    thread.join(20)
    assert Leases(lake.kernel.store).take_lease(LEASE) is not None, "it is released"


def test_a_table_that_cannot_be_swept_is_told(lake: Lake, later: LateClock, said: io.BytesIO) -> None:
    table = lake.create_table("orders", data=rows(1))
    table.backfill_to_version()
    (root_of(table) / "_delta_log" / f"{1:020}.json").write_bytes(b"{}\n")
    one = sweeping(lake, said)
    one.sweep_if_due()
    later.days = 2
    assert one.sweep_if_due()
    assert b"'orders' was not swept: " in said.getvalue()


def test_a_note_that_nobody_can_read_is_written_anew(lake: Lake, said: io.BytesIO) -> None:
    lake.do(PutSetting(name=NOTE, value="soon"))
    assert not sweeping(lake, said).sweep_if_due()
    assert lake.do(GetSetting(name=NOTE)) != "soon"


def test_it_goes_on_by_itself_until_it_is_stopped(lake: Lake, later: LateClock, said: io.BytesIO) -> None:
    abandoned(lake, lake.create_table("orders", data=rows(1)))
    one = sweeping(lake, said, hours=1e-6)
    swept = Event()
    look = one.sweep_if_due

    def looked() -> bool:
        done = look()
        if done:
            swept.set()
        return done

    one.sweep_if_due = looked  # type: ignore[method-assign]
    one.start()
    assert swept.wait(20)
    one.stop(20)
    count = said.getvalue().count(b"swept: ")
    assert count >= 1
    assert [line for line in said.getvalue().splitlines() if b'"warning"' in line] == []


def test_never_means_never(lake: Lake, said: io.BytesIO) -> None:
    one = sweeping(lake, said, hours=0)
    one.start()
    one.stop(1)
    assert lake.do(GetSetting(name=NOTE)) is None
