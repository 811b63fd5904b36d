"""Cleaning up what lies beside a log: bodies of commits, and the files of branches.

Neither is part of the published log, and no other engine looks at it. A file of these goes when no retained
commit of the lake names it, and when it is so old that no request can be under way that is about to. Files
that are called in another way are somebody else's, and stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.formats.delta.lines.line import FOLDER, Read, line_of
from penstock.formats.delta.log.cleanup import GRACE_MS, Cleanup
from penstock.model.content import DeltaTable
from penstock.model.encoding import ObjectId
from penstock.storage.places import PROBES, Place

_OURS: Final = re.compile(
    rf"{FOLDER}(?:bodies|[0-9a-f]{{32}})/[^/]+\.json|{PROBES}/[0-9a-f]{{32}}|{FOLDER}[0-9a-f.-]+\.probe"
)


def needed_files(contents: Iterable[DeltaTable], read: Read) -> set[str]:
    """The files beside the log that a table needs, by their names below its root.

    ``contents`` is the table at every retained commit of every reference, also where it was dropped: then as
    it was last. ``read`` reads kernel objects.
    """
    names: set[str] = set()
    seen: set[ObjectId] = set()
    for content in contents:
        line = line_of(content)
        new = tuple(run for run in line.runs if run.id not in seen)
        seen.update(run.id for run in new)
        # Of a run all entries count, also those that this very line reads from the log: another may not.
        for version, entry in msgspec.structs.replace(line, published=-1, runs=new).since(-1, read):
            if entry.body:
                names.add(entry.body)
            if entry.line:
                names.add(entry.name(version))
    return names


def plan_scratch(place: Place, needed: Collection[str], *, now_ms: int, grace_ms: int = GRACE_MS) -> Cleanup:
    """What may be deleted beside the log at a place. Nothing is: ``place.delete`` does it, with the names.

    ``needed`` is what ``needed_files`` tells; whatever is newer than the grace time is not judged by it.
    """
    old_us = (now_ms - grace_ms) * 1000
    found = [
        entry
        for entry in place.list(FOLDER)
        if entry.modified_us < old_us and entry.key not in needed and _OURS.fullmatch(entry.key)
    ]
    return Cleanup(
        first=None,
        names=tuple(entry.key for entry in found),
        size_bytes=sum(entry.size for entry in found),
    )
