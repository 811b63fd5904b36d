"""The rows of a version of a Lance table: Lance itself reads, filters and counts them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from penstock.formats.lance.lake.failures import own_errors
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.reader import StoredRowPart, TableRows

if TYPE_CHECKING:
    from penstock.lake.table import Table


class LanceTableRows(TableRows):
    """The rows of a Lance table where it is looked at, all of one version."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.key, lambda: self.read(None, None, None))
        self._table, self._dataset = table, table.to_lance()

    @property
    def schema(self) -> Any:
        return self._dataset.schema

    def read(self, columns: Sequence[str] | None, where: str | None, hint: Any) -> Any:
        named = None if columns is None else list(columns)
        if hint is not None:
            try:
                return self._begin_scan(columns=named, filter=hint)
            except (pa.ArrowException, OSError, ValueError):
                pass  # what Lance cannot be told is filtered afterwards
        with self._translate_errors():
            return self._begin_scan(columns=named, filter=where)

    def _begin_scan(self, **scan: Any) -> Any:
        reader = self._dataset.scanner(**scan).to_reader()
        return pa.RecordBatchReader.from_batches(reader.schema, self._read_batches(reader))

    def _read_batches(self, reader: Any) -> Iterator[Any]:
        with self._translate_errors():
            yield from reader

    def _translate_errors(self) -> AbstractContextManager[Any]:
        table = self._table
        return own_errors(table.lake.lance(table.ref, via=table.via), table.key)

    @property
    def num_rows(self) -> int | None:
        with self._translate_errors():
            counted: int = self._dataset.count_rows()
        return counted

    def count(self, where: str | None = None) -> int:
        with self._translate_errors():
            counted: int = self._dataset.count_rows(where)
        return counted

    def list_parts(self) -> Iterator[StoredRowPart]:
        return list_fragments(self._dataset)

    def read_parts(self, parts: Sequence[StoredRowPart], columns: Sequence[str]) -> Any:
        if not parts:
            schema = pa.schema([self.schema.field(name) for name in columns])
            return pa.RecordBatchReader.from_batches(schema, [])
        with self._translate_errors():
            return self._begin_scan(columns=list(columns), fragments=[part.source for part in parts])

    def identify_columns(self) -> dict[str, Hashable]:
        return bind_columns(self._dataset)


def list_fragments(dataset: Any) -> Iterator[StoredRowPart]:
    """The fragments of a version, which are what its rows are stored in."""
    for fragment in dataset.get_fragments():
        yield StoredRowPart(_identify_fragment(fragment.metadata.to_json()), fragment)


def bind_columns(dataset: Any) -> dict[str, Hashable]:
    """For each column of a version the numbers by which files name it, and its type."""
    numbered = {field.name(): _list_field_numbers(field) for field in dataset.lance_schema.fields()}
    return {field.name: (numbered.get(field.name), str(field.type)) for field in dataset.schema}


def _identify_fragment(fragment: dict[str, Any]) -> Hashable:
    """A fragment's rows: those of its files without those that its deletion file names.

    The names of files are unique. Numbers by which a version knows folders and row ids are left out: they
    differ between branches, and say nothing of rows.
    """
    files = [{**file, "base_id": None} for file in fragment["files"]]
    deleted = fragment["deletion_file"]
    rows = None if deleted is None else {**deleted, "base_id": None}
    return json.dumps([files, rows, fragment.get("overlays")], sort_keys=True)


def _list_field_numbers(field: Any) -> Hashable:
    """The numbers by which files name a column and its parts."""
    return field.id(), tuple(_list_field_numbers(part) for part in field.children())
