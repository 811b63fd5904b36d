"""K9: a sweep that runs while commits go on never removes what one of them uses, however they interleave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import pytest

from penstock import IcebergTable, Key, Lake, Put, Settings
from penstock.errors import PenstockError, Unavailable
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.sweep import SweepResult
from penstock.lake.embedded import Embedded
from penstock.model.encoding import hash_object
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing import FaultyStore, Point
from penstock.testing.drill import TickingClock, new_lake
from penstock.testing.journal import JournalFormat, append, journal_at, lines_of, replace
from penstock.testing.threads import at_once

GRACE_S = 60.0


class Place:
    """Data with a clock, and lakes on it that share nothing else."""

    def __init__(self, kind: str, path: Path) -> None:
        self.clock = TickingClock()
        self.data: Store = (
            MemoryStore(self.clock)
            if kind == "memory"
            else SqliteStore(path / "penstock.db", clock=self.clock, synchronous="OFF")
        )
        new_lake(self.data)

    def lake(self, store: Store | None = None, history_max_commits: int | None = None, **limits: Any) -> Lake:
        store = store or self.data
        if history_max_commits is not None:  # as if it had been set long ago
            Kernel(self.data, clock=lambda: 0).keep_history("*", history_max_commits, None)
        kernel = Kernel(
            store, [JournalFormat()], Settings(grace_s=GRACE_S, **limits, nobody_writes=True), self.clock
        )
        return Lake(Embedded(kernel, read_description(self.data), open_lake=Lake), "tester")

    def check(self) -> None:
        damages = self.lake().fsck().damages
        assert damages == (), "\n".join(map(str, damages))


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, tmp_path)
    yield made
    made.check()
    made.data.close()


def leave_garbage(place: Place, *lines: str) -> frozenset[bytes]:
    """Objects that nothing leads to and that are older than the grace period: a journal on a lost branch."""
    lake = place.lake()
    lake.branch("scratch").create()
    for line in lines:
        lake.branch("scratch").commit([append("diary", line)])
    content = journal_at(lake.kernel, "diary", "scratch")
    assert content is not None
    lake.kernel.references.delete_reference("scratch", leave_log=False)
    place.clock.pass_hours(1)
    assert len(content.objects) == len(lines)
    return frozenset(content.objects)


@contextmanager
def sweeping(lake: Lake) -> Iterator[list[SweepResult]]:
    """A sweep in a thread of its own, ended with the block; what it says is in the list then."""
    said: list[SweepResult] = []
    thread = Thread(target=lambda: said.append(lake.sweep()))
    thread.start()
    yield said
    thread.join(60)
    assert not thread.is_alive()


def test_garbage_is_swept_when_nobody_uses_it(place: Place) -> None:
    garbage = leave_garbage(place, "one", "two")
    swept = place.lake().sweep()
    assert swept.removed >= len(garbage)
    assert place.data.fetch(garbage) == {}


@pytest.mark.parametrize("point", [Point.SCAN, Point.SCANNED, Point.DELETE])
def test_a_commit_that_stores_garbage_again_keeps_it(place: Place, point: Point) -> None:
    """The sweep has marked, has scanned, or is about to delete; then comes the commit."""
    garbage = leave_garbage(place, "one", "two")
    store = FaultyStore(place.data)
    gate = store.pause(point)
    with sweeping(place.lake(store)) as said:
        gate.wait_until_reached()
        writer = place.lake()
        writer.commit([append("diary", "one")])
        writer.commit([append("diary", "two")])
        gate.open()
    assert len(said) == 1
    assert set(place.data.fetch(garbage)) == garbage
    assert lines_of(place.lake().kernel, "diary") == ["one", "two"]


def test_a_commit_that_stands_between_its_objects_and_its_swap_keeps_what_it_uses(place: Place) -> None:
    """It has stored the garbage again, the whole sweep runs, then it swaps."""
    garbage = leave_garbage(place, "one")
    store = FaultyStore(place.data, locking=False)
    writer = place.lake(store)
    gate = store.pause(Point.BEFORE_SWAP)
    thread = Thread(target=lambda: writer.commit([append("diary", "one")]))
    thread.start()
    gate.wait_until_reached()
    swept = place.lake().sweep()
    gate.open()
    thread.join(60)
    assert swept.waiting > 0
    assert set(place.data.fetch(garbage)) == garbage
    assert lines_of(place.lake().kernel, "diary") == ["one"]


def test_a_commit_that_loses_its_swap_to_another_keeps_what_both_use(place: Place) -> None:
    garbage = leave_garbage(place, "one")
    store = FaultyStore(place.data, locking=False)
    sweeping_store = FaultyStore(place.data)
    stop_sweep, stop_commit = sweeping_store.pause(Point.DELETE), store.pause(Point.BEFORE_SWAP)
    with sweeping(place.lake(sweeping_store)):
        stop_sweep.wait_until_reached()
        slow = Thread(target=lambda: place.lake(store).commit([append("diary", "one")]))
        slow.start()
        stop_commit.wait_until_reached()
        place.lake().branch().put("other", IcebergTable(metadata_location="1"))
        stop_commit.open()
        slow.join(60)
        stop_sweep.open()
    assert set(place.data.fetch(garbage)) == garbage
    assert lines_of(place.lake().kernel, "diary") == ["one"]


def test_a_tree_that_grows_back_into_nodes_that_were_garbage_keeps_them(place: Place) -> None:
    """Equal content has equal nodes, so a fold on another branch makes the very nodes that are swept."""
    lake = place.lake()
    wide = [Put(Key(f"t{number:03}"), IcebergTable(metadata_location="1")) for number in range(200)]
    lake.commit(wide)
    lake.branch("scratch").create()
    more = [Put(Key(f"z{number:03}"), IcebergTable(metadata_location="1")) for number in range(200)]
    lake.branch("scratch").commit(more)
    lake.kernel.references.delete_reference("scratch", leave_log=False)
    place.clock.pass_hours(1)
    store = FaultyStore(place.data)
    gate = store.pause(Point.DELETE)
    with sweeping(place.lake(store)):
        gate.wait_until_reached()
        place.lake().commit(more)
        gate.open()
    place.check()


def test_a_branch_made_at_a_head_that_was_left_behind_keeps_it(place: Place) -> None:
    lake = place.lake()
    lake.branch("dev").create()
    left = lake.branch("dev").commit([append("diary", "kept")])
    lake.branch("dev").delete()
    place.clock.pass_hours(GRACE_S * 0.4 / 3600)
    store = FaultyStore(place.data)
    gate = store.pause(Point.SCAN)
    with sweeping(place.lake(store)):
        gate.wait_until_reached()
        place.lake().branch("again").create(at=left.id)
        place.clock.pass_hours(1)
        gate.open()
    assert lines_of(place.lake().kernel, "diary", "again") == ["kept"]
    place.lake().sweep()
    assert lines_of(place.lake().kernel, "diary", "again") == ["kept"]


def test_a_branch_is_not_made_at_a_commit_that_a_sweep_may_be_removing(place: Place) -> None:
    lake = place.lake()
    lake.branch("dev").create()
    left = lake.branch("dev").commit([append("diary", "going")])
    lake.branch("dev").delete()
    place.clock.pass_hours(GRACE_S * 0.6 / 3600)
    with pytest.raises(PenstockError, match="not on any branch or tag"):
        place.lake().branch("again").create(at=left.id)


def fold(lake: Lake, number: int) -> None:
    """So many changes at once that everything before is folded into the tree."""
    lake.commit(
        [Put(Key(f"fill{number}-{each:03}"), IcebergTable(metadata_location="1")) for each in range(600)]
    )


def test_a_revert_to_what_lies_behind_the_horizon_keeps_what_it_brings_back(place: Place) -> None:
    """The sweep has marked: what only an expired commit holds is to go. Then a revert makes it current."""
    lake = place.lake(history_max_commits=1)
    lake.commit([replace("diary", "precious")])
    fold(lake, 0)
    lost = lake.commit([replace("diary", "mistake")])
    fold(lake, 1)
    place.clock.pass_hours(1)
    store = FaultyStore(place.data)
    gate = store.pause(Point.SCAN)
    with sweeping(place.lake(store, history_max_commits=1)):
        gate.wait_until_reached()
        with suppress(PenstockError):
            place.lake().revert(lost.id)
        gate.open()
    assert lines_of(place.lake().kernel, "diary") in (["precious"], ["mistake"])


def test_a_merge_of_what_lies_behind_the_horizon_keeps_what_it_brings(place: Place) -> None:
    lake = place.lake(history_max_commits=1)
    lake.branch("dev").create()
    lake.branch("dev").commit([append("diary", "precious")])
    fold(lake, 0)
    for number in range(2):
        lake.branch("dev").commit(
            [Put(Key(f"d{number}-{each:03}"), IcebergTable(metadata_location="1")) for each in range(600)]
        )
    lake.branch("dev").commit([replace("diary", "other")])
    lake.branch("dev").commit(
        [Put(Key(f"e-{each:03}"), IcebergTable(metadata_location="1")) for each in range(600)]
    )
    old = lake.resolve("dev~4")
    place.clock.pass_hours(1)
    store = FaultyStore(place.data)
    gate = store.pause(Point.SCAN)
    with sweeping(place.lake(store, history_max_commits=1)):
        gate.wait_until_reached()
        with suppress(PenstockError):
            place.lake().merge(f"dev@{old}", "main")
        gate.open()
    assert lines_of(place.lake().kernel, "diary") in (["precious"], [])


def test_a_branch_made_behind_the_horizon_keeps_what_it_names(place: Place) -> None:
    lake = place.lake(history_max_commits=1)
    lake.commit([replace("diary", "precious")])
    fold(lake, 0)
    lake.commit([replace("diary", "other")])
    fold(lake, 1)
    place.clock.pass_hours(1)
    store = FaultyStore(place.data)
    gate = store.pause(Point.SCAN)
    with sweeping(place.lake(store, history_max_commits=1)):
        gate.wait_until_reached()
        with suppress(PenstockError):
            place.lake().branch("old").create(at="main~2")
        gate.open()
    if place.lake().branch("old").exists:
        assert lines_of(place.lake().kernel, "diary", "old") == ["precious"]


class MovesWhileListed(WrappedStore):
    """Something happens before or after each request for branches, once."""

    def __init__(self, inner: Store, what: Callable[[], None], request: int, is_before: bool) -> None:
        super().__init__(inner)
        self._what, self._left, self._is_before = what, request, is_before
        self.happened = False

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        self._left -= kind == Kind.BRANCH
        is_now = kind == Kind.BRANCH and self._left == 0
        if is_now and self._is_before:
            self._happen()
        rows = self.inner.references(kind, prefix, after, limit)
        if is_now and not self._is_before:
            self._happen()
        return rows

    def _happen(self) -> None:
        self.happened = True
        self._what()


def test_a_branch_that_lands_while_the_branches_are_listed_keeps_what_it_brought(place: Place) -> None:
    """Before and after every request for branches: the target may be seen as it was, and the source gone."""
    happened, request = True, 0
    while happened:
        request += 1
        for is_before in (True, False):
            happened = _land_while_listed(place, request, is_before)
    assert request > 1


def _land_while_listed(place: Place, request: int, is_before: bool) -> bool:
    lake, line = place.lake(), f"precious {request} {is_before}"
    lake.branch("z-job").create()
    lake.branch("z-job").commit([append("diary", line)])
    place.clock.pass_hours(1)

    def land() -> None:
        other = place.lake()
        other.merge("z-job", "main")
        other.kernel.references.delete_reference("z-job", leave_log=False)

    store = MovesWhileListed(place.data, land, request, is_before)
    place.lake(store).sweep()
    if not store.happened:
        land()
    assert lines_of(place.lake().kernel, "diary")[-1] == line
    place.check()
    return store.happened


def test_a_sweep_that_breaks_off_leaves_a_whole_lake_and_the_next_one_finishes(place: Place) -> None:
    garbage = leave_garbage(place, *(f"line {number}" for number in range(5)))
    store = FaultyStore(place.data)
    store.fail(Point.DELETE, Unavailable("gone"))
    with pytest.raises(Unavailable):
        place.lake(store).sweep()
    place.check()
    place.lake().sweep()
    assert place.data.fetch(garbage) == {}


def test_an_object_that_nobody_can_read_is_swept_like_other_garbage(place: Place) -> None:
    for data in (b"\xc1", b"", b"not an object", b"\x92\xa4leaf", b"\x91\xa7unknown"):
        place.data.store({hash_object(data + b"!"): data})
    place.clock.pass_hours(8 * 24)  # each may have been a receipt
    assert place.lake().sweep().removed >= 5


# -- for long --------------------------------------------------------------------------------------------


class Traffic:
    """Counts who is under way, so that the clock can jump when nobody is: no write takes longer than the
    grace period."""

    def __init__(self, clock: TickingClock) -> None:
        self._clock, self._count, self._jumping = clock, 0, False
        self._changed = Condition()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._jumping)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def jump(self) -> None:
        with self._changed:
            self._jumping = True
            self._changed.wait_for(lambda: self._count == 0)
            self._clock.pass_hours(1)
            self._jumping = False
            self._changed.notify_all()


def soak(place: Place, writers: int, turns: int, seed: int, locking: bool) -> int:
    """Writers that make, lose and make again the same few objects, and a sweeper that never rests."""
    traffic, done = Traffic(place.clock), Event()
    removed: list[int] = []

    def write(number: int) -> None:
        chance = random.Random(seed + number)
        lake = place.lake(FaultyStore(place.data, locking=locking), write_timeout_s=60, tries_max=100_000)
        for turn in range(turns):
            with traffic.under_way(), suppress(PenstockError):
                _one_thing(lake, chance, f"{number}-{turn}")

    def sweep_on() -> None:
        lake = place.lake()
        while not done.is_set():
            traffic.jump()
            removed.append(lake.sweep().removed)

    def write_all() -> None:
        try:
            at_once(*(partial(write, number) for number in range(writers)))
        finally:
            done.set()

    at_once(write_all, sweep_on)
    place.check()
    return sum(removed)


def _one_thing(lake: Lake, chance: random.Random, label: str) -> None:
    line, name = chance.choice(["same", "again", "once more"]), f"scratch-{label}"
    what: list[Callable[[], object]] = [
        lambda: lake.commit([append("diary", line)]),
        lambda: lake.commit([replace("diary", line)]),
        lambda: lake.commit([Put(Key("plain"), IcebergTable(metadata_location=line))]),
        lambda: _scratch(lake, name, line, merge=False),
        lambda: _scratch(lake, name, line, merge=True),
    ]
    chance.choice(what)()


def _scratch(lake: Lake, name: str, line: str, merge: bool) -> None:
    branch = lake.branch(name).create()
    branch.commit([replace("diary", line, line)])
    branch.commit([append("diary", line)])
    if merge:
        lake.merge(name, "main")
    lake.kernel.references.delete_reference(name, leave_log=False)


@pytest.mark.parametrize("locking", [True, False])
def test_a_sweeper_among_writers_harms_nobody(place: Place, locking: bool, seed: int) -> None:
    assert soak(place, writers=3, turns=15, seed=seed, locking=locking) > 0


@pytest.mark.reliability
@pytest.mark.parametrize("locking", [True, False])
def test_a_sweeper_among_writers_harms_nobody_for_long(place: Place, locking: bool, seed: int) -> None:
    assert soak(place, writers=6, turns=250, seed=seed, locking=locking) > 0
