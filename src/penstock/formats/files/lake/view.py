"""What a program does with a table of files whose rows Arrow reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.files import FORMAT
from penstock.formats.files.files import USAGE, is_managed
from penstock.formats.files.lake.answers import FilesWritten
from penstock.lake.answers import TableCommitResult
from penstock.lake.calls import GetCommit
from penstock.lake.row_input import to_arrow_stream
from penstock.lake.table_writer import RowWrite, find_content, no_rows_written_error, other_format_error
from penstock.lake.write_jobs import SaveMode

if TYPE_CHECKING:
    from penstock.lake.call import CommitDescription
    from penstock.lake.table import Table
    from penstock.lake.upkeep import OptimizedTable, OptimizeOrder


class FilesView:
    """A table of files. Programs change its files by ``Files``, and its rows by ``write``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def location(self) -> str:
        raise self._no_row_changes_error()

    @property
    def version(self) -> int:
        raise self._no_row_changes_error()

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        return self._table.scan().to_arrow(columns, where)

    def append(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        return self._change_rows(data, SaveMode.APPEND, description, idempotency_key)

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        if partitions is not None or where is not None:
            key = self._table.key
            raise NotManaged(
                f"'{key}' is a table of files: an overwrite replaces all of its rows; leave out partitions "
                "and where",
                key=str(key),
            )
        return self._change_rows(data, SaveMode.OVERWRITE, description, idempotency_key)

    def _change_rows(
        self, data: Any, mode: SaveMode, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        """As ``write`` does. If there is nothing to write, the head of the branch has all of the rows."""
        table = self._table
        table.require_branch()
        rows = to_arrow_stream(data)
        table.lake.begin_write()
        if (content := find_content(table)) is None:
            raise table.lake.key_not_found(table.key, table.ref)
        written = self.write(RowWrite(rows, mode, None, None, description, idempotency_key, content))
        if written is None or written.commit is None:
            return TableCommitResult(commit=table.lake.do(GetCommit(revision=table.ref)), tables=())
        return TableCommitResult(commit=written.commit, tables=())

    def optimize(self, order: OptimizeOrder, description: CommitDescription) -> OptimizedTable:
        key = self._table.key
        if not is_managed(self._table.outside_read_set.content):
            raise self._no_row_changes_error()
        if order.where is not None or order.zorder_by:
            raise NotManaged(
                f"'{key}' is a table of files: its files are compacted in all folders, without an order; "
                "leave out where and zorder_by",
                key=str(key),
            )
        from penstock.formats.files.lake.file_upkeep import optimize_files

        return optimize_files(self._table, order.target_file_bytes, description, order.progress)

    def write(self, rows: RowWrite) -> FilesWritten | None:
        from penstock.formats.files.lake.rows import write_rows

        table = self._table
        if rows.there is not None and not is_managed(rows.there):
            raise no_rows_written_error(table.key, rows.there)
        wanted_format = self._choose_format(rows)
        if rows.there is not None and rows.mode in (SaveMode.ERROR, SaveMode.IGNORE):
            table.note_read(is_listing=True)  # it may come to nothing for that
        return write_rows(table, rows, wanted_format)

    def _choose_format(self, rows: RowWrite) -> str:
        """The format of the files; ``InvalidRequest`` if nobody has said it, or Arrow does not write it."""
        if rows.there is None and rows.format is not None:
            return rows.format
        from penstock.formats.files.lake.rows import choose_file_format

        known_format = choose_file_format(self._table)
        chosen = rows.format or known_format
        if chosen in FORMAT.row_formats:  # others are written by Spark, or file by file
            return chosen
        if not chosen:
            raise InvalidRequest(
                f"the format of the files of '{self._table.key}' is not known: give it, as in "
                "format='parquet'",
                table=str(self._table.key),
            )
        raise other_format_error(self._table.key, known_format or "files", rows.format)

    def _no_row_changes_error(self) -> NotManaged:
        key = self._table.key
        return NotManaged(f"'{key}' is {USAGE}", key=str(key))
