"""Ending a log at a version: all that tells of earlier ones goes, whatever its age.

A checkpoint of the version is written first, without tombstones: these name files, and values of partitions,
that are gone. Then commits, checkpoints, compactions and checksums of earlier versions go, and commits that
were staged for them. Sidecars may belong to a checkpoint that somebody writes at this moment, so they stay
for as long as that may take.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.formats.delta.log.cleanup import older_files, remove, unnamed_sidecars
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.names import LOG, SIDECARS, StagedName, UuidName, parse_name
from penstock.storage.buckets import Entry
from penstock.storage.places import Place


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a log, and what is to follow."""

    removed: int
    waiting: tuple[Entry, ...]
    """Sidecars that no checkpoint names and that are too young to go."""


def end_log(place: Place, first: int, *, now_ms: int, grace_ms: int) -> LogEnd:
    """Let the log at a place begin with a published version. May be done any number of times.

    Raises as ``load_snapshot`` if that version cannot be read as a whole: then nothing is removed.
    """
    # Here, since it loads the library for Parquet, which takes a while and much memory.
    from penstock.formats.delta.log.checkpoint_writing import write_checkpoint

    made = write_checkpoint(place, load_snapshot(PlaceFiles(place), first), now_ms, anew=True)
    fresh = None if made is None else made.name
    # A checkpoint of the second version has a new name; others of this version have tombstones.
    others = [one for one in _own_checkpoints(place, first) if one.key != fresh]
    old = [*earlier_files(place, first), *others]
    remove(place, [one.key for one in old])
    kept = place.list(LOG)
    sidecars = unnamed_sidecars(place, kept, (now_ms + grace_ms) * 1000)
    due = [one for one in sidecars if one.modified_us < (now_ms - grace_ms) * 1000]
    place.delete([one.key for one in due])
    due_keys = {one.key for one in due}
    waiting = tuple(one for one in sidecars if one.key not in due_keys)
    return LogEnd(removed=len(old) + len(due), waiting=waiting)


def earlier_files(place: Place, first: int) -> list[Entry]:
    """All of a log that tells of versions before one."""
    listed = place.list(LOG)
    staged = [one for one in listed if _is_staged_before(one.key, first)]
    return [*older_files(listed, first), *staged]


def _is_staged_before(name: str, first: int) -> bool:
    found = parse_name(name)
    return isinstance(found, StagedName) and found.version < first


def _own_checkpoints(place: Place, first: int) -> Sequence[Entry]:
    """Checkpoints of the version that have names of their own, each beside the others."""
    found = ((one, parse_name(one.key)) for one in place.list(LOG) if not one.key.startswith(SIDECARS))
    return [one for one, name in found if isinstance(name, UuidName) and name.version == first]
