"""Ending a log at a version: all that tells of earlier ones goes, whatever its age.

A checkpoint of the version is written first, without tombstones: these name files, and values of partitions,
that are gone. Then commits, checkpoints, compactions and checksums of earlier versions go, and commits that
were staged for them. Later checkpoints have tombstones of earlier versions: one of the newest version takes
their place. The commit of the version itself goes if it removed files. Sidecars may belong to a checkpoint
that somebody writes at this moment, so they stay for as long as that may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.formats.delta.log.cleanup import older_files, remove, unnamed_sidecars
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Cdc, Remove, parse_commit
from penstock.formats.delta.protocol.names import (
    LOG,
    SIDECARS,
    ClassicName,
    CommitName,
    PartName,
    StagedName,
    UuidName,
    parse_name,
)
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

_CHECKPOINTS: Final = (ClassicName, PartName, UuidName)


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a log, and what is to follow."""

    removed: int
    waiting: tuple[BucketEntry, ...]
    """Sidecars that no checkpoint names and that are too young to go."""


def end_log(place: Place, first: int, *, now_ms: int, grace_ms: int) -> LogEnd:
    """Let the log at a place begin with a published version. May be done any number of times.

    Raises as ``load_snapshot`` if that version cannot be read as a whole: then nothing is removed.
    """
    # Here, since it loads the library for Parquet, which takes a while and much memory.
    from penstock.formats.delta.log.checkpoint_writing import write_checkpoint

    old: list[BucketEntry] = []
    commit = str(CommitName(first))
    if place.size(commit) is not None:  # or the checkpoint was made, and the commit went
        made = write_checkpoint(place, load_snapshot(PlaceFiles(place), first), now_ms, anew=True)
        fresh = None if made is None else made.name
        # Others of this version, in parts or under names of their own, have tombstones.
        old += [one for one in _own_checkpoints(place, first) if one.key != fresh]
    old += earlier_files(place, first)
    if later := [one for one in place.list(LOG) if _is_later_checkpoint(one.key, first)]:
        newest = load_snapshot(PlaceFiles(place))
        made = write_checkpoint(place, newest, now_ms, anew=True)
        fresh = None if made is None else made.name
        old += [one for one in later if one.key != fresh]
    remove(place, [one.key for one in old])
    old += _own_traces(place, first)
    kept = place.list(LOG)
    sidecars = unnamed_sidecars(place, kept, (now_ms + grace_ms) * 1000)
    due = [one for one in sidecars if one.modified_us < (now_ms - grace_ms) * 1000]
    place.delete([one.key for one in due])
    due_keys = {one.key for one in due}
    waiting = tuple(one for one in sidecars if one.key not in due_keys)
    return LogEnd(removed=len(old) + len(due), waiting=waiting)


def earlier_files(place: Place, first: int) -> list[BucketEntry]:
    """All of a log that tells of versions before one."""
    listed = place.list(LOG)
    staged = [one for one in listed if _is_staged_before(one.key, first)]
    return [*older_files(listed, first), *staged]


def _is_later_checkpoint(name: str, first: int) -> bool:
    found = parse_name(name)
    return isinstance(found, _CHECKPOINTS) and found.version > first


def _own_traces(place: Place, first: int) -> list[BucketEntry]:
    """Remove the commit of the version if it removed files, and whatever was staged for it; what went.

    It tells of rows that are gone, and a reader who begins at the checkpoint does not need it. There is a
    later version: nobody finds a table by a checkpoint alone.
    """
    (data,) = place.read([str(CommitName(first))])
    if data is None or not any(isinstance(one.action, Remove | Cdc) for one in parse_commit(data)):
        return []
    found = ((one, parse_name(one.key)) for one in place.list(LOG))
    names = CommitName, StagedName
    gone = [one for one, name in found if isinstance(name, names) and name.version == first]
    place.delete([one.key for one in gone])
    return gone


def _is_staged_before(name: str, first: int) -> bool:
    found = parse_name(name)
    return isinstance(found, StagedName) and found.version < first


def _own_checkpoints(place: Place, first: int) -> Sequence[BucketEntry]:
    """All that is a checkpoint of the version, or a part of one."""
    found = ((one, parse_name(one.key)) for one in place.list(LOG) if not one.key.startswith(SIDECARS))
    return [one for one, name in found if isinstance(name, _CHECKPOINTS) and name.version == first]
