"""The reference page of the native API, made from the calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec.structs import FieldInfo

from penstock.lake.calls import CALLS, Call, ListReferences
from penstock.model.content import AnyContent, load_content_types
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Operation
from penstock.model.references import Kind, Reference
from penstock.server.native import NATIVE, PREFIX
from penstock.wire.descriptions import read_field_docs, to_markdown
from penstock.wire.requests import KEY_FIELD, make_request_form

INTRODUCTION = f"""
# The native API

Everything that a lake can do, over HTTP, below `{PREFIX}`. `penstock.open` speaks it when it is given the
address of a [server](../guide/server.md); see [a lake behind a server](../guide/remote.md). Every server
has the same as a schema for tools at `/openapi.json`, and as a page at `/docs`.

- **Fields** that a path names are in it, percent-encoded (`/references/dev%2Fx`). The others are the query
  of a `GET` or `DELETE`, else a JSON object as the body. What is not given has its default; what is not
  known is refused.
- **Writes** take a header `Idempotency-Key` with up to 200 characters, percent-encoded. The same request
  under the same key is done once and answered each time. Every branch and tag has keys of its own: the same
  key with another one is another request.
- **Lists** are asked for page by page, up to the server's limit (1,000 unless it was set otherwise). A page
  with less than `limit` items is the last one.
- **Values**: a key is text (`sales.orders`), an id is hexadecimal digits, bytes are base64, a time is ISO
  8601 with its zone. A field whose name ends with `_us` is a time as microseconds since 1970, in UTC. Fields
  may be added to answers later; ignore those that you do not know.
- **Revisions** are written as [on the command line](cli.md): `main`, `main~3`, a commit's id.
- **Errors** are `{{"error": {{"code", "message", "details"}}, "request_id"}}` with the status of the
  [error](errors.md). 429 and 503 mean that nothing was changed. After 408, 504 and a lost connection,
  repeat a write under its key.
- **Long work** (`/sweep`, `/fsck`) is answered by lines of JSON: `{{"progress": [what, count]}}` now and
  then, and `{{"result": …}}` or an error as the last one.

## Calls
"""

_LEAVES: dict[Any, str] = {
    AnyContent: "[content](#contents)",
    Key: "key",
    Kind: "`branch` or `tag`",
    NoneType: "null",
    ObjectId: "id",
    Operation: "[operation](#operations)",
    UUID: "UUID",
    bool: "true or false",
    bytes: "bytes",
    datetime: "time",
    float: "number",
    int: "integer",
    str: "text",
}


def api_page() -> Iterator[str]:
    yield from INTRODUCTION.strip().splitlines()
    yield ""
    for kind, route in zip(CALLS, NATIVE.routes, strict=False):  # after these come those of Spark's drivers
        yield f"### {route.method} {route.path}"
        yield ""
        yield from to_markdown(kind.__doc__ or "").splitlines()
        yield ""
        yield from _fields(kind)
        yield f"Answers {type_text(kind.answer)}." if kind.answer is not None else "Answers nothing (204)."
        yield ""
    yield from _operations()
    yield from _contents()
    yield from _objects()


def _fields(kind: type[Call[Any]]) -> Iterator[str]:
    form, docs = make_request_form(kind), read_field_docs(kind)
    rest = "query" if form.is_query else "body"
    shown = [field for field in msgspec.structs.fields(kind) if field.name != KEY_FIELD]
    if not shown:
        return
    yield from ("| field | in | meaning | type |", "|---|---|---|---|")
    for field in shown:
        place = "path" if field.name in form.in_path else rest
        yield f"| `{field.name}` | {place} | {docs.get(field.name, '')} | {_with_default(kind, field)} |"
    yield ""


def _with_default(owner: type[msgspec.Struct], field: FieldInfo) -> str:
    text = _field_type(owner, field)
    default = field.default
    if field.required:
        return f"{text}, needed"
    if default in (None, msgspec.NODEFAULT, (), "") or isinstance(default, msgspec.Struct):
        return text
    return f"{text}; {msgspec.json.encode(default).decode()}"


def _operations() -> Iterator[str]:
    yield from ("## Operations", "", "What a commit does. `operation` says which one it is.", "")
    for kind in get_args(Operation):
        yield from struct_section(kind, f"`{kind.__name__.lower()}`")


def _contents() -> Iterator[str]:
    yield from ("## Contents", "", "What a key holds. `type` says which one it is.", "")
    for name, kind in load_content_types().items():
        yield from struct_section(kind, f"`{name}`")


def _objects() -> Iterator[str]:
    yield from ("## Objects", "")
    inside = (*get_args(Operation), *load_content_types().values())
    for kind in sorted(API_STRUCTS - set(inside), key=lambda kind: kind.__name__):
        yield from struct_section(kind, kind.__name__)


def struct_section(kind: type[msgspec.Struct], title: str, page: str = "") -> Iterator[str]:
    """A struct with its fields. ``page`` is where the structs of the API are described, if not here."""
    docs = read_field_docs(kind)
    yield from (f"### {title}", "", *to_markdown(kind.__doc__ or "").splitlines(), "")
    yield from ("| field | meaning | type |", "|---|---|---|")
    for field in msgspec.structs.fields(kind):
        yield f"| `{field.name}` | {docs.get(field.name, '')} | {_field_type(kind, field, page)} |"
    yield ""


def structs_in(kinds: Iterable[Any]) -> Iterator[type[msgspec.Struct]]:
    """The structs that types are made of."""
    left = list(kinds)
    seen: set[Any] = set()
    while left:
        kind = left.pop()
        left += get_args(kind)
        struct = get_origin(kind) or kind
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct) and struct not in seen:
            seen.add(struct)
            yield struct
            left += [field.type for field in msgspec.structs.fields(struct)]


API_STRUCTS = frozenset(
    structs_in(
        used for kind in CALLS for used in (kind.answer, *(one.type for one in msgspec.structs.fields(kind)))
    )
)
"""The structs that calls and answers are made of, which this page describes."""


def _field_type(owner: type[msgspec.Struct], field: FieldInfo, page: str = "") -> str:
    """The type of a field in words. A reference that is deleted can be listed, and nothing else."""
    if field.type is Kind and owner in (ListReferences, Reference):
        return f"{_LEAVES[Kind]} or `{Kind.DELETED}`"
    return type_text(field.type, page)


def type_text(kind: Any, page: str = "") -> str:
    """A type in words."""
    if kind in _LEAVES:
        return _LEAVES[kind].replace("(#", f"({page}#")
    if isinstance(kind, TypeVar):
        return "what the command says"
    if kind is Any:
        return "anything"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        where = page if kind in API_STRUCTS else ""
        return f"[{kind.__name__}]({where}#{kind.__name__.lower()})"
    origin, members = get_origin(kind), get_args(kind)
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return f"{type_text(origin, page)} of {' and '.join(type_text(one, page) for one in members)}"
    if origin is Annotated:
        return type_text(members[0], page)
    if origin in (Union, UnionType):
        some = tuple(member for member in members if member is not NoneType)
        whole: Any = Union[some]  # noqa: UP007 - it is made at run time
        if len(some) < len(members):
            return f"{type_text(whole, page)} or null"
        return " or ".join(type_text(one, page) for one in members)
    if origin is tuple:
        return f"list of {type_text(members[0], page)}"
    if origin in (dict, Mapping):
        return f"object of {type_text(members[1], page)} by {type_text(members[0], page)}"
    raise NotImplementedError(kind)
