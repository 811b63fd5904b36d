"""Rows as the files of a table hold them: columns with the names and ids that they have there, and partition
columns in the files, too, where the table wants that.

Spark leaves the columns out of files that it partitions by. So where files are to have them, it partitions by
copies, whose names are those of directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.formats.delta.lake.file_columns import FIELD_ID
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import (
    ID,
    ColumnMapping,
    get_column_mapping,
    numbered_schema,
    stored_name,
)
from penstock.formats.delta.protocol.iceberg_compat import row_column_note
from penstock.formats.delta.protocol.properties import materializes_partition_columns
from penstock.formats.delta.protocol.row_ids import get_row_tracking_columns
from penstock.formats.rows.arrow_types import allow_nulls
from penstock.formats.rows.schema import Field, StructType, parse_schema
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_COPY: Final = "__penstock_partition_"
"""How columns are called that files are to have, while those by which Spark partitions have their names."""


def keep_partitions(df: DataFrame, fields: Sequence[Field], metadata: Metadata) -> DataFrame:
    """Rows with copies of partition columns, if files are to have them: as they are read, before they become
    names of directories."""
    from pyspark.sql import functions as f

    for place, field in enumerate(fields if materializes_partition_columns(metadata.configuration) else ()):
        column = f.col(quote_name(field.name))
        copy = f.when(column != "", column) if field.type == "string" else column
        df = df.withColumn(f"{_COPY}{place}", copy)
    return df


def list_directory_columns(fields: Sequence[Field], metadata: Metadata) -> tuple[str, ...]:
    """The columns that Spark partitions by, which name directories."""
    stored = tuple(map(stored_name, fields))
    if not materializes_partition_columns(metadata.configuration):
        return stored
    used_names = {stored_name(field).lower() for field in parse_schema(metadata.schema_string).fields}
    names: list[str] = []
    for field in fields:
        name = field.name
        while name.lower() in used_names:
            name += "_"
        used_names.add(name.lower())
        names.append(name)
    return tuple(names)


def place_partitions(df: DataFrame, fields: Sequence[Field], metadata: Metadata) -> DataFrame:
    """Stored rows in which the copies of ``keep_partitions`` have the names of columns of files, after the
    other columns, and the partition columns those of directories."""
    if not fields or not materializes_partition_columns(metadata.configuration):
        return df
    from pyspark.sql import functions as f

    stored = [stored_name(field) for field in fields]
    copies = [f"{_COPY}{place}" for place in range(len(fields))]
    own = {stored_name(field) for field in parse_schema(metadata.schema_string).fields}
    data = [name for name in df.columns if name in own and name not in stored]
    beside = [name for name in df.columns if name not in own and name not in copies]
    in_files = [
        f.col(copy).alias(name, metadata={FIELD_ID: field.metadata[ID]} if ID in field.metadata else {})
        for copy, name, field in zip(copies, stored, fields, strict=True)
    ]
    directories = [
        f.col(quote_name(name)).alias(directory, metadata={})
        for name, directory in zip(stored, list_directory_columns(fields, metadata), strict=True)
    ]
    columns = [f.col(quote_name(name)) for name in data]
    return df.select(*columns, *in_files, *(f.col(quote_name(name)) for name in beside), *directories)


def as_stored(df: DataFrame, metadata: Metadata) -> DataFrame:
    """The same rows as files hold them; columns that are not the table's stay as they are."""
    if get_column_mapping(metadata) is ColumnMapping.NONE:
        return df
    from pyspark.sql import functions as f

    schema = allow_nulls(parse_schema(metadata.schema_string))
    assert isinstance(schema, StructType)  # as what it was made from
    stored = numbered_schema(schema, FIELD_ID)
    chosen = []
    for field, inside, kind in zip(schema.fields, stored.fields, to_spark_schema(stored).fields, strict=True):
        column = f.col(quote_name(field.name))
        if not isinstance(field.type, str):
            # A cast gives the parts of a column other names, and the ids that they have in files.
            column = column.cast(kind.dataType)
        chosen.append(column.alias(inside.name, metadata={FIELD_ID: field.metadata[ID]}))
    names = {field.name for field in schema.fields}
    beside = [_row_id_column(name, metadata) for name in df.columns if name not in names]
    return df.select(*chosen, *beside)


def _row_id_column(name: str, metadata: Metadata) -> Column:
    """A column that is not the table's: of those with ids and versions of rows, Iceberg knows ids."""
    from pyspark.sql import functions as f

    column, rows = f.col(quote_name(name)), get_row_tracking_columns(metadata)
    if rows is None or name not in rows:
        return column
    note = row_column_note(metadata, is_id=name == rows.row_id)
    return column.alias(name, metadata={FIELD_ID: note[ID]}) if note else column
