"""Columns of a table come, go or change: what its metadata becomes.

Only a table with mapped columns can rename and drop columns: its files know them by names that stay. All
other changes are for every table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import (
    MODE,
    ColumnMapping,
    assign_columns,
    get_column_mapping,
    stored_name,
)
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    is_computed,
    list_constraints,
    list_generation_expressions,
)
from penstock.formats.delta.protocol.wider_types import widen_type
from penstock.formats.rows.schema import Field, StructType, Type, parse_schema, write_schema
from penstock.model.similar_names import describe_names

_Change: TypeAlias = Callable[[StructType, Field], StructType]
_BY_NAME: Final = ("delta.dataSkippingStatsColumns",)
"""Properties that name columns."""


def rename_column(metadata: Metadata, path: Sequence[str], name: str) -> Metadata:
    """Metadata in which a column, or a part of one, has another name. ``InvalidRequest`` says why not."""
    _check_mapped(metadata, "renamed")
    _check_unnamed(metadata, path, "renamed")
    if not name:
        raise InvalidRequest("a column needs a name")

    def rename_field(struct: StructType, field: Field) -> StructType:
        other = struct.field(name)
        if other is not None and other is not field:
            raise InvalidRequest(
                f"the column cannot be called '{name}': the table already has a column '{other.name}'",
                column=name,
            )
        fields = (
            replace(struct_field, name=name) if struct_field is field else struct_field
            for struct_field in struct.fields
        )
        return StructType(tuple(fields))

    schema = parse_schema(metadata.schema_string)
    _check_unpartitioned(metadata, schema, path, "renamed")
    return replace(metadata, schema_string=write_schema(_change_struct(schema, path, rename_field)))


def drop_column(
    metadata: Metadata, path: Sequence[str], clustering: Sequence[Sequence[str]] = ()
) -> Metadata:
    """Metadata without a column, or without a part of one. ``InvalidRequest`` says why not.

    ``clustering`` are the columns that the table is clustered by, as files call them.
    """
    _check_mapped(metadata, "dropped")
    _check_unnamed(metadata, path, "dropped")
    schema = parse_schema(metadata.schema_string)
    first = _find_field(schema, path[0])
    _check_unpartitioned(metadata, schema, path, "dropped")
    if stored_name(first) in {path[0] for path in clustering}:
        raise InvalidRequest(
            f"the column '{first.name}' cannot be dropped, because the table is clustered by it",
            column=first.name,
        )

    def drop_field(struct: StructType, field: Field) -> StructType:
        remaining = tuple(struct_field for struct_field in struct.fields if struct_field is not field)
        if not remaining:
            raise InvalidRequest(f"'{field.name}' is the only column", column=field.name)
        return StructType(remaining)

    changed = _change_struct(schema, path, drop_field)
    if {field.name for field in changed.fields} <= set(metadata.partition_columns):
        raise InvalidRequest("the table would have no columns besides its partition columns")
    return replace(metadata, schema_string=write_schema(changed))


def add_columns(metadata: Metadata, columns: StructType) -> Metadata:
    """Metadata with more columns, after those that are there. ``InvalidRequest`` says why not."""
    schema = parse_schema(metadata.schema_string)
    for field in columns.fields:
        if (target_field := schema.field(field.name)) is not None:
            raise InvalidRequest(f"the column '{target_field.name}' already exists", column=field.name)
        if not field.nullable:
            raise InvalidRequest(
                f"existing rows have null in the column '{field.name}', so it must be nullable",
                column=field.name,
            )
        if CURRENT_DEFAULT in field.metadata or is_computed(field):
            raise InvalidRequest(
                f"the column '{field.name}' must be added without a default or an expression, because "
                "existing rows have null in it: set_default sets a default for later rows",
                column=field.name,
            )
    united = StructType((*schema.fields, *columns.fields))
    return assign_columns(replace(metadata, schema_string=write_schema(united)))


def comment_column(metadata: Metadata, path: Sequence[str], comment: str | None) -> Metadata:
    """Metadata with another comment on a column, or none."""
    return _replace_field(metadata, path, lambda field: _set_note(field, "comment", comment or None))


def set_nullable(metadata: Metadata, path: Sequence[str], *, nullable: bool) -> Metadata:
    """Metadata in which a column may be null, or may not. Whoever forbids it has looked at the rows."""
    if not nullable and len(path) > 1:
        raise InvalidRequest(
            f"'{'.'.join(path)}' is a part of a column, and only whole columns become NOT NULL",
            column=path[-1],
        )
    return _replace_field(metadata, path, lambda field: replace(field, nullable=nullable))


def set_default(metadata: Metadata, path: Sequence[str], expression: str | None) -> Metadata:
    """Metadata with another default of a column, or none. ``InvalidRequest`` for a part of a column, and for
    one whose values are computed."""
    if len(path) > 1:
        raise InvalidRequest(
            f"'{'.'.join(path)}' is a part of a column, and only whole columns have defaults", column=path[-1]
        )

    def change_default(field: Field) -> Field:
        if expression is not None and is_computed(field):
            raise InvalidRequest(
                f"the values of '{field.name}' are computed, so it has no default", column=field.name
            )
        return _set_note(field, CURRENT_DEFAULT, expression)

    return _replace_field(metadata, path, change_default)


def widen_column(metadata: Metadata, path: Sequence[str], kind: str) -> Metadata:
    """Metadata in which a column is of a wider type, with a note of the type that it had.

    ``element``, ``key`` and ``value`` in a path are the insides of arrays and maps. ``InvalidRequest`` if the
    type is not wider, or something is computed from the column.
    """
    _check_not_computed_from(metadata, path, "widened")
    _check_unpartitioned(metadata, parse_schema(metadata.schema_string), path, "widened")
    schema = parse_schema(metadata.schema_string)
    return replace(metadata, schema_string=write_schema(widen_type(schema, path, kind)))


def move_column(metadata: Metadata, path: Sequence[str], after: str | None) -> Metadata:
    """Metadata in which a column stands behind another one of the same struct; first of all without one."""

    def move_field(struct: StructType, field: Field) -> StructType:
        others = [struct_field for struct_field in struct.fields if struct_field is not field]
        place = 0
        if after is not None:
            behind = _find_field(struct, after)
            if behind is field:
                raise InvalidRequest(f"'{field.name}' cannot be moved after itself", column=field.name)
            place = others.index(behind) + 1
        return StructType((*others[:place], field, *others[place:]))

    schema = parse_schema(metadata.schema_string)
    return replace(metadata, schema_string=write_schema(_change_struct(schema, path, move_field)))


def find_column(metadata: Metadata, path: Sequence[str]) -> Field:
    """A column, or a part of one, by its path. ``InvalidRequest`` names one that is not there."""
    fields: list[Field] = []

    def keep_field(struct: StructType, field: Field) -> StructType:
        fields.append(field)
        return struct

    _change_struct(parse_schema(metadata.schema_string), path, keep_field)
    return fields[0]


def _replace_field(metadata: Metadata, path: Sequence[str], change: Callable[[Field], Field]) -> Metadata:
    def change_fields(struct: StructType, field: Field) -> StructType:
        return StructType(
            tuple(
                change(struct_field) if struct_field is field else struct_field
                for struct_field in struct.fields
            )
        )

    schema = parse_schema(metadata.schema_string)
    return replace(metadata, schema_string=write_schema(_change_struct(schema, path, change_fields)))


def _set_note(field: Field, name: str, text: str | None) -> Field:
    notes = {key: value for key, value in field.metadata.items() if key != name}
    return replace(field, metadata=notes if text is None else {**notes, name: text})


def _check_mapped(metadata: Metadata, operation: str) -> None:
    if get_column_mapping(metadata) is ColumnMapping.NONE:
        raise InvalidRequest(
            f"columns can be {operation} only in a table with mapped columns: set its property '{MODE}' "
            "to 'name'"
        )


def is_named(metadata: Metadata, path: Sequence[str]) -> bool:
    """Whether something names a column: a constraint, a generated column, a property."""
    try:
        _check_unnamed(metadata, path, "renamed")
    except InvalidRequest:
        return True
    return False


def _check_unnamed(metadata: Metadata, path: Sequence[str], operation: str) -> None:
    """``InvalidRequest`` if something names the column that would then name nothing, or something else."""
    _check_not_computed_from(metadata, path, operation)
    for name in _BY_NAME:
        if _name_pattern(path).search(metadata.configuration.get(name, "")):
            raise InvalidRequest(
                f"the column '{'.'.join(path)}' cannot be {operation}: the property '{name}' names it",
                column=path[-1],
            )


def _check_not_computed_from(metadata: Metadata, path: Sequence[str], operation: str) -> None:
    """``InvalidRequest`` if a constraint or a generated column is computed from a column."""
    word = _name_pattern(path)
    for constraint in list_constraints(metadata):
        if word.search(constraint.expression):
            raise InvalidRequest(
                f"the column '{'.'.join(path)}' cannot be {operation}: {constraint} names it", column=path[-1]
            )
    for column, expression in list_generation_expressions(metadata):
        if word.search(expression) and column.lower() != path[0].lower():
            raise InvalidRequest(
                f"the column '{'.'.join(path)}' cannot be {operation}: '{column}' is computed from it"
                f" ({expression})",
                column=path[-1],
            )


def _name_pattern(path: Sequence[str]) -> re.Pattern[str]:
    """Finds the last name of a path in a text."""
    return re.compile(rf"(?<!\w){re.escape(path[-1])}(?!\w)", re.IGNORECASE)


def _check_unpartitioned(metadata: Metadata, schema: StructType, path: Sequence[str], verb: str) -> None:
    """Commits that replaced partitions name these columns, and are repeated elsewhere by that."""
    first = _find_field(schema, path[0])
    if first.name in metadata.partition_columns:
        raise InvalidRequest(
            f"the column '{first.name}' cannot be {verb}, because the table is partitioned by it",
            column=first.name,
        )


def _find_field(struct: StructType, name: str) -> Field:
    field = struct.field(name)
    if field is None:
        names = describe_names(name, [field.name for field in struct.fields])
        raise InvalidRequest(f"there is no column '{name}'{names}", column=name)
    return field


def _change_struct(struct: StructType, path: Sequence[str], change: _Change) -> StructType:
    field = _find_field(struct, path[0])
    if len(path) == 1:
        return change(struct, field)
    inside: Type = field.type
    if not isinstance(inside, StructType):
        raise InvalidRequest(f"the column '{field.name}' has no parts", column=field.name)
    changed = replace(field, type=_change_struct(inside, path[1:], change))
    return StructType(
        tuple(changed if struct_field is field else struct_field for struct_field in struct.fields)
    )
