"""Cleaning up what lies beside a log: bodies of commits, and the files of branches.

Neither is part of the published log, and no other engine looks at it. A file of these goes when no retained
commit of the lake names it, and when it is so old that no request can be under way that is about to. Files
that are called in another way are somebody else's, and stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from penstock.formats.delta.branch_log.branch_log import FOLDER, BranchLogEntry, Read, decode_branch_log
from penstock.formats.delta.log.cleanup import GRACE_MS, LogCleanupPlan
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable
from penstock.storage.places import PROBES, Place

CREATING: Final = f"{FOLDER}creating/"
"""Notes of those who write the first files of a table that is not there yet, each named by its lake's id."""

_OURS: Final = re.compile(
    rf"{FOLDER}(?:bodies|[0-9a-f]{{32}})/[^/]+\.json|{CREATING}[0-9a-f-]{{36}}"
    rf"|{PROBES}/[0-9a-f]{{32}}|{FOLDER}[0-9a-f.-]+\.probe"
)


class UniqueLogEntries:
    """The entries of all lines of a table, each told once, however many contents have it.

    To be given the table at every retained commit of every reference, also where it was dropped: then as it
    was last. ``read`` reads kernel objects.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._runs: set[ObjectId] = set()
        self._told: set[bytes] = set()

    def find_unseen_entries(self, content: DeltaTable) -> Iterator[tuple[int, BranchLogEntry]]:
        """Those of one more content that were not told before, with their versions."""
        line = decode_branch_log(content)
        runs = tuple(run for run in line.runs if run.id not in self._runs)
        self._runs.update(run.id for run in runs)
        # Of a run all entries count, also those that this very line reads from the log: another may not.
        for version, entry in msgspec.structs.replace(line, published=-1, runs=runs).read_entries_after(
            -1, self._read
        ):
            key = version.to_bytes(8, "big") + entry.uuid + entry.line
            if key not in self._told:
                self._told.add(key)
                yield version, entry


def needed_files(contents: Iterable[DeltaTable], read: Read) -> set[str]:
    """The files beside the log that a table needs, by their names below its root.

    ``contents`` are all that ``UniqueLogEntries`` has to be given.
    """
    entries = UniqueLogEntries(read)
    return {
        name
        for content in contents
        for version, entry in entries.find_unseen_entries(content)
        for name in side_files(version, entry)
    }


def side_files(version: int, entry: BranchLogEntry) -> tuple[str, ...]:
    """The files beside the log that one version needs."""
    own = (entry.get_staged_path(version),) if entry.line else ()
    return (*own, entry.body) if entry.body else own


def note_creation(place: Place, lake_id: str) -> None:
    """Leave a note of the lake that a table is to be created in, before any other file is written there.

    By it a sweep knows whose the files are if it never comes to that. ``OutcomeUnknown`` if it may be there
    or not.
    """
    place.put(CREATING + lake_id, b"")


def is_scratch(name: str) -> bool:
    """Whether a name is one that the lake gives to a file beside the log."""
    return _OURS.fullmatch(name) is not None


def plan_scratch(
    place: Place, needed: Collection[str], *, now_ms: int, pinned_us: int = -1, grace_ms: int = GRACE_MS
) -> LogCleanupPlan:
    """What may be deleted beside the log at a place. Nothing is: ``place.delete`` does it, with the names.

    ``needed`` is what ``needed_files`` tells; whatever is newer than the grace time is not judged by it, and
    what was written until ``pinned_us`` stays.
    """
    old_us = (now_ms - grace_ms) * 1000
    entries = [
        entry
        for entry in place.list(FOLDER)
        if pinned_us < entry.modified_us < old_us and entry.key not in needed and is_scratch(entry.key)
    ]
    return LogCleanupPlan(
        first=None,
        names=tuple(entry.key for entry in entries),
        size_bytes=sum(entry.size for entry in entries),
    )
