"""Columns whose values come from expressions: generated ones, and those with a default."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.rows.schema import Field, parse_schema

GENERATED: Final = "delta.generationExpression"
"""In the metadata of a column: the expression in Spark's SQL that its values are equal to."""
CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"
"""In the metadata of a column: the expression whose value it has in rows that are given without it."""
IDENTITY_START: Final = "delta.identity.start"
IDENTITY_STEP: Final = "delta.identity.step"
HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
EXPLICIT: Final = "delta.identity.allowExplicitInsert"


def is_computed(field: Field) -> bool:
    """Whether a column is generated, or an identity column."""
    return not field.metadata.keys().isdisjoint((GENERATED, IDENTITY_START, IDENTITY_STEP))


def fills_itself(field: Field) -> bool:
    """Whether a new row may come without a column because the table gives it a value."""
    return is_computed(field) or CURRENT_DEFAULT in field.metadata


def expressions_of(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """The generated columns of a table, each with its expression."""
    return _expressions(metadata.schema_string, GENERATED)


def defaults_of(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """The columns of a table that have a default, each with its expression."""
    return _expressions(metadata.schema_string, CURRENT_DEFAULT)


@lru_cache(maxsize=128)
def _expressions(schema_string: str, note: str) -> tuple[tuple[str, str], ...]:
    return tuple(_find_noted(schema_string, note))


def _find_noted(schema_string: str, note: str) -> Iterator[tuple[str, str]]:
    for field in parse_schema(schema_string).fields:
        expression = field.metadata.get(note)
        if isinstance(expression, str):
            yield field.name, expression
