"""JSON of the model's values, by the rule of ``twins``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidKey, InvalidRequest, UnsupportedFormat
from penstock.model import decoders
from penstock.model.decoders import get_json_decoder
from penstock.wire.descriptions import add_descriptions
from penstock.wire.json_types import JsonTypes, read_leaf

_strict: Final = JsonTypes(strict=True)
_tolerant: Final = JsonTypes(strict=False)
_encoder: Final = msgspec.json.Encoder()

_BUILT_IN: Final = (bytes, datetime, UUID)
_PLACE = re.compile(r" - at `(key in )?\$\.?(.*)`$")


def encode(value: Any, kind: Any) -> bytes:
    """A value of a type as JSON."""
    return _encoder.encode(to_json_value(value, kind))


def to_json_value(value: Any, kind: Any) -> Any:
    """A value of a type as what msgspec writes as its JSON, to be part of something larger."""
    convert = _strict.find_json_type(kind).dump
    return value if convert is None else convert(value)


def to_checked_json_value(value: Any, kind: Any) -> Any:
    """As ``dump``, for a value that a program made: one of another type is a ``msgspec.ValidationError``.

    JSON has fewer types than Python. Without this, bytes in the place of text would arrive as other text.
    """
    written = to_json_value(value, kind)
    decoders.convert_value(
        written,
        _strict.find_json_type(kind).type,
        from_attributes=True,
        builtin_types=_BUILT_IN,
        dec_hook=read_leaf,
    )
    return written


def decode(data: bytes, kind: Any) -> Any:
    """A value of a type that somebody asks with: ``InvalidRequest`` for whatever it cannot be."""
    with _refuse_invalid():
        return _build_value(_make_decoder(kind, True).decode(data), kind, _strict)


def convert(values: Mapping[str, Any], kind: Any) -> Any:
    """A struct, from the text of each field, or a list of texts where a field has several."""
    with _refuse_invalid():
        converted = decoders.convert_value(
            values, _strict.find_json_type(kind).type, strict=False, dec_hook=read_leaf
        )
        return _build_value(converted, kind, _strict)


def read_answer_json(data: bytes, kind: Any) -> Any:
    """A value of a type that somebody answered with.

    What a newer version says in addition is ignored; ``UnsupportedFormat`` if it cannot be understood.
    """
    try:
        return _build_value(_make_decoder(kind, False).decode(data), kind, _tolerant)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidKey) as problem:
        raise UnsupportedFormat(f"the response cannot be parsed: {problem}") from None


def schema(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The JSON schema of each type, and the components ``#/components/schemas/<name>`` that they refer to.

    Descriptions are the docstrings of classes and fields.
    """
    schemas, components = msgspec.json.schema_components(
        [_strict.find_json_type(kind).type for kind in kinds],
        schema_hook=_make_leaf_schema,
        ref_template="#/components/schemas/{name}",
    )
    whole = [list(schemas), add_descriptions(components, kinds)]
    pure: list[Any] = msgspec.json.decode(
        msgspec.json.encode(whole)
    )  # defaults such as an empty tuple are gone
    return pure[0], pure[1]


def _build_value(twin_value: Any, kind: Any, twins: JsonTypes) -> Any:
    build = twins.find_json_type(kind).build
    return twin_value if build is None else build(twin_value)


def _make_decoder(kind: Any, strict: bool) -> msgspec.json.Decoder[Any]:
    twins = _strict if strict else _tolerant
    return get_json_decoder(twins.find_json_type(kind).type, dec_hook=read_leaf)


@contextmanager
def _refuse_invalid() -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as problem:
        raise _invalid_json_error(str(problem)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidRequest(f"the request is not valid JSON: {problem}") from None


def _invalid_json_error(problem: str) -> InvalidRequest:
    match = _PLACE.search(problem)
    if match is None or not match[2]:
        return InvalidRequest(f"the request cannot be read: {_PLACE.sub('', problem)}")
    what = problem[: match.start()]
    return InvalidRequest(f"the request cannot be read, at '{match[2]}': {what}", field=match[2])


def _make_leaf_schema(_: type) -> dict[str, Any]:
    """Of a key, the only type that is none of JSON's."""
    return {
        "type": "string",
        "description": "A key: its elements with dots between them. An element that contains a dot or a "
        "quote stands in double quotes, which are doubled inside.",
        "examples": ["sales.orders", 'sales."2026.11"'],
    }
