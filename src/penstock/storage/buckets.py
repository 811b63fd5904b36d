"""Buckets: bytes by key, with writes that can be made conditional on what is there.

What object storage offers and a directory can be made to offer. All of it is asynchronous, because the
work above consists of many small requests that must be under way at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias


class EntityTag(NamedTuple):
    """Tells one state of a key from every other: the entity tag, and the version where there are such."""

    etag: str | None
    version: str | None = None


class TaggedContent(NamedTuple):
    """What a key holds, and the tag of that state."""

    data: bytes
    tag: EntityTag


class BucketEntry(NamedTuple):
    """A key as it is listed. The time is the storage's own, not this machine's."""

    key: str
    size: int
    modified_us: int
    tag: EntityTag


Condition: TypeAlias = EntityTag | Literal["absent"] | None
"""Under which a key is written: that it is in this state, that there is none, or always."""


class WriteRefused(Exception):
    """The condition of a write did not hold. Nothing was written, by this very request."""


class UnansweredWrite(Exception):
    """A write may have been done, may still be done, or may not: there was no answer to it."""


class Bucket(ABC):
    """A place for bytes by key. Keys are pieces of ASCII text, joined by ``/``."""

    url: str
    """Where it is, without secrets."""
    resolution_us: int
    """How far apart two moments are, at most, that ``Entry.modified_us`` does not tell apart."""
    part: str = ""
    """Which part of a lake it holds, where that is known: ``"storage"`` of tables."""

    @property
    def _part_detail(self) -> dict[str, str]:
        """The same as a detail of errors."""
        return {"part": self.part} if self.part else {}

    @property
    def is_read_only(self) -> bool:
        """Whether this process surely has no right to change anything."""
        return False

    @abstractmethod
    async def get(self, key: str) -> TaggedContent | None:
        """What a key holds now, ``None`` if there is none. ``Unavailable`` if there is no answer."""

    @abstractmethod
    async def head(self, key: str) -> BucketEntry | None:
        """A key without its bytes, ``None`` if there is none. ``Unavailable`` if there is no answer."""

    async def size(self, key: str) -> int | None:
        """How many bytes a key holds, ``None`` if there is none. ``Unavailable`` if there is no answer."""
        entry = await self.head(key)
        return None if entry is None else entry.size

    @abstractmethod
    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Some of the bytes that a key holds, fewer where they end; ``None`` if there is no such key."""

    @abstractmethod
    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        """Write a key durably, if the condition holds, and give its tag. It is sent once, never again.

        ``Refused`` if the condition does not hold, ``UnansweredWrite`` if it cannot be said what happened,
        any of Penstock's own errors if surely nothing was written.
        """

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        """Write keys durably, in their order, until one is there already; say how many were written.

        None of them can be seen before the one ahead of it. ``UnansweredWrite`` if it cannot be said what
        happened to one; those ahead of it are written, and none behind it.
        """
        for count, (key, data) in enumerate(items):
            try:
                await self.put(key, data, "absent")
            except WriteRefused:
                return count
        return len(items)

    @abstractmethod
    async def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write a key durably from pieces that need not be in memory together.

        It appears whole or not at all. Only for a key that nobody else writes: parts of it may be sent
        again. Raises as ``put``.
        """

    @abstractmethod
    async def delete(self, keys: Sequence[str]) -> None:
        """Delete keys; those that do not exist are no mistake. ``UnansweredWrite`` if it cannot be said."""

    @abstractmethod
    def list(self, folder: str, after: str = "") -> AsyncIterator[BucketEntry]:
        """All keys below a folder that come after a key, in the order of their bytes, as they are now."""

    async def tidy(self, before_us: int) -> int:  # noqa: ARG002 - most leave nothing behind
        """Remove what interrupted writes left behind before a time; say how many pieces."""
        return 0

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Let go of all connections."""
