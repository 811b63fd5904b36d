"""What a program does with a journal, as in ``lake.table("diary").append([{"line": "it rained"}])``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.rows.arrow_types import pa
from penstock.lake.answers import CommittedTable, TableCommitResult
from penstock.lake.row_input import to_arrow_stream
from penstock.lake.table_writer import RowWrite, has_nothing_to_write
from penstock.lake.write_jobs import SaveMode
from penstock_journal.calls import AppendLines, Journal, ReadJournal
from penstock_journal.plugin import JournalPlugin

if TYPE_CHECKING:
    from penstock.lake.call import CommitDescription
    from penstock.lake.table import Table


class JournalView:
    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def location(self) -> str:
        raise NotManaged(
            f"'{self._table.key}' is a journal, whose lines the lake keeps", key=str(self._table.key)
        )

    @property
    def version(self) -> int:
        return self._read().version

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        if where is not None:
            raise InvalidRequest("journals are read as a whole: leave out 'where'")
        rows = JournalPlugin.rows_of(self._table)().read_all()
        return rows if columns is None else rows.select(list(columns))

    def append(self, data: Any, said: CommitDescription, idempotency_key: str | None) -> TableCommitResult:
        """Add the lines of a column `line`."""
        rows = pa.table(to_arrow_stream(data))
        call = AppendLines(
            key=self._table.key,
            lines=tuple(rows.column("line").to_pylist()),
            branch=self._table.require_branch(),
            said=said,
            idempotency_key=idempotency_key,
        )
        commit = self._table.lake.do(call)
        table = CommittedTable(key=call.key, version=self.version, name="", timestamp_ms=0)
        return TableCommitResult(commit=commit, tables=(table,))

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        said: CommitDescription,
        idempotency_key: str | None,
    ) -> NoReturn:
        raise InvalidRequest(f"lines of '{self._table.key}' are never replaced: append to it")

    def write(self, rows: RowWrite) -> TableCommitResult | None:
        if has_nothing_to_write(self._table, rows.there, rows.mode):
            return None
        if rows.mode is SaveMode.OVERWRITE:
            self.overwrite(rows.data, None, None, rows.said, rows.idempotency_key)
        return self.append(rows.data, rows.said, rows.idempotency_key)

    def _read(self) -> Journal:
        table = self._table
        return table.lake.do(ReadJournal(key=table.key, at=table.ref, via=table.via))
