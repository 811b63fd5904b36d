"""Values that a table gives to its columns by itself, computed by Spark: defaults and generated columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    GENERATED,
    Constraint,
    list_generation_expressions,
)
from penstock.formats.rows.schema import Field, StructType
from penstock.spark.analysis import explain_analysis
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def make_default(field: Field) -> Column:
    """The default of a column that has one. ``UnsupportedFeature`` if Spark cannot evaluate it."""
    return _evaluate_expression(field, field.metadata[CURRENT_DEFAULT], "allowColumnDefaults")


def add_generated_columns(
    df: DataFrame, table: StructType, generated: Mapping[str, Column | None], row: str = ""
) -> DataFrame:
    """Rows with values for some generated columns, which are computed from the others.

    A condition says for which rows, all without one; for others the column stays as it is. With ``row``, the
    columns of the table are parts of that struct. The rows then have the columns in the order of the table,
    and what else they have after these. ``UnsupportedFeature`` names an expression that Spark cannot
    evaluate.
    """
    from pyspark.sql import functions as f

    if not generated:
        return df
    others = [f.col(quote_name(name)) for name in df.columns if name != row] if row else []
    flat = df.select(*others, f"{row}.*") if row else df
    columns: list[Any] = []
    for field in table.fields:
        value = f.col(quote_name(field.name))
        if field.name in generated:
            computed = _evaluate_expression(field, field.metadata[GENERATED], "generatedColumns")
            with explain_analysis():
                flat.select(computed)
            condition = generated[field.name]
            value = computed if condition is None else f.when(condition, computed).otherwise(value)
        columns.append(value.alias(field.name))
    names = {field.name for field in table.fields}
    inside = flat.columns[len(others) :]
    columns += [f.col(quote_name(name)) for name in inside if name not in names]
    if row:
        return flat.select(*others, f.struct(*columns).alias(row))
    return flat.select(*columns)


def generation_constraints(metadata: Metadata) -> tuple[Constraint, ...]:
    """What every row satisfies because of generated columns: each is equal to its expression."""
    return tuple(
        Constraint(name, f"{quote_name(name)} <=> ({expression})", is_generation=True)
        for name, expression in list_generation_expressions(metadata)
    )


def _evaluate_expression(field: Field, text: str, feature: str) -> Column:
    from pyspark.sql import functions as f

    (spark_field,) = to_spark_schema(StructType((field,))).fields
    try:
        with explain_analysis():
            return f.expr(text).cast(spark_field.dataType)
    except InvalidRequest as problem:
        raise UnsupportedFeature(
            f"the column '{field.name}' cannot be computed ({text}): {problem.message}",
            feature=feature,
            column=field.name,
        ) from None
