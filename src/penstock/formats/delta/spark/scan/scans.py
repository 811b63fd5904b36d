"""Scans: the rows of given files of a table as a DataFrame.

Spark reads the files as it reads any of their format, with column pruning and filters pushed down, and lists
nothing. Partition values are those that are given. ``_metadata`` is there as for any files, and tells where
they lie in storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.lake.file_columns import FileColumns
from penstock.formats.delta.lake.scan_plan import FILE, FILE_FIELD, check_visible, to_scan_file
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import Add, Cdc, Remove, decode_path
from penstock.formats.delta.protocol.row_ids import FileRowIds, RowTrackingColumns, get_row_tracking_columns
from penstock.formats.delta.rows.deletion_words import (
    BitmapWords,
    WordBudget,
    pack_words,
    read_deletion_vectors,
)
from penstock.formats.delta.spark.scan.deletions import are_few, join_rows
from penstock.formats.delta.spark.scan.log_values import log_value
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.scan_files import ColumnGuard, ScanColumn, ScanFile, TableScan
from penstock.spark import jar
from penstock.spark.scan.frames import ROW_INDEX, ReadSettings, RowMarks, read_files
from penstock.spark.scan.origins import UNTOLD, TableOrigin
from penstock.spark.schemas import quote_name, to_spark_schema
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkSchema


ROW: Final = "__penstock_row"
"""The number of the row in its file."""
ROW_ID: Final = "__penstock_row_id"
"""The id of a row of a table that tracks rows, where ``read_rows`` is asked to tell."""
ROW_VERSION: Final = "__penstock_row_commit_version"
"""The version at which the row was last written."""

_ROW_IDS: Final = (
    Field(name="__penstock_base_row_id", type="long", nullable=True),
    Field(name="__penstock_file_version", type="long", nullable=True),
)
"""What the log says of the ids of a file's rows."""


def scan_files(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema,
    constants: SparkSchema,
    how: ReadSettings,
    marks: RowMarks | None = None,
) -> DataFrame:
    """The rows of files of a Delta table; as ``read_files`` otherwise.

    ``UnsupportedFeature`` for a file that Spark would leave out without a word.
    """
    check_visible(place, files)
    if not jar.has_classes(spark):
        return read_files(spark, place, files, columns, constants, how, log_value)
    from pyspark.errors import PySparkException

    try:
        return read_files(spark, place, files, columns, constants, how, marks=marks)
    except PySparkException as problem:
        raise _partition_values_error(place, problem) from None


def planned_rows(spark: SparkSession, place: Place, table_scan: TableScan) -> DataFrame:
    """The rows of a table by a plan for its files, as Penstock's class in the JVM makes them."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    scan: Any = getattr(spark._jvm, "io.penstock.spark.PlannedScan")
    try:
        rows = scan.rows(spark._jsparkSession, msgspec.json.encode(table_scan).decode())
    except PySparkException as problem:
        raise _partition_values_error(place, problem) from None
    return DataFrame(rows, spark)


def _partition_values_error(place: Place, problem: Exception) -> InvalidLog:
    return InvalidLog(
        f"{place.url} has partition values that do not match the type of their column: {problem}",
        table=place.url,
    )


class FilePiece(msgspec.Struct, frozen=True):
    """A file to be read, or some of its rows, and what is the same for all of these."""

    file: Add | Remove | Cdc
    values: tuple[str | None, ...] = ()
    """As Delta's log spells values."""
    picked: BitmapWords | None = None
    """Some of its rows; ``None`` for all of them."""
    is_inverse: bool = False
    """Whether the rows to be read are those that ``picked`` does not name."""


