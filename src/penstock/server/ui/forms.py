"""How the page's requests are read: queries and forms, both as a browser encodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.errors import InvalidRequest
from penstock.model import decoders
from penstock.server.route_matcher import list_parameters

MEDIA_TYPE: Final = "application/x-www-form-urlencoded"
FIELDS_MAX: Final = 1_000


def decode(data: bytes, kind: Any) -> Any:
    """A form as a struct; ``InvalidRequest`` names the field that is wrong."""
    try:
        pairs = parse_qsl(
            data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise InvalidRequest("the form is not encoded as a browser encodes it") from None
    several = list_parameters(kind)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if several.get(name):
            values.setdefault(name, []).append(value)
        else:
            values.setdefault(name, value)
    return convert(values, kind)


def convert(values: Mapping[str, Any], kind: Any) -> Any:
    """A struct from the text of each field. A field that is empty is one that was not filled in."""
    filled = {name: value for name, value in values.items() if value != ""}
    try:
        return decoders.convert_value(filled, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise InvalidRequest(f"the request cannot be read: {problem}") from None


def encode(value: Any, kind: Any) -> bytes:
    """Pages are no values: nothing is encoded."""
    raise NotImplementedError(
        f"pages are made of HTML, and not encoded: got a {kind} with the value {value!r}"
    )


def schema(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """For messages that name what a field may be."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return list(schemas), components
