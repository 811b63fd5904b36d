"""A store with a cache in front of it, for databases that are far away."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Final

from penstock.metrics import table
from penstock.metrics.meter import SILENT, Meter
from penstock.model.encoding import ObjectId, hash_object
from penstock.stores.port import Store, StoredObject
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
        wanted_ids = set(ids)
        with self._lock:
            data_by_id = {
                object_id: self._kept[object_id] for object_id in wanted_ids if object_id in self._kept
            }
            for object_id in data_by_id:
                self._kept.move_to_end(object_id)
            self.hits += len(data_by_id)
            self.misses += len(wanted_ids) - len(data_by_id)
            deletions = self._deletions
        self._meter.count(table.CACHE_OBJECTS, len(data_by_id), result="hit")
        missing = wanted_ids - data_by_id.keys()
        if missing:
            self._meter.count(table.CACHE_OBJECTS, len(missing), result="miss")
            fetched = self.inner.fetch(missing)
            self._cache_objects(fetched, deletions)
            data_by_id |= fetched
        return data_by_id

    def _cache_objects(self, fetched: Mapping[ObjectId, bytes], deletions: int) -> None:
        lasting = {
            fetched_id: data for fetched_id, data in fetched.items() if hash_object(data) == fetched_id
        }
        with self._lock:
            if self._deletions != deletions:
                return  # one of them may have been deleted since it was read
            for fetched_id, data in lasting.items():
                if fetched_id not in self._kept:
                    self._kept[fetched_id] = data
                    self._kept_bytes += len(data) + ENTRY_BYTES
            while self._kept_bytes > self.max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped) + ENTRY_BYTES
            kept_bytes = self._kept_bytes
        self._meter.gauge(table.CACHE_BYTES, kept_bytes)

    def _forget_objects(self, ids: Collection[ObjectId] | None = None) -> None:
        """Drop some objects, or all; nor is kept what is being fetched at this moment."""
        with self._lock:
            self._deletions += 1
            for object_id in list(self._kept) if ids is None else ids:
                data = self._kept.pop(object_id, None)
                if data is not None:
                    self._kept_bytes -= len(data) + ENTRY_BYTES
            kept_bytes = self._kept_bytes
        self._meter.gauge(table.CACHE_BYTES, kept_bytes)

    def delete(self, objects: Sequence[StoredObject]) -> int:
        try:
            return self.inner.delete(objects)
        finally:
            self._forget_objects([stored_object.id for stored_object in objects])

    def erase(self) -> None:
        try:
            self.inner.erase()
        finally:
            self._forget_objects()

    def close(self) -> None:
        self.inner.close()
        self._forget_objects()
