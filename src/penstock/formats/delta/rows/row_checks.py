"""Rows that somebody gives, as rows of a table: nothing is lost on the way, or nothing is taken.

Columns are found by their names, whatever their case and order. One that is missing is null, if it may be.
Values are cast to the table's types if every one of them survives that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import Constraint, list_constraints
from penstock.formats.rows.arrow_types import (
    DECIMAL_DIGITS_MAX,
    allow_nulls,
    find_arrow_type,
    make_arrow_schema,
    pa,
    pc,
    reshape_array,
    write_type_name,
)
from penstock.formats.rows.expression_text import parse_condition_text
from penstock.formats.rows.row_expressions import TABLE, RowFrames, SqlExpression
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type, parse_schema
from penstock.model.similar_names import describe_names


def check_columns(column: Any, schema: StructType) -> None:
    """Check that an Arrow schema has a table's columns, by their names. Raises as ``conform_batch``."""
    _match_names(column, schema, "")


def conform_batch(batch: Any, schema: StructType) -> Any:
    """The batch with the table's columns, in types that allow nulls at every depth, as files are written.

    ``InvalidRequest`` names a column that the table does not have, one that is missing or null and must not
    be, and one whose type or values the table's type cannot hold without loss.
    """
    places = _match_names(batch.schema, schema, "")
    loose = allow_nulls(schema)
    assert isinstance(loose, StructType)  # as what it was made from
    arrays = []
    for field, at in zip(loose.fields, places, strict=True):
        if at is None:
            array = pa.nulls(batch.num_rows, find_arrow_type(field.type, field.name))
        else:
            array = _reshape_column(batch.column(at), field)
        arrays.append(array)
    for field, array in zip(schema.fields, arrays, strict=True):
        _check_nulls(array, field.type, field.name, nullable=field.nullable)
    return pa.RecordBatch.from_arrays(arrays, schema=make_arrow_schema(loose.fields))


def _match_names(there: Any, kind: StructType, path: str) -> Sequence[int | None]:
    """Where the table's columns are in the data. ``InvalidRequest`` for one too many, or one that must be."""
    above = f"{path}." if path else ""
    places: dict[str, int] = {}
    for at, table_field in enumerate(there):
        if kind.field(table_field.name) is None:
            names = describe_names(table_field.name, [field.name for field in kind.fields], above=above)
            raise InvalidRequest(
                f"the table has no column '{above}{table_field.name}'{names}\n  To add it with the rows: "
                "table.append(rows, merge_schema=True).",
                column=table_field.name,
            )
        if table_field.name.lower() in places:
            raise InvalidRequest(
                f"the data has the column '{above}{table_field.name}' twice", column=table_field.name
            )
        places[table_field.name.lower()] = at
    for field in kind.fields:
        if not field.nullable and field.name.lower() not in places:
            raise InvalidRequest(
                f"the data lacks the column '{above}{field.name}', which is not nullable", column=field.name
            )
    return [places.get(field.name.lower()) for field in kind.fields]


def _reshape_column(array: Any, field: Field) -> Any:
    try:
        return reshape_array(array, field.type, _match_names, _cast_lossless, field.name)
    except TypeError as problem:
        raise InvalidRequest(str(problem), column=field.name) from None


def _cast_lossless(array: Any, target_type: Any, path: str) -> Any:
    """An array as another type, if every value of it survives that."""
    if not _may_cast(array.type, target_type):
        hint = ""
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target_type):
            hint = "; add a time zone to its values, or strip it, to state whether they are in UTC"
        raise InvalidRequest(
            f"the column '{path}' has the type {write_type_name(target_type)}, "
            f"but the data has {array.type}{hint}",
            column=path,
        )
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target_type):
            # Straight to the type, Arrow asks for room for every number that there could be.
            array = array.cast(pa.decimal128(DECIMAL_DIGITS_MAX, 0))
        return array.cast(target_type)
    except pa.ArrowException as problem:
        raise InvalidRequest(
            f"the column '{path}' has the type {write_type_name(target_type)}, which cannot hold all values: "
            f"{problem}",
            column=path,
        ) from None


