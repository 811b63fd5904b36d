"""Deletion vectors: which rows of a data file are deleted.

A vector is a roaring bitmap of row numbers, in the portable layout for 64 bits, in a file of vectors or
within the action itself. It comes out as a plain bitmap with the first row in the lowest bit, which is what
Arrow calls an array of booleans; the containers of a roaring bitmap lie in the same order, so that dense
ones are copied as they are.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Mapping
from struct import error
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID, uuid4

import msgspec

from penstock.formats.delta.protocol.actions import Add, DeletionVector
from penstock.formats.roaring import (
    CONTAINER_BYTES,
    CONTAINER_ROWS,
    U32,
    U64,
    LittleEndianReader,
    pack_bitmap,
    read_containers,
)

ReadRange: TypeAlias = Callable[[str, int, int], bytes | None]
"""The bytes of a file from a place on, so many of them; ``None`` if there is no such file."""

MAGIC: Final = 1681511377
FILE_VERSION: Final = 1
FILE_VERSION_BYTES: Final = 1
"""Before the first vector of a file."""
UUID_CHARACTERS: Final = 20
INLINE_MAX_BYTES: Final = 1024
"""Larger vectors go into a file: every reader of the log reads what is part of it."""

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


def read_deleted_rows(
    file: Add, vector: DeletionVector | None, read: ReadRange, locate: Callable[[str], str]
) -> DeletedRows:
    """The rows that a vector deletes of a file. ``ValueError`` as below, or if it is not told how many there
    are."""
    try:
        count = msgspec.json.decode(file.stats or "{}").get("numRecords")
    except (msgspec.MsgspecError, AttributeError):
        count = None
    if not isinstance(count, int):
        raise ValueError(f"the statistics of {file.path} do not contain the number of its rows")
    if vector is None:
        return DeletedRows(0, count)
    return DeletedRows(int.from_bytes(read_deleted_bitmap(vector, count, read, locate), "little"), count)


def inline_vector(rows: DeletedRows) -> DeletionVector | None:
    """A vector that deletes some rows, as part of the action; ``None`` if it would delete none."""
    if not rows.bits:
        return None
    data = _pack_bits(rows.bits)
    text = b85encode(data, pad=True).decode().translate(_TO_Z85)
    return DeletionVector(
        storage_type="i",
        path_or_inline_dv=text,
        size_in_bytes=len(data),
        cardinality=rows.bits.bit_count(),
    )


def write_vectors(
    deleted: Mapping[str, DeletedRows], create: Callable[[str, bytes], object], folder: str = ""
) -> dict[str, DeletionVector]:
    """Vectors that delete some rows of files, by the names of these. Small ones are part of their actions,
    the others go into one file, which ``create`` writes into a folder below the table."""
    vectors: dict[str, DeletionVector] = {}
    data, name = bytearray([FILE_VERSION]), uuid4()
    for path, rows in deleted.items():
        packed = _pack_bits(rows.bits)
        if len(packed) <= INLINE_MAX_BYTES:
            vector = inline_vector(rows)
            assert vector is not None  # which would delete nothing
            vectors[path] = vector
            continue
        prefix = f"{folder.strip('/')}" if folder.strip("/") else ""
        vectors[path] = DeletionVector(
            storage_type="u",
            path_or_inline_dv=prefix + b85encode(name.bytes).decode().translate(_TO_Z85),
            size_in_bytes=len(packed),
            cardinality=rows.bits.bit_count(),
            offset=len(data),
        )
        data += len(packed).to_bytes(4, "big") + packed + zlib.crc32(packed).to_bytes(4, "big")
    stored = next((vector for vector in vectors.values() if vector.storage_type == "u"), None)
    if stored is not None:
        create(get_vector_file_name(stored), bytes(data))
    return vectors


def _pack_bits(bits: int) -> bytes:
    """The data of a vector."""
    bitmap = bits.to_bytes(-(-bits.bit_length() // 8), "little")
    size = CONTAINER_BYTES << 16  # of what one bitmap for 32 bits covers
    data = U32.pack(MAGIC) + U64.pack(-(-len(bitmap) // size))
    for high in range(-(-len(bitmap) // size)):
        data += U32.pack(high) + pack_bitmap(bitmap[high * size : (high + 1) * size])
    return data


def read_deleted_bitmap(
    vector: DeletionVector, rows: int, read: ReadRange, locate: Callable[[str], str]
) -> bytearray:
    """A bitmap of the deleted rows of a file with so many rows.

    ``locate`` turns an absolute address into a name below the table, or refuses it. ``ValueError`` if the
    vector is missing, if its size, checksum or count is not what was noted, or if it names rows that the
    file does not have.
    """
    bitmap = read_uncounted_bitmap(vector, rows, read, locate)
    check_cardinality(vector, int.from_bytes(bitmap, "little").bit_count())
    return bitmap


def read_uncounted_bitmap(
    vector: DeletionVector, rows: int, read: ReadRange, locate: Callable[[str], str]
) -> bytearray:
    """The same for who counts the rows: ``check_cardinality`` says whether it is what was noted."""
    try:
        return _decode_bitmap(_read_vector_bytes(vector, read, locate), rows)
    except (ValueError, error) as problem:
        raise _make_unreadable_error(vector, problem) from None


def check_cardinality(vector: DeletionVector, count: int) -> None:
    """``ValueError`` if a vector does not delete as many rows as the log says."""
    if count != vector.cardinality:
        reason = f"it deletes {count} rows, but the log says {vector.cardinality}"
        raise _make_unreadable_error(vector, reason)


def _make_unreadable_error(vector: DeletionVector, reason: object) -> ValueError:
    return ValueError(f"its deletion vector {vector.unique_id!r} cannot be read: {reason}")


def get_vector_file_name(vector: DeletionVector) -> str:
    """The name, below the table, of a vector's file that a UUID names. ``ValueError`` if there is none."""
    text = vector.path_or_inline_dv
    folder, name = text[:-UUID_CHARACTERS], text[-UUID_CHARACTERS:]
    if folder.startswith("/") or ".." in folder.split("/"):
        raise ValueError(f"its folder {folder!r} is outside the table")
    file_name = f"deletion_vector_{UUID(bytes=_decode_z85(name))}.bin"
    return f"{folder}/{file_name}" if folder else file_name


