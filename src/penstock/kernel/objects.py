"""Reading objects: checked against their ids, decoded once, kept in memory while they are in use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping
from typing import Any

import msgspec

from penstock.errors import Damaged
from penstock.model.content import AnyContent, decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, hash_object
from penstock.model.objects import (
    BEGINNING,
    EMPTY_LEAF,
    EMPTY_ROOT,
    OBJECT_MAX_BYTES,
    AnyObject,
    Blob,
    CommitObject,
    Intent,
    Large,
    Leaf,
    Node,
    Value,
    decode_intents,
    decode_object,
)
from penstock.stores.port import Store

CACHE_MAX_BYTES = 64 * 1024 * 1024
INLINE_MAX_BYTES = 1024
"""A value of at most this size lives in its leaf."""
BLOB_MAX_BYTES = OBJECT_MAX_BYTES - 64


class Objects:
    """The objects of a store, through a cache bounded by bytes.

    The cache is two generations of a dictionary, each of at most half of the bytes (or of one object, if that
    is larger): when the younger one is full, the older one is dropped. What is found in the older one counts
    again in the younger one. That needs no lock, and no bookkeeping on a hit in the younger one.
    """

    def __init__(self, store: Store, cache_max_bytes: int = CACHE_MAX_BYTES) -> None:
        self.store = store
        self._half_max_bytes = cache_max_bytes // 2
        self._young: dict[ObjectId, Any] = {EMPTY_ROOT: EMPTY_LEAF, NO_COMMIT: BEGINNING}
        self._young_sizes: dict[ObjectId, int] = {}
        self._young_bytes = 0
        self._old: tuple[dict[ObjectId, Any], dict[ObjectId, int]] = ({}, {})

    def get_cached(self, wanted_id: ObjectId) -> Any | None:
        """The object if it is in memory."""
        decoded = self._young.get(wanted_id)
        if decoded is None:
            old, sizes = self._old
            decoded = old.get(wanted_id)
            if decoded is not None:
                self.cache_decoded(wanted_id, decoded, sizes.get(wanted_id, 0))
        return decoded

    def get(self, object_id: ObjectId) -> Any:
        """The object ``object_id``; ``Damaged`` if it is not there."""
        decoded = self.get_cached(object_id)
        return decoded if decoded is not None else self.get_many((object_id,))[object_id]

    def find(self, ids: Collection[ObjectId]) -> dict[ObjectId, Any]:
        """The objects with these ids, as many as exist, with one request for what is not in memory."""
        objects = {
            wanted_id: decoded for wanted_id in ids if (decoded := self.get_cached(wanted_id)) is not None
        }
        if len(objects) < len(ids):
            missing = {wanted_id for wanted_id in ids if wanted_id not in objects}
            for fetched_id, data in self.store.fetch(missing).items():
                objects[fetched_id] = self.decode_and_cache(fetched_id, data)
        return objects

    def get_many(self, ids: Collection[ObjectId]) -> dict[ObjectId, Any]:
        """The objects with these ids; ``Damaged`` if one is not there."""
        objects = self.find(ids)
        for wanted_id in ids:
            if wanted_id not in objects:
                raise Damaged(f"object {wanted_id.hex()} is missing", objects=[wanted_id.hex()])
        return objects

    def fetch_stored_bytes(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        """The objects with these ids as they are stored, as many as exist: to be read in another process."""
        return self.store.fetch(ids)

    def get_commit(self, commit_id: ObjectId) -> CommitObject:
        commit = self.get(commit_id)
        if not isinstance(commit, CommitObject):
            raise Damaged(f"object {commit_id.hex()} is not a commit", objects=[commit_id.hex()])
        return commit

    def decode_and_cache(self, new_id: ObjectId, data: bytes) -> AnyObject:
        """Decode an object, checked against its id, and keep it in memory."""
        decoded = check_object(new_id, data)
        self.cache_decoded(new_id, decoded, len(data))
        return decoded

    def cache_decoded(self, new_id: ObjectId, decoded: Any, size: int) -> None:
        """Keep a decoded object in memory, which has so many bytes in the store."""
        if self._young_bytes + size > self._half_max_bytes:
            self._old = self._young, self._young_sizes
            self._young, self._young_sizes = {EMPTY_ROOT: EMPTY_LEAF, NO_COMMIT: BEGINNING}, {}
            self._young_bytes = 0
        self._young[new_id], self._young_sizes[new_id] = decoded, size
        self._young_bytes += size

    def read_value(self, value: Value) -> bytes:
        """The bytes of a value, wherever they are."""
        if isinstance(value, bytes):
            return value
        blobs = self.get_many(value.parts)
        if not all(isinstance(blob, Blob) for blob in blobs.values()):
            raise Damaged(
                "a large value is stored in several objects, and one of them is not a blob",
                objects=[p.hex() for p in value.parts],
            )
        data = b"".join(blobs[part].data for part in value.parts)
        if len(data) != value.size:
            raise Damaged(
                f"a large value, stored in several objects, should have {value.size} bytes, but has "
                f"{len(data)}; 'penstock fsck' lists all damage",
                objects=[p.hex() for p in value.parts],
            )
        return data

    def read_intents(self, commit: CommitObject) -> tuple[Intent, ...]:
        """What formats were asked to do in a commit."""
        if commit.intents == b"":
            return ()
        intents: tuple[Intent, ...] = decode_intents(self.read_value(commit.intents))
        return intents


class PendingObjects(Objects):
    """Objects of a store together with some that are not stored yet."""

    def __init__(self, below: Objects, fresh: MutableMapping[ObjectId, bytes] | None = None) -> None:
        self.store = below.store
        self._below = below
        self._stored: Objects = below._stored if isinstance(below, PendingObjects) else below
        """Those of the store, below all that is pending."""
        self.fresh: MutableMapping[ObjectId, bytes] = {} if fresh is None else fresh
        self._decoded: dict[ObjectId, Any] = {}

    @property
    def _young(self) -> dict[ObjectId, Any]:  # type: ignore[override]
        return self._stored._young

    def get_cached(self, wanted_id: ObjectId) -> Any | None:
        decoded = self._decoded.get(wanted_id)
        if decoded is None and wanted_id in self.fresh:
            decoded = self._decoded[wanted_id] = check_object(wanted_id, self.fresh[wanted_id])
        return decoded or self._below.get_cached(wanted_id)

    def get(self, object_id: ObjectId) -> Any:
        # The busiest line of a commit: the same as `get_cached`, without the calls.
        decoded = self._decoded.get(object_id) or self._stored._young.get(object_id)
        return decoded if decoded is not None else super().get(object_id)

    def cache_decoded(self, new_id: ObjectId, decoded: Any, size: int) -> None:
        self._below.cache_decoded(new_id, decoded, size)

    def fetch_stored_bytes(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        data_by_id = {wanted_id: self.fresh[wanted_id] for wanted_id in ids if wanted_id in self.fresh}
        return data_by_id | self._below.fetch_stored_bytes(
            [wanted_id for wanted_id in ids if wanted_id not in data_by_id]
        )

    def add_object(self, value: AnyObject) -> ObjectId:
        """Take in a new object, and return its id."""
        data = encode(value)
        new_id = hash_object(data)
        self.fresh[new_id] = data
        self._decoded[new_id] = value
        return new_id

    def add_node(self, packed: bytes, expanded: Leaf | Node) -> ObjectId:
        """Take in a tree node, of which bytes and memory hold different forms (see ``expand_keys``)."""
        node_id = hash_object(packed)
        self.fresh[node_id] = packed
        self._decoded[node_id] = expanded
        return node_id

    def note_stored(self) -> None:
        """What was pending is stored now."""
        for new_id, data in self.fresh.items():
            decoded = self._decoded.get(new_id)
            if (
                decoded is None
            ):  # a format's, of which nodes of its trees are what its next change begins with
                decoded = expand_keys(decode_object(data))
                if not isinstance(decoded, Leaf | Node):
                    continue
            self._below.cache_decoded(new_id, decoded, len(data))
        self.fresh, self._decoded = {}, {}


def check_object(expected_id: ObjectId, data: bytes) -> AnyObject:
    """Decode an object's bytes; ``Damaged`` if they are not what was written."""
    return expand_keys(check_stored(expected_id, data))


