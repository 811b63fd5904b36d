"""Protocol Buffers, as far as a manifest is to be read and changed: fields by their numbers, nothing else.

What a field means is not known here, and a message keeps all that it has, known or not, in its order. So a
manifest that a newer Lance has written loses nothing by passing through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

Value: TypeAlias = int | bytes

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_VARINT_MAX_BYTES: Final = 10


class MalformedMessage(ValueError):
    """Bytes that are no message."""


class FieldNumber(NamedTuple):
    """A field of a message: an integer where it is a variable-length one, its bytes otherwise."""

    number: int
    kind: int
    value: Value


class ProtobufMessage(tuple[FieldNumber, ...]):
    """A message: its fields in the order in which they are written."""

    __slots__ = ()

    @staticmethod
    def decode(data: bytes) -> ProtobufMessage:
        """``MalformedMessage`` if the bytes are none."""
        return ProtobufMessage(_decode_fields(data))

    @staticmethod
    def from_fields(*fields: tuple[int, Value | str]) -> ProtobufMessage:
        """A message of these numbers and values."""
        return ProtobufMessage(_encode_field(number, value) for number, value in fields)

    def encode(self) -> bytes:
        packed = bytearray()
        for number, kind, value in self:
            packed += _encode_varint(number << 3 | kind)
            if isinstance(value, int):
                packed += _encode_varint(value)
                continue
            if kind == BYTES:
                packed += _encode_varint(len(value))
            packed += value
        return bytes(packed)

    def get_number(self, number: int) -> int | None:
        """The integer of a field, the last one if it is there several times; ``None`` if it is not."""
        values = [value for which, kind, value in self if which == number and kind == VARINT]
        return values[-1] if values and isinstance(values[-1], int) else None

    def get_text(self, number: int) -> str | None:
        """The text of a field. ``MalformedMessage`` if it is not UTF-8."""
        values = self.get_values(number)
        try:
            return values[-1].decode() if values else None
        except UnicodeDecodeError:
            raise MalformedMessage(f"field {number} is not UTF-8") from None

    def get_values(self, number: int) -> list[bytes]:
        """The bytes of a field, as often as it is there."""
        return [value for which, _, value in self if which == number and isinstance(value, bytes)]

    def get_message(self, number: int) -> ProtobufMessage | None:
        """The message in a field. ``MalformedMessage`` if there is something else."""
        values = self.get_values(number)
        return ProtobufMessage.decode(values[-1]) if values else None

    def replace_field(self, number: int, *values: Value | str) -> ProtobufMessage:
        """The message with these values of a field instead of those that it has, where the first one was."""
        place = next((at for at, field in enumerate(self) if field.number == number), len(self))
        fields = (_encode_field(number, value) for value in values)
        rest = [field for field in self[place:] if field.number != number]
        return ProtobufMessage((*self[:place], *fields, *rest))


def _encode_field(number: int, value: Value | str) -> FieldNumber:
    if isinstance(value, int):
        return FieldNumber(number, VARINT, value)
    return FieldNumber(number, BYTES, value.encode() if isinstance(value, str) else value)


def _decode_fields(data: bytes) -> Iterator[FieldNumber]:
    # A commit reads two manifests of each of its tables, of which most numbers are a single byte.
    at, end, made = 0, len(data), tuple.__new__
    while at < end:
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _read_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield made(FieldNumber, (tag >> 3, kind, value))
            continue
        if kind == BYTES:
            size, at = _read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise MalformedMessage(f"there is no field of kind {kind}")
        stop = at + size
        if stop > end:
            raise MalformedMessage("a field ends after its message")
        yield made(FieldNumber, (tag >> 3, kind, data[at:stop]))
        at = stop


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for shift, byte in enumerate(data[at : at + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    raise MalformedMessage("a number does not end")


def _encode_varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def pack_numbers(values: Iterable[int]) -> bytes:
    """Integers in one field, as a list of them is written."""
    return b"".join(_encode_varint(value) for value in values)


def unpack_numbers(data: bytes) -> Iterator[int]:
    """The integers of a list in one field. ``MalformedMessage`` if it is none."""
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value
