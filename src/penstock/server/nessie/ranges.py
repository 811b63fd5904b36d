"""Ranges of keys: those given, those from one to another, or those below one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, dropwhile, takewhile
from typing import TypeVar

import msgspec

from penstock.errors import Denied
from penstock.lake.answers import CatalogEntry, Difference
from penstock.model.keys import Key

KeyedT = TypeVar("KeyedT", CatalogEntry, Difference)


class KeyRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys a list is about."""

    keys: tuple[Key, ...] = ()
    """Only these; all if there are none."""
    start: Key | None = None
    """The first one that may be listed."""
    stop: Key | None = None
    """The last one."""
    prefix: Key | None = None
    """Only this one, and those below it."""

    def begins_after(self, key: Key) -> bool:
        return self.start is not None and key.encode() < self.start.encode()

    def reaches_to(self, key: Key) -> bool:
        return self.stop is None or key.encode() <= self.stop.encode()

    def is_below_prefix(self, key: Key) -> bool:
        return self.prefix is None or key[: len(self.prefix)] == self.prefix


def list_in_range(
    key_range: KeyRange,
    read: Callable[[tuple[Key, ...]], Iterable[KeyedT]],
    scan: Callable[[Key | None, Key | None], Iterable[KeyedT]],
) -> Iterator[KeyedT]:
    """What is in a range: ``read`` gives single keys, ``scan`` all below a prefix that come after a key."""
    items: Iterable[KeyedT]
    if key_range.keys:
        items = sorted(read(key_range.keys), key=lambda item: item.key.encode())
        items = dropwhile(lambda item: key_range.begins_after(item.key), items)
    elif key_range.start is not None:  # a list goes on after a key, a range begins with one
        items = chain(_read_if_allowed(read, key_range.start), scan(key_range.prefix, key_range.start))
    else:
        items = scan(key_range.prefix, None)
    inside = (item for item in items if key_range.is_below_prefix(item.key))
    return takewhile(lambda item: key_range.reaches_to(item.key), inside)


def _read_if_allowed(read: Callable[[tuple[Key, ...]], Iterable[KeyedT]], key: Key) -> Iterable[KeyedT]:
    """What a key holds that only says where to begin; nothing if the caller may not read it."""
    try:
        return read((key,))
    except Denied:
        return ()
