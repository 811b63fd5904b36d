"""A store that keeps a tally: how often it is called, how many swaps it makes and how many are lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

import msgspec

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, Turn
from penstock.stores.wrapped import Advance, WrappedStore


class StoreTally(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a store. Two of them subtract to what happened in between."""

    calls: int = 0
    """Calls that wait for the database. A turn that takes the row from memory is none; its advance is one."""
    swaps: int = 0
    lost_swaps: int = 0

    def __sub__(self, other: StoreTally) -> StoreTally:
        return StoreTally(
            calls=self.calls - other.calls,
            swaps=self.swaps - other.swaps,
            lost_swaps=self.lost_swaps - other.lost_swaps,
        )


class TallyStore(WrappedStore):
    """Counts what commits ask of it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._calls = self._swaps = self._lost = 0

    @property
    def tally(self) -> StoreTally:
        """Everything since the beginning."""
        with self._lock:
            return StoreTally(calls=self._calls, swaps=self._swaps, lost_swaps=self._lost)

    def _count_call(self) -> None:
        with self._lock:
            self._calls += 1

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self._count_call()
        return self.inner.fetch(ids)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._count_call()
        self.inner.store(objects)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        with super().turn(name, remembered) as turn:
            if turn.is_certain:
                self._count_call()
            yield turn

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        self._count_call()
        advanced = advance.advance_turn(turn)
        self.count_swap(advanced)
        return advanced

    def count_swap(self, advanced: AdvanceResult) -> None:
        """Count a swap, or one that was lost."""
        with self._lock:
            self._swaps += advanced.swapped
            self._lost += not advanced.swapped

    def reference(self, name: str) -> Row | None:
        self._count_call()
        return self.inner.reference(name)
