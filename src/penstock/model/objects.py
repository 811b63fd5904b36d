"""The objects a store keeps: immutable values, each named by the hash of its canonical bytes.

Each is an array whose first element tells what it is. Fields are only ever added at the end, with a
default, so that older objects keep their bytes and their ids.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from penstock.model.encoding import NO_COMMIT, ObjectId, encode, hash_object, make_decoder

OBJECT_MAX_BYTES: Final = 256 * 1024
"""No object is larger, so that a lake fits every store it may move to."""


class Large(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Stands for a value that is too large to be kept in place: its size and the blobs it is made of."""

    size: int
    parts: tuple[ObjectId, ...]


Value: TypeAlias = bytes | Large


class Blob(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="blob"):
    """Bytes of a large value, or bytes that a format has the kernel carry."""

    data: bytes

    @property
    def held(self) -> tuple[ObjectId, ...]:
        """Objects that the bytes refer to; they live as long as this one does."""
        return ()


class Holder(Blob, frozen=True, array_like=True, gc=False, tag="holder"):
    """Bytes that refer to further objects. Apart from ``Blob``, so that one that does not keeps its id."""

    held: tuple[ObjectId, ...] = ()


class Leaf(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="leaf"):
    """The lowest nodes of a tree: keys, without the prefix they share, and their values."""

    prefix: bytes
    keys: list[bytes]
    values: list[Value]


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="node"):
    """An inner node of a tree: for each child its last key (without the shared prefix) and its id."""

    level: int
    prefix: bytes
    keys: list[bytes]
    children: list[ObjectId]


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="segment"):
    """Changes not yet folded into the tree, in the order they were made; ``None`` deletes."""

    keys: list[bytes]
    values: list[Value | None]


class Intent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a format was asked to do to a key, kept so that a merge can replay it.

    An opaque one says that the key was brought into a given state instead, which cannot be replayed.
    """

    key: bytes
    format: str
    data: bytes
    opaque: bool = False


class CommitObject(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="commit", kw_only=True):
    """A commit: one immutable map of the whole lake, and how it came about.

    The map is the tree ``root`` with the changes of ``recent`` on top: of each segment the first so many.
    ``jump`` is an ancestor chosen so that any ancestor is reached in O(log n) steps (see ``history``).
    """

    parent: ObjectId = NO_COMMIT
    further_parents: tuple[ObjectId, ...] = ()
    jump: ObjectId = NO_COMMIT
    depth: int = 0
    """How many commits lead here by first parents."""
    generation: int = 0
    """One more than the highest of any parent."""
    merges: int = 0
    """How many commits on the way here by first parents have further parents."""
    root: ObjectId
    recent: tuple[tuple[ObjectId, int], ...] = ()
    time_us: int = 0
    committer: str = ""
    authors: tuple[str, ...] = ()
    author_time_us: int = 0
    signed_off_by: tuple[str, ...] = ()
    message: str = ""
    properties: dict[str, tuple[str, ...]] = {}
    key: str = ""
    """The idempotency key of the request."""
    intents: Value = b""
    """The encoded intents; nothing if there are none."""

    @property
    def parents(self) -> tuple[ObjectId, ...]:
        """All parents; none for a first commit."""
        return ((self.parent,) if self.parent != NO_COMMIT else ()) + self.further_parents


class Landed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request of a batch, as the ref log remembers it: its idempotency key and its last commit."""

    kind: str
    key: str
    author: str
    commit: ObjectId
    count: int = 1


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="log", kw_only=True):
    """One swap of a reference. The chain of these is the reference's log; ``jump`` skips along it."""

    previous: ObjectId
    jump: ObjectId
    position: int
    time_us: int
    kind: str
    name: str
    incarnation: bytes
    before: ObjectId
    after: ObjectId
    who: str = ""
    key: str = ""
    landed: tuple[Landed, ...] = ()

    @property
    def parent(self) -> ObjectId:
        return self.previous

    @property
    def depth(self) -> int:
        return self.position


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="receipt"):
    """Where to look for the outcome of a request: not named by its own hash but by its idempotency key."""

    request: bytes
    position: int
    time_us: int


AnyObject: TypeAlias = Blob | Holder | Leaf | Node | Segment | CommitObject | LogEntry | Receipt

EMPTY_LEAF: Final = Leaf(b"", [], [])
EMPTY_ROOT: Final[ObjectId] = hash_object(encode(EMPTY_LEAF))
"""The root of a map that holds nothing. It is never stored."""

BEGINNING: Final = CommitObject(root=EMPTY_ROOT)
"""What ``NO_COMMIT`` stands for: the empty lake, before any commit. It is never stored."""

decode_object = make_decoder(AnyObject).decode
decode_intents = make_decoder(tuple[Intent, ...]).decode
