"""Reads a table of files with Spark: the rows of exactly those files that it has at a commit.

The lake says which files there are, under which paths; Spark reads them where they lie in the lake's pool,
with its own reader for their format, and lists nothing. What it tells of them in ``_metadata`` is where they
lie. Values of partition columns come from the paths in the table.

Columns are those that the table's last job has written, in its order, if it said so. Otherwise Spark looks
into the files for them, as it does for a directory; then partition columns come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo
from penstock.formats.files.lake.calls import GetFilesTable, ListFiles
from penstock.formats.files.lake.data_files import is_data
from penstock.formats.files.lake.partition_columns import (
    PartitionColumns,
    PartitionRules,
    find_partition_columns,
)
from penstock.formats.files.lake.paths import normalise_folder
from penstock.formats.files.lake.scan import scan_files, scan_layout
from penstock.formats.rows.reader import StoredRowPart
from penstock.formats.rows.row_difference import StoredRows
from penstock.spark import jar
from penstock.spark.format import ScannedTable
from penstock.spark.requests import ReadOptions, ReadRequest
from penstock.spark.scan.frames import ReadSettings, read_files
from penstock.spark.scan.origins import describe_origin
from penstock.spark.schemas import quote_name
from penstock.spark.settings import as_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.lake.table import Table


def scan_table(spark: SparkSession, table: Table) -> ScannedTable:
    """The rows of a table of files, and the files, of which some can be read by themselves."""
    opened = _open_scan(spark, table, ReadRequest())
    rows = opened.read_rows()
    parts = [StoredRowPart((file.path, file.address), file) for file in opened.files if file.size]
    bindings = {field.name: field.dataType.json() for field in rows.schema}

    def read_parts(chosen: Sequence[StoredRowPart] | None) -> DataFrame:
        return rows if chosen is None else opened.read_rows([part.source for part in chosen], rows.schema)

    return ScannedTable(rows.schema, read_parts, StoredRows(parts, bindings))


def read_rows(spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
    """The rows of a table of files, at the commit that ``table`` names by its id.

    ``NotManaged`` if it is none, ``InvalidRequest`` if it is not known how to read it: no format, no columns,
    paths that do not agree on partition columns, files that Spark would leave out without a word.
    """
    return _open_scan(spark, table, request).read_rows()


def _open_scan(spark: SparkSession, table: Table, request: ReadRequest) -> _FilesScan:
    if request.version is not None or request.timestamp is not None:
        raise InvalidRequest(
            f"'{table.key}' is a table of files, which has no versions of its own: name a commit as 'ref'",
            table=str(table.key),
        )
    folder = normalise_folder(request.extra.get("folder", ""))
    table.note_read(folder)
    about = table.lake.do(GetFilesTable(key=table.key, at=table.ref, via=table.via))
    layout = _make_layout(about, request.extra)
    listing = ListFiles(key=table.key, at=table.ref, via=table.via, prefix=folder)
    pages = table.lake.pages(listing, None, lambda last: {"after": last.path})
    files = [entry for entry in pages if is_data(entry.path)]
    return _FilesScan(spark, table, layout, files)


class _ReadLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the files are read."""

    format: str
    options: dict[str, str]
    schema: str | StructType | None
    """With or without the partition columns; ``None`` if Spark is to look."""
    has_order: bool
    """Whether rows have their columns in the order of the schema."""


def _make_layout(about: FilesTableInfo, extra: ReadOptions) -> _ReadLayout:
    options = {name: as_text(value) for name, value in (extra.get("options") or {}).items()}
    layout = scan_layout(about, extra.get("format"), options)
    schema = extra.get("schema")
    return _ReadLayout(
        format=layout.format,
        options=layout.options,
        schema=schema if schema is not None else _parse_schema(layout.schema),
        has_order=schema is None,
    )


def _parse_schema(schema: str) -> StructType | None:
    if not schema:
        return None
    from pyspark.sql.types import StructType

    return StructType.fromJson(msgspec.json.decode(schema))


