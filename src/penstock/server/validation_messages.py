"""Wording: what is wrong with a request's fields, said to people who do not know what reads them.

The field is named as it is written in JSON, ``operations[0].content.type``, and where only some values are
taken, all of them are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.server.routes import Codec

Json = dict[str, Any]

_PLACE: Final = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
    "datetime": "a time",
    "uuid": "a UUID",
    "bytes": "bytes in base64",
}


def in_plain_words(refused: InvalidRequest, codec: Codec, kind: Any) -> InvalidRequest:
    """The same refusal in plain words, if it is one of a field's value; else as it was."""
    problem = refused.__context__
    if not isinstance(problem, msgspec.ValidationError):
        return refused
    text = str(problem)
    place_match = _PLACE.search(text)
    place, what = (place_match[1], text[: place_match.start()]) if place_match is not None else ("", text)
    for pattern, say in _SAYINGS:
        match = pattern.fullmatch(what)
        if match is not None:
            message = say(match, place, lambda: ", ".join(_list_allowed_values(codec, kind, place)))
            return InvalidRequest(message, field=place or match[1])
    return InvalidRequest(f"{_name_place(place)}: {what[:1].lower()}{what[1:]}", field=place)


Say = Callable[[re.Match[str], str, Callable[[], str]], str]

_SAYINGS: Final[tuple[tuple[re.Pattern[str], Say], ...]] = (
    (
        re.compile(r"Expected `([^`]+)`, got `([^`]+)`"),
        lambda match, place, _: (
            f"{_name_place(place)} must be {_describe_types(match[1])}, got {_describe_types(match[2])}"
        ),
    ),
    (
        re.compile(r"Expected `([^`]+)` (>=|>|<=|<) (\S+)"),
        lambda match, place, _: (
            f"{_name_place(place)} must be {_describe_types(match[1])} {match[2]} {match[3]}"
        ),
    ),
    (
        re.compile(r"Object missing required field `([^`]+)`"),
        lambda match, place, _: f"{_name_place(place)} needs the field '{match[1]}'",
    ),
    (
        re.compile(r"Object contains unknown field `([^`]+)`"),
        lambda match, place, _: f"{_name_place(place)} has no field '{match[1]}'",
    ),
    (
        re.compile(r"Invalid (?:enum )?value '?(.*?)'?", re.DOTALL),
        lambda match, place, allowed: f"{_name_place(place)} is '{match[1]}', but must be one of {allowed()}",
    ),
)


def _name_place(field_path: str) -> str:
    return f"'{field_path}'" if field_path else "the request"


def _describe_types(kinds: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in kinds.split(" | "))


def _list_allowed_values(codec: Codec, kind: Any, field_path: str) -> list[str]:
    """The values that may stand at a place of a type, by its schema."""
    schemas, components = codec.schema([kind])
    possible = list(_list_resolved_schemas(schemas[0], components))
    for name, index in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", field_path):
        possible = [
            deeper
            for schema in possible
            for deeper in _schemas_of_child(schema, name, bool(index), components)
        ]
    values = [value for schema in possible for value in (schema.get("enum") or [schema.get("const")])]
    return sorted({str(value) for value in values if value is not None})


def _schemas_of_child(schema: Json, name: str, is_index: bool, components: Json) -> Iterator[Json]:
    inside = schema.get("items") if is_index else schema.get("properties", {}).get(name)
    if inside is None:
        inside = schema.get("additionalProperties")
    if isinstance(inside, dict):
        yield from _list_resolved_schemas(inside, components)


def _list_resolved_schemas(schema: Json, components: Json) -> Iterator[Json]:
    """What a schema can be, one by one, without references."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    if not schema.keys() & {"anyOf", "oneOf"}:
        yield schema
        return
    for variant in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _list_resolved_schemas(variant, components)
