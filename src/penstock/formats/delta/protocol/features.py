"""The features of Delta tables: which of them Penstock reads, which it writes, and why not the others.

A table lists the features that a client must understand, or names a version of the protocol that stands for
some of them. What is not in ``FEATURES`` is refused by its name, never ignored. Some features bind clients
only while the table makes use of them: a table may list ``checkConstraints`` and have none. Such a table is
written, until it has one.

Writing here means to ratify a commit. Where that is allowed although Penstock's own writer does not do all
of it (deletion vectors, files of the change feed), other writers may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import lru_cache
from typing import Final

import msgspec

from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.feature_table import BASIC, FEATURES, Feature, FeatureSupport
from penstock.formats.rows.schema import parse_schema

READER_FEATURES_VERSION: Final = 3
"""The version of the protocol from which a table lists its reader features, and the last one there is."""

WRITER_FEATURES_VERSION: Final = 7
"""The same for writer features."""


class FeatureRefusal(msgspec.Struct, frozen=True):
    """A feature that stands in the way, why, and what to do."""

    feature: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"'{self.feature}' {self.why}; {self.advice}"


@lru_cache(maxsize=64)
def supported_features(protocol: Protocol) -> frozenset[str]:
    """Every feature of a table with this protocol, whether listed or implied by a version."""
    listed = frozenset(protocol.writer_features or ()) | frozenset(protocol.reader_features or ())
    return listed | {feature.name for feature in FEATURES.values() if _is_implied(feature, protocol)}


def enabled_features(metadata: Metadata) -> frozenset[str]:
    """The features that a table's properties and columns enable, and that its protocol must therefore have.

    Delta Spark opens no table that lists features and lacks one of these. Of a feature that had a preview
    only the final name is told. ``MalformedAction`` if the schema cannot be understood.
    """
    return add_required_features(_features_in_use(metadata, binding=False))


def add_required_features(names: Set[str]) -> frozenset[str]:
    """Features with those that they require."""
    features = (FEATURES[name] for name in names if name in FEATURES)
    return frozenset(names).union(*(feature.requires for feature in features))


def select_features_in_use(metadata: Metadata) -> frozenset[str]:
    """Those of the features that a table makes use of, as ``FeatureSupport.UNUSED`` means it, whether it
    lists them or not. Raises as ``enabled_features``."""
    return _features_in_use(metadata, binding=True)


def find_unlisted_features(protocol: Protocol, metadata: Metadata) -> frozenset[str]:
    """The features that a table's metadata enables and its protocol lacks. Raises as ``enabled_features``."""
    has = supported_features(protocol)
    return frozenset(name for name in enabled_features(metadata) - has if f"{name}{_PREVIEW}" not in has)


def complete_protocol(protocol: Protocol, metadata: Metadata) -> Protocol:
    """A protocol with the features that the metadata enables; the same if it has them all."""
    return with_features(protocol, find_unlisted_features(protocol, metadata))


def with_features(protocol: Protocol, names: Set[str]) -> Protocol:
    """A protocol with some more features, all of them listed; the same if it has them already."""
    features = supported_features(protocol) | names
    if features == supported_features(protocol):
        return protocol
    listed = frozenset(protocol.reader_features or ())
    new = {name for name in names if name in FEATURES and FEATURES[name].reader}
    lists_readers = bool(new) or protocol.min_reader_version == READER_FEATURES_VERSION
    read = listed | {name for name in features if name in FEATURES and FEATURES[name].reader}
    return msgspec.structs.replace(
        protocol,
        min_reader_version=READER_FEATURES_VERSION if lists_readers else protocol.min_reader_version,
        min_writer_version=WRITER_FEATURES_VERSION,
        reader_features=tuple(sorted(read)) if lists_readers else protocol.reader_features,
        writer_features=tuple(sorted(features)),
    )


def oldest_protocol(protocol: Protocol) -> Protocol:
    """The versions that stand for the features of a protocol, if there are such, as engines need them that
    know no lists; else the protocol itself."""
    features = supported_features(protocol)
    for versions in _VERSIONS:
        if supported_features(versions) == features:
            return versions
    return _VERSION_2 if features <= BASIC else protocol


def find_unreadable_features(
    protocol: Protocol, metadata: Metadata | None = None
) -> tuple[FeatureRefusal, ...]:
    """What keeps Penstock from reading such a table: nothing, if all of it is understood.

    Without metadata, a feature counts as made use of.
    """
    if protocol.min_reader_version > READER_FEATURES_VERSION:
        return (_newer_version_refusal("reader", protocol.min_reader_version),)
    names = set(protocol.reader_features or ())
    names |= {
        feature.name for feature in FEATURES.values() if feature.reader and _is_implied(feature, protocol)
    }
    return tuple(
        _make_refusal(name, "read")
        for name in _list_unsupported_features(names, _get_reading_support, metadata)
    )


def find_unwritable_features(protocol: Protocol, metadata: Metadata) -> tuple[FeatureRefusal, ...]:
    """What keeps Penstock from ratifying commits to such a table. What is unreadable is unwritable too."""
    refusals = find_unreadable_features(protocol, metadata)
    if protocol.min_writer_version > WRITER_FEATURES_VERSION:
        return (*refusals, _newer_version_refusal("writer", protocol.min_writer_version))
    names = supported_features(protocol) - {refusal.feature for refusal in refusals}
    return (
        *refusals,
        *(
            _make_refusal(name, "written")
            for name in _list_unsupported_features(names, _get_writing_support, metadata)
        ),
    )


