"""The schema of a table, as its metadata spells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import MalformedAction
from penstock.model.decoders import get_json_decoder

DEPTH_MAX: Final = 60
"""How deep types may hold others; readers that use Arrow follow them for 64 levels."""

Type: TypeAlias = "str | StructType | ArrayType | MapType"
"""A name such as ``integer`` or ``decimal(10,2)``, or one of the types that hold others."""


class StructType(msgspec.Struct, frozen=True, tag="struct"):
    """Fields by name, in order. The schema of a table is one."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """The field of that name; names differ by more than their case, always."""
        return next((field for field in self.fields if field.name.lower() == name.lower()), None)

    def walk(self) -> Iterator[Field]:
        """Every field at any depth, those that hold others before what they hold."""
        for field in self.fields:
            yield field
            yield from _list_nested_fields(field.type)


class ArrayType(msgspec.Struct, frozen=True, kw_only=True, tag="array", rename="camel"):
    """Any number of values of one type."""

    element_type: Type
    contains_null: bool


class MapType(msgspec.Struct, frozen=True, kw_only=True, tag="map", rename="camel"):
    """Values of one type by keys of another."""

    key_type: Type
    value_type: Type
    value_contains_null: bool


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A column, or a part of one."""

    name: str
    type: Type
    nullable: bool
    metadata: dict[str, Any] = {}

    def __hash__(self) -> int:
        """Of all but the metadata, which is a map: so any type can be looked for in a set of types."""
        return hash((self.name, self.type, self.nullable))


def parse_schema(text: str) -> StructType:
    """The schema that a ``schemaString`` holds. ``MalformedAction`` if it is none."""
    try:
        schema = _DECODER.decode(text)
        if _is_nested_too_deep(schema):
            raise ValueError(f"the types of the schema are nested more than {DEPTH_MAX} deep")
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        reason = f"the schema cannot be understood: {problem}"
        raise MalformedAction(reason, reason=reason) from None
    return schema


def write_schema(schema: StructType) -> str:
    return _ENCODER.encode(schema).decode()


def list_plain_types(kind: Type) -> tuple[str, ...]:
    """The names of the plain types in a type; those of fields in it, these tell themselves (``walk``)."""
    match kind:
        case str():
            return (kind,)
        case StructType():
            return ()
        case _:
            return tuple(
                name for inner_kind in _list_inner_types(kind) for name in list_plain_types(inner_kind)
            )


def _is_nested_too_deep(schema: StructType) -> bool:
    """Whether types are nested too deep to be walked; level by level, so that this ends itself."""
    level: list[Type] = [schema]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _list_inner_types(outer)]
        if not level:
            return False
    return True


def _list_inner_types(kind: Type) -> Iterator[Type]:
    match kind:
        case StructType():
            yield from (field.type for field in kind.fields)
        case ArrayType():
            yield kind.element_type
        case MapType():
            yield from (kind.key_type, kind.value_type)


def _list_nested_fields(kind: Type) -> Iterator[Field]:
    match kind:
        case StructType():
            yield from kind.walk()
        case ArrayType():
            yield from _list_nested_fields(kind.element_type)
        case MapType():
            yield from _list_nested_fields(kind.key_type)
            yield from _list_nested_fields(kind.value_type)


_DECODER: Final = get_json_decoder(StructType)
_ENCODER: Final = msgspec.json.Encoder()
