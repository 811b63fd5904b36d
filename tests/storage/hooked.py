"""A directory as a bucket that lets a test step in at a chosen request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.storage.buckets import BucketEntry, Condition, EntityTag, TaggedContent, UnansweredWrite
from penstock.storage.local import LocalBucket


class Moment(NamedTuple):
    """The request that is about to be carried out, or was: ``before put objects``."""

    when: str
    what: str
    folder: str


class HookedBucket(LocalBucket):
    """Calls what a test asked for, once, when a moment comes; the request waits until it returns."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.met: list[Moment] = []
        self._acts: dict[Moment, list[Callable[[], object]]] = {}
        self._lost: list[Moment] = []

    def at(self, moment: str, act: Callable[[], object]) -> None:
        """``act`` runs in a thread of its own, so it may use other handles, or wait for other threads."""
        self._acts.setdefault(Moment(*moment.split()), []).append(act)

    def lose(self, what: str) -> None:
        """The next answer to such a request (``put rows``) is lost, after it was carried out."""
        self._lost.append(Moment("after", *what.split()))

    async def _meet(self, when: str, what: str, key: str) -> None:
        moment = Moment(when, what, key.partition("/")[0])
        self.met.append(moment)
        acts = self._acts.get(moment)
        if acts:
            await asyncio.to_thread(acts.pop(0))
        if moment in self._lost:
            self._lost.remove(moment)
            raise UnansweredWrite("the connection was lost")

    async def get(self, key: str) -> TaggedContent | None:
        await self._meet("before", "get", key)
        return await super().get(key)

    async def head(self, key: str) -> BucketEntry | None:
        await self._meet("before", "head", key)
        return await super().head(key)

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        await self._meet("before", "put", key)
        tag = await super().put(key, data, condition)
        await self._meet("after", "put", key)
        return tag

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            await self._meet("before", "delete", keys[0])
        await super().delete(keys)
        if keys:
            await self._meet("after", "delete", keys[0])
