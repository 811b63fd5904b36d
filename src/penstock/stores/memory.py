"""A store in this process's memory, of the key-value family: objects first, then one swap."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn


class MemoryStore(Store):
    """For tests and trials: gone when the process ends."""

    url = "memory:"

    def __init__(self, clock: Clock = now_us) -> None:
        self._clock = clock
        self._lock = Lock()
        self._objects: dict[ObjectId, tuple[bytes, int]] = {}
        self._rows: dict[str, Row] = {}

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        objects = self._objects
        return {object_id: objects[object_id][0] for object_id in ids if object_id in objects}

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        with self._lock:
            self._put_objects(objects)

    def _put_objects(self, objects: Mapping[ObjectId, bytes]) -> None:
        now = self._clock()
        for object_id, data in objects.items():
            stored = self._objects.get(object_id)
            self._objects[object_id] = (stored[0] if stored else data, now)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        yield _MemoryTurn(self, name, remembered or self._rows.get(name), is_certain=remembered is None)

    def reference(self, name: str) -> Row | None:
        return self._rows.get(name)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        with self._lock:
            names = [name for name, row in self._rows.items() if row.kind == kind]
            chosen = sorted(name for name in names if name > after and name.startswith(prefix))
            return [self._rows[name] for name in chosen[:limit]]

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        with self._lock:
            ids = sorted(object_id for object_id in self._objects if object_id > after)[:limit]
            rows = [
                StoredObject(object_id, self._objects[object_id][1], len(self._objects[object_id][0]))
                for object_id in ids
            ]
        return rows, ids[-1] if len(ids) == limit else b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        with self._lock:
            doomed = [
                o.id for o in objects if o.id in self._objects and self._objects[o.id][1] == o.referenced_us
            ]
            for object_id in doomed:
                del self._objects[object_id]
            return len(doomed)

    def scrub(self) -> str:
        return ""

    def erase(self) -> None:
        with self._lock:
            self._objects.clear()
            self._rows.clear()

    def close(self) -> None:
        pass


class _MemoryTurn(Turn):
    def __init__(self, store: MemoryStore, name: str, row: Row | None, is_certain: bool) -> None:
        self._store, self._name, self.row, self.is_certain = store, name, row, is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store = self._store
        with store._lock:
            present = frozenset(object_id for object_id in fresh if object_id in store._objects)
            store._put_objects(
                {object_id: data for object_id, data in objects.items() if object_id not in present}
            )
        if present:
            return AdvanceResult(False, present)
        self.written()
        with store._lock:
            if store._rows.get(self._name) != self.row:
                return AdvanceResult(False)
            if row is None:
                store._rows.pop(self._name, None)
            else:
                store._rows[self._name] = row
            return AdvanceResult(True)
