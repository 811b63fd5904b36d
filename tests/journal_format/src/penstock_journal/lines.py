"""What a lake stores of a journal: a number of the version, and each line as an object of the lake's."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import Damaged
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent, Unknown
from penstock.model.decoders import get_msgpack_decoder
from penstock.model.encoding import encode

CONTENT_TYPE: Final = "JOURNAL"


class JournalState(msgspec.Struct, frozen=True, array_like=True):
    """What a content says of a journal. Its lines are the objects that the content holds."""

    version: int = 0


_decode = get_msgpack_decoder(JournalState).decode


def state_of(content: AnyContent | None) -> JournalState:
    """The state of a journal; that of no journal is an empty one."""
    if content is None:
        return JournalState()
    try:
        return _decode(content.payload if isinstance(content, Unknown) else b"")
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the state of a journal cannot be read: {problem}") from None


def make_content(before: AnyContent | None, version: int, held: tuple[bytes, ...]) -> Unknown:
    """A journal with these lines. It keeps the id that it has."""
    identity = None if before is None else before.id
    return Unknown(id=identity, type_name=CONTENT_TYPE, payload=encode(JournalState(version)), held=held)


def read_lines(objects: Objects, content: AnyContent | None) -> list[str]:
    """The lines of a journal, in order."""
    held = () if content is None else content.objects
    return [read_line(objects.get(line).data) for line in held]


def write_line(version: int, text: str) -> bytes:
    """A line as it is stored: with its version, so that equal lines are objects of their own."""
    return f"{version}\t{text}".encode()


def read_line(data: bytes) -> str:
    return data.decode().partition("\t")[2]
