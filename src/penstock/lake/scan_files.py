"""What Spark is to read, in the form in which Penstock's classes in the JVM take it."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from penstock.formats.rows.schema import Type

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
    is_elsewhere: bool = False
    """Whether it is not below the root: then its name is its whole address, as Hadoop spells it."""

    def make_address(self, root: str) -> str:
        """Where it is, if the place's root is as Hadoop spells it."""
        return self.name if self.is_elsewhere else f"{root}/{self.name}"


def pack_scan_files(root: str, files: Iterable[ScanFile]) -> bytes:
    """Compressed lines of JSON: the root as Hadoop spells it, the partitions as lists of values, the files.

    A file is the number of its partition, its address, its size in bytes and the milliseconds of its change.
    The same files are the same bytes.
    """
    return gzip.compress(b"\n".join(_format_lines(root, files)), compresslevel=1, mtime=0)


def _format_lines(root: str, files: Iterable[ScanFile]) -> Iterator[bytes]:
    partitions: dict[tuple[str | None, ...], int] = {}
    lines = [
        msgspec.json.encode(
            (
                partitions.setdefault(file.values, len(partitions)),
                file.make_address(root),
                file.size,
                file.modified_ms,
            )
        )
        for file in files
    ]
    yield msgspec.json.encode(root)
    yield msgspec.json.encode(list(partitions))
    yield from lines


class ScanCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of an engine on the columns of files, or a part of one.

    ``kind`` is ``and``, ``or`` or ``not``, which join the conditions before it; ``is_null``, ``compare`` by
    the ``operator``, ``in`` or ``starts_with`` of a column; ``unknown`` for anything else.
    """

    kind: str
    parts: int = 0
    """How many of the conditions before it that nothing else joins yet it joins."""
    operator: str = ""
    column: tuple[str, ...] = ()
    """The names on the way to it, as files have them."""
    type: str = ""
    """Of the column and of the values."""
    values: tuple[str, ...] = ()
    """That are not null: numbers as they are spelled, days and microseconds since 1970 as numbers."""


class SkippedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Which files of a table conditions leave out."""

    is_kept: bool
    """Whether ``files`` are those that are needed, and not those that are left out."""
    files: tuple[str, ...]
    """Their names below the root of the table, decoded."""


class ColumnGuard(StrEnum):
    """How a column is kept from being compared by bounds that files note of it."""

    NONE = ""
    REAL = "real"
    """It is a real number, which may be NaN."""
    STRUCT = "struct"
    """Parts of it are."""


class ScanColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table, made of one that was read."""

    name: str
    source: str | None = None
    """What is read; without one, the column is null."""
    cast: Type | None = None
    """The type that gives its parts their names."""
    guard: ColumnGuard = ColumnGuard.NONE


class ScanDeletions(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of files that are left out."""

    words: str
    """Compressed numbers of 64 bits, the lowest byte first, in base64: of each word the number of its file,
    that of its first row, and the word, whose lowest bit is that row; in the order of files and rows."""
    file_column: str
    """The constant of the files that is their number."""


class ScanPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are read in one way."""

    files: str
    """As ``pack_scan_files`` makes them, in base64."""
    schema: str | None
    """The columns in the files, as Spark writes a schema in JSON; nothing to have Spark look into them."""
    partition_schema: str
    """The columns that have one value in each file."""
    how: dict[str, Any]
    """The format, the options of its reader, the zone of times, and where the rows come from."""
    deleted: ScanDeletions | None = None


class TableScan(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a table: those of all pieces."""

    pieces: tuple[ScanPiece, ...]
    columns: tuple[ScanColumn, ...] | None = None
    """Of the table, in its order; nothing if they are those that are read."""


def read_strictly(
    format: str,  # noqa: A002 - as Spark's reader calls it
    options: dict[str, str],
    zone: str,
    origin: str,
) -> dict[str, Any]:
    """How files are read: no file may be passed over."""
    return {"format": format, "options": {**STRICT, **options}, "zone": zone, "origin": origin}


def encode_files(root: str, files: Iterable[ScanFile]) -> str:
    """Files as text. The root is as Hadoop spells it."""
    return base64.b64encode(pack_scan_files(root, files)).decode()
