"""Tables that suit Iceberg, too (``icebergCompatV1`` to ``V3``): what that asks of what a table is.

An engine that turns such a table into one of Iceberg's converts its log alone: files stay. So files hold all
that Iceberg looks for in them: ids of columns, of elements of arrays and maps, and the columns that the table
is partitioned by; and the log says how many rows each file has. No file has a deletion vector, except by the
rules of version 3, and there are no types that Iceberg does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.formats.delta.errors import InvalidLog, MalformedAction
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import (
    ID,
    MODE,
    ColumnMapping,
    get_column_mapping,
    has_nested_ids,
    nested_ids,
    nested_paths,
)
from penstock.formats.delta.protocol.column_rules import CURRENT_DEFAULT
from penstock.formats.delta.protocol.properties import (
    DELETION_VECTORS,
    ICEBERG_COMPAT,
    ROW_TRACKING_ENABLED,
    iceberg_version,
    is_on,
)
from penstock.formats.delta.protocol.wider_types import TYPE_CHANGES
from penstock.formats.rows.schema import ArrayType, Field, MapType, list_plain_types, parse_schema

ROW_ID_FIELD: Final = 2147483540
"""The id in files of the column with ids of rows, by the rules of version 3."""
ROW_VERSION_FIELD: Final = 2147483539
"""The same of the column with the versions at which rows were last written."""

WITH_ROW_TRACKING: Final = 3
"""The first version whose rules ask for row tracking, and allow deletion vectors."""

_WHOLE_NUMBERS: Final = ("byte", "short", "integer", "long")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_TYPES: Final = _TIMES | {*_WHOLE_NUMBERS, "float", "double", "string", "binary", "boolean"}
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_LITERAL: Final = re.compile(
    r"\s*(?:(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|X)?\s*(?:'(?:[^'\\]|'')*'|\"[^\"\\]*\")"
    r"|[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?[a-zA-Z]{0,2}|[-+]?\.[0-9]+|true|false|null)\s*",
    re.IGNORECASE,
)


def allows_vectors(metadata: Metadata) -> bool:
    """Whether files of a table may have deletion vectors, as far as Iceberg is concerned."""
    return iceberg_version(metadata.configuration) in (None, WITH_ROW_TRACKING)


def iceberg_faults(metadata: Metadata, before: Metadata | None) -> Iterator[str]:
    """Why a table could not be one of Iceberg's, if it is to be; without what was so before.

    Metadata that cannot be understood is told elsewhere.
    """
    try:
        version = iceberg_version(metadata.configuration)
        if version is None:
            return
        old_reasons = set() if before is None else set(_find_faults(before))
        yield from (reason for reason in _find_faults(metadata) if reason not in old_reasons)
        if before is not None:
            yield from _find_forbidden_changes(version, before, metadata)
    except (InvalidLog, MalformedAction, KeyError, TypeError):
        return


def _find_faults(metadata: Metadata) -> Iterator[str]:
    properties, schema = metadata.configuration, parse_schema(metadata.schema_string)
    versions = [version for version, name in ICEBERG_COMPAT.items() if is_on(properties, name)]
    if not versions:
        return
    version, name = versions[0], f"'{ICEBERG_COMPAT[versions[0]]}'"
    for other in versions[1:]:
        yield f"{name} and '{ICEBERG_COMPAT[other]}' are never both true"
    if get_column_mapping(metadata) is ColumnMapping.NONE:
        yield f"{name} needs mapped columns: set '{MODE}' to 'name'"
    if version < WITH_ROW_TRACKING and is_on(properties, DELETION_VECTORS):
        yield f"{name} needs files without deletion vectors: set '{DELETION_VECTORS}' to 'false'"
    if version >= WITH_ROW_TRACKING and not is_on(properties, ROW_TRACKING_ENABLED):
        yield f"{name} needs row tracking: set '{ROW_TRACKING_ENABLED}' to 'true'"
    for field in schema.walk():
        yield from (f"{name} {reason}" for reason in _field_faults(field, version))
    for field in schema.fields:
        default = field.metadata.get(CURRENT_DEFAULT)
        if version >= WITH_ROW_TRACKING and isinstance(default, str) and not _LITERAL.fullmatch(default):
            yield f"{name} allows literals as defaults alone, and that of '{field.name}' is {default}"
    if has_nested_ids(metadata) and get_column_mapping(metadata) is not ColumnMapping.NONE:
        for field in schema.walk():
            if missing := [path for path in nested_paths(field) if path not in nested_ids(field)]:
                yield f"{name} needs an id for '{missing[0]}' of the column '{field.name}'"


def _field_faults(field: Field, version: int) -> Iterator[str]:
    if version == 1 and isinstance(field.type, ArrayType | MapType):
        yield f"allows no arrays and maps, and '{field.name}' is one"
    for kind in list_plain_types(field.type):
        is_known = kind in _TYPES or _DECIMAL.fullmatch(kind) is not None
        if not is_known and not (kind == "variant" and version >= WITH_ROW_TRACKING):
            yield f"allows no type {kind}, which '{field.name}' is of"
    changes = field.metadata.get(TYPE_CHANGES)
    for change in changes if isinstance(changes, list) else ():
        old, new = (
            (change.get(side) for side in ("fromType", "toType")) if isinstance(change, dict) else ("", "")
        )
        if not _is_widened_by_iceberg(str(old), str(new)):
            yield f"allows no column that became {new} from {old}, as '{field.name}' did"


def _is_widened_by_iceberg(old: str, new: str) -> bool:
    if old in _WHOLE_NUMBERS and new in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(old) <= _WHOLE_NUMBERS.index(new)
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is not None and after is not None:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (old, new) == ("float", "double")


def _find_forbidden_changes(version: int, before: Metadata, after: Metadata) -> Iterator[str]:
    """What cannot be done to a table with files."""
    name = f"'{ICEBERG_COMPAT[version]}'"
    if before.partition_columns and before.partition_columns != after.partition_columns:
        yield f"{name} does not let a partitioned table be partitioned otherwise"
    old_version = iceberg_version(before.configuration)
    if old_version == version:
        return
    if version == 1 and before.partition_columns:
        yield (
            f"{name} needs the columns that the table is partitioned by in all of its files: set it when the "
            "table is created"
        )


def row_column_note(metadata: Metadata, *, is_id: bool) -> dict[str, int]:
    """What files note of the column with ids of rows, or of that with their versions: its id, if it has
    one."""
    if iceberg_version(metadata.configuration) != WITH_ROW_TRACKING:
        return {}
    return {ID: ROW_ID_FIELD if is_id else ROW_VERSION_FIELD}
