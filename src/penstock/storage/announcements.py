"""Deleting from a bucket while others write to it, though no deletion can be made conditional.

A *sweeper* announces the keys it wants to delete (one object below ``sweep/``), waits, looks at every key
again, deletes those that did not change, and withdraws the announcement. A *writer* reads the
announcements, and keeps away from a key that is about to go. Let W be the wait, the same for all who use the
bucket. The writer's side of the bargain is:

1. A view of the announcements is read whole before the writes that rely on it begin. It counts as taken when
   its reading began, and it is good for W from then.
2. A write of a key that the view holds counts only if the storage's own clock, asked after the write was
   answered, shows that the announcement is younger than ``EARLY_WAITS`` × W. Otherwise the writer waits until
   the key is not announced any more, and writes it again.
3. A write that is answered after its view went bad does not count, and is done again with a new view.
4. Every write of a key changes its tag.

And the sweeper's:

5. It looks at a key again no sooner than W after its announcement was acknowledged, and deletes the key only
   if its tag is the one it saw before it announced.
6. It sends no deletion later than ``DELETING_WAITS`` × W after it began to announce, and withdraws only after
   every deletion was answered. If one was not, the announcement stays until it is void.

*Why no key is lost.* Take a write of a key that counted, answered at time a, with a view taken at v, so that
a < v + W; and a deletion of that key under an announcement acknowledged at t. If t > v, the sweeper's second
look is later than t + W > v + W > a: it sees the new tag. If t < v and the announcement was still there when
the view was read, the view holds it, and the write counted only because it was done before the second look.
If it was withdrawn before that, all its deletions were done before the write began, and the write found the
key missing and made it anew.

*Crashes and clocks.* A sweeper that died leaves its announcement, and writers must not wait for ever. An
announcement is void once it is ``VOID_WAITS`` × W old. Ages are differences of two times that the storage
itself gave, that of the announcement and that of something written later; every other span is measured by
one machine's own clock, which also runs while the machine sleeps. No two machines' clocks are compared. What
is assumed is that no request is carried out longer after it was sent than the time between 6 and void.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.errors import Damaged, Unavailable
from penstock.model.clock import elapsed_s
from penstock.model.decoders import get_msgpack_decoder
from penstock.storage.buckets import Bucket, UnansweredWrite

FOLDER: Final = "sweep"
DELETING_WAITS: Final = 5
VOID_WAITS: Final = 10
CHUNK: Final = 500
PAUSE_MAX_S: Final = 0.5
ROUNDING_S: Final = 0.005
EARLY_WAITS: Final = 0.75
PROBES: Final = "probe"

Check = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Which of some keys are still to be deleted."""


class AnnouncementView(NamedTuple):
    """The announcements as they were at some moment after ``taken_s``."""

    taken_s: float
    keys: frozenset[str]
    """All that is announced."""
    announcements: dict[str, int]
    """Every announcement, and when it was made by the storage's clock."""
    contents: dict[str, frozenset[str]]
    """What each of them announces."""


