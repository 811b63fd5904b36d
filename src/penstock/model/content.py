"""Contents: what a key holds.

A content says where a table is and in which state. Penstock does not look into it; its format does. The
``id`` stays the same when a table is renamed and changes when it is dropped and created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final, TypeAlias, Union
from uuid import UUID

import msgspec

from penstock.errors import InvalidContent
from penstock.model.encoding import ObjectId, encode, make_decoder

CONTENT_MAX_BYTES: Final = 16 * 1024 * 1024


class Content(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What all contents share. ``id`` is given by Penstock when a content is first stored."""

    content_type: ClassVar[str]
    """The type's name, as people and other catalogues write it."""
    noun: ClassVar[str] = ""
    """The type in words, with its article: ``an Iceberg table``."""
    holds_trees: ClassVar[bool] = False
    """Whether ``objects`` are the roots of trees, built as the lake's own map is."""

    id: UUID | None = None

    @property
    def type(self) -> str:
        """The name of its type."""
        return self.content_type

    @property
    def type_in_words(self) -> str:
        """What it is, as messages say it, with its article."""
        return self.noun or f"a content of type {self.type}"

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """Kernel objects that this content needs; they live as long as it does."""
        return ()

    @property
    def locations(self) -> tuple[str, ...]:
        """The places that it names, for engines and formats to follow."""
        return ()


class Namespace(Content, frozen=True, kw_only=True, tag=4):
    """A place for tables and further namespaces."""

    content_type = "NAMESPACE"
    noun = "a namespace"

    properties: dict[str, str] = {}

    @property
    def locations(self) -> tuple[str, ...]:
        location = self.properties.get("location")  # engines put tables there
        return (location,) if location else ()


class SqlView(Content, frozen=True, kw_only=True, tag=8):
    """A view of an SQL engine: a query that has a name, without rows and files of its own.

    It has all that its engine needs to read the text later as it did when the view was made. ``dialect``
    names the engine; others cannot be expected to read it.
    """

    content_type = "SQL_VIEW"
    noun = "a view"

    sql_text: str
    """The query."""
    dialect: str = "spark"
    columns: str = ""
    """Its columns with their comments, as the engine writes them: of Spark's views in JSON."""
    query_columns: tuple[str, ...] = ()
    """What the query calls them; empty if the columns of a view follow those of its query."""
    catalog: str = ""
    """The catalog that names without one are looked up in; empty for the lake itself."""
    namespace: tuple[str, ...] = ()
    """The namespace that names without one are looked up in."""
    settings: dict[str, str] = {}
    """Of the session that made the view, as far as the meaning of a text depends on them."""
    schema_mode: str = ""
    """What the engine does when columns below the view have changed, in its own words."""
    comment: str = ""
    properties: dict[str, str] = {}


class ManagedTable(Content, frozen=True, kw_only=True):
    """A table whose changes Penstock itself decides: its format reads and writes ``state``.

    ``held`` are kernel objects that the state refers to, such as bytes not yet published.
    """

    location: str = ""
    state: bytes = b""
    held: tuple[ObjectId, ...] = ()

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        return self.held

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.location,) if self.location else ()


class Unknown(Content, frozen=True, kw_only=True, tag=0):
    """A content of a type that has no number here, kept byte for byte: of a format that is not Penstock's, or
    of a newer version.

    ``type_name`` says what it is, as far as its writer told.
    """

    content_type = "UNKNOWN"

    type_name: str
    payload: bytes = b""
    held: tuple[ObjectId, ...] = ()

    @property
    def type(self) -> str:
        return self.type_name or self.content_type

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        return self.held


AnyContent: TypeAlias = Content
"""A content of any type: one of these here, one that Nessie has too, one of a format's."""

SOURCES: Final = ("penstock.model.nessie", "penstock.formats.registry")
"""Modules that bring further types. They are found by name, as formats are: each imports this module."""


@cache
def load_content_types() -> Mapping[str, type[Content]]:
    """Every type that has a number of its own, by its name. Contents of other types are stored as
    ``Unknown``, with the name of their type."""
    format_types = [kind for source in SOURCES for kind in import_module(source).list_content_types()]
    return {kind.content_type: kind for kind in (Namespace, *format_types, SqlView, Unknown)}


def encode_type(kind: type[Content]) -> bytes:
    """The second byte of stored contents of a type."""
    return msgspec.msgpack.encode(kind.__struct_config__.tag)


@cache
def _make_decoder() -> msgspec.msgpack.Decoder[Any]:
    return make_decoder(Union[tuple(load_content_types().values())])  # noqa: UP007 - known at run time only


_any_decoder = make_decoder(tuple[Any, ...])


def encode_content(content: Content) -> bytes:
    """Canonical bytes; refused if they are too many or not of the declared types."""
    if not isinstance(content, Content):
        raise InvalidContent(f"expected a content, got {type(content).__name__}")
    if isinstance(content, Unknown) and not content.type_name:
        return _check_newer_content(content)
    try:
        data = encode(content)
        _make_decoder().decode(data)
    except (msgspec.ValidationError, TypeError, OverflowError, UnicodeEncodeError) as problem:
        raise InvalidContent(f"{type(content).__name__} cannot be stored: {problem}") from None
    return _check_size(content, data)


def encode_checked_content(content: Content) -> bytes:
    """Canonical bytes of a content that was checked before."""
    return content.payload if isinstance(content, Unknown) and not content.type_name else encode(content)


def decode_content(data: bytes) -> AnyContent:
    """The content behind stored bytes. A type of a newer version comes back as ``Unknown``, untouched."""
    try:
        content: AnyContent = _make_decoder().decode(data)
    except msgspec.ValidationError:
        return _decode_unknown(data)
    return content


def _check_newer_content(content: Unknown) -> bytes:
    """The bytes of a newer version's content, as they came, if they really are such."""
    try:
        same = decode_content(content.payload) == content
    except msgspec.MsgspecError:
        same = False
    if not same:
        raise InvalidContent("an Unknown content needs a type_name")
    return _check_size(content, content.payload)


def _check_size(content: Content, data: bytes) -> bytes:
    if len(data) > CONTENT_MAX_BYTES:
        raise InvalidContent(
            f"a content can have at most {CONTENT_MAX_BYTES} bytes, but this {type(content).__name__} has "
            f"{len(data)}"
        )
    return data


def _decode_unknown(data: bytes) -> Unknown:
    fields = _any_decoder.decode(data)
    identity = (
        fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) and len(fields[1]) == 16 else None
    )
    return Unknown(id=UUID(bytes=identity) if identity else None, type_name="", payload=data)