class _FilesScan:
    """Reads files of one table."""

    def __init__(
        self, spark: SparkSession, table: Table, layout: _ReadLayout, files: Sequence[FileEntry]
    ) -> None:
        self._spark, self._table, self._layout, self.files = spark, table, layout, files

    def read_rows(
        self, chosen: Sequence[FileEntry] | None = None, all_columns: StructType | None = None
    ) -> DataFrame:
        """The rows of all files, or of those that are chosen, with the columns that all have."""
        from pyspark.sql.types import StructType

        schema, rules = (
            self._read_schema() if all_columns is None else all_columns,
            self._find_partition_rules(),
        )
        # The types of partition columns follow from the paths of all files.
        partitions = find_partition_columns(
            (file.path for file in self.files), _partition_column_types(schema), rules
        )
        constants = StructType.fromJson(
            {"type": "struct", "fields": list(map(_make_struct_field, partitions.fields))}
        )
        inside = None if schema is None else _remove_partition_columns(schema, partitions, rules)
        if inside is None and not any(file.size for file in self.files):
            raise InvalidRequest(
                f"'{self._table.key}' has no rows, and its columns are not known: give them as 'schema'",
                table=str(self._table.key),
            )
        lake = self._table.lake
        place = lake.places.open_place(lake.warehouse)
        files = ((file.path, file) for file in (self.files if chosen is None else chosen))
        scanned = scan_files(self._table.key, lake.warehouse, files, partitions)
        try:
            frame = read_files(self._spark, place, scanned, inside, constants, self._read_settings())
        except _list_spark_errors(self._spark) as problem:
            raise InvalidRequest(
                f"'{self._table.key}' cannot be read as {self._layout.format}: {_first_error_line(problem)}",
                table=str(self._table.key),
            ) from None
        if schema is None or not self._layout.has_order:
            return frame
        named = [field.name for field in schema]
        return frame.select(
            *map(
                quote_name, (*named, *(constant.name for constant in constants if constant.name not in named))
            )
        )

    def _read_schema(self) -> StructType | None:
        schema = self._layout.schema
        if not isinstance(schema, str):
            return schema
        from pyspark.errors import PySparkException

        try:
            return self._spark.createDataFrame([], schema).schema
        except PySparkException as problem:
            raise InvalidRequest(
                f"Spark cannot read the schema {schema!r}: {_first_error_line(problem)}"
            ) from None

    def _find_partition_rules(self) -> PartitionRules:
        get_setting = self._spark.conf.get
        return PartitionRules(
            infers=get_setting("spark.sql.sources.partitionColumnTypeInference.enabled") == "true",
            timestamp="timestamp_ntz"
            if get_setting("spark.sql.timestampType") == "TIMESTAMP_NTZ"
            else "timestamp",
            is_case_sensitive=get_setting("spark.sql.caseSensitive") == "true",
        )

    def _read_settings(self) -> ReadSettings:
        options = self._layout.options
        zones = [value for name, value in options.items() if name.lower() == "timezone"]
        zone = zones[0] if zones else str(self._spark.conf.get("spark.sql.session.timeZone"))
        return ReadSettings(
            format=self._layout.format, options=options, zone=zone, origin=describe_origin(self._table)
        )


def _partition_column_types(schema: StructType | None) -> dict[str, str]:
    """The types of columns that may be partition columns, as Spark's JSON names them."""
    kinds = [] if schema is None else [(field.name, field.dataType.jsonValue()) for field in schema]
    return {name: kind for name, kind in kinds if isinstance(kind, str)}


def _make_struct_field(field: tuple[str, str]) -> dict[str, Any]:
    name, kind = field
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _remove_partition_columns(
    schema: StructType, partitions: PartitionColumns, rules: PartitionRules
) -> StructType:
    """The columns that are in the files."""
    from pyspark.sql.types import StructType

    names = {rules.fold_case(name) for name, _ in partitions.fields}
    return StructType([field for field in schema if rules.fold_case(field.name) not in names])


def _list_spark_errors(spark: SparkSession) -> tuple[type[Exception], ...]:
    """What Spark raises. Not all errors of Java are made ones of PySpark; Spark Connect knows no others."""
    from pyspark.errors import PySparkException

    if not jar.is_classic(spark):
        return (PySparkException,)
    from py4j.protocol import Py4JJavaError

    return PySparkException, Py4JJavaError


def _first_error_line(problem: Any) -> str:
    """What an error says, without the trace below."""
    inside = getattr(problem, "java_exception", None)
    return str(problem if inside is None else inside.getMessage()).partition("\n")[0]
