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
from penstock.model import decoders
from penstock.model.content import AnyContent, Content, Unknown, content_types

SHORT_NAMES: Final = {
    "iceberg": "ICEBERG_TABLE",
    "view": "ICEBERG_VIEW",
    "delta": "DELTA_LAKE_TABLE",
    "lance": "LANCE_TABLE",
    "files": "FILES_TABLE",
    "udf": "UDF",
    "namespace": "NAMESPACE",
}
"""What people may write instead of a type's name."""


def from_json(text: str | bytes) -> AnyContent:
    """The content that an object stands for; ``InvalidContent`` says what is wrong with it."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InvalidContent(f"the content is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise InvalidContent("a content is a JSON object with a type and fields")
    kind = found.pop("type", None)
    if not isinstance(kind, str) or not kind:
        raise InvalidContent(f'the content has no "type"; there are {_known_types()}')
    if kind == Unknown.content_type and isinstance(found.get("type_name"), str):
        kind = found.pop("type_name") or kind
    return _content(kind, found)


def from_fields(kind: str, fields: Sequence[str]) -> AnyContent:
    """The content that a type and ``name=value`` fields describe; a field that is a list may be repeated."""
    cls = _class(kind)
    found: dict[str, Any] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise InvalidContent(f"{field!r} is not a field; write it as name=value")
        wanted = _fields(cls).get(name)
        if wanted is not None and wanted.type not in (str, bytes, int, UUID | None):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidContent(f"the field {name!r} is given twice")
        else:
            found[name] = (
                int(value) if wanted is not None and wanted.type is int and _is_int(value) else value
            )
    return _content(kind, found)


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _class(kind: str) -> type[Content]:
    return content_types().get(_full_name(kind), Unknown)


def _full_name(kind: str) -> str:
    name = kind.upper().replace("-", "_")
    return SHORT_NAMES.get(kind.lower(), name if name in content_types() else kind)


def _fields(cls: type[Content]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls) if field.name != "type_name"}


def _content(kind: str, found: dict[str, Any]) -> AnyContent:
    cls, name = _class(kind), _full_name(kind)
    known = _fields(cls)
    for field in found:
        if field not in known:
            raise InvalidContent(f"{name} has no field {field!r}; it has {', '.join(known)}")
    values = {field: _value(name, known[field], value) for field, value in found.items()}
    missing = [field.name for field in known.values() if field.required and field.name not in values]
    if missing:
        raise InvalidContent(f"{name} needs {', '.join(missing)}")
    if cls is Unknown:
        values["type_name"] = "" if name == Unknown.content_type else name
    return cls(**values)


def _value(kind: str, field: msgspec.structs.FieldInfo, value: Any) -> Any:
    try:
        if field.name == "held":
            return tuple(bytes.fromhex(one) for one in decoders.convert(value, list[str]))
        if field.type is bytes:
            return base64.b64decode(decoders.convert(value, str), validate=True)
        return decoders.convert(value, field.type)
    except (msgspec.ValidationError, ValueError, binascii.Error) as problem:
        raise InvalidContent(f"{kind}'s field {field.name!r}: {problem}") from None


def _known_types() -> str:
    return ", ".join(content_types())
