"""Roaring bitmaps for 32 bits, in their portable layout: how formats list the deleted rows of a file."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, iter_unpack
from sys import byteorder
from typing import Final

CONTAINER_ROWS: Final = 1 << 16
CONTAINER_BYTES: Final = CONTAINER_ROWS // 8
_ARRAY_MAX: Final = 4096
_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""With runs, offsets are written from so many containers on; without, always."""
U32: Final = Struct("<I")
U64: Final = Struct("<Q")
_HEAD: Final = Struct("<HH")


class LittleEndianReader:
    """Little-endian numbers, one after the other. ``ValueError`` where the data ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take_bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"the bitmap ends at byte {len(self._data)}, but must have {end} bytes")
        data = self._data[self._at : end]
        self._at = end
        return data

    def read_number(self, kind: Struct) -> int:
        value: int = kind.unpack(self.take_bytes(kind.size))[0]
        return value

    def read_short_numbers(self, count: int) -> array[int]:
        """So many numbers of two bytes."""
        values = array("H", self.take_bytes(2 * count))
        if byteorder == "big":
            values.byteswap()
        return values


def read_containers(reader: LittleEndianReader) -> list[tuple[int, bytearray | bytes]]:
    """The containers of a bitmap, each with its key and as a plain bitmap. ``ValueError`` if it is none."""
    cookie = reader.read_number(U32)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = int.from_bytes(reader.take_bytes((count + 7) // 8), "little")
    elif cookie == _COOKIE:
        count, runs = reader.read_number(U32), 0
        if count > CONTAINER_ROWS:
            raise ValueError(f"a bitmap cannot have {count} containers")
    else:
        raise ValueError(f"a Roaring bitmap cannot begin with {cookie}")
    heads = reader.read_short_numbers(2 * count)
    if cookie == _COOKIE or count >= _OFFSETS_FROM:
        reader.take_bytes(4 * count)
    return [
        (heads[2 * place], _read_container(reader, heads[2 * place + 1] + 1, is_runs=bool(runs >> place & 1)))
        for place in range(count)
    ]


def read_numbers(data: bytes) -> Iterator[int]:
    """The numbers in a bitmap, in their order. ``ValueError`` if the bytes are none."""
    for key, container in read_containers(LittleEndianReader(data)):
        first = key * CONTAINER_ROWS
        for place, byte in enumerate(container):
            if byte:
                yield from (first + 8 * place + bit for bit in range(8) if byte >> bit & 1)


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """The bytes of a bitmap that holds these numbers."""
    containers: dict[int, set[int]] = {}
    for number in numbers:
        containers.setdefault(number // CONTAINER_ROWS, set()).add(number % CONTAINER_ROWS)
    return _pack_containers(
        [(key, len(containers[key]), _pack_container(containers[key])) for key in sorted(containers)]
    )


def pack_bitmap(bitmap: bytes) -> bytes:
    """The bytes of a bitmap that holds the numbers of the bits that are set, the lowest first."""
    containers = []
    for key in range(-(-len(bitmap) // CONTAINER_BYTES)):
        bits = bitmap[key * CONTAINER_BYTES : (key + 1) * CONTAINER_BYTES]
        count = int.from_bytes(bits, "little").bit_count()
        if count > _ARRAY_MAX:
            containers.append((key, count, bits.ljust(CONTAINER_BYTES, b"\0")))
        elif count:
            numbers = {
                8 * place + bit
                for place, byte in enumerate(bits)
                if byte
                for bit in range(8)
                if byte >> bit & 1
            }
            containers.append((key, count, _pack_container(numbers)))
    return _pack_containers(containers)


def _pack_containers(containers: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The bytes of a bitmap, from the key, the cardinality and the bytes of each container."""
    heads = b"".join(_HEAD.pack(key, count - 1) for key, count, _ in containers)
    packed = [data for _, _, data in containers]
    offsets, place = bytearray(), 2 * U32.size + len(heads) + U32.size * len(packed)
    for container in packed:
        offsets += U32.pack(place)
        place += len(container)
    return U32.pack(_COOKIE) + U32.pack(len(packed)) + heads + bytes(offsets) + b"".join(packed)


def _pack_container(numbers: set[int]) -> bytes:
    if len(numbers) <= _ARRAY_MAX:
        values = array("H", sorted(numbers))
        if byteorder == "big":
            values.byteswap()
        return values.tobytes()
    bits = bytearray(CONTAINER_BYTES)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)


def _read_container(reader: LittleEndianReader, cardinality: int, *, is_runs: bool) -> bytearray | bytes:
    if is_runs:
        bits = 0
        pairs = reader.take_bytes(4 * reader.read_short_numbers(1)[0])
        for start, more in iter_unpack("<HH", pairs):
            if start + more >= CONTAINER_ROWS:
                raise ValueError("a run extends beyond the end of its container")
            bits |= ((1 << more + 1) - 1) << start
        return bits.to_bytes(CONTAINER_BYTES, "little")
    if cardinality > _ARRAY_MAX:
        return reader.take_bytes(CONTAINER_BYTES)
    bitmap = bytearray(CONTAINER_BYTES)
    for row in reader.read_short_numbers(cardinality):
        bitmap[row >> 3] |= 1 << (row & 7)
    return bitmap
