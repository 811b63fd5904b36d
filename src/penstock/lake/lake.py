"""A lake: what a program holds. Branches, tags, tables and history, in this process or behind a server."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, LakeNotFound, NotFound
from penstock.formats.registry import load_member
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake import calls
from penstock.lake.answers import (
    About,
    LogLine,
)
from penstock.lake.audits.calls import AddExpectation, ListExpectations, RemoveExpectation
from penstock.lake.call import CommitOptions, commit_fields
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.checks import CheckInfo, Proposed, add_check, list_checks, remove_check
from penstock.lake.embedded import Embedded
from penstock.lake.empty_place import EmptyPlace
from penstock.lake.history import LOG_LIMIT, LakeHistory
from penstock.lake.maintenance import LakeMaintenance
from penstock.lake.merges import LakeMerges
from penstock.lake.notebook_progress import show_progress
from penstock.lake.options import TransactionOptions
from penstock.lake.suggestion import add_suggestion
from penstock.lake.table import Table
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import GetTransaction, ListTransactions
from penstock.lake.transactions.read_set import NotedReads, note_reads
from penstock.lake.transactions.runner import TransactionRun, run_in_transaction
from penstock.lake.transactions.transaction import Transaction, begin_transaction
from penstock.lake.views import Branch, Snapshot, Tag
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.operations import Operation, Unchanged
from penstock.model.reads import Read
from penstock.model.references import Kind, Reference
from penstock.storage.moved_roots import MovedRoots
from penstock.storage.places import Places

if TYPE_CHECKING:
    from penstock.formats.public_types import (
        DeltaCreation,
        DeltaTables,
        ExportResult,
        FilesSystem,
        ImportResult,
        JobInfo,
        PenstockNamespace,
    )
    from penstock.kernel.kernel import Kernel
    from penstock.lake.audits.publication import PublishOptions, PublishResult
    from penstock.lake.sql.result import SqlResult
    from penstock.lake.sql.row_diff import RowDiff

BACKGROUND_S = 60.0
"""How long is waited for what is done in the background; longer than the longest pause between two tries."""
RETRIES = 5
"""How often a function is run again that others kept from landing."""
COMMIT_ID_CHARS = 64

R = TypeVar("R")
T = TypeVar("T")


class Lake(LakeHistory, LakeMerges, LakeMaintenance):
    """A versioned catalogue of tables. Made by ``penstock.open``; may be used by many threads."""

    def __init__(self, catalogue: Catalogue, author: str | None = None) -> None:
        self._catalogue = catalogue
        self.author = author if author is not None else _find_current_user()
        self._known_about: About | None = None
        if not isinstance(catalogue, EmptyPlace):
            self._known_about = catalogue.do(calls.GetAbout())
        self._places: Places | None = None
        self._opening_places = Lock()
        self.noted = NotedReads()
        """What was read in transactions, and is remembered with them already."""

    def __repr__(self) -> str:
        return f"<Lake {self.url} default branch {self.default_branch!r}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_lake

        return show_lake(self)

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that answers calls, for servers of the lake. A missing lake is created."""
        if isinstance(self._current_catalogue, EmptyPlace):
            return self._current_catalogue.open_or_make_lake(makes=True)
        return self._current_catalogue

    @property
    def _current_catalogue(self) -> Catalogue:
        """What answers the calls: a kernel in this process, a server, or a place without a lake."""
        if isinstance(self._catalogue, EmptyPlace) and self._catalogue.lake is not None:
            return self._catalogue.lake
        return self._catalogue

    @property
    def page_max(self) -> int | None:
        """How many items a list gives at once; ``None`` if a call may ask for all of them."""
        return self._current_catalogue.page_max

    def begin_write(self, *, makes_lake: bool = True) -> None:
        """Create the lake if there is none yet. For operations that read, or store files, before they commit.

        ``Denied`` if this process may only read the lake, before anything is stored.
        """
        catalogue = self._current_catalogue
        if isinstance(catalogue, EmptyPlace) and makes_lake:
            catalogue = catalogue.open_or_make_lake(makes=True)
        if isinstance(catalogue, Embedded):
            catalogue.kernel.store.require_writable()

    @property
    def is_made_here(self) -> bool:
        """Whether a write of this object made the lake."""
        return isinstance(self._catalogue, EmptyPlace) and self._catalogue.is_made_here

    @property
    def _cached_description(self) -> About:
        """What never changes of a lake; ``LakeNotFound`` if there is none yet."""
        if self._known_about is None:
            self._known_about = self.do(calls.GetAbout())
        return self._known_about

    def close(self) -> None:
        """Close the store, or the connections to the server.

        A lake in this process first publishes ratified versions, for at most the time that its settings
        allow.
        """
        self._catalogue.close()
        with self._opening_places:
            places, self._places = self._places, None
        if places is not None:
            places.close()

    def finish_background(self, timeout_s: float = BACKGROUND_S) -> None:
        """Wait until the lake has finished the background work of the commits before this call.

        Delta tables are published and have their checkpoints, Lance tables are promoted, and what writers had
        staged is removed: direct readers and a backup of the folders find all that was committed. What a
        client of Lance's was sent to before that stays until a sweep. It holds for what was committed with
        this object, and for what other processes had left when it was opened. No commit needs this to be
        kept: it is durable when it is answered.

        What only an administrator can mend, such as a ``ForeignCommit``, is raised and not waited for, once
        all else is done. ``Unavailable`` names what is left when the time is over, which it also is while
        others commit to the same table all the time. ``InvalidRequest`` if the lake is behind a server, which
        does this work.
        """
        catalogue = self._current_catalogue
        if isinstance(catalogue, EmptyPlace):
            return
        if not isinstance(catalogue, Embedded):
            raise InvalidRequest(
                f"{self.url} is a server: background work can only be awaited in the process that runs it"
            )
        catalogue.finish_background(timeout_s)

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        """Run a call. The error for a name that does not exist suggests a similar one."""
        catalogue = self._current_catalogue
        try:
            return catalogue.do(call, progress)
        except NotFound as problem:
            if isinstance(catalogue, Embedded):  # a server has done so
                add_suggestion(problem, catalogue)
            raise

    def key_not_found(self, key: Key, ref: str) -> KeyNotFound:
        """Return the error for a key that does not exist, with a similar key as a suggestion."""
        where = f"commit {ref[:8]}" if len(ref) == COMMIT_ID_CHARS else f"'{ref}'"
        problem = KeyNotFound(f"there is no '{key}' at {where}", key=str(key), ref=ref)
        add_suggestion(problem, self._current_catalogue)
        return problem

    def pages(self, call: Call[tuple[T, ...]], limit: int | None, next_page: Callable[[T], Any]) -> list[T]:
        """The items of a list, up to a limit or all; ``next_page`` says how to go on after the last one."""
        return list(self._list_pages(call, limit, next_page))

    def _list_pages(
        self, call: Call[tuple[T, ...]], limit: int | None, next_page: Callable[[T], dict[str, Any]]
    ) -> Iterator[T]:
        most = self.page_max
        while True:
            page_limit = limit if most is None or (limit is not None and limit < most) else most
            page = self.do(msgspec.structs.replace(call, limit=page_limit))
            yield from page
            limit = None if limit is None else limit - len(page)
            if page_limit is None or len(page) < page_limit or limit == 0:
                return
            call = msgspec.structs.replace(call, **next_page(page[-1]))

    @property
    def is_embedded(self) -> bool:
        """Whether this process opens the lake itself, without a server."""
        return isinstance(self._current_catalogue, Embedded | EmptyPlace)

    @property
    def kernel(self) -> Kernel:
        """The kernel of an embedded lake; ``InvalidRequest`` if the lake is behind a server.

        The lake is made if there is none yet.
        """
        if isinstance(catalogue := self.catalogue, Embedded):
            return catalogue.kernel
        raise InvalidRequest(f"this needs direct access to the lake's store; {self.url} is a server")

    @property
    def places(self) -> Places:
        """The storage of tables, with this process's own access to it."""
        if isinstance(catalogue := self._current_catalogue, Embedded):
            return catalogue.places
        with self._opening_places:
            if self._places is None:
                self._places = Places(MovedRoots(self._cached_description.moved_roots))
            return self._places

    @property
    def delta(self) -> DeltaTables:
        """Operations on all Delta tables of the lake: adopt, release, publish, show their status."""
        tables: DeltaTables = load_member("lake.delta")(self)
        return tables

    @property
    def about(self) -> About:
        """The present description of the lake."""
        return self.do(calls.GetAbout())

    @property
    def id(self) -> str:
        """The lake's own id, which stays when it moves to another store."""
        return self._cached_description.id

    @property
    def url(self) -> str:
        """Where the lake is, without secrets."""
        catalogue = self._current_catalogue
        return catalogue.url if isinstance(catalogue, EmptyPlace) else self._cached_description.url

    @property
    def forked_from(self) -> str:
        """The id of the lake from which this one was forked; empty if it is not a fork."""
        return self._cached_description.forked_from

    @property
    def moving_to(self) -> str:
        """The address to which the lake is moving or has moved, so that it is read-only here; otherwise
        empty."""
        return self.about.moving_to

    @property
    def default_branch(self) -> str:
        """The branch that is used if none is given."""
        try:
            return self._cached_description.default_branch
        except LakeNotFound:
            return EmptyPlace.default_branch

    @property
    def warehouse(self) -> str:
        """The location in which tables are created by default."""
        catalogue = self._current_catalogue
        return (
            catalogue.warehouse if isinstance(catalogue, EmptyPlace) else self._cached_description.warehouse
        )

    @property
    def roots(self) -> tuple[str, ...]:
        """All locations where tables may be, the warehouse first."""
        return self.about.roots

    def _or_default(self, name: str | None) -> str:
        return self.default_branch if name is None else name

    # -- references ------------------------------------------------------------------------------------

    def branch(self, name: str | None = None) -> Branch:
        """Return a branch, by default the default branch. Its existence is checked when it is used."""
        return Branch(self, self._or_default(name))

    def tag(self, name: str) -> Tag:
        """Return a tag. Its existence is checked when it is used."""
        return Tag(self, name)

    def branches(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> list[Branch]:
        """Branches by name; with a ``limit`` go on ``after`` the last name."""
        return [
            Branch(self, reference.name) for reference in self.references(Kind.BRANCH, prefix, after, limit)
        ]

    def tags(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> list[Tag]:
        """Tags by name; with a ``limit`` go on ``after`` the last name."""
        return [Tag(self, reference.name) for reference in self.references(Kind.TAG, prefix, after, limit)]

    def deleted(self, prefix: str = "") -> list[str]:
        """Names of deleted references whose log can still be read."""
        return [reference.name for reference in self.references(Kind.DELETED, prefix)]

    def references(
        self, kind: Kind = Kind.BRANCH, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[Reference]:
        """References of one kind as they are now, by name; with a ``limit`` go on ``after`` the last name."""
        call = calls.ListReferences(kind=kind, prefix=prefix, after=after)
        return self.pages(call, limit, lambda last: {"after": last.name})

    def reflog(self, name: str | None = None, *, limit: int = LOG_LIMIT) -> list[LogLine]:
        """The changes of a branch or tag, newest first; also those of a deleted one."""
        call = calls.GetReferenceLog(name=self._or_default(name))
        return self.pages(call, limit, lambda last: {"before": last.position})

    # -- reading ---------------------------------------------------------------------------------------

    def resolve(self, revision: str | None = None) -> str:
        """The commit id that a revision such as ``main~3`` names."""
        return self.do(calls.Resolve(revision=revision)).commit

    def at(self, revision: str | Commit | None = None) -> Snapshot:
        """Return the lake at a commit, which never changes."""
        resolved = self.do(calls.Resolve(revision=revision.id if isinstance(revision, Commit) else revision))
        return Snapshot(self, resolved.commit, resolved.name)

    def table(self, key: str | Key, ref: str | None = None) -> Table:
        """A table at a reference, the default branch if none is given."""
        return Table(self, Key.parse(key), self._or_default(ref))

    def create_table(
        self, key: str | Key, *, schema: Any = None, data: Any = None, **options: Unpack[DeltaCreation]
    ) -> Table:
        """Create a Delta table from a ``schema`` or from ``data``; the same as ``lake.delta.create``."""
        return self.delta.create(key, schema=schema, data=data, **options)

    def files_system(self, ref: str | None = None, *, pinned: bool = False) -> FilesSystem:
        """Return the tables of files at a reference as an ``fsspec`` file system, with paths such as
        ``raw.events/day=1/part-0.parquet``.

        A ``pinned`` one reads a branch as it was when it first looked, until it writes itself; others look
        anew every time. ``InvalidRequest`` if ``fsspec`` is not installed.
        """
        system: FilesSystem = load_member("lake.files_system")(self, self._or_default(ref), pinned=pinned)
        return system

    def lance(self, ref: str | None = None, *, via: str | None = None) -> PenstockNamespace:
        """Return the Lance tables at a reference as a Lance namespace, for Lance's own clients.

        On a branch, or in a transaction, it also writes. Any other revision is looked up once, and what it
        gives never changes. ``via`` is the reference that led to it, where it is a commit id.
        ``InvalidRequest`` if Lance's packages are not installed.
        """
        namespace: PenstockNamespace = load_member("lake.lance")(self, ref, via)
        return namespace

    def import_lance(
        self,
        root: str | Path,
        namespace: str | Key | None = None,
        *,
        dry_run: bool = False,
        **options: Unpack[CommitOptions],
    ) -> ImportResult:
        """Register all tables of a Lance directory namespace on the default branch, in one commit.

        The tables stay where they are, below a root of the lake, and keep their names, below ``namespace`` if
        one is given. If some tables cannot be registered, none is, and ``InvalidRequest`` lists them.
        """
        load_tables = load_member("lake.import_lance")
        imported: ImportResult = load_tables(self, root, namespace, dry_run=dry_run, **options)
        return imported

    def export_lance(
        self, root: str | Path, ref: str | None = None, *, dry_run: bool = False
    ) -> ExportResult:
        """Export the Lance tables of a branch as a directory namespace at a folder above them.

        Programs that open the folder do not need the lake, and see promoted versions. Called again, it adds
        new tables. If some tables cannot be listed there, none is, and ``InvalidRequest`` names them.
        """
        exported: ExportResult = load_member("lake.export_lance")(self, root, ref, dry_run=dry_run)
        return exported

    def tables(self, prefix: str | Key | None = None, ref: str | None = None) -> list[Table]:
        """The tables (and views and functions) below a namespace, or all."""
        return self.at(ref).tables(prefix)

    def sql(self, query: str, ref: str | None = None) -> SqlResult:
        """Run a query over tables of all formats with DuckDB: ``select … from sales.orders where …``.

        Tables are named by their keys, at one commit: that of ``ref``, the default branch if none is given.
        ``"sales.orders@dev"``, in quotes, is the table at another revision. Only the columns and files that
        the query needs are read, when you fetch the rows: ``to_pandas()``, ``to_polars()``, ``to_arrow()``,
        ``fetchall()``. ``InvalidRequest`` if the text is not a single query that only reads tables,
        ``KeyNotFound`` if a table does not exist.
        """
        return self.at(ref).sql(query)

    @show_progress
    def diff_rows(
        self,
        key: str | Key,
        before: str,
        after: str,
        *,
        on: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        progress: Progress = show_no_progress,
    ) -> RowDiff:
        """Compare the rows of a table between two revisions: ``added``, ``removed`` and ``changed``.

        ``on`` names the columns that identify a row: rows with the same values there, and others elsewhere,
        are changed. Without it whole rows are compared, as often as each is there. ``columns`` are those to
        be compared, all that both revisions have if none are named. Only files are read that one revision has
        and the other has not, in tables of all formats; DuckDB compares the rows.
        """
        from penstock.lake.sql.row_diff import diff_rows

        return diff_rows(self, key, before, after, on, columns, progress)

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self,
        operations: Sequence[Operation],
        *,
        branch: str | None = None,
        properties: Mapping[str, str | Sequence[str]] | None = None,
        base: str | None = None,
        if_head: str | None = None,
        incarnation: bytes | None = None,
        create_namespaces: bool = False,
        **options: Unpack[CommitOptions],
    ) -> Commit:
        """Commit operations to a branch, all or none, and return the commit.

        ``base`` is the commit that was read: every key must still hold what it held there, else
        ``CommitConflict`` names all that changed. Without it the operations act on the branch as it is.
        ``incarnation`` (of ``branch.reference``) refuses a branch that was deleted and created anew.
        The same request under the same ``idempotency_key`` is done once, however often it is sent, by
        whomever, and wherever names in it lead by then. In a transaction, what must be unchanged has to be so
        still where that lands, as if it was read.
        """
        options.setdefault("message", "")
        call = calls.CommitOperations(
            operations=tuple(operations),
            branch=branch,
            base=base,
            if_head=if_head,
            incarnation=incarnation,
            create_namespaces=create_namespaces,
            who=self.author,
            **commit_fields(properties, **options),
        )
        unchanged = [Read(key=operation.key) for operation in operations if isinstance(operation, Unchanged)]
        if not unchanged:
            return self.do(call)
        if if_head is None:
            note_reads(self, branch, None, *unchanged)
            return self.do(call)
        commit = self.do(call)  # to note anything moves the head
        note_reads(self, branch, None, *unchanged)
        return commit

    def outcome(
        self, idempotency_key: str, branch: str | None = None, *, who: str | None = None
    ) -> Commit | None:
        """Return the commit that the request with an idempotency key made, the newest if it made several.

        ``None`` if the request was not applied, or made no commit. Every token has its own keys: ``who`` is
        the name of the token that used the key through a server, if it is not the caller's.
        """
        name = self._or_default(branch)
        landing = self.do(calls.GetOutcome(key=idempotency_key, branch=name, who=who))
        if landing is None or landing.head == EMPTY_COMMIT_ID:
            return None
        return landing.commit or self.do(calls.GetCommit(revision=landing.head, via=name))

    # -- jobs ----------------------------------------------------------------------------------------------

    def jobs(
        self,
        key: str | Key | None = None,
        branch: str | None = None,
        *,
        all: bool = False,  # noqa: A002
    ) -> list[JobInfo]:
        """List running jobs, newest first: all, or those of a table or branch. ``all`` includes jobs that
        ended recently."""
        call: Call[tuple[JobInfo, ...]] = load_member("lake.jobs")(
            key=None if key is None else Key.parse(key), branch=branch, all=all
        )
        jobs = self.pages(call, None, lambda last: {"after": last.id})
        return [*{job.id: job for job in jobs}.values()]  # one may come on two pages

    def abort_job(self, job_id: str, why: str = "") -> JobInfo:
        """Abort a job, so that it never lands. A job that is committing, or has committed, is returned
        unchanged."""
        call: Call[JobInfo] = load_member("lake.abort_job")(id=job_id, why=why, who=self.author)
        return self.do(call)

    # -- transactions ----------------------------------------------------------------------------------

    def transaction(
        self,
        target: str | None = None,
        *,
        message: str = "",
        isolation: str = "snapshot",
        policy: str = "rebase",
        lease_s: float | None = None,
        id: str | None = None,  # noqa: A002
        properties: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Begin a transaction on a branch, by default the default branch.

        Used as ``with lake.transaction() as tx:``, all writes of ``tx`` land at the end of the block, as one
        commit, and none does if the block raises. ``policy`` decides what happens if others changed the same
        tables meanwhile: ``rebase`` merges, ``snapshot`` refuses. ``isolation`` decides which reads must
        still hold when it lands: those of tables that the transaction changed, or with ``serializable`` all.
        Its lease lasts ``lease_s``, and this process renews it. With the ``id`` of an open transaction, that
        one continues.
        """
        return begin_transaction(
            self,
            target,
            message=message,
            isolation=isolation,
            policy=policy,
            lease_s=lease_s,
            id=id,
            properties=properties,
        )

    def run(
        self,
        function: Callable[[Transaction], R],
        target: str | None = None,
        *,
        retries: int = RETRIES,
        **options: Unpack[TransactionOptions],
    ) -> TransactionRun[R]:
        """Run a function in a transaction that lands at the end; run it again after a conflict with other
        writers.

        The function gets the transaction, and may be called up to ``retries`` more times, each time with a
        new one. So its other effects must be repeatable, and it must open row streams itself: a stream that
        was already consumed is refused. A conflict, or a lake that does not answer, is retried after a wait,
        and raised after the last try, with the number of ``tries`` in its details. A failed check or an
        unknown outcome is raised at once; ``OutcomeUnknown`` says how to find out.
        """
        return run_in_transaction(self, function, target, retries, options)

    def transactions(
        self,
        target: str | None = None,
        *,
        all: bool = False,  # noqa: A002
        limit: int | None = None,
    ) -> list[TransactionInfo]:
        """List open transactions, by id: all, or those of one target branch. ``all`` includes transactions
        that ended recently."""
        call = ListTransactions(target=target, all=all)
        return self.pages(call, limit, lambda last: {"after": last.id})

    def find_transaction(self, transaction_id: str) -> Transaction:
        """Return a transaction by its id, to show or to end it: its lease is not renewed.

        ``TransactionNotFound`` if it does not exist, or no longer.
        """
        return Transaction(self, self.do(GetTransaction(id=transaction_id)), beats=False)

    # -- checks ----------------------------------------------------------------------------------------

    def add_check(self, name: str, function: Callable[[Proposed], Any], branch: str | None = None) -> None:
        """Add a check: a function that inspects every change of a branch before it lands.

        The function gets the exact result of every commit, merge, transplant, revert and rebase of the
        branch, by default the default branch; a pattern such as ``"release/*"`` names several. It vetoes by
        raising ``penstock.Vetoed``, or by returning the reason as text, or ``False``: the writer gets
        ``CommitVetoed``, and nothing changes. A check that raises any other error vetoes too. ``UserWarning``
        if no branch of that name exists yet. Checks belong to this process, while the lake is open;
        ``InvalidRequest`` if the lake is behind a server, which has its own.
        """
        add_check(self, name, function, self._or_default(branch))

    def remove_check(self, name: str) -> None:
        """Remove a check."""
        remove_check(self, name)

    def checks(self) -> list[CheckInfo]:
        """The checks of this process, in the order in which they run."""
        return list_checks(self)

    def expect(
        self, name: str, sql: str, branch: str | None = None, *, missing_ok: bool = False
    ) -> tuple[Expectation, ...]:
        """Add an expectation to a branch: a query that must find no row; returns all expectations of the
        branch.

        It is stored with the branch: every process and server runs it before a change lands there, if the
        change is to a table that the query names. ``InvalidRequest`` if it is not a DuckDB query that only
        reads tables, ``CommitVetoed`` if it does not hold now, ``KeyNotFound`` if a table does not exist,
        unless ``missing_ok``: then it is not checked until a table with exactly that key exists.
        """
        name_of_branch = self._or_default(branch)
        return self.do(
            AddExpectation(branch=name_of_branch, name=name, sql=sql, missing_ok=missing_ok, who=self.author)
        )

    def expectations(self, branch: str | None = None) -> tuple[Expectation, ...]:
        """The expectations of a branch, in the order in which they were added."""
        return self.do(ListExpectations(branch=self._or_default(branch)))

    def unexpect(self, name: str, branch: str | None = None) -> tuple[Expectation, ...]:
        """Remove an expectation from a branch; returns the remaining ones."""
        return self.do(RemoveExpectation(branch=self._or_default(branch), name=name, who=self.author))

    def publish(
        self, branch: str, into: str | None = None, **options: Unpack[PublishOptions]
    ) -> PublishResult:
        """Publish a branch: check its present commit, and merge exactly that if all ``checks`` hold.

        Each check has a name, and is a query that must return no row, with tables named by their keys, or a
        function that gets an ``AuditedBranch`` and returns what a check returns. Spark runs queries if a
        session is given, otherwise DuckDB. ``ChecksFailed`` names every check that does not hold; then the
        branch is kept, or dropped if ``otherwise`` is ``"drop"`` and nobody wrote to it meanwhile.
        """
        from penstock.lake.audits.publication import publish

        return publish(self, branch, self._or_default(into), **options)


def _find_current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
