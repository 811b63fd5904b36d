"""Cleaning up a log: what is so old, or so useless, that nobody will read it any more.

Old files go up to a checkpoint of a published version, which stays with its commit and all after it, so that
readers who only list the log still find the table. Commits that lost, or that are published under their own
name by now, go when no attempt can still be under way: whoever misses one that is published finds it in the
log. What a retained commit of the lake needs is kept, however old: who asks says from which version on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.checkpoint import open_checkpoint
from penstock.formats.delta.log.checksum import count_files
from penstock.formats.delta.log.log_files import LogFile, PlaceFiles
from penstock.formats.delta.log.segments import Checkpoint, whole_checkpoints
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Sidecar
from penstock.formats.delta.protocol.durations import DAY_MS, LOG_RETENTION, duration_ms
from penstock.formats.delta.protocol.names import (
    LOG,
    SIDECARS,
    ClassicName,
    CommitName,
    CompactionName,
    StagedName,
    UuidName,
    parse_name,
    sidecar_name,
)
from penstock.formats.delta.protocol.properties import PROTECTED_BEFORE
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

GRACE_MS: Final = DAY_MS
"""No attempt to commit, and no checkpoint in the making, takes as long."""
ENABLED: Final = "delta.enableExpiredLogCleanup"


class LogCleanupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be deleted."""

    first: int | None
    """The first version that can be read afterwards, ``None`` if that does not change."""
    names: tuple[str, ...]
    """Below the table's root."""
    size_bytes: int


def plan_cleanup(
    place: Place,
    properties: Mapping[str, str],
    *,
    published: int,
    keep_from: int,
    now_ms: int,
    pinned_us: int = -1,
    grace_ms: int = GRACE_MS,
) -> LogCleanupPlan:
    """What may be deleted of the log at a place. Nothing is: ``remove_log_files`` does it, with the names.

    ``published`` is the version up to which all commits are known to be in the log, ``keep_from`` the oldest
    version that must stay readable. What was written until ``pinned_us`` stays; the log is not cut if that
    would remove any such file. ``InvalidLog`` if the checkpoint that would be the first cannot be read,
    ``InvalidRequest`` if the table's retention cannot be understood.
    """
    listed = place.list(LOG)
    checkpoint = _find_cut_checkpoint(place.url, listed, properties, min(published, keep_from), now_ms)
    older = [] if checkpoint is None else [*older_files(listed, checkpoint.version)]
    if any(entry.modified_us <= pinned_us for entry in older):
        older = []
    if checkpoint is not None and older:
        # What stands in for all that goes is read as a whole first: there is no other copy.
        count_files(load_snapshot(PlaceFiles(place), checkpoint.version))
    old_us = (now_ms - grace_ms) * 1000
    entries = [
        *older,
        *(
            entry
            for entry in _list_superseded_commits(listed, published, old_us)
            if entry.modified_us > pinned_us
        ),
    ]
    gone = {entry.key for entry in entries}
    sidecars = unnamed_sidecars(place, [entry for entry in listed if entry.key not in gone], old_us)
    entries += (entry for entry in sidecars if entry.modified_us > pinned_us)
    return LogCleanupPlan(
        first=checkpoint.version if checkpoint is not None and older else None,
        names=tuple(entry.key for entry in entries),
        size_bytes=sum(entry.size for entry in entries),
    )


def remove_log_files(place: Place, names: Sequence[str]) -> None:
    """Delete what was planned: commits first, so that none is there whose checkpoint has gone."""
    commits = [name for name in names if isinstance(parse_name(name), CommitName)]
    place.delete(commits)
    place.delete([name for name in names if not isinstance(parse_name(name), CommitName)])


def _find_cut_checkpoint(
    table: str, listed: Sequence[BucketEntry], properties: Mapping[str, str], newest: int, now_ms: int
) -> Checkpoint | None:
    """The checkpoint before which all may go; ``None`` without one, or if the table wants to keep all."""
    kept_ms = duration_ms(properties, LOG_RETENTION)
    if kept_ms is None or properties.get(ENABLED, "true").lower() == "false":
        return None
    # Whole days, so that not every run finds a little more.
    midnight_us = (now_ms - kept_ms) // DAY_MS * DAY_MS * 1000
    commits = sorted(
        (name.version, entry.modified_us)
        for entry in listed
        if isinstance(name := parse_name(entry.key), CommitName)
    )
    last, before_us = -1, -1
    for version, modified_us in commits:
        # As where versions are found by time, none is older than the one before it.
        before_us = max(modified_us, before_us + 1000)
        if version > newest or before_us > midnight_us:
            break
        last = version
    versions = {version for version, _ in commits}
    files = (LogFile(entry.key, entry.size) for entry in listed)
    fitting = [
        checkpoint
        for checkpoint in whole_checkpoints(table, files)
        if checkpoint.version <= last and checkpoint.version in versions
    ]
    return fitting[-1] if fitting and fitting[-1].version >= _oldest_protected_version(properties) else None


def _oldest_protected_version(properties: Mapping[str, str]) -> float:
    """The version before which only all may go; one that is never reached if that cannot be understood."""
    text = properties.get(PROTECTED_BEFORE, "0")
    return int(text) if text.isdecimal() else inf


def older_files(listed: Sequence[BucketEntry], first_version: int) -> Iterator[BucketEntry]:
    """All of the log that is not needed to read a version, at which there is a checkpoint, and later ones."""
    for entry in listed:
        match parse_name(entry.key):
            case None | StagedName():
                continue
            case CompactionName(start, _) if start <= first_version:
                # It is of no use any more to who begins at the checkpoint.
                yield entry
            case name if not isinstance(name, CompactionName) and name.version < first_version:
                yield entry


def _list_superseded_commits(
    listed: Sequence[BucketEntry], published: int, old_us: int
) -> Iterator[BucketEntry]:
    """Staged commits of versions that are in the log already."""
    for entry in listed:
        if is_superseded(entry.key, published) and entry.modified_us < old_us:
            yield entry


def is_superseded(name: str, published: int) -> bool:
    """Whether a name is that of a staged commit which nobody needs once a version is published."""
    parsed = parse_name(name)
    return isinstance(parsed, StagedName) and parsed.version <= published


def unnamed_sidecars(place: Place, kept: Sequence[BucketEntry], old_us: int) -> Sequence[BucketEntry]:
    """Sidecars that no checkpoint names which stays. If one of these cannot be read, it may name any."""
    sidecars = [entry for entry in kept if entry.key.startswith(SIDECARS) and entry.modified_us < old_us]
    if not sidecars:
        return []
    names = [entry.key for entry in kept if isinstance(parse_name(entry.key), ClassicName | UuidName)]
    named: set[str] = set()
    for name in names:
        (data,) = place.read([name])
        try:
            state = () if data is None else open_checkpoint(place.url, name, data).read_state()
            named.update(sidecar_name(action.path) for action in state if isinstance(action, Sidecar))
        except InvalidLog:
            return []
    return [entry for entry in sidecars if entry.key not in named]
