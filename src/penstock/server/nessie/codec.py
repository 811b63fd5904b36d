"""The codec of Nessie's API: shapes are plain structs, so that all of it is done by their library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from penstock.errors import InvalidRequest
from penstock.model import decoders
from penstock.model.decoders import get_json_decoder

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class NessieCodec:
    """Reads and writes shapes. What cannot be read raises ``InvalidRequest`` that names the field."""

    def decode(self, data: bytes, type: Any, /) -> Any:  # noqa: A002
        try:
            return get_json_decoder(type | None).decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidRequest(f"the request's body cannot be read: {problem}") from None

    def convert(self, values: Mapping[str, Any], type: Any, /) -> Any:  # noqa: A002
        parsed = {
            name: _parse_parameter(value, _types_by_field(type).get(name)) for name, value in values.items()
        }
        parsed = {name: value for name, value in parsed.items() if value is not None}
        try:
            return decoders.convert_value(parsed, type, strict=False)
        except msgspec.ValidationError as problem:
            raise InvalidRequest(f"the request's parameters cannot be read: {problem}") from None

    def encode(self, value: Any, type: Any, /) -> bytes:  # noqa: A002, ARG002
        return _encoder.encode(value)

    def schema(self, types: Sequence[Any], /) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
        return msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")


CODEC = NessieCodec()


def require_body(body: T | None, parameter: str) -> T:
    """A request's body; refused if there is none, in which case ``parameter`` is what Nessie calls it."""
    if body is None:
        raise InvalidRequest(f"{parameter}: must not be null", field=parameter)
    return body


@cache
def _types_by_field(type: Any) -> dict[str, Any]:  # noqa: A002
    return {field.encode_name: field.type for field in msgspec.structs.fields(type)}


def _parse_parameter(value: Any, kind: Any) -> Any:
    """A parameter's text as Nessie takes it: only ``true`` is true, and an empty number is none."""
    if kind is bool:
        return value.lower() == "true"
    return None if value == "" and kind == int | None else value
