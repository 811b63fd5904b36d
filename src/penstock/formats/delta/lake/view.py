"""What a program does with a Delta table whose commits the lake decides; ``NotManaged`` for any other.

What reads and writes rows is imported where it is used: with it comes Arrow, which takes a while and
much memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.errors import CommitConflict, IdempotencyKeyReused, InvalidRequest, RequestError
from penstock.formats.delta.branch_log.read_check import NO_ROWS
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import CheckpointTable, GetTableVersions
from penstock.formats.delta.lake.snapshot import load_table_snapshot, read_version_pages
from penstock.lake.answers import CommittedTable, TableCommitResult
from penstock.lake.calls import GetCommit
from penstock.lake.row_changes import RowFunctions, RowStatements
from penstock.lake.row_input import is_stream, open_row_reader
from penstock.lake.table_writer import RowWrite, check_format, find_content, has_nothing_to_write
from penstock.lake.write_jobs import SaveMode

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import TableSnapshot
    from penstock.formats.delta.lake.table import Actions
    from penstock.formats.delta.protocol.actions import Metadata
    from penstock.lake.call import CommitDescription
    from penstock.lake.upkeep import AnalyzedTable, OptimizedTable, OptimizeOrder


class DeltaView(RowStatements):
    """A Delta table at a reference."""

    @property
    def location(self) -> str:
        """Where its files are."""
        return self._get_latest().location

    @property
    def version(self) -> int:
        """Its latest version here."""
        return self._get_latest().latest_version

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        return self.snapshot(None, None).to_arrow(columns, where)

    def snapshot(self, version: int | None, timestamp: str | datetime | None) -> TableSnapshot:
        return load_table_snapshot(self._table, version, timestamp)

    def metadata(self) -> Metadata:
        """What is said of the table as a whole. In a transaction, none of its rows are read by that."""
        try:
            latest = self._get_latest()
        except RequestError:
            self._table.note_read()  # that there is none, or another kind of table
            raise
        self._table.note_read(NO_ROWS)
        return latest.parse_declared()[1]

    def _get_latest(self) -> TableVersions:
        """What the lake knows of the table without a look at its files."""
        table = self._table
        return table.lake.do(GetTableVersions(key=table.key, at=table.ref, via=table.via, limit=0))

    def get_commits(self, start: int | None, end: int | None) -> TableVersions:
        self._table.note_read()  # whatever the end: the latest version is told as well
        return read_version_pages(self._table, start, end)

    def publish(self, version: int | None) -> int:
        return delta.publish_table(self._table, version)

    # -- writing -------------------------------------------------------------------------------------------

    def commit(
        self,
        actions: Actions,
        *,
        version: int | None = None,
        attempt: UUID | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        return delta.commit_actions(
            self._table,
            actions,
            version=version,
            attempt=attempt,
            description=description,
            idempotency_key=idempotency_key,
        )

    def append(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        from penstock.formats.delta.lake import table_writes

        return table_writes.append_rows(
            self._table, data, description=description, idempotency_key=idempotency_key
        )

    def append_with_columns(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        from penstock.formats.delta.lake.schema_evolution import append_with_columns

        return append_with_columns(
            self._table, data, description=description, idempotency_key=idempotency_key
        )

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        from penstock.formats.delta.lake import row_changes, table_writes

        if where is not None and partitions is None and not delta.is_about_partitions(self._table, where):
            return row_changes.replace_rows(self._table, data, where, description, idempotency_key)
        return table_writes.overwrite_rows(
            self._table, data, partitions, where, description=description, idempotency_key=idempotency_key
        )

    def load_functions(self) -> RowFunctions:
        from penstock.formats.delta.lake.row_changes import delete_rows, update_rows
        from penstock.formats.delta.lake.row_merge import merge_rows

        return RowFunctions(delete_rows, update_rows, merge_rows)

    def optimize(self, order: OptimizeOrder, description: CommitDescription) -> OptimizedTable:
        from penstock.formats.delta.lake.bin_rewrites import ARROW
        from penstock.formats.delta.lake.file_upkeep import optimize_files

        return optimize_files(self._table, order, description, ARROW)

    def analyze(self, description: CommitDescription) -> AnalyzedTable:
        from penstock.formats.delta.lake.file_upkeep import analyze_files

        return analyze_files(self._table, description)

    def checkpoint(self) -> int:
        return self._table.lake.do(CheckpointTable(key=self._table.key)).version

    def write(self, rows: RowWrite) -> TableCommitResult | None:
        table, idempotency_key = self._table, rows.idempotency_key
        check_format(table.key, "delta", rows.format)
        ratified = delta.find_earlier_result(table.lake, [table.key], table.ref, idempotency_key)
        if ratified is not None:
            return ratified
        content = find_content(table)
        if content is None:
            try:
                return self._create(rows)
            except CommitConflict:
                # Rows that can be had only once are gone with the try. Others go to what was created.
                is_gone = is_stream(rows.data) and rows.mode is not SaveMode.IGNORE
                if (content := find_content(table)) is None or is_gone:
                    raise
            except IdempotencyKeyReused:
                ratified = delta.find_earlier_result(table.lake, [table.key], table.ref, idempotency_key)
                if ratified is None:
                    raise
                return ratified
        if has_nothing_to_write(table, content, rows.mode):
            return None
        self._check_partitions(rows.partition_by)
        if rows.mode is SaveMode.OVERWRITE:
            return self.overwrite(rows.data, None, None, rows.said, idempotency_key)
        return self.append(rows.data, rows.said, idempotency_key)

    def _create(self, rows: RowWrite) -> TableCommitResult:
        table, said = self._table, rows.said
        made = table.lake.delta.create_filled(
            table.key,
            open_row_reader(rows.data),
            partition_by=rows.partition_by or (),
            branch=table.ref,
            message=said.message,
            author=said.authors[0] if said.authors else None,
            idempotency_key=rows.idempotency_key,
        )
        created = CommittedTable(
            key=made.key, version=made.version, name="", timestamp_ms=0, repeated=made.repeated
        )
        commit = table.lake.do(GetCommit(revision=made.commit, via=table.ref))
        return TableCommitResult(commit=commit, tables=(created,))

    def _check_partitions(self, by: tuple[str, ...] | None) -> None:
        if by is None:
            return
        table = self._table
        now = table.lake.do(GetTableVersions(key=table.key, at=table.ref, limit=0))
        partition_columns = tuple(now.parse_declared()[1].partition_columns)
        if by != partition_columns:
            raise InvalidRequest(
                f"'{table.key}' is partitioned by {', '.join(partition_columns) or 'nothing'}, which cannot "
                "change; leave out 'partition_by'",
                table=str(table.key),
            )
