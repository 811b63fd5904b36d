"""The features of Delta tables: which of them Penstock reads, which it writes, and why not the others.

A table lists the features that a client must understand, or names a version of the protocol that stands for
some of them. What is not in ``FEATURES`` is refused by its name, never ignored. Some features bind clients
only while the table makes use of them: a table may list ``checkConstraints`` and have none. Such a table is
written, until it has one.

Writing here means to ratify a commit. Where that is allowed although Penstock's own writer does not do all
of it (deletion vectors, files of the change feed), other writers may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from functools import lru_cache
from typing import Final

import msgspec

from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.feature_table import FEATURES, Feature, Support
from penstock.formats.delta.protocol.schema import parse_schema

READER_FEATURES_VERSION: Final = 3
"""The version of the protocol from which a table lists its reader features, and the last one there is."""

WRITER_FEATURES_VERSION: Final = 7
"""The same for writer features."""


class Refusal(msgspec.Struct, frozen=True):
    """A feature that stands in the way, why, and what to do."""

    feature: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"'{self.feature}' {self.why}; {self.advice}"


@lru_cache(maxsize=64)
def supported(protocol: Protocol) -> frozenset[str]:
    """Every feature of a table with this protocol, whether listed or meant by a version."""
    listed = frozenset(protocol.writer_features or ()) | frozenset(protocol.reader_features or ())
    return listed | {one.name for one in FEATURES.values() if _meant(one, protocol)}


def in_use(metadata: Metadata) -> frozenset[str]:
    """The features that a table makes use of by its properties and columns, whether it lists them or not.

    ``MalformedAction`` if the schema cannot be understood.
    """
    return _used_by_columns(metadata.schema_string) | {
        one.name for one in FEATURES.values() if _used_by_properties(one, metadata.configuration)
    }


def unreadable(protocol: Protocol, metadata: Metadata | None = None) -> tuple[Refusal, ...]:
    """What keeps Penstock from reading such a table: nothing, if all of it is understood.

    Without metadata, a feature counts as made use of.
    """
    if protocol.min_reader_version > READER_FEATURES_VERSION:
        return (_newer("reader", protocol.min_reader_version),)
    names = set(protocol.reader_features or ())
    names |= {one.name for one in FEATURES.values() if one.reader and _meant(one, protocol)}
    return tuple(_refusal(name, "read") for name in _unsupported(names, _reading, metadata))


def unwritable(protocol: Protocol, metadata: Metadata) -> tuple[Refusal, ...]:
    """What keeps Penstock from ratifying commits to such a table. What is unreadable is unwritable too."""
    refusals = unreadable(protocol, metadata)
    if protocol.min_writer_version > WRITER_FEATURES_VERSION:
        return (*refusals, _newer("writer", protocol.min_writer_version))
    names = supported(protocol) - {one.feature for one in refusals}
    return (*refusals, *(_refusal(name, "written") for name in _unsupported(names, _writing, metadata)))


def protocol_faults(
    protocol: Protocol, before: Protocol | None = None, droppable: frozenset[str] = frozenset()
) -> Iterator[str]:
    """What is wrong with a protocol in itself, and as the successor of another one.

    A table keeps its features for ever, except for those that may be dropped: versions that need them stay
    in its log.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        yield f"versions of the protocol begin at 1, and these are {reader} and {writer}"
    yield from _list_faults(protocol)
    if reader == READER_FEATURES_VERSION and writer != WRITER_FEATURES_VERSION:
        yield f"reader version {reader} needs writer version {WRITER_FEATURES_VERSION}, and it is {writer}"
    if before is None:
        return
    lost = supported(before) - supported(protocol)
    for name in sorted(lost - droppable):
        yield f"the table would lose the feature '{name}'"
    if not lost and (reader < before.min_reader_version or writer < before.min_writer_version):
        old = f"{before.min_reader_version} and {before.min_writer_version}"
        yield f"the versions of the protocol would fall from {old} to {reader} and {writer}"


def _list_faults(protocol: Protocol) -> Iterator[str]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if (protocol.reader_features is not None) != (reader == READER_FEATURES_VERSION):
        yield f"'readerFeatures' belong to reader version {READER_FEATURES_VERSION} alone, and it is {reader}"
    if (protocol.writer_features is not None) != (writer == WRITER_FEATURES_VERSION):
        yield f"'writerFeatures' belong to writer version {WRITER_FEATURES_VERSION} alone, and it is {writer}"
    read, written = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    for name in sorted(read - written):
        yield f"the reader feature '{name}' is missing from 'writerFeatures'"
    for name in sorted(written - read):
        feature = FEATURES.get(name)
        if feature is not None and feature.reader and not _meant(feature, protocol):
            yield f"the feature '{name}' is for readers too, and is missing from 'readerFeatures'"
    for name in sorted(name for name in read & written if name in FEATURES and not FEATURES[name].reader):
        yield f"the feature '{name}' is for writers alone, and does not belong in 'readerFeatures'"


def binds_writers(name: str) -> bool:
    """Whether a feature, known or not, may ask something of a transaction that began without it."""
    return name not in FEATURES or FEATURES[name].binds_writers


def _meant(feature: Feature, protocol: Protocol) -> bool:
    """Whether a version of the protocol stands for the feature. From the lists on, versions mean nothing."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if feature.reader_version is not None and feature.reader_version <= reader < READER_FEATURES_VERSION:
        return True
    if feature.writer_version is None or feature.reader_version is not None:
        return False
    return feature.writer_version <= writer < WRITER_FEATURES_VERSION


def _reading(name: str) -> Support:
    return FEATURES[name].reading if name in FEATURES else Support.NEVER


def _writing(name: str) -> Support:
    return FEATURES[name].writing if name in FEATURES else Support.NEVER


def _unsupported(names: Set[str], support: Callable[[str], Support], metadata: Metadata | None) -> list[str]:
    never = {name for name in names if support(name) is Support.NEVER}
    unless_used = {name for name in names if support(name) is Support.UNUSED}
    if unless_used and metadata is not None:
        unless_used &= in_use(metadata)
    return sorted(never | unless_used)


def _refusal(name: str, done: str) -> Refusal:
    if name not in FEATURES:
        return Refusal(
            name,
            f"is not known to this Penstock, so the table cannot be {done} by it",
            "use a newer Penstock, or drop the feature with the engine that added it",
        )
    feature = FEATURES[name]
    return Refusal(name, f"cannot be {done}: {feature.why}", feature.advice)


def _newer(side: str, version: int) -> Refusal:
    return Refusal(
        f"{side} version {version}", "is newer than the protocol this Penstock knows", "use a newer Penstock"
    )


def _used_by_properties(feature: Feature, configuration: Mapping[str, str]) -> bool:
    return any(
        (key == name or (name.endswith(".") and key.startswith(name)))
        and (not values or value.lower() in values)
        for name, values in feature.properties.items()
        for key, value in configuration.items()
    )


@lru_cache(maxsize=64)
def _used_by_columns(schema_string: str) -> frozenset[str]:
    """Cached, because a busy table asks for the same schema with every commit."""
    schema = parse_schema(schema_string)
    tests = [(one.name, one.column) for one in FEATURES.values() if one.column is not None]
    return frozenset(name for field in schema.walk() for name, test in tests if test(field))
