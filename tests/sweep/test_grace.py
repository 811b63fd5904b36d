"""The grace periods are the lake's: whoever sweeps keeps to them, and whoever writes can rely on them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
import penstock.formats.delta.lake.table as delta
from penstock.errors import CommitNotFound, Denied, InvalidRequest, UnsupportedFormat
from penstock.formats.lance.lake.sweep import LANCE_DAYS
from penstock.kernel.description import (
    FIRST_VERSION,
    GRACES_VERSION,
    ROW_NAME,
    LakeDescription,
    read_description,
)
from penstock.kernel.grace_periods import DATA_GRACE_MIN_DAYS, GRACE_MIN_S, GRACES_MAX, GracePeriods
from penstock.kernel.settings import Settings
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.lake import Lake
from penstock.model.encoding import encode
from penstock.server.access import CheckedCatalogue
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from tests.queue.hooks import DAY_S, SetClock, new_lake, table
from tests.server.access import caller
from tests.sweep.pool import Pool
from tests.sweep.tables import LateClock, abandoned, data_files, ids, root_of, rows


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    # A client of Lance's that is not sent to a file beside the versions leaves none that has to wait.
    patient = Settings(promote_wait_s=60.0)
    with penstock.open(
        tmp_path / "lake", create=True, author="tester", clock=later, settings=patient
    ) as lake:
        yield lake


@pytest.fixture
def later() -> LateClock:
    return LateClock()


def sweeper(lake: Lake, **settings: Any) -> Lake:
    """Another process that opened the lake, to sweep it."""
    return penstock.open(lake.about.url, settings=Settings(**settings), clock=lake.kernel.clock)


# -- a sweep by less than the lake says --------------------------------------------------------------------


def test_a_sweep_by_less_than_the_lake_says_is_refused_and_removes_nothing(lake: Lake) -> None:
    lake.create_table("t", data=rows(1))
    lost = abandoned(lake, lake.table("t"))
    pool = Pool(lake)
    pool.put(pool.below(pool.begin("files")), "left", days=1)
    lake.branch("dev").create().put("x", table())
    lake.branch("dev").delete()
    with sweeper(lake, grace_s=0, data_grace_days=0) as other:
        for sweep in (other.sweep, other.sweep_tables, other.sweep_files):
            with pytest.raises(InvalidRequest, match="--nobody-writes"):
                sweep()
            with pytest.raises(InvalidRequest, match="--nobody-writes"):
                sweep(dry_run=True)
    with sweeper(lake, data_grace_days=6.9) as other, pytest.raises(InvalidRequest, match="is 7, and"):
        other.sweep_tables(remove_data=True)
    assert lost <= data_files(root_of(lake.table("t")))
    with sweeper(lake, grace_s=0, data_grace_days=0, nobody_writes=True) as other:
        assert other.sweep().removed > 0
        assert [one.data_files for one in other.sweep_tables(remove_data=True)] == [1]
    assert not lost & data_files(root_of(lake.table("t")))


def test_a_sweep_by_more_than_the_lake_says_keeps_more(lake: Lake, later: LateClock) -> None:
    lake.create_table("t", data=rows(1))
    abandoned(lake, lake.table("t"))
    later.days = 8
    with sweeper(lake, data_grace_days=30) as other:
        (swept,) = other.sweep_tables(remove_data=True)
        assert (swept.waiting, swept.data_files) == (1, 0)
    (swept,) = lake.sweep_tables(remove_data=True)
    assert swept.data_files == 1


def test_no_sweep_takes_a_file_between_its_write_and_its_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", data=rows(1))
    lines_of, swept = delta.encode_actions, list[str]()

    def slowly(actions: Any) -> Any:
        with sweeper(lake, grace_s=0, data_grace_days=0) as other:
            for sweep in (other.sweep, other.sweep_tables, other.sweep_files):
                with pytest.raises(InvalidRequest, match="may remove files of a write in progress"):
                    sweep()
                swept.append(sweep.__name__)
        return lines_of(actions)

    monkeypatch.setattr(delta, "encode_actions", slowly)
    lake.table("t").append(rows(2))
    assert swept == ["sweep", "sweep_tables", "sweep_files"]
    assert ids(lake.table("t")) == [1, 2]


# -- setting it --------------------------------------------------------------------------------------------


def test_the_grace_of_a_lake_is_set_for_all_who_use_it(lake: Lake) -> None:
    assert (lake.about.grace_s, lake.about.data_grace_days) == (DAY_S, 7)
    about = lake.set_grace(data_grace_days=30)
    assert (about.grace_s, about.data_grace_days) == (DAY_S, 30)
    lake.set_grace(grace_s=2 * DAY_S)
    with sweeper(lake) as other:
        assert (other.about.grace_s, other.about.data_grace_days) == (2 * DAY_S, 30)
    admin = Lake(CheckedCatalogue(lake.catalogue, caller("admin")))
    assert admin.set_grace(data_grace_days=20).data_grace_days == 20
    with pytest.raises(Denied):
        Lake(CheckedCatalogue(lake.catalogue, caller("write"))).set_grace(data_grace_days=30)


@pytest.mark.parametrize(
    "wrong",
    [
        {"grace_s": 0.0},
        {"grace_s": GRACE_MIN_S - 1},
        {"grace_s": float("nan")},
        {"grace_s": float("inf")},
        {"grace_s": True},
        {"data_grace_days": 0.0},
        {"data_grace_days": DATA_GRACE_MIN_DAYS - 0.1},
        {"data_grace_days": float("nan")},
        {"data_grace_days": 1e9},
    ],
)
def test_a_grace_below_the_least_is_refused(lake: Lake, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="must be between"):
        lake.set_grace(**wrong)
    assert read_description(lake.kernel.store).graces == ()
    lake.set_grace(grace_s=GRACE_MIN_S, data_grace_days=DATA_GRACE_MIN_DAYS)


def test_jobs_and_transactions_are_bounded_by_the_lakes_grace(lake: Lake) -> None:
    pool = Pool(lake)
    lake.set_grace(data_grace_days=DATA_GRACE_MIN_DAYS)
    begun = pool.begin("t").job
    assert begun.expires - begun.began == timedelta(days=DATA_GRACE_MIN_DAYS / 2)
    with (
        sweeper(lake, transaction_max_days=30) as other,
        pytest.raises(InvalidRequest, match="at most 2 days"),
    ):
        other.transaction(lease_s=3 * DAY_S)
    lake.set_grace(data_grace_days=60)
    begun = pool.begin("u").job
    assert begun.expires - begun.began == timedelta(days=30)


def test_no_write_may_take_longer_than_a_lake_may_be_told_to_wait() -> None:
    with pytest.raises(InvalidRequest, match="write_timeout_s must be at most 600, got 601"):
        penstock.open("memory:", settings=Settings(write_timeout_s=601))


# -- changing it under writers and sweeps ------------------------------------------------------------------


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def small(clock: SetClock) -> Lake:
    return new_lake(MemoryStore(clock), clock)


def test_a_shorter_grace_holds_for_sweeps_when_those_who_relied_on_the_longer_one_are_done(
    small: Lake, clock: SetClock
) -> None:
    graces = small.kernel.graces
    small.set_grace(grace_s=GRACE_MIN_S, data_grace_days=5)
    assert graces.find_writer_grace() == graces.find_past_grace() == GracePeriods(GRACE_MIN_S, 5)
    assert graces.find_sweep_grace() == GracePeriods(DAY_S, 7)
    clock.go_on(DAY_S - 1)
    assert graces.find_sweep_grace() == GracePeriods(DAY_S, 7)
    clock.go_on(2)
    assert graces.find_sweep_grace() == GracePeriods(GRACE_MIN_S, 7)
    clock.go_on(6 * DAY_S)
    assert graces.find_sweep_grace() == GracePeriods(GRACE_MIN_S, 5)


def test_a_longer_grace_holds_for_sweeps_at_once_and_is_relied_on_for_what_comes(
    small: Lake, clock: SetClock
) -> None:
    graces = small.kernel.graces
    small.set_grace(grace_s=10 * DAY_S, data_grace_days=30)
    assert graces.find_sweep_grace() == graces.find_writer_grace() == GracePeriods(10 * DAY_S, 30)
    assert graces.find_past_grace() == GracePeriods(DAY_S, 7), (
        "a sweep that began before may have taken what is older"
    )
    clock.go_on(10 * DAY_S + 1)
    assert graces.find_past_grace() == GracePeriods(10 * DAY_S, 7)
    clock.go_on(20 * DAY_S)
    assert graces.find_past_grace() == GracePeriods(10 * DAY_S, 30)


def test_of_changes_in_a_row_all_are_heeded_for_their_time(small: Lake, clock: SetClock) -> None:
    for days in (30, 5, 40, 6):
        small.set_grace(data_grace_days=days)
        clock.go_on(DAY_S)
    graces = small.kernel.graces
    assert graces.find_sweep_grace().data_grace_days == 40
    assert graces.find_past_grace().data_grace_days == 5
    clock.go_on(39 * DAY_S)
    assert graces.find_sweep_grace().data_grace_days == 6
    small.set_grace(data_grace_days=7)
    assert len(read_description(small.kernel.store).graces) == 2, "what nobody heeds any more is forgotten"


def test_a_grace_that_is_changed_all_the_time_is_refused_at_last(small: Lake) -> None:
    for number in range(GRACES_MAX - 1):
        small.set_grace(data_grace_days=10 + number)
    with pytest.raises(InvalidRequest, match="wait"):
        small.set_grace(data_grace_days=5)
    small.set_grace(data_grace_days=10 + GRACES_MAX - 2)  # as it is


def test_what_was_left_behind_can_be_had_back_for_half_of_the_lakes_grace(
    small: Lake, clock: SetClock
) -> None:
    small.set_grace(grace_s=10 * DAY_S)
    clock.go_on(10 * DAY_S)
    left = small.branch("dev").create().put("x", table()).id
    small.branch("dev").delete()
    clock.go_on(4 * DAY_S)
    small.sweep()
    small.branch("again").create(at=left)
    small.branch("again").delete()
    clock.go_on(6 * DAY_S)
    with pytest.raises(CommitNotFound):
        small.branch("late").create(at=left)


def test_lance_tables_keep_what_their_writers_rely_on_whatever_the_lake_says(
    lake: Lake, later: LateClock
) -> None:
    import lance
    import pyarrow as pa  # type: ignore[import-untyped]
    from lance.fragment import write_fragments

    later.days = -10  # so that the shorter grace holds for sweeps by now
    lake.set_grace(data_grace_days=DATA_GRACE_MIN_DAYS)
    later.days = 0
    items = lance.write_dataset(pa.table({"id": [1]}), namespace_client=lake.lance(), table_id=["items"])
    write_fragments(pa.table({"id": [2]}), items.uri, mode="append")
    lake.create_table("t", data=rows(1))
    abandoned(lake, lake.table("t"))
    lake.finish_background()
    for days, waiting in ((3, (1, 1)), (5, (1, 0)), (LANCE_DAYS + 1, (0, 0))):
        later.days = days
        found = {str(one.key): one.waiting for one in lake.sweep_tables()}
        assert (found["items"], found["t"]) == waiting


# -- what is stored ----------------------------------------------------------------------------------------


def test_a_lake_that_says_nothing_of_its_own_is_one_of_the_first_version(small: Lake) -> None:
    store = small.kernel.store
    small.set_grace(grace_s=DAY_S, data_grace_days=7)
    assert read_description(store).format_version == FIRST_VERSION
    small.set_grace(data_grace_days=8)
    assert read_description(store).format_version == GRACES_VERSION
    small.keep_history(max_days=10)
    assert read_description(store).format_version == GRACES_VERSION


def test_a_lake_of_the_first_release_opens_with_the_graces_that_it_had(small: Lake, clock: SetClock) -> None:
    store = small.kernel.store
    fields = [*msgspec.msgpack.decode(encode(read_description(store)))]
    graces = LakeDescription.__struct_fields__.index("graces")
    assert fields[graces] == []
    with store.turn(ROW_NAME) as turn:
        assert turn.row is not None
        assert turn.advance({}, Row(ROW_NAME, turn.row.kind, encode(fields[:graces]))).swapped
    lake = penstock.open(store, clock=clock)
    assert (lake.about.grace_s, lake.about.data_grace_days) == (DAY_S, 7)


def test_a_penstock_that_does_not_know_of_graces_refuses_a_lake_that_has_its_own(
    small: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.set_grace(data_grace_days=8)
    monkeypatch.setattr("penstock.kernel.description.FORMAT_VERSION", FIRST_VERSION)
    with pytest.raises(UnsupportedFormat, match="has format version 2"):
        penstock.open(small.kernel.store)


@pytest.mark.parametrize("fork", [False, True])
def test_a_copy_has_the_grace_of_its_source(small: Lake, clock: SetClock, fork: bool) -> None:
    small.set_grace(data_grace_days=8)
    target = MemoryStore(clock)
    (copy_lake if fork else move_lake)(small.kernel.store, target, clock=clock)
    found = read_description(target)
    assert (found.graces[-1].data_grace_days, found.format_version) == (8, GRACES_VERSION)
