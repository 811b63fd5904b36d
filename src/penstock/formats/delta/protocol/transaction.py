"""What a transaction has read and wants to commit, and the commits that came before it could."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Values,
)
from penstock.formats.delta.protocol.isolation import Isolation
from penstock.formats.delta.protocol.outcomes import Outcomes
from penstock.formats.delta.protocol.partition_conditions import condition_outcomes
from penstock.formats.delta.protocol.partition_values import may_be_equal
from penstock.formats.delta.protocol.schema import parse_schema


class Partitions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files whose partition values are among these, column by column, and for whose values a condition on
    partition columns is true. Without either: all files."""

    values: Mapping[str, tuple[str | None, ...]] = {}
    where: str | None = None


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction has looked at. Without arguments: nothing, as a blind append."""

    whole_table: bool = False
    """It cannot say what it looked at."""
    partitions: tuple[Partitions, ...] = ()
    """Everything in them was looked for, so that a new file there would have been read."""
    files: frozenset[str] | None = None
    """The decoded paths of the files that were read; ``None``: all there were in ``partitions``."""
    applications: frozenset[str] = frozenset()
    """Whose last batch was looked up."""

    @property
    def nothing(self) -> bool:
        return not (self.whole_table or self.partitions or self.files)


class Region(msgspec.Struct, frozen=True):
    """Partitions of a table with a schema."""

    schema_string: str
    partitions: tuple[Partitions, ...]

    def holds(self, values: Values) -> bool:
        """Whether a file with these partition values may be in one of them."""
        return any(True in found for found in self._outcomes(values))

    def is_told(self, values: Values) -> bool:
        """Whether the conditions leave no doubt that such a file is in one of them, or in none."""
        return not self.holds(values) or any(found == _TRUE for found in self._outcomes(values))

    def _outcomes(self, values: Values) -> Iterator[Outcomes]:
        """What the condition of each may come to, where the file's values may be among the given."""
        types = _types(self.schema_string)
        for one in self.partitions:
            if _has_values(one, values, types):
                told = one.where
                yield _TRUE if told is None else condition_outcomes(told, self.schema_string, values)


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer read, and what it wants to commit."""

    read_version: int
    protocol: Protocol
    """Of the table, as far as it is known to the transaction: at the version read, or adopted since."""
    metadata: Metadata
    isolation: Isolation
    actions: tuple[Action, ...]
    reads: Reads = Reads()

    @property
    def is_blind_append(self) -> bool:
        """Whether nothing was read and files are only added."""
        return self.reads.nothing and not any(isinstance(action, Remove) for action in self.actions)

    @property
    def reads_all(self) -> bool:
        """Whether it counts as having read the whole table, as whoever changes the partitioning does."""
        wanted = last(self.actions, Metadata)
        repartitioned = wanted is not None and wanted.partition_columns != self.metadata.partition_columns
        return self.reads.whole_table or repartitioned

    def would_read(self, added: Add) -> bool:
        """Whether it looked for whatever files have the partition values of a new one."""
        return self.reads_all or self._looked_in(added.partition_values)

    def has_read(self, removed: Remove) -> bool:
        """Whether a file is among those that it names, or in the partitions that it names."""
        if self.reads.files is None:
            return self._looked_in(removed.partition_values)
        return removed.key.path in self.reads.files

    def _looked_in(self, values: Values | None) -> bool:
        if values is None:
            return bool(self.reads.partitions)
        return Region(self.metadata.schema_string, self.reads.partitions).holds(values)


class Winner(msgspec.Struct, frozen=True):
    """A commit that came after the version that a transaction read."""

    version: int
    actions: tuple[Action, ...]

    @property
    def info(self) -> CommitInfo | None:
        return last(self.actions, CommitInfo)

    @property
    def is_blind_append(self) -> bool:
        """Whether it says so. Its word counts only if its actions do not tell otherwise."""
        said = self.info is not None and self.info.is_blind_append is True
        return said and not any(isinstance(action, Remove) for action in self.actions)


_Kind = TypeVar("_Kind", bound=Action)


def last(actions: Iterable[Action], kind: type[_Kind]) -> _Kind | None:
    """The last action of a kind, of those that a commit has one of."""
    found = [action for action in actions if isinstance(action, kind)]
    return found[-1] if found else None


_TRUE: Final[Outcomes] = frozenset({True})


def _has_values(partitions: Partitions, values: Values, types: Mapping[str, str]) -> bool:
    """Whether a file's values may be among the given. A column that it lacks decides nothing."""
    return all(
        name not in values or any(may_be_equal(types.get(name, ""), values[name], one) for one in wanted)
        for name, wanted in partitions.values.items()
    )


@lru_cache(maxsize=64)
def _types(schema_string: str) -> Mapping[str, str]:
    """The plain types of columns; a column of another type is not among them, and equals everything."""
    fields = parse_schema(schema_string).fields
    return {field.name: field.type for field in fields if isinstance(field.type, str)}
