"""A store with a cache in front of it, for databases that are far away."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Final

from penstock.metrics import table
from penstock.metrics.meter import SILENT, Meter
from penstock.model.encoding import ObjectId, object_id
from penstock.stores.port import Store, Stored
from penstock.stores.wrapped import WrappedStore

ENTRY_BYTES: Final = 200
"""What keeping an object costs beside its bytes."""


class CachingStore(WrappedStore):
    """Keeps objects that were fetched, the most recently used ones, within ``max_bytes``.

    Only what can never change is kept: objects whose bytes hash to their id. Rows and receipts are asked for
    every time, and every object is stored every time, since storing it again is what keeps the sweep away
    from it (rule K9).

    What another process deletes stays here for a while. That harms no reader, whose commits lead to nothing
    that was deleted. But who asks what the database really holds asks ``uncached``: fsck and the sweep do.
    """

    def __init__(self, inner: Store, max_bytes: int, meter: Meter = SILENT) -> None:
        super().__init__(inner)
        self.max_bytes = max_bytes
        self.hits = self.misses = 0
        self._meter = meter
        self._lock = Lock()
        self._kept: OrderedDict[ObjectId, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._deletions = 0

    @property
    def uncached(self) -> Store:
        """The store below, as it is."""
        return self.inner.uncached

    @property
    def kept_bytes(self) -> int:
        """How much is kept now."""
        with self._lock:
            return self._kept_bytes

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        wanted = set(ids)
        with self._lock:
            found = {one: self._kept[one] for one in wanted if one in self._kept}
            for one in found:
                self._kept.move_to_end(one)
            self.hits += len(found)
            self.misses += len(wanted) - len(found)
            deletions = self._deletions
        self._meter.count(table.CACHE_OBJECTS, len(found), result="hit")
        missing = wanted - found.keys()
        if missing:
            self._meter.count(table.CACHE_OBJECTS, len(missing), result="miss")
            fetched = self.inner.fetch(missing)
            self._keep(fetched, deletions)
            found |= fetched
        return found

    def _keep(self, fetched: Mapping[ObjectId, bytes], deletions: int) -> None:
        lasting = {one: data for one, data in fetched.items() if object_id(data) == one}
        with self._lock:
            if self._deletions != deletions:
                return  # one of them may have been deleted since it was read
            for one, data in lasting.items():
                if one not in self._kept:
                    self._kept[one] = data
                    self._kept_bytes += len(data) + ENTRY_BYTES
            while self._kept_bytes > self.max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped) + ENTRY_BYTES
            kept_bytes = self._kept_bytes
        self._meter.gauge(table.CACHE_BYTES, kept_bytes)

    def _forget(self, ids: Collection[ObjectId] | None = None) -> None:
        """Drop some objects, or all; nor is kept what is being fetched at this moment."""
        with self._lock:
            self._deletions += 1
            for one in list(self._kept) if ids is None else ids:
                data = self._kept.pop(one, None)
                if data is not None:
                    self._kept_bytes -= len(data) + ENTRY_BYTES
            kept_bytes = self._kept_bytes
        self._meter.gauge(table.CACHE_BYTES, kept_bytes)

    def delete(self, objects: Sequence[Stored]) -> int:
        try:
            return self.inner.delete(objects)
        finally:
            self._forget([one.id for one in objects])

    def erase(self) -> None:
        try:
            self.inner.erase()
        finally:
            self._forget()

    def close(self) -> None:
        self.inner.close()
        self._forget()
