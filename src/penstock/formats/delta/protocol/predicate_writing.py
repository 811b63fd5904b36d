"""Conditions as text: what ``predicate_text`` reads back as the same condition."""

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
            return " and ".join(map(_part, predicate.parts))
        case Or():
            return " or ".join(map(_part, predicate.parts))
        case Not():
            return _negated(predicate.inner)
        case IsNull():
            return f"{_named(predicate.column)} is null"
        case ComparedValues():
            return f"{_named(predicate.column)} {predicate.operator} {_literal(predicate.value)}"
        case OneOf():
            return f"{_named(predicate.column)} in ({', '.join(map(_literal, predicate.values))})"
        case Like():
            return f"{_named(predicate.column)} like {_quoted(predicate.pattern)}"


def _part(predicate: Predicate) -> str:
    text = write_predicate(predicate)
    return f"({text})" if isinstance(predicate, And | Or) else text


def _negated(inner: Predicate) -> str:
    """As SQL spells it, so that no condition is nested deeper than it was."""
    match inner:
        case IsNull():
            return f"{_named(inner.column)} is not null"
        case OneOf():
            return f"{_named(inner.column)} not in ({', '.join(map(_literal, inner.values))})"
        case Like():
            return f"{_named(inner.column)} not like {_quoted(inner.pattern)}"
        case _:
            return f"not {_part(inner)}"


def _named(column: Column) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in column.path)


def _literal(value: Value) -> str:
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
            return _quoted(value)
        case _:
            return repr(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