def check_stored(expected_id: ObjectId, data: bytes) -> AnyObject:
    """The same, as the bytes have it: a tree node's keys are without the prefix that they share."""
    try:
        decoded: AnyObject = decode_object(data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(
            f"object {expected_id.hex()} cannot be read: {problem}", objects=[expected_id.hex()]
        ) from None
    if hash_object(data) != expected_id and type(decoded).__name__ != "Receipt":
        raise Damaged(
            f"object {expected_id.hex()} is corrupt: its bytes do not match its id",
            objects=[expected_id.hex()],
        )
    return decoded


def check_bytes(expected_id: ObjectId, data: bytes) -> None:
    """``Damaged`` if an object's bytes are not what was written. It is decoded only if its id is no hash."""
    if hash_object(data) != expected_id:
        check_object(expected_id, data)


def expand_keys(decoded: AnyObject) -> AnyObject:
    """A tree node with its keys whole, as it is used in memory; everything else as it is."""
    if isinstance(decoded, Leaf | Node) and decoded.prefix:
        prefix = decoded.prefix
        keys = [prefix + key for key in decoded.keys]
        if isinstance(decoded, Leaf):
            return Leaf(b"", keys, decoded.values)
        return Node(decoded.level, b"", keys, decoded.children)
    return decoded


def split_value(data: bytes) -> tuple[Value, dict[ObjectId, bytes]]:
    """The value under which bytes are kept in a tree, and the blobs to be stored for it."""
    return (data, {}) if len(data) <= INLINE_MAX_BYTES else split_blobs(data)


def split_blobs(data: bytes) -> tuple[Large, dict[ObjectId, bytes]]:
    """Bytes as blobs, which have to be stored, and the value that names them."""
    blobs: dict[ObjectId, bytes] = {}
    parts = []
    for start in range(0, len(data), BLOB_MAX_BYTES):
        blob = encode(Blob(data[start : start + BLOB_MAX_BYTES]))
        parts.append(hash_object(blob))
        blobs[parts[-1]] = blob
    return Large(len(data), tuple(parts)), blobs


def list_blobs_of_values(values: Iterable[Value | None]) -> list[ObjectId]:
    """The blobs that some values are made of."""
    return [part for value in values if isinstance(value, Large) for part in value.parts]


def read_content(objects: Objects, value: Value | None) -> AnyContent | None:
    """The content behind a value."""
    return None if value is None else decode_content(objects.read_value(value))
