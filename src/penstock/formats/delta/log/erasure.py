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

from penstock.formats.delta.log.cleanup import older_files, remove_log_files, unnamed_sidecars
from penstock.formats.delta.log.log_files import PlaceFiles
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


class ErasedLogFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a log, and what is to follow."""

    removed: int
    waiting: tuple[BucketEntry, ...]
    """Sidecars that no checkpoint names and that are too young to go."""


def end_log(place: Place, first_version: int, *, now_ms: int, grace_ms: int) -> ErasedLogFiles:
    """Let the log at a place begin with a published version. May be done any number of times.

    Raises as ``load_snapshot`` if that version cannot be read as a whole: then nothing is removed.
    """
    # Here, since it loads the library for Parquet, which takes a while and much memory.
    from penstock.formats.delta.log.checkpoint_writer import write_checkpoint

    old: list[BucketEntry] = []
    commit = str(CommitName(first_version))
    if place.size(commit) is not None:  # or the checkpoint was made, and the commit went
        made = write_checkpoint(place, load_snapshot(PlaceFiles(place), first_version), now_ms, anew=True)
        fresh = None if made is None else made.name
        # Others of this version, in parts or under names of their own, have tombstones.
        old += [
            own_checkpoint
            for own_checkpoint in _list_own_checkpoints(place, first_version)
            if own_checkpoint.key != fresh
        ]
    old += earlier_files(place, first_version)
    if later := [entry for entry in place.list(LOG) if _is_later_checkpoint(entry.key, first_version)]:
        newest = load_snapshot(PlaceFiles(place))
        made = write_checkpoint(place, newest, now_ms, anew=True)
        fresh = None if made is None else made.name
        old += [entry for entry in later if entry.key != fresh]
    remove_log_files(place, [entry.key for entry in old])
    old += _remove_commit_and_staged_files(place, first_version)
    entries = place.list(LOG)
    sidecars = unnamed_sidecars(place, entries, (now_ms + grace_ms) * 1000)
    due = [sidecar for sidecar in sidecars if sidecar.modified_us < (now_ms - grace_ms) * 1000]
    place.delete([entry.key for entry in due])
    due_keys = {entry.key for entry in due}
    waiting = tuple(sidecar for sidecar in sidecars if sidecar.key not in due_keys)
    return ErasedLogFiles(removed=len(old) + len(due), waiting=waiting)


def earlier_files(place: Place, first_version: int) -> list[BucketEntry]:
    """All of a log that tells of versions before one."""
    listed = place.list(LOG)
    staged = [entry for entry in listed if _is_staged_before(entry.key, first_version)]
    return [*older_files(listed, first_version), *staged]


def _is_later_checkpoint(name: str, first_version: int) -> bool:
    uuid_name = parse_name(name)
    return isinstance(uuid_name, _CHECKPOINTS) and uuid_name.version > first_version


def _remove_commit_and_staged_files(place: Place, first_version: int) -> list[BucketEntry]:
    """Remove the commit of the version if it removed files, and whatever was staged for it; what went.

    It tells of rows that are gone, and a reader who begins at the checkpoint does not need it. There is a
    later version: nobody finds a table by a checkpoint alone.
    """
    (data,) = place.read([str(CommitName(first_version))])
    if data is None or not any(
        isinstance(action_line.action, Remove | Cdc) for action_line in parse_commit(data)
    ):
        return []
    uuid_names = ((entry, parse_name(entry.key)) for entry in place.list(LOG))
    names = CommitName, StagedName
    gone = [entry for entry, name in uuid_names if isinstance(name, names) and name.version == first_version]
    place.delete([entry.key for entry in gone])
    return gone


def _is_staged_before(name: str, first_version: int) -> bool:
    staged_name = parse_name(name)
    return isinstance(staged_name, StagedName) and staged_name.version < first_version


def _list_own_checkpoints(place: Place, first_version: int) -> Sequence[BucketEntry]:
    """All that is a checkpoint of the version, or a part of one."""
    uuid_names = (
        (entry, parse_name(entry.key)) for entry in place.list(LOG) if not entry.key.startswith(SIDECARS)
    )
    return [
        entry
        for entry, name in uuid_names
        if isinstance(name, _CHECKPOINTS) and name.version == first_version
    ]
