"""Rows that Spark writes are checked against the constraints of their table, by Spark itself, as it writes
them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.job_outputs import CHANGES
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import Constraint, list_constraints
from penstock.formats.delta.rows.row_checks import violation_error
from penstock.formats.delta.spark.job.computed_columns import generation_constraints
from penstock.formats.rows.schema import Field, parse_schema
from penstock.spark.analysis import explain_analysis
from penstock.spark.row_refusals import make_refusal_column
from penstock.spark.schemas import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHOWN_MAX: Final = 4
"""How many columns of a row are shown, if it cannot be told which a constraint is about."""
SHOWN_MAX_CHARS: Final = 60
"""How much of each value."""


def enforce_constraints(
    df: DataFrame, metadata: Metadata, partitions: Sequence[Field], *, has_changes: bool
) -> DataFrame:
    """The same rows, with checks: the job fails at the first row that violates a constraint.

    With changes, rows of the change data feed are not looked at: they are no rows of the table.
    ``UnsupportedFeature`` names a constraint that Spark cannot evaluate.
    """
    from pyspark.sql import functions as f

    constraints = (*list_constraints(metadata), *generation_constraints(metadata))
    if not constraints:
        return df
    for field in partitions:
        if field.type == "string":  # as it will be read
            name = quote_name(field.name)
            df = df.withColumn(field.name, f.when(f.col(name) != "", f.col(name)))
    names = [field.name for field in parse_schema(metadata.schema_string).fields]
    # In a column that is written, and not as a filter: a filter may be asked of rows that do not stay.
    checked_column = f.col(quote_name(names[0]))
    for constraint in constraints:
        try:
            with explain_analysis():
                is_true = f.coalesce(f.expr(constraint.expression).cast("boolean"), f.lit(False))
                df.select(is_true)
        except InvalidRequest as problem:
            raise UnsupportedFeature(
                f"rows cannot be checked against {constraint}: {problem.message}",
                feature=constraint.feature,
                constraint=constraint.name,
            ) from None
        if has_changes:
            is_true = is_true | f.coalesce(f.col(CHANGES), f.lit(False))
        error = make_refusal_column(
            violation_error(constraint, "{}").message, _shown_columns(constraint, names)
        )
        checked_column = f.when(is_true, checked_column).otherwise(error)
    return df.withColumn(names[0], checked_column)


def _shown_columns(constraint: Constraint, names: Sequence[str]) -> Column:
    """What is shown of a row: the columns that a constraint is about."""
    from pyspark.sql import functions as f

    words = {word.lower() for word in re.findall(r"\w+", constraint.expression)}
    about = [name for name in names if name.lower() in words]
    shown = []
    for name in about or names[:SHOWN_MAX]:
        text = f.substring(f.to_json(f.array(f.col(quote_name(name)))), 1, SHOWN_MAX_CHARS)
        shown.append(f.concat(f.lit(f"{name} = "), f.regexp_replace(text, r"^\[|\]$", "")))
    return f.concat_ws(", ", *shown)
