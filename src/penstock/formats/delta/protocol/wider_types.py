"""Wider types of columns: which there are, and how a schema notes that a column got one.

Files that are there keep their types, and readers widen their values. So that they know what they may meet,
the nearest field above the type notes every change (``delta.typeChanges``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type

TYPE_CHANGES: Final = "delta.typeChanges"
ENABLED: Final = "delta.enableTypeWidening"
"""The property without which no type of a table is widened."""

_WIDER: Final = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""How many digits before the point a decimal has that holds every number of a type, as the protocol says."""
_SQL_NAMES: Final = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
}


def is_wider(kind: str, than: str) -> bool:
    """Whether a column may get a type in the place of another one."""
    if kind in _WIDER.get(than, ()):
        return True
    target, current = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(than)
    if target is None:
        return False
    precision, scale = int(target[1]), int(target[2])
    if current is None:
        return than in _DIGITS and precision - scale >= _DIGITS[than]
    more, finer = precision - int(current[1]), scale - int(current[2])
    return more >= finer >= 0 and more > 0


def widen_type(schema: StructType, path: Sequence[str], kind: str) -> StructType:
    """A schema in which a column, or a part of one, is of a wider type. ``InvalidRequest`` says why not."""
    target = _SQL_NAMES.get(kind.strip().lower(), kind.strip().lower())
    return _widen_struct(schema, tuple(path), target, ".".join(path))


def _widen_struct(struct: StructType, path: tuple[str, ...], kind: str, name: str) -> StructType:
    field = struct.field(path[0])
    if field is None:
        field_names = ", ".join(kind.name for kind in struct.fields)
        raise InvalidRequest(f"there is no column '{path[0]}'; the columns are {field_names}", column=path[0])
    changes: list[dict[str, str]] = []
    widened = _widen_type(field.type, path[1:], kind, name, (), changes)
    changed = replace(field, type=widened, metadata=_note_changes(field, changes))
    return StructType(tuple(changed if kind is field else kind for kind in struct.fields))


def _widen_type(
    current: Type,
    path: tuple[str, ...],
    kind: str,
    name: str,
    inside: tuple[str, ...],
    changes: list[dict[str, str]],
) -> Type:
    """A type with what a path leads to widened; the change is noted unless a field below notes it."""
    if not path:
        return _widen_plain(current, kind, name, inside, changes)
    step = path[0].lower()
    match current:
        case StructType():
            return _widen_struct(current, path, kind, name)
        case ArrayType() if step == "element":
            element = _widen_type(current.element_type, path[1:], kind, name, (*inside, step), changes)
            return replace(current, element_type=element)
        case MapType() if step == "key":
            key = _widen_type(current.key_type, path[1:], kind, name, (*inside, step), changes)
            return replace(current, key_type=key)
        case MapType() if step == "value":
            value = _widen_type(current.value_type, path[1:], kind, name, (*inside, step), changes)
            return replace(current, value_type=value)
        case _:
            raise InvalidRequest(f"the column '{name}' has no part '{path[0]}'", column=name)


def _widen_plain(
    current: Type, kind: str, name: str, inside: tuple[str, ...], changes: list[dict[str, str]]
) -> Type:
    if not isinstance(current, str) or not is_wider(kind, current):
        spelled = current if isinstance(current, str) else "a nested type"
        raise InvalidRequest(
            f"'{name}' is {spelled}, which cannot become {kind}: whole numbers become longer ones, double or"
            " decimal, float becomes double, date becomes timestamp_ntz, decimals get more digits",
            column=name,
        )
    change = {"fromType": current, "toType": kind}
    if inside:
        change["fieldPath"] = ".".join(inside)
    changes.append(change)
    return kind


def _note_changes(field: Field, changes: list[dict[str, str]]) -> dict[str, Any]:
    if not changes:
        return field.metadata
    before = field.metadata.get(TYPE_CHANGES)
    return {**field.metadata, TYPE_CHANGES: [*(before if isinstance(before, list) else ()), *changes]}
