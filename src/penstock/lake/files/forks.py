"""Notes of forks: a fork goes on with the files of its source, and the source cannot know which.

A fork has the warehouse of its source, and its commits name files that lie there. The source's own commits
may stop naming them. So whoever forks a lake leaves a note in the pool, ``forks/<name>``; and as long as it
is there, no sweep of another lake removes a file that is older than the fork. The note comes before anything
is copied, without a time: until the fork is complete, everything stays.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from penstock.model.decoders import json_decoder
from penstock.storage.places import Place

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


class ForkNotes:
    """The notes in a pool."""

    def __init__(self, pool: Place) -> None:
        self._pool = pool

    def pinned_us(self, lake_id: str) -> int:
        """Up to which time files may be those of a fork other than this lake itself; -1 if there is none.

        A note that cannot be read may be of any fork.
        """
        names = [entry.key for entry in self._pool.entries(FORKS)]
        until_us = [-1]
        for data in self._pool.read(names):
            note = _decoded(data) if data is not None else None
            if data is not None and (note is None or note.lake != lake_id):
                until_us.append(FOREVER_US if note is None or note.until_us is None else note.until_us)
        return max(until_us)

    def others(self, lake_id: str) -> list[str]:
        """Where forks are other than this lake itself, as far as their notes can be read."""
        names = [entry.key for entry in self._pool.entries(FORKS)]
        found = [None if data is None else _decoded(data) for data in self._pool.read(names)]
        return [note.target for note in found if note is not None and note.lake != lake_id]

    def begin(self, forked_from: str, target: str, found: str | None) -> None:
        """Note that a fork is under way, unless it is noted as complete: then the lake that was ``found`` at
        the target is the one in the note.

        A fork that was there before, and was removed, does not count: its time is over by now.
        """
        (data,) = self._pool.read([_name(target)])
        known = _decoded(data) if data is not None else None
        if found is None or known is None or known.lake != found:
            note = ForkNote(forked_from=forked_from, target=target)
            self._pool.put(_name(target), msgspec.json.encode(note))

    def complete(self, forked_from: str, target: str, lake_id: str, now_us: int) -> None:
        """Note that a fork is complete, and since when; unless that is noted."""
        (data,) = self._pool.read([_name(target)])
        if data is None or (found := _decoded(data)) is None or found.lake != lake_id:
            note = ForkNote(forked_from=forked_from, target=target, lake=lake_id, until_us=now_us)
            self._pool.put(_name(target), msgspec.json.encode(note))

    def forget(self, target: str) -> None:
        """Remove the note of a fork that is none any more."""
        self._pool.delete([_name(target)])


def _name(target: str) -> str:
    return FORKS + hashlib.blake2b(target.encode(), digest_size=16).hexdigest()


def _decoded(data: bytes) -> ForkNote | None:
    try:
        return json_decoder(ForkNote).decode(data)
    except msgspec.MsgspecError:
        return None
