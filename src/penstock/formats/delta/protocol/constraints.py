"""What a table asks of every row: CHECK constraints, and invariants of columns.

Constraints are properties (``delta.constraints.<name>``), invariants are notes of columns. Both are
conditions in Spark's SQL, which must be true for each row that is written: a null is as bad as false.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.rows.schema import parse_schema

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


def constraints_of(metadata: Metadata) -> tuple[Constraint, ...]:
    """All constraints of a table, by name. ``MalformedAction`` if its schema cannot be understood."""
    checks = (
        Constraint(name.removeprefix(CONSTRAINTS), text)
        for name, text in sorted(metadata.configuration.items())
        if name.startswith(CONSTRAINTS)
    )
    return (*checks, *_invariants(metadata.schema_string))


def added_constraints(before: Metadata, after: Metadata) -> tuple[Constraint, ...]:
    """The constraints that rows of a table were not checked against as long as it was as before."""
    expressions = {constraint.expression for constraint in constraints_of(before)}
    return tuple(
        constraint for constraint in constraints_of(after) if constraint.expression not in expressions
    )


@lru_cache(maxsize=64)
def _invariants(schema_string: str) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(field.name, expression, is_invariant=True)
        for field in parse_schema(schema_string).walk()
        for expression in _expression(field.metadata.get(INVARIANTS))
    )


def _expression(noted: Any) -> Iterator[str]:
    """The expression that an invariant holds; all of it if it cannot be read, and then no row fits it."""
    if noted is None:
        return
    try:
        parsed: Any = msgspec.json.decode(noted)
        yield str(parsed["expression"]["expression"])
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
        yield str(noted)
