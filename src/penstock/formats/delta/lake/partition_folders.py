"""Partition values, read from the names of the directories that Spark wrote files to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata, Values
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.rows.file_writer import NULL_FOLDER, partition_text
from penstock.formats.rows.partition_values import parse_value
from penstock.formats.rows.schema import Field, StructType, parse_schema

_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


def partition_fields(schema: StructType, names: Sequence[str]) -> tuple[Field, ...]:
    """The columns that a table is partitioned by. ``InvalidRequest`` if it cannot be written in Spark so."""
    partition_columns = []
    for name in names:
        field = schema.field(name)
        if field is None:
            raise InvalidRequest(f"the table is partitioned by '{name}', but has no such column", column=name)
        if not isinstance(field.type, str) or field.type == "binary":
            raise InvalidRequest(
                f"a table cannot be partitioned by '{name}', which has the type {field.type}", column=name
            )
        partition_columns.append(field)
    if len(partition_columns) == len(schema.fields):
        raise InvalidRequest("the table has no columns besides its partition columns")
    return tuple(partition_columns)


def parse_partition_values(directory: str, fields: Sequence[Field]) -> Values:
    """The partition values that a directory stands for, as the log spells them.

    ``InvalidRequest`` names a column with a value that no log can hold, or a null where none may be.
    """
    steps = directory.split("/") if directory else []
    if len(steps) != len(fields):
        names = ", ".join(field.name for field in fields) or "nothing"
        raise InvalidRequest(
            f"the job wrote to the folder '{directory}', which does not match the "
            f"table's partition columns: {names}"
        )
    return {
        stored_name(field): _unescape_value(field, step.partition("=")[2])
        for field, step in zip(fields, steps, strict=True)
    }


def list_partition_fields(metadata: Metadata) -> tuple[Field, ...]:
    """The columns that a table is partitioned by."""
    return partition_fields(parse_schema(metadata.schema_string), metadata.partition_columns)


def _unescape_value(field: Field, spelled: str) -> str | None:
    text = None if spelled == NULL_FOLDER else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), spelled)
    kind = str(field.type)
    try:
        value = parse_value(kind, text)
    except ValueError as problem:
        raise InvalidRequest(
            f"the column '{field.name}' has the value {text!r}, which cannot be a partition value: {problem}",
            column=field.name,
        ) from None
    if value is None and not field.nullable:
        raise InvalidRequest(
            f"the column '{field.name}' is not nullable, but the data has nulls or empty strings in it",
            column=field.name,
        )
    return partition_text(kind, value)
