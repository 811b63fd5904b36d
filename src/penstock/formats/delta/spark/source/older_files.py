"""Files of older versions, as a stream reads them: under what the table was then, in the columns of now.

A file tells by itself neither which of its values are in its path, nor what type a column was declared as. A
table may be partitioned otherwise by now, or a column of the same name may be another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type, parse_schema


def read_as(version: int, was: Metadata, now: Metadata, columns: Sequence[str], name: str) -> Metadata:
    """What a version's files are read under: the table of now, partitioned as it was then.

    A column that the table did not have then is null. ``InvalidRequest`` if one of ``columns`` was another
    then, or of another type: there is no telling what the stream's reader wants of its values.
    """
    if was.schema_string == now.schema_string and was.partition_columns == now.partition_columns:
        return now
    schema = parse_schema(now.schema_string)
    for field, before in _pair_common_columns(schema, parse_schema(was.schema_string), columns):
        if get_column_mapping(was).get_physical_name(before) != get_column_mapping(now).get_physical_name(
            field
        ):
            raise _mixed_versions_error(
                version, name, f"has a different column '{field.name}' than the table has now"
            )
        # A column that was widened says so, and its values are widened as they are read.
        if _WIDENED not in field.metadata and not _is_part_of(before.type, field.type):
            raise _mixed_versions_error(
                version,
                name,
                f"has the column '{field.name}' with the type {_describe_type(before.type)}, which is "
                f"{_describe_type(field.type)} now",
            )
    partitions = tuple(column for column in was.partition_columns if schema.field(column) is not None)
    return replace(now, partition_columns=partitions)


_WIDENED = "delta.typeChanges"


def _pair_common_columns(
    now: StructType, was: StructType, columns: Sequence[str]
) -> Iterator[tuple[Field, Field]]:
    """The columns that are there now and were there then."""
    for name in columns:
        field, before = now.field(name), was.field(name)
        if field is not None and before is not None:
            yield field, before


def _is_part_of(was: Type, now: Type) -> bool:
    """Whether values of one type are values of another, which may have more fields inside."""
    match was, now:
        case StructType(), StructType():
            pairs = ((field, now.field(field.name)) for field in was.fields)
            return all(
                field is None or _is_part_of(older_field.type, field.type) for older_field, field in pairs
            )
        case ArrayType(), ArrayType():
            return _is_part_of(was.element_type, now.element_type)
        case MapType(), MapType():
            keys = _is_part_of(was.key_type, now.key_type)
            return keys and _is_part_of(was.value_type, now.value_type)
        case _:
            return was == now


def _describe_type(kind: Type) -> str:
    return (
        kind
        if isinstance(kind, str)
        else f"{type(kind).__name__.removesuffix('Type').lower()} of other types"
    )


def _mixed_versions_error(version: int, name: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"version {version} of '{name}' {why}: one stream cannot read both; start after that version, with "
        "'startingVersion' and another checkpoint",
        key=name,
        version=version,
    )
