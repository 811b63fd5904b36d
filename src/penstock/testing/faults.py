"""A store that fails on purpose, at points with names, as often as it is told.

>>> from penstock.stores.memory import MemoryStore
>>> store = FaultyStore(MemoryStore())
>>> store.fail(Point.FETCH, Unavailable("nobody answers"))
>>> store.fetch([])
Traceback (most recent call last):
penstock.errors.Unavailable: nobody answers
>>> store.fetch([])
{}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from threading import Event, Lock
from typing import TypeAlias

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.wrapped import Advance, WrappedStore, WrappedTurn

Action: TypeAlias = Callable[[], object]
"""What happens at a point: it raises, waits, or ends the process."""

WAIT_MAX_S = 60.0
"""A gate that nobody opens is a mistake in a test; it must not hang for ever."""


class Point(StrEnum):
    """Where a fault can be."""

    FETCH = "fetch"
    STORE = "store"
    TURN = "turn"
    """Before the row is read (and locked, by a store that locks)."""
    BEFORE_OBJECTS = "before objects"
    """An advance was asked for, nothing is written."""
    BEFORE_SWAP = "before swap"
    """The objects are durable, the row is not swapped."""
    AFTER_SWAP = "after swap"
    """Everything is done, nobody was told. What is raised here is a lost answer."""
    REFERENCE = "reference"
    REFERENCES = "references"
    SCAN = "scan"
    """Before a page is scanned."""
    SCANNED = "scanned"
    """After a page was scanned, before it is handed out."""
    DELETE = "delete"


class SwapLost(Exception):
    """Raised by a fault: let the swap be lost, as if another process had been faster."""


class Gate:
    """A place to stop at: ``reached`` tells that somebody waits there, ``open`` lets them go on."""

    def __init__(self) -> None:
        self._reached, self._opened = Event(), Event()

    def __call__(self) -> None:
        self._reached.set()
        if not self._opened.wait(WAIT_MAX_S):
            raise TimeoutError("nobody opened the gate")

    def wait_until_reached(self) -> None:
        """Wait until somebody stands at the gate."""
        if not self._reached.wait(WAIT_MAX_S):
            raise TimeoutError("nobody came to the gate")

    def open(self) -> None:
        self._opened.set()


class _Fault:
    def __init__(self, action: Action, times: int | None, skip: int, name: str | None) -> None:
        self.action, self.times, self.skip, self.name = action, times, skip, name


class FaultyStore(WrappedStore):
    """Any store, with faults at named points.

    ``locking=False`` turns a store with transactions into one of the other family: a turn holds no lock,
    objects are stored first and the row is swapped in a second step, so that swaps can really be lost and
    ``BEFORE_SWAP`` lies between two separate writes.
    """

    def __init__(self, inner: Store, *, locking: bool = True) -> None:
        super().__init__(inner)
        self._locking = locking
        self._lock = Lock()
        self._faults: dict[Point, list[_Fault]] = {}
        self.passed: Counter[Point] = Counter()
        """How often each point was passed, with or without a fault."""

    def at(
        self,
        point: Point,
        action: Action,
        *,
        times: int | None = 1,
        skip: int = 0,
        name: str | None = None,
    ) -> None:
        """Have something happen at a point: the next ``times`` it is passed (``None``: always), but first
        let it pass ``skip`` times. ``name`` limits it to one row, where the point is about a row."""
        with self._lock:
            self._faults.setdefault(point, []).append(_Fault(action, times, skip, name))

    def fail(
        self,
        point: Point,
        error: BaseException,
        *,
        times: int | None = 1,
        skip: int = 0,
        name: str | None = None,
    ) -> None:
        """Raise an error at a point."""

        def raise_it() -> None:
            raise error

        self.at(point, raise_it, times=times, skip=skip, name=name)

    def lose_answer(self, *, times: int | None = 1, skip: int = 0, name: str | None = None) -> None:
        """Swap, but do not say so: ``OutcomeUnknown``."""
        self.fail(Point.AFTER_SWAP, OutcomeUnknown("the answer was lost"), times=times, skip=skip, name=name)

    def lose_swap(self, *, times: int | None = 1, skip: int = 0, name: str | None = None) -> None:
        """Store the objects, but let another process seem to have been faster."""
        self.fail(Point.BEFORE_SWAP, SwapLost(), times=times, skip=skip, name=name)

    def be_unavailable(self, *, times: int | None = None) -> None:
        """Refuse every turn with ``Unavailable``."""
        self.fail(Point.TURN, Unavailable("the store does not answer"), times=times)

    def pause(self, point: Point, *, skip: int = 0, name: str | None = None) -> Gate:
        """Stop whoever passes a point next, until the gate is opened."""
        gate = Gate()
        self.at(point, gate, skip=skip, name=name)
        return gate

    def heal(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults = {}

    def _pass_point(self, point: Point, name: str | None = None) -> None:
        action = self._take_action(point, name)
        if action is not None:
            action()

    def _take_action(self, point: Point, name: str | None) -> Action | None:
        """What is to happen at a point now, if anything; it counts as having happened."""
        with self._lock:
            self.passed[point] += 1
            for fault in self._faults.get(point, []):
                if fault.name not in (None, name):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults[point].remove(fault)
                return fault.action
        return None

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self._pass_point(Point.FETCH)
        return self.inner.fetch(ids)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._pass_point(Point.STORE)
        self.inner.store(objects)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self._pass_point(Point.TURN, name)
        if self._locking:
            with super().turn(name, remembered) as turn:
                yield turn
        else:
            row = remembered or self.inner.reference(name)
            yield WrappedTurn(self, name, _UnlockedTurn(self, name, row, is_certain=remembered is None))

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        self._pass_point(Point.BEFORE_OBJECTS, advance.name)
        try:
            advanced = self._advance_at_once(turn, advance) if self._locking else advance.advance_turn(turn)
        except SwapLost:
            return AdvanceResult(False)
        if advanced.swapped:
            self._pass_point(Point.AFTER_SWAP, advance.name)
        return advanced

    def _advance_at_once(self, turn: Turn, advance: Advance) -> AdvanceResult:
        action = self._take_action(Point.BEFORE_SWAP, advance.name)
        if action is None:
            return advance.advance_turn(turn)
        # The objects alone: the row is swapped with itself. A fault that only waits cannot go on from here,
        # since a turn advances once.
        stored = turn.advance(advance.objects, turn.row, advance.fresh)
        if stored.swapped:
            action()
            raise AssertionError("only a store with locking=False can go on after a fault at BEFORE_SWAP")
        with self._lock:  # the point was not reached
            self._faults.setdefault(Point.BEFORE_SWAP, []).insert(0, _Fault(action, 1, 0, advance.name))
        return stored

    def reference(self, name: str) -> Row | None:
        self._pass_point(Point.REFERENCE, name)
        return self.inner.reference(name)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        self._pass_point(Point.REFERENCES)
        return self.inner.references(kind, prefix, after, limit)

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        self._pass_point(Point.SCAN)
        page = self.inner.scan(after, limit)
        self._pass_point(Point.SCANNED)
        return page

    def delete(self, objects: Sequence[StoredObject]) -> int:
        self._pass_point(Point.DELETE)
        return self.inner.delete(objects)


class _UnlockedTurn(Turn):
    """The row as it was read. Objects first, then the swap, each in a turn of the inner store's own."""

    def __init__(self, store: FaultyStore, name: str, row: Row | None, is_certain: bool) -> None:
        self._store, self._name, self.row, self.is_certain = store, name, row, is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store = self._store
        with store.inner.turn(self._name) as turn:
            stored = turn.advance(objects, turn.row, fresh)
        if not stored.swapped:
            return stored
        self.written()
        store._pass_point(Point.BEFORE_SWAP, self._name)
        with store.inner.turn(self._name) as turn:
            return turn.advance({}, row) if turn.row == self.row else AdvanceResult(False)
