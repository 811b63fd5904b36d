"""Rows are checked against the constraints of their table before they are written.

Only conditions are understood of which it is sure that Spark understands them alike: comparisons of columns
with literals, put together (``predicate_text``). Rows of a table with any other constraint are written with
Spark, which evaluates all of them.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.constraints import Constraint, constraints_of
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.filtering import truth
from penstock.formats.rows.predicate_text import parse_predicate
from penstock.formats.rows.predicates import Predicate, columns_of
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.formats.rows.spark_conditions import means_the_same


class RowChecks:
    """The constraints of a table, for batches of its rows.

    ``UnsupportedFeature`` names a constraint that cannot be evaluated here.
    """

    def __init__(self, metadata: Metadata) -> None:
        schema = parse_schema(metadata.schema_string)
        self._constraints = [(one, _parse(one, schema)) for one in constraints_of(metadata)]
        partitions = {name.lower() for name in metadata.partition_columns}
        self._texts = [
            one.name for one in schema.fields if one.name.lower() in partitions and one.type == "string"
        ]

    def check(self, batch: Any) -> None:
        """``InvalidRequest`` names a constraint that is not true for a row, and shows the row."""
        if not self._constraints or not batch.num_rows:
            return
        batch = self._as_read(batch)
        for constraint, predicate in self._constraints:
            is_true = pc.fill_null(truth(predicate, batch), False)
            if pc.all(is_true).as_py():
                continue
            first = pc.index(is_true, False).as_py()
            row = batch.slice(first, 1).select(list(_names(predicate))).to_pylist()[0]
            raise violation(constraint, ", ".join(f"{name} = {value!r}" for name, value in row.items()))

    def _as_read(self, batch: Any) -> Any:
        """An empty text that says in which partition a row is will be read as null."""
        for name in self._texts:
            at = batch.schema.get_field_index(name)
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


def _parse(constraint: Constraint, schema: StructType) -> Predicate:
    try:
        predicate = parse_predicate(constraint.expression, schema)
    except InvalidRequest as problem:
        raise _not_understood(constraint, problem.message) from None
    if not means_the_same(constraint.expression, schema, None):
        raise _not_understood(constraint, "it may mean something else to Spark")
    return predicate


def _not_understood(constraint: Constraint, why: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"rows cannot be checked against {constraint} without Spark: {why}\n"
        "  Write them with penstock.spark.write, which evaluates every constraint.",
        feature="invariants" if constraint.is_invariant else "checkConstraints",
        constraint=constraint.name,
    )


def _names(predicate: Predicate) -> dict[str, None]:
    return dict.fromkeys(column.path[0] for column in columns_of(predicate))
