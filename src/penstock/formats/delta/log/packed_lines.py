"""Lines of the log about files, kept in a tenth of the memory that they would take as values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.formats.delta.protocol.actions import ACTION_NAMES, Add, Remove
from penstock.model.decoders import get_json_decoder

PACK_BYTES: Final = 1024 * 1024
"""How many bytes of lines are packed together."""

FileActionT = TypeVar("FileActionT", Add, Remove)


class PackedLines(Generic[FileActionT]):
    """Lines that are known to be well-formed, with an action of one kind each, compressed by the megabyte."""

    def __init__(self, kind: type[FileActionT], pack_bytes: int = PACK_BYTES) -> None:
        self._kind: type[FileActionT] = kind
        self._pack_bytes = pack_bytes
        self._packs: list[bytes] = []
        self._open: list[bytes] = []
        self._open_bytes = 0

    def add_line(self, line: bytes) -> None:
        self._open.append(line)
        self._open_bytes += len(line)
        if self._open_bytes >= self._pack_bytes:
            self._packs.append(zlib.compress(b"\n".join(self._open), level=1))
            self._open, self._open_bytes = [], 0

    def add_all(self, lines: bytes) -> None:
        """Add lines that are put together already, without an end of the last one."""
        self._packs.append(zlib.compress(lines, level=1))

    def __iter__(self) -> Iterator[bytes]:
        for pack in self._packs:
            yield from zlib.decompress(pack).split(b"\n")
        yield from self._open

    def read_actions(self) -> Iterator[FileActionT]:
        """What the lines say, a pack at a time."""
        return chain.from_iterable(map(self.read_pack, range(self.pack_count)))

    @property
    def pack_count(self) -> int:
        """How many packs there are. The last one is of lines that are not packed yet."""
        return len(self._packs) + 1

    def read_pack(self, number: int) -> list[FileActionT]:
        """What the lines of one pack say."""
        is_open = number == len(self._packs)
        lines = b"\n".join(self._open) if is_open else zlib.decompress(self._packs[number])
        return list(map(attrgetter(ACTION_NAMES[self._kind]), _DECODERS[self._kind].decode_lines(lines)))

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return sum(map(len, self._packs)) + self._open_bytes


def parse_adds(lines: bytes) -> list[Add] | None:
    """The files that lines add, of which each adds one and says nothing else; ``None`` if they are others."""
    try:
        parsed = _ONLY_ADDS.decode_lines(lines)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    # Without an empty line among them, which nobody could split off again.
    return [line.add for line in parsed] if len(parsed) == lines.count(b"\n") + 1 else None


class _AddLine(msgspec.Struct, gc=False):
    add: Add | None = None


class _RemoveLine(msgspec.Struct, gc=False):
    remove: Remove | None = None


class _OnlyAddLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    add: Add


_ONLY_ADDS: Final = get_json_decoder(_OnlyAddLine)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    Add: get_json_decoder(_AddLine),
    Remove: get_json_decoder(_RemoveLine),
}
