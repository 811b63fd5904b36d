"""New values for columns of rows of a Delta table, and what the table gives to the others itself.

A row that is updated has its generated columns computed anew; one that is assigned is checked. A new row has
defaults, generated columns and numbers where it is given nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.column_rules import GENERATED, get_identity_column
from penstock.formats.delta.rows.filled_columns import ColumnFiller, IdentityNumberSource
from penstock.formats.rows.arrow_types import find_arrow_type, make_arrow_schema, pa, pc
from penstock.formats.rows.expression_text import assign_value, parse_expression
from penstock.formats.rows.row_expressions import TABLE, RowFrames, SqlExpression
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.row_changes import RowValues, check_assigned_once
from penstock.model.similar_names import describe_names

TARGET: Final = "target"
"""What expressions call the rows that are updated, where there are others beside them."""

Path: TypeAlias = tuple[str, ...]
AssignedValues: TypeAlias = Mapping[Path, SqlExpression | Any]
"""By columns, or parts of them: an expression, or an Arrow scalar."""


class RowAssignment:
    """What rows become. ``InvalidRequest`` for a column that cannot be given a value, or must be,
    ``UnsupportedFeature`` names an expression of the table that cannot be evaluated here."""

    def __init__(
        self,
        schema: StructType,
        values: AssignedValues,
        *,
        is_insert: bool,
        numbers: IdentityNumberSource | None = None,
    ) -> None:
        self._values = values
        assigned = {path[0] for path in values}
        self._fields = [
            field
            for field in schema.fields
            if field.name in assigned or not (is_insert or GENERATED in field.metadata)
        ]
        whole = {path[0] for path in values if len(path) == 1}
        self._kept = {field.name for field in self._fields if not is_insert and field.name not in whole}
        for field in self._fields if not is_insert else ():
            if field.name in assigned and get_identity_column(field) is not None:
                raise InvalidRequest(
                    f"'{field.name}' cannot be assigned: it is an identity column, whose numbers do not "
                    "change",
                    column=field.name,
                )
        self._fill = ColumnFiller(
            schema, make_arrow_schema(self._fields), kept=self._kept - assigned, numbers=numbers
        )

    def list_needed_columns(self, table: str) -> list[str]:
        """The columns of a table that are needed; of rows that are updated also those that stay."""
        expressions = [value for value in self._values.values() if isinstance(value, SqlExpression)]
        names = {name for expression in expressions for name in expression.list_columns_of(table)}
        return sorted(names | self._kept if table in (TABLE, TARGET) else names)

    def assign_columns(self, before: Any, frames: RowFrames) -> Any:
        """Rows of the table; ``before`` are those that are updated, ``None`` for new ones."""
        values = {
            path: value.evaluate(frames)
            if isinstance(value, SqlExpression)
            else pa.repeat(value, frames.num_rows)
            for path, value in self._values.items()
        }
        arrays = [
            _assign_column(
                field,
                before.column(field.name) if field.name in self._kept else None,
                values,
                (field.name,),
                frames,
            )
            for field in self._fields
        ]
        names = [field.name for field in self._fields]
        return self._fill.fill_columns(pa.RecordBatch.from_arrays(arrays, names=names))


def parse_assignments(
    values: RowValues, tables: Mapping[str, StructType], schema: StructType
) -> AssignedValues:
    """New values for columns of a table, by the columns.

    ``InvalidRequest`` names a column that the table does not have or that is assigned twice, and a value that
    is none of its column's type.
    """
    assigned: dict[Path, SqlExpression | Any] = {}
    for name, value in values.items():
        path, field = find_path(name, schema)
        check_assigned_once(name, path, assigned)
        if isinstance(value, str):
            expression = parse_expression(value, tables)
            assigned[path] = SqlExpression(value, assign_value(expression.root, field, name))
        else:
            assigned[path] = _convert_scalar(value, field, name)
    return assigned


def find_path(name: str, schema: StructType) -> tuple[Path, Field]:
    """The column, or the part of one, that a name stands for."""
    whole = schema.field(name)
    if whole is not None:
        return (whole.name,), whole
    inside: Any = schema
    path: list[str] = []
    field: Field | None = None
    for step in name.replace("`", "").split("."):
        field = inside.field(step) if isinstance(inside, StructType) else None
        if field is None:
            names = describe_names(name, [column.name for column in schema.fields])
            raise InvalidRequest(f"the table has no column '{name}'{names}", column=name)
        path.append(field.name)
        inside = field.type
    assert field is not None
    return tuple(path), field


def _assign_column(field: Field, old: Any, values: Mapping[Path, Any], path: Path, frames: RowFrames) -> Any:
    """A column with new values for it, or for parts of it; a struct that is assigned in part is there."""
    if path in values:
        return values[path]
    if not isinstance(field.type, StructType) or not any(other[: len(path)] == path for other in values):
        return pa.nulls(frames.num_rows, find_arrow_type(field.type, field.name)) if old is None else old
    children, fields = [], []
    for part in field.type.fields:
        inside = None if old is None else pc.struct_field(old, part.name)
        array = _assign_column(part, inside, values, (*path, part.name), frames)
        children.append(array)
        fields.append(pa.field(part.name, array.type))
    return pa.StructArray.from_arrays(children, fields=fields)


def _convert_scalar(value: Any, field: Field, name: str) -> Any:
    try:
        return pa.scalar(value, find_arrow_type(field.type, name))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise InvalidRequest(
            f"{value!r} is not a value of the column '{name}' ({field.type}): {problem}", column=name
        ) from None
