"""Identity columns: every new row gets a number that no other row of the table has.

A column notes where its numbers start, their step, and the high-water mark: the furthest number that was
given away. The mark goes further with every commit that gives away numbers, and never back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_expressions import (
    EXPLICIT,
    HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
)
from penstock.formats.delta.protocol.mapping import stored_name
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

    def furthest(self, *marks: int | None) -> int | None:
        """The mark that is furthest in the direction of the numbers."""
        noted_marks = [mark for mark in marks if mark is not None]
        return None if not noted_marks else max(noted_marks) if self.step > 0 else min(noted_marks)


def identity_of(field: Field) -> IdentityColumn | None:
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


def identities_of(metadata: Metadata) -> tuple[IdentityColumn, ...]:
    """The identity columns of a table."""
    return _identities(metadata.schema_string)


@lru_cache(maxsize=64)
def _identities(schema_string: str) -> tuple[IdentityColumn, ...]:
    columns = map(identity_of, parse_schema(schema_string).fields)
    return tuple(column for column in columns if column is not None)


def with_marks(metadata: Metadata, marks: Mapping[str, int]) -> Metadata:
    """Metadata whose identity columns have got at least as far as some marks; the same, if they have."""

    def mark(field: Field) -> Field:
        identity = identity_of(field)
        if identity is None or field.name not in marks:
            return field
        furthest = identity.furthest(identity.mark, marks[field.name])
        return replace(field, metadata={**field.metadata, HIGH_WATER_MARK: furthest})

    schema = parse_schema(metadata.schema_string)
    marked = StructType(tuple(map(mark, schema.fields)))
    return metadata if marked == schema else replace(metadata, schema_string=write_schema(marked))


def keep_marks(metadata: Metadata, now: Metadata) -> Metadata:
    """Metadata of an earlier state, with the marks that the table has now: no number is given away twice."""
    marks = {column.name: column.mark for column in identities_of(now) if column.mark is not None}
    return with_marks(metadata, marks) if marks else metadata


def without_marks(metadata: Metadata) -> Metadata:
    """Metadata that does not tell how far numbers were given away."""
    if not identities_of(metadata):
        return metadata
    schema: Any = msgspec.json.decode(metadata.schema_string)
    for field in schema["fields"]:
        field.get("metadata", {}).pop(HIGH_WATER_MARK, None)
    return replace(metadata, schema_string=msgspec.json.encode(schema).decode())
