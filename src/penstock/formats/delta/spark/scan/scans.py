"""Scans: the rows of given files of a table as a DataFrame.

Spark reads the files as it reads any of their format, with column pruning and filters pushed down, and lists
nothing. Partition values are those that are given. ``_metadata`` is there as for any files, and tells where
they lie in storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.formats.delta.errors import InvalidLog, UnsupportedFeature
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import Add, Cdc, Remove
from penstock.formats.delta.rows.inside import name_inside
from penstock.formats.delta.spark.scan.columns import FileColumns
from penstock.formats.delta.spark.scan.deletions import Room, Words, named_rows, with_deleted
from penstock.formats.delta.spark.scan.log_values import log_value
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.scan_files import ScanFile
from penstock.spark import jar
from penstock.spark.scan.frames import How, read_files
from penstock.spark.schemas import quote_name, to_spark_schema
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkSchema

FILE: Final = "__penstock_file"
"""The number of the file that a row is in, where ``rows`` is asked to tell."""
ROW: Final = "__penstock_row"
"""The number of the row in its file."""

_HIDDEN: Final = ("_", ".")
"""Spark reads no files with such names, and does not say so."""
_FILE: Final = Field(name=FILE, type="integer", nullable=True)


def scan(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema,
    constants: SparkSchema,
    how: How,
) -> DataFrame:
    """The rows of files of a Delta table; as ``read_files`` otherwise.

    ``UnsupportedFeature`` for a file that Spark would leave out without a word.
    """
    for one in files:
        if one.size <= 0 or one.name.rpartition("/")[2].startswith(_HIDDEN):
            raise UnsupportedFeature(
                f"{place.url} has the file {one.name!r} of {one.size} bytes, which Spark does not read: it "
                "leaves out empty files, and those whose names begin with '_' or '.'",
                table=place.url,
                feature="hidden files",
            )
    if not jar.has_classes(spark):
        return read_files(spark, place, files, columns, constants, how, log_value)
    from pyspark.errors import PySparkException

    try:
        return read_files(spark, place, files, columns, constants, how)
    except PySparkException as problem:
        raise InvalidLog(
            f"{place.url} has values of its partition columns that are none of their types: {problem}",
            table=place.url,
        ) from None


class Piece(msgspec.Struct, frozen=True):
    """A file to be read, or some of its rows, and what is the same for all of these."""

    file: Add | Remove | Cdc
    values: tuple[str | None, ...] = ()
    """As Delta's log spells values."""
    picked: Words | None = None
    """Some of its rows; ``None`` for all of them."""
    is_inverse: bool = False
    """Whether the rows to be read are those that ``picked`` does not name."""


def rows(
    spark: SparkSession,
    snapshot: TableSnapshot,
    files: Iterable[Add],
    *,
    numbered: bool = False,
    origin: str = "",
) -> DataFrame:
    """The rows of some files of a version of a table, with the table's columns, in their order.

    Rows that deletion vectors name are left out; columns have the names by which the table knows them.
    ``numbered`` adds ``FILE``, the number of a row's file in ``files``, and ``ROW``. ``origin`` is what the
    DataFrame tells of the table and the commit that it reads.
    """
    place = snapshot.place
    found = (Piece(file, picked=gone, is_inverse=True) for file, gone in with_deleted(place, files))
    return read(spark, place, FileColumns(snapshot.metadata), found, numbered=numbered, origin=origin)


def read(
    spark: SparkSession,
    place: Place,
    columns: FileColumns,
    pieces: Iterable[Piece],
    *,
    constants: Sequence[Field] = (),
    beside: Sequence[Field] = (),
    numbered: bool = False,
    origin: str = "",
) -> DataFrame:
    """The rows of pieces, with a table's columns in their order, and further ones.

    ``constants`` have the values that each piece gives, ``beside`` are columns that the files hold beside the
    table's. ``numbered`` adds ``FILE``, the number of a row's piece, and ``ROW``, its number in the file.
    ``InvalidRequest`` if pieces of files name more rows than can be held here.
    """
    reader = _PieceReader(spark, place, columns, tuple(constants), tuple(beside), origin)
    whole: list[ScanFile] = []
    parts: dict[bool, list[ScanFile]] = {False: [], True: []}
    named: dict[bool, dict[int, Words]] = {False: {}, True: {}}
    room = Room(place)
    for number, piece in enumerate(pieces):
        if piece.picked is None:
            whole.append(reader.file(piece, number if numbered else None))
        else:
            # Apart from the others, so that these lose nothing by it.
            parts[piece.is_inverse].append(reader.file(piece, number))
            room.take(piece.picked)
            named[piece.is_inverse][number] = piece.picked
    found = []
    if whole or not any(parts.values()):
        found.append(reader.rows(whole, numbered=numbered))
    for is_inverse, files in parts.items():
        if files:
            picked = named_rows(spark, named[is_inverse], FILE, ROW)
            rows = reader.rows(files, numbered=True)
            rows = rows.join(picked, [FILE, ROW], "left_anti" if is_inverse else "left_semi")
            found.append(rows.select(reader.names(numbered=numbered)))
    return reduce(lambda one, other: one.union(other), found)


class _PieceReader:
    """Reads files of one table, always with the same columns."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        columns: FileColumns,
        constants: tuple[Field, ...],
        beside: tuple[Field, ...],
        origin: str,
    ) -> None:
        self._spark, self._place, self._columns = spark, place, columns
        self._constants, self._beside = constants, beside
        self._how = How(options=columns.options, origin=origin)

    def file(self, piece: Piece, number: int | None) -> ScanFile:
        """A piece as a file to be scanned; with a number, as one that has it."""
        file = piece.file
        noted = file.partition_values or {}
        values = [noted.get(one.name) or None for one in self._columns.partition_fields]
        ends = () if number is None else (str(number),)
        modified_ms = file.modification_time if isinstance(file, Add) else 0
        name = name_inside(file.path, self._place.roots)
        return ScanFile(name, file.size or 0, modified_ms, (*values, *piece.values, *ends))

    def rows(self, files: Sequence[ScanFile], *, numbered: bool) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

        columns = self._columns
        numbers = (_FILE,) if numbered else ()
        found = scan(
            self._spark,
            self._place,
            files,
            to_spark_schema(StructType((*columns.in_files.fields, *self._beside))),
            to_spark_schema(StructType((*columns.partition_fields, *self._constants, *numbers))),
            self._how,
        )
        others = [F.col(quote_name(one.name)) for one in (*self._beside, *self._constants, *numbers)]
        ends = [F.col("_metadata.row_index").alias(ROW)] if numbered else []
        return found.select(*columns.shown(), *others, *ends)

    def names(self, *, numbered: bool) -> list[str]:
        """The names of the columns of its rows, as Spark's SQL takes them."""
        others = (one.name for one in (*self._beside, *self._constants))
        return [
            quote_name(one) for one in (*self._columns.names, *others, *((FILE, ROW) if numbered else ()))
        ]
