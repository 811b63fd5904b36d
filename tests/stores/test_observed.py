"""The observed store keeps every promise of the port, and its figures are true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.metrics.memory import Metrics, MetricsSnapshot
from penstock.metrics.prometheus import PrometheusMeter
from penstock.metrics.table import (
    STORE_ERRORS,
    STORE_OBJECTS_DELETED,
    STORE_OBJECTS_READ,
    STORE_OBJECTS_WRITTEN,
    STORE_READ_BYTES,
    STORE_SECONDS,
    STORE_SWAPS,
    STORE_WRITTEN_BYTES,
)
from penstock.model.encoding import ObjectId
from penstock.stores.memory import MemoryStore
from penstock.stores.observed import ObservedStore
from penstock.stores.port import AdvanceResult, Store, Turn
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import Advance, WrappedStore
from penstock.testing import FaultyStore, StoreContract
from penstock.testing.contract_rows import swap
from penstock.testing.drill import Drill
from penstock.testing.faults import Point
from penstock.testing.samples import OpenStore, row, sample, scan_all


class TestObservedStore(StoreContract):
    """Over a store that locks, as `CachingStore` is over one that does not; with a meter that declares what
    it counts and refuses everything else."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        meter = PrometheusMeter(CollectorRegistry())
        return lambda: ObservedStore(SqliteStore(tmp_path / "penstock.db", synchronous="OFF"), meter)


class Observation:
    """An observed store over one that can be made to fail."""

    def __init__(self, wrap: Callable[[Store], Store] = lambda store: store) -> None:
        self.metrics = Metrics()
        self.faults = FaultyStore(MemoryStore())
        self.store = ObservedStore(wrap(self.faults), self.metrics)

    @property
    def now(self) -> MetricsSnapshot:
        return self.metrics.snapshot()

    def calls(self, operation: str) -> int:
        found = self.now.distribution(STORE_SECONDS, operation=operation)
        return found.count if found is not None else 0

    def swaps(self, branch: str = "main") -> dict[str, float]:
        outcomes = ("swapped", "lost", "present", "unknown", "failed")
        counted = {one: self.now.count(STORE_SWAPS, branch=branch, outcome=one) for one in outcomes}
        return {outcome: count for outcome, count in counted.items() if count}


@pytest.fixture
def observed() -> Observation:
    return Observation()


def test_objects_and_bytes_are_counted(observed: Observation) -> None:
    store, objects = observed.store, sample(10, size=50)
    store.store(objects)
    with store.turn("main") as turn:
        turn.advance(sample(2, "more", size=50), row("main", data=b"1234567"))
    assert observed.now.count(STORE_OBJECTS_WRITTEN) == 12
    assert observed.now.count(STORE_WRITTEN_BYTES) == 12 * 50 + 7
    store.fetch([*objects, *sample(3, "unknown")])
    assert observed.now.count(STORE_OBJECTS_READ) == 10
    assert observed.now.count(STORE_READ_BYTES) == 500
    store.reference("main")
    store.references("branch")
    assert observed.now.count(STORE_READ_BYTES) == 500 + 14
    store.delete(scan_all(store)[:4])
    assert observed.now.count(STORE_OBJECTS_DELETED) == 4


def test_a_row_that_the_caller_remembers_is_not_counted_as_read(observed: Observation) -> None:
    swap(observed.store, row("main", data=b"1234567"))
    with observed.store.turn("main", row("main", data=b"1234567")) as turn:
        assert not turn.is_certain
    assert observed.now.count(STORE_READ_BYTES) == 0
    with observed.store.turn("main"):
        pass
    assert observed.now.count(STORE_READ_BYTES) == 7


def test_every_operation_is_counted_and_timed(observed: Observation) -> None:
    store = observed.store
    store.fetch([])
    store.store({})
    with store.turn("main") as turn:
        turn.advance({}, row("main"))
    store.reference("main")
    store.references("branch")
    store.scan(b"", 1)
    store.delete([])
    store.tidy(0)
    store.check()
    store.erase()
    operations = [
        "fetch",
        "store",
        "turn",
        "advance",
        "reference",
        "references",
        "scan",
        "delete",
        "tidy",
        "check",
        "erase",
    ]
    assert {operation: observed.calls(operation) for operation in operations} == dict.fromkeys(operations, 1)
    assert len(observed.now.distributions) == len(operations)
    assert observed.now.count(STORE_ERRORS) == 0


class _Slow(WrappedStore):
    """Its clock is told to move while it works."""

    def __init__(self, inner: Store, work: Callable[[], None]) -> None:
        super().__init__(inner)
        self._work = work

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._work()


