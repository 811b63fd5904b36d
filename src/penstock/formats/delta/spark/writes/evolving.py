"""What a table is to become by a write: the same as before, with more columns, or with others.

A commit that changes what a table is rests on what it was. If somebody else changes that first, files that
are written already may still fit what the table has become.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.added_columns import can_hold
from penstock.formats.delta.protocol.features import complete_protocol
from penstock.formats.delta.protocol.mapping import assign_columns
from penstock.formats.delta.spark.writes.schemas import merge_schemas
from penstock.formats.rows.schema import StructType, parse_schema, write_schema


def with_columns(metadata: Metadata, data: StructType, *, case_sensitive: bool) -> Metadata:
    """A table with the columns that only the data has, after its own; the same, if there are none."""
    before = parse_schema(metadata.schema_string)
    after = merge_schemas(before, data, case_sensitive=case_sensitive)
    if after == before:
        return metadata
    return assign_columns(replace(metadata, schema_string=write_schema(after)))


def with_schema(metadata: Metadata, data: StructType, partition_by: Sequence[str]) -> Metadata:
    """A table with the data's columns instead of its own. Its properties stay."""
    columns = tuple(partition_by)
    return assign_columns(replace(metadata, schema_string=write_schema(data), partition_columns=columns))


def partition_names(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that a table is to be partitioned by, as the schema spells them.

    ``InvalidRequest`` if there is no such column, or one is named twice.
    """
    found: list[str] = []
    for name in names:
        field = schema.field(name)
        if field is None:
            known = ", ".join(one.name for one in schema.fields)
            raise InvalidRequest(
                f"there is no column '{name}' to partition by; there are {known}", column=name
            )
        if field.name in found:
            raise InvalidRequest(f"'{name}' is named twice among the columns to partition by", column=name)
        found.append(field.name)
    return tuple(found)


def protocol_for(protocol: Protocol, metadata: Metadata) -> Protocol | None:
    """The protocol that a table needs for new columns; ``None`` if the one that it has will do."""
    found = complete_protocol(protocol, metadata)
    return None if found == protocol else found


def still_fits(written: Metadata, now: Metadata) -> bool:
    """Whether files that were written for a table can be part of what it has become.

    They can if every column in them is there, of the same type, and whatever else there is may be null.
    """
    return written.partition_columns == now.partition_columns and can_hold(
        now.schema_string, written.schema_string
    )
