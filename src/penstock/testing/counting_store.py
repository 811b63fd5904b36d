"""A store that counts: how many requests, objects and bytes a piece of work costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

import msgspec

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.wrapped import Advance, WrappedStore


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a store. Two of them subtract to what happened in between."""

    requests: int = 0
    """Calls that reach the database: all of the port's methods, a turn and its advance counted apart."""
    objects_read: int = 0
    bytes_read: int = 0
    objects_written: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    swaps: int = 0
    swaps_lost: int = 0
    """Advances that swapped nothing: another was faster, or a fresh object was there already."""
    objects_deleted: int = 0

    def __sub__(self, other: Counts) -> Counts:
        fields = Counts.__struct_fields__
        return Counts(**{name: getattr(self, name) - getattr(other, name) for name in fields})


class CountingStore(WrappedStore):
    """Counts everything that goes through it.

    >>> from penstock.stores.memory import MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> store.store({b"a" * 32: b"bytes"})
    >>> store.counts.objects_written, store.counts.bytes_written
    (1, 5)
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._counts = dict.fromkeys(Counts.__struct_fields__, 0)

    @property
    def counts(self) -> Counts:
        """Everything since the beginning, or since ``reset``."""
        with self._lock:
            return Counts(**self._counts)

    def reset(self) -> None:
        with self._lock:
            self._counts = dict.fromkeys(Counts.__struct_fields__, 0)

    def _count(self, **amounts: int) -> None:
        with self._lock:
            self._counts["requests"] += 1
            for name, amount in amounts.items():
                self._counts[name] += amount

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        fetched = self.inner.fetch(ids)
        self._count(objects_read=len(fetched), bytes_read=_size(fetched))
        return fetched

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self.inner.store(objects)
        self._count(objects_written=len(objects), bytes_written=_size(objects))

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        with super().turn(name, remembered) as turn:
            self._count(rows_read=int(turn.row is not None))
            yield turn

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        advanced = advance.advance_turn(turn)
        self._count(
            objects_written=len(advance.objects),
            bytes_written=_size(advance.objects) + (len(advance.row.data) if advance.row is not None else 0),
            swaps=int(advanced.swapped),
            swaps_lost=int(not advanced.swapped),
        )
        return advanced

    def reference(self, name: str) -> Row | None:
        row = self.inner.reference(name)
        self._count(rows_read=int(row is not None))
        return row

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        rows = self.inner.references(kind, prefix, after, limit)
        self._count(rows_read=len(rows))
        return rows

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        page = self.inner.scan(after, limit)
        self._count()
        return page

    def delete(self, objects: Sequence[StoredObject]) -> int:
        deleted = self.inner.delete(objects)
        self._count(objects_deleted=deleted)
        return deleted


def _size(objects: Mapping[ObjectId, bytes]) -> int:
    return sum(map(len, objects.values()))