def test_a_time_is_how_long_the_call_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0

    def work() -> None:
        nonlocal now_s
        now_s += 3.0

    monkeypatch.setattr("penstock.stores.observed.perf_counter", lambda: now_s)
    observed = Observation(lambda store: _Slow(store, work))
    observed.store.store({})
    found = observed.now.distribution(STORE_SECONDS, operation="store")
    assert found is not None
    assert (found.count, found.sum) == (1, 3.0)


def test_swaps_are_counted_by_what_came_of_them(observed: Observation) -> None:
    store, fresh = observed.store, sample(1, "receipt")
    with store.turn("main") as turn:
        turn.advance(fresh, row("main", data=b"1"), list(fresh))
    assert observed.swaps() == {"swapped": 1}
    with store.turn("main") as turn:
        swap(observed.faults, row("main", data=b"2"))
        assert turn.advance({}, row("main", data=b"3")) == AdvanceResult(False)
    assert observed.swaps() == {"swapped": 1, "lost": 1}
    with store.turn("main") as turn:
        assert turn.advance({}, row("main", data=b"4"), list(fresh)).present
    assert observed.swaps() == {"swapped": 1, "lost": 1, "present": 1}
    swap(store, row("audit"))
    assert observed.swaps("audit") == {"swapped": 1}


def test_an_answer_that_was_lost_counts_as_unknown(observed: Observation) -> None:
    observed.faults.lose_answer()
    with observed.store.turn("main") as turn, pytest.raises(OutcomeUnknown):
        turn.advance({}, row("main"))
    assert observed.swaps() == {"unknown": 1}
    assert observed.now.count(STORE_ERRORS, operation="advance", error="outcome_unknown") == 1


class _Failing(WrappedStore):
    """Raises one error at every call."""

    error: BaseException

    def fetch(self, ids: object) -> dict[ObjectId, bytes]:
        raise self.error

    def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "outcome"),
    [
        (Unavailable("not now"), "unavailable", "failed"),
        (OutcomeUnknown("who knows"), "outcome_unknown", "unknown"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "unknown"),
        (ZeroDivisionError(), "ZeroDivisionError", "failed"),
    ],
)
def test_errors_are_counted_by_their_code_and_passed_on(
    error: BaseException, code: str, outcome: str
) -> None:
    failing = _Failing(MemoryStore())
    failing.error = error
    observed = Observation(lambda _: failing)
    with pytest.raises(type(error)) as raised:
        observed.store.fetch([b"1" * 32])
    assert raised.value is error
    with observed.store.turn("main") as turn, pytest.raises(type(error)):
        turn.advance(sample(1), row("main"))
    assert observed.now.count(STORE_ERRORS, operation="fetch", error=code) == 1
    assert observed.now.count(STORE_ERRORS, operation="advance", error=code) == 1
    assert observed.now.count(STORE_ERRORS) == 2
    assert (observed.calls("fetch"), observed.calls("advance")) == (1, 1)
    assert observed.swaps() == {outcome: 1}
    assert observed.now.count(STORE_OBJECTS_WRITTEN) == observed.now.count(STORE_OBJECTS_READ) == 0


def test_a_turn_that_does_not_begin_is_an_error_of_the_store(observed: Observation) -> None:
    observed.faults.fail(Point.TURN, Unavailable("not now"))
    with pytest.raises(Unavailable), observed.store.turn("main"):
        raise AssertionError("it did not begin")
    assert observed.now.count(STORE_ERRORS, operation="turn", error="unavailable") == 1
    assert observed.calls("turn") == 1


def test_an_error_of_the_caller_within_a_turn_is_not_the_stores(observed: Observation) -> None:
    with pytest.raises(ZeroDivisionError), observed.store.turn("main"):
        raise ZeroDivisionError
    assert observed.now.count(STORE_ERRORS) == 0


def test_a_kernel_on_an_observed_store_leaves_one_history_and_its_figures_agree() -> None:
    metrics = Metrics()
    found = Drill(lambda store: ObservedStore(store, metrics)).run()
    assert found.kinds == set(), str(found)
    now = metrics.snapshot()
    advances = now.distribution(STORE_SECONDS, operation="advance")
    assert advances is not None
    assert now.count(STORE_SWAPS) == advances.count
    assert now.count(STORE_SWAPS, branch="main", outcome="swapped") > 40
    assert now.count(STORE_SWAPS, branch="main", outcome="lost") > 0
