"""Replacing: the files that a commit removes because they are there at its turn, in some partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.log.snapshot import Snapshot
from penstock.formats.delta.protocol.actions import Action, Add, FileKey, Remove, write_commit
from penstock.formats.delta.protocol.transaction import Partitions, Region


class Replaced(msgspec.Struct, frozen=True):
    """Files of the table that go."""

    region: Region
    files: dict[FileKey, Remove]
    removes: tuple[Remove, ...]
    lines: bytes
    """The removes, as lines of the commit."""

    @classmethod
    def of(cls, snapshot: Snapshot, partitions: Sequence[Partitions], now_ms: int) -> Replaced:
        """All files in some partitions, in the whole table if none are named.

        ``InvalidRequest`` if a column is none that the table is partitioned by.
        """
        columns = set(snapshot.metadata.partition_columns)
        strange = sorted({name for one in partitions for name in one.values if name not in columns})
        if strange:
            known = ", ".join(f"'{name}'" for name in sorted(columns)) or "none"
            raise InvalidRequest(
                f"'{strange[0]}' is no partition column of {snapshot.table}, which has {known}"
            )
        region = Region(snapshot.metadata.schema_string, tuple(partitions) or (Partitions(),))
        adds = (add for add in snapshot.files() if region.holds(add.partition_values))
        return _replaced(region, {add.key: removal(add, now_ms) for add in adds})

    def clashing(self, actions: Iterable[Action]) -> list[Remove]:
        """One of the removes, and those of files that the commit adds: it cannot say both."""
        added = (self.files.get(action.key) for action in actions if isinstance(action, Add))
        return list({id(one): one for one in (*self.removes[:1], *added) if one is not None}.values())

    def lines_since(self, earlier: Replaced) -> bytes | None:
        """The removes that an earlier state of it lacks, as lines; ``None`` if that has others, too."""
        if not earlier.files.keys() <= self.files.keys():
            return None
        return write_commit(one for key, one in self.files.items() if key not in earlier.files)

    def after(self, actions: Iterable[Action], now_ms: int) -> Replaced:
        """The same after a further commit: what it added there goes too, what it removed is gone already."""
        files = dict(self.files)
        later = list(actions)
        for action in later:
            if isinstance(action, Remove):
                files.pop(action.key, None)
        for action in later:
            if isinstance(action, Add) and self.region.holds(action.partition_values):
                files[action.key] = removal(action, now_ms)
        return self if files == self.files else _replaced(self.region, files)


def _replaced(region: Region, files: dict[FileKey, Remove]) -> Replaced:
    removes = tuple(files.values())
    return Replaced(region, files, removes, write_commit(removes))


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
