"""Two sweeps at once: what one cuts off and removes is no damage to the other, nor to anybody afterwards."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.errors import HistoryExpired, PenstockError
from penstock.kernel import expired
from penstock.kernel.description import read_description
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import SweepResult
from penstock.lake.copy import move_lake
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.server.background_sweep import BackgroundSweep
from penstock.server.logs import Log, LogLevel
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Gate, Point
from tests.queue.hooks import DAY_S, SetClock, table
from tests.sweep.oracle import GRACE_S

LIMITS: list[dict[str, Any]] = [{"max_commits": 10}, {"max_days": 10}]
SETTINGS = Settings(grace_s=GRACE_S, nobody_writes=True)


@pytest.fixture(autouse=True, params=[expired.ROW_MAX, 0], ids=["in the row", "in blobs"])
def row_max(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the lake notes what was cut off."""
    monkeypatch.setattr(expired, "ROW_MAX", request.param)


@pytest.fixture
def memory(clock: SetClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def opened(store: Any, clock: SetClock) -> Lake:
    return penstock.open(store, settings=SETTINGS, clock=clock)


def commit_daily(lake: Lake, clock: SetClock, numbers: range) -> None:
    for number in numbers:
        lake.branch().put("t", table(str(number)))
        clock.go_on(DAY_S)


def check_sound(memory: MemoryStore, clock: SetClock) -> None:
    """Nobody takes the lake for damaged, now or after further sweeps, and it can move elsewhere."""
    lake = opened(memory, clock)
    assert lake.fsck().damages == ()
    for _ in range(3):
        clock.go_on(DAY_S)
        lake.sweep()
        assert lake.fsck().damages == ()
    with pytest.raises(HistoryExpired):
        lake.resolve("main~19")
    noted = expired.read_expired_commits(read_description(memory), lake.kernel.objects)
    assert len(noted) == 1, "what nothing leads to any more is forgotten"
    move_lake(memory, MemoryStore(clock), settings=SETTINGS, clock=clock)


def sweep(lake: Lake) -> SweepResult | None:
    return lake.sweep()


def sweep_as_server(lake: Lake) -> None:
    assert isinstance(lake.catalogue, Embedded)
    sweeping = BackgroundSweep(
        lake.catalogue, Log(io.BytesIO(), LogLevel.INFO), every_hours=24, remove_data=False
    )
    assert sweeping.sweep_if_due(), "the lake was not swept"


def wait_for_servers_turn(lake: Lake, clock: SetClock) -> None:
    """A lake that no server has swept before is swept one period after one looked first."""
    assert isinstance(lake.catalogue, Embedded)
    BackgroundSweep(
        lake.catalogue, Log(io.BytesIO(), LogLevel.INFO), every_hours=24, remove_data=False
    ).sweep_if_due()
    clock.go_on(2 * DAY_S)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(
    ("slow", "fast"), [(sweep, sweep), (sweep_as_server, sweep), (sweep, sweep_as_server)]
)
@pytest.mark.parametrize("days", [0, 4])
def test_a_sweep_that_notes_late_what_it_cuts_off_leaves_what_a_faster_one_noted(
    memory: MemoryStore,
    clock: SetClock,
    threads: ThreadPoolExecutor,
    limits: dict[str, Any],
    slow: Callable[[Lake], Any],
    fast: Callable[[Lake], Any],
    days: int,
) -> None:
    """A lease keeps servers apart from each other, but not from whoever sweeps without one."""
    faulty = FaultyStore(memory)
    one, two = opened(faulty, clock), opened(memory, clock)
    wait_for_servers_turn(one, clock)
    commit_daily(one, clock, range(20))
    one.keep_history("*", **limits)
    clock.go_on(2 * GRACE_S)
    gate = Gate()
    faulty.at(Point.TURN, gate, name="@lake")
    sweeping: Future[Any] = threads.submit(slow, one)
    gate.wait_until_reached()
    commit_daily(two, clock, range(20, 20 + days))
    fast(two)
    gate.open()
    sweeping.result(60)
    check_sound(memory, clock)


@pytest.mark.parametrize("limits", LIMITS)
def test_a_sweep_that_finds_removed_what_another_cut_off_since_it_began_marks_again(
    memory: MemoryStore, clock: SetClock, limits: dict[str, Any]
) -> None:
    """By its clock, which is behind, those commits were still to be kept."""
    late = SetClock()
    faulty = FaultyStore(memory)
    behind, ahead = opened(faulty, late), opened(memory, clock)
    commit_daily(ahead, clock, range(20))
    ahead.keep_history("*", **limits)
    clock.go_on(2 * GRACE_S)
    late.go_on((clock() - late()) / 1_000_000 - GRACE_S / 2)
    faulty.at(Point.FETCH, ahead.sweep)
    behind.sweep()
    check_sound(memory, clock)


def test_a_check_while_a_sweep_cuts_history_off_finds_no_damage(memory: MemoryStore, clock: SetClock) -> None:
    faulty = FaultyStore(memory)
    checking, sweeping = opened(faulty, clock), opened(memory, clock)
    commit_daily(sweeping, clock, range(20))
    sweeping.keep_history("*", max_commits=10)
    clock.go_on(2 * GRACE_S)
    faulty.at(Point.REFERENCES, sweeping.sweep)
    assert checking.fsck().damages == ()


def test_a_sweep_tells_of_what_is_missing_that_no_sweep_has_cut_off(
    memory: MemoryStore, clock: SetClock
) -> None:
    lake = opened(memory, clock)
    commit_daily(lake, clock, range(3))
    (victim,) = [one for one in memory.scan(b"", 10_000)[0] if one.id.hex() == lake.resolve("main~1")]
    memory.delete([victim])
    with pytest.raises(PenstockError, match="nothing was removed"):
        lake.sweep()
    assert lake.fsck().damages
