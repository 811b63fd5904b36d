"""Columns of a table get other names, go, or come: what its metadata becomes.

Only a table with mapped columns can rename and drop columns: its files know them by names that stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.constraints import constraints_of
from penstock.formats.delta.protocol.mapping import MODE, Mapping, assign_columns, mapping_of, stored_name
from penstock.formats.rows.schema import Field, StructType, Type, parse_schema, write_schema

_Change: TypeAlias = Callable[[StructType, Field], StructType]
_BY_NAME: Final = ("delta.dataSkippingStatsColumns",)
"""Properties that name columns."""


def rename_column(metadata: Metadata, path: Sequence[str], name: str) -> Metadata:
    """Metadata in which a column, or a part of one, has another name. ``InvalidRequest`` says why not."""
    _check_mapped(metadata, "renamed")
    _check_unnamed(metadata, path, "renamed")
    if not name:
        raise InvalidRequest("a column needs a name")

    def renamed(struct: StructType, field: Field) -> StructType:
        other = struct.field(name)
        if other is not None and other is not field:
            raise InvalidRequest(f"there is a column '{other.name}' already", column=name)
        fields = (replace(one, name=name) if one is field else one for one in struct.fields)
        return StructType(tuple(fields))

    schema = parse_schema(metadata.schema_string)
    _check_unpartitioned(metadata, schema, path)
    return replace(metadata, schema_string=write_schema(_changed(schema, path, renamed)))


def drop_column(
    metadata: Metadata, path: Sequence[str], clustering: Sequence[Sequence[str]] = ()
) -> Metadata:
    """Metadata without a column, or without a part of one. ``InvalidRequest`` says why not.

    ``clustering`` are the columns that the table is clustered by, as files call them.
    """
    _check_mapped(metadata, "dropped")
    _check_unnamed(metadata, path, "dropped")
    schema = parse_schema(metadata.schema_string)
    first = _find(schema, path[0])
    _check_unpartitioned(metadata, schema, path)
    if stored_name(first) in {one[0] for one in clustering}:
        raise InvalidRequest(f"the table is clustered by '{first.name}'", column=first.name)

    def dropped(struct: StructType, field: Field) -> StructType:
        left = tuple(one for one in struct.fields if one is not field)
        if not left:
            raise InvalidRequest(f"'{field.name}' is the only column there is", column=field.name)
        return StructType(left)

    changed = _changed(schema, path, dropped)
    if {one.name for one in changed.fields} <= set(metadata.partition_columns):
        raise InvalidRequest("the table would have no columns besides those that it is partitioned by")
    return replace(metadata, schema_string=write_schema(changed))


def add_columns(metadata: Metadata, columns: StructType) -> Metadata:
    """Metadata with more columns, after those that are there. ``InvalidRequest`` says why not."""
    schema = parse_schema(metadata.schema_string)
    for field in columns.fields:
        if (there := schema.field(field.name)) is not None:
            raise InvalidRequest(f"there is a column '{there.name}' already", column=field.name)
        if not field.nullable:
            raise InvalidRequest(
                f"rows that are there have null in the column '{field.name}', so it must be nullable",
                column=field.name,
            )
    united = StructType((*schema.fields, *columns.fields))
    return assign_columns(replace(metadata, schema_string=write_schema(united)))


def _check_mapped(metadata: Metadata, done: str) -> None:
    if mapping_of(metadata) is Mapping.NONE:
        raise InvalidRequest(
            f"columns can be {done} only in a table with mapped columns: create it with the property"
            f" '{MODE}', which is 'name' or 'id'"
        )


def _check_unnamed(metadata: Metadata, path: Sequence[str], done: str) -> None:
    """``InvalidRequest`` if something names the column that would then name nothing, or something else."""
    word = re.compile(rf"(?<!\w){re.escape(path[-1])}(?!\w)", re.IGNORECASE)
    for constraint in constraints_of(metadata):
        if word.search(constraint.expression):
            raise InvalidRequest(
                f"the column '{'.'.join(path)}' cannot be {done}: {constraint} names it", column=path[-1]
            )
    for name in _BY_NAME:
        if word.search(metadata.configuration.get(name, "")):
            raise InvalidRequest(
                f"the column '{'.'.join(path)}' cannot be {done}: the property '{name}' names it",
                column=path[-1],
            )


def _check_unpartitioned(metadata: Metadata, schema: StructType, path: Sequence[str]) -> None:
    """Commits that replaced partitions name these columns, and are repeated elsewhere by that."""
    first = _find(schema, path[0])
    if first.name in metadata.partition_columns:
        raise InvalidRequest(f"the table is partitioned by '{first.name}'", column=first.name)


def _find(struct: StructType, name: str) -> Field:
    found = struct.field(name)
    if found is None:
        known = ", ".join(one.name for one in struct.fields)
        raise InvalidRequest(f"there is no column '{name}'; there are {known}", column=name)
    return found


def _changed(struct: StructType, path: Sequence[str], change: _Change) -> StructType:
    field = _find(struct, path[0])
    if len(path) == 1:
        return change(struct, field)
    inside: Type = field.type
    if not isinstance(inside, StructType):
        raise InvalidRequest(f"the column '{field.name}' has no parts", column=field.name)
    changed = replace(field, type=_changed(inside, path[1:], change))
    return StructType(tuple(changed if one is field else one for one in struct.fields))
