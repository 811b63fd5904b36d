"""The newest versions of tables, kept and moved on: a busy table is not read again for each commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Lock
from typing import Final
from uuid import UUID

from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip, Read, decode_branch_log
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.log.log_files import OverlaidFiles, PlaceFiles
from penstock.formats.delta.log.segments import LogSegment, find_segment
from penstock.formats.delta.log.snapshot import LogSnapshot, replay_segment
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

KEPT_MAX: Final = 16
"""How many versions are kept, of all tables together."""

Tail = Callable[[DeltaTable, int, Read], Iterator[tuple[str, bytes]]]
"""Names and bytes of the commits after a version of a line."""


class DeltaSnapshotCache:
    """Versions of tables as lines tell them, for ordinary threads."""

    def __init__(self, places: Places, tail: Tail) -> None:
        self._places, self._tail = places, tail
        self._kept: OrderedDict[tuple[UUID | None, BranchLogTip], LogSnapshot] = OrderedDict()
        self._lock = Lock()

    def get_snapshot(self, content: DeltaTable, read: Read, version: int | None = None) -> LogSnapshot:
        """The newest version of a line, or an older one, which is not kept."""
        line = decode_branch_log(content)
        if version is not None and version != line.latest:
            return self._load_snapshot(content, _cut_line(content, line, version, read), read)
        key = (content.id, BranchLogTip.from_line(line))
        with self._lock:
            snapshot = self._kept.get(key)
            near = None if snapshot is not None else self._find_nearest(content.id, line, read)
        if snapshot is None:
            snapshot = self._extend_snapshot(near, content, read) or self._load_snapshot(content, line, read)
        self._cache_snapshot(key, snapshot)
        return snapshot

    def _extend_snapshot(
        self, near: LogSnapshot | None, content: DeltaTable, read: Read
    ) -> LogSnapshot | None:
        if near is None:
            return None
        try:
            return near.append_commits(list(self._tail(content, near.version, read)))
        except VersionNotFound:
            return None  # the log was cleaned up in between, behind a checkpoint

    def _find_nearest(self, identity: UUID | None, line: BranchLog, read: Read) -> LogSnapshot | None:
        """The newest version before the line's end that is kept."""
        candidates = [
            (tip.version, snapshot)
            for (of, tip), snapshot in self._kept.items()
            if of == identity and tip.is_on(line, read)
        ]
        return max(candidates, key=lambda one: one[0])[1] if candidates else None

    def _cache_snapshot(self, key: tuple[UUID | None, BranchLogTip], snapshot: LogSnapshot) -> None:
        with self._lock:
            self._kept[key] = snapshot
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)

    def _load_snapshot(self, content: DeltaTable, line: BranchLog, read: Read) -> LogSnapshot:
        files = PlaceFiles(self._places.open_place(content.location))
        count = line.latest - line.published
        commits = dict(islice(self._tail(content, line.published, read), count))
        names = list(commits)
        if line.published >= 0:
            segment = find_segment(files, line.published).append_commits(names)
        else:
            segment = LogSegment(
                table=files.url, version=line.latest, checkpoint=None, names=tuple(names), newest=names[-1]
            )
        return replay_segment(OverlaidFiles(files, commits), segment)


def _cut_line(content: DeltaTable, line: BranchLog, version: int, read: Read) -> BranchLog:
    """A line as if it ended at a version, for reading it."""
    if not 0 <= version <= line.latest:
        raise VersionNotFound(
            f"the table at {content.location} has no version {version}; the newest one is {line.latest}",
            table=content.location,
            version=version,
        )
    return line.truncate_at_version(version, read)
