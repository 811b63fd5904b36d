"""Replacements, by their ids: on whatever branch and in whatever form they came.

A replacement takes whatever files are there. Done a second time, where it was transplanted or merged before,
it would take the rows that came since. Its files do not tell that it was there: they may have been compacted,
or there were none. So each one has an id, from when it is ratified, and every commit that brings it elsewhere
names the id in its ``commitInfo``; so does a commit that undoes it. The owner alone does so: what a writer
says there is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.commits import REPLACES
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    FileKey,
    Metadata,
    Remove,
    write_commit,
)
from penstock.formats.delta.protocol.partition_conditions import (
    check_condition,
    condition_columns,
    evaluate_condition,
)
from penstock.formats.delta.protocol.transaction import PartitionFilter, PartitionRegion
from penstock.model import decoders

REPLACEMENTS: Final = "penstockReplacements"
"""In a ``commitInfo``, the replacements that are part of the commit, in their order."""
UNDONE: Final = "penstockUndone"
"""In a ``commitInfo``, the replacements that the commit undoes: from then on they replace nothing."""
NAMED_MAX_BYTES: Final = 64 * 1024
"""How long each of them may be: it is in the first line of a commit, which has to fit into an object."""
OWNERS: Final = frozenset({REPLACES, REPLACEMENTS, UNDONE})
"""What the owner says in a ``commitInfo``, and nobody else."""


COMPARED_MAX: Final = 1000
"""Values that are tried one by one, to find out whether a condition goes with any of them."""


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """A commit that replaced files, wherever it has been brought to."""

    id: bytes
    partitions: tuple[PartitionFilter, ...]
    """Where they were; in the whole table for none."""
    is_whole: bool = True
    """Whether what names it is that commit and nothing else, and not the sum of several."""

    def is_in(self, other: Replacement) -> bool:
        """Whether another one took all that this one takes."""
        return not other.partitions or (
            bool(self.partitions) and all(partition in other.partitions for partition in self.partitions)
        )

    def overlaps(self, other: Replacement, schema_string: str) -> bool:
        """Whether there may be files that both take."""
        return any(
            _do_partitions_overlap(partitions, its, schema_string)
            for partitions in self.partitions or (PartitionFilter(),)
            for its in other.partitions or (PartitionFilter(),)
        )


def make_replacements(terms: CommitTerms) -> tuple[Replacement, ...]:
    """What a commit names that is ratified with these terms: itself, if it replaces files."""
    return () if terms.replaces is None else (Replacement(uuid4().bytes, terms.replaces),)


def name_replacements(
    info: CommitInfo, replacements: Sequence[Replacement], undone: Sequence[Replacement] = ()
) -> CommitInfo:
    """A ``commitInfo`` that names these replacements and no others, and those that are undone; the very same
    if it should name none."""
    if not replacements and not undone and not OWNERS & info.fields.keys():
        return info
    fields = {name: value for name, value in info.fields.items() if name not in OWNERS}
    if replacements:
        fields[REPLACEMENTS] = msgspec.to_builtins(tuple(replacements))
    if undone:
        fields[UNDONE] = msgspec.to_builtins(tuple(undone))
    return CommitInfo(fields)


def read_named_replacements(info: CommitInfo | None) -> tuple[Replacement, ...]:
    """The replacements that a ``commitInfo`` names; none if that cannot be understood."""
    return _read_replacement_ids(REPLACEMENTS, info)


def read_undone_replacements(info: CommitInfo | None) -> tuple[Replacement, ...]:
    """The replacements that a commit undoes, likewise."""
    return _read_replacement_ids(UNDONE, info)


def _read_replacement_ids(field: str, info: CommitInfo | None) -> tuple[Replacement, ...]:
    if info is None:
        return ()
    try:
        return decoders.convert_value(info.fields.get(field, ()), tuple[Replacement, ...])
    except msgspec.ValidationError:
        return ()


def mark_as_parts(replacements: Sequence[Replacement]) -> tuple[Replacement, ...]:
    """The same as parts of a commit that is the sum of several."""
    return tuple(msgspec.structs.replace(replacement, is_whole=False) for replacement in replacements)


def is_too_long(replacements: Sequence[Replacement]) -> bool:
    return len(msgspec.json.encode(replacements)) > NAMED_MAX_BYTES


def _do_partitions_overlap(partitions: PartitionFilter, other: PartitionFilter, schema_string: str) -> bool:
    for column in partitions.values.keys() & other.values.keys():
        region = PartitionRegion(schema_string, (PartitionFilter({column: other.values[column]}),))
        if not any(region.may_hold_file({column: value}) for value in partitions.values[column]):
            return False
    values = {**other.values, **partitions.values}
    return all(
        part.where is None or _may_hold(part.where, values, schema_string) for part in (partitions, other)
    )


def _may_hold(where: str, values: Mapping[str, Sequence[str | None]], schema_string: str) -> bool:
    """Whether a condition may be true for any of the given values of its columns. In doubt it may."""
    named = condition_columns(where, schema_string)
    partition_values = {name: several for name, several in values.items() if name.lower() in named}
    if prod(map(len, partition_values.values())) > COMPARED_MAX:
        return True
    return any(
        True in evaluate_condition(where, schema_string, dict(zip(partition_values, each, strict=True)))
        for each in product(*partition_values.values())
    )


# The files that a commit removes because they are in some partitions at its turn.


class ReplacedFiles(msgspec.Struct, frozen=True):
    """Files of the table that go."""

    region: PartitionRegion
    files: dict[FileKey, Remove]
    removes: tuple[Remove, ...]
    lines: bytes
    """The removes, as lines of the commit."""

    @classmethod
    def from_snapshot(
        cls, snapshot: LogSnapshot, partitions: Sequence[PartitionFilter], now_ms: int
    ) -> ReplacedFiles:
        """All files in some partitions, in the whole table if none are named.

        ``InvalidRequest`` if a column is none that the table is partitioned by, or if a file's own values do
        not tell whether a condition is true for it.
        """
        check_partitions(partitions, snapshot.metadata, snapshot.table)
        region = PartitionRegion(snapshot.metadata.schema_string, tuple(partitions) or (PartitionFilter(),))
        adds = [add for add in snapshot.read_files() if region.may_hold_file(add.partition_values)]
        for add in adds:
            if not region.is_decided(add.partition_values):
                raise undecided_error(str(snapshot.table), add.partition_values)
        return _make_replaced_files(region, {add.key: make_remove(add, now_ms) for add in adds})

    @classmethod
    def in_new_table(cls, metadata: Metadata | None, partitions: Sequence[PartitionFilter]) -> ReplacedFiles:
        """The same before a table has any files; ``metadata`` is what it will be, if that is known yet."""
        schema_string = "" if metadata is None else metadata.schema_string
        return _make_replaced_files(
            PartitionRegion(schema_string, tuple(partitions) or (PartitionFilter(),)), {}
        )

    def adapt_to_metadata(self, metadata: Metadata, table: str) -> ReplacedFiles:
        """The same in a table that has become another one. ``InvalidRequest`` if it is not partitioned so."""
        partitions = self.region.partitions
        check_partitions(partitions, metadata, table)
        return msgspec.structs.replace(self, region=PartitionRegion(metadata.schema_string, partitions))

    def select_clashing_removes(self, actions: Iterable[Action]) -> list[Remove]:
        """One of the removes, and those of files that the commit adds: it cannot say both."""
        added = (self.files.get(action.key) for action in actions if isinstance(action, Add))
        return list(
            {id(remove): remove for remove in (*self.removes[:1], *added) if remove is not None}.values()
        )

    def encode_removes_since(self, earlier: ReplacedFiles) -> bytes | None:
        """The removes that an earlier state of it lacks, as lines; ``None`` if that has others, too."""
        if not earlier.files.keys() <= self.files.keys():
            return None
        return write_commit(remove for key, remove in self.files.items() if key not in earlier.files)

    def apply_commit(self, actions: Iterable[Action], now_ms: int) -> ReplacedFiles:
        """The same after a further commit: what it added there goes too, what it removed is gone already."""
        files = dict(self.files)
        later = list(actions)
        for action in later:
            if isinstance(action, Remove):
                files.pop(action.key, None)
        for action in later:
            if isinstance(action, Add) and self.region.may_hold_file(action.partition_values):
                files[action.key] = make_remove(action, now_ms)
        return self if files == self.files else _make_replaced_files(self.region, files)


def undecided_error(table: str, values: Mapping[str, str | None]) -> InvalidRequest:
    """A file of which nobody knows whether an overwrite replaces it."""
    described = ", ".join(f"{name}={text}" for name, text in values.items())
    return InvalidRequest(
        f"{table} has a file of the partition {described}, and it cannot be determined whether the overwrite "
        "replaces it; select partitions by other columns, or replace all of them"
    )


def _make_replaced_files(region: PartitionRegion, files: dict[FileKey, Remove]) -> ReplacedFiles:
    removes = tuple(files.values())
    return ReplacedFiles(region, files, removes, write_commit(removes))


def check_partitions(partitions: Iterable[PartitionFilter], metadata: Metadata, table: str) -> None:
    """``InvalidRequest`` if partitions are told by other columns than the table is partitioned by."""
    columns = metadata.partition_columns
    for partition in partitions:
        strange = sorted(name for name in partition.values if name not in columns)
        if strange:
            known_columns = ", ".join(f"'{name}'" for name in sorted(columns)) or "none"
            raise InvalidRequest(
                f"'{strange[0]}' is not a partition column of {table}, which has {known_columns}"
            )
        if partition.where is not None:
            check_condition(partition.where, metadata.schema_string, columns)


def make_remove(add: Add, now_ms: int) -> Remove:
    """The action that takes a file out of the table."""
    return Remove(
        path=add.path,
        data_change=True,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )
