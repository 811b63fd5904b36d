"""Rows with the names and ids that their columns have in the files of a table with mapped columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.delta.lake.file_columns import FIELD_ID
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.mapping import ID, Mapping, mapping_of, numbered_schema
from penstock.formats.rows.arrow_types import loosened
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_stored(df: DataFrame, metadata: Metadata) -> DataFrame:
    """The same rows as files hold them; columns that are not the table's stay as they are."""
    if mapping_of(metadata) is Mapping.NONE:
        return df
    from pyspark.sql import functions as f

    schema = loosened(parse_schema(metadata.schema_string))
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
    beside = [f.col(quote_name(name)) for name in df.columns if name not in names]
    return df.select(*chosen, *beside)
