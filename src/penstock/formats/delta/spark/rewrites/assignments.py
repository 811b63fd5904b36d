"""Assignments: new values of a table's columns, from expressions that somebody gives.

A value becomes one of the column's type by the rules that Spark has for ``INSERT`` in its ANSI mode, whatever
the session's own mode is: numbers become other numbers, and anything becomes text, but text becomes nothing
else, and what does not fit ends the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.column_rules import get_identity_column
from penstock.formats.delta.spark.rewrites.row_conditions import check_of_one_row
from penstock.formats.rows.arrow_types import allow_nulls
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type
from penstock.lake.row_changes import check_assigned_once
from penstock.model.similar_names import describe_names
from penstock.spark.analysis import explain_analysis
from penstock.spark.requests import Values
from penstock.spark.row_refusals import make_refusal_column
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Path: TypeAlias = tuple[str, ...]
"""A column, or a part of one, by the names that the table has for them."""
_STEPS: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def assign_values(df: DataFrame, values: Values, table: StructType) -> dict[Path, Column]:
    """New values for columns of a table, each of its column's type; the expressions are over ``df``.

    ``InvalidRequest`` names a column that the table does not have or that is assigned twice, and a type that
    cannot become the column's. So are expressions that are not made of one row. A null where none may be, in
    the column or inside of it, ends the job.
    """
    expressions: dict[Path, Column] = {}
    fields: dict[Path, Field] = {}
    for name, value in values.items():
        path, field = _find_column(name, table)
        if get_identity_column(field) is not None:
            raise InvalidRequest(
                f"'{name}' cannot be assigned: it is an identity column, whose numbers do not change",
                column=name,
            )
        check_assigned_once(name, path, expressions)
        expressions[path] = make_expression(value)
        fields[path] = field
    check_of_one_row(df, expressions.values())
    with explain_analysis():
        typed_fields = df.select(
            *(typed_field.alias(f"value{at}") for at, typed_field in enumerate(expressions.values()))
        ).schema.fields
    is_ansi = str(df.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    assigned = {}
    for (path, column), typed_field in zip(expressions.items(), typed_fields, strict=True):
        value = _cast_to_store(column, typed_field.dataType, fields[path], ".".join(path), is_ansi)
        assigned[path] = (
            value
            if fields[path].nullable or not typed_field.nullable
            else _refuse_null(value, ".".join(path))
        )
    return assigned


def make_expression(value: Any) -> Column:
    """A value as it may be given: see ``Values``."""
    from pyspark.sql import Column
    from pyspark.sql import functions as f

    with explain_analysis():
        if isinstance(value, str):
            return f.expr(value)
        return value if isinstance(value, Column) else f.lit(value)


def assign_column(field: Field, old: Column, values: Mapping[Path, Column], path: Path = ()) -> Column:
    """A column with new values for it, or for parts of it; the others stay as they are.

    A struct of which a part is assigned is there afterwards, even if it was null. If it was, and another part
    may not be null, the job ends with a refusal.
    """
    from pyspark.sql import functions as f

    path = (*path, field.name)
    if path in values:
        return values[path]
    if not isinstance(field.type, StructType) or not _is_partly_in(values, path):
        if field.nullable or len(path) == 1:
            return old
        name, whole = ".".join(path), ".".join(path[:-1])
        error = f"'{whole}' is null in a row, but '{name}' is not nullable; assign '{name}' too"
        return f.when(old.isNull(), make_refusal_column(error)).otherwise(old)
    return f.struct(
        *(
            assign_column(inner, old.getField(inner.name), values, path).alias(inner.name)
            for inner in field.type.fields
        )
    )


def make_row(
    table: StructType, old: Callable[[str], Column], values: Mapping[Path, Column]
) -> dict[str, Column]:
    """The columns of a row of the table after assignments."""
    return {field.name: assign_column(field, old(field.name), values) for field in table.fields}


def find_unassigned_columns(table: StructType, values: Collection[Path], path: Path = ()) -> Iterator[str]:
    """What a new row needs that is given no value: columns, and parts of structs that are given in part."""
    for field in table.fields:
        inside = (*path, field.name)
        if inside in values:
            continue
        if isinstance(field.type, StructType) and _is_partly_in(values, inside):
            yield from find_unassigned_columns(field.type, values, inside)
        elif not field.nullable:
            yield ".".join(inside)


def _is_partly_in(values: Collection[Path], path: Path) -> bool:
    return any(candidate[: len(path)] == path for candidate in values)


def _find_column(name: str, table: StructType) -> tuple[Path, Field]:
    """Find the column, or the nested field, that a name means."""
    whole = table.field(name)
    steps = [name] if whole is not None else [(a.replace("``", "`") or b) for a, b in _STEPS.findall(name)]
    inside: Any = table
    path: list[str] = []
    field: Field | None = None
    for step in steps:
        field = inside.field(step) if isinstance(inside, StructType) else None
        if field is None:
            break
        path.append(field.name)
        inside = field.type
    if field is None:
        choices = describe_names(name, [field.name for field in table.fields])
        raise InvalidRequest(f"the table has no column '{name}'{choices}", column=name)
    return tuple(path), field


def _cast_to_store(column: Column, given: DataType, field: Field, name: str, is_ansi: bool) -> Column:
    """Cast a value to the column's type as a Spark store assignment does."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    column_type = to_spark_schema(StructType((field,))).fields[0].dataType
    if given == column_type:
        return column
    is_nested = isinstance(column_type, t.StructType | t.ArrayType | t.MapType)
    is_same = given.simpleString() == column_type.simpleString()  # which says nothing of nulls
    needs_ansi = is_nested and not is_same and not isinstance(given, t.NullType)
    if not _may_store(given, column_type) or (needs_ansi and not is_ansi):
        raise InvalidRequest(
            f"the column '{name}' has the type {column_type.simpleString()}, but its new value has the type "
            f"{given.simpleString()}, which Spark does not convert; cast it",
            column=name,
        )
    if is_nested:
        loose = (
            to_spark_schema(StructType((replace(field, type=allow_nulls(field.type)),))).fields[0].dataType
        )
        return _refuse_nulls(column if is_same else column.cast(loose), field.type, name)
    tried = column.try_cast(column_type)
    error = make_refusal_column(
        f"the column '{name}' has the type {column_type.simpleString()}, which cannot store the new value"
    )
    return f.when(column.isNotNull() & tried.isNull(), error).otherwise(tried)


