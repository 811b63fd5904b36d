"""Conditions in Lance's words: what of a reader's condition the scan of a fragment can leave out rows by.

It is Spark that decides which rows a condition is true for. Rows are left out before that only by conditions
whose meaning is the same to Spark, to Penstock and to Lance, on columns of types that all compare alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    IsNull,
    Not,
    OneOf,
    Or,
    Predicate,
    list_columns,
)
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark
from penstock.spark.schemas import from_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ALIKE: Final = frozenset({"boolean", "byte", "short", "integer", "long", "string", "date"})
_BITS: Final = re.compile(r"(u?)int(8|16|32|64)")
_OPERATORS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})


def write_lance_condition(
    where: str | None, schema: StructType, table: Any, time_zone: str | None
) -> str | None:
    """A condition on rows of a schema as Lance reads it; nothing if it is not sure what it means to all.

    ``table`` is the schema that Arrow has of the same columns, whose numbers may be of fewer bits: Lance
    compares them only with numbers that could be among them.
    """
    if where is None:
        return None
    spark_schema = from_spark_schema(schema)
    if not has_same_meaning_in_spark(where, spark_schema, time_zone):
        return None
    predicate = parse_predicate(where, spark_schema)
    if not all(len(column.fields) == 1 and column.kind in _ALIKE for column in list_columns(predicate)):
        return None
    return _write_condition(predicate, {field.name: field.type for field in table})


def _write_condition(predicate: Predicate, types: Mapping[str, Any]) -> str | None:
    """What Lance calls a condition; nothing if a part of it has no name there."""
    match predicate:
        case ComparedValues() if predicate.operator in _OPERATORS and _can_be(predicate, types):
            name, value = _write_column_name(predicate.column), _write_literal(predicate.value)
            return f"({name} {predicate.operator} {value})"
        case OneOf() if predicate.values and None not in predicate.values and _can_be(predicate, types):
            listed = ", ".join(map(_write_literal, predicate.values))
            return f"({_write_column_name(predicate.column)} IN ({listed}))"
        case IsNull():
            return f"({_write_column_name(predicate.column)} IS NULL)"
        case Not():
            inner = _write_condition(predicate.inner, types)
            return None if inner is None else f"(NOT {inner})"
        case And() | Or():
            parts = [_write_condition(part, types) for part in predicate.parts]
            texts = [part for part in parts if part is not None]
            if not texts or len(texts) < len(parts):
                return None
            return f"({(' AND ' if isinstance(predicate, And) else ' OR ').join(texts)})"
        case _:
            return None


def _can_be(predicate: ComparedValues | OneOf, types: Mapping[str, Any]) -> bool:
    """Whether what a column is compared with could be one of its values."""
    name = predicate.column.path[0]
    bits = _BITS.fullmatch(str(types.get(name, "")))
    if bits is None:
        return True
    end = 2 ** (int(bits[2]) - (0 if bits[1] else 1))
    # Lance reads a sign and then a number, and has none as large as 2 ** 63.
    least = 0 if bits[1] else max(-end, 1 - 2**63)
    values = predicate.values if isinstance(predicate, OneOf) else (predicate.value,)
    return all(isinstance(value, int) and least <= value < end for value in values)


def _write_column_name(column: Column) -> str:
    return f"`{column.path[0]}`"


def _write_literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
