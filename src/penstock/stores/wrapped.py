"""A store around another one: what a wrapper does not change, it hands on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn


class Advance(NamedTuple):
    """What a turn is asked to do: see ``Turn.advance``."""

    name: str
    objects: Mapping[ObjectId, bytes]
    row: Row | None
    fresh: Collection[ObjectId] = ()

    def advance_turn(self, turn: Turn) -> AdvanceResult:
        """Carried out as it is."""
        return turn.advance(self.objects, self.row, self.fresh)


class WrappedStore(Store):
    """Hands every call on. A wrapper overrides what it adds to, and ``advance`` for what a turn does."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url, self.resolution_us = inner.url, inner.resolution_us
        self.batch_max_bytes = inner.batch_max_bytes

    @property
    def is_read_only(self) -> bool:
        return self.inner.is_read_only

    def require_writable(self) -> None:
        self.inner.require_writable()

    @property
    def has_room(self) -> bool:
        return self.inner.has_room

    @property
    def uncached(self) -> Store:
        """This store, or if there is a cache below it, the store below that cache."""
        below = self.inner.uncached
        return self if below is self.inner else below

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        return self.inner.fetch(ids)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self.inner.store(objects)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        with self.inner.turn(name, remembered) as turn:
            yield WrappedTurn(self, name, turn)

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        """Advance a row; ``turn`` is the inner store's."""
        return advance.advance_turn(turn)

    def reference(self, name: str) -> Row | None:
        return self.inner.reference(name)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        return self.inner.references(kind, prefix, after, limit)

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        return self.inner.scan(after, limit)

    def delete(self, objects: Sequence[StoredObject]) -> int:
        return self.inner.delete(objects)

    def tidy(self, before_us: int) -> int:
        return self.inner.tidy(before_us)

    def check(self) -> list[str]:
        return self.inner.check()

    def scrub(self) -> str:
        return self.inner.scrub()

    def erase(self) -> None:
        self.inner.erase()

    def close(self) -> None:
        self.inner.close()


class WrappedTurn(Turn):
    """A turn whose ``advance`` its store decides."""

    def __init__(self, store: WrappedStore, name: str, inner: Turn) -> None:
        self._store, self._name, self._inner = store, name, inner
        self.row, self.is_certain = inner.row, inner.is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        self._inner.written = self.written
        return self._store.advance(self._inner, Advance(self._name, objects, row, fresh))
