"""Twins: for every type of the model, the type that its JSON has.

The model is made for storage: contents are arrays with numbered tags, ids are bytes, keys are tuples. JSON is
for people and other languages. Instead of a second set of classes, one rule derives them:

* a struct is an object with the names of its fields, also where it is stored as an array;
* a key is text, ``sales.orders``;
* an id is hexadecimal digits, other bytes are base64;
* a content says its ``type``, an operation says its ``operation``;
* an integer has 64 bits, a time has a time zone; everything else is as msgspec writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta
from msgspec.structs import FieldInfo, fields

from penstock.model import decoders
from penstock.model.content import Content, load_content_types
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change, Delete, Put, Unchanged

Convert: TypeAlias = Callable[[Any], Any]

_TAGS: Final[Mapping[type, tuple[str, str]]] = {
    kind: ("operation", kind.__name__.lower()) for kind in (Put, Delete, Unchanged, Change)
}
"""The field that tells which operation an object is, and what it says."""

_HEXADECIMAL: Final = Annotated[str, Meta(pattern="^([0-9a-fA-F]{2})*$", description="Hexadecimal digits.")]
_INTEGER: Final = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_MOMENT: Final = Annotated[datetime, Meta(tz=True)]


class JsonType(msgspec.Struct, frozen=True):
    """What a type is in JSON, and the way there and back; ``None`` where the value stays as it is."""

    type: Any
    """What JSON is read as, and checked against."""
    dump: Convert | None = None
    """From a value to what is written as JSON."""
    build: Convert | None = None
    """From what was read, an instance of ``type``, to the value."""


class JsonTypes:
    """The twins of all types, each made once. ``strict`` ones refuse fields that they do not know."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._known: dict[Any, JsonType] = {}
        self._making = threading.RLock()

    def find_json_type(self, kind: Any) -> JsonType:
        twin = self._known.get(kind)
        if twin is None:
            with self._making:
                twin = self._known.get(kind) or self._make_json_type(kind)
                self._known[kind] = twin
        return twin

    def _make_json_type(self, kind: Any) -> JsonType:
        if kind is Key:
            return JsonType(Key, _write_key)
        if kind == ObjectId:
            return JsonType(_HEXADECIMAL, bytes.hex, bytes.fromhex)
        if kind is int:
            return JsonType(_INTEGER)
        if kind is datetime:
            return JsonType(_MOMENT)
        if kind is Content:
            return self._make_union_type(tuple(load_content_types().values()))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._make_struct_type(kind)
        origin = get_origin(kind)
        if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
            return self._make_struct_type(kind)
        if origin is Annotated:
            inner, *notes = get_args(kind)
            twin = self.find_json_type(inner)
            return JsonType(Annotated[(twin.type, *notes)], twin.dump, twin.build)
        if origin in (Union, UnionType):
            return self._make_union_type(get_args(kind))
        if origin is tuple:
            return self._make_tuple_type(get_args(kind))
        if origin is dict:
            return self._make_dict_type(*get_args(kind))
        return JsonType(kind)

    # -- structs ---------------------------------------------------------------------------------------

    def _make_struct_type(self, of: Any) -> JsonType:
        """Of a struct, or of a generic one with its types."""
        parts = [(field, self.find_json_type(field.type)) for field in fields(of)]
        kind: type[msgspec.Struct] = get_origin(of) or of
        tag_field, tag = _find_tag(kind)
        twin = msgspec.defstruct(
            kind.__name__,
            [_declare_field(field, part) for field, part in parts],
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=self._strict,
            tag_field=tag_field,
            tag=tag,
            module=kind.__module__,
            namespace={"__doc__": kind.__doc__},
        )
        names = {field.name: part for field, part in parts}
        is_plain = not tag and not kind.__struct_config__.array_like
        is_plain = is_plain and all(part.dump is None for part in names.values())
        return JsonType(
            twin, None if is_plain else _make_dumper(names, tag_field, tag), _make_builder(kind, names)
        )

    # -- containers ------------------------------------------------------------------------------------

    def _make_union_type(self, members: tuple[Any, ...]) -> JsonType:
        twins = {member: self.find_json_type(member) for member in members}
        kind = _apply_type_arguments(Union, tuple(twin.type for twin in twins.values()))
        some = [member for member in members if member is not NoneType]
        if len(some) == 1:
            only = twins[some[0]]
            return JsonType(kind, _convert_unless_none(only.dump), _convert_unless_none(only.build))
        dumps = {_find_class(member): twin.dump for member, twin in twins.items() if twin.dump is not None}
        builds = {_find_class(twin.type): twin.build for twin in twins.values() if twin.build is not None}
        return JsonType(kind, _convert_by_type(dumps), _convert_by_type(builds))

    def _make_tuple_type(self, members: tuple[Any, ...]) -> JsonType:
        if len(members) == 2 and members[1] is Ellipsis:
            member = self.find_json_type(members[0])
            kind = _apply_type_arguments(tuple, (member.type, ...))
            return JsonType(kind, _convert_each(member.dump), _convert_each(member.build))
        twins = [self.find_json_type(member) for member in members]
        kind = _apply_type_arguments(tuple, tuple(twin.type for twin in twins))
        return JsonType(
            kind,
            _convert_by_position([twin.dump for twin in twins]),
            _convert_by_position([twin.build for twin in twins]),
        )

    def _make_dict_type(self, key: Any, value: Any) -> JsonType:
        keys, values = self.find_json_type(key), self.find_json_type(value)
        kind = _apply_type_arguments(dict, (keys.type, values.type))
        return JsonType(kind, _convert_values(values.dump), _convert_values(values.build))


