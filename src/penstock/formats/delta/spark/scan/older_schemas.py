"""Files of an older version of a table, read with the columns of a newer one.

A Parquet file records the physical form of its values, and little of their meaning: with a schema in which
dates are numbers, or 12.00 has no fraction, Spark reads 18262 and 1200. So the newer schema is used only
where every value of the old type is the same value of the new type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.rows.arrow_types import DECIMAL
from penstock.formats.rows.schema import ArrayType, MapType, StructType, Type, parse_schema

_WIDER: Final = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
}
"""As which types Spark reads values of others from files, and takes each for what it is."""


def explain_unreadable(older: Metadata, newer: Metadata) -> str | None:
    """Why files of a version cannot be read with the columns of a newer one; ``None`` if they can.

    The newer one may have further columns, and types that hold all values of the older ones.
    """
    if older.schema_string == newer.schema_string:
        return None
    names = _FileNames(get_column_mapping(older), get_column_mapping(newer))
    older_schema, newer_schema = parse_schema(older.schema_string), parse_schema(newer.schema_string)
    return next(_find_problems(older_schema, newer_schema, names, ""), None)


class _FileNames(NamedTuple):
    """How the columns of the two are called in files."""

    older: ColumnMapping
    newer: ColumnMapping


def _find_problems(older: Type, newer: Type, names: _FileNames, path: str) -> Iterator[str]:
    match older, newer:
        case StructType(), StructType():
            newer_fields = {names.newer.get_physical_name(field): field for field in newer.fields}
            for field in older.fields:
                name = f"{path}.{field.name}" if path else field.name
                newer_field = newer_fields.get(names.older.get_physical_name(field))
                if newer_field is None:
                    yield f"'{name}' no longer exists"
                else:
                    yield from _find_problems(field.type, newer_field.type, names, name)
        case ArrayType(), ArrayType():
            yield from _find_problems(older.element_type, newer.element_type, names, f"{path}.element")
        case MapType(), MapType():
            yield from _find_problems(older.key_type, newer.key_type, names, f"{path}.key")
            yield from _find_problems(older.value_type, newer.value_type, names, f"{path}.value")
        case str(), str():
            if not _can_hold_type(newer, older):
                yield f"'{path}' had the type {older}, and has the type {newer} now"
        case _:
            yield f"'{path}' has an incompatible type now"


def _can_hold_type(newer: str, older: str) -> bool:
    """Whether every value of the older type is the same value of the newer one."""
    newer, older = newer.replace(" ", ""), older.replace(" ", "")
    if newer == older or older == "void" or newer in _WIDER.get(older, ()):
        return True
    newer_decimal, older_decimal = DECIMAL.fullmatch(newer), DECIMAL.fullmatch(older)
    if newer_decimal is None or older_decimal is None:
        return False
    scale, scale_before = int(newer_decimal[2]), int(older_decimal[2])
    return scale >= scale_before and int(newer_decimal[1]) - scale >= int(older_decimal[1]) - scale_before
