"""How a call travels as an HTTP request.

Fields that the path names are in it, percent-encoded; ``idempotency_key`` is the header ``Idempotency-Key``,
percent-encoded too; the others are the query of a ``GET`` or ``DELETE``, else the JSON body. What has its
default value is not sent, so that an older server understands a newer client that asks for nothing new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from urllib.parse import quote, unquote_to_bytes, urlencode

import msgspec
from msgspec.structs import FieldInfo, fields

from penstock.errors import InvalidRequest
from penstock.wire import json

KEY_FIELD: Final = "idempotency_key"
KEY_HEADER: Final = "Idempotency-Key"
HASH_FIELD: Final = "asked"
"""Of a call with a key: whoever gets it makes this hash anew."""
_PRINTABLE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


class RoutedCall(Protocol):
    """A type of call: a struct that says where it goes."""

    method: ClassVar[str]
    path: ClassVar[str]


C = TypeVar("C", bound=RoutedCall)


class RequestForm(msgspec.Struct, frozen=True, kw_only=True):
    """Where the fields of one type of call are in a request."""

    in_path: tuple[str, ...]
    has_key: bool
    rest: type[msgspec.Struct] | None
    """A struct of all other fields; ``None`` if there are none."""
    rest_fields: tuple[FieldInfo, ...]
    is_query: bool
    """Whether those are the query; they are the body if not."""


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as it does not depend on the server."""

    method: str
    target: str
    """Path and query, relative to the API's prefix."""
    headers: dict[str, str]
    body: bytes | None


@cache
def make_request_form(kind: type[RoutedCall]) -> RequestForm:
    """Where the fields of a type of call go."""
    in_path = tuple(re.findall(r"{(\w+)}", kind.path))
    every = fields(cast("type[msgspec.Struct]", kind))
    has_key = any(field.name == KEY_FIELD for field in every)
    elsewhere = {*in_path, *((KEY_FIELD, HASH_FIELD) if has_key else ())}
    others = tuple(field for field in every if field.name not in elsewhere)
    return RequestForm(
        in_path=in_path,
        has_key=has_key,
        rest=_make_struct(kind, others) if others else None,
        rest_fields=others,
        is_query=kind.method in ("GET", "DELETE"),
    )


def make_wire_request(call: Any) -> WireRequest:
    """A call as a request; ``InvalidRequest`` if it holds something that cannot be sent."""
    try:
        return _make_wire_request(call)
    except (msgspec.MsgspecError, AttributeError, TypeError, ValueError, RecursionError) as problem:
        raise InvalidRequest(
            f"the request {type(call).__name__} has a value that cannot be encoded: {problem}"
        ) from None


def read_call(kind: type[C], path: Mapping[str, str], rest: Any, headers: Mapping[str, str]) -> C:
    """The call behind a request, of which the path and the rest were read already."""
    form = make_request_form(kind)
    values: dict[str, Any] = {name: path[name] for name in form.in_path}
    if rest is not None:
        values |= {field.name: getattr(rest, field.name) for field in form.rest_fields}
    key = headers.get(KEY_HEADER.lower())
    if form.has_key and key is not None:
        values[KEY_FIELD] = _unquote_header(key)
    return kind(**values)


def _unquote_header(header: str) -> str:
    try:
        return unquote_to_bytes(header.encode("latin-1")).decode()
    except UnicodeError:
        raise InvalidRequest(f"{KEY_HEADER}: an idempotency key must be percent-encoded UTF-8") from None


def _make_wire_request(call: Any) -> WireRequest:
    kind: type[RoutedCall] = type(call)
    form = make_request_form(kind)
    key = getattr(call, KEY_FIELD, None)
    headers = {KEY_HEADER: quote(key, safe=_PRINTABLE)} if key is not None else {}
    path = re.sub(r"{(\w+)}", lambda match: _quote_segment(match[1], getattr(call, match[1])), kind.path)
    fields = dict(_fields_to_send(call, form))
    if form.is_query:
        query = urlencode(list(_encode_query_values(fields)))
        target = f"{path}?{query}" if query else path
        return WireRequest(method=kind.method, target=target, headers=headers, body=None)
    headers["Content-Type"] = "application/json"
    return WireRequest(method=kind.method, target=path, headers=headers, body=msgspec.json.encode(fields))


def _make_struct(kind: type[RoutedCall], others: tuple[FieldInfo, ...]) -> type[msgspec.Struct]:
    declared = []
    for field in others:
        default = {"default": field.default, "default_factory": field.default_factory}
        declared.append((field.name, field.type, msgspec.field(**default)))
    return msgspec.defstruct(
        kind.__name__,
        declared,
        frozen=True,
        kw_only=True,
        module=kind.__module__,
        namespace={"__doc__": kind.__doc__},
    )


def _fields_to_send(call: Any, form: RequestForm) -> Iterator[tuple[str, Any]]:
    """The fields that are not what they are anyway, as JSON has them."""
    for field in form.rest_fields:
        value = getattr(call, field.name)
        if field.required or value != _get_field_default(field):
            yield field.name, _check_value(value, field)


def _check_value(value: Any, field: FieldInfo) -> Any:
    try:
        return json.to_checked_json_value(value, field.type)
    except msgspec.ValidationError as problem:
        raise InvalidRequest(
            f"the argument '{field.name}' cannot be encoded: {problem}", field=field.name
        ) from None


def _get_field_default(field: FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _quote_segment(name: str, value: str) -> str:
    if not value:
        raise InvalidRequest(f"'{name}' is empty")
    # A client or proxy that tidies paths would take these for steps.
    return quote(value, safe="") if value not in (".", "..") else value.replace(".", "%2E")


def _encode_query_values(sent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in sent.items():
        for item in value if isinstance(value, tuple) else (value,):
            yield name, _encode_query_value(item)


def _encode_query_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    return msgspec.json.encode(value).decode()
