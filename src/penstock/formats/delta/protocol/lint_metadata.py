"""The part of the check of a commit that looks at what the table is: its columns and its properties.

What a table had before does no new harm, and is let be: one that is adopted may be older than these rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import INT64_MAX, Metadata
from penstock.formats.delta.protocol.column_mapping import MAX_ID, MODE, mapping_faults
from penstock.formats.delta.protocol.durations import (
    LOG_RETENTION,
    TOMBSTONE_RETENTION,
    TRANSACTION_RETENTION,
    duration_ms,
)
from penstock.formats.delta.protocol.iceberg_compat import iceberg_faults
from penstock.formats.delta.protocol.properties import ICEBERG_COMPAT, MATERIALIZED_PARTITIONS
from penstock.formats.delta.protocol.transaction import ISOLATION_PROPERTY, table_isolation
from penstock.formats.rows.schema import (
    ArrayType,
    MapType,
    StructType,
    Type,
    list_plain_types,
    parse_schema,
)

PRECISION_MAX: Final = 38
NAME_MAX: Final = 1000

_NUMBERS: Final = frozenset({"long", "integer", "short", "byte", "float", "double"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_PLAIN: Final = _NUMBERS | _TIMES | {"string", "binary", "boolean", "variant"}
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def metadata_faults(metadata: Metadata, before: Metadata | None) -> Iterator[str]:
    """Everything that is wrong with a table's metadata, in itself and as the successor of another one."""
    if metadata.format.provider != "parquet":
        yield f"the format of the files must be 'parquet', got '{metadata.format.provider}'"
    if metadata.created_time is not None and metadata.created_time < 0:
        yield f"the creation time must not be negative, got {metadata.created_time}"
    if not metadata.id:
        yield "the table's id is empty"
    elif before is not None and metadata.id != before.id:
        yield f"the table's id cannot change from '{before.id}' to '{metadata.id}'"
    yield from _property_faults(metadata, before)
    try:
        schema = parse_schema(metadata.schema_string)
    except MalformedAction as problem:
        yield problem.details["reason"]
        return
    if before is None or before.schema_string != metadata.schema_string:
        yield from _column_faults(schema, before)
        for name in _find_fields_without_metadata(msgspec.json.decode(metadata.schema_string)):
            yield f"the column {name[:60]!r} lacks 'metadata'; use an empty object if there is none"
    yield from _partition_faults(schema, metadata.partition_columns)
    yield from iceberg_faults(metadata, before)
    if before is None or _read_mapping_settings(before) != _read_mapping_settings(metadata):
        yield from mapping_faults(metadata, schema)


def _read_mapping_settings(metadata: Metadata) -> tuple[str | None, ...]:
    """The settings of a table's column mapping."""
    properties = metadata.configuration
    return metadata.schema_string, properties.get(MODE), properties.get(MAX_ID)


