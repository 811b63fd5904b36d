"""What a transaction has read, kept on its own branch until it lands.

An entry is a content under a reserved key of the branch, so that it is swapped with it, walked over like any
other content, and carried by no merge. Whoever sends the transaction's merge finds the same reads at the same
head, and comes to the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.lake_state import StateView, find_prefix_end
from penstock.kernel.objects import Objects, read_content, split_value
from penstock.kernel.request import Request, RequestTerms
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, Unknown, encode_checked_content
from penstock.model.encoding import ObjectId, encode, hash_object, make_decoder
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import Value
from penstock.model.reads import PARTS_MAX, Read
from penstock.model.references import Event, Reference
from penstock.model.transactions import Isolation

READS: Final = RESERVED + b"read\0"
"""The stored keys that begin so are reads. What tells the transaction's row from any other follows, since
another one may begin where this one has been; then the key that was read, or nothing for the whole lake."""
TYPE_NAME: Final = "PENSTOCK_READ"
"""An entry is a content like any other, so that whatever walks over the map can read it."""
PART_MAX_CHARS: Final = 4096
"""A part that takes more words counts as all of its table."""
NOTED_MAX: Final = 10_000
"""So many reads are noted at once."""
MESSAGE_OF_READS: Final = "read "
"""How the message of a commit begins that only notes what a transaction has read."""
TOLD_MAX: Final = 5
"""So many of them are named in the message of their commit."""
_NO_TABLE: Final = UUID(int=0)
"""An entry is no table, but a content has an id."""


class ReadEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a transaction has read at a key."""

    parts: tuple[str, ...] | None = ()
    """Of what the key holds, in order; ``None`` if all of it, or that it holds nothing."""
    is_listed: bool = False
    """Whether the names at and below the key were looked at."""

    @property
    def is_opened(self) -> bool:
        """Whether more than the name was looked at."""
        return self.parts is None or bool(self.parts)

    def combine_reads(self, other: ReadEntry) -> ReadEntry:
        """What was read if both were."""
        parts: tuple[str, ...] | None = None
        if self.parts is not None and other.parts is not None:
            parts = tuple(sorted({*self.parts, *other.parts}))
        if parts is not None and len(parts) > PARTS_MAX:
            parts = None
        return ReadEntry(parts, self.is_listed or other.is_listed)

    def list_reads(self, key: Key | None) -> Iterator[Read]:
        """The entry of a key, told one by one."""
        if self.is_listed:
            yield Read(key=key, is_listing=True)
        for part in (None,) if self.parts is None else self.parts:
            yield Read(key=key, part=part)


Entries = Mapping[bytes, ReadEntry]
"""By the stored key that was read; nothing stands for the lake as a whole."""


class TransactionReads(NamedTuple):
    """What a transaction has read, and what of it has to be so still where it lands."""

    base: ObjectId
    """The target's head when it began, which it has seen ever since."""
    isolation: Isolation
    entries: Entries

    @property
    def lists(self) -> bool:
        """Whether names that were looked at have to be the same still."""
        return self.isolation is Isolation.SERIALIZABLE and any(
            entry.is_listed for entry in self.entries.values()
        )


def gather_entries(reads: Sequence[Read]) -> dict[bytes, ReadEntry]:
    """The entries that tell of some reads; ``InvalidRequest`` for what cannot be one."""
    if len(reads) > NOTED_MAX:
        raise InvalidRequest(f"a request can record at most {NOTED_MAX} reads, got {len(reads)}")
    entries: dict[bytes, ReadEntry] = {}
    for read in reads:
        if read.key is None and not read.is_listing:
            raise InvalidRequest(
                "a read must name the table that was read; only a read of names, not of rows, can be of the "
                "whole lake"
            )
        if read.is_listing and read.part is not None:
            raise InvalidRequest(
                f"a recorded read of '{read.key}' is either of a part of the table or a listing of "
                "names, not both"
            )
        stored = b"" if read.key is None else read.key.encode()
        entries[stored] = entries.get(stored, ReadEntry()).combine_reads(_encode_entry(read))
    return entries


def _encode_entry(read: Read) -> ReadEntry:
    if read.is_listing:
        return ReadEntry(is_listed=True)
    is_whole = not read.part or len(read.part) > PART_MAX_CHARS
    return ReadEntry(None if is_whole else (read.part or "",))


def read_noted_entries(objects: Objects, view: StateView, incarnation: bytes) -> dict[bytes, ReadEntry]:
    """What a transaction has read so far, whose row is of this incarnation and whose branch looks so."""
    start = _make_reads_prefix(incarnation)
    return {
        stored.removeprefix(start): _decode_entry(stored, read_content(objects, value))
        for stored, value in view.scan_entries(start, find_prefix_end(start))
    }


def _make_reads_prefix(incarnation: bytes) -> bytes:
    return READS + incarnation.hex().encode() + b"\0"


class ReadsRequest(Request):
    """Note on a transaction's branch what it is about to read; nothing new leaves no commit."""

    event = Event.COMMIT

    def __init__(self, reads: Sequence[Read], incarnation: bytes, who: str) -> None:
        super().__init__(who, RequestTerms(incarnation=incarnation))
        self._entries, self._start = gather_entries(reads), _make_reads_prefix(incarnation)
        self._meta = CommitMeta(message=_describe_reads(reads), committer=who).check()

    @property
    def fingerprint(self) -> bytes:
        return hash_object(encode(("reads", sorted(self._entries.items()))))

    @property
    def touched_keys(self) -> set[bytes]:
        return {self._start + stored for stored in self._entries}

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:  # noqa: ARG002
        values = chain.view.get_many(self.touched_keys)
        changes: dict[bytes, Value | None] = {}
        blobs: dict[ObjectId, bytes] = {}
        for stored, read in self._entries.items():
            at = self._start + stored
            before = _decode_entry(at, read_content(chain.objects, values.get(at)))
            after = before.combine_reads(read)
            if after != before:
                changes[at], more = split_value(encode_checked_content(_decode_content(after)))
                blobs.update(more)
        return [CommitDraft(changes, self._meta, self.key, blobs=blobs)] if changes else []


def _decode_content(entry: ReadEntry) -> AnyContent:
    return Unknown(id=_NO_TABLE, type_name=TYPE_NAME, payload=encode(entry))


def _decode_entry(stored: bytes, content: AnyContent | None) -> ReadEntry:
    if content is None:
        return ReadEntry()
    try:
        entry: ReadEntry = _decode(content.payload if isinstance(content, Unknown) else b"")
    except msgspec.MsgspecError as problem:
        name = stored.decode(errors="replace")
        raise Damaged(
            f"the record of a transaction's reads at {name!r} cannot be decoded: {problem}"
        ) from None
    return entry


_decode = make_decoder(ReadEntry).decode


def _describe_reads(reads: Sequence[Read]) -> str:
    """The reads, for people."""
    names = list(dict.fromkeys(map(_describe_read, reads)))
    more = len(names) - TOLD_MAX
    return MESSAGE_OF_READS + ", ".join(names[:TOLD_MAX]) + (f" and {more} more" if more > 0 else "")


def _describe_read(read: Read) -> str:
    if not read.is_listing:
        return str(read.key)
    return "names of the lake" if read.key is None else f"names in {read.key}"
