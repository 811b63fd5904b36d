"""The files that a commit removes because they are in some partitions at its turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Action, Add, FileKey, Metadata, Remove, write_commit
from penstock.formats.delta.protocol.partition_conditions import check_condition
from penstock.formats.delta.protocol.transaction import Partitions, Region


class ReplacedFiles(msgspec.Struct, frozen=True):
    """Files of the table that go."""

    region: Region
    files: dict[FileKey, Remove]
    removes: tuple[Remove, ...]
    lines: bytes
    """The removes, as lines of the commit."""

    @classmethod
    def of(cls, snapshot: LogSnapshot, partitions: Sequence[Partitions], now_ms: int) -> ReplacedFiles:
        """All files in some partitions, in the whole table if none are named.

        ``InvalidRequest`` if a column is none that the table is partitioned by, or if a file's own values do
        not tell whether a condition is true for it.
        """
        check_partitions(partitions, snapshot.metadata, snapshot.table)
        region = Region(snapshot.metadata.schema_string, tuple(partitions) or (Partitions(),))
        adds = [add for add in snapshot.files() if region.holds(add.partition_values)]
        for add in adds:
            if not region.is_told(add.partition_values):
                values = ", ".join(f"{name}={text}" for name, text in add.partition_values.items())
                raise InvalidRequest(
                    f"{snapshot.table} has a file of the partition {values}, and it cannot be determined "
                    "whether it is to be replaced; select partitions by other columns, or replace all of "
                    "them"
                )
        return _new_replaced(region, {add.key: removal(add, now_ms) for add in adds})

    @classmethod
    def in_new(cls, metadata: Metadata | None, partitions: Sequence[Partitions]) -> ReplacedFiles:
        """The same before a table has any files; ``metadata`` is what it will be, if that is known yet."""
        schema_string = "" if metadata is None else metadata.schema_string
        return _new_replaced(Region(schema_string, tuple(partitions) or (Partitions(),)), {})

    def under(self, metadata: Metadata, table: str) -> ReplacedFiles:
        """The same in a table that has become another one. ``InvalidRequest`` if it is not partitioned so."""
        partitions = self.region.partitions
        check_partitions(partitions, metadata, table)
        return msgspec.structs.replace(self, region=Region(metadata.schema_string, partitions))

    def clashing(self, actions: Iterable[Action]) -> list[Remove]:
        """One of the removes, and those of files that the commit adds: it cannot say both."""
        added = (self.files.get(action.key) for action in actions if isinstance(action, Add))
        return list(
            {id(remove): remove for remove in (*self.removes[:1], *added) if remove is not None}.values()
        )

    def lines_since(self, earlier: ReplacedFiles) -> bytes | None:
        """The removes that an earlier state of it lacks, as lines; ``None`` if that has others, too."""
        if not earlier.files.keys() <= self.files.keys():
            return None
        return write_commit(remove for key, remove in self.files.items() if key not in earlier.files)

    def after(self, actions: Iterable[Action], now_ms: int) -> ReplacedFiles:
        """The same after a further commit: what it added there goes too, what it removed is gone already."""
        files = dict(self.files)
        later = list(actions)
        for action in later:
            if isinstance(action, Remove):
                files.pop(action.key, None)
        for action in later:
            if isinstance(action, Add) and self.region.holds(action.partition_values):
                files[action.key] = removal(action, now_ms)
        return self if files == self.files else _new_replaced(self.region, files)


def _new_replaced(region: Region, files: dict[FileKey, Remove]) -> ReplacedFiles:
    removes = tuple(files.values())
    return ReplacedFiles(region, files, removes, write_commit(removes))


def check_partitions(partitions: Iterable[Partitions], metadata: Metadata, table: str) -> None:
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


def removal(add: Add, now_ms: int) -> Remove:
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
