"""A store that is made by the first write: who refuses before that leaves nothing at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from penstock.model.encoding import ObjectId
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store, Turn
from penstock.stores.wrapped import WrappedStore


class StoreMadeOnWrite(WrappedStore):
    """Is empty until something is written. May be used by many threads."""

    def __init__(self, url: str, make: Callable[[], Store]) -> None:
        super().__init__(MemoryStore())
        self.url, self._make, self._lock, self._is_made = url, make, Lock(), False

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._require_made()
        super().store(objects)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self._require_made()
        with super().turn(name, remembered) as turn:
            yield turn

    def _require_made(self) -> None:
        with self._lock:
            if not self._is_made:
                new_store = self._make()
                self.resolution_us = new_store.resolution_us
                self.batch_max_bytes = new_store.batch_max_bytes
                self.inner, self._is_made = new_store, True
