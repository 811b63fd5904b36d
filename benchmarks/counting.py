"""A store that also counts objects by what they are: leaves and nodes of trees, commits, segments, …"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Store, Turn
from penstock.stores.wrapped import Advance
from penstock.testing import CountingStore

KINDS = ("commit", "segment", "log", "receipt", "leaf", "node", "blob")
NODES = ("leaf", "node")


class KindCountingStore(CountingStore):
    """Counts everything that goes through it, and of objects how many of each kind."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.written_bytes: Counter[str] = Counter()

    @property
    def nodes_read(self) -> int:
        return sum(self.read[kind] for kind in NODES)

    @property
    def nodes_written(self) -> int:
        return sum(self.written[kind] for kind in NODES)

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        found = super().fetch(ids)
        with self._lock:
            self.read.update(map(kind_of, found.values()))
        return found

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        super().store(objects)
        self._note_written(objects.values())

    def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
        advanced = super().advance(turn, wish)
        self._note_written(wish.objects.values())
        return advanced

    def _note_written(self, objects: Iterable[bytes]) -> None:
        with self._lock:
            for data in objects:
                kind = kind_of(data)
                self.written[kind] += 1
                self.written_bytes[kind] += len(data)


def kind_of(data: bytes) -> str:
    """What an object is: the first element of its bytes says it."""
    kind: str = msgspec.msgpack.decode(data)[0]
    return kind


@contextmanager
def counted_syncs() -> Iterator[list[int]]:
    """The files that this process's Python code waits for until they are on the disk."""
    waited: list[int] = []
    sync = os.fsync

    def counted(file: int) -> None:
        waited.append(file)
        sync(file)

    os.fsync = counted  # type: ignore[assignment]
    try:
        yield waited
    finally:
        os.fsync = sync
