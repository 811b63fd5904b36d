"""Schemas of DataFrames as Delta's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.delta.rows.merged_schemas import new_table_schema
from penstock.formats.rows.schema import StructType
from penstock.spark.schemas import from_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkSchema


def new_schema(schema: SparkSchema) -> StructType:
    """The schema of a table that can hold rows of a DataFrame. Raises as ``new_table_schema``."""
    return new_table_schema(from_spark_schema(schema))
