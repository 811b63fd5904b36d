"""A table: what its key holds, its history, its rows and files, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import UUID

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.registry import TableFormat, list_table_formats, load_member
from penstock.formats.rows.reader import RowReader, TableRows
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.lake import calls
from penstock.lake.answers import SweptTable, TableCommitResult
from penstock.lake.audits.rows import no_rows_error
from penstock.lake.notebook_progress import show_bytes
from penstock.lake.options import TableLogOptions
from penstock.lake.plugins import describe_usage, find_format, find_plugin
from penstock.lake.row_changes import ChangedRows, MergeClause, MergeStatement, RowValues
from penstock.lake.table_writer import write_rows
from penstock.lake.transactions.read_set import note_reads
from penstock.lake.upkeep import AnalyzedTable, OptimizedTable, OptimizeOrder, OptimizeProgress
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from penstock.model.names import write_revision_at
from penstock.model.reads import Read

if TYPE_CHECKING:
    from penstock.formats.plugin import ChangeView, TableView
    from penstock.formats.public_types import (
        Actions,
        DeltaView,
        Files,
        FilesWritten,
        PastVersion,
        TableSnapshot,
        TableVersions,
    )
    from penstock.lake.lake import Lake

T = TypeVar("T")


class Table(RowReader):
    """A table at a reference."""

    def __init__(
        self, lake: Lake, key: Key, ref: str, via: str | None = None, *, is_noted: bool = True
    ) -> None:
        self.lake, self.key, self.ref = lake, key, ref
        self.via = via
        """The reference that led to ``ref``, where that is the id of a commit."""
        self.is_noted = is_noted
        """Whether what is read of it in a transaction counts as read."""

    def __repr__(self) -> str:
        return f"<Table {self.key} at {self.ref if len(self.ref) < 64 else self.ref[:8]}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_table

        return show_table(self)

    @property
    def outside_read_set(self) -> Table:
        """The same, but reads are not added to a transaction's read set."""
        return Table(self.lake, self.key, self.ref, self.via, is_noted=False)

    def note_read(self, part: str | None = None, *, is_listing: bool = False) -> None:
        """In a transaction, record that the table, a part of it, or only its existence is read.

        All reads of Penstock call this first. Call it if you read the table's files yourself.
        """
        if self.is_noted:
            read = Read(key=self.key, part=part or None, is_listing=is_listing)
            note_reads(self.lake, self.ref, self.via, read)

    def _find_content(self) -> AnyContent | None:
        call = calls.GetContents(at=self.ref, via=self.via, key=(self.key,))
        return next((entry.content for entry in self.lake.do(call)), None)

    @property
    def content(self) -> AnyContent:
        """What the key holds now; ``KeyNotFound`` if nothing."""
        self.note_read()
        return self._require_content()

    def _require_content(self) -> AnyContent:
        content = self._find_content()
        if content is None:
            raise self.lake.key_not_found(self.key, self.ref)
        return content

    @property
    def exists(self) -> bool:
        """Whether its key holds anything now."""
        self.note_read(is_listing=True)
        return self._find_content() is not None

    @property
    def type(self) -> str:
        """What kind of thing the key holds. In a transaction it only counts that there is one."""
        self.note_read(is_listing=True)
        return self._require_content().type

    def log(self, **options: Unpack[TableLogOptions]) -> list[Commit]:
        """The commits that changed it, newest first.

        In a transaction, history does not count as read.
        """
        return self.lake.log(self.ref, table=self.key, via=self.via, **options)

    # -- what tables of all formats have ---------------------------------------------------------------------

    def require_branch(self) -> str:
        """The branch to which the table is written; ``InvalidRequest`` for a table at a commit, which is
        read-only."""
        if self.via is not None or len(self.ref) == 64:
            raise InvalidRequest(
                f"'{self.key}' was opened at commit {self.ref[:8]}, which cannot change; write to the "
                "table on a branch, as in lake.table(…)"
            )
        return self.ref

    def _format_view(self) -> TableView:
        """What its format does with it; that of the default format says what it is if it is none."""
        content = self._find_content()
        declared = find_format(content) if find_plugin(content) is not None else None
        return _make_view(self, declared or list_table_formats()[0])

    def _change_view(self, method: str, refusal: str) -> ChangeView:
        """The same, for what not every format can do; ``NotManaged`` if that of the table cannot."""
        view: Any = self._format_view()
        if not hasattr(view, method):
            usage = describe_usage(self._find_content())
            raise NotManaged(f"'{self.key}' is {usage}\n  In that format, {refusal}.", key=str(self.key))
        changing: ChangeView = view
        return changing

    def _ask_view(self, ask: Callable[[TableView], T]) -> T:
        """Ask the default format first, which saves most tables a call."""
        default = list_table_formats()[0]
        try:
            return ask(_make_view(self, default))
        except NotManaged:
            content = self._find_content()
            declared = find_format(content)
            if find_plugin(content) is None or declared is None or declared is default:
                raise
        return ask(_make_view(self, declared))

    @property
    def location(self) -> str:
        """Where its files are; ``NotManaged`` for a table of files, which has no place of its own."""
        return self._ask_view(lambda view: view.location)

    @property
    def version(self) -> int:
        """Its latest version here; ``VersionNotFound`` if it has none yet."""
        self.note_read()
        return self._ask_view(lambda view: view.version)

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """Read the rows as a ``pyarrow.Table``: all columns or some, all rows or those that match ``where``.

        Also of a Lance table, which is read by Lance, and of a table of files in a format that Arrow reads.
        """
        return self._ask_view(lambda view: view.to_arrow(columns, where))

    def scan(self) -> TableRows:
        """The rows as they are here now, whatever is committed while they are read, in tables of all formats.

        ``KeyNotFound`` if there is no table, ``NotManaged`` if the lake does not read its rows.
        """
        content = self._find_content()
        plugin = find_plugin(content)
        if content is None or plugin is None:
            self.note_read()
            raise (
                self.lake.key_not_found(self.key, self.via or self.ref)
                if content is None
                else no_rows_error(self.key, content)
            )
        return plugin.open_rows(self)

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``, which never holds all of them in memory.

        ``columns`` are those to be read, in that order. ``where`` is a condition as text, such as
        ``"amount > 100 and day >= '2026-11-01'"``, or an expression of ``pyarrow.compute``.
        """
        return self.scan().to_batches(columns, where)

    @property
    def arrow_schema(self) -> Any:
        """The columns, as a ``pyarrow.Schema``."""
        return self.scan().schema

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, if that is known exactly without reading them; else ``None``."""
        return self.scan().num_rows

    def count(self, where: str | None = None) -> int:
        """Count the rows, or those for which a condition is true.

        Without a condition, exact statistics are used if there are any.
        """
        return self.scan().count(where)

    def write(
        self,
        data: Any,
        *,
        mode: str = "append",
        format: str | None = None,  # noqa: A002 - as Spark's writer calls it
        partition_by: str | Sequence[str] | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult | FilesWritten | None:
        """Write rows; the table is created if it does not exist.

        Rows are any object with Arrow's stream interface, a dict with a list for each column, or a list with
        a dict for each row. ``append`` adds them, ``overwrite`` replaces all rows; ``error`` and ``ignore``
        only create a table: ``CommitConflict`` if there is one, or nothing. ``format`` is ``delta``,
        ``lance``, or of a table of files ``parquet`` or ``csv``; what the table has if nothing is given, and
        for a new one ``delta``. ``partition_by`` is for a table that is created. Under an
        ``idempotency_key``, rows are written once. Returns the result of the commit; ``None`` if there was
        nothing to do.
        """
        commit_meta = calls.describe_commit(message, author)
        written: TableCommitResult | FilesWritten | None = write_rows(
            self, data, mode, format, partition_by, commit_meta, idempotency_key
        )
        return written

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Append rows: any object with Arrow's stream interface (``__arrow_c_stream__``), or dicts.

        A dict has a list for each column; a list of dicts has one for each row. Appends never conflict with
        each other. Under an ``idempotency_key``, rows are appended once. With ``merge_schema``, columns that
        only the rows have are added to the table. An append of no rows to a table of files makes no commit;
        the result then has the head of the branch.
        """
        commit_meta = calls.describe_commit(message, author)
        if merge_schema:
            view = self._change_view("append_with_columns", "an append cannot add columns")
            return view.append_with_columns(data, commit_meta, idempotency_key)
        return self._format_view().append(data, commit_meta, idempotency_key)

    def overwrite(
        self,
        data: Any,
        *,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        where: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Replace all rows that the table has when the commit is applied.

        ``partitions`` replaces only some partitions: ``{"day": "2026-11-14"}``. ``where`` replaces only rows
        that match a condition: ``"day >= '2026-11-01'"``. New rows outside of either are refused. If the
        condition names other columns than partition columns, files with such rows are rewritten, and
        conflicts are as in ``delete``. Lance tables have no partitions; there the rows come with their
        columns. In a table of files, only all rows can be replaced.
        """
        commit_meta = calls.describe_commit(message, author)
        return self._format_view().overwrite(data, partitions, where, commit_meta, idempotency_key)

    def delete(
        self,
        where: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> ChangedRows:
        """Delete the rows for which a condition is true, such as ``amount > 10 and country = 'NO'``; all rows
        without one.

        Only files with such rows are changed. ``TableConflict`` if another writer meanwhile changed the same
        files, or added rows that may match other than by an append.
        """
        return self._change_view("delete", "rows cannot be deleted by a condition").delete(
            where, calls.describe_commit(message, author), idempotency_key
        )

    def update(
        self,
        set: RowValues,  # noqa: A002 - SQL's word
        where: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> ChangedRows:
        """Update columns in the rows for which a condition is true, or in all rows.

        ``set`` has the values by column, or by part of a struct (``address.city``): text is SQL over the row
        as it was (``"price * 1.2"``, ``"'NO'"``), anything else is itself. Rows whose partition columns
        change move. Conditions and conflicts are as in ``delete``.
        """
        return self._change_view("update", "rows cannot be updated").update(
            set, where, calls.describe_commit(message, author), idempotency_key
        )

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeStatement:
        """Begin to merge rows into the table: add clauses, then call ``commit``.

        ``on`` says which rows match: a condition, such as ``target.id = source.id``, or a list of columns
        that are equal, ``["id"]``; null matches nothing. Expressions name columns as ``target.x`` and
        ``source.x``. If several clauses apply to a row, the first whose condition is true is used; only the
        last one may lack a condition.
        """
        commit_meta = calls.describe_commit(message, author)

        def carry_out(clauses: tuple[MergeClause, ...]) -> ChangedRows:
            view = self._change_view("merge", "rows cannot be merged")
            return view.merge(source, on, clauses, commit_meta, idempotency_key)

        return MergeStatement(carry_out)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def optimize(
        self,
        *,
        target_file_bytes: int | None = None,
        where: str | None = None,
        zorder_by: str | Sequence[str] = (),
        message: str | None = None,
        author: str | None = None,
        progress: OptimizeProgress | None = None,
    ) -> OptimizedTable:
        """Compact files: rewrite small files, and files with deleted rows, into larger ones.

        Files become about ``target_file_bytes`` large; the property ``delta.targetFileSize`` if nothing is
        given. ``where`` keeps it to some partitions. ``zorder_by`` sorts rows so that those which are alike
        in these columns are in the same files; a table that is clustered is sorted by its own columns. Lance
        tables and tables of Parquet files accept no conditions and columns. Appends can continue meanwhile;
        streams and change feeds show no change. The call can be interrupted at any time and repeated.
        """
        view = self._change_view("optimize", "files cannot be rewritten")
        with show_bytes(f"rewrite {self.key}") as show:
            shown = progress if progress is not None else show
            order = OptimizeOrder.from_arguments(target_file_bytes, where, zorder_by, shown)
            return view.optimize(order, calls.describe_commit(message, author))

    def analyze(self, *, message: str | None = None, author: str | None = None) -> AnalyzedTable:
        """Complete the statistics of files, by which reads skip files."""
        view = self._change_view("analyze", "files have no statistics")
        return view.analyze(calls.describe_commit(message, author))

    def checkpoint(self) -> int:
        """Write a checkpoint of the table's log, unless there is one; returns its version."""
        return self._change_view("checkpoint", "there are no checkpoints").checkpoint()

    def vacuum(self, *, dry_run: bool = False) -> list[SweptTable]:
        """Remove the table's files that no retained commit needs and that are older than the grace period.

        This is the lake's sweep for one table: see ``Lake.sweep_tables``.
        """
        return self.lake.sweep_tables(self.key, remove_data=True, dry_run=dry_run)

    def restore(
        self,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        ref: str | Commit | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Restore the table, by one new commit, to a version, a time or a revision.

        Give exactly one of them. ``version`` is the number of a Delta or Lance version that the table has on
        this branch; ``timestamp`` goes by the commits of the branch. Tables of all formats can be restored,
        and dropped ones come back, except to a version. See ``Lake.restore``.
        """
        if sum(choice is not None for choice in (version, timestamp, ref)) != 1:
            raise InvalidRequest("give exactly one of version, timestamp and ref, to say what to restore")
        to = ref if timestamp is None else write_revision_at(self.ref, timestamp)
        return self.lake.restore(
            self.key,
            to=to,
            version=version,
            branch=self.ref,
            message=message,
            author=author,
            if_head=if_head,
            dry_run=dry_run,
            idempotency_key=idempotency_key,
        )

    # -- what only tables of one format have; ``NotManaged`` for others --------------------------------------

    @property
    def files(self) -> Files:
        """Its files by path, if it is a table of files; on a branch, to change them, or to make it one."""
        files: Files = load_member("table.files")(self)
        return files

    def to_lance(self, **options: Any) -> Any:
        """A ``lance.LanceDataset`` of what it is here now; takes what ``lance.dataset`` takes.

        On a branch, what is done with it is committed there.
        """
        return load_member("table.to_lance")(self, **options)

    @property
    def delta(self) -> DeltaView:
        """What a Delta table is whose commits the lake decides."""
        view: DeltaView = load_member("table.delta")(self)
        return view

    @property
    def schema(self) -> StructType:
        """Its columns, as Delta describes them; ``arrow_schema`` gives them as Arrow does.

        ``InvalidRequest`` if a table of another format has a column of a type that Delta has not.
        """
        try:
            return parse_schema(self.delta.metadata().schema_string)
        except NotManaged:
            if find_plugin(self._find_content()) is None:
                raise
        from penstock.formats.rows.arrow_types import make_schema

        return make_schema(self.arrow_schema)

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties, such as ``delta.appendOnly``."""
        return self.delta.metadata().configuration

    def history(self, limit: int | None = 100) -> list[PastVersion]:
        """Its versions, newest first, as their commits tell of them, as far as the log still has these."""
        return self.snapshot().history(limit)

    def snapshot(self, version: int | None = None, timestamp: str | datetime | None = None) -> TableSnapshot:
        """The table as it is here now, or one of its versions, or what it was at a time."""
        return self.delta.snapshot(version, timestamp)

    def commit(
        self,
        version: int,
        actions: Actions,
        *,
        attempt: UUID | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Ratify Delta actions as exactly this version; ``TableConflict`` if the table has it already.

        ``attempt`` identifies a repetition of the same commit, which gets the first answer again.
        """
        return self.delta.commit(
            actions,
            version=version,
            attempt=attempt,
            description=calls.describe_commit(message, author),
            idempotency_key=idempotency_key,
        )

    def append_actions(
        self,
        actions: Actions,
        *,
        attempt: UUID | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableCommitResult:
        """Ratify Delta actions that depend on no read, as the next version.

        Sent again under the same ``idempotency_key``, they are ratified once. ``attempt`` is only their
        ``txnId``: it does not tell a repetition.
        """
        return self.delta.commit(
            actions,
            attempt=attempt,
            description=calls.describe_commit(message, author),
            idempotency_key=idempotency_key,
        )

    def get_commits(self, start: int | None = None, end: int | None = None) -> TableVersions:
        """Return the latest version, and the commits that are not published to the log yet, in a range of
        versions."""
        return self.delta.get_commits(start, end)

    def backfill_to_version(self, version: int | None = None) -> int:
        """Publish versions to the table's log, up to one or all; returns the last published version."""
        return self.delta.publish(version)


def _make_view(table: Table, declared: TableFormat) -> TableView:
    view: TableView = declared.load(declared.table_view)(table)
    return view
