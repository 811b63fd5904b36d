"""Contents: what a key holds.

A content says where a table is and in which state. Penstock does not look into it; its format does. The
``id`` stays the same when a table is renamed and changes when it is dropped and created anew.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import InvalidContent
from penstock.model.encoding import ObjectId, decoder, encode

CONTENT_MAX_BYTES: Final = 16 * 1024 * 1024


class Content(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What all contents share. ``id`` is given by Penstock when a content is first stored."""

    id: UUID | None = None

    @property
    def type(self) -> str:
        """The type's name, as people and other catalogues write it."""
        return TYPE_NAMES[type(self)]

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """Kernel objects that this content needs; they live as long as it does."""
        return ()


class Namespace(Content, frozen=True, kw_only=True, tag=4):
    """A place for tables and further namespaces."""

    properties: dict[str, str] = {}


class IcebergTable(Content, frozen=True, kw_only=True, tag=1):
    """An Iceberg table: the pointer to its metadata, and the ids that are current."""

    metadata_location: str
    snapshot_id: int = -1
    schema_id: int = 0
    spec_id: int = 0
    sort_order_id: int = 0


class IcebergView(Content, frozen=True, kw_only=True, tag=3):
    """An Iceberg view."""

    metadata_location: str
    version_id: int = 1
    schema_id: int = 0
    sql_text: str = ""
    dialect: str = ""


class Udf(Content, frozen=True, kw_only=True, tag=5):
    """A user-defined function."""

    metadata_location: str = ""
    version_id: str = ""
    signature_id: str = ""
    sql_text: str = ""
    dialect: str = ""


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


class DeltaTable(ManagedTable, frozen=True, kw_only=True, tag=2):
    """A Delta table. The three histories are what Nessie's clients keep for one that they manage."""

    metadata_location_history: tuple[str, ...] = ()
    checkpoint_location_history: tuple[str, ...] = ()
    last_checkpoint: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether the lake decides its commits. If not, it only points at the table."""
        return self.state != b""


class LanceTable(ManagedTable, frozen=True, kw_only=True, tag=6):
    """A Lance table."""


class FilesTable(ManagedTable, frozen=True, kw_only=True, tag=7):
    """A tree of immutable files in any format."""


class Unknown(Content, frozen=True, kw_only=True, tag=0):
    """A content of a type that this version does not know, kept byte for byte.

    ``type_name`` says what it is, as far as its writer told.
    """

    type_name: str
    payload: bytes = b""
    held: tuple[ObjectId, ...] = ()

    @property
    def type(self) -> str:
        return self.type_name or "UNKNOWN"

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        return self.held


AnyContent: TypeAlias = (
    Namespace | IcebergTable | IcebergView | Udf | DeltaTable | LanceTable | FilesTable | Unknown
)

TYPE_NAMES: Final[dict[type[Content], str]] = {
    Namespace: "NAMESPACE",
    IcebergTable: "ICEBERG_TABLE",
    IcebergView: "ICEBERG_VIEW",
    Udf: "UDF",
    DeltaTable: "DELTA_LAKE_TABLE",
    LanceTable: "LANCE_TABLE",
    FilesTable: "FILES_TABLE",
    Unknown: "UNKNOWN",
}

_decoder = decoder(AnyContent)
_any_decoder = decoder(tuple[Any, ...])


def encode_content(content: Content) -> bytes:
    """Canonical bytes; refused if they are too many or not of the declared types."""
    if not isinstance(content, Content):
        raise InvalidContent(f"a content is expected, not {type(content).__name__}")
    if isinstance(content, Unknown) and not content.type_name:
        return _checked_foreign(content)
    try:
        data = encode(content)
        _decoder.decode(data)
    except (msgspec.ValidationError, TypeError, OverflowError, UnicodeEncodeError) as problem:
        raise InvalidContent(f"{type(content).__name__} cannot be stored: {problem}") from None
    return _limited(content, data)


def content_bytes(content: Content) -> bytes:
    """Canonical bytes of a content that was checked before."""
    return content.payload if isinstance(content, Unknown) and not content.type_name else encode(content)


def decode_content(data: bytes) -> AnyContent:
    """The content behind stored bytes. A type of a newer version comes back as ``Unknown``, untouched."""
    try:
        content: AnyContent = _decoder.decode(data)
    except msgspec.ValidationError:
        return _foreign(data)
    return content


def _checked_foreign(content: Unknown) -> bytes:
    """The bytes of a newer version's content, as they came, if they really are such."""
    try:
        same = decode_content(content.payload) == content
    except msgspec.MsgspecError:
        same = False
    if not same:
        raise InvalidContent("an Unknown content needs a type_name")
    return _limited(content, content.payload)


def _limited(content: Content, data: bytes) -> bytes:
    if len(data) > CONTENT_MAX_BYTES:
        raise InvalidContent(
            f"a content has at most {CONTENT_MAX_BYTES} bytes, this {type(content).__name__} has {len(data)}"
        )
    return data


def _foreign(data: bytes) -> Unknown:
    fields = _any_decoder.decode(data)
    identity = (
        fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) and len(fields[1]) == 16 else None
    )
    return Unknown(id=UUID(bytes=identity) if identity else None, type_name="", payload=data)
