"""Deletion vectors: which rows of a data file are deleted.

A vector is a roaring bitmap of row numbers, in the portable layout for 64 bits, in a file of vectors or
within the action itself. It comes out as a plain bitmap with the first row in the lowest bit, which is what
Arrow calls an array of booleans; the containers of a roaring bitmap lie in the same order, so that dense
ones are copied as they are.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable
from struct import error
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from penstock.formats.delta.protocol.actions import Add, DeletionVector
from penstock.formats.roaring import (
    CONTAINER_BYTES,
    CONTAINER_ROWS,
    U32,
    U64,
    Reader,
    pack_numbers,
    read_containers,
)

ReadRange: TypeAlias = Callable[[str, int, int], bytes | None]
"""The bytes of a file from a place on, so many of them; ``None`` if there is no such file."""

MAGIC: Final = 1681511377
FILE_VERSION_BYTES: Final = 1
"""Before the first vector of a file."""
UUID_CHARACTERS: Final = 20

_Z85: Final = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""From the alphabet of Z85 to the one that Python reads."""
_TO_Z85: Final = {new: old for old, new in _Z85.items()}


class DeletedRows(NamedTuple):
    """Some rows of a file: a number with a bit for each, the first row in the lowest, and how many the file
    has."""

    bits: int
    total: int


def rows_of(
    file: Add, vector: DeletionVector | None, read: ReadRange, locate: Callable[[str], str]
) -> DeletedRows:
    """The rows that a vector deletes of a file. ``ValueError`` as below, or if it is not told how many there
    are."""
    try:
        count = msgspec.json.decode(file.stats or "{}").get("numRecords")
    except (msgspec.MsgspecError, AttributeError):
        count = None
    if not isinstance(count, int):
        raise ValueError(f"the statistics of {file.path} do not tell how many rows it has")
    if vector is None:
        return DeletedRows(0, count)
    return DeletedRows(int.from_bytes(deleted_rows(vector, count, read, locate), "little"), count)


def inline_vector(rows: DeletedRows) -> DeletionVector | None:
    """A vector that deletes some rows, as part of the action; ``None`` if it would delete none."""
    if not rows.bits:
        return None
    bitmap = rows.bits.to_bytes(-(-rows.bits.bit_length() // 8), "little")
    numbers = [
        8 * place + bit for place, byte in enumerate(bitmap) if byte for bit in range(8) if byte >> bit & 1
    ]
    highs = sorted({number >> 32 for number in numbers})
    data = U32.pack(MAGIC) + U64.pack(len(highs))
    for high in highs:
        data += U32.pack(high) + pack_numbers(one & 0xFFFFFFFF for one in numbers if one >> 32 == high)
    text = b85encode(data, pad=True).decode().translate(_TO_Z85)
    return DeletionVector(
        storage_type="i", path_or_inline_dv=text, size_in_bytes=len(data), cardinality=len(numbers)
    )


def deleted_rows(
    vector: DeletionVector, rows: int, read: ReadRange, locate: Callable[[str], str]
) -> bytearray:
    """A bitmap of the deleted rows of a file with so many rows.

    ``locate`` turns an absolute address into a name below the table, or refuses it. ``ValueError`` if the
    vector is missing, if its size, checksum or count is not what was noted, or if it names rows that the
    file does not have.
    """
    try:
        data = _bytes_of(vector, read, locate)
        bitmap = _bitmap(data, rows)
        found = int.from_bytes(bitmap, "little").bit_count()
        if found != vector.cardinality:
            raise ValueError(f"it deletes {found} rows, and {vector.cardinality} were noted")
    except (ValueError, error) as problem:
        raise ValueError(f"its deletion vector {vector.unique_id!r} cannot be read: {problem}") from None
    return bitmap


def vector_file(vector: DeletionVector) -> str:
    """The name, below the table, of a vector's file that a UUID names. ``ValueError`` if there is none."""
    text = vector.path_or_inline_dv
    folder, name = text[:-UUID_CHARACTERS], text[-UUID_CHARACTERS:]
    if folder.startswith("/") or ".." in folder.split("/"):
        raise ValueError(f"its folder {folder!r} leads out of the table")
    found = f"deletion_vector_{UUID(bytes=_z85(name))}.bin"
    return f"{folder}/{found}" if folder else found


def _bytes_of(vector: DeletionVector, read: ReadRange, locate: Callable[[str], str]) -> bytes:
    match vector.storage_type:
        case "i":
            # The text covers whole groups of four bytes; what is more than the size is padding.
            data = _z85(vector.path_or_inline_dv)[: vector.size_in_bytes]
            if len(data) != vector.size_in_bytes:
                raise ValueError(f"{len(data)} bytes are there of {vector.size_in_bytes}")
            return data
        case "u":
            name = vector_file(vector)
        case "p":
            name = locate(vector.path_or_inline_dv)
        case other:
            raise ValueError(f"its storage type {other!r} is none of 'u', 'i' and 'p'")
    start = FILE_VERSION_BYTES if vector.offset is None else vector.offset
    found = read(name, start, vector.size_in_bytes + 8)
    if found is None:
        raise ValueError(f"the file {name} does not exist")
    return _checked(found, vector.size_in_bytes)


def _checked(found: bytes, size: int) -> bytes:
    """The data of a vector in a file: its size stands before it, its checksum behind, both big-endian."""
    if len(found) < size + 8:
        raise ValueError(f"{len(found)} bytes are there of {size + 8}")
    noted = int.from_bytes(found[:4], "big")
    if noted != size:
        raise ValueError(f"the file notes {noted} bytes for it, and the log {size}")
    data = found[4 : size + 4]
    if zlib.crc32(data) != int.from_bytes(found[size + 4 : size + 8], "big"):
        raise ValueError("its checksum does not match")
    return data


def _bitmap(data: bytes, rows: int) -> bytearray:
    reader = Reader(data)
    if (magic := reader.number(U32)) != MAGIC:
        raise ValueError(f"it begins with {magic}, and not with {MAGIC}")
    bitmap = bytearray(-(-rows // CONTAINER_ROWS) * CONTAINER_BYTES)
    for _ in range(reader.number(U64)):
        high = reader.number(U32)
        for key, container in read_containers(reader):
            start = ((high << 16) | key) * CONTAINER_BYTES
            if start >= len(bitmap):
                raise ValueError(f"it names rows of a file that has {rows}")
            bitmap[start : start + CONTAINER_BYTES] = container
    beyond = int.from_bytes(bitmap[rows // 8 :], "little") >> (rows % 8)
    if beyond:
        raise ValueError(f"it names rows of a file that has {rows}")
    return bitmap


def _z85(text: str) -> bytes:
    """What a text stands for. No five characters begin with ``#``, so some writers (kernel-rs) begin the last
    ones so: with one for each byte that is lacking there of four."""
    tail = text[-5:]
    lacking = len(tail) - len(tail.lstrip("#"))
    if lacking:
        text = text[:-5] + "0" * lacking + tail[lacking:]
    data = b85decode(text.translate(_Z85))
    return data[:-4] + data[-4:][lacking:] if lacking else data