def read_rows(
    spark: SparkSession,
    snapshot: TableSnapshot,
    files: Iterable[Add],
    *,
    numbered: bool = False,
    row_ids: Mapping[str, FileRowIds] | None = None,
    origin: TableOrigin = UNTOLD,
) -> DataFrame:
    """The rows of some files of a version of a table, with the table's columns, in their order.

    Rows that deletion vectors name are left out; columns have the names by which the table knows them.
    ``numbered`` adds ``FILE``, the number of a row's file in ``files``, and ``ROW``. ``row_ids``, of files by
    their decoded paths, adds ``ROW_ID`` and ``ROW_VERSION``: null for rows of files that are not among them,
    unless the files say otherwise. ``origin`` is what the DataFrame tells of the table and the commit that it
    reads.
    """
    pieces = (
        FilePiece(file, picked=gone, is_inverse=True)
        for file, gone in read_deletion_vectors(snapshot.place, files)
    )
    return _read_pieces_with_row_ids(spark, snapshot, pieces, row_ids, numbered=numbered, origin=origin)


def picked_rows(
    spark: SparkSession,
    snapshot: TableSnapshot,
    files: Iterable[tuple[Add, BitmapWords]],
    *,
    numbered: bool = False,
    row_ids: Mapping[str, FileRowIds] | None = None,
) -> DataFrame:
    """Given rows of files of a version of a table; as ``read_rows`` otherwise.

    They are rows that the table has: deletion vectors are not looked at.
    """
    pieces = (FilePiece(file, picked=picked) for file, picked in files)
    return _read_pieces_with_row_ids(spark, snapshot, pieces, row_ids, numbered=numbered)


def _read_pieces_with_row_ids(
    spark: SparkSession,
    snapshot: TableSnapshot,
    pieces: Iterable[FilePiece],
    row_ids: Mapping[str, FileRowIds] | None,
    *,
    numbered: bool,
    origin: TableOrigin = UNTOLD,
) -> DataFrame:
    place, columns = snapshot.place, FileColumns(snapshot.metadata)
    stored = get_row_tracking_columns(snapshot.metadata) if row_ids is not None else None
    if row_ids is None or stored is None:
        return read_pieces(spark, place, columns, pieces, numbered=numbered, origin=origin)
    with_ids = (
        replace(piece, values=_spell_row_ids(row_ids.get(decode_path(piece.file.path)))) for piece in pieces
    )
    fields = tuple(Field(name=name, type="long", nullable=True) for name in stored)
    beside = read_pieces(
        spark, place, columns, with_ids, constants=_ROW_IDS, beside=fields, numbered=True, origin=origin
    )
    return _with_row_ids(beside, columns, stored, numbered=numbered)


def _spell_row_ids(ids: FileRowIds | None) -> tuple[str | None, str | None]:
    return (None, None) if ids is None else (str(ids.base), str(ids.version))


