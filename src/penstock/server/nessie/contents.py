"""Contents: Nessie's types and Penstock's, one as the other.

Tables that Penstock manages (Lance, files), views of Spark's, and contents of types that it does not know,
look like a Delta table to Nessie's clients: all of them read that type, and no engine takes such a table for
one that it could read. Where a Delta table has its checkpoint, they have the name of their format. Clients
may rename and delete them, and put them back as they are, but not change them. A text that is empty counts as
absent, as Nessie's own clients take it.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import InvalidContent, InvalidRequest
from penstock.model.content import AnyContent, ManagedTable, Namespace, SqlView, Unknown
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.server.nessie import json_types
from penstock.server.nessie.keys import quote_key

_TYPES: Final[dict[type[AnyContent], str]] = {
    Namespace: "NAMESPACE",
    IcebergTable: "ICEBERG_TABLE",
    IcebergView: "ICEBERG_VIEW",
    Udf: "UDF",
}


def get_type_name(content: AnyContent) -> str:
    """Nessie's name for a content's type."""
    return _TYPES.get(type(content), "DELTA_LAKE_TABLE")


def get_sent_type_name(content: json_types.AnyContent) -> str:
    """Nessie's name for the type of a content that a client sent."""
    tag = content.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def make_nessie_content(key: Key, content: AnyContent) -> json_types.AnyContent:
    """A content as Nessie's clients see it."""
    identity = str(content.id) if content.id is not None else None
    if isinstance(content, IcebergTable):
        return json_types.NessieIcebergTable(
            id=identity,
            metadata_location=content.metadata_location,
            snapshot_id=content.snapshot_id,
            schema_id=content.schema_id,
            spec_id=content.spec_id,
            sort_order_id=content.sort_order_id,
        )
    if isinstance(content, Namespace):
        properties = content.properties or UNSET
        return json_types.NessieNamespace(id=identity, elements=tuple(key), properties=properties)
    if isinstance(content, IcebergView):
        return json_types.NessieIcebergView(
            id=identity,
            metadata_location=content.metadata_location,
            version_id=content.version_id,
            schema_id=content.schema_id,
            sql_text=content.sql_text or UNSET,
            dialect=content.dialect or UNSET,
        )
    if isinstance(content, Udf):
        return json_types.NessieUdf(
            id=identity,
            metadata_location=content.metadata_location or UNSET,
            version_id=content.version_id or UNSET,
            signature_id=content.signature_id or UNSET,
            sql_text=content.sql_text or UNSET,
            dialect=content.dialect or UNSET,
        )
    return _make_nessie_table(identity, content)


def parse_nessie_content(
    key: Key, content: json_types.AnyContent, stored: AnyContent | None = None
) -> AnyContent:
    """The content that a client means by what it sent.

    ``stored`` is what the key holds, or what the same request takes from another key: what the client cannot
    see of it stays as it is. ``InvalidContent`` if it would change a table that only Penstock can change.
    """
    if stored is not None and _is_same(make_nessie_content(key, stored), content):
        return stored
    made = _make_new_content(content)
    if isinstance(made, DeltaTable) and isinstance(stored, DeltaTable):
        return msgspec.structs.replace(
            stored,
            metadata_location_history=made.metadata_location_history,
            checkpoint_location_history=made.checkpoint_location_history,
            last_checkpoint=made.last_checkpoint,
        )
    if isinstance(made, DeltaTable) and isinstance(stored, ManagedTable | SqlView | Unknown):
        raise InvalidContent(
            f"'{quote_key(key)}' is of type {stored.type}, which cannot be changed through Nessie's API; "
            "it can be renamed or deleted there",
            key=str(key),
        )
    return made


def parse_identity(content: json_types.AnyContent) -> UUID | None:
    """The id that a client sent with a content."""
    if content.id is None:
        return None
    try:
        return UUID(content.id)
    except ValueError:
        raise InvalidRequest(f"Invalid UUID string: {content.id}") from None


def _make_nessie_table(identity: str | None, content: AnyContent) -> json_types.DeltaLakeTable:
    if not isinstance(content, DeltaTable):
        location = getattr(content, "location", "")
        return json_types.DeltaLakeTable(
            id=identity,
            metadata_location_history=(location,) if location else (),
            last_checkpoint=content.type.removesuffix("_TABLE").lower(),
        )
    return json_types.DeltaLakeTable(
        id=identity,
        metadata_location_history=content.metadata_location_history,
        checkpoint_location_history=content.checkpoint_location_history,
        last_checkpoint=content.last_checkpoint or None,
    )


def _is_same(first: json_types.AnyContent, other: json_types.AnyContent) -> bool:
    """Whether two contents say the same, however they write what is absent."""
    return (
        type(first) is type(other)
        and first.id == other.id
        and _make_new_content(first) == _make_new_content(other)
    )


def _make_new_content(content: json_types.AnyContent) -> AnyContent:
    identity = parse_identity(content)
    if isinstance(content, json_types.NessieIcebergTable):
        return IcebergTable(
            id=identity,
            metadata_location=content.metadata_location,
            snapshot_id=content.snapshot_id,
            schema_id=content.schema_id,
            spec_id=content.spec_id,
            sort_order_id=content.sort_order_id,
        )
    if isinstance(content, json_types.NessieNamespace):
        return Namespace(id=identity, properties=content.properties or {})
    if isinstance(content, json_types.NessieIcebergView):
        return IcebergView(
            id=identity,
            metadata_location=content.metadata_location,
            version_id=content.version_id,
            schema_id=content.schema_id,
            sql_text=_text_or_empty(content.sql_text),
            dialect=_text_or_empty(content.dialect),
        )
    if isinstance(content, json_types.NessieUdf):
        return Udf(
            id=identity,
            metadata_location=_text_or_empty(content.metadata_location),
            version_id=_text_or_empty(content.version_id),
            signature_id=_text_or_empty(content.signature_id),
            sql_text=_text_or_empty(content.sql_text),
            dialect=_text_or_empty(content.dialect),
        )
    return DeltaTable(
        id=identity,
        metadata_location_history=content.metadata_location_history,
        checkpoint_location_history=content.checkpoint_location_history,
        last_checkpoint=content.last_checkpoint or "",
    )


def _text_or_empty(text: str | UnsetType | None) -> str:
    return text if isinstance(text, str) else ""