class Announcements:
    """The announcements of one bucket. To be used within one event loop."""

    def __init__(self, bucket: Bucket, wait_s: float) -> None:
        self._bucket, self.wait_s = bucket, wait_s
        self._view: AnnouncementView | None = None
        self._contents: dict[str, frozenset[str]] = {}
        self._reading: asyncio.Task[AnnouncementView] | None = None

    def latest_view(self, age_max_s: float) -> AnnouncementView | None:
        """The newest view there is, if it is not older than that."""
        if self._view is None or elapsed_s() - self._view.taken_s > age_max_s:
            return None
        return self._view

    async def read_view_if_older(self, age_max_s: float) -> AnnouncementView:
        """A view that is not older than that, read now if there is none."""
        while (view := self.latest_view(age_max_s)) is None:
            # Whoever comes while a reading is under way takes part in it, if it began late enough.
            await asyncio.shield(self._begin_reading())
        return view

    def _begin_reading(self) -> asyncio.Task[AnnouncementView]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_view())
        return self._reading

    async def read_new_view(self) -> AnnouncementView:
        """A view whose reading begins now."""
        begun_s = elapsed_s()
        while (view := self._view) is None or view.taken_s < begun_s:
            await asyncio.shield(self._begin_reading())
        return view

    async def _read_view(self) -> AnnouncementView:
        taken_s = elapsed_s()
        marks = {entry.key: entry.modified_us async for entry in self._bucket.list(FOLDER)}
        contents = await asyncio.gather(*map(self._read_announcement, marks))
        # One that is gone already was withdrawn: all its deletions are done.
        here = {key: keys for key, keys in zip(marks, contents, strict=True) if keys is not None}
        self._contents = here
        times_us = {key: marks[key] for key in here}
        self._view = AnnouncementView(taken_s, frozenset().union(*here.values()), times_us, here)
        return self._view

    async def _read_announcement(self, key: str) -> frozenset[str] | None:
        content = self._contents.get(key)
        if content is not None:
            return content
        stored = await self._bucket.get(key)
        if stored is None:
            return None
        try:
            return frozenset(get_msgpack_decoder(list[str]).decode(stored.data))
        except msgspec.MsgspecError:
            raise Damaged(f"{key} in {self._bucket.url} cannot be read", key=key) from None

    async def wait_until_free(self, keys: Collection[str], longest_s: float) -> AnnouncementView:
        """Until none of the keys is announced; ``Unavailable`` if that takes too long."""
        deadline_s = elapsed_s() + longest_s
        while True:
            view = await self.read_new_view()
            held = view.keys.intersection(keys)
            if not held or await self._drop_void(view, await self._storage_time_us()):
                if not held:
                    return view
                continue
            if elapsed_s() > deadline_s:
                raise Unavailable(
                    f"a sweep of {self._bucket.url} is about to delete files that this write needs; try "
                    "again when it has ended",
                    keys=sorted(held),
                )
            await asyncio.sleep(min(PAUSE_MAX_S, self.wait_s / 8))

    async def were_written_before_view(self, view: AnnouncementView, keys: Collection[str]) -> bool:
        """Whether writes that were answered, of keys that the view holds, were surely done before any
        sweeper takes its second look."""
        now_us = await self._storage_time_us()
        latest_us = int(EARLY_WAITS * self.wait_s * 1e6) - 2 * self._bucket.resolution_us
        return all(
            now_us - made_us < latest_us
            for key, made_us in view.announcements.items()
            if not view.contents[key].isdisjoint(keys)
        )

    async def _storage_time_us(self) -> int:
        """What the storage's own clock shows now."""
        probe = f"{PROBES}/{secrets.token_hex(16)}"
        try:
            await self._bucket.put(probe, b"")
            entry = await self._bucket.head(probe)
            await self._bucket.delete([probe])
        except UnansweredWrite as problem:
            raise Unavailable(str(problem)) from None
        if entry is None:
            raise Unavailable(
                f"{self._bucket.url} does not list an object that was just written, so "
                "files cannot be deleted there safely; nothing was deleted",
                key=probe,
            )
        return entry.modified_us

    async def _drop_void(self, view: AnnouncementView, now_us: int) -> bool:
        """Remove announcements that somebody left behind; whether there were any."""
        limit_us = now_us - int(VOID_WAITS * self.wait_s * 1e6) - self._bucket.resolution_us
        void = [key for key, made_us in view.announcements.items() if made_us < limit_us]
        if void:
            await self._withdraw_announcements(void)
        return bool(void)

    async def remove_keys(self, keys: Sequence[str], check: Check) -> int:
        """Announce, wait, check, delete, withdraw; say how many keys were deleted.

        A crash or a lost connection at any point leaves some keys, and perhaps the announcement, behind.
        """
        removed, start = 0, 0
        while start < len(keys):
            count, looked_at = await self._remove_announced_keys(keys[start:], check)
            removed += count
            if looked_at == 0:
                raise Unavailable(
                    f"{self._bucket.url} responds too slowly to delete files safely", url=self._bucket.url
                )
            start += looked_at
        return removed

    async def _remove_announced_keys(self, keys: Sequence[str], check: Check) -> tuple[int, int]:
        """What can be done under one announcement: how many were deleted, of how many looked at."""
        begun_s = elapsed_s()
        mine = f"{FOLDER}/{secrets.token_hex(16)}"
        await self._announce_removal(mine, keys)
        acknowledged_s = elapsed_s()
        removed, looked_at, in_doubt = 0, 0, False
        try:
            view = await self.read_new_view()
            await self._drop_void(view, view.announcements.get(mine, 0))
            await asyncio.sleep(acknowledged_s + self.wait_s - elapsed_s() + ROUNDING_S)
            while looked_at < len(keys):
                part = keys[looked_at : looked_at + CHUNK]
                doomed = await check(part)
                now_s = elapsed_s()
                if not acknowledged_s + self.wait_s < now_s < begun_s + DELETING_WAITS * self.wait_s:
                    break
                in_doubt = True
                await self._bucket.delete(doomed)
                in_doubt = False
                removed += len(doomed)
                looked_at += len(part)
        except UnansweredWrite as problem:
            raise Unavailable(f"{problem}; the next sweep removes the remaining files") from None
        finally:
            if not in_doubt:  # else a deletion may still be done: writers must keep away
                await self._withdraw_announcements([mine])
        return removed, looked_at

    async def _announce_removal(self, key: str, keys: Sequence[str]) -> None:
        content = msgspec.msgpack.encode(list(keys))
        try:
            await self._bucket.put(key, content)
        except UnansweredWrite as problem:
            raise Unavailable(str(problem)) from None

    async def _withdraw_announcements(self, announcements: Sequence[str]) -> None:
        try:
            await self._bucket.delete(announcements)
        except UnansweredWrite:
            return  # it becomes void
