"""Reading chains ahead: commits and log entries by the hundred, where each names only the next one.

Whoever follows a chain learns the id of a link from the one before it, and asks for one object at a time. A
jump (see ``skip_pointers``) leads further back, so that a few requests find all links between it and here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, LogEntry, decode_object
from penstock.stores.port import Store

FEW: Final = 8
"""Whoever asks for more at once does not follow a chain."""
LINKS_MAX: Final = 512
"""How far is read ahead."""


class ReadAhead:
    """Fetches objects, and of chains also what is asked for next. For one thread.

    What was read ahead is handed out once. It is as old as the reading ahead was.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ahead: dict[ObjectId, bytes] = {}

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        """The objects with these ids; those that do not exist are left out."""
        data_by_id = {object_id: self._ahead.pop(object_id) for object_id in ids if object_id in self._ahead}
        missing = [object_id for object_id in ids if object_id not in data_by_id]
        if missing:
            fetched = self._store.fetch(missing)
            data_by_id |= fetched
            if len(missing) <= FEW:
                self._read_ahead(fetched)
        return data_by_id

    def _read_ahead(self, fetched: dict[ObjectId, bytes]) -> None:
        """Read the links before some, level by level, down to a depth. What was left over is dropped."""
        self._ahead = {}
        links = {
            object_id: link for object_id, data in fetched.items() if (link := _decode_link(data)) is not None
        }
        if not links:
            return
        lowest = min(link.depth for link in links.values()) - LINKS_MAX
        seen = {*links}
        while links:
            next_ids = list_next(links.values(), lowest) - seen
            seen |= next_ids
            more = self._store.fetch(next_ids) if next_ids else {}
            self._ahead |= more
            links = {
                object_id: link
                for object_id, data in more.items()
                if (link := _decode_link(data)) is not None
            }


def list_next(links: Iterable[CommitObject | LogEntry], lowest: int) -> set[ObjectId]:
    """The links that some name which are not below a depth: their parents, and where their jumps lead."""
    return {
        further
        for link in links
        for further in (
            link.parent,
            *([link.jump] if link.depth - _measure_jump(link.depth) >= lowest else ()),
        )
        if link.depth - 1 >= lowest and link.depth > 1
    }


def _decode_link(data: bytes) -> CommitObject | LogEntry | None:
    """The link in an object's bytes, if it is one."""
    try:
        decoded = decode_object(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return decoded if isinstance(decoded, CommitObject | LogEntry) else None


def _measure_jump(depth: int) -> int:
    """How far back the jump of a link at a depth leads: the least part of it as a skew-binary number."""
    span = 1
    while span * 2 + 1 <= depth:
        span = span * 2 + 1
    while depth:
        while span > depth:
            span //= 2
        depth -= span
    return span
