"""How large rows in one of Arrow's IPC formats are once they are unpacked, without unpacking them.

Buffers of a record batch may be packed, each by itself, and each begins with the size that it will have.
Where they are is said by Arrow's metadata, of which just that is read here (``Message.fbs``, ``File.fbs``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

FILE_MAGIC: Final = b"ARROW1"
_CONTINUES: Final = -1
"""Stands before the size of metadata; streams of Arrow before 0.15 have the size alone."""
_DICTIONARY, _RECORDS = 2, 3
_BLOCK_BYTES: Final = 24
_BUFFER_BYTES: Final = 16
_NOT_PACKED: Final = -1


class UnreadableRows(Exception):
    """Bytes are no rows in one of Arrow's IPC formats."""


def measure_unpacked_size(data: bytes) -> int:
    """The size of all buffers of an IPC stream or file in bytes; ``UnreadableRows`` if it is neither."""
    try:
        starts = (
            _find_messages_in_file(data) if data.startswith(FILE_MAGIC) else _find_messages_in_stream(data)
        )
        return sum(_measure_message(data, start) for start in starts)
    except (struct.error, IndexError, ValueError) as problem:
        raise UnreadableRows(str(problem)) from None


def _find_messages_in_stream(data: bytes, start: int = 0) -> Iterator[int]:
    """Where each message of a stream begins."""
    while start < len(data):
        at, size = _find_metadata(data, start)
        if size == 0:
            return
        yield start
        body = _find_field(data, _find_root_table(data, at), 3)
        start = at + size + (0 if body is None else _read_number("<q", data, body))


def _find_messages_in_file(data: bytes) -> Iterator[int]:
    """Where each message of a file begins that its footer names, as often as it is named."""
    size = _read_number("<i", data, len(data) - len(FILE_MAGIC) - 4)
    footer = _find_root_table(data, len(data) - len(FILE_MAGIC) - 4 - size)
    for field in (2, 3):
        place = _find_field(data, footer, field)
        if place is not None:
            for block in _list_items(data, place, _BLOCK_BYTES):
                yield _read_number("<q", data, block)


def _measure_message(data: bytes, start: int) -> int:
    at, size = _find_metadata(data, start)
    message, body = _find_root_table(data, at), at + size
    kind, place = _find_field(data, message, 1), _find_field(data, message, 2)
    if kind is None or place is None or data[kind] not in (_DICTIONARY, _RECORDS):
        return 0
    batch = _follow_offset(data, place)
    if data[kind] == _DICTIONARY:
        inside = _find_field(data, batch, 1)
        if inside is None:
            return 0
        batch = _follow_offset(data, inside)
    buffers, is_packed = _find_field(data, batch, 2), _find_field(data, batch, 3) is not None
    if buffers is None:
        return 0
    return sum(
        _measure_buffer(data, buffer, body, is_packed) for buffer in _list_items(data, buffers, _BUFFER_BYTES)
    )


def _measure_buffer(data: bytes, place: int, body: int, is_packed: bool) -> int:
    offset, length = struct.unpack_from("<qq", data, place)
    if not is_packed or not length:
        return _require_size(length)
    size = _read_number("<q", data, body + _require_size(offset))
    return _require_size(length - 8 if size == _NOT_PACKED else size)


def _require_size(size: int) -> int:
    if size < 0:
        raise ValueError(f"a buffer has {size} bytes")
    return size


# -- what Arrow's metadata is made of ----------------------------------------------------------------------


def _find_metadata(data: bytes, start: int) -> tuple[int, int]:
    """Where the metadata of a message is, and how many bytes it has: none at the end of a stream."""
    size = _read_number("<i", data, start)
    if size == _CONTINUES:
        start += 4
        size = _read_number("<i", data, start)
    return start + 4, _require_size(size)


def _read_number(kind: str, data: bytes, offset: int) -> int:
    if offset < 0:
        raise ValueError(f"a place {offset}")
    value: int = struct.unpack_from(kind, data, offset)[0]
    return value


def _follow_offset(data: bytes, offset: int) -> int:
    return offset + _read_number("<I", data, offset)


def _find_root_table(data: bytes, start: int) -> int:
    return _follow_offset(data, start)


def _find_field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table is; ``None`` if it has its default."""
    fields = table - _read_number("<i", data, table)
    place = 4 + 2 * number
    if place >= _read_number("<H", data, fields):
        return None
    offset = _read_number("<H", data, fields + place)
    return table + offset if offset else None


def _list_items(data: bytes, offset: int, size: int) -> Iterator[int]:
    start = _follow_offset(data, offset)
    count = _read_number("<I", data, start)
    if start + 4 + count * size > len(data):
        raise ValueError(f"a list of {count} items is longer than the data")
    return iter(range(start + 4, start + 4 + count * size, size))
