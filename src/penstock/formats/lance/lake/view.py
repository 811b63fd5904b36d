"""What a program does with a Lance table: Lance itself reads and writes it.

What reads and writes rows is imported where it is used: with it comes Lance, which takes a while and
much memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest, NotManaged, VersionNotFound
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.lance_requirement import require_lance
from penstock.formats.lance.names import USAGE
from penstock.formats.lance.state import is_managed
from penstock.lake.answers import TableCommitResult
from penstock.lake.row_changes import RowFunctions, RowStatements
from penstock.lake.table_writer import (
    RowWrite,
    check_format,
    find_content,
    has_nothing_to_write,
    no_rows_written_error,
)

if TYPE_CHECKING:
    from penstock.formats.lance.lake.answers import LanceTableInfo
    from penstock.lake.call import CommitDescription
    from penstock.lake.upkeep import OptimizedTable, OptimizeOrder


class LanceView(RowStatements):
    """A Lance table whose versions the lake decides; ``NotManaged`` for any other."""

    def _describe_table(self) -> LanceTableInfo:
        table = self._table
        return table.lake.do(GetLanceTable(key=table.key, at=table.ref, via=table.via))

    @property
    def location(self) -> str:
        return self._describe_table().location

    @property
    def version(self) -> int:
        """``VersionNotFound`` if it has none yet."""
        version = self._describe_table().version
        if version is None:
            raise VersionNotFound(f"'{self._table.key}' has no version yet", table=str(self._table.key))
        return version

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        require_lance()
        from penstock.formats.lance.lake.rows import to_arrow

        return to_arrow(self._table, columns, where)

    def append(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        return self._write_rows(data, "append", description, idempotency_key)

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        if partitions is not None or where is not None:
            raise NotManaged(f"'{self._table.key}' is {USAGE}", key=str(self._table.key))
        return self._write_rows(data, "overwrite", description, idempotency_key)

    def load_functions(self) -> RowFunctions:
        require_lance()
        from penstock.formats.lance.lake.row_statements import delete_rows, merge_rows, update_rows

        return RowFunctions(delete_rows, update_rows, merge_rows)

    def optimize(
        self,
        order: OptimizeOrder,
        description: CommitDescription,  # noqa: ARG002 - Lance makes several commits of it, and words them itself
    ) -> OptimizedTable:
        if order.target_file_bytes is not None or order.where is not None or order.zorder_by:
            raise InvalidRequest(
                f"'{self._table.key}' is a Lance table: Lance compacts it as a whole, to sizes of its own; "
                "leave out target_file_bytes, where and zorder_by",
                key=str(self._table.key),
            )
        require_lance()
        from penstock.formats.lance.lake.row_statements import optimize_files

        return optimize_files(self._table, order.progress)

    def _write_rows(
        self, data: Any, mode: str, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        require_lance()
        from penstock.formats.lance.lake.rows import write_rows

        return write_rows(self._table, data, mode, description, idempotency_key)

    def write(self, rows: RowWrite) -> TableCommitResult | None:
        table = self._table
        if rows.there is not None and not is_managed(rows.there):
            raise no_rows_written_error(table.key, rows.there)
        check_format(table.key, "lance", rows.format)
        if rows.partition_by:
            raise InvalidRequest("Lance tables have no partitions: leave out 'partition_by'")
        require_lance()
        from penstock.formats.lance.lake.creation import create_table, find_earlier_creation

        if (earlier_creation := find_earlier_creation(table, rows.idempotency_key)) is not None:
            return earlier_creation
        content = find_content(table)
        if content is None:
            return create_table(table, rows.data, rows.said, rows.idempotency_key)
        if has_nothing_to_write(table, content, rows.mode):
            return None
        return self._write_rows(rows.data, rows.mode.value, rows.said, rows.idempotency_key)
