"""Values of every type that a call or an answer can hold, made from the types themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

import msgspec
from hypothesis import strategies as some

from penstock.model.content import Content, load_content_types
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key

_text = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)
_element = some.text(some.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
_integer = some.integers(-(2**63), 2**63 - 1)

_LEAVES: dict[Any, some.SearchStrategy[Any]] = {
    Key: some.lists(_element, min_size=1, max_size=4).map(lambda elements: Key(*elements)),
    ObjectId: some.binary(min_size=32, max_size=32),
    NoneType: some.none(),
    bool: some.booleans(),
    bytes: some.binary(max_size=40),
    datetime: some.datetimes(timezones=some.just(UTC)),
    float: some.floats(allow_nan=False, allow_infinity=False),
    int: _integer,
    str: _text,
    UUID: some.uuids(),
}


def values(kind: Any) -> some.SearchStrategy[Any]:
    """Any value of a type."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return some.sampled_from(list(kind))
    if kind is Content:
        return some.one_of([values(one) for one in load_content_types().values()])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return some.deferred(lambda: some.builds(kind, **{one.name: values(one.type) for one in fields}))
    origin, members = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values(members[0])
    if origin in (Union, UnionType):
        return some.one_of([values(member) for member in members])
    if origin is tuple and members[1:] == (Ellipsis,):
        return some.lists(values(members[0]), max_size=4).map(tuple)
    if origin is tuple:
        return some.tuples(*map(values, members))
    if origin is dict:
        return some.dictionaries(values(members[0]), values(members[1]), max_size=3)
    raise NotImplementedError(kind)
