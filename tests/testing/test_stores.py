"""Stores that count and stores that fail: they do so as told, and are faithful in everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from penstock.stores.sqlite import SqliteStore
from penstock.testing import CountingStore, Counts, FaultyStore, Point, StoreContract
from penstock.testing.contract_rows import swap
from penstock.testing.samples import OpenStore, row, sample, scan_all


class TestCountingStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryStore()
        return lambda: CountingStore(store)


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryStore()
        return lambda: FaultyStore(store)


class TestFaultyStoreInMemoryWithoutLocks(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryStore()
        return lambda: FaultyStore(store, locking=False)


# -- counting --------------------------------------------------------------------------------------------


def test_every_request_object_and_byte_is_counted() -> None:
    store = CountingStore(MemoryStore())
    objects = sample(3, "counted", 100)
    store.store(objects)
    assert store.counts == Counts(requests=1, objects_written=3, bytes_written=300)
    before = store.counts
    store.fetch([*objects, *sample(2, "unknown")])
    assert store.counts - before == Counts(requests=1, objects_read=3, bytes_read=300)
    before = store.counts
    with store.turn("main") as turn:
        turn.advance(sample(2, "more", 50), row("main", data=b"12345"))
    assert store.counts - before == Counts(requests=2, objects_written=2, bytes_written=105, swaps=1)
    before = store.counts
    store.reference("main")
    store.references("branch")
    assert store.counts - before == Counts(requests=2, rows_read=2)
    before = store.counts
    store.delete(scan_all(store))
    assert store.counts - before == Counts(requests=2, objects_deleted=5)
    store.reset()
    assert store.counts == Counts()


def test_a_lost_swap_is_counted_as_lost() -> None:
    data = MemoryStore()
    store = CountingStore(data)
    with store.turn("main") as turn:
        swap(data, row("main", data=b"faster"))
        assert not turn.advance({}, row("main")).swapped
    assert (store.counts.swaps, store.counts.swaps_lost) == (0, 1)


# -- failing ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "memory unlocked", "sqlite unlocked"])
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStore:
    kind, _, unlocked = request.param.partition(" ")
    data = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "penstock.db")
    return FaultyStore(data, locking=not unlocked)


def advance(store: FaultyStore, name: str = "main", data: bytes = b"1") -> AdvanceResult:
    with store.turn(name) as turn:
        return turn.advance(sample(2, f"for {name}"), row(name, data=data))


def test_a_fault_before_the_objects_leaves_nothing(faulty: FaultyStore) -> None:
    faulty.fail(Point.BEFORE_OBJECTS, Unavailable("not now"))
    with pytest.raises(Unavailable):
        advance(faulty)
    assert faulty.inner.reference("main") is None
    assert scan_all(faulty.inner) == []
    assert advance(faulty).swapped


def test_a_fault_before_the_swap_leaves_the_objects_only(faulty: FaultyStore) -> None:
    faulty.fail(Point.BEFORE_SWAP, Unavailable("not now"))
    with pytest.raises(Unavailable):
        advance(faulty)
    assert faulty.inner.reference("main") is None
    assert len(scan_all(faulty.inner)) == 2
    assert advance(faulty).swapped


def test_a_lost_answer_leaves_everything_done(faulty: FaultyStore) -> None:
    faulty.lose_answer()
    with pytest.raises(OutcomeUnknown):
        advance(faulty)
    assert faulty.inner.reference("main") == row("main", data=b"1")
    assert len(scan_all(faulty.inner)) == 2


def test_a_lost_swap_looks_like_a_faster_process(faulty: FaultyStore) -> None:
    advance(faulty)
    faulty.lose_swap(times=2)
    assert advance(faulty, data=b"2") == AdvanceResult(False)
    assert advance(faulty, data=b"2") == AdvanceResult(False)
    assert faulty.inner.reference("main") == row("main", data=b"1")
    assert advance(faulty, data=b"2") == AdvanceResult(True)


def test_faults_come_as_often_as_told_after_as_many_passes_as_told(faulty: FaultyStore) -> None:
    faulty.fail(Point.REFERENCE, Unavailable("not now"), skip=2, times=3)
    answers = []
    for _ in range(7):
        try:
            faulty.reference("main")
            answers.append(True)
        except Unavailable:
            answers.append(False)
    assert answers == [True, True, False, False, False, True, True]
    assert faulty.passed[Point.REFERENCE] >= 7


def test_a_fault_for_one_row_leaves_the_others_alone(faulty: FaultyStore) -> None:
    faulty.fail(Point.TURN, Unavailable("not now"), name="main", times=None)
    assert advance(faulty, "dev").swapped
    with pytest.raises(Unavailable):
        advance(faulty)
    faulty.heal()
    assert advance(faulty).swapped


def test_an_unavailable_store_stays_so_until_it_is_healed(faulty: FaultyStore) -> None:
    faulty.be_unavailable()
    for _ in range(3):
        with pytest.raises(Unavailable):
            advance(faulty)
    faulty.heal()
    assert advance(faulty).swapped


@pytest.mark.parametrize("point", [Point.FETCH, Point.STORE, Point.SCAN, Point.SCANNED, Point.DELETE])
def test_every_other_call_can_fail(faulty: FaultyStore, point: Point) -> None:
    faulty.fail(point, Unavailable("not now"))
    calls: dict[Point, Callable[[], object]] = {
        Point.FETCH: lambda: faulty.fetch([]),
        Point.STORE: lambda: faulty.store({}),
        Point.SCAN: lambda: faulty.scan(b"", 1),
        Point.SCANNED: lambda: faulty.scan(b"", 1),
        Point.DELETE: lambda: faulty.delete([]),
    }
    with pytest.raises(Unavailable):
        calls[point]()
    calls[point]()


def test_a_gate_stops_a_writer_between_its_objects_and_its_swap(tmp_path: Path) -> None:
    """Meanwhile another moves the row, and the one that waited loses."""
    for data in (MemoryStore(), SqliteStore(tmp_path / "penstock.db")):
        store = FaultyStore(data, locking=False)
        gate = store.pause(Point.BEFORE_SWAP)
        answers: list[AdvanceResult] = []
        writer = Thread(target=lambda: answers.append(advance(store, data=b"slow")))  # noqa: B023
        writer.start()
        gate.wait_until_reached()
        assert len(scan_all(data)) == 2
        assert swap(data, row("main", data=b"fast")).swapped
        gate.open()
        writer.join(30)
        assert answers == [AdvanceResult(False)]
        assert data.reference("main") == row("main", data=b"fast")
        data.close()
