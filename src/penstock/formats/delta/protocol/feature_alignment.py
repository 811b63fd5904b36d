"""Protocol and metadata of a table that lists its features, brought into agreement.

As long as a table names versions of the protocol, its metadata may hold words of features that it does not
have: they are not in force. Delta Spark opens no table that *lists* features and whose metadata enables one
that is not among them. So where a table comes to list its features, or has listed too few, what it enables is
listed, if Penstock writes such tables; and the marks of columns that would put something in force which was
not, and which Penstock does not do, are removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import msgspec

from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.feature_table import FEATURES, FeatureSupport
from penstock.formats.delta.protocol.features import (
    FeatureRefusal,
    find_unlisted_features,
    select_features_in_use,
    supported_features,
    with_features,
)
from penstock.formats.delta.protocol.properties import MATERIALIZE_PARTITIONS, MATERIALIZED_PARTITIONS


def align_protocol_and_metadata(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
    """A protocol that has what the metadata enables, and the metadata without marks that are not in force.

    ``find_disagreements`` are left: nothing is listed that Penstock would then not write.
    """
    metadata = _drop_marks(
        metadata, find_unlisted_features(protocol, metadata) & _find_unwritten_features(metadata)
    )
    if MATERIALIZE_PARTITIONS in supported_features(protocol):
        properties = {**metadata.configuration, MATERIALIZED_PARTITIONS: "true"}
        metadata = msgspec.structs.replace(metadata, configuration=properties)
    return with_features(
        protocol, find_unlisted_features(protocol, metadata) - _find_unwritten_features(metadata)
    ), metadata


def find_disagreements(protocol: Protocol, metadata: Metadata) -> Iterator[FeatureRefusal]:
    """Features that properties enable, that the protocol lacks, and with which Penstock writes no table."""
    _, metadata = align_protocol_and_metadata(protocol, metadata)
    for name in sorted(find_unlisted_features(protocol, metadata) & _find_unwritten_features(metadata)):
        names = ", ".join(f"'{key}'" for key in _properties_of_feature(name, metadata))
        way = f"unset {names} (ALTER TABLE … UNSET TBLPROPERTIES), or copy its rows into a table of the lake"
        yield FeatureRefusal(
            name,
            f"is enabled by {names or 'its columns'}, but is missing from the table's protocol",
            way if names else FEATURES[name].advice,
        )


def _find_unwritten_features(metadata: Metadata) -> frozenset[str]:
    """The features that a table makes use of and does not get: Penstock would not write it with them, or its
    rows may not satisfy them."""
    used = (FEATURES[name] for name in select_features_in_use(metadata))
    never = {feature.name for feature in FEATURES.values() if feature.writing is FeatureSupport.NEVER}
    return frozenset(
        never
        | {feature.name for feature in used if feature.writing is FeatureSupport.UNUSED or feature.binds_rows}
    )


def _properties_of_feature(name: str, metadata: Metadata) -> list[str]:
    feature_properties = FEATURES[name].properties
    return sorted(
        key
        for key in metadata.configuration
        if key in feature_properties
        or any(prefix.endswith(".") and key.startswith(prefix) for prefix in feature_properties)
    )


def _drop_marks(metadata: Metadata, names: Set[str]) -> Metadata:
    """Metadata without the marks of some features; the same if there are none."""
    marks = frozenset(mark for name in names for mark in FEATURES[name].marks)
    if not marks:
        return metadata
    schema = msgspec.json.decode(metadata.schema_string)
    _remove_marks(schema, marks)
    return msgspec.structs.replace(metadata, schema_string=msgspec.json.encode(schema).decode())


def _remove_marks(kind: Any, marks: Set[str]) -> None:
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            for mark in marks & field.get("metadata", {}).keys():
                del field["metadata"][mark]
            _remove_marks(field["type"], marks)
        for name in ("elementType", "keyType", "valueType"):
            _remove_marks(kind.get(name), marks)
