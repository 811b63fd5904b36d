"""What the columns of a table say of the values in new rows: numbers, expressions and conditions.

An identity column notes where its numbers start, their step, and the high-water mark: the furthest number
that was given away. The mark goes further with every commit that gives away numbers, and never back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.rows.schema import Field, StructType, parse_schema, write_schema

_DEFAULT: Final = 1


class IdentityColumn(NamedTuple):
    """A column whose values the table numbers."""

    name: str
    stored: str
    """Its name in files, which stays."""
    start: int
    step: int
    mark: int | None
    """The furthest number that was given away."""
    allows_explicit: bool
    """Whether rows may come with values of their own."""

    def choose_furthest_mark(self, *marks: int | None) -> int | None:
        """The mark that is furthest in the direction of the numbers."""
        noted_marks = [mark for mark in marks if mark is not None]
        return None if not noted_marks else max(noted_marks) if self.step > 0 else min(noted_marks)


def get_identity_column(field: Field) -> IdentityColumn | None:
    """What a column notes of its numbers; ``None`` if it is no identity column."""
    notes = field.metadata
    if IDENTITY_START not in notes and IDENTITY_STEP not in notes:
        return None
    mark = notes.get(HIGH_WATER_MARK)
    return IdentityColumn(
        field.name,
        stored_name(field),
        int(notes.get(IDENTITY_START, _DEFAULT)),
        int(notes.get(IDENTITY_STEP, _DEFAULT)) or _DEFAULT,
        mark if isinstance(mark, int) else None,
        notes.get(EXPLICIT) is True,
    )


def list_identity_columns(metadata: Metadata) -> tuple[IdentityColumn, ...]:
    """The identity columns of a table."""
    return _parse_identities(metadata.schema_string)


@lru_cache(maxsize=64)
def _parse_identities(schema_string: str) -> tuple[IdentityColumn, ...]:
    columns = map(get_identity_column, parse_schema(schema_string).fields)
    return tuple(column for column in columns if column is not None)


def set_identity_marks(metadata: Metadata, marks: Mapping[str, int]) -> Metadata:
    """Metadata whose identity columns have got at least as far as some marks; the same, if they have."""

    def mark_field(field: Field) -> Field:
        identity = get_identity_column(field)
        if identity is None or field.name not in marks:
            return field
        furthest = identity.choose_furthest_mark(identity.mark, marks[field.name])
        return replace(field, metadata={**field.metadata, HIGH_WATER_MARK: furthest})

    schema = parse_schema(metadata.schema_string)
    marked = StructType(tuple(map(mark_field, schema.fields)))
    return metadata if marked == schema else replace(metadata, schema_string=write_schema(marked))


def keep_marks(metadata: Metadata, now: Metadata) -> Metadata:
    """Metadata of an earlier state, with the marks that the table has now: no number is given away twice."""
    marks = {column.name: column.mark for column in list_identity_columns(now) if column.mark is not None}
    return set_identity_marks(metadata, marks) if marks else metadata


def remove_identity_marks(metadata: Metadata) -> Metadata:
    """Metadata that does not tell how far numbers were given away."""
    if not list_identity_columns(metadata):
        return metadata
    schema: Any = msgspec.json.decode(metadata.schema_string)
    for field in schema["fields"]:
        field.get("metadata", {}).pop(HIGH_WATER_MARK, None)
    return replace(metadata, schema_string=msgspec.json.encode(schema).decode())


# Columns whose values come from expressions: generated ones, and those with a default.


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


def has_generated_value(field: Field) -> bool:
    """Whether a new row may come without a column because the table gives it a value."""
    return is_computed(field) or CURRENT_DEFAULT in field.metadata


def list_generation_expressions(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """The generated columns of a table, each with its expression."""
    return _parse_expressions(metadata.schema_string, GENERATED)


def list_default_expressions(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """The columns of a table that have a default, each with its expression."""
    return _parse_expressions(metadata.schema_string, CURRENT_DEFAULT)


@lru_cache(maxsize=128)
def _parse_expressions(schema_string: str, note: str) -> tuple[tuple[str, str], ...]:
    return tuple(_find_noted(schema_string, note))


def _find_noted(schema_string: str, note: str) -> Iterator[tuple[str, str]]:
    for field in parse_schema(schema_string).fields:
        expression = field.metadata.get(note)
        if isinstance(expression, str):
            yield field.name, expression


# What a table asks of every row: CHECK constraints, and invariants of columns.
#
# Constraints are properties (``delta.constraints.<name>``), invariants are notes of columns. Both are
# conditions in Spark's SQL, which must be true for each row that is written: a null is as bad as false.


CONSTRAINTS: Final = "delta.constraints."
"""How the properties begin that hold constraints; a name follows."""
INVARIANTS: Final = "delta.invariants"
"""In the metadata of a column: its invariant, as JSON."""


class Constraint(msgspec.Struct, frozen=True):
    """A condition that must be true for every row."""

    name: str
    """As its table calls it; of an invariant, the column that has it."""
    expression: str
    is_invariant: bool = False
    is_generation: bool = False
    """It says that a generated column, whose name it has, is equal to its expression."""

    @property
    def feature(self) -> str:
        """The feature that asks for it."""
        if self.is_generation:
            return "generatedColumns"
        return "invariants" if self.is_invariant else "checkConstraints"

    def __str__(self) -> str:
        kind = "the invariant of the column" if self.is_invariant else "the constraint"
        if self.is_generation:
            kind = "the generated column"
        return f"{kind} '{self.name}' ({self.expression})"


def list_constraints(metadata: Metadata) -> tuple[Constraint, ...]:
    """All constraints of a table, by name. ``MalformedAction`` if its schema cannot be understood."""
    checks = (
        Constraint(name.removeprefix(CONSTRAINTS), text)
        for name, text in sorted(metadata.configuration.items())
        if name.startswith(CONSTRAINTS)
    )
    return (*checks, *_parse_invariants(metadata.schema_string))


def added_constraints(before: Metadata, after: Metadata) -> tuple[Constraint, ...]:
    """The constraints that rows of a table were not checked against as long as it was as before."""
    expressions = {constraint.expression for constraint in list_constraints(before)}
    return tuple(
        constraint for constraint in list_constraints(after) if constraint.expression not in expressions
    )


@lru_cache(maxsize=64)
def _parse_invariants(schema_string: str) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(field.name, expression, is_invariant=True)
        for field in parse_schema(schema_string).walk()
        for expression in _read_invariant_expression(field.metadata.get(INVARIANTS))
    )


def _read_invariant_expression(noted: Any) -> Iterator[str]:
    """The expression that an invariant holds; all of it if it cannot be read, and then no row fits it."""
    if noted is None:
        return
    try:
        parsed: Any = msgspec.json.decode(noted)
        yield str(parsed["expression"]["expression"])
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
        yield str(noted)
