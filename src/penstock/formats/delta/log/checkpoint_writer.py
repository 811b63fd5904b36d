"""Writes checkpoints: a version of a table as a whole, so that readers need no commit before it.

A classic checkpoint is one file. Where the table's policy is the second version of checkpoints, its files are
in sidecars, and what is left is a small file that names them and is written last. Either appears whole or not
at all; ``_last_checkpoint``, which is only a hint, comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import chain, groupby, islice
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.checkpoint_columns import FILES, STATE, STATE_V2, CheckpointColumns
from penstock.formats.delta.log.checkpoint_stats import ParsedStatsColumns
from penstock.formats.delta.log.checksum import FileTotals, json_checksum
from penstock.formats.delta.log.log_files import LogFile, PlaceFiles
from penstock.formats.delta.log.segments import read_hint, whole_checkpoints
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Action, CheckpointMetadata, Remove, Sidecar, Txn
from penstock.formats.delta.protocol.durations import TOMBSTONE_RETENTION, TRANSACTION_RETENTION, duration_ms
from penstock.formats.delta.protocol.names import (
    LAST_CHECKPOINT,
    LOG,
    SIDECARS,
    ClassicName,
    CommitName,
    UuidName,
    make_text_before_version,
)
from penstock.formats.rows.arrow_types import pq
from penstock.storage.places import Place

BATCH_ROWS: Final = 32_768
SIDECAR_ROWS: Final = 8 * BATCH_ROWS
POLICY: Final = "delta.checkpointPolicy"
V2_FEATURE: Final = "v2Checkpoint"

Item = TypeVar("Item")


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``_last_checkpoint`` says of a checkpoint."""

    version: int
    size: int
    """How many actions it holds."""
    size_in_bytes: int
    num_of_add_files: int


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that this call made."""

    name: str
    last: LastCheckpoint
    totals: FileTotals
    """Of the files that the table consists of."""


def write_checkpoint(
    place: Place, snapshot: LogSnapshot, now_ms: int, *, anew: bool = False
) -> WrittenCheckpoint | None:
    """Write a version of the table at a place as a checkpoint; ``None`` if there is one already.

    With ``anew`` it is written whether there is one or not, and names no file that was removed: for a table
    whose earlier versions are erased.

    ``InvalidRequest`` if the version is not published: readers of the log must not see it yet.
    """
    version = snapshot.version
    if place.size(str(CommitName(version))) is None:
        raise InvalidRequest(
            f"no checkpoint of version {version} of {place.url} can be made: it is not published, or its "
            "commit was cleaned up",
            table=place.url,
            version=version,
        )
    if has_checkpoint(place, version) and not anew:
        return None
    made = _CheckpointBuild(place, snapshot, now_ms, anew=anew)
    name = made.write_v2() if has_v2_policy(snapshot) else made.write_classic()
    if name is None:
        return None
    last = LastCheckpoint(
        version=version,
        size=made.actions,
        size_in_bytes=made.size_bytes,
        num_of_add_files=made.totals.files,
    )
    write_hint(place, last)
    return WrittenCheckpoint(name, last, made.totals)


def has_checkpoint(place: Place, version: int) -> bool:
    """Whether there is a whole checkpoint of a version."""
    entries = place.list(LOG, make_text_before_version(version), make_text_before_version(version + 1))
    return bool(whole_checkpoints(place.url, (LogFile(entry.key, entry.size) for entry in entries)))


def has_v2_policy(snapshot: LogSnapshot) -> bool:
    """Whether the table wants checkpoints of the second version, and its readers know them."""
    features = snapshot.protocol.writer_features or ()
    return snapshot.properties.get(POLICY, "").lower() == "v2" and V2_FEATURE in features


def write_hint(place: Place, last: LastCheckpoint) -> None:
    """Name a checkpoint as the last one, unless a newer one is named.

    Two at once may leave the older one standing there, which costs readers a longer listing.
    """
    hint = read_hint(PlaceFiles(place))
    if hint is not None and hint > last.version:
        return
    fields = msgspec.to_builtins(last)
    place.put(LAST_CHECKPOINT, msgspec.json.encode({**fields, "checksum": json_checksum(fields)}))


class _CheckpointBuild:
    """Counts what goes into a checkpoint while it is written, batch by batch."""

    def __init__(self, place: Place, snapshot: LogSnapshot, now_ms: int, *, anew: bool) -> None:
        self._place, self._snapshot, self._now_ms, self._anew = place, snapshot, now_ms, anew
        self._parsed = ParsedStatsColumns(snapshot)
        self.totals = FileTotals()
        self.actions = 0
        self.size_bytes = 0

    def write_classic(self) -> str | None:
        """All in one file; its name, ``None`` if somebody else was faster."""
        name = str(ClassicName(self._snapshot.version))
        data = self._write_parquet(
            (*STATE, *FILES), chain(self._list_state_actions(), self._list_file_actions())
        )
        if self._anew:
            self._place.put(name, data)
            return name
        return name if self._place.create(name, data) else None

    def write_v2(self) -> str | None:
        """Files in sidecars. One that is left behind when this ends early is deleted by a later cleanup."""
        version = self._snapshot.version
        sidecars: list[Action] = []
        for files in _split_into_runs(self._list_file_actions(), SIDECAR_ROWS):
            path = f"{uuid4()}.parquet"
            data = self._write_parquet(FILES, files)
            self._place.create(SIDECARS + path, data)
            sidecars.append(Sidecar(path=path, size_in_bytes=len(data), modification_time=self._now_ms))
        name = str(UuidName(version, uuid4(), "parquet"))
        state: list[Action] = [CheckpointMetadata(version=version), *self._list_state_actions(), *sidecars]
        return name if self._place.create(name, self._write_parquet((*STATE_V2, *FILES), state)) else None

    def _list_state_actions(self) -> Iterator[Action]:
        yield self._snapshot.protocol
        yield self._snapshot.metadata
        kept_ms = duration_ms(self._snapshot.properties, TRANSACTION_RETENTION)
        for _, txn in sorted(self._snapshot.transactions.items()):
            if not self._is_overtaken(txn, kept_ms):
                yield txn
        yield from (domain_metadata for _, domain_metadata in sorted(self._snapshot.domains.items()))

    def _list_file_actions(self) -> Iterator[Action]:
        for file in self._snapshot.read_files():
            self.totals.add_file(file.size)
            yield file
        if self._anew:
            return
        kept_ms = duration_ms(self._snapshot.properties, TOMBSTONE_RETENTION)
        yield from (
            tombstone
            for tombstone in self._snapshot.read_tombstones()
            if not self._is_overtaken(tombstone, kept_ms)
        )

    def _is_overtaken(self, txn: Txn | Remove, kept_ms: int | None) -> bool:
        """Whether its time is over. A tombstone without a time is, a transaction without one never."""
        since_ms = txn.last_updated if isinstance(txn, Txn) else txn.deletion_timestamp or 0
        return kept_ms is not None and since_ms is not None and since_ms < self._now_ms - kept_ms

    def _write_parquet(self, kinds: Sequence[type[Action]], actions: Iterable[Action]) -> bytes:
        columns = CheckpointColumns(kinds, self._parsed)
        sink = BytesIO()
        with pq.ParquetWriter(sink, columns.schema) as writer:
            for batch in _batch_actions(actions):
                self.actions += len(batch)
                writer.write_batch(self._make_rows(columns, batch))
        data = sink.getvalue()
        self.size_bytes += len(data)
        return data

    def _make_rows(self, columns: CheckpointColumns, batch: Sequence[Action]) -> Any:
        try:
            return columns.make_batch(batch)
        except (ValueError, OverflowError) as problem:  # Arrow's errors are such, too
            raise InvalidLog(
                f"version {self._snapshot.version} of {self._snapshot.table} has an action that cannot be "
                f"written to a checkpoint: {problem}",
                table=self._snapshot.table,
                version=self._snapshot.version,
            ) from None


def _batch_actions(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Actions of the same kind that follow one another, some at a time."""
    for _, same in groupby(actions, type):
        while batch := list(islice(same, BATCH_ROWS)):
            yield batch


def _split_into_runs(items: Iterator[Item], count: int) -> Iterator[Iterator[Item]]:
    """Items in runs of so many, none of which is empty; each must be used up before the next."""
    for first in items:
        yield chain([first], islice(items, count - 1))
