"""The files that Spark is to read, in the form in which Penstock's class in the JVM takes them."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

STRICT: Final = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "ignoredPathSegmentRegex": "^[._]",
}
"""Options of every read. A session may be told to read on without a file, or to pass over more names than
Spark does by itself. A table that lacks rows is none."""


class ScanFile(msgspec.Struct, frozen=True):
    """A file to be read."""

    name: str
    """Below the root of the place, decoded."""
    size: int
    modified_ms: int
    values: tuple[str | None, ...] = ()
    """Of the columns that are not in the file, as texts."""


def pack_scan_files(root: str, files: Iterable[ScanFile]) -> bytes:
    """Compressed lines of JSON: the root as Hadoop spells it, the partitions as lists of values, the files.

    A file is the number of its partition, its address, its size in bytes and the milliseconds of its change.
    The same files are the same bytes.
    """
    return gzip.compress(b"\n".join(_lines(root, files)), compresslevel=1, mtime=0)


def _lines(root: str, files: Iterable[ScanFile]) -> Iterator[bytes]:
    partitions: dict[tuple[str | None, ...], int] = {}
    lines = [
        msgspec.json.encode(
            (
                partitions.setdefault(one.values, len(partitions)),
                f"{root}/{one.name}",
                one.size,
                one.modified_ms,
            )
        )
        for one in files
    ]
    yield msgspec.json.encode(root)
    yield msgspec.json.encode(list(partitions))
    yield from lines
