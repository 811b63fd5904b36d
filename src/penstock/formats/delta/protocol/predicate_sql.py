"""Writes conditions as SQL text, which ``predicate_text`` parses back to the same condition."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import isfinite, isnan

from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
)


def write_predicate(predicate: Predicate) -> str:
    """The text of a condition."""
    match predicate:
        case And():
            return " and ".join(map(_write_part, predicate.parts))
        case Or():
            return " or ".join(map(_write_part, predicate.parts))
        case Not():
            return _write_negation(predicate.inner)
        case IsNull():
            return f"{_write_column(predicate.column)} is null"
        case ComparedValues():
            return f"{_write_column(predicate.column)} {predicate.operator} {_write_literal(predicate.value)}"
        case OneOf():
            return (
                f"{_write_column(predicate.column)} in ({', '.join(map(_write_literal, predicate.values))})"
            )
        case Like():
            return f"{_write_column(predicate.column)} like {_quote_text(predicate.pattern)}"


def _write_part(predicate: Predicate) -> str:
    text = write_predicate(predicate)
    return f"({text})" if isinstance(predicate, And | Or) else text


def _write_negation(inner: Predicate) -> str:
    """The negation as SQL writes it, such as ``is not null``, without deeper nesting."""
    match inner:
        case IsNull():
            return f"{_write_column(inner.column)} is not null"
        case OneOf():
            return f"{_write_column(inner.column)} not in ({', '.join(map(_write_literal, inner.values))})"
        case Like():
            return f"{_write_column(inner.column)} not like {_quote_text(inner.pattern)}"
        case _:
            return f"not {_write_part(inner)}"


def _write_column(column: Column) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in column.path)


def _write_literal(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if not isfinite(value):
            return "'NaN'" if isnan(value) else f"'{'-' if value < 0 else ''}Infinity'"
        case Decimal():
            return format(value, "f")
        case datetime() | date():
            return f"'{value.isoformat()}'"
        case str():
            return _quote_text(value)
        case _:
            return repr(value)


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
