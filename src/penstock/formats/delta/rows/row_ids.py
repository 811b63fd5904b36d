"""Ids of rows as Arrow reads them from data files: to be shown, or to be written to other files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.row_ids import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    FileRowIds,
    get_row_ids,
    get_row_tracking_columns,
    row_id_names,
)
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.positions import number_rows
from penstock.formats.rows.schema import Field


class _RowIdColumn(NamedTuple):
    """A column that is added to those of the table."""

    name: str
    stored: str | None
    """The column of files that has values for rows which were in other files."""
    is_id: bool
    """Whether it has ids, or versions."""


class RowIdReader:
    """Reads what a table keeps of its rows: their ids, and the versions at which they were last written."""

    def __init__(self, columns: Iterable[_RowIdColumn], ids_of: Callable[[Add], FileRowIds | None]) -> None:
        self._columns, self._ids_of = tuple(columns), ids_of
        self.fields = tuple(Field(name=column.name, type="long", nullable=True) for column in self._columns)

    @classmethod
    def to_show(cls, metadata: Metadata, columns: Iterable[str]) -> RowIdReader:
        """For somebody who wants to read these columns. ``InvalidRequest`` as ``row_id_names``."""
        stored = dict(
            zip((ROW_ID, ROW_COMMIT_VERSION), get_row_tracking_columns(metadata) or (), strict=False)
        )
        named = row_id_names(metadata, columns)
        return cls((_RowIdColumn(name, stored.get(name), name == ROW_ID) for name in named), get_row_ids)

    @classmethod
    def to_rewrite(cls, metadata: Metadata, final: Mapping[str, FileRowIds] | None) -> RowIdReader:
        """For rows that are written to other files. ``final`` are the ids that rows of files keep, by decoded
        paths: rows of others get new ones. The columns are called as in files; there are none without."""
        stored = get_row_tracking_columns(metadata) if final is not None else None
        columns = (
            [] if stored is None else [_RowIdColumn(name, name, name == stored.row_id) for name in stored]
        )
        return cls(columns, lambda file: None if final is None else final.get(file.key.path))

    def find_stored_columns(self, schema: Any) -> list[str]:
        """The columns of a file, by its schema, that have values for rows which were in other files."""
        return [
            column.stored
            for column in self._columns
            if column.stored is not None and column.stored in schema.names
        ]

    def make_columns(self, file: Add, batch: Any, first: int) -> list[Any]:
        """The columns of rows of a file, of which the batch begins with the row ``first``."""
        ids, rows = self._ids_of(file), batch.num_rows
        arrays = []
        for column in self._columns:
            if ids is None:
                values = pa.nulls(rows, pa.int64())
            elif column.is_id:
                values = number_rows(rows, ids.base + first)
            else:
                values = pa.repeat(pa.scalar(ids.version, pa.int64()), rows)
            if column.stored is not None and column.stored in batch.schema.names:
                values = pc.coalesce(batch.column(column.stored).cast(pa.int64()), values)
            arrays.append(values)
        return arrays
