"""The rows of given files as a DataFrame, in any format that Spark reads.

Spark reads the files as it reads any of their format, with column pruning and filters pushed down, and lists
nothing. Partition values are those that are given. ``_metadata`` is there as for any files, and tells where
they lie in storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.formats.rows.partition_values import Value
from penstock.lake.scan_files import STRICT, ScanFile, pack_scan_files
from penstock.lake.sql_catalog.requests import TableFacts
from penstock.spark import jar
from penstock.spark.addresses import spark_address
from penstock.spark.scan import manifests
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkSchema


ParseValue: TypeAlias = Callable[[Place, str, str | None], Value]
"""What the text of a constant stands for, at a place, by its type."""


class ScannedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a table of a lake."""

    lake: str
    """The id of the lake."""
    facts: TableFacts


ROW_INDEX: Final = "_tmp_metadata_row_index"
"""What Spark's readers of Parquet call the number of a row in its file."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark is to read files."""

    format: str = "parquet"
    options: Mapping[str, str] = {}
    zone: str = ""
    """Of times among the values that files have; UTC if empty."""
    origin: str = ""
    """The table and the commit, for who asks later what a DataFrame reads."""
    table: ScannedVersion | None = None
    """The same for the question which files a filter leaves out; nothing if none can be left out."""
    is_numbered: bool = False
    """Whether the number of each row in its file is asked for. Penstock's jar tells it as ``ROW_INDEX``."""


class RowMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of files of Parquet: only these are read, or all others."""

    words: bytes
    """As ``pack_words`` makes them."""
    file_column: str
    """The constant of the files that is their number among the words."""
    are_left_out: bool


def read_files(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema | None,
    constants: SparkSchema,
    how: ReadSettings,
    parse_value: ParseValue | None = None,
    marks: RowMarks | None = None,
) -> DataFrame:
    """The rows of files: ``columns`` are read from them, ``constants`` have one value in each.

    Without ``columns`` Spark looks into the files for them. One that is a constant, too, has the values that
    are given: where Penstock's jar is not there, as ``parse_value`` reads them, or as Spark casts them. What
    is wrong with any of it comes out as an error of Spark, here or when the rows are read. ``marks`` are for
    Penstock's jar alone, which then numbers the rows, too.
    """
    if marks is not None or jar.has_classes(spark):
        return _with_jar(spark, place, files, columns, constants, how, marks)
    strict = replace(how, options={**STRICT, **how.options})
    return manifests.scan_files(spark, place, files, columns, constants, strict, parse_value)


def _with_jar(
    spark: SparkSession,
    place: Place,
    files: Sequence[ScanFile],
    columns: SparkSchema | None,
    constants: SparkSchema,
    how: ReadSettings,
    marks: RowMarks | None,
) -> DataFrame:
    from pyspark.sql import DataFrame

    packed = pack_scan_files(spark_address(place.url), files)
    strict = replace(how, options={**STRICT, **how.options}, zone=how.zone or "UTC")
    schema = None if columns is None else columns.json()
    classes: Any = spark._jvm.io.penstock.spark  # type: ignore[union-attr]
    arguments = (
        spark._jsparkSession, packed, schema, constants.json(), msgspec.json.encode(strict).decode()
    )  # fmt: skip
    if marks is None:
        rows = classes.TableFiles.rows(*arguments)
    else:
        rows = classes.MarkedRows.rows(*arguments, marks.words, marks.file_column, marks.are_left_out)
    return DataFrame(rows, spark)
