"""What a table format brings to an open lake, beside the rules by which its tables change.

The lake asks the plugins of its formats and names no format itself: who answers a call, what is left to be
done in the background, what a check has to look at. A plugin is made when a lake is opened, and loads nothing
of its format by that: most lakes have no table of some format, and most commands have to do with none. Each
part is made when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.errors import EraseRefused
from penstock.formats.rows.reader import TableRows
from penstock.kernel.format import Format
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.keys import Key
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place, Places

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.kernel.checks import BranchProposal
    from penstock.kernel.fsck import Damage
    from penstock.kernel.reachable import Progress
    from penstock.lake.answers import SweptTable, TableCommitResult
    from penstock.lake.call import Call, CommitDescription
    from penstock.lake.calls import EraseTable, SweepTables
    from penstock.lake.embedded import Embedded
    from penstock.lake.erase import Erasure
    from penstock.lake.resync_calls import Resync, ResyncedTable
    from penstock.lake.row_changes import ChangedRows, MergeClause, RowValues
    from penstock.lake.table import Table
    from penstock.lake.table_writer import RowWrite
    from penstock.lake.upkeep import AnalyzedTable, OptimizedTable, OptimizeOrder

NAMES_MAX: Final = 3
"""How many files of one table are named."""

Rows: TypeAlias = Callable[[], Any]
"""Begins to read the rows of a table, as a ``pyarrow.RecordBatchReader``, as often as it is called."""
Flaws: TypeAlias = Callable[[str, AnyContent], Iterator[tuple[str, str]]]
"""Tells what is wrong with the table at a key: the id of an object or the key, and what."""


class RowSource(NamedTuple):
    """Where a row worker finds the rows of a table as a proposal has it."""

    details: Any = None
    """What the worker needs to know beside the content. It is pickled."""
    keep_alive: Any = None
    """What must not be released until the worker has read the rows."""


class WorkerTable(NamedTuple):
    """A table as a row worker has it."""

    key: Key
    content: Any
    details: Any
    """See ``RowSource``."""
    objects: Objects
    places: Places
    warehouse: str


class ColumnBounds(NamedTuple):
    """What is known of the values of a column in a file, as text."""

    column: str
    lowest: str = ""
    highest: str = ""
    nulls: str = ""


class FileFacts(NamedTuple):
    """A file of a table, or what stands for one, for people to look at."""

    path: str
    identity: str = ""
    """Another one if other rows of the file are deleted."""
    size_bytes: int | None = None
    rows: int | None = None
    partition: str = ""
    bounds: tuple[ColumnBounds, ...] = ()


class VersionFacts(NamedTuple):
    """A version of a table, for people to look at."""

    version: int
    time: datetime | None = None
    operation: str = ""
    details: str = ""
    info: Mapping[str, Any] = {}
    """What its writer had to say, by the names of Delta's ``commitInfo``."""


class PastTableSize(NamedTuple):
    """How large a table was after one of its changes."""

    size_bytes: int
    """Of all its files."""
    version: int | None = None
    commit: str = ""
    """The lake's commit that made the change, of a table without versions."""
    time: datetime | None = None
    """Of that commit; that of a version is told with the version."""


class DescribedTable(NamedTuple):
    """What a table is, for people to look at."""

    facts: tuple[tuple[str, str], ...] = ()
    properties: Mapping[str, str] = {}
    list_files: Callable[[], Iterator[FileFacts]] = lambda: iter(())
    list_versions: Callable[[int], Sequence[VersionFacts]] = lambda _: ()
    """The newest first, at most so many."""
    list_sizes: Callable[[int], Sequence[PastTableSize]] = lambda _: ()
    """After the latest changes, as far as that is told without reading data; the newest first, at most so
    many."""


