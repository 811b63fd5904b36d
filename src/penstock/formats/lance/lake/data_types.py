"""Arrow's types as JSON has them: a name, with a length or fields for those that have some."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from lance_namespace import InvalidInputError

Json = dict[str, Any]

_PLAIN: Final = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "string_view": "utf8",
    "large_string": "large_utf8",
    "binary_view": "binary",
}
"""Names that are others here."""

_SCALE: Final = 1000
"""Of a decimal, digits and those after the point are one number: 10002 for ten and two."""


def write_json_schema(schema: pa.Schema) -> Json:
    """A table's schema."""
    json_object: Json = {"fields": [_write_json_field(field) for field in schema]}
    return json_object | _write_json_metadata(schema.metadata)


def _write_json_field(field: pa.Field) -> Json:
    json_object = {"name": field.name, "nullable": field.nullable, "type": write_json_type(field.type)}
    return json_object | _write_json_metadata(field.metadata)


def write_json_type(kind: pa.DataType) -> Json:
    """A type. Units of times, and indices of dictionaries, are not told."""
    if pa.types.is_dictionary(kind):
        return write_json_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return {"type": str(kind).partition("(")[0], "length": kind.precision * _SCALE + kind.scale}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    if pa.types.is_fixed_size_list(kind):
        return {
            "type": "fixed_size_list",
            "fields": [_write_json_field(kind.value_field)],
            "length": kind.list_size,
        }
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        name = "list" if pa.types.is_list(kind) else "large_list"
        return {"type": name, "fields": [_write_json_field(kind.value_field)]}
    if pa.types.is_map(kind):
        inside = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        return {"type": "map", "fields": [_write_json_field(inside)]}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_write_json_field(field) for field in kind]}
    name = str(kind).partition("[")[0]
    return {"type": _PLAIN.get(name, name)}


def parse_arrow_type(type_spec: Any) -> pa.DataType:
    """The type that a request names; ``InvalidInputError`` if there is none. Times are in microseconds."""
    type_spec = {"type": type_spec} if isinstance(type_spec, str) else type_spec
    try:
        name, length = type_spec["type"], type_spec.get("length")
        inside = [
            pa.field(field["name"], parse_arrow_type(field["type"]), field.get("nullable", True))
            for field in type_spec.get("fields") or ()
        ]
        match name:
            case "struct":
                return pa.struct(inside)
            case "list":
                return pa.list_(inside[0])
            case "large_list":
                return pa.large_list(inside[0])
            case "fixed_size_list":
                return pa.list_(inside[0], length)
            case "fixed_size_binary":
                return pa.binary(length)
            case "decimal128":
                return pa.decimal128(*divmod(length, _SCALE))
            case "decimal256":
                return pa.decimal256(*divmod(length, _SCALE))
            case "timestamp":
                return pa.timestamp("us")
            case "utf8":
                return pa.string()
            case "large_utf8":
                return pa.large_string()
        return pa.type_for_alias(name)
    except (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        raise InvalidInputError(f"there is no type {type_spec!r}") from None


def _write_json_metadata(metadata: dict[bytes, bytes] | None) -> Json:
    if not metadata:
        return {}
    return {"metadata": {name.decode(): value.decode(errors="replace") for name, value in metadata.items()}}
