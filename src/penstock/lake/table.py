"""A table: what its key holds, its history, its rows and files, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.registry import TableFormat, load_member, table_formats
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.lake import calls
from penstock.lake.answers import Ratified
from penstock.lake.plugins import find_format, find_plugin
from penstock.lake.table_writing import write
from penstock.lake.transactions.reading import note_reads
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from penstock.model.names import revision_at
from penstock.model.reads import Read

if TYPE_CHECKING:
    from penstock.formats.plugin import TableView
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


class Table:
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

    @property
    def unnoted(self) -> Table:
        """The same, for what a write has to look at: in a transaction, that does not count as read."""
        return Table(self.lake, self.key, self.ref, self.via, is_noted=False)

    def note_read(self, part: str | None = None, *, is_listing: bool = False) -> None:
        """In a transaction, remember that the table is read, or a part of it, or only whether it is there.

        Whatever reads calls this first. Only who reads it by means of their own has to.
        """
        if self.is_noted:
            read = Read(key=self.key, part=part or None, is_listing=is_listing)
            note_reads(self.lake, self.ref, self.via, read)

    def _found(self) -> AnyContent | None:
        call = calls.GetContents(at=self.ref, via=self.via, key=(self.key,))
        return next((entry.content for entry in self.lake.do(call)), None)

    @property
    def content(self) -> AnyContent:
        """What the key holds now; ``KeyNotFound`` if nothing."""
        self.note_read()
        return self._required()

    def _required(self) -> AnyContent:
        found = self._found()
        if found is None:
            raise KeyNotFound(f"there is no '{self.key}' at '{self.ref}'", key=str(self.key), ref=self.ref)
        return found

    @property
    def exists(self) -> bool:
        self.note_read(is_listing=True)
        return self._found() is not None

    @property
    def type(self) -> str:
        """What kind of thing the key holds. In a transaction it only counts that there is one."""
        self.note_read(is_listing=True)
        return self._required().type

    def log(self, **chosen: Any) -> list[Commit]:
        """The commits that changed it, newest first; takes what ``Lake.log`` takes.

        In a transaction, history does not count as read.
        """
        return self.lake.log(self.ref, table=self.key, via=self.via, **chosen)

    # -- what tables of all formats have ---------------------------------------------------------------------

    def require_branch(self) -> str:
        """The branch that it is written on; ``InvalidRequest`` if it is seen at a commit, which stays."""
        if self.via is not None or len(self.ref) == 64:
            raise InvalidRequest(
                f"'{self.key}' is seen at commit {self.ref[:8]}, which never changes; write to it on a "
                "branch, as in lake.table(…)"
            )
        return self.ref

    def _view(self) -> TableView:
        """What its format does with it; that of the default format says what it is if it is none."""
        content = self._found()
        declared = find_format(content) if find_plugin(content) is not None else None
        return _make_view(self, declared or table_formats()[0])

    def _ask_view(self, ask: Callable[[TableView], T]) -> T:
        """Ask the default format first, which saves most tables a call."""
        default = table_formats()[0]
        try:
            return ask(_make_view(self, default))
        except NotManaged:
            content = self._found()
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
        """The rows as a ``pyarrow.Table``: all columns or some, all rows or those for which it is true.

        Also of a Lance table, which is read by Lance, and of a table of files in a format that Arrow reads.
        """
        return self._ask_view(lambda view: view.to_arrow(columns, where))

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
    ) -> Ratified | FilesWritten | None:
        """Write rows; the table is created if it is not there.

        Rows are anything that gives Arrow's stream, a dict with a list for each column, or a list with a dict
        for each row. ``append`` adds them, ``overwrite`` puts them in the place of all rows; ``error`` and
        ``ignore`` only create a table: ``CommitConflict`` if there is one, or nothing. ``format`` is
        ``delta``, ``lance``, or of a table of files ``parquet`` or ``csv``; what the table has if nothing is
        given, and for a new one ``delta``. ``partition_by`` is for a table that is created. Under an
        ``idempotency_key``, rows are written once. Returns what the commit came to; ``None`` if there was
        nothing to be done.
        """
        said = calls.said(message, author)
        written: Ratified | FilesWritten | None = write(
            self, data, mode, format, partition_by, said, idempotency_key
        )
        return written

    def append(
        self,
        data: Any,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ratified:
        """Add rows: of anything that gives Arrow's stream (``__arrow_c_stream__``), or of dicts.

        A dict has a list for each column; a list of dicts has one for each row. Appends never get in each
        other's way. Under an ``idempotency_key``, rows are appended once.
        """
        return self._view().append(data, calls.said(message, author), idempotency_key)

    def overwrite(
        self,
        data: Any,
        *,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        where: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ratified:
        """Put rows in the place of all that there are when the commit has its turn.

        ``partitions`` keeps it to some of them, by values of partition columns: ``{"day": "2026-11-14"}``. So
        does ``where``, by a condition on them: ``"day >= '2026-11-01'"``. Rows outside of either are refused.
        Lance tables have no partitions; there the rows come with their columns.
        """
        said = calls.said(message, author)
        return self._view().overwrite(data, partitions, where, said, idempotency_key)

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
        """Set the table to what it was, by one new commit: at a version, at a time, or at a revision.

        Exactly one of them is given. ``version`` is Delta's or Lance's number of a version that the table has
        on this branch; ``timestamp`` goes by the commits of the branch. Tables of all formats can be
        restored, and dropped ones come back, except to a version. See ``Lake.restore``.
        """
        if sum(one is not None for one in (version, timestamp, ref)) != 1:
            raise InvalidRequest("say to what to restore it: version, timestamp or ref; exactly one of them")
        to = ref if timestamp is None else revision_at(self.ref, timestamp)
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
        """Its columns, as Delta describes them; Arrow's schema is that of ``to_arrow``, or ``to_lance``."""
        return parse_schema(self.delta.metadata().schema_string)

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
    ) -> Ratified:
        """Ratify Delta actions as exactly this version; ``TableConflict`` if the table has it already.

        ``attempt`` tells a repetition of the same commit, which is answered as the first time.
        """
        return self.delta.commit(
            actions,
            version=version,
            attempt=attempt,
            said=calls.said(message, author),
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
    ) -> Ratified:
        """Ratify Delta actions that rest on nothing they read, as the version whose turn it is.

        Sent again under the same ``idempotency_key``, they are ratified once. ``attempt`` is only their
        ``txnId``: it does not tell a repetition.
        """
        return self.delta.commit(
            actions,
            attempt=attempt,
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
        )

    def get_commits(self, start: int | None = None, end: int | None = None) -> TableVersions:
        """The latest version, and the commits that are not published yet, from one version to another."""
        return self.delta.get_commits(start, end)

    def backfill_to_version(self, version: int | None = None) -> int:
        """Have all versions up to one, or all, in the table's own log; returns up to which they are."""
        return self.delta.publish(version)


def _make_view(table: Table, declared: TableFormat) -> TableView:
    view: TableView = declared.load(declared.table_view)(table)
    return view
