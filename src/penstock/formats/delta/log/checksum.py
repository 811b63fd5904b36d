"""Checksums in a log: the totals of the table at a version, and the hash that tells whether a hint is whole.

A ``<version>.crc`` says what replaying the log must come to. It is written once, never over another: where
the two differ, the older one is the witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import md5
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import DomainMetadata, Metadata, Protocol, Txn
from penstock.formats.delta.protocol.names import ChecksumName
from penstock.storage.places import Place


class Checksum(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The totals of a version."""

    table_size_bytes: int
    num_files: int
    num_metadata: int
    num_protocol: int
    metadata: Metadata
    protocol: Protocol
    in_commit_timestamp_opt: int | None = None
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None


class FileTotals(msgspec.Struct):
    """Files as they are counted, one after the other."""

    files: int = 0
    size_bytes: int = 0

    def add_file(self, size: int) -> None:
        self.files += 1
        self.size_bytes += size


def count_files(snapshot: LogSnapshot) -> FileTotals:
    """One pass over all files of a version."""
    totals = FileTotals()
    for file in snapshot.read_files():
        totals.add_file(file.size)
    return totals


def sum_up(snapshot: LogSnapshot, totals: FileTotals) -> Checksum:
    """What the checksum of a version says, given the totals of its files."""
    return Checksum(
        table_size_bytes=totals.size_bytes,
        num_files=totals.files,
        num_metadata=1,
        num_protocol=1,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        in_commit_timestamp_opt=snapshot.in_commit_timestamp if snapshot.has_in_commit_timestamps else None,
        set_transactions=tuple(txn for _, txn in sorted(snapshot.transactions.items())),
        domain_metadata=tuple(domain_metadata for _, domain_metadata in sorted(snapshot.domains.items())),
    )


def write_checksum(place: Place, snapshot: LogSnapshot, totals: FileTotals | None = None) -> bool:
    """Write the checksum of a version, unless there is one; say whether this call did."""
    checksum = sum_up(snapshot, count_files(snapshot) if totals is None else totals)
    return place.create(str(ChecksumName(snapshot.version)), msgspec.json.encode(checksum))


def json_checksum(value: Mapping[str, Any]) -> str:
    """The hash of a JSON object, however it is written down; a ``checksum`` in it does not count."""
    counted = {name: entry for name, entry in value.items() if name != "checksum"}
    leaves = sorted(_flatten_json((), counted), key=lambda leaf: leaf[0].encode())
    return md5(
        ",".join(f"{path}={text}" for path, text in leaves).encode(), usedforsecurity=False
    ).hexdigest()


def _flatten_json(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten_json((*path, _quote_text(name)), inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _flatten_json((*path, str(index)), inner)
    else:
        text = _quote_text(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield "+".join(path), text


def _quote_text(text: str) -> str:
    return f'"{quote(text, safe="")}"'
