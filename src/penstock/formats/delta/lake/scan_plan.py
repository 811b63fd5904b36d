"""What Spark is to read for the rows of a Delta table: files, columns, and the rows that are deleted."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.file_columns import FileColumns
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import Add, Cdc, Remove
from penstock.formats.delta.rows.deletion_words import (
    WORD_ROWS,
    BitmapWords,
    count_rows,
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
    deleted: list[BitmapWords] = []
    count = 0
    for file, words in read_deletion_vectors(place, files):
        if words is None:
            whole.append(to_scan_file(place, columns, file))
        else:
            # Apart from the others, so that these lose nothing by it.
            partial.append(to_scan_file(place, columns, file, (str(len(deleted)),)))
            deleted.append(words)
            count += len(words.words)
            _check_sendable(place, count)
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
        packed = base64.b64encode(pack_words(enumerate(deleted))).decode()
        pieces.append(make_piece(partial, ScanDeletions(words=packed, file_column=FILE)))
    return TableScan(pieces=tuple(pieces), columns=columns.shown_columns)


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
