"""Lakes with everything in them that a lake can have, and ways to look at all of a store."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import TypeVar

from penstock.errors import MergeConflict
from penstock.kernel.settings import Settings
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.encoding import ObjectId
from penstock.model.nessie import IcebergTable
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.wrapped import Advance, WrappedStore
from penstock.testing.samples import scan_all

T = TypeVar("T")
QUICK = Settings(backoff_max_ms=2, write_timeout_s=5)


def table(number: object, size: int = 0) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://lake/{number}/".ljust(size, "x"))


def fill(lake: Lake, seed: int, steps: int = 40, label: str = "") -> None:
    """Random commits, branches, tags, merges, deletions, notes, horizons; with another label, once more."""
    chosen = random.Random(seed)
    for number in range(steps):
        branches = [branch.name for branch in lake.branches()]
        branch = chosen.choice(branches)
        what = chosen.randrange(9)
        if what < 4:
            size = chosen.choice([0, 0, 2000, 300_000])
            key = f"t{chosen.randrange(8)}"
            lake.branch(branch).put(key, table(number, size), idempotency_key=f"key-{label}{number}")
        elif what == 4:
            lake.branch(f"b/{label}{number}").create(at=branch)
        elif what == 5:
            lake.tag(f"v{label}{number}").create(at=branch)
        elif what == 6 and branch != "main":
            lake.branch(branch).delete()
        elif what == 7 and branch != "main":
            try:
                lake.merge(branch, "main")
            except MergeConflict:
                lake.merge(branch, "main", default="force")
        else:
            references = lake.kernel.references
            head = references.get_reference(branch).head
            references.create_reference(f"n/{label}{number}", Kind.BRANCH, head, note=b"note %d" % number)
    lake.keep_history("b/*", max_commits=50, max_days=30)
    lake.branch(f"gone{label}").create().delete()
    lake.branch(f"last{label}").create(at="main")


def new_store(seed: int, steps: int = 40) -> MemoryStore:
    """A store with such a lake."""
    store = MemoryStore()
    fill(open_lake(store, author="ada", settings=QUICK), seed, steps)
    return store


def like(store: MemoryStore) -> MemoryStore:
    """Another store that holds the same."""
    other = MemoryStore()
    other._objects, other._rows = dict(store._objects), dict(store._rows)
    return other


def reopened(store: Store) -> Lake:
    return open_lake(store, create=False, author="ada", settings=QUICK)


def move(source: Store, target: Store, *, fork: bool = False) -> str:
    """Move or copy a lake, and return its id at the target."""
    return (copy_lake if fork else move_lake)(source, target, author="mover", settings=QUICK).id


def rows(store: Store) -> dict[str, Row]:
    """The rows of all references, byte for byte."""
    kinds = (Kind.BRANCH, Kind.TAG, Kind.DELETED)
    return {row.name: row for kind in kinds for row in store.references(kind.value, limit=100_000)}


def objects(store: Store) -> dict[ObjectId, bytes]:
    return store.fetch([one.id for one in scan_all(store)])


class Killed(BaseException):
    """The process ends here."""


class Life:
    """Of a process, which ends at one of its calls: before it is carried out, or after."""

    def __init__(self, calls: int | None = None, is_after: bool = False) -> None:
        self.calls = 0
        self._last, self._is_after = calls, is_after
        self._lock = Lock()

    def live(self, call: Callable[[], T]) -> T:
        with self._lock:
            self.calls += 1
            if self._last is not None and (self.calls > self._last):
                if self.calls == self._last + 1 and self._is_after:
                    call()
                raise Killed
            return call()


class MortalStore(WrappedStore):
    """A store as a process sees it that is killed at one of its calls."""

    def __init__(self, inner: Store, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        return self._life.live(lambda: self.inner.fetch(ids))

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._life.live(lambda: self.inner.store(objects))

    def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
        return self._life.live(lambda: wish.advance_turn(turn))

    def reference(self, name: str) -> Row | None:
        return self._life.live(lambda: self.inner.reference(name))

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        return self._life.live(lambda: self.inner.references(kind, prefix, after, limit))

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        return self._life.live(lambda: self.inner.scan(after, limit))
