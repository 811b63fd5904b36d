"""What a catalog of SQL is asked, and what it answers.

A request has all that is known, and nothing is remembered between two of them: the session's reference and
its transaction come with each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.own_reads import OwnReads
from penstock.lake.query_pins import PinnedCommit
from penstock.lake.scan_files import ScanCondition
from penstock.lake.views import Snapshot
from penstock.lake.write_jobs import SaveMode
from penstock.model.keys import Key
from penstock.model.names import write_revision_at

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table

AT: Final = "@"
"""Between the name of a table and the revision that it is looked up at."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION_DIGITS_MAX: Final = 18


class TableAtRevision(msgspec.Struct, frozen=True):
    """A table as a statement names it."""

    key: Key
    revision: str
    """That it is looked up at; empty for the default branch."""


class ViewDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A view, as an engine makes it and expands it."""

    text: str
    columns: str
    """With their comments, as Spark writes them in JSON."""
    query_columns: tuple[str, ...] = ()
    """What the query calls them; empty if the columns follow those of the query."""
    catalog: str = ""
    """The catalog that names without one are looked up in, …"""
    namespace: tuple[str, ...] = ()
    """… and the namespace."""
    settings: dict[str, str] = {}
    """Of the session that made the view."""
    schema_mode: str = ""
    base: str = ""
    """The commit at which the engine read the view that it changes; empty if it read none."""


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table at one commit. It comes back with every later question of the same statement."""

    is_absent: bool = False
    key: tuple[str, ...] = ()
    """The elements of its key."""
    pin_name: str = ""
    """The revision that was asked for, empty for the default branch, …"""
    pin: PinnedCommit | None = None
    """… and the commit there."""
    branch: str = ""
    """The reference that the table is written to."""
    is_past: bool = False
    """Whether the statement names a version or a time, so that the table cannot be written to."""
    version: int | None = None
    """An older version of the table, if the statement names one."""
    provider: str = ""
    """Its format, as ``USING`` names it."""
    schema: str = ""
    """As Spark writes it in JSON."""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    defaults: dict[str, str] = {}
    """The expressions of columns that have a default."""
    computed: tuple[str, ...] = ()
    """The columns that the table gives values to by itself: generated and identity columns."""
    view: ViewDefinition | None = None
    """What it is instead of a table."""


