"""The difference between two versions of a table, as the change that makes the one of the other.

It serves where no commits tell how the one came of the other: to bring a table back into a state that it had,
and to merge what has no common line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from penstock.formats.delta.branch_log.line import Terms
from penstock.formats.delta.branch_log.net import FileActionT, Net
from penstock.formats.delta.branch_log.replacing import removal
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from penstock.formats.delta.protocol.feature_table import FEATURES
from penstock.formats.delta.protocol.features import (
    READER_FEATURES_VERSION,
    WRITER_FEATURES_VERSION,
    supported,
)
from penstock.formats.delta.protocol.transaction import DeltaReads

ROW_ID_DOMAIN: Final = "delta.rowTracking"
"""Says which ids of rows were given. They are never given again, whatever state a table goes back to."""


class LineDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to a table for it to become another version."""

    protocol: Protocol
    """Of the version wanted; so is the metadata."""
    metadata: Metadata
    wanted_domains: Mapping[str, DomainMetadata]
    domains: frozenset[str]
    """Those that differ."""
    batches: tuple[Txn, ...]
    removes: dict[FileKey, Remove]
    adds: dict[FileKey, Add]

    @classmethod
    def between(cls, before: LogSnapshot, after: LogSnapshot, now_ms: int) -> LineDifference:
        """What leads from one version to another, which may be an older one.

        The files of both are gone through; in memory are those that differ, and short hashes of the others.
        """
        return cls(
            protocol=after.protocol,
            metadata=after.metadata,
            wanted_domains=after.domains,
            domains=_differing(before.domains, after.domains),
            batches=tuple(
                one for name, one in after.transactions.items() if before.transactions.get(name) != one
            ),
            adds={one.key: one for one in _only_in(after, before)},
            removes={one.key: removal(one, now_ms) for one in _only_in(before, after)},
        )

    @property
    def files_before(self) -> dict[str, tuple[str | None] | None]:
        """What the files that come or go are in the table that it starts from, by decoded paths: the id of
        the deletion vector of each, or ``None`` for one that is not there."""
        come = dict.fromkeys(key.path for key in self.adds)
        return {**come, **{key.path: (key.vector,) for key in self.removes}}

    def unknown(self, actions: Iterable[Action]) -> set[FileKey]:
        """The files of a further commit of which only the version wanted tells whether it has them."""
        files = [one for one in actions if isinstance(one, Add | Remove)]
        gone = {one.key for one in files if isinstance(one, Remove) and one.key not in self.removes}
        again = {one.key for one in files if isinstance(one, Add) and not one.data_change}
        return gone | (again - self.adds.keys())

    def after(self, actions: Sequence[Action], wanted: Mapping[FileKey, Add], now_ms: int) -> LineDifference:
        """What is left to do once the table has had a further commit; ``wanted`` are the unknown files of it
        that are part of the version wanted. Batches are not moved on."""
        removes, adds, domains = dict(self.removes), dict(self.adds), set(self.domains)
        for action in actions:
            if isinstance(action, Remove) and removes.pop(action.key, None) is None and action.key in wanted:
                adds[action.key] = changing_rows(wanted[action.key])
            elif isinstance(action, DomainMetadata):
                domains |= {action.domain} - {ROW_ID_DOMAIN}
        for action in actions:
            if isinstance(action, Add) and adds.pop(action.key, None) is None and action.key not in wanted:
                removes[action.key] = removal(action, now_ms)
        return msgspec.structs.replace(self, removes=removes, adds=adds, domains=frozenset(domains))

    def net(self, protocol: Protocol, metadata: Metadata, *, with_batches: bool) -> Net:
        """The change of a table that has this protocol and metadata now.

        It counts as having read the whole table. Features stay, also where the version wanted had none of
        them: other versions need them.
        """
        wanted = union(protocol, self.protocol)
        return Net(
            state=(
                *([wanted] if wanted != protocol else []),
                *([self.metadata] if self.metadata != metadata else []),
                *map(self._domain, sorted(self.domains)),
                *(self.batches if with_batches else ()),
            ),
            removes=tuple(self.removes.values()),
            adds=tuple(self.adds.values()),
            terms=Terms(DeltaReads(whole_table=True)),
        )

    def _domain(self, name: str) -> DomainMetadata:
        gone = DomainMetadata(domain=name, configuration="", removed=True)
        return self.wanted_domains.get(name, gone)


def changing_rows(action: FileActionT, is_so: bool = True) -> FileActionT:
    """An action that says that rows come or go with its file, or that none do."""
    return msgspec.structs.replace(action, data_change=is_so)


def union(one: Protocol, other: Protocol) -> Protocol:
    """The protocol of a table that has the features of both; the first one itself if it has them all."""
    reader = max(one.min_reader_version, other.min_reader_version)
    writer = max(one.min_writer_version, other.min_writer_version)
    is_enough = (reader, writer) == (one.min_reader_version, one.min_writer_version)
    if is_enough and supported(other) <= supported(one):
        return one
    features = supported(one) | supported(other)
    listed = {*(one.reader_features or ()), *(other.reader_features or ())}
    for_readers = {
        name for name in features if name in listed or (name in FEATURES and FEATURES[name].reader)
    }
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=tuple(sorted(for_readers)) if reader == READER_FEATURES_VERSION else None,
        writer_features=tuple(sorted(features)) if writer == WRITER_FEATURES_VERSION else None,
    )


def _only_in(one: LogSnapshot, other: LogSnapshot) -> Iterator[Add]:
    there = {key.digest for key in other.file_keys()}
    return (add for add in one.files() if add.key.digest not in there)


def _differing(one: Mapping[str, DomainMetadata], other: Mapping[str, DomainMetadata]) -> frozenset[str]:
    names = (one.keys() | other.keys()) - {ROW_ID_DOMAIN}
    return frozenset(name for name in names if one.get(name) != other.get(name))
