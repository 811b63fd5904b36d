"""Contents as JSON objects and as ``name=value`` fields, read.

A content is ``{"type": "ICEBERG_TABLE", "id": …, "metadata_location": …}``: its type, and its fields under
their own names, as the API writes it. What is printed can be put again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidContent
from penstock.formats.registry import list_table_formats
from penstock.model import decoders
from penstock.model.content import AnyContent, Content, Unknown, load_content_types

SHORT_NAMES: Final = {
    "iceberg": "ICEBERG_TABLE",
    "view": "ICEBERG_VIEW",
    "udf": "UDF",
    "namespace": "NAMESPACE",
    **{declared.name: declared.content_type for declared in list_table_formats()},
}
"""What people may write instead of a type's name."""


def parse_content_json(text: str | bytes) -> AnyContent:
    """The content that an object stands for; ``InvalidContent`` says what is wrong with it."""
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InvalidContent(f"the content is not JSON: {problem}") from None
    if not isinstance(parsed, dict):
        raise InvalidContent("a content must be a JSON object with a type and fields")
    kind = parsed.pop("type", None)
    if not isinstance(kind, str) or not kind:
        raise InvalidContent(f'the content has no "type"; the types are {_list_known_types()}')
    if kind == Unknown.content_type and isinstance(parsed.get("type_name"), str):
        kind = parsed.pop("type_name") or kind
    return _parse_content(kind, parsed)


def parse_content_fields(kind: str, fields: Sequence[str]) -> AnyContent:
    """The content that a type and ``name=value`` fields describe; a field that is a list may be repeated."""
    cls = _find_content_class(kind)
    values: dict[str, Any] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise InvalidContent(f"{field!r} is not a field; write it as name=value")
        field_info = _list_content_fields(cls).get(name)
        if field_info is not None and field_info.type not in (str, bytes, int, UUID | None):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise InvalidContent(f"the field {name!r} is given twice")
        else:
            values[name] = (
                int(value) if field_info is not None and field_info.type is int and _is_int(value) else value
            )
    return _parse_content(kind, values)


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _find_content_class(kind: str) -> type[Content]:
    return load_content_types().get(_expand_type_name(kind), Unknown)


def _expand_type_name(kind: str) -> str:
    name = kind.upper().replace("-", "_")
    return SHORT_NAMES.get(kind.lower(), name if name in load_content_types() else kind)


def _list_content_fields(cls: type[Content]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls) if field.name != "type_name"}


def _parse_content(kind: str, found: dict[str, Any]) -> AnyContent:
    cls, name = _find_content_class(kind), _expand_type_name(kind)
    fields = _list_content_fields(cls)
    for field in found:
        if field not in fields:
            raise InvalidContent(f"{name} has no field {field!r}; its fields are {', '.join(fields)}")
    values = {field: _parse_field_value(name, fields[field], value) for field, value in found.items()}
    missing = [field.name for field in fields.values() if field.required and field.name not in values]
    if missing:
        noun = "field" if len(missing) == 1 else "fields"
        raise InvalidContent(f"a content of the type {name} needs the {noun} {', '.join(missing)}")
    if cls is Unknown:
        values["type_name"] = "" if name == Unknown.content_type else name
    return cls(**values)


def _parse_field_value(kind: str, field: msgspec.structs.FieldInfo, value: Any) -> Any:
    try:
        if field.name == "held":
            return tuple(bytes.fromhex(digits) for digits in decoders.convert_value(value, list[str]))
        if field.type is bytes:
            return base64.b64decode(decoders.convert_value(value, str), validate=True)
        return decoders.convert_value(value, field.type)
    except (msgspec.ValidationError, ValueError, binascii.Error) as problem:
        raise InvalidContent(f"{kind}'s field {field.name!r}: {problem}") from None


def _list_known_types() -> str:
    return ", ".join(load_content_types())
