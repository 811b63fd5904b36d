"""What a table is to become by a write: the same as before, with more columns, or with others.

A commit that changes what a table is rests on what it was. If somebody else changes that first, files that
are written already may still fit what the table has become.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.features import complete_protocol
from penstock.formats.delta.protocol.schema import (
    ArrayType,
    Field,
    MapType,
    StructType,
    Type,
    parse_schema,
    write_schema,
)
from penstock.spark.writes.schemas import merged


def with_columns(metadata: Metadata, data: StructType, *, case_sensitive: bool) -> Metadata:
    """A table with the columns that only the data has, after its own; the same, if there are none."""
    before = parse_schema(metadata.schema_string)
    after = merged(before, data, case_sensitive=case_sensitive)
    return metadata if after == before else replace(metadata, schema_string=write_schema(after))


def with_schema(metadata: Metadata, data: StructType, partition_by: Sequence[str]) -> Metadata:
    """A table with the data's columns instead of its own. Its properties stay."""
    return replace(metadata, schema_string=write_schema(data), partition_columns=tuple(partition_by))


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
    return written.partition_columns == now.partition_columns and _fits(
        parse_schema(written.schema_string), parse_schema(now.schema_string)
    )


def _fits(written: Type, now: Type) -> bool:
    match written, now:
        case StructType(), StructType():
            known = {one.name for one in now.fields}
            return all(one.name in known for one in written.fields) and all(
                _field_fits(next((one for one in written.fields if one.name == field.name), None), field)
                for field in now.fields
            )
        case ArrayType(), ArrayType():
            return (now.contains_null or not written.contains_null) and _fits(
                written.element_type, now.element_type
            )
        case MapType(), MapType():
            return (
                (now.value_contains_null or not written.value_contains_null)
                and _fits(written.key_type, now.key_type)
                and _fits(written.value_type, now.value_type)
            )
        case _:
            return written == now


def _field_fits(written: Field | None, now: Field) -> bool:
    if written is None:
        return now.nullable
    return (now.nullable or not written.nullable) and _fits(written.type, now.type)