def _may_store(given: DataType, wanted: DataType) -> bool:
    """Whether Spark stores values of a type in a column of another one: its ANSI rules of assignment."""
    from pyspark.sql import types as t

    match given, wanted:
        case t.NullType(), _:
            return True
        case t.ArrayType(), t.ArrayType():
            return _may_store(given.elementType, wanted.elementType)
        case t.MapType(), t.MapType():
            return _may_store(given.keyType, wanted.keyType) and _may_store(given.valueType, wanted.valueType)
        case t.StructType(), t.StructType():
            return [given_field.name.lower() for given_field in given] == [
                given_field.name.lower() for given_field in wanted
            ] and all(
                _may_store(given_field.dataType, wanted_field.dataType)
                for given_field, wanted_field in zip(given, wanted, strict=True)
            )
        case t.NumericType(), t.NumericType():
            return True
        case (
            (t.DateType() | t.TimestampType() | t.TimestampNTZType()),
            (t.DateType() | t.TimestampType() | t.TimestampNTZType()),
        ):
            return True
        case t.AtomicType(), t.StringType():
            return True
        case _:
            return type(given) is type(wanted) and given.simpleString() == wanted.simpleString()


def _refuse_nulls(value: Column, kind: Type, name: str) -> Column:
    """A value of a type; the job ends with a refusal at the first null inside of it where none may be."""
    from pyspark.sql import functions as f

    def refuse_nulls_in_part(one: Column, of: Type, nullable: bool, path: str) -> Column:
        checked = _refuse_nulls(one, of, path)
        return checked if nullable else _refuse_null(checked, path)

    if kind == allow_nulls(kind):
        return value
    match kind:
        case StructType():
            parts = (
                refuse_nulls_in_part(
                    value.getField(field.name), field.type, field.nullable, f"{name}.{field.name}"
                ).alias(field.name)
                for field in kind.fields
            )
            return f.when(value.isNotNull(), f.struct(*parts))
        case ArrayType():
            return f.transform(
                value,
                lambda one: refuse_nulls_in_part(
                    one, kind.element_type, kind.contains_null, f"{name}.element"
                ),
            )
        case MapType():
            keyed = f.transform_keys(
                value, lambda key, _: refuse_nulls_in_part(key, kind.key_type, True, f"{name}.key")
            )
            return f.transform_values(
                keyed,
                lambda _, one: refuse_nulls_in_part(
                    one, kind.value_type, kind.value_contains_null, f"{name}.value"
                ),
            )
        case _:
            return value


def _refuse_null(value: Column, name: str) -> Column:
    from pyspark.sql import functions as f

    error = make_refusal_column(f"the column '{name}' is not nullable, but its new value is null")
    return f.when(value.isNull(), error).otherwise(value)


def get_old_column(name: str) -> Column:
    """The column of that name, whatever is in it."""
    from pyspark.sql import functions as f

    return f.col(quote_name(name))