class NeededFolder(NamedTuple):
    """A folder, and which of its files are needed by what a lake retains."""

    location: str
    files: Callable[[], Iterator[BucketEntry]]
    """Lists them in the order of their names, which are below the folder."""
    needs: Callable[[str], bool]
    """Whether a file has to be there: some of those that are listed may go when others take their place."""
    is_unique: Callable[[str], bool]
    """Whether a name is never given to another file."""


class MissingFile(NamedTuple):
    """Something that a table needs at a branch or tag and that is not there."""

    table: str
    reference: str
    version: int | None
    what: str

    def __str__(self) -> str:
        version = "" if self.version is None else f" (version {self.version})"
        return f"'{self.table}' at '{self.reference}'{version}: {self.what}"


def list_missing(gone: Sequence[str]) -> str:
    """What is said of files that are gone."""
    more = f" and {len(gone) - NAMES_MAX} more" if len(gone) > NAMES_MAX else ""
    return f"{', '.join(gone[:NAMES_MAX])}{more} {'is' if len(gone) == 1 else 'are'} gone"


class MissingFiles:
    """Looks for files of tables of a format that are gone. It may remember what it has listed."""

    def find_missing(self, table: Table, reference: str) -> Iterator[MissingFile]:  # noqa: ARG002
        """The files of a table as a branch or tag has it, if they can be found one table at a time."""
        return iter(())

    def find_rest(self) -> Iterator[MissingFile]:
        """All others."""
        return iter(())


class TableSync(Protocol):
    """Takes over what tables of a format have and the lake does not know, each by one commit."""

    def list_tables(self) -> Iterator[tuple[Key, str]]:
        """The tables of the default branch, and their locations."""

    def resync_table(self, key: Key) -> ResyncedTable | None:
        """Take over the versions of a table. ``None`` if the lake knows them all."""

    def restore_dropped_table(self, key: Key, was: Any) -> ResyncedTable | None:
        """Bring back a table that was dropped and has got versions since, at a key where nothing is."""

    def adopt_unknown_table(
        self, place: Place, free_key: Callable[[str | None], Key]
    ) -> ResyncedTable | None:
        """Take over a table that the lake never had. ``None`` if none of the format lies at the place.

        ``free_key`` gives the key for a table that was created under a name.
        """


class TableSweep(Protocol):
    """Sweeps the tables of a format that have folders of their own, as one call asks for it."""

    def list_locations(self) -> list[str]:
        """Where there is something to sweep, as the call chooses it, sorted."""

    def sweep_locations(self, locations: Iterable[str]) -> Iterator[SweptTable]:
        """Sweep some of these places, and say of each what came of it.

        ``Damaged`` if history cannot be walked: then nothing was removed of tables that are not told.
        """

    def sweep_unlanded(self, limit: int | None) -> Iterator[SweptTable]:
        """Sweep folders that no commit has, unless they are among the locations; at most so many."""