class StatementRead(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a statement reads, at the commit of its query."""

    table: TableFacts
    where: str | None = None
    """What every row that it needs fulfils, as far as it is known."""


class ColumnValues(msgspec.Struct, frozen=True, kw_only=True):
    """What CREATE TABLE says of the values of a column in new rows."""

    name: str
    default: str | None = None
    """An expression: for rows that come without the column."""
    generated: str | None = None
    """The expression that its values are equal to."""
    identity: IdentityNumbering | None = None


class IdentityNumbering(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of an identity column."""

    start: int
    step: int
    allows_explicit: bool = False
    """Whether rows may come with numbers of their own."""


class StatementChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of ALTER TABLE as Spark tells it: its kind, and what it is about."""

    kind: str
    column: tuple[str, ...] = ()
    """The names on the way to a column."""
    name: str = ""
    """Of a property, or the new one of a column."""
    value: str = ""
    type: str = ""
    """As Spark writes it in JSON."""
    collation: str = ""
    """Of a text in it, which that does not tell."""
    is_nullable: bool = True
    comment: str | None = None
    position: str | None = None
    default: str | None = None
    if_exists: bool = False


class CatalogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a catalog. What a question does not need is left as it is here."""

    catalog: str = ""
    """What the session calls the catalog."""
    ref: str = ""
    """The session's reference, or the branch of its transaction; empty for the default branch."""
    transaction: str = ""
    """The branch of the session's transaction, if one is open."""
    zone: str = "UTC"
    infers: bool = True
    """Whether types of partition columns of files follow from their values."""
    has_local_times: bool = False
    """Whether a time without a zone is a `timestamp_ntz`."""
    is_case_sensitive: bool = False
    user: str = ""
    """Who runs the engine, where the process that answers is another one."""
    statement: str = ""
    """An id of the request, 32 hexadecimal digits: what it changes is changed once, however often it comes.
    Empty if it comes once."""
    names: tuple[str, ...] = ()
    """Of a table or a namespace."""
    to: tuple[str, ...] = ()
    revision: str | None = None
    time_us: int | None = None
    pinned: dict[str, PinnedCommit] = {}
    """The commits that the same query reads already, by revision."""
    schema: str = ""
    partitioning: tuple[str, ...] = ()
    """The names of columns, or other transforms as Spark describes them."""
    properties: dict[str, str | None] = {}
    column_values: tuple[ColumnValues, ...] = ()
    constraints: tuple[str, ...] = ()
    provider: str | None = None
    location: str | None = None
    comment: str | None = None
    cascade: bool = False
    must_exist: bool = False
    """Whether a table that is not there is an error, rather than part of the answer."""
    is_view: bool = False
    """Whether a statement is about a view and no table."""
    view: ViewDefinition | None = None
    changes: tuple[StatementChange, ...] = ()
    procedure: str = ""
    arguments: dict[str, str | int | bool | tuple[str, ...] | None] = {}
    table: TableFacts | None = None
    where: str | None = None
    """What every row that a query needs of a table fulfils, as far as it is known."""
    conditions: tuple[ScanCondition, ...] = ()
    """The same of the files of a scan."""
    reads: tuple[StatementRead, ...] = ()
    """The tables of the lake that a statement reads which writes to one."""
    files: tuple[str, ...] = ()
    """The names of the files of a scan below the table's root, decoded, if they are few; otherwise it may be
    of all files of the table."""
    mode: str = ""
    options: dict[str, str] = {}
    """Of the statement that writes or streams, as a program gives them to Spark's writer or reader."""
    query: str = ""
    """The id of a streaming query, …"""
    batch: int = 0
    """… and the number of one of its batches."""
    dynamic: bool = False
    replace_where: str | None = None
    is_replace: bool = False
    is_text: bool = True
    """Whether the format is what a statement or a program names, rather than the usual one of the session."""
    create: bool = True
    written: WrittenRows | None = None
    condition: int | None = None
    """The place of an expression among the parts that come with the request; so are the following."""
    values: dict[str, int] = {}
    on: int = 0
    source: int = 0
    clauses: tuple[ClauseParts, ...] = ()
    first_version: int = 0
    """The versions of a table whose changes are asked for, …"""
    last_version: int | None = None
    """… to the latest if none is named."""
    merge_schema: bool = False
    """Whether MERGE adds columns that the table lacks."""

    @property
    def name(self) -> TableAtRevision:
        """The table that is named. ``InvalidRequest`` for a name without a table or a revision."""
        if not self.names:
            raise InvalidRequest("the request names no table")
        *namespace, last = self.names
        table, at, revision = last.rpartition(AT)
        if not at:
            return TableAtRevision(Key(*self.names), self.ref)
        if not table or not revision:
            raise InvalidRequest(f"'{last}' must be a table and a revision, such as orders{AT}dev")
        return TableAtRevision(Key(*namespace, table), revision)

    @property
    def written_key(self) -> tuple[Key, str | None]:
        """The key and the branch that a statement changes. ``InvalidRequest`` past an open transaction."""
        name = self.name
        return name.key, self._find_written_branch(name.key, name.revision)

    @property
    def written_table(self) -> tuple[Key, str | None]:
        """The same for a table that was described before. ``InvalidRequest`` for a past one, too."""
        facts = self.known_table
        key = Key(*facts.key)
        if facts.is_past:
            raise InvalidRequest(f"'{key}' is read at an earlier version, which cannot be changed")
        return key, self._find_written_branch(key, facts.branch)

    def _find_written_branch(self, key: Key, revision: str) -> str | None:
        if self.transaction and revision != self.transaction:
            raise InvalidRequest(
                f"'{key}{AT}{revision}' is not part of the transaction that is open in this session, so a "
                "ROLLBACK would not undo the change: leave out the revision, or COMMIT first",
                key=str(key),
            )
        return revision or None

    @property
    def branch(self) -> str | None:
        return self.ref or None

    @property
    def known_table(self) -> TableFacts:
        """The table that was described before. ``InvalidRequest`` if the request has none."""
        if self.table is None or self.table.pin is None:
            raise InvalidRequest(
                "the request lacks the field 'table': send what the request to load the table returned"
            )
        return self.table

    @property
    def save_mode(self) -> SaveMode:
        """How rows are written. ``InvalidRequest`` for a mode that there is not."""
        try:
            return SaveMode(self.mode)
        except ValueError:
            raise InvalidRequest(f"unknown write mode '{self.mode}'") from None


class ClauseParts(msgspec.Struct, frozen=True, kw_only=True):
    """A clause of MERGE, with the places of its expressions."""

    kind: str
    action: str
    condition: int | None = None
    values: dict[str, int] | None = None


class TableDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A table as SQL sees it."""

    provider: str
    """Its format, as ``USING`` names it."""
    schema: str
    """The columns that a read has, as Spark writes them in JSON."""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    defaults: dict[str, str] = {}
    """As in ``TableFacts``, and so is the following."""
    computed: tuple[str, ...] = ()
    location: str = ""
    description: str = ""


class EmptyTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table without rows that is to be created."""

    key: Key
    branch: str | None
    source: str
    """The format, as Spark names it; empty if none is given."""
    schema: str
    """As Spark writes it in JSON."""
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    description: str = ""
    column_values: tuple[ColumnValues, ...] = ()
    """Of Delta tables only."""
    statement: str | None = None
    """The id of the request, if it may come again."""


class RowOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that an engine is to write to a table."""

    key: Key
    branch: str | None
    source: str
    """The format, as Spark names it; empty if none is given."""
    mode: SaveMode
    schema: str
    """Of the rows, as Spark writes it in JSON."""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    description: str = ""
    is_new: bool = False
    """Whether the statement creates or replaces the table."""
    is_dynamic: bool = False
    """Whether only partitions are overwritten that the rows are in."""
    replace_where: str | None = None
    own_reads: OwnReads = ()
    """What the statement reads of the table."""
    zone: str = "UTC"
    """Of the session."""
    message: str
    author: str


class WritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark is to write rows."""

    format: str
    path: str
    """As Hadoop spells it."""
    mode: str
    """Of Spark's writer."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}
    settings: dict[str, str] = {}
    """Of the session, while it writes."""
    expressions: dict[str, str] = {}
    """What columns are written as, in SQL, if they are not written as they are."""
    job: str = ""
    """The id of a job whose files are to be told when they are written; empty if the job tells them itself,
    as one that writes a table of files does."""
    planned: str = ""
    """What comes back with the files: what the plan rests on, …"""
    began_us: int = 0
    """… and when it was made."""


class WrittenRows(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a job has written."""

    job: str
    planned: str
    began_us: int
    files: str
    """Compressed lines of JSON, in base64, as the commit protocol tells them."""


class FoundTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table as a statement names it, at the commit that its query reads."""

    table: Any
    """A ``Table``."""
    pin_name: str
    pin: PinnedCommit
    branch: str
    is_past: bool
    version: int | None


def find_table(lake: Lake, request: CatalogRequest) -> FoundTable:
    """The table that a name stands for, at the commit of the query. Whether it is there is not looked up."""
    name, version, is_past = request.name, None, False
    revision = name.revision
    if request.revision is not None and _is_version(request.revision):
        version, is_past = int(request.revision), True
    elif request.revision is not None:
        revision, is_past = request.revision, True
    elif request.time_us is not None:
        try:
            time = _EPOCH + timedelta(microseconds=request.time_us)
        except OverflowError:
            raise InvalidRequest(
                f"the time {request.time_us} (in µs since 1970) is outside the supported range"
            ) from None
        revision, is_past = write_revision_at(revision or lake.default_branch, time), True
    pin = request.pinned.get(revision)
    if pin is None:
        snapshot = lake.at(revision or None)
        pin = PinnedCommit(commit=snapshot.id, via=snapshot.via)
    table = Snapshot(lake, pin.commit, pin.via).table(name.key)
    return FoundTable(
        table=table, pin_name=revision, pin=pin, branch=name.revision, is_past=is_past, version=version
    )


def open_table_at_facts(lake: Lake, facts: TableFacts) -> Table:
    """The table of earlier facts, at the same commit."""
    if facts.pin is None:
        raise InvalidRequest(
            "the request lacks the field 'table': send what the request to load the table returned"
        )
    return Snapshot(lake, facts.pin.commit, facts.pin.via).table(Key(*facts.key))


def _is_version(text: str) -> bool:
    """Whether it is the version of a table, rather than a revision of the lake."""
    return text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS_MAX
