"""The rows of a table of files, for readers that leave out files or compare states by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.audit_rows import FileRows
from penstock.formats.rows.arrow_expressions import check_columns, select_rows
from penstock.formats.rows.reader import StoredRowPart, TableRows
from penstock.lake.calls import Resolve
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.files.lake.answers import TableLayout
    from penstock.lake.table import Table

CSV_OPTIONS: Final = frozenset({"header", "sep", "delimiter", "quote", "nullvalue"})
"""Options of Spark's CSV that Arrow's reader has too."""


class FilesTableRows(TableRows):
    """The rows of a table of files, all of one commit."""

    def __init__(self, key: Key, files: FileRows) -> None:
        super().__init__(key, files.begin_reading)
        self._files = files

    @property
    def schema(self) -> Any:
        return self._files.schema

    def read(self, columns: Sequence[str] | None, where: str | None, hint: Any) -> Any:
        if where is not None:
            return select_rows(self.key, self._files.begin_reading(), columns, where)
        named = None if columns is None else check_columns(self.key, self.schema, columns)
        return self._files.begin_reading(named, hint)

    def count(self, where: str | None = None) -> int:
        return self._files.count_rows() if where is None else super().count(where)

    def list_parts(self) -> Iterator[StoredRowPart]:
        # The path as well: it tells the values of partition columns.
        return (StoredRowPart((entry.path, entry.address), entry.path) for entry in self._files.entries)

    def read_parts(self, parts: Sequence[StoredRowPart], columns: Sequence[str]) -> Any:
        return self._files.begin_reading(columns, paths=[part.source for part in parts])


def open_rows(table: Table) -> FilesTableRows:
    """The rows of a table as it is now, whatever is committed while they are read."""
    table.note_read()
    lake, at = table.lake, table
    if table.via is None:
        resolved = lake.do(Resolve(revision=table.ref))
        at = type(table)(lake, table.key, resolved.commit, resolved.name)
    files = at.outside_read_set.files
    layout = files.about().layout
    _check_options(table.key, layout)
    return FilesTableRows(table.key, FileRows(table.key, files, layout))


def _check_options(key: Key, layout: TableLayout) -> None:
    """``InvalidRequest`` if CSV was written with an option of Spark's that Arrow's reader has not."""
    unknown = sorted({name.lower() for name in layout.options} - CSV_OPTIONS)
    if layout.format.lower() == "csv" and unknown:
        raise InvalidRequest(
            f"the files of '{key}' were written with the CSV option '{unknown[0]}', which Arrow does not "
            "have: read the table with Spark",
            table=str(key),
        )