def find_unsupported_columns(metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Columns with which rows of a table could not be read, or not be written, and why: by their names.

    Raises ``MalformedAction`` if the schema cannot be understood.
    """
    schema = parse_schema(metadata.schema_string)
    for field in schema.fields:
        inside = StructType((field,)).walk()
        unknown = next(
            (kind for field in inside for kind in list_plain_types(field.type) if not _is_known(kind)), None
        )
        if unknown is not None:
            yield field.name, f"has the type {unknown}, which is not supported"
    partitions = {name.lower() for name in metadata.partition_columns}
    for field in schema.fields:
        if field.name.lower() in partitions and field.type == "binary":
            yield field.name, "has the type binary, which is not supported for partition columns"


def _is_known(kind: str) -> bool:
    return kind in _PLAIN or _DECIMAL.fullmatch(kind) is not None


def _partition_faults(schema: StructType, columns: tuple[str, ...]) -> Iterator[str]:
    for name in _find_repeated(columns):
        yield f"the partition column '{name}' is given more than once"
    for name in columns:
        field = next((field for field in schema.fields if field.name == name), None)
        if field is None:
            yield f"the partition column '{name}' is not in the schema"
        elif not isinstance(field.type, str):
            yield f"the partition column '{name}' has a nested type"
        elif field.type == "variant":
            yield f"the partition column '{name}' is a variant, and these have no order"
    if schema.fields and set(columns) >= {field.name for field in schema.fields}:
        yield "every column is a partition column, so data files would have no columns"


def _column_faults(schema: StructType, before: Metadata | None) -> Iterator[str]:
    if not schema.fields:
        # A table may be created before it is known what it will hold.
        if before is not None:
            yield "the schema has no columns left"
        return
    yield from _struct_faults(schema, "the schema")


def _struct_faults(struct: StructType, where: str) -> Iterator[str]:
    if not struct.fields:
        yield f"{where} has no fields, which data files cannot store"
    for name in _find_repeated(field.name.lower() for field in struct.fields):
        yield f"{where} has the column '{name}' more than once (names are not case-sensitive)"
    for field in struct.fields:
        if not field.name:
            yield f"{where} has a column without a name"
        elif len(field.name) > NAME_MAX:
            yield f"{where} has a column whose name has {len(field.name)} characters; the limit is {NAME_MAX}"
        elif _CONTROL.search(field.name):
            yield f"{where} has the column {field.name!r}, whose name contains a control character"
        else:
            yield from _type_faults(field.type, f"'{field.name}'")


def _find_fields_without_metadata(kind: Any) -> Iterator[str]:
    """Fields of a well-formed schema without metadata: lenient readers do not miss it, strict ones fail."""
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            if "metadata" not in field:
                yield field["name"]
            yield from _find_fields_without_metadata(field["type"])
        for name in ("elementType", "keyType", "valueType"):
            yield from _find_fields_without_metadata(kind.get(name))


def _type_faults(kind: Type, where: str) -> Iterator[str]:
    match kind:
        case StructType():
            yield from _struct_faults(kind, where)
        case ArrayType():
            yield from _type_faults(kind.element_type, where)
        case MapType():
            yield from _type_faults(kind.key_type, where)
            yield from _type_faults(kind.value_type, where)
        case str() if (match := _DECIMAL.fullmatch(kind)) is not None:
            precision, scale = int(match[1]), int(match[2])
            if not 1 <= precision <= PRECISION_MAX or scale > precision:
                yield (
                    f"{where} is a {kind}; a decimal must have 1 to {PRECISION_MAX} digits, and not more "
                    "digits after the point than in all"
                )
        case str() if kind not in _PLAIN:
            yield f"{where} has the type {kind[:60]!r}, which does not exist"


def _property_faults(metadata: Metadata, before: Metadata | None) -> Iterator[str]:
    """Properties with a meaning must have a value that has one. All others are free."""
    had = {} if before is None else before.configuration
    for name, value in metadata.configuration.items():
        if name in JUDGED_PROPERTIES and value != had.get(name):
            reason = JUDGED_PROPERTIES[name](name, value)
            if reason is not None:
                yield reason


_Judge = Callable[[str, str], str | None]


def _check_boolean(name: str, value: str) -> str | None:
    if value.lower() in {"true", "false"}:
        return None
    return f"the property '{name}' must be 'true' or 'false', got {value[:60]!r}"


def _make_number_check(least: int, most: int) -> _Judge:
    def check_number(name: str, value: str) -> str | None:
        if re.fullmatch(r"-?[0-9]{1,19}", value) and least <= int(value) <= most:
            return None
        return f"the property '{name}' must be a number from {least} to {most}, got {value[:60]!r}"

    return check_number


def _make_choice_check(*words: str) -> _Judge:
    def check_choice(name: str, value: str) -> str | None:
        if value.lower() in words:
            return None
        return f"the property '{name}' must be one of {', '.join(words)}, got {value[:60]!r}"

    return check_choice


def _check_duration(name: str, value: str) -> str | None:
    try:
        duration_ms({name: value[:200]}, name)
    except InvalidRequest as problem:
        return problem.message.replace("\n  ", ". ")
    return None


def _check_isolation(name: str, value: str) -> str | None:
    asking = Metadata(id="", schema_string="", partition_columns=(), configuration={name: value[:60]})
    try:
        table_isolation(asking)
    except InvalidContent as problem:
        return problem.message
    return None


_INT_MAX: Final = 2**31 - 1
_SWITCHES: Final = (
    "delta.appendOnly",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    *ICEBERG_COMPAT.values(),
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.enableTypeWidening",
    "delta.enableVariantShredding",
    "delta.writePartitionColumnsToParquet",
    MATERIALIZED_PARTITIONS,
    "delta.randomizeFilePrefixes",
)
JUDGED_PROPERTIES: Final[Mapping[str, _Judge]] = {
    **dict.fromkeys(_SWITCHES, _check_boolean),
    **dict.fromkeys((LOG_RETENTION, TOMBSTONE_RETENTION, TRANSACTION_RETENTION), _check_duration),
    ISOLATION_PROPERTY: _check_isolation,
    "delta.checkpointInterval": _make_number_check(1, _INT_MAX),
    "delta.checkpointPolicy": _make_choice_check("classic", "v2"),
    "delta.columnMapping.maxColumnId": _make_number_check(0, INT64_MAX),
    "delta.columnMapping.mode": _make_choice_check("none", "name", "id"),
    "delta.dataSkippingNumIndexedCols": _make_number_check(-1, _INT_MAX),
    "delta.inCommitTimestampEnablementTimestamp": _make_number_check(0, INT64_MAX),
    "delta.inCommitTimestampEnablementVersion": _make_number_check(0, INT64_MAX),
    "delta.randomPrefixLength": _make_number_check(1, _INT_MAX),
}
"""Properties whose values are judged, with how."""


def _find_repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)
