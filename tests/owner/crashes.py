"""Processes that die at a step: each write to the store or to a table's storage is one, and nothing follows.

A step is what another process could see the traces of. Of several files that are written in a row any number
may be there; a write may be done while nobody was told. Whatever the dead process would still have done in a
``finally``, an ``except`` or on being closed does not happen either: every later write of it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

import penstock
from penstock import Settings
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.storage.buckets import Bucket, Condition, EntityTag
from penstock.storage.local import LocalBucket
from penstock.storage.places import SCRATCH, Places
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore, Point
from tests.plugins import plugin_of

DATABASE = "penstock.db"
WRITES = (Point.STORE, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP)


class Died(BaseException):
    """The process ends right here."""


class Life:
    """How many steps a process still has."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.left: int | None = None
        """``None``: as many as it likes."""
        self.is_over = False

    def spend(self, wanted: int) -> int:
        """Take some steps, or as many as are left; with the last one life is over."""
        with self._lock:
            if self.left is None or self.left >= wanted:
                self.left = None if self.left is None else self.left - wanted
                return wanted
            taken, self.left, self.is_over = self.left, 0, True
            return taken

    def step(self) -> None:
        if not self.spend(1):
            self.end()

    def end(self) -> NoReturn:
        raise Died


class MortalBucket(LocalBucket):
    """A directory that is written to by a process with so many steps."""

    def __init__(self, root: Path, life: Life, places: Places) -> None:
        super().__init__(root, scratch=SCRATCH, threads=places._threads)
        self._life = life

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        self._life.step()
        tag = await super().put(key, data, condition)
        self._life.step()
        return tag

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        """One step for each file, and one to tell what came of them."""
        taken = self._life.spend(len(items) + 1)
        if taken <= len(items):
            if taken:
                await super().put_all(items[:taken])
            self._life.end()
        return await super().put_all(items)

    async def delete(self, keys: Sequence[str]) -> None:
        self._life.step()
        await super().delete(keys)
        self._life.step()


def open_mortal(home: Path, life: Life, settings: Settings, author: str, *, catch_up: bool) -> Lake:
    """Open the lake in a directory for somebody who has so many steps."""
    store = FaultyStore(SqliteStore(home / DATABASE), locking=False)
    lake: Lake = penstock.open(store, settings=settings, catch_up=catch_up, author=author)
    places = lake.places

    def open_disk(root: Path) -> Bucket:
        return MortalBucket(root, life, places)

    places.open_disk = open_disk  # type: ignore[method-assign]
    for point in WRITES:
        store.at(point, life.step, times=None)
    return lake


class Process:
    """A process with a lake open. Whatever it does, it does in the thread that asks for it.

    Nothing is published or looked after in the background, so that a number of steps always leads to the same
    place.
    """

    def __init__(self, home: Path, author: str = "somebody") -> None:
        self.life = Life()
        home.mkdir(exist_ok=True)
        quiet = Settings(publish_wait_s=0.0, publish_close_s=0.0)
        self.lake = open_mortal(home, self.life, quiet, author, catch_up=False)
        assert isinstance(self.lake.catalogue, Embedded)
        parts = plugin_of(self.lake.catalogue, DeltaPlugin).parts
        parts.publisher.after_publish = None
        parts.publisher.background = False
        self.owner = parts.owner

    def die_after(self, steps: int | None) -> None:
        """Let it have so many steps more, or as many as it likes."""
        self.life.left = steps

    def end(self) -> None:
        """Let go of what it holds in this one's memory. It writes nothing any more."""
        self.life.left = 0
        with suppress(Died):
            self.lake.close()
