"""Notes of forks: a fork goes on with the files of its source, and the source cannot know which.

A fork has the warehouse of its source, and its commits name files that lie there: data files, and the logs
and manifests that lead to them. The source's own commits may stop naming them. So whoever forks a lake leaves
a note in the pool, ``forks/<name>``; and as long as it is there, nothing of another lake removes a file that
is older than the fork. The note comes before anything is copied, without a time: until the fork is complete,
everything stays. A lake without a warehouse has its notes in each of its roots.

A lake that was moved, or restored in the place of another one, leaves a note of where it is as well: whoever
restores a backup of it elsewhere finds by it that there is an owner of the tables. No sweep heeds that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.kernel.description import read_description
from penstock.model.decoders import get_json_decoder
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import POOL, Place, Places
from penstock.stores.port import Store

FORKS: Final = "forks/"
"""The folder of notes below the pool."""
FOREVER_US: Final = 2**63 - 1


class ForkNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a note."""

    forked_from: str
    """The id of the source."""
    target: str
    """Where the fork is, for people."""
    lake: str = ""
    """The id of the fork, once it is complete."""
    until_us: int | None = None
    """Files that were written until then may be the fork's; nothing while it is under way."""

    @property
    def is_of_owner(self) -> bool:
        """Whether it is the note of a lake that took the place of its source."""
        return self.lake == self.forked_from


class ForkNotes:
    """The notes of forks where a lake has its tables."""

    def __init__(self, store: Store, places: Places) -> None:
        self._store, self._places = store, places

    def find_pinned_time_us(self) -> int:
        """Up to which time files may be those of a fork other than this lake itself; -1 if there is none.

        A note that cannot be read may be of any fork. Files that were moved to other roots tell no time any
        more. ``PenstockError`` if notes cannot be looked for.
        """
        others = [*self._read_others_notes()]
        if others and read_description(self._store).moved_roots:
            return FOREVER_US
        return max((_latest_file_time_us(entry, note) for _, entry, note in others), default=-1)

    def describe_others(self) -> Iterator[tuple[str, str]]:
        """Where each fork is other than this lake itself, and the address of its note."""
        for address, _, note in self._read_others_notes():
            yield "an unknown location" if note is None else note.target, address

    def note_begun_fork(self, forked_from: str, target: str, found: str | None) -> None:
        """Note that a fork is under way, unless it is noted as complete: then the lake that was ``found`` at
        the target is the one in the note.

        A fork that was there before, and was removed, does not count: its time is over by now.
        """
        for pool in self._open_pools():
            (data,) = pool.read([_note_name(target)])
            earlier_note = _decode_note(data) if data is not None else None
            if found is None or earlier_note is None or earlier_note.lake != found:
                note = ForkNote(forked_from=forked_from, target=target)
                pool.put(_note_name(target), msgspec.json.encode(note))

    def note_complete_fork(self, forked_from: str, target: str, lake_id: str, now_us: int) -> None:
        """Note that a fork is complete, and since when; unless that is noted."""
        for pool in self._open_pools():
            (data,) = pool.read([_note_name(target)])
            if data is None or (earlier_note := _decode_note(data)) is None or earlier_note.lake != lake_id:
                note = ForkNote(forked_from=forked_from, target=target, lake=lake_id, until_us=now_us)
                pool.put(_note_name(target), msgspec.json.encode(note))

    def note_owner(self, lake_id: str, target: str, now_us: int, *, is_certain: bool = True) -> None:
        """Note that a lake is at a place and owns its tables there. If it was a fork, it is none any more.

        A lake that may yet not get there is noted only where no note is: that one may be of a fork in use.
        """
        for pool in self._open_pools():
            (data,) = pool.read([_note_name(target)])
            earlier_note = _decode_note(data) if data is not None else None
            is_noted = earlier_note is not None and earlier_note.lake == lake_id and earlier_note.is_of_owner
            if data is None or (is_certain and not is_noted):
                note = ForkNote(forked_from=lake_id, target=target, lake=lake_id, until_us=now_us)
                pool.put(_note_name(target), msgspec.json.encode(note))

    def list_owner_places(self, lake_id: str) -> list[str]:
        """The places to which a lake came as the owner of its tables."""
        notes = (note for pool in self._open_pools() for _, note in _read_notes(pool))
        return sorted({note.target for note in notes if note and note.is_of_owner and note.lake == lake_id})

    def _open_pools(self) -> Iterator[Place]:
        lake = read_description(self._store)
        for root in (lake.warehouse,) if lake.warehouse else lake.roots:
            yield self._places.open_place(f"{root.rstrip('/')}/{POOL}")

    def _read_others_notes(self) -> Iterator[tuple[str, BucketEntry, ForkNote | None]]:
        """The address of each note that is not this lake's own, and the note if it can be read."""
        lake_id = read_description(self._store).id
        for pool in self._open_pools():
            for entry, note in _read_notes(pool):
                if note is None or (note.lake != lake_id and not note.is_of_owner):
                    yield f"{pool.url.rstrip('/')}/{entry.key}", entry, note


def _read_notes(pool: Place) -> Iterator[tuple[BucketEntry, ForkNote | None]]:
    """All notes in a pool; ``None`` for one that cannot be read."""
    entries = [*pool.entries(FORKS)]
    for entry, data in zip(entries, pool.read([entry.key for entry in entries]), strict=True):
        if data is not None:
            yield entry, _decode_note(data)


def _latest_file_time_us(entry: BucketEntry, note: ForkNote | None) -> int:
    """Files have their times from the storage, as the note has, and the lake's clock may be behind that."""
    return FOREVER_US if note is None or note.until_us is None else max(note.until_us, entry.modified_us)


def _note_name(target: str) -> str:
    return FORKS + hashlib.blake2b(target.encode(), digest_size=16).hexdigest()


def _decode_note(data: bytes) -> ForkNote | None:
    try:
        return get_json_decoder(ForkNote).decode(data)
    except msgspec.MsgspecError:
        return None