def protocol_faults(
    protocol: Protocol, before: Protocol | None = None, droppable: frozenset[str] = frozenset()
) -> Iterator[str]:
    """What is wrong with a protocol in itself, and as the successor of another one.

    A table keeps its features for ever, except for those that may be dropped: versions that need them stay
    in its log.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        yield f"protocol versions must be at least 1, got {reader} and {writer}"
    yield from _list_faults(protocol)
    if reader == READER_FEATURES_VERSION and writer != WRITER_FEATURES_VERSION:
        yield (
            f"reader version {reader} needs writer version {WRITER_FEATURES_VERSION}, but the writer "
            f"version is {writer}"
        )
    if before is None:
        return
    lost = supported_features(before) - supported_features(protocol)
    for name in sorted(lost - droppable):
        yield f"the table would lose the feature '{name}'"
    if not lost and (reader < before.min_reader_version or writer < before.min_writer_version):
        old = f"{before.min_reader_version} and {before.min_writer_version}"
        yield f"the protocol versions would decrease from {old} to {reader} and {writer}"


def _list_faults(protocol: Protocol) -> Iterator[str]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if (protocol.reader_features is not None) != (reader == READER_FEATURES_VERSION):
        yield (
            f"'readerFeatures' can only be used with reader version {READER_FEATURES_VERSION}, but it is "
            f"{reader}"
        )
    if (protocol.writer_features is not None) != (writer == WRITER_FEATURES_VERSION):
        yield (
            f"'writerFeatures' can only be used with writer version {WRITER_FEATURES_VERSION}, but it is "
            f"{writer}"
        )
    read, written = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    for name in sorted(read - written):
        yield f"the reader feature '{name}' is missing from 'writerFeatures'"
    for name in sorted(written - read):
        feature = FEATURES.get(name)
        if feature is not None and feature.reader and not _is_implied(feature, protocol):
            yield f"the feature '{name}' is a reader feature, but is missing from 'readerFeatures'"
    for name in sorted(name for name in read & written if name in FEATURES and not FEATURES[name].reader):
        yield f"the feature '{name}' is a writer feature only, and must not be in 'readerFeatures'"


def binds_writers(name: str) -> bool:
    """Whether a feature, known or not, may ask something of a transaction that began without it."""
    return name not in FEATURES or FEATURES[name].binds_writers


def _is_implied(feature: Feature, protocol: Protocol) -> bool:
    """Whether a protocol version implies the feature. Versions with feature lists imply none."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if feature.reader_version is not None and feature.reader_version <= reader < READER_FEATURES_VERSION:
        return True
    if feature.writer_version is None or feature.reader_version is not None:
        return False
    return feature.writer_version <= writer < WRITER_FEATURES_VERSION


def _get_reading_support(name: str) -> FeatureSupport:
    return FEATURES[name].reading if name in FEATURES else FeatureSupport.NEVER


def _get_writing_support(name: str) -> FeatureSupport:
    return FEATURES[name].writing if name in FEATURES else FeatureSupport.NEVER


def _list_unsupported_features(
    names: Set[str], support: Callable[[str], FeatureSupport], metadata: Metadata | None
) -> list[str]:
    never = {name for name in names if support(name) is FeatureSupport.NEVER}
    unless_used = {name for name in names if support(name) is FeatureSupport.UNUSED}
    if unless_used and metadata is not None:
        unless_used &= select_features_in_use(metadata)
    return sorted(never | unless_used)


def _make_refusal(name: str, operation: str) -> FeatureRefusal:
    if name not in FEATURES:
        return FeatureRefusal(
            name,
            f"is not known to this Penstock, so the table cannot be {operation} by it",
            "use a newer Penstock, or the engine that made it",
        )
    feature = FEATURES[name]
    return FeatureRefusal(name, f"cannot be {operation}: {feature.why}", feature.advice)


def _newer_version_refusal(side: str, version: int) -> FeatureRefusal:
    return FeatureRefusal(
        f"{side} version {version}", "is newer than the protocol this Penstock knows", "use a newer Penstock"
    )


def _features_in_use(metadata: Metadata, *, binding: bool) -> frozenset[str]:
    by_properties = (
        feature.name
        for key, value in metadata.configuration.items()
        for feature, values in _find_features_of_property(key)
        if not (binding and feature.marks_alone_bind) and (not values or value.lower() in values)
    )
    names = _find_features_in_columns(metadata.schema_string, binding).union(by_properties)
    return names if binding else frozenset(name for name in names if not _has_final_name(name))


@lru_cache(maxsize=1024)
def _find_features_of_property(key: str) -> tuple[tuple[Feature, tuple[str, ...]], ...]:
    """The features that a property may enable, each with the values that do; without any, all do."""
    return tuple(
        (feature, values)
        for feature in FEATURES.values()
        for name, values in feature.properties.items()
        if key == name or (name.endswith(".") and key.startswith(name))
    )


@lru_cache(maxsize=128)
def _find_features_in_columns(schema_string: str, binding: bool) -> frozenset[str]:
    """Cached, because a busy table asks for the same schema with every commit."""
    schema = parse_schema(schema_string)
    return frozenset(
        feature.name
        for field in schema.walk()
        for feature in FEATURES.values()
        if not field.metadata.keys().isdisjoint(feature.marks)
        or (
            feature.column is not None
            and not (binding and feature.marks_alone_bind)
            and feature.column(field)
        )
    )


def _has_final_name(name: str) -> bool:
    return name.endswith(_PREVIEW) and name.removesuffix(_PREVIEW) in FEATURES


_PREVIEW: Final = "-preview"
_VERSIONS: Final = tuple(
    Protocol(min_reader_version=reader, min_writer_version=writer)
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6))
)
_VERSION_2: Final = _VERSIONS[1]
