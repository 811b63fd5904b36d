"""What a transaction has read and wants to commit, and the commits that came before it could."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from penstock.errors import InvalidContent
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Values,
)
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.column_rules import added_constraints
from penstock.formats.delta.protocol.partition_conditions import evaluate_condition
from penstock.formats.delta.protocol.predicate_outcomes import (
    Outcomes,
    is_same_value,
    join_outcomes,
    may_be_same_value,
)
from penstock.formats.rows.schema import Field, parse_schema


class PartitionFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files whose partition values are among these, column by column, and for whose values a condition on
    partition columns is true. Without either: all files."""

    values: Mapping[str, tuple[str | None, ...]] = {}
    where: str | None = None


class DeltaReads(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction has looked at. Without arguments: nothing, as a blind append."""

    whole_table: bool = False
    """Whether the writer does not know what it read: then the whole table counts as read."""
    partitions: tuple[PartitionFilter, ...] = ()
    """Everything in them was looked for, so that a new file there would have been read."""
    files: frozenset[str] | None = None
    """The decoded paths of the files that were read; ``None``: all there were in ``partitions``."""
    applications: frozenset[str] = frozenset()
    """The applications whose last batch it looked up."""

    @property
    def nothing(self) -> bool:
        return not (self.whole_table or self.partitions or self.files)


class PartitionRegion(msgspec.Struct, frozen=True):
    """Partitions of a table with a schema."""

    schema_string: str
    partitions: tuple[PartitionFilter, ...]
    doubts_zones: bool = False
    """A time without a zone may be any time, as to somebody who must not miss a file. Otherwise it is UTC, as
    it is when rows are read."""

    def may_hold_file(self, values: Values) -> bool:
        """Whether a file with these partition values may be in one of them."""
        return any(True in outcome for outcome in self._list_outcomes(values))

    def is_decided(self, values: Values) -> bool:
        """Whether there is no doubt that such a file is in one of them, or in none."""
        return not self.may_hold_file(values) or any(
            outcome == _TRUE for outcome in self._list_outcomes(values)
        )

    def _list_outcomes(self, values: Values) -> Iterator[Outcomes]:
        """Of each whether the file's values are among the given, and its condition is true for them."""
        columns = _index_columns(self.schema_string)
        for partition in self.partitions:
            result = self._match_partitions(partition, values, columns)
            if partition.where is not None and True in result:
                result = join_outcomes(
                    result, evaluate_condition(partition.where, self.schema_string, values)
                )
            yield result

    def _match_partitions(
        self, partitions: PartitionFilter, values: Values, columns: Mapping[str, Field]
    ) -> Outcomes:
        """Whether a file's values are among the given. A column that it lacks decides nothing."""
        result = _TRUE
        for name, partition_values in partitions.values.items():
            column = columns.get(name)
            stored = name if column is None else stored_name(column)
            if stored in values:
                kind = column.type if column is not None and isinstance(column.type, str) else ""
                each = {self._is_same(kind, values[stored], value) for value in partition_values}
                result = join_outcomes(result, _TRUE if True in each else _DOUBT if None in each else _FALSE)
        return result

    def _is_same(self, kind: str, one: str | None, other: str | None) -> bool | None:
        if self.doubts_zones:
            return may_be_same_value(kind, one, other)
        return is_same_value(kind, one, other)


class DeltaTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer read, and what it wants to commit."""

    read_version: int
    protocol: Protocol
    """Of the table, as far as it is known to the transaction: at the version read, or adopted since."""
    metadata: Metadata
    isolation: DeltaIsolation
    actions: tuple[Action, ...]
    reads: DeltaReads = DeltaReads()

    @property
    def is_blind_append(self) -> bool:
        """Whether nothing was read and files are only added."""
        return self.reads.nothing and not any(isinstance(action, Remove) for action in self.actions)

    @property
    def reads_all(self) -> bool:
        """Whether it counts as having read the whole table, as whoever changes the partitioning does, or adds
        a constraint that all rows satisfy, or a column that takes no nulls any more."""
        new_metadata = find_last_action(self.actions, Metadata)
        if self.reads.whole_table or new_metadata is None:
            return self.reads.whole_table
        old_metadata = self.metadata
        return (
            _is_repartitioned(old_metadata, new_metadata)
            or bool(added_constraints(old_metadata, new_metadata))
            or _is_narrowed(old_metadata, new_metadata)
        )

    def would_read(self, added: Add) -> bool:
        """Whether it looked for whatever files have the partition values of a new one."""
        return self.reads_all or self._has_read_partition(added.partition_values)

    def has_read(self, removed: Remove) -> bool:
        """Whether a file is among those that it names, or in the partitions that it names."""
        if self.reads.files is None:
            return self._has_read_partition(removed.partition_values)
        return removed.key.path in self.reads.files

    def _has_read_partition(self, values: Values | None) -> bool:
        if values is None:
            return bool(self.reads.partitions)
        region = PartitionRegion(self.metadata.schema_string, self.reads.partitions, doubts_zones=True)
        return region.may_hold_file(values)


class WinningCommit(msgspec.Struct, frozen=True):
    """A commit that came after the version that a transaction read."""

    version: int
    actions: tuple[Action, ...]

    @property
    def info(self) -> CommitInfo | None:
        return find_last_action(self.actions, CommitInfo)

    @property
    def is_blind_append(self) -> bool:
        """Whether it says so. Its word counts only if its actions do not tell otherwise."""
        is_declared = self.info is not None and self.info.is_blind_append is True
        return is_declared and not any(isinstance(action, Remove) for action in self.actions)


_Kind = TypeVar("_Kind", bound=Action)


def find_last_action(actions: Iterable[Action], kind: type[_Kind]) -> _Kind | None:
    """The last action of a kind, of those that a commit has one of."""
    kinds = [action for action in actions if isinstance(action, kind)]
    return kinds[-1] if kinds else None


def _is_repartitioned(before: Metadata, after: Metadata) -> bool:
    """Whether a table is partitioned by other columns, and not just by their other names."""
    old_columns, becomes = (
        [
            _find_stored_column(_index_columns(metadata.schema_string), name)
            for name in metadata.partition_columns
        ]
        for metadata in (before, after)
    )
    return old_columns != becomes


def _is_narrowed(before: Metadata, after: Metadata) -> bool:
    """Whether a column that could be null cannot any more."""
    old_fields = {
        stored_name(column): column
        for column in _index_columns(before.schema_string).values()
        if column.nullable
    }
    becomes = _index_columns(after.schema_string).values()
    return any(not field.nullable and stored_name(field) in old_fields for field in becomes)


def _find_stored_column(columns: Mapping[str, Field], name: str) -> str:
    return stored_name(columns[name]) if name in columns else name


_TRUE: Final[Outcomes] = frozenset({True})
_FALSE: Final[Outcomes] = frozenset({False})
_DOUBT: Final[Outcomes] = frozenset({True, False})


@lru_cache(maxsize=64)
def _index_columns(schema_string: str) -> Mapping[str, Field]:
    """The columns of a table by their names."""
    return {field.name: field for field in parse_schema(schema_string).fields}


# Isolation levels: how much of what others wrote meanwhile a transaction may overlook.


ISOLATION_PROPERTY: Final = "delta.isolationLevel"


class DeltaIsolation(StrEnum):
    """From strict to lenient; the names are those of the table property."""

    SERIALIZABLE = "Serializable"
    """As if all transactions had run one after the other, in the order of the versions."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """As if they had run one after the other, though not always in the order of the versions: a blind append
    that came meanwhile counts as having come later."""
    SNAPSHOT = "SnapshotIsolation"
    """Only what was read and is gone matters; what is new does not."""


def table_isolation(metadata: Metadata | None) -> DeltaIsolation:
    """The level that a table asks for; ``WriteSerializable`` if it does not say.

    ``InvalidContent`` if it asks for one that does not exist.
    """
    level_name = None if metadata is None else metadata.configuration.get(ISOLATION_PROPERTY)
    if level_name is None:
        return DeltaIsolation.WRITE_SERIALIZABLE
    for level in DeltaIsolation:
        if level.value.lower() == level_name.lower():
            return level
    level_names = ", ".join(level.value for level in DeltaIsolation)
    raise InvalidContent(
        f"'{ISOLATION_PROPERTY}' must be one of {level_names}, got '{level_name}'", asked=level_name
    )


def choose_isolation(
    table: DeltaIsolation, actions: Iterable[Action], *, operation_changes_data: bool
) -> DeltaIsolation:
    """The level for a transaction with these actions on a table with this level.

    Work that changes no data (compaction, or nothing at all) needs no more than its snapshot: it gives the
    same rows in any order with an append. Under ``WriteSerializable`` the operation itself must be of such a
    kind as well: an update that happened to match no row still depends on there being none. Metadata,
    protocols, batches and domains keep the table's level.
    """
    only_files = True
    for action in actions:
        match action:
            case Add() | Remove() | Cdc():
                only_files = only_files and not action.data_change
            case CommitInfo():
                pass
            case _:
                only_files = False
    if not only_files or (table is DeltaIsolation.WRITE_SERIALIZABLE and operation_changes_data):
        return table
    return DeltaIsolation.SNAPSHOT
