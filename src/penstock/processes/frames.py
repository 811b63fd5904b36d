"""Frames: what a process of a pool and the one that started it say to each other over a socket.

A frame is its kind, a small head and bytes. A file may come with it, as an open descriptor.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from penstock.model.decoders import get_msgpack_decoder

HEAD: Final = struct.Struct("<BIQ")
"""Kind, bytes of the head, bytes after it."""
HEAD_MAX_BYTES: Final = 1024 * 1024
ASKED_MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit of a question that a process sends while it works."""
INLINE_MAX_BYTES: Final = 1024 * 1024
"""Of what it gives at the end. More comes as a file."""
CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class FrameKind(IntEnum):
    """What a frame is."""

    READY = 1
    """The process can be given work."""
    TASK = 2
    """The name of a function and a head of its own in the head, its argument after it."""
    ASKED = 3
    """The function asks something, and waits for an answer."""
    ANSWER = 4
    DONE = 5
    """What the function gave: a head of its own, and bytes or a file."""
    REFUSED = 6
    """One of ``penstock.errors``, as JSON."""
    FAILED = 7
    """Another exception, as text."""
    TOO_LARGE = 8
    """There was not enough memory."""
    BEGUN = 9
    """The function is called next. Without it, it never was."""


class Frame(NamedTuple):
    """One of them, as it arrived."""

    kind: FrameKind
    head: bytes
    data: bytes
    files: Sequence[int] = ()
    """Open descriptors."""


class BrokenConnection(Exception):
    """The other side has ended, or does not keep to what frames are."""


class ReceiveBytes(Protocol):
    """Gives as many bytes as are asked for, and descriptors that came with the first of them."""

    def __call__(self, size: int, /) -> tuple[bytes, Sequence[int]]: ...


def encode_call_head(function: str, head: bytes) -> bytes:
    """The head of a frame that has a function called."""
    return msgspec.msgpack.encode((function, head))


def decode_call_head(head: bytes) -> tuple[str, bytes]:
    """The function, and the head that it is given."""
    return get_msgpack_decoder(tuple[str, bytes]).decode(head)


def pack_head(kind: FrameKind, head: bytes = b"", size: int = 0) -> bytes:
    """The beginning of a frame, up to its bytes."""
    return HEAD.pack(kind, len(head), size) + head


def receive_frame(receiving: ReceiveBytes, data_max_bytes: int) -> Frame:
    """The next frame; ``BrokenConnection`` if it is none, or larger than it may be."""
    start, files = receiving(HEAD.size)
    kind, head_size, size = HEAD.unpack(start)
    if head_size > HEAD_MAX_BYTES or size > data_max_bytes or kind not in FrameKind._value2member_map_:
        raise BrokenConnection(
            f"an invalid message between the server and a row worker: kind {kind}, "
            f"{head_size} and {size} bytes"
        )
    head = receiving(head_size)[0] if head_size else b""
    return Frame(FrameKind(kind), head, receiving(size)[0] if size else b"", files)
