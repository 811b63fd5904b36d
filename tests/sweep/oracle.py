"""Reachability, told a second time: one object after the other, from the rows down."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.content import Unknown, decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import (
    EMPTY_ROOT,
    AnyObject,
    Blob,
    CommitObject,
    Large,
    Leaf,
    LogEntry,
    Node,
    Receipt,
    Segment,
    Value,
    decode_object,
)
from penstock.model.references import Kind, decode_reference
from penstock.stores.port import Store
from tests.queue.hooks import everything, new_lake

GRACE_S = 1000.0


def reachable(store: Store, further_heads: Iterable[str] = ()) -> set[ObjectId]:
    """The ids of all objects that rows, and some commits besides, lead to."""
    rows, stored = everything(store)
    waiting = [bytes.fromhex(one) for one in further_heads]
    for row in rows.values():
        if row.kind != Kind.LAKE:
            reference = decode_reference(row.data)
            waiting.append(reference.log)
            if row.kind != Kind.DELETED:
                waiting.append(reference.head)
    seen: set[ObjectId] = set()
    while waiting:
        one = waiting.pop()
        if one not in seen and one not in (NO_COMMIT, EMPTY_ROOT):
            seen.add(one)
            waiting += _named_by(decode_object(stored[one]), stored)
    return seen


def _named_by(found: AnyObject, stored: dict[ObjectId, bytes]) -> list[ObjectId]:
    if isinstance(found, LogEntry):
        return [found.previous]
    if isinstance(found, CommitObject):
        segments = [one for one, _ in found.recent]
        return [*found.parents, found.root, *segments, *_parts(found.intents)]
    if isinstance(found, Node):
        return found.children
    if isinstance(found, Leaf | Segment):
        return [one for value in found.values for one in (*_parts(value), *_held(value, stored))]
    assert isinstance(found, Blob)
    return []


def _parts(value: Value | None) -> tuple[ObjectId, ...]:
    return value.parts if isinstance(value, Large) else ()


def _held(value: Value | None, stored: dict[ObjectId, bytes]) -> tuple[ObjectId, ...]:
    if value is None:
        return ()
    data = value if isinstance(value, bytes) else b""
    for part in _parts(value):
        blob = decode_object(stored[part])
        assert isinstance(blob, Blob)
        data += blob.data
    return decode_content(data).objects


def receipts(store: Store) -> set[ObjectId]:
    _, stored = everything(store)
    return {one for one, data in stored.items() if isinstance(decode_object(data), Receipt)}


def ids(store: Store) -> set[ObjectId]:
    return set(everything(store)[1])


def large(number: int, size: int = 5000) -> Unknown:
    """A content that does not fit into a leaf."""
    return Unknown(type_name="LARGE", payload=number.to_bytes(4, "big") * (size // 4))


def reopened(lake: Lake, settings: Settings | None = None) -> Lake:
    """The same lake with nothing in memory, or with other settings."""
    kernel = lake.kernel
    return new_lake(kernel.store, kernel.clock, settings or kernel.settings)
