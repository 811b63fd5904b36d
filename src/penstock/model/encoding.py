"""Canonical bytes, and the ids made of them.

Everything stored is one MessagePack array: every element carries its own length, integers take their
shortest form and maps are sorted, so that equal values have equal bytes. The id of an object is the
SHA-256 of these bytes. Golden vectors in the test suite keep this from drifting.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeAlias

import msgspec

from penstock.model.decoders import get_msgpack_decoder

ObjectId: TypeAlias = Annotated[bytes, "hexadecimal"]
"""32 bytes, SHA-256. People see them as 64 hexadecimal digits."""

NO_COMMIT: ObjectId = hashlib.sha256(b"empty").digest()
"""The head of an empty branch, and the parent of a first commit. Nessie's clients expect this value."""

_encoder = msgspec.msgpack.Encoder(order="deterministic", uuid_format="bytes")

encode = _encoder.encode
"""Canonical bytes of a value."""


def make_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder for canonical bytes of one type."""
    return get_msgpack_decoder(kind)


def hash_object(data: bytes) -> ObjectId:
    """The id of an object with these bytes."""
    return hashlib.sha256(data).digest()


def hash_parts(*parts: bytes | str) -> bytes:
    """A hash over several parts, none of which can run into the next."""
    return hashlib.sha256(encode(parts)).digest()
