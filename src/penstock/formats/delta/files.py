"""The files of one table: what reading a log needs of storage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from penstock.formats.delta.names import END_OF_VERSIONS, LOG, START_OF_VERSIONS
from penstock.storage.buckets import Bucket, Loop

READ_AHEAD: Final = 16
"""How many small files are under way at the same time."""


class LogFile(NamedTuple):
    """A file of the log as it is listed."""

    name: str
    """Relative to the table's root."""
    size: int
    modified_us: int = 0


class TableFiles(Protocol):
    """Reads files of a table by their names, which are relative to its root."""

    url: str
    """Where the table is, without secrets: errors name it."""

    def list(self, after: str) -> Iterator[LogFile]:
        """The files of the log whose names begin with a version and come after a text, in order."""
        ...

    def read(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each file, in the order of the names; ``None`` for one that does not exist."""
        ...


class BucketFiles:
    """The files of a table in a folder of a bucket."""

    def __init__(self, bucket: Bucket, loop: Loop, folder: str = "") -> None:
        self._bucket, self._loop = bucket, loop
        self._folder = f"{folder.strip('/')}/" if folder.strip("/") else ""
        where = bucket.url.partition("?")[0].rstrip("/")
        self.url = f"{where}/{self._folder}".rstrip("/")

    def list(self, after: str) -> Iterator[LogFile]:
        return iter(self._loop.run(self._list(after)))

    def read(self, names: Iterable[str]) -> Iterator[bytes | None]:
        waiting = iter(names)
        while some := tuple(islice(waiting, READ_AHEAD)):
            yield from self._loop.run(self._read(some))

    async def _list(self, after: str) -> Sequence[LogFile]:
        cut = len(self._folder)
        end = self._folder + END_OF_VERSIONS
        # Nothing else is asked for: behind the versions come folders, which may be long.
        start = self._folder + max(after, START_OF_VERSIONS)
        files = []
        async for entry in self._bucket.list(self._folder + LOG.rstrip("/"), start):
            if entry.key >= end:
                break
            files.append(LogFile(entry.key[cut:], entry.size, entry.modified_us))
        return files

    async def _read(self, names: Iterable[str]) -> Sequence[bytes | None]:
        found = await asyncio.gather(*(self._bucket.get(self._folder + name) for name in names))
        return [None if one is None else one.data for one in found]