class TableView(Protocol):
    """What a program does with a table of a format, wherever the lake is."""

    @property
    def location(self) -> str:
        """Where its files are."""

    @property
    def version(self) -> int:
        """Its latest version."""

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        """The rows as a ``pyarrow.Table``."""

    def append(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        """Add rows."""

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        """Put rows in the place of all, or of those in some partitions."""

    def write(self, rows: RowWrite) -> Any:
        """Write rows; the table is created if it does not exist. ``None`` if there was nothing to be done."""


class ChangeView(Protocol):
    """What else a program does with a table, of formats that can: views of others lack the methods."""

    def append_with_columns(
        self, data: Any, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        """Add rows, and the columns that only they have."""

    def delete(
        self, where: str | None, description: CommitDescription, idempotency_key: str | None
    ) -> ChangedRows:
        """Delete the rows for which a condition is true."""

    def update(
        self,
        values: RowValues,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> ChangedRows:
        """Give columns new values in the rows for which a condition is true."""

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        clauses: tuple[MergeClause, ...],
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> ChangedRows:
        """Update, delete and insert rows by those of a source."""

    def optimize(self, order: OptimizeOrder, description: CommitDescription) -> OptimizedTable:
        """Rewrite files with the same rows: fewer, sorted, without deleted rows."""

    def analyze(self, description: CommitDescription) -> AnalyzedTable:
        """Complete the statistics of files."""

    def checkpoint(self) -> int:
        """Write a checkpoint of the log; of which version."""


class FormatPlugin:
    """A table format, for one open lake. What a format does not have, it leaves as it is here."""

    name: ClassVar[str]
    """How changes name the format."""
    content_type: ClassVar[str]
    """The name of the type of content that a table of the format has."""
    calls: ClassVar[tuple[type[Call[Any]], ...]] = ()
    """The calls that the format answers."""
    usage: ClassVar[str]
    """What a table of the format is and how it is used, for who takes it for one of another format."""
    sweep_call: ClassVar[type[Any] | None] = None
    """The one of them that sweeps files which tables of the format share: it takes ``remove_data`` and
    ``dry_run``, and answers ``SweptFiles``."""
    record_folders: ClassVar[tuple[str, ...]] = ()
    """Folders inside of a table's folder that hold its records. No other table may lie in one."""
    folder_notes: ClassVar[tuple[str, ...]] = ()
    """Files by which a folder is known to be that of a table of the format, also if no commit has it."""

    def __init__(self, find_lake: Callable[[], Embedded]) -> None:
        """The lake is made of its plugins' rules, and there when anything else is asked of them."""
        self._find_lake = find_lake

    @property
    def lake(self) -> Embedded:
        return self._find_lake()

    @classmethod
    def has_type(cls, content: AnyContent | None) -> bool:
        """Whether a content is a table of this format, also one that the lake only points at or dropped."""
        return content is not None and content.type == cls.content_type

    @classmethod
    def manages(cls, content: AnyContent | None) -> bool:
        """Whether a content is a table of this format that the lake keeps, and not one it only points at."""
        return cls.has_type(content) and not (isinstance(content, ManagedTable) and content.state == b"")

    @property
    def rules(self) -> Format:
        """How a table changes, and how two changes meet: what the kernel asks of the format."""
        raise NotImplementedError

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        """What answers its calls."""
        return {}

    @property
    def long_handlers(self) -> Mapping[type[Call[Any]], Callable[[Any, Progress], Any]]:
        """What answers those of its calls that take long, and tells how far it is."""
        return {}

    # -- for people ----------------------------------------------------------------------------------------

    @classmethod
    def describe_version(cls, content: Any) -> str:  # noqa: ARG003
        """The version of a table, as ``v118``, or what stands for one; empty if it has none yet."""
        return ""

    @classmethod
    def describe_table(cls, table: Table) -> DescribedTable:  # noqa: ARG003
        """What a table is where it is looked at, wherever its lake is: its properties, files and versions."""
        return DescribedTable()

    # -- rows ----------------------------------------------------------------------------------------------

    @classmethod
    def rows_of(cls, table: Table) -> Rows:
        """The rows of a table where it is looked at, wherever its lake is."""
        raise NotImplementedError

    @classmethod
    def open_rows(cls, table: Table) -> TableRows:
        """The same, all of one state, for a format that can leave out files, count rows or tell parts apart.

        In a transaction, what is read of them is noted.
        """
        table.note_read()
        return TableRows(table.key, cls.rows_of(table))

    def proposed_rows(self, proposal: BranchProposal, key: Key, content: Any) -> Rows:
        """The rows that a table would have."""
        raise NotImplementedError

    def row_source(self, proposal: BranchProposal, key: Key, content: Any) -> RowSource:  # noqa: ARG002
        """Where a process apart from this one finds the rows that a table would have."""
        return RowSource()

    @classmethod
    def rows_in_worker(cls, table: WorkerTable) -> Rows:
        """The same rows, in that process."""
        raise NotImplementedError

    # -- in the background ---------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Have published, in the background, what earlier processes left."""

    def await_published(self, landed: Iterable[tuple[Key, AnyContent | None]], timeout_s: float) -> None:
        """Give the publishing of tables that landed on the default branch a moment."""

    def finish(self, timeout_s: float) -> dict[str, PenstockError | None]:  # noqa: ARG002
        """Until nothing is left to be done in the background, for at most so long; returns what is left, each
        with what stands against it."""
        return {}

    def report_metrics(self) -> None:
        """Tell the meter what grows old by itself."""

    def close(self, timeout_s: float) -> None:
        """Publish what was committed here, for at most so long, and then no more."""

    # -- erase ---------------------------------------------------------------------------------------------

    def erasure(self, call: EraseTable) -> Erasure:
        """The format's half of an erase of a table of the default branch."""
        raise self.refuse_erase(call)

    def dropped_erasure(self, call: EraseTable, content: Any) -> Erasure:  # noqa: ARG002
        """The same for a table that was dropped there, as it was then."""
        raise self.refuse_erase(call)

    def refuse_erase(self, call: EraseTable) -> EraseRefused:
        """What is said where the format cannot erase."""
        return EraseRefused(
            f"'{call.key}' is a {self.content_type}, and the format '{self.name}' cannot erase "
            "rows\n  'penstock sweep' removes deleted rows once no retained commit contains them.",
            table=str(call.key),
        )

    # -- resync --------------------------------------------------------------------------------------------

    def table_sync(self, call: Resync) -> TableSync | None:  # noqa: ARG002
        """What brings the lake up to its tables; ``None`` if tables of the format have no versions but those
        of the lake's commits."""
        return None

    # -- files -------------------------------------------------------------------------------------------

    def table_sweep(self, call: SweepTables, progress: Progress) -> TableSweep | None:  # noqa: ARG002
        """What removes files that nothing needs; ``None`` if tables have no folders of their own."""
        return None

    def needed_folders(self, problems: list[str], progress: Progress) -> Iterator[NeededFolder]:  # noqa: ARG002
        """The folders in which retained states of tables have files. What stands against knowing what one
        needs is added to ``problems``."""
        return iter(())

    def missing_files(self) -> MissingFiles:
        """What looks for files that tables need and that are gone."""
        return MissingFiles()

    # -- checks --------------------------------------------------------------------------------------------

    def content_check(self, objects: Objects) -> Flaws | None:  # noqa: ARG002
        """What finds flaws in stored contents of the format; it may remember what it has looked at."""
        return None

    def unreadable_tables(self) -> Iterator[Damage]:
        """Tables of retained states that cannot be read, since files of theirs are gone."""
        return iter(())


class BackgroundServices(Protocol):
    """The part of a format that works in the background."""

    def catch_up(self) -> None: ...
    def finish(self, timeout_s: float) -> dict[str, PenstockError | None]: ...
    def report_metrics(self) -> None: ...
    def close(self, timeout_s: float) -> None: ...


P = TypeVar("P", bound=BackgroundServices)


class PublishingPlugin(FormatPlugin, Generic[P]):
    """A format whose tables are published in the background, once a lake has one."""

    def __init__(self, find_lake: Callable[[], Embedded]) -> None:
        super().__init__(find_lake)
        self._making = RLock()
        self._parts: P | None = None

    def make_parts(self) -> P:
        """Make what it takes to own tables of the format."""
        raise NotImplementedError

    @property
    def parts(self) -> P:
        """What it takes to own tables of the format, made when it is first asked for."""
        with self._making:
            if self._parts is None:
                self._parts = self.make_parts()
            return self._parts

    def catch_up(self) -> None:
        self.parts.catch_up()

    def finish(self, timeout_s: float) -> dict[str, PenstockError | None]:
        return {} if self._parts is None else self._parts.finish(timeout_s)

    def report_metrics(self) -> None:
        if self._parts is not None:
            self._parts.report_metrics()

    def close(self, timeout_s: float) -> None:
        if self._parts is not None:
            self._parts.close(timeout_s)