def read_leaf(kind: type, value: Any) -> Any:
    """What JSON has no type for: msgspec asks for it while it reads."""
    if kind is Key:
        return Key.parse(value)
    raise NotImplementedError(f"there is no JSON for {kind}")


def _find_tag(kind: type[msgspec.Struct]) -> tuple[str | None, str | None]:
    """The field that tells a type from others, and what it says: as JSON names it, or as the type itself does
    if it is no array."""
    config = kind.__struct_config__
    if issubclass(kind, Content):
        return "type", kind.content_type
    if kind in _TAGS or config.array_like or not isinstance(config.tag, str):
        return _TAGS.get(kind, (None, None))
    return config.tag_field, config.tag


def _write_key(key: Key) -> str:
    if not isinstance(key, Key):
        raise TypeError(f"expected a Key, got {type(key).__name__}: use Key.parse")
    return str(key)


def _find_class(kind: Any) -> Any:
    """What the values of a type are instances of: of ``tuple[int, ...]``, say, tuples."""
    return get_origin(kind) or kind


def _apply_type_arguments(kind: Any, members: tuple[Any, ...]) -> Any:
    """A generic type of types that are only known at run time."""
    return kind[members]


def _declare_field(field: FieldInfo, twin: JsonType) -> Any:
    """A field as ``defstruct`` wants it, with its default."""
    if field.required:
        return field.name, twin.type
    if field.default_factory is not NODEFAULT:
        return field.name, twin.type, msgspec.field(default_factory=field.default_factory)
    written = twin.dump(field.default) if twin.dump is not None else field.default
    default = decoders.convert_value(written, twin.type, from_attributes=True, dec_hook=read_leaf)
    return field.name, twin.type, msgspec.field(default=default)


def _make_dumper(parts: Mapping[str, JsonType], tag_field: str | None, tag: str | None) -> Convert:
    dumps = tuple((name, part.dump) for name, part in parts.items())
    start: dict[str, Any] = {tag_field: tag} if tag_field is not None else {}

    def dump(value: Any) -> dict[str, Any]:
        written: dict[str, Any] = dict(start)
        for name, convert in dumps:
            field_value = getattr(value, name)
            written[name] = field_value if convert is None else convert(field_value)
        return written

    return dump


def _make_builder(kind: type[msgspec.Struct], parts: Mapping[str, JsonType]) -> Convert:
    builds = tuple((name, part.build) for name, part in parts.items())

    def build(twin: Any) -> msgspec.Struct:
        values = {}
        for name, convert in builds:
            field_value = getattr(twin, name)
            values[name] = field_value if convert is None else convert(field_value)
        return kind(**values)

    return build


def _convert_unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _convert_by_type(converts: Mapping[Any, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert(value: Any) -> Any:
        chosen = converts.get(type(value))
        return value if chosen is None else chosen(value)

    return convert


def _convert_each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: tuple([convert(value) for value in values])


def _convert_values(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: {key: convert(value) for key, value in values.items()}


def _convert_by_position(converts: list[Convert | None]) -> Convert | None:
    if all(convert is None for convert in converts):
        return None
    return lambda values: tuple(
        value if convert is None else convert(value) for convert, value in zip(converts, values, strict=True)
    )