def _may_cast(column: Any, target_type: Any) -> bool:
    """Whether values can survive: Arrow then refuses those that do not."""
    kinds = pa.types
    if isinstance(column, pa.BaseExtensionType):
        column = column.storage_type
    if kinds.is_null(column) or column == target_type:
        return True
    if kinds.is_integer(column):
        return bool(
            kinds.is_integer(target_type) or kinds.is_decimal(target_type) or kinds.is_float64(target_type)
        )
    if kinds.is_floating(column):
        return bool(kinds.is_floating(target_type) and column.bit_width <= target_type.bit_width)
    if kinds.is_decimal(column):
        return bool(kinds.is_decimal(target_type))
    if kinds.is_timestamp(column):
        return bool(kinds.is_timestamp(target_type) and (column.tz is None) == (target_type.tz is None))
    if kinds.is_date(column):
        return bool(kinds.is_date(target_type))
    return write_type_name(column) == write_type_name(target_type)


def _check_nulls(array: Any, kind: Type, path: str, *, nullable: bool) -> None:
    """``InvalidRequest`` for a null where none may be, at any depth. What is null holds nothing below it."""
    if not nullable and array.null_count:
        raise InvalidRequest(
            f"the column '{path}' is not nullable, but the data has nulls in it", column=path
        )
    match kind:
        case StructType():
            present = array.drop_null() if array.null_count else array
            for at, field in enumerate(kind.fields):
                _check_nulls(present.field(at), field.type, f"{path}.{field.name}", nullable=field.nullable)
        case ArrayType():
            _check_nulls(array.flatten(), kind.element_type, f"{path}.element", nullable=kind.contains_null)
        case MapType():
            present = array.drop_null() if array.null_count else array
            first, last = present.offsets[0].as_py(), present.offsets[len(present)].as_py()
            items = present.items.slice(first, last - first)
            _check_nulls(items, kind.value_type, f"{path}.value", nullable=kind.value_contains_null)


# Rows are checked against the constraints of their table before they are written.
#
# Only conditions are understood of which it is sure that Spark understands them alike (``expression_text``).
# Rows of a table with any other constraint are written with Spark, which evaluates all of them.


class RowChecks:
    """The constraints of a table, for batches of its rows.

    ``UnsupportedFeature`` names a constraint that cannot be evaluated here.
    """

    def __init__(self, metadata: Metadata, constraints: Sequence[Constraint] | None = None) -> None:
        """``constraints`` are others than those that the metadata has."""
        schema = parse_schema(metadata.schema_string)
        enforced = list_constraints(metadata) if constraints is None else constraints
        self._constraints = [(constraint, _parse_constraint(constraint, schema)) for constraint in enforced]
        partitions = {name.lower() for name in metadata.partition_columns}
        self._texts = [
            field.name
            for field in schema.fields
            if field.name.lower() in partitions and field.type == "string"
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the constraints are about."""
        return tuple(
            sorted({name for _, condition in self._constraints for name in condition.list_columns_of(TABLE)})
        )

    def check_rows(self, batch: Any) -> None:
        """``InvalidRequest`` names a constraint that is not true for a row, and shows the row."""
        if not self._constraints or not batch.num_rows:
            return
        batch = self._to_read_values(batch)
        for constraint, condition in self._constraints:
            is_true = condition.is_true(RowFrames({TABLE: batch}, batch.num_rows))
            if pc.all(is_true).as_py():
                continue
            first = pc.index(is_true, False).as_py()
            row = batch.slice(first, 1).select(sorted(condition.list_columns_of(TABLE))).to_pylist()[0]
            raise violation_error(constraint, ", ".join(f"{name} = {value!r}" for name, value in row.items()))

    def _to_read_values(self, batch: Any) -> Any:
        """An empty text that says in which partition a row is will be read as null."""
        for name in self._texts:
            at = batch.schema.get_field_index(name)
            if at < 0:
                continue
            texts = batch.column(at)
            held = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
            batch = batch.set_column(at, batch.schema.field(at), held)
        return batch


def violation_error(constraint: Constraint, row: str) -> InvalidRequest:
    """What is told of a row for which a constraint is not true."""
    return InvalidRequest(
        f"the data violates {constraint}: it is not true for a row with {row}; nothing was written",
        constraint=constraint.name,
        row=row,
    )


def _parse_constraint(constraint: Constraint, schema: StructType) -> SqlExpression:
    try:
        return parse_condition_text(constraint.expression, {TABLE: schema}, is_stored=True)
    except InvalidRequest as problem:
        raise _unsupported_constraint_error(constraint, problem.message) from None


def _unsupported_constraint_error(constraint: Constraint, why: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"rows cannot be checked against {constraint} without Spark: {why}\n"
        "  Write them with penstock.spark.write, which evaluates every constraint.",
        feature=constraint.feature,
        constraint=constraint.name,
    )
