"""Whatever changes a row gets through a moment's trouble of the store, and does its work once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Turn
from penstock.testing.faults import FaultyStore, Point, SwapLost
from tests.kernel.row_writers import WRITERS, Prepared, calls_in_source, turns_in_source

TROUBLES: dict[str, Callable[[], tuple[Point, Exception]]] = {
    "the store is away before the row is read": lambda: (Point.TURN, Unavailable("away")),
    "the store is away before anything is written": lambda: (Point.BEFORE_OBJECTS, Unavailable("away")),
    "the swap is not done and nobody says so": lambda: (Point.BEFORE_SWAP, OutcomeUnknown("lost")),
    "the swap is done and nobody says so": lambda: (Point.AFTER_SWAP, OutcomeUnknown("lost")),
    "another process is faster": lambda: (Point.BEFORE_SWAP, SwapLost()),
}


class WatchedStore(FaultyStore):
    """Remembers which functions took turns of which row."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), locking=False)
        self.seen: set[tuple[str, str]] = set()

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            module = frame.f_globals["__name__"].removeprefix("penstock.")
            self.seen.add((name, f"{module}:{frame.f_code.co_qualname}"))
        with super().turn(name, remembered) as turn:
            yield turn

    @property
    def has_faults(self) -> bool:
        return any(self._faults.values())


def undisturbed(name: str) -> object:
    return WRITERS[name].prepare(WatchedStore()).change()


def fail(store: FaultyStore, prepared: Prepared, point: Point, error: Exception) -> None:
    waiting = sum(fault.name == prepared.row for fault in store._faults.get(point, []))
    store.fail(point, error, name=prepared.row, skip=prepared.turns_before - waiting)


CASES = [
    (name, trouble)
    for name, writer in WRITERS.items()
    for trouble in TROUBLES
    if writer.swaps or TROUBLES[trouble]()[0] is Point.TURN
]


@pytest.mark.parametrize(("name", "trouble"), CASES)
def test_a_moments_trouble_of_the_store_is_not_noticed(name: str, trouble: str) -> None:
    point, error = TROUBLES[trouble]()
    store = WatchedStore()
    prepared = WRITERS[name].prepare(store)
    fail(store, prepared, point, error)
    assert prepared.change() == undisturbed(name)
    assert not store.has_faults, "the trouble never came"


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_passes_the_function_that_it_is_to_prove(name: str) -> None:
    store = WatchedStore()
    prepared = WRITERS[name].prepare(store)
    store.seen.clear()
    prepared.change()
    assert (prepared.row, WRITERS[name].proves) in store.seen


def test_every_function_that_changes_a_row_has_a_writer() -> None:
    assert sorted(writer.proves for writer in WRITERS.values()) == sorted(calls_in_source())


def test_rows_are_swapped_in_two_places_only() -> None:
    """For many requests at once, and for one."""
    assert turns_in_source() == {"kernel.batch:Batch._try_once", "kernel.records:swap_row"}
