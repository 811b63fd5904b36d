"""The difference between two versions of a table, as the change that makes the one of the other.

It serves where no commits tell how the one came of the other: to bring a table back into a state that it had,
and to merge what has no common line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.net_change import FileActionT, NetChange
from penstock.formats.delta.branch_log.replacements import make_remove
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
    supported_features,
)
from penstock.formats.delta.protocol.row_ids import DOMAIN as ROW_IDS
from penstock.formats.delta.protocol.transaction import DeltaReads


class StateDifference(msgspec.Struct, frozen=True, kw_only=True):
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
    def compare_snapshots(cls, before: LogSnapshot, after: LogSnapshot, now_ms: int) -> StateDifference:
        """What leads from one version to another, which may be an older one.

        The files of both are gone through; in memory are those that differ, and short hashes of the others.
        """
        return cls(
            protocol=after.protocol,
            metadata=after.metadata,
            wanted_domains=after.domains,
            domains=_find_differing_domains(before.domains, after.domains),
            batches=tuple(
                txn for name, txn in after.transactions.items() if before.transactions.get(name) != txn
            ),
            adds={add.key: add for add in _list_files_only_in(after, before)},
            removes={add.key: make_remove(add, now_ms) for add in _list_files_only_in(before, after)},
        )

    @property
    def files_before(self) -> dict[str, tuple[str | None] | None]:
        """What the files that come or go are in the table that it starts from, by decoded paths: the id of
        the deletion vector of each, or ``None`` for one that is not there."""
        come = dict.fromkeys(key.path for key in self.adds)
        return {**come, **{key.path: (key.vector,) for key in self.removes}}

    def find_unknown_files(self, actions: Iterable[Action]) -> set[FileKey]:
        """The files of a further commit of which only the version wanted tells whether it has them."""
        files = [action for action in actions if isinstance(action, Add | Remove)]
        gone = {file.key for file in files if isinstance(file, Remove) and file.key not in self.removes}
        again = {file.key for file in files if isinstance(file, Add) and not file.data_change}
        return gone | (again - self.adds.keys())

    def apply_commit(
        self, actions: Sequence[Action], wanted_adds: Mapping[FileKey, Add], now_ms: int
    ) -> StateDifference:
        """What is left to do once the table has had a further commit. ``wanted_adds`` are its unknown files
        that are part of the version wanted. Batches are not moved on."""
        removes, adds, domains = dict(self.removes), dict(self.adds), set(self.domains)
        for action in actions:
            if (
                isinstance(action, Remove)
                and removes.pop(action.key, None) is None
                and action.key in wanted_adds
            ):
                adds[action.key] = set_data_change(wanted_adds[action.key])
            elif isinstance(action, DomainMetadata):
                domains |= {action.domain} - {ROW_IDS}
        for action in actions:
            if (
                isinstance(action, Add)
                and adds.pop(action.key, None) is None
                and action.key not in wanted_adds
            ):
                removes[action.key] = make_remove(action, now_ms)
        return msgspec.structs.replace(self, removes=removes, adds=adds, domains=frozenset(domains))

    def make_net_change(self, protocol: Protocol, metadata: Metadata, *, with_batches: bool) -> NetChange:
        """The change of a table that has this protocol and metadata now.

        It counts as having read the whole table. Features stay, also where the version wanted had none of
        them: other versions need them.
        """
        wanted_protocol = unite_protocols(protocol, self.protocol)
        return NetChange(
            state=(
                *([wanted_protocol] if wanted_protocol != protocol else []),
                *([self.metadata] if self.metadata != metadata else []),
                *map(self._find_domain, sorted(self.domains)),
                *(self.batches if with_batches else ()),
            ),
            removes=tuple(self.removes.values()),
            adds=tuple(self.adds.values()),
            terms=CommitTerms(DeltaReads(whole_table=True)),
        )

    def _find_domain(self, name: str) -> DomainMetadata:
        gone = DomainMetadata(domain=name, configuration="", removed=True)
        return self.wanted_domains.get(name, gone)


def set_data_change(action: FileActionT, is_so: bool = True) -> FileActionT:
    """An action that says that rows come or go with its file, or that none do."""
    return msgspec.structs.replace(action, data_change=is_so)


def unite_protocols(protocol: Protocol, other: Protocol) -> Protocol:
    """The protocol of a table that has the features of both; the first one itself if it has them all."""
    reader = max(protocol.min_reader_version, other.min_reader_version)
    writer = max(protocol.min_writer_version, other.min_writer_version)
    is_enough = (reader, writer) == (protocol.min_reader_version, protocol.min_writer_version)
    if is_enough and supported_features(other) <= supported_features(protocol):
        return protocol
    features = supported_features(protocol) | supported_features(other)
    listed = {*(protocol.reader_features or ()), *(other.reader_features or ())}
    for_readers = {
        name for name in features if name in listed or (name in FEATURES and FEATURES[name].reader)
    }
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=tuple(sorted(for_readers)) if reader == READER_FEATURES_VERSION else None,
        writer_features=tuple(sorted(features)) if writer == WRITER_FEATURES_VERSION else None,
    )


def _list_files_only_in(snapshot: LogSnapshot, other: LogSnapshot) -> Iterator[Add]:
    digests = {key.digest for key in other.file_keys()}
    return (add for add in snapshot.read_files() if add.key.digest not in digests)


def _find_differing_domains(
    one: Mapping[str, DomainMetadata], other: Mapping[str, DomainMetadata]
) -> frozenset[str]:
    # Ids of rows are never given again, whatever state a table goes back to.
    names = (one.keys() | other.keys()) - {ROW_IDS}
    return frozenset(name for name in names if one.get(name) != other.get(name))
