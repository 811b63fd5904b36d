"""Schemas and names of columns, between Spark and the types that table formats share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructType as SparkSchema


def to_spark_schema(schema: StructType) -> SparkSchema:
    """A schema as Spark's: both are spelled alike."""
    from pyspark.sql.types import StructType as SparkSchema

    return SparkSchema.fromJson(msgspec.to_builtins(schema))


def quote_name(name: str) -> str:
    """The name of a column as Spark's SQL takes any."""
    return "`" + name.replace("`", "``") + "`"


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ in case alone are two names to a session."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def from_spark_schema(schema: SparkSchema) -> StructType:
    """A schema of Spark in types that formats share. Types beyond them keep Spark's word for them."""
    found_type = _convert_type(schema)
    assert isinstance(found_type, StructType)
    return found_type


def _convert_type(kind: DataType) -> Type:
    from pyspark.sql import types as t

    match kind:
        case t.StructType():
            return StructType(
                tuple(
                    Field(
                        name=field.name,
                        type=_convert_type(field.dataType),
                        nullable=field.nullable,
                        metadata=dict(field.metadata),
                    )
                    for field in kind.fields
                )
            )
        case t.ArrayType():
            return ArrayType(element_type=_convert_type(kind.elementType), contains_null=kind.containsNull)
        case t.MapType():
            return MapType(
                key_type=_convert_type(kind.keyType),
                value_type=_convert_type(kind.valueType),
                value_contains_null=kind.valueContainsNull,
            )
        case t.UserDefinedType():
            return f"{type(kind).__name__} (user-defined)"
        case t.StringType() if type(kind) is t.StringType and kind.simpleString() != "string":
            return kind.simpleString()  # text with an order of its own
        case _:
            return str(kind.jsonValue())
