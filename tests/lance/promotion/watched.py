"""Storage of tables in which something happens when files are written, or are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from penstock.storage.buckets import Bucket
from penstock.storage.local import LocalBucket
from penstock.storage.places import SCRATCH, Places

Happens = Callable[[str], None]


class WatchedPlaces(Places):
    """Places on a disk. ``before`` and ``after`` are called with the name of every file that is created, in
    a thread of the bucket; what they raise is what its writer is told."""

    def __init__(self, before: Happens = lambda _: None, after: Happens = lambda _: None) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.lock = Lock()

    def open_disk(self, root: Path) -> Bucket:
        return _WatchedBucket(root, self)


class _WatchedBucket(LocalBucket):
    def __init__(self, root: Path, places: WatchedPlaces) -> None:
        super().__init__(root, scratch=SCRATCH, threads=places._threads, follows_links=False)
        self._watched = places

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        for key, _ in items:
            await self._run_in_thread(self._watched.before, key)
        count = await super().put_all(items)
        for key, _ in items[:count]:
            with self._watched.lock:
                self._watched.created.append(key)
            await self._run_in_thread(self._watched.after, key)
        return count

    async def delete(self, keys: Sequence[str]) -> None:
        with self._watched.lock:
            self._watched.deleted.extend(keys)
        await super().delete(keys)