def _read_vector_bytes(vector: DeletionVector, read: ReadRange, locate: Callable[[str], str]) -> bytes:
    match vector.storage_type:
        case "i":
            # The text covers whole groups of four bytes; what is more than the size is padding.
            data = _decode_z85(vector.path_or_inline_dv)[: vector.size_in_bytes]
            if len(data) != vector.size_in_bytes:
                raise ValueError(f"it has {len(data)} bytes instead of {vector.size_in_bytes}")
            return data
        case "u":
            name = get_vector_file_name(vector)
        case "p":
            name = locate(vector.path_or_inline_dv)
        case other:
            raise ValueError(f"its storage type {other!r} is not one of 'u', 'i' and 'p'")
    start = FILE_VERSION_BYTES if vector.offset is None else vector.offset
    raw_data = read(name, start, vector.size_in_bytes + 8)
    if raw_data is None:
        raise ValueError(f"the file of its deletion vector, {name}, does not exist")
    return _require_checksum(raw_data, vector.size_in_bytes)


def _require_checksum(found: bytes, size: int) -> bytes:
    """The data of a vector in a file: its size stands before it, its checksum behind, both big-endian."""
    if len(found) < size + 8:
        raise ValueError(f"it has {len(found)} bytes instead of {size + 8}")
    noted = int.from_bytes(found[:4], "big")
    if noted != size:
        raise ValueError(f"the file says that it has {noted} bytes, but the log says {size}")
    data = found[4 : size + 4]
    if zlib.crc32(data) != int.from_bytes(found[size + 4 : size + 8], "big"):
        raise ValueError("its checksum does not match")
    return data


def _decode_bitmap(data: bytes, rows: int) -> bytearray:
    reader = LittleEndianReader(data)
    if (magic := reader.read_number(U32)) != MAGIC:
        raise ValueError(f"it begins with {magic} instead of {MAGIC}")
    bitmap = bytearray(-(-rows // CONTAINER_ROWS) * CONTAINER_BYTES)
    for _ in range(reader.read_number(U64)):
        high = reader.read_number(U32)
        for key, container in read_containers(reader):
            start = ((high << 16) | key) * CONTAINER_BYTES
            if start >= len(bitmap):
                raise ValueError(f"it names rows beyond the end of the file, which has {rows}")
            bitmap[start : start + CONTAINER_BYTES] = container
    beyond = int.from_bytes(bitmap[rows // 8 :], "little") >> (rows % 8)
    if beyond:
        raise ValueError(f"it names rows beyond the end of the file, which has {rows}")
    return bitmap


def _decode_z85(text: str) -> bytes:
    """What a text stands for. No five characters begin with ``#``, so some writers (kernel-rs) begin the last
    ones so: with one for each byte that is lacking there of four."""
    tail = text[-5:]
    lacking = len(tail) - len(tail.lstrip("#"))
    if lacking:
        text = text[:-5] + "0" * lacking + tail[lacking:]
    data = b85decode(text.translate(_Z85))
    return data[:-4] + data[-4:][lacking:] if lacking else data
