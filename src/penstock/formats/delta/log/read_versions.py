"""Versions of tables that were read, kept for who reads them again.

A version is known by the files of its log as they are listed each time: where one of them was written anew,
the log is read anew. Whether the table may be read is asked before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final, TypeAlias

from penstock.formats.delta.log.log_files import LogFile, TableFiles
from penstock.formats.delta.log.segments import LogSegment
from penstock.formats.delta.log.snapshot import LogSnapshot, replay_segment
from penstock.formats.delta.protocol.names import END_OF_VERSIONS

MEMORY_MAX_BYTES: Final = 128 * 1024 * 1024
"""How much memory the versions take that are kept, of all tables together."""

_Identity: TypeAlias = "tuple[LogSegment, tuple[LogFile | None, ...]]"


class ListedLog:
    """The files of a table, of which is remembered how they were listed."""

    def __init__(self, files: TableFiles) -> None:
        self._files, self.url = files, files.url
        self._listed: dict[str, LogFile] = {}

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        for file in self._files.list_files(after, before):
            self._listed[file.name] = file
            yield file

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        return self._files.read_files(names)

    def identify_segment(self, segment: LogSegment) -> _Identity:
        """What tells a version from every other one. A file that was not listed has a name of its own."""
        checkpoint = () if segment.checkpoint is None else segment.checkpoint.names
        names = (*checkpoint, *segment.names, segment.newest)
        return segment, tuple(map(self._listed.get, names))


class ReadVersions:
    """Versions of tables by their logs. May be used by many threads."""

    def __init__(self, memory_max_bytes: int = MEMORY_MAX_BYTES) -> None:
        self._memory_max_bytes = memory_max_bytes
        self._kept: OrderedDict[_Identity, LogSnapshot] = OrderedDict()
        self._lock = Lock()

    def replay_segment(self, files: ListedLog, segment: LogSegment) -> LogSnapshot:
        """The version that a segment of these files comes to. Raises as ``load_snapshot``."""
        identity = files.identify_segment(segment)
        with self._lock:
            snapshot = self._kept.get(identity)
        is_known = snapshot is not None
        if snapshot is None:
            snapshot = replay_segment(files, segment)
        snapshot.make_index(copies_lines=is_known)
        with self._lock:
            self._kept[identity] = snapshot
            self._kept.move_to_end(identity)
            memory_bytes = sum(version.memory_bytes for version in self._kept.values())
            while memory_bytes > self._memory_max_bytes:
                _, oldest = self._kept.popitem(last=False)
                memory_bytes -= oldest.memory_bytes
        return snapshot
