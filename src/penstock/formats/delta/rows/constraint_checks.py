"""Rows are checked against the constraints of their table before they are written.

Only conditions are understood of which it is sure that Spark understands them alike (``expression_text``).
Rows of a table with any other constraint are written with Spark, which evaluates all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.constraints import Constraint, constraints_of
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.expression_text import parse_condition_text
from penstock.formats.rows.row_expressions import TABLE, RowFrames, SqlExpression
from penstock.formats.rows.schema import StructType, parse_schema


class RowChecks:
    """The constraints of a table, for batches of its rows.

    ``UnsupportedFeature`` names a constraint that cannot be evaluated here.
    """

    def __init__(self, metadata: Metadata, constraints: Sequence[Constraint] | None = None) -> None:
        """``constraints`` are others than those that the metadata has."""
        schema = parse_schema(metadata.schema_string)
        wanted = constraints_of(metadata) if constraints is None else constraints
        self._constraints = [(one, _parse(one, schema)) for one in wanted]
        partitions = {name.lower() for name in metadata.partition_columns}
        self._texts = [
            field.name
            for field in schema.fields
            if field.name.lower() in partitions and field.type == "string"
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the constraints are about."""
        return tuple(sorted({name for _, one in self._constraints for name in one.columns_of(TABLE)}))

    def check(self, batch: Any) -> None:
        """``InvalidRequest`` names a constraint that is not true for a row, and shows the row."""
        if not self._constraints or not batch.num_rows:
            return
        batch = self._as_read(batch)
        for constraint, condition in self._constraints:
            is_true = condition.is_true(RowFrames({TABLE: batch}, batch.num_rows))
            if pc.all(is_true).as_py():
                continue
            first = pc.index(is_true, False).as_py()
            row = batch.slice(first, 1).select(sorted(condition.columns_of(TABLE))).to_pylist()[0]
            raise violation(constraint, ", ".join(f"{name} = {value!r}" for name, value in row.items()))

    def _as_read(self, batch: Any) -> Any:
        """An empty text that says in which partition a row is will be read as null."""
        for name in self._texts:
            at = batch.schema.get_field_index(name)
            if at < 0:
                continue
            texts = batch.column(at)
            held = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
            batch = batch.set_column(at, batch.schema.field(at), held)
        return batch


def violation(constraint: Constraint, row: str) -> InvalidRequest:
    """What is told of a row for which a constraint is not true."""
    return InvalidRequest(
        f"the data violates {constraint}: it is not true for a row with {row}; nothing was written",
        constraint=constraint.name,
        row=row,
    )


def _parse(constraint: Constraint, schema: StructType) -> SqlExpression:
    try:
        return parse_condition_text(constraint.expression, {TABLE: schema}, is_stored=True)
    except InvalidRequest as problem:
        raise _not_understood(constraint, problem.message) from None


def _not_understood(constraint: Constraint, why: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"rows cannot be checked against {constraint} without Spark: {why}\n"
        "  Write them with penstock.spark.write, which evaluates every constraint.",
        feature=constraint.feature,
        constraint=constraint.name,
    )
