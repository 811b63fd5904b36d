"""What Spark is to read for the rows of a Delta table: files, columns, and the rows that are deleted."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, TypeAlias

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.file_columns import FileColumns
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import Add, Cdc, DeletionVector, Remove
from penstock.formats.delta.rows.deletion_words import (
    WORD_ROWS,
    BitmapWords,
    count_rows,
    is_deleted_whole,
    pack_words,
    read_deletion_vectors,
)
from penstock.formats.delta.rows.file_addresses import name_inside
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.lake.scan_files import (
    ScanDeletions,
    ScanFile,
    ScanPiece,
    TableScan,
    encode_files,
    read_strictly,
)
from penstock.storage.hadoop import make_hadoop_address
from penstock.storage.linked_places import LinkedPlace
from penstock.storage.places import Place

FILE: Final = "__penstock_file"
"""The number of the file that a row is in, where it is told."""
FILE_FIELD: Final = Field(name=FILE, type="integer", nullable=True)
WORDS_SENT_MAX: Final = 1_000_000
"""How many words of deletion vectors are sent: some ten megabytes."""

PACKED_MAX_BYTES: Final = 32 * 1024 * 1024
"""How much memory packed words take that are kept, of all tables together."""
VECTOR_BYTES: Final = 500
"""About how much memory it takes to know a vector and its file again, beside their texts."""

_VectorsKey: TypeAlias = "tuple[str, tuple[tuple[str, DeletionVector], ...]]"
"""Where a table is, and the paths of files with their vectors."""
_NAMED_ONCE: Final = ("u", "i")
"""Vectors in files that are named by a UUID, and those that are a part of their action."""
_HIDDEN: Final = ("_", ".")
"""Spark reads no files with such names, and does not say so."""


def check_visible(place: Place, files: Iterable[ScanFile]) -> None:
    """``UnsupportedFeature`` for a file that Spark would leave out without a word."""
    for file in files:
        if file.size <= 0 or file.name.rpartition("/")[2].startswith(_HIDDEN):
            raise UnsupportedFeature(
                f"{place.url} has the file {file.name!r} of {file.size} bytes, which Spark would "
                "skip: it ignores empty files and files whose names begin with '_' or '.'",
                table=place.url,
                feature="hidden files",
            )


def to_scan_file(
    place: Place, columns: FileColumns, file: Add | Remove | Cdc, more: tuple[str | None, ...] = ()
) -> ScanFile:
    """A file of a table as Spark is told of it, with the values of its partition columns, and of others."""
    noted = file.partition_values or {}
    values = [noted.get(field.name) or None for field in columns.partition_fields]
    modified_ms = file.modification_time if isinstance(file, Add) else 0
    name = name_inside(file.path, place)
    if isinstance(place, LinkedPlace) and (source := place.find_source(name)) is not None:
        address = f"{make_hadoop_address(source.url)}{name.removeprefix(source.url)}"
        return ScanFile(address, file.size or 0, modified_ms, (*values, *more), is_elsewhere=True)
    return ScanFile(name, file.size or 0, modified_ms, (*values, *more))


def plan_scan(snapshot: TableSnapshot, files: Iterable[Add], origin: str, table: dict[str, Any]) -> TableScan:
    """The rows of some files of a version of a table, without those that deletion vectors name.

    ``table`` is what comes back with the question which files a filter leaves out.
    ``InvalidRequest`` if these are too many to be told.
    """
    place, columns = snapshot.place, FileColumns(snapshot.metadata)
    whole: list[ScanFile] = []
    partial: list[ScanFile] = []
    marked: list[Add] = []
    for file in files:
        if file.deletion_vector is None:
            whole.append(to_scan_file(place, columns, file))
        elif not is_deleted_whole(file):
            # Apart from the others, so that these lose nothing by it.
            partial.append(to_scan_file(place, columns, file, (str(len(marked)),)))
            marked.append(file)
    how = read_strictly("parquet", columns.options, "UTC", origin) | {"table": table}

    def make_piece(files: Sequence[ScanFile], rows: ScanDeletions | None) -> ScanPiece:
        check_visible(place, files)
        numbers = () if rows is None else (FILE_FIELD,)
        return ScanPiece(
            files=encode_files(make_hadoop_address(place.url), files),
            schema=write_schema(columns.in_files),
            partition_schema=write_schema(StructType((*columns.partition_fields, *numbers))),
            how=how,
            deleted=rows,
        )

    pieces = [make_piece(whole, None)] if whole or not partial else []
    if partial:
        words = _PACKED_WORDS.find_or_pack(place, marked)
        pieces.append(make_piece(partial, ScanDeletions(words=words, file_column=FILE)))
    return TableScan(pieces=tuple(pieces), columns=columns.shown_columns)


class PackedWords:
    """What deletion vectors of files say, packed for Spark and kept for who reads the same files again. May
    be used by many threads.

    A vector never changes, and neither does the file that it is for: both have names that are given once.
    """

    def __init__(self, memory_max_bytes: int = PACKED_MAX_BYTES) -> None:
        self._memory_max_bytes = memory_max_bytes
        self._kept: OrderedDict[_VectorsKey, str] = OrderedDict()
        self._memory_bytes = 0
        self._lock = Lock()

    def find_or_pack(self, place: Place, files: Sequence[Add]) -> str:
        """Of files that have vectors, in their order. ``InvalidRequest`` if they say too much to be sent."""
        vectors = ((file.path, file.deletion_vector) for file in files)
        key = place.url, tuple((path, vector) for path, vector in vectors if vector is not None)
        with self._lock:
            if (packed := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return packed
        packed = base64.b64encode(pack_words(enumerate(_read_sendable_words(place, files)))).decode()
        size = _count_bytes(key, packed)
        is_lasting = all(vector.storage_type in _NAMED_ONCE for _, vector in key[1])
        if is_lasting and size <= self._memory_max_bytes:
            with self._lock:
                if key not in self._kept:
                    self._memory_bytes += size
                self._kept[key] = packed
                while self._memory_bytes > self._memory_max_bytes:
                    self._memory_bytes -= _count_bytes(*self._kept.popitem(last=False))
        return packed


def _count_bytes(key: _VectorsKey, packed: str) -> int:
    texts = (len(path) + len(vector.path_or_inline_dv) for path, vector in key[1])
    return len(packed) + VECTOR_BYTES * len(key[1]) + sum(texts)


_PACKED_WORDS: Final = PackedWords()


def _read_sendable_words(place: Place, files: Iterable[Add]) -> Iterator[BitmapWords]:
    count = 0
    for _, words in read_deletion_vectors(place, files):
        if words is not None:
            count += len(words.words)
            _check_sendable(place, count)
            yield words


def are_words_sendable(place: Place, files: Iterable[Add]) -> bool:
    """Whether a plan surely holds what the deletion vectors of files say. They are not read for it."""
    most = 0
    for file in files:
        if (vector := file.deletion_vector) is not None:
            words = vector.cardinality
            if words > 1:
                with suppress(ValueError, OSError, pa.ArrowException):  # told to who reads the file
                    words = min(words, count_rows(place, file) // WORD_ROWS + 1)
            most += words
    return most <= WORDS_SENT_MAX


def _check_sendable(place: Place, words: int) -> None:
    if words > WORDS_SENT_MAX:
        raise InvalidRequest(
            f"too many deleted rows to send to Spark: the deletion vectors of {place.url} mark rows in "
            f"more than {WORDS_SENT_MAX:,} blocks of {WORD_ROWS} rows\n  Read fewer files, by a "
            "condition (WHERE), or read the table with PySpark.",
            table=place.url,
        )