def _with_row_ids(
    df: DataFrame, columns: FileColumns, stored: RowTrackingColumns, *, numbered: bool
) -> DataFrame:
    """Rows with their ids, made of what their files say of them, and of what files say of each row."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    row_id = F.coalesce(F.col(quote_name(stored.row_id)), F.col(_ROW_IDS[0].name) + F.col(ROW))
    version = F.coalesce(F.col(quote_name(stored.row_commit_version)), F.col(_ROW_IDS[1].name))
    shown = [F.col(quote_name(name)) for name in (*columns.names, *((FILE, ROW) if numbered else ()))]
    return df.select(*shown, row_id.alias(ROW_ID), version.alias(ROW_VERSION))


def read_pieces(
    spark: SparkSession,
    place: Place,
    columns: FileColumns,
    pieces: Iterable[FilePiece],
    *,
    constants: Sequence[Field] = (),
    beside: Sequence[Field] = (),
    numbered: bool = False,
    origin: TableOrigin = UNTOLD,
) -> DataFrame:
    """The rows of pieces, with a table's columns in their order, and further ones.

    ``constants`` have the values that each piece gives, ``beside`` are columns that the files hold beside the
    table's. ``numbered`` adds ``FILE``, the number of a row's piece, and ``ROW``, its number in the file.
    ``InvalidRequest`` if pieces of files name more rows than can be held here.
    """
    reader = _PieceReader(spark, place, columns, tuple(constants), tuple(beside), origin)
    whole: list[ScanFile] = []
    parts: dict[bool, list[ScanFile]] = {False: [], True: []}
    named: dict[bool, dict[int, BitmapWords]] = {False: {}, True: {}}
    room = WordBudget(place)
    for number, piece in enumerate(pieces):
        if piece.picked is None:
            whole.append(reader.make_scan_file(piece, number if numbered else None))
        else:
            # Apart from the others, so that these lose nothing by it.
            parts[piece.is_inverse].append(reader.make_scan_file(piece, number))
            room.spend_words(piece.picked)
            named[piece.is_inverse][number] = piece.picked
    frames = []
    if whole or not any(parts.values()):
        frames.append(reader.read_rows(whole, numbered=numbered))
    for is_inverse, files in parts.items():
        if files:
            rows = reader.read_some_rows(files, named[is_inverse], is_inverse=is_inverse)
            frames.append(rows.select(reader.list_column_names(numbered=numbered)))
    return reduce(lambda one, other: one.union(other), frames)


class _PieceReader:
    """Reads files of one table, always with the same columns."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        columns: FileColumns,
        constants: tuple[Field, ...],
        beside: tuple[Field, ...],
        origin: TableOrigin,
    ) -> None:
        self._spark, self._place, self._columns = spark, place, columns
        self._constants, self._beside = constants, beside
        self._how = ReadSettings(options=columns.options, origin=origin.text, table=origin.table)

    def make_scan_file(self, piece: FilePiece, number: int | None) -> ScanFile:
        """A piece as a file to be scanned; with a number, as one that has it."""
        ends = () if number is None else (str(number),)
        return to_scan_file(self._place, self._columns, piece.file, (*piece.values, *ends))

    def read_some_rows(
        self, files: Sequence[ScanFile], words: Mapping[int, BitmapWords], *, is_inverse: bool
    ) -> DataFrame:
        """The rows that words of files name, by the numbers of these, or the others; numbered.

        Few words are sent everywhere, where Penstock's jar looks them up while it reads. Without it, and if
        they are many, they are joined with the rows.
        """
        if jar.has_classes(self._spark) and are_few(words):
            packed = pack_words((number, words[number]) for number in sorted(words))
            marks = RowMarks(words=packed, file_column=FILE, are_left_out=is_inverse)
            return self.read_rows(files, numbered=True, marks=marks)
        rows = self.read_rows(files, numbered=True)
        return join_rows(self._spark, rows, words, FILE, ROW, is_inverse=is_inverse)

    def read_rows(
        self, files: Sequence[ScanFile], *, numbered: bool, marks: RowMarks | None = None
    ) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

        columns = self._columns
        numbers = (FILE_FIELD,) if numbered else ()
        scanned = scan_files(
            self._spark,
            self._place,
            files,
            to_spark_schema(StructType((*columns.in_files.fields, *self._beside))),
            to_spark_schema(StructType((*columns.partition_fields, *self._constants, *numbers))),
            replace(self._how, is_numbered=numbered),
            marks,
        )
        others = [F.col(quote_name(field.name)) for field in (*self._beside, *self._constants, *numbers)]
        row = ROW_INDEX if jar.has_classes(self._spark) else "_metadata.row_index"
        ends = [F.col(row).alias(ROW)] if numbered else []
        return scanned.select(*map(show_column, columns.shown_columns), *others, *ends)

    def list_column_names(self, *, numbered: bool) -> list[str]:
        """The names of the columns of its rows, as Spark's SQL takes them."""
        others = (field.name for field in (*self._beside, *self._constants))
        return [
            quote_name(name) for name in (*self._columns.names, *others, *((FILE, ROW) if numbered else ()))
        ]


def show_column(shown: ScanColumn) -> Column:
    """A column of the table; Penstock's class in the JVM does the same (``PlannedScan``)."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    if shown.source is None:
        return F.lit(None).alias(shown.name)
    column = F.col(quote_name(shown.source))
    if shown.cast is not None:
        field = Field(name=shown.name, type=shown.cast, nullable=True)
        column = column.cast(to_spark_schema(StructType((field,))).fields[0].dataType)
    if shown.guard is ColumnGuard.REAL:
        column = F.nanvl(column, column)
    elif shown.guard is ColumnGuard.STRUCT:
        column = F.when(column.isNotNull(), column)
    return column.alias(shown.name)
