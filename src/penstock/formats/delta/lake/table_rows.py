"""The rows of a version of a Delta table, for readers that leave out files or compare versions by them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.formats.delta.log.scan import find_files, read_rows_of_files
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.delta.rows.expression_pruning import keep_files
from penstock.formats.rows.reader import StoredRowPart, TableRows
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import TableSnapshot
    from penstock.formats.delta.log.snapshot import LogSnapshot


class DeltaTableRows(TableRows):
    """The rows of a Delta table at a version."""

    def __init__(self, key: Key, snapshot: TableSnapshot) -> None:
        super().__init__(key, snapshot.to_batches)
        self._snapshot = snapshot

    @cached_property
    def _noted_snapshot(self) -> LogSnapshot:
        """The version. In a transaction, the whole table counts as read."""
        return self._snapshot.note_read()

    @property
    def schema(self) -> Any:
        return self._snapshot.arrow_schema

    def read(self, columns: Sequence[str] | None, where: str | None, hint: Any) -> Any:
        if hint is None:
            return self._snapshot.to_batches(columns, where)
        snapshot = self._noted_snapshot
        kept_files = keep_files(find_files(snapshot), snapshot.metadata, columns, hint)
        return read_rows_of_files(snapshot, self._snapshot.place, kept_files, columns)

    @property
    def num_rows(self) -> int | None:
        return self._snapshot.num_rows

    def list_parts(self) -> Iterator[StoredRowPart]:
        return (StoredRowPart(_identify_file(file), file) for file in find_files(self._noted_snapshot))

    def read_parts(self, parts: Sequence[StoredRowPart], columns: Sequence[str]) -> Any:
        chosen = [part.source for part in parts]
        return read_rows_of_files(self._noted_snapshot, self._snapshot.place, chosen, columns)

    def identify_columns(self) -> dict[str, Hashable]:
        metadata = self._noted_snapshot.metadata
        mapping = get_column_mapping(metadata)
        partitions = {name.lower() for name in metadata.partition_columns}
        return {
            field.name: (mapping.get_physical_name(field), repr(field.type), field.name.lower() in partitions)
            for field in self._noted_snapshot.schema.fields
        }


def _identify_file(file: Add) -> Hashable:
    """A file's rows: those of its path without those that its deletion vector names."""
    vector = file.deletion_vector
    values = tuple(sorted(file.partition_values.items()))
    return file.path, None if vector is None else vector.unique_id, values
