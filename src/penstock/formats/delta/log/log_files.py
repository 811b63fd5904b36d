"""The files of one table: what reading a log needs of storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from penstock.formats.delta.protocol.names import END_OF_VERSIONS, LOG, START_OF_VERSIONS
from penstock.storage.buckets import EntityTag
from penstock.storage.places import Place


class LogFile(NamedTuple):
    """A file of the log as it is listed."""

    name: str
    """Relative to the table's root."""
    size: int
    modified_us: int = 0
    tag: EntityTag | None = None
    """What tells it from another file of the same name, size and second, where the storage lists that."""


class TableFiles(Protocol):
    """Reads files of a table by their names, which are relative to its root."""

    url: str
    """Where the table is, without secrets: errors name it."""

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        """The files of the log whose names begin with a version and come after one text and before another,
        in order."""
        ...

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each file, in the order of the names; ``None`` for one that does not exist."""
        ...


class PlaceFiles:
    """The files of a table at a place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.url = place.url

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        # Nothing else is asked for: behind the versions come folders, which may be long.
        entries = self._place.list(LOG, max(after, START_OF_VERSIONS), before)
        return (LogFile(entry.key, entry.size, entry.modified_us, entry.tag) for entry in entries)

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        return self._place.read(names)


class OverlaidFiles:
    """The files of a table, and some that are held elsewhere: these are read by their names, not listed."""

    def __init__(self, files: TableFiles, held: Mapping[str, bytes]) -> None:
        self._files, self._held = files, held
        self.url = files.url

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        return self._files.list_files(after, before)

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        requested = list(names)
        others = self._files.read_files(name for name in requested if name not in self._held)
        for name in requested:
            yield self._held[name] if name in self._held else next(others)
