"""Scans: the rows of given files of a table as a DataFrame.

Spark reads the files as it reads any of their format, with column pruning and filters pushed down, and lists
nothing. Partition values are those that are given. ``_metadata`` is there as for any files, and tells where
they lie in storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.errors import InvalidLog, UnsupportedFeature
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import Add, Cdc, Remove
from penstock.formats.delta.rows.inside import name_inside
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.scan_files import STRICT, ScanFile, pack_scan_files
from penstock.spark import jar
from penstock.spark.addresses import spark_address
from penstock.spark.scan.columns import Columns, quoted, spark_schema
from penstock.spark.scan.deletions import Room, Words, named_rows, with_deleted
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


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark is to read files."""

    format: str = "parquet"
    options: Mapping[str, str] = {}
    zone: str = ""
    """Of times among the values that files have. Nothing if values are spelled as in Delta's log, in UTC."""
    origin: str = ""
    """The table and the commit, for who asks later what a DataFrame reads."""


def scan(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema,
    constants: SparkSchema,
    how: How,
) -> DataFrame:
    """The rows of files of a Delta table; as ``frame`` otherwise.

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
        return _without_jar(spark, place, files, columns, constants, how)
    from pyspark.errors import PySparkException

    try:
        return _with_jar(spark, place, files, columns, constants, how)
    except PySparkException as problem:
        raise InvalidLog(
            f"{place.url} has values of its partition columns that are none of their types: {problem}",
            table=place.url,
        ) from None


def frame(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema | None,
    constants: SparkSchema,
    how: How,
) -> DataFrame:
    """The rows of files: ``columns`` are read from them, ``constants`` have one value in each.

    Without ``columns`` Spark looks into the files for them. One that is a constant, too, has the values that
    are given. What is wrong with any of it comes out as an error of Spark, here or when the rows are read.
    """
    with_or_without = _with_jar if jar.has_classes(spark) else _without_jar
    return with_or_without(spark, place, files, columns, constants, how)


def _with_jar(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema | None,
    constants: SparkSchema,
    how: How,
) -> DataFrame:
    from pyspark.sql import DataFrame

    packed = pack_scan_files(spark_address(place.url), files)
    told = replace(how, options={**STRICT, **how.options}, zone=how.zone or "UTC")
    schema = None if columns is None else columns.json()
    rows = spark._jvm.io.penstock.spark.TableFiles.rows(  # type: ignore[union-attr]
        spark._jsparkSession, packed, schema, constants.json(), msgspec.json.encode(told).decode()
    )
    return DataFrame(rows, spark)


def _without_jar(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema | None,
    constants: SparkSchema,
    how: How,
) -> DataFrame:
    from penstock.spark.scan import manifests

    strict = replace(how, options={**STRICT, **how.options})
    return manifests.scan(spark, place, files, columns, constants, strict)


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
    return read(spark, place, Columns(snapshot.metadata), found, numbered=numbered, origin=origin)


def read(
    spark: SparkSession,
    place: Place,
    columns: Columns,
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
    reader = _Reader(spark, place, columns, tuple(constants), tuple(beside), origin)
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


class _Reader:
    """Reads files of one table, always with the same columns."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        columns: Columns,
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
            spark_schema(StructType((*columns.in_files.fields, *self._beside))),
            spark_schema(StructType((*columns.partition_fields, *self._constants, *numbers))),
            self._how,
        )
        others = [F.col(quoted(one.name)) for one in (*self._beside, *self._constants, *numbers)]
        ends = [F.col("_metadata.row_index").alias(ROW)] if numbered else []
        return found.select(*columns.shown(), *others, *ends)

    def names(self, *, numbered: bool) -> list[str]:
        """The names of the columns of its rows, as Spark's SQL takes them."""
        others = (one.name for one in (*self._beside, *self._constants))
        return [quoted(one) for one in (*self._columns.names, *others, *((FILE, ROW) if numbered else ()))]
