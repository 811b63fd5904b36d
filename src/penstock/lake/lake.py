"""A lake: what a program holds. Branches, tags, tables and history, in this process or behind a server."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from penstock.errors import InvalidName, InvalidRequest, KeyNotFound, LakeNotFound, NotFound
from penstock.formats.registry import load, load_member
from penstock.kernel.description import HistoryRule
from penstock.kernel.fsck import Checked
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.sweep import Swept
from penstock.lake import calls
from penstock.lake.answers import (
    About,
    Comparison,
    Difference,
    ErasedTable,
    Figures,
    LogLine,
    LogSearch,
    SweptFiles,
    SweptTable,
    join_swept,
)
from penstock.lake.audits.calls import AddExpectation, ListExpectations, RemoveExpectation
from penstock.lake.call import CommitOptions, commit_fields
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.checks import CheckInfo, Proposed, add_check, checks_of, remove_check
from penstock.lake.embedded import Embedded
from penstock.lake.empty_place import EmptyPlace
from penstock.lake.lists import CommitLog, Differences
from penstock.lake.notebook_progress import show_progress
from penstock.lake.options import CommitFilter, TransactionOptions
from penstock.lake.plugins import sweep_calls
from penstock.lake.read_calls import SEARCHED_MAX
from penstock.lake.resync_calls import Resync, Resynced
from penstock.lake.suggestion import add_suggestion
from penstock.lake.table import Table
from penstock.lake.tokens import new_token
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import GetTransaction, ListTransactions
from penstock.lake.transactions.read_set import NotedReads, note_reads
from penstock.lake.transactions.runner import TransactionRun, run
from penstock.lake.transactions.transaction import Transaction, begin_transaction
from penstock.lake.views import Branch, Snapshot, Tag
from penstock.model.clock import now_us
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.merges import HowToMerge, KeyMerge, MergeMode, MergeResult
from penstock.model.names import moment, parse_time
from penstock.model.operations import Operation, Unchanged
from penstock.model.reads import Read
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Token
from penstock.storage.moved_roots import MovedRoots
from penstock.storage.places import Places

if TYPE_CHECKING:
    from penstock.formats.public_types import (
        DeltaCreation,
        DeltaTables,
        Exported,
        FilesSystem,
        Imported,
        JobInfo,
        PenstockNamespace,
    )
    from penstock.kernel.kernel import Kernel
    from penstock.lake.audits.publication import Published, PublishOptions
    from penstock.lake.sql.result import SqlResult
    from penstock.lake.sql.row_diff import RowDiff

LOG_LIMIT = 100
BACKGROUND_S = 60.0
"""How long is waited for what is done in the background; longer than the longest pause between two tries."""
RETRIES = 5
"""How often a function is run again that others kept from landing."""

R = TypeVar("R")
T = TypeVar("T")


class Lake:
    """A versioned catalogue of tables. Made by ``penstock.open``; may be used by many threads."""

    def __init__(self, catalogue: Catalogue, author: str | None = None) -> None:
        self._catalogue = catalogue
        self.author = author if author is not None else _user()
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
        shown: str = load("penstock.lake.notebook:show_lake")(self)
        return shown

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def catalogue(self) -> Catalogue:
        """What answers the calls, for those who serve the lake: it is made if there is none yet."""
        if isinstance(self._now, EmptyPlace):
            return self._now.open(makes=True)
        return self._now

    @property
    def _now(self) -> Catalogue:
        """What answers the calls: a kernel in this process, a server, or a place without a lake."""
        if isinstance(self._catalogue, EmptyPlace) and self._catalogue.lake is not None:
            return self._catalogue.lake
        return self._catalogue

    @property
    def page_max(self) -> int | None:
        """How many items a list gives at once; ``None`` if a call may ask for all of them."""
        return self._now.page_max

    def begin_write(self, *, makes_lake: bool = True) -> None:
        """For what looks, or stores files, before it commits: make the lake if there is none yet.

        ``Denied`` if this process may only read the lake, before anything is stored.
        """
        catalogue = self._now
        if isinstance(catalogue, EmptyPlace) and makes_lake:
            catalogue = catalogue.open(makes=True)
        if isinstance(catalogue, Embedded):
            catalogue.kernel.store.require_writable()

    @property
    def is_made_here(self) -> bool:
        """Whether a write of this object made the lake."""
        return isinstance(self._catalogue, EmptyPlace) and self._catalogue.is_made_here

    @property
    def _about(self) -> About:
        """What never changes of a lake; ``LakeNotFound`` if there is none yet."""
        if self._known_about is None:
            self._known_about = self.do(calls.GetAbout())
        return self._known_about

    def close(self) -> None:
        """Let go of the store, or of the connections to the server.

        A lake in this process publishes first what it ratified, for as long as its settings say.
        """
        self._catalogue.close()
        with self._opening_places:
            places, self._places = self._places, None
        if places is not None:
            places.close()

    def finish_background(self, timeout_s: float = BACKGROUND_S) -> None:
        """Wait until the lake has done in the background what follows from the commits before this call.

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
        catalogue = self._now
        if isinstance(catalogue, EmptyPlace):
            return
        if not isinstance(catalogue, Embedded):
            raise InvalidRequest(
                f"{self.url} is a server: background work can only be awaited in the process that runs it"
            )
        catalogue.finish_background(timeout_s)

    def do(self, call: Call[R], progress: Progress = silent) -> R:
        """Carry out a call. A name that does not exist is told with the one that was probably meant."""
        catalogue = self._now
        try:
            return catalogue.do(call, progress)
        except NotFound as problem:
            if isinstance(catalogue, Embedded):  # a server has done so
                add_suggestion(problem, catalogue)
            raise

    def key_not_found(self, key: Key, ref: str) -> KeyNotFound:
        """The error that says that there is nothing at a key, with the key that was probably meant."""
        problem = KeyNotFound(f"there is no '{key}' at '{ref}'", key=str(key), ref=ref)
        add_suggestion(problem, self._now)
        return problem

    def pages(self, call: Call[tuple[T, ...]], limit: int | None, next_page: Callable[[T], Any]) -> list[T]:
        """The items of a list, up to a limit or all; ``next_page`` says how to go on after the last one."""
        return list(self._pages(call, limit, next_page))

    def _pages(
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
        """Whether the lake is answered in this process, not by a server."""
        return isinstance(self._now, Embedded | EmptyPlace)

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
        if isinstance(catalogue := self._now, Embedded):
            return catalogue.places
        with self._opening_places:
            if self._places is None:
                self._places = Places(MovedRoots(self._about.moved_roots))
            return self._places

    @property
    def delta(self) -> DeltaTables:
        """The lake's Delta tables as a whole: adopt and release them, see how far they are published."""
        tables: DeltaTables = load_member("lake.delta")(self)
        return tables

    @property
    def about(self) -> About:
        """What the lake says of itself now."""
        return self.do(calls.GetAbout())

    @property
    def id(self) -> str:
        """The lake's own id, which stays when it moves to another store."""
        return self._about.id

    @property
    def url(self) -> str:
        """Where the lake is, without secrets."""
        catalogue = self._now
        return catalogue.url if isinstance(catalogue, EmptyPlace) else self._about.url

    @property
    def forked_from(self) -> str:
        """The id of the lake that this one is a fork of; empty if it is none."""
        return self._about.forked_from

    @property
    def moving_to(self) -> str:
        """Where the lake is moving, or has moved, so that it takes no more writes here; empty if it stays."""
        return self.about.moving_to

    @property
    def default_branch(self) -> str:
        """The branch that is meant where none is given."""
        try:
            return self._about.default_branch
        except LakeNotFound:
            return EmptyPlace.default_branch

    @property
    def warehouse(self) -> str:
        """Where tables are that have no location of their own."""
        catalogue = self._now
        return catalogue.warehouse if isinstance(catalogue, EmptyPlace) else self._about.warehouse

    @property
    def roots(self) -> tuple[str, ...]:
        """All places where tables may be, the warehouse first."""
        return self.about.roots

    def _or_default(self, name: str | None) -> str:
        return self.default_branch if name is None else name

    # -- references ------------------------------------------------------------------------------------

    def branch(self, name: str | None = None) -> Branch:
        """A branch, the default one if no name is given. Whether it exists is asked when it is used."""
        return Branch(self, self._or_default(name))

    def tag(self, name: str) -> Tag:
        """A tag. Whether it exists is asked when it is used."""
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
        """What happened to a branch or tag, newest first; also to a deleted one."""
        call = calls.GetReferenceLog(name=self._or_default(name))
        return self.pages(call, limit, lambda last: {"before": last.position})

    # -- reading ---------------------------------------------------------------------------------------

    def resolve(self, revision: str | None = None) -> str:
        """The commit id that a revision such as ``main~3`` names."""
        return self.do(calls.Resolve(revision=revision)).commit

    def at(self, revision: str | Commit | None = None) -> Snapshot:
        """The lake at a commit: the same for ever."""
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
        """Tables of files at a reference as a file system of ``fsspec``, with paths such as
        ``raw.events/day=1/part-0.parquet``.

        A ``pinned`` one reads a branch as it was when it first looked, until it writes itself; others look
        anew every time. ``InvalidRequest`` if ``fsspec`` is not installed.
        """
        system: FilesSystem = load_member("lake.files_system")(self, self._or_default(ref), pinned=pinned)
        return system

    def lance(self, ref: str | None = None, *, via: str | None = None) -> PenstockNamespace:
        """The Lance tables at a reference as a namespace of Lance, which Lance's own clients use.

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
    ) -> Imported:
        """Register all tables of a Lance directory namespace on the default branch, in one commit.

        They stay where they are, which must be below the lake's roots, and have the names that they have
        there, below ``namespace`` if one is given. ``InvalidRequest`` with a list if some cannot come: then
        none does.
        """
        load_tables = load_member("lake.import_lance")
        imported: Imported = load_tables(self, root, namespace, dry_run=dry_run, **options)
        return imported

    def export_lance(self, root: str | Path, ref: str | None = None, *, dry_run: bool = False) -> Exported:
        """Make a folder above the Lance tables of a branch a directory namespace that has them.

        Whoever opens it as one needs the lake no more, and sees the versions that are promoted. Called again,
        it lists what has come since. ``InvalidRequest`` with a list if some tables cannot be listed there:
        then none is.
        """
        exported: Exported = load_member("lake.export_lance")(self, root, ref, dry_run=dry_run)
        return exported

    def tables(self, prefix: str | Key | None = None, ref: str | None = None) -> list[Table]:
        """The tables (and views and functions) below a namespace, or all."""
        return self.at(ref).tables(prefix)

    def sql(self, query: str, ref: str | None = None) -> SqlResult:
        """Ask a query of tables of all formats, by DuckDB: ``select … from sales.orders where …``.

        Tables are named by their keys, at one commit: that of ``ref``, the default branch if none is given.
        ``"sales.orders@dev"``, in quotes, is the table at another revision. Only the columns and files are
        read that the query needs, when the rows of the answer are asked for: ``to_pandas()``,
        ``to_polars()``, ``to_arrow()``, ``fetchall()``. ``InvalidRequest`` if it is not one query that only
        reads tables, ``KeyNotFound`` if a table is not there.
        """
        return self.at(ref).sql(query)

    def show(self, revision: str | None = None) -> Commit:
        """A commit."""
        return self.do(calls.GetCommit(revision=self._or_default(revision)))

    def changes(self, revision: str | Commit | None = None) -> list[Difference]:
        """What a commit changed, compared with its first parent."""
        revision = revision.id if isinstance(revision, Commit) else revision
        commit, via = self._pin(self._or_default(revision))
        call = calls.GetChanges(revision=commit, via=via)
        return Differences(self.pages(call, None, lambda last: {"after": last.key}))

    def _pin(self, revision: str, limit: int | None = None, via: str | None = None) -> tuple[str, str | None]:
        """A revision that a list is asked for at, and the reference that led to it.

        A list that comes in several pages is asked for at one commit, whatever happens in between.
        """
        most = self.page_max
        if via is not None or most is None or (limit is not None and limit <= most):
            return revision, via
        resolved = self.do(calls.Resolve(revision=revision))
        return resolved.commit, resolved.name

    def log(
        self,
        ref: str | None = None,
        *,
        table: str | Key | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int | None = LOG_LIMIT,
        via: str | None = None,
        **options: Unpack[CommitFilter],
    ) -> list[Commit]:
        """Commits, newest first, that match everything given.

        ``table`` may also be a namespace. ``author`` is one that a commit names, ``text`` is part of its
        message. ``after`` goes on after the commit with that id, the last one of
        the page before. ``all_parents`` also shows what was merged. ``via`` is the reference that led to
        ``ref``, where that is a commit id. What is told here, or by ``diff`` and ``changes``, does not count
        as read in a transaction.
        """
        start, via = self._pin(self._or_default(ref), limit, via)
        call = calls.ListCommits(
            ref=start,
            via=via,
            table=Key.parse(table) if table is not None else None,
            since=_parse_time(since),
            until=_parse_time(until),
            **options,
        )
        return CommitLog(self.pages(call, limit, lambda last: {"after": last.id}))

    def search_log(
        self,
        ref: str | None = None,
        *,
        table: str | Key | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int = LOG_LIMIT,
        within: int = SEARCHED_MAX,
        **options: Unpack[CommitFilter],
    ) -> LogSearch:
        """Commits that match everything given among the next ``within`` ones of a log, newest first.

        For a log that is too long to be searched at once. ``reached`` of the answer is the commit to go on
        ``after``; ``None`` says that all were searched. The other arguments are those of ``log``.
        """
        call = calls.SearchLog(
            ref=self._or_default(ref),
            table=Key.parse(table) if table is not None else None,
            since=_parse_time(since),
            until=_parse_time(until),
            limit=limit,
            within=within,
            **options,
        )
        return self.do(call)

    def figures(self, ref: str | None = None, *, table: str | Key | None = None) -> Figures:
        """Commits a day, conflicts, what waits to be published, and the sizes of a table if one is named.

        ``commits`` counts those of ``ref``, and ``table`` is measured there. A server counts ``requests`` for
        the branches that may be read; they are ``None`` without one. What is told here does not count as read
        in a transaction.
        """
        key = Key.parse(table) if table is not None else None
        return self.do(calls.GetFigures(ref=self._or_default(ref), table=key))

    def diff(self, before: str, after: str, prefix: str | Key | None = None) -> list[Difference]:
        """What differs between two references or commits, at a key and below it, or everywhere."""
        (first, first_via), (second, second_via) = self._pin(before), self._pin(after)
        scope = Key.parse(prefix) if prefix is not None else None
        call = calls.Diff(before=first, before_via=first_via, to=second, to_via=second_via, prefix=scope)
        return Differences(self.pages(call, None, lambda last: {"after": last.key}))

    @show_progress
    def diff_rows(
        self,
        key: str | Key,
        before: str,
        after: str,
        *,
        on: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        progress: Progress = silent,
    ) -> RowDiff:
        """Which rows of a table differ between two revisions: ``added``, ``removed`` and ``changed``.

        ``on`` names the columns that identify a row: rows with the same values there, and others elsewhere,
        are changed. Without it whole rows are compared, as often as each is there. ``columns`` are those to
        be compared, all that both revisions have if none are named. Only files are read that one revision has
        and the other has not, in tables of all formats; DuckDB compares the rows.
        """
        diff: RowDiff = load("penstock.lake.sql.row_diff:diff_rows")(
            self, key, before, after, on, columns, progress
        )
        return diff

    def compare(self, one: str, other: str) -> Comparison:
        """The common ancestor of two revisions, and how many commits only one of them has."""
        return self.do(calls.Compare(one=one, other=other))

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
        """Carry out operations on a branch, all or none, and return the commit.

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
        """The commit that the request with an idempotency key came to, the newest if it made several.

        ``None`` if it was not applied, or there is no commit where it led to. Every token has keys of its
        own: ``who`` is the name of the one that used it through a server, if that is not who asks.
        """
        name = self._or_default(branch)
        landing = self.do(calls.GetOutcome(key=idempotency_key, branch=name, who=who))
        if landing is None or landing.head == EMPTY_COMMIT_ID:
            return None
        return landing.commit or self.do(calls.GetCommit(revision=landing.head, via=name))

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Bring what a branch, tag or commit has and another branch has not.

        One commit with the source as second parent, so that merging again only brings what is new. ``keys``
        says how to treat single keys: ``"force"``, ``"drop"``, or a ``KeyMerge`` with a given content. A
        mapping such as ``{"day=1/": "force"}`` treats folders of a table of files each in its own way: there
        it is as the source has it, or with ``"drop"`` as the target does.
        ``if_head`` refuses the merge if the target moved. Raises ``MergeConflict``; a dry run reports
        the conflicts instead.
        """
        return self.do(
            calls.Merge(
                source=source,
                into=into,
                said=calls.describe_commit(message, author),
                keys=_key_merges(keys),
                default=_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def transplant(
        self,
        commits: str | Sequence[str],
        onto: str | None = None,
        *,
        message: str = "",
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Repeat commits on a branch, each as a commit of its own, all by one swap.

        ``commits`` are revisions, oldest first, or a range ``"dev~3..dev"`` (without its start).
        """
        return self.do(
            calls.Transplant(
                commits=(commits,) if isinstance(commits, str) else tuple(commits),
                onto=onto,
                said=calls.describe_commit(message),
                keys=_key_merges(keys),
                default=_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def revert(
        self,
        commit: str,
        on: str | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Undo on a branch what one of its commits did, by a new commit."""
        return self.do(
            calls.Revert(
                commit=commit,
                on=on,
                said=calls.describe_commit(message, author),
                keys=_key_merges(keys),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    def restore(
        self,
        keys: str | Key | Sequence[str | Key] = (),
        *,
        to: str | Commit | None = None,
        namespace: str | Key | None = None,
        all: bool = False,  # noqa: A002
        leave: str | Key | Sequence[str | Key] = (),
        version: int | None = None,
        branch: str | None = None,
        if_head: str | None = None,
        dry_run: bool = False,
        **options: Unpack[CommitOptions],
    ) -> MergeResult:
        """Set tables to what they were at an earlier commit, by one new commit on a branch.

        ``keys`` are tables; a table that was dropped since comes back. ``namespace`` is a namespace and all
        that is below it, and ``all`` is every table: there, what was created since is dropped, except for
        what ``leave`` names. ``to`` is a revision, such as ``"main~3"``, a tag, or ``"main*2026-11-14"``;
        ``version`` one of a single Delta or Lance table. Nothing is removed from history. The restore wins
        over what others have written by then; ``if_head`` refuses it if the branch has moved. A dry run tells
        per table what would change. ``MergeConflict`` names the tables that cannot be restored.
        """
        return self.do(
            calls.Restore(
                keys=_keys(keys),
                namespace=None if namespace is None else Key.parse(namespace),
                all=all,
                leave=_keys(leave),
                to=to.id if isinstance(to, Commit) else to,
                version=version,
                branch=branch,
                if_head=if_head,
                dry_run=dry_run,
                who=self.author,
                **commit_fields(**options),
            )
        )

    def rebase(
        self,
        branch: str,
        onto: str | None = None,
        *,
        keys: Mapping[str | Key, HowToMerge] | None = None,
        default: MergeMode | str = MergeMode.NORMAL,
        if_head: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Repeat a branch's own commits on top of another revision, and move the branch there."""
        return self.do(
            calls.Rebase(
                branch=branch,
                onto=onto,
                keys=_key_merges(keys),
                default=_mode(default),
                if_head=if_head,
                dry_run=dry_run,
                idempotency_key=idempotency_key,
                who=self.author,
            )
        )

    # -- jobs ----------------------------------------------------------------------------------------------

    def jobs(
        self,
        key: str | Key | None = None,
        branch: str | None = None,
        *,
        all: bool = False,  # noqa: A002
    ) -> list[JobInfo]:
        """Jobs that run, newest first: all, or those of a table or branch. ``all`` also has those that ended
        lately."""
        call: Call[tuple[JobInfo, ...]] = load_member("lake.jobs")(
            key=None if key is None else Key.parse(key), branch=branch, all=all
        )
        jobs = self.pages(call, None, lambda last: {"after": last.id})
        return [*{job.id: job for job in jobs}.values()]  # one may come on two pages

    def abort_job(self, job_id: str, why: str = "") -> JobInfo:
        """Let a job never land. One that is committing, or has committed, stays as it is, and is returned."""
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
        """Begin a transaction on a branch, the default one if none is given.

        Used as ``with lake.transaction() as tx:``, all that is written by ``tx`` lands at the end of the
        block, as one commit, and nothing does if an exception leaves it. ``policy`` says what becomes of it
        if others changed the same tables meanwhile: ``rebase`` merges, ``snapshot`` refuses it. So does
        ``isolation`` of what it has read: in tables that it changed too that must be as it was, and with
        ``serializable`` everywhere. It may be idle for ``lease_s``, while this process renews it. With the
        ``id`` of an open one, that goes on.
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
        """Run a function in a transaction, and let that land; anew if what others did meanwhile refuses it.

        The function is given the transaction, and may be called ``retries`` times more, each time in a new
        one: so what it does outside of it must bear that, and streams of rows are made inside of it: one that
        was read before is refused, and not written as if it had no rows. A conflict, or a lake that does not
        answer for now, is tried again after a while, and raised after the last time, with the number of
        ``tries`` in its details. What a check refuses, or whose outcome is unknown, is raised at once:
        ``OutcomeUnknown`` says how to find out.
        """
        return run(self, function, target, retries, options)

    def transactions(
        self,
        target: str | None = None,
        *,
        all: bool = False,  # noqa: A002
        limit: int | None = None,
    ) -> list[TransactionInfo]:
        """Transactions that are open, by id: all, or those that land on one branch. ``all`` also has those
        that ended lately."""
        call = ListTransactions(target=target, all=all)
        return self.pages(call, limit, lambda last: {"after": last.id})

    def find_transaction(self, transaction_id: str) -> Transaction:
        """A transaction by its id, to look at or to end: its lease is not renewed.

        ``TransactionNotFound`` if there is none, or not any more.
        """
        return Transaction(self, self.do(GetTransaction(id=transaction_id)), beats=False)

    # -- checks ----------------------------------------------------------------------------------------

    def add_check(self, name: str, function: Callable[[Proposed], Any], branch: str | None = None) -> None:
        """Have a function look at whatever is about to be published on a branch, before it is.

        It is shown the exact result of every commit, merge, transplant, revert and rebase of the branch, the
        default one if none is given; a pattern such as ``"release/*"`` names several. It vetoes by raising
        ``penstock.Vetoed``, or by returning a text that says why, or ``False``: ``CommitVetoed`` then, and
        nothing is changed. One that fails vetoes too. A name of which there is no branch yet is warned of
        (``UserWarning``). Checks are this process's, for as long as the lake is open; ``InvalidRequest`` if
        the lake is behind a server, which has its own.
        """
        add_check(self, name, function, self._or_default(branch))

    def remove_check(self, name: str) -> None:
        """Let a check not look any more."""
        remove_check(self, name)

    def checks(self) -> list[CheckInfo]:
        """The checks of this process, in the order in which they run."""
        return checks_of(self)

    def expect(
        self, name: str, sql: str, branch: str | None = None, *, missing_ok: bool = False
    ) -> tuple[Expectation, ...]:
        """Have a branch expect, from now on, that a query finds nothing; returns all that it expects.

        It is kept in the branch's own row: every process and server asks it of whatever is about to be
        published there, if that changes a table that the query names. ``InvalidRequest`` if it is no query of
        DuckDB's that only reads tables, ``CommitVetoed`` if it does not hold now, ``KeyNotFound`` if a table
        is not there, unless ``missing_ok``: then it is not checked until there is one of exactly that key.
        """
        name_of_branch = self._or_default(branch)
        return self.do(
            AddExpectation(branch=name_of_branch, name=name, sql=sql, missing_ok=missing_ok, who=self.author)
        )

    def expectations(self, branch: str | None = None) -> tuple[Expectation, ...]:
        """What a branch expects, in the order in which it was added."""
        return self.do(ListExpectations(branch=self._or_default(branch)))

    def unexpect(self, name: str, branch: str | None = None) -> tuple[Expectation, ...]:
        """Have a branch not expect something any more; returns what is left."""
        return self.do(RemoveExpectation(branch=self._or_default(branch), name=name, who=self.author))

    def publish(self, branch: str, into: str | None = None, **options: Unpack[PublishOptions]) -> Published:
        """Audit a branch as it is now, and merge exactly that if all ``checks`` hold: write, audit, publish.

        Each has a name, and is a query that must return no row, with tables named by their keys, or a
        function that is given an ``Audited`` and answers as a check does. Queries are asked on Spark if a
        session is given, else by DuckDB. ``ChecksFailed`` names every check that does not hold; then the
        branch is kept, or dropped if ``otherwise`` is ``"drop"`` and nobody wrote to it meanwhile.
        """
        from penstock.lake.audits.publication import publish

        return publish(self, branch, self._or_default(into), **options)

    # -- care ------------------------------------------------------------------------------------------

    @property
    def history_rules(self) -> tuple[HistoryRule, ...]:
        """How much history is kept, by patterns of names. Of several that match, the last one holds."""
        return self.about.history_rules

    def keep_history(
        self, pattern: str = "*", *, max_commits: int | None = None, max_days: float | None = None
    ) -> None:
        """Keep so many commits, and all that are younger, of references whose names match a pattern.

        Without limits, all history is kept again. Heads and tags always stay. Older commits may be swept
        from a grace period later on; reading them is ``HistoryExpired`` then.
        """
        self.do(calls.KeepHistory(pattern=pattern, max_commits=max_commits, max_days=max_days))

    def set_grace(self, *, grace_s: float | None = None, data_grace_days: float | None = None) -> About:
        """Set how long sweeps leave alone what nothing leads to: objects, and data files of tables.

        Writers rely on it: a job that takes longer than half of it is refused. What is not given stays as it
        is; ``lake.about`` says what holds. A shorter period holds for sweeps once those who relied on the
        longer one are done. ``InvalidRequest`` for less than an hour, or less than 4 days for data files.
        """
        return self.do(calls.SetGrace(grace_s=grace_s, data_grace_days=data_grace_days))

    def add_root(self, *locations: str) -> tuple[str, ...]:
        """Let tables be at further places; returns all roots."""
        return self.do(calls.ChangeRoots(add=locations)).roots

    def remove_root(self, *locations: str) -> tuple[str, ...]:
        """Let no further tables be at some places; returns the roots that are left."""
        return self.do(calls.ChangeRoots(remove=locations)).roots

    @show_progress
    def sweep(self, *, dry_run: bool = False, progress: Progress = silent) -> Swept:
        """Remove objects that nothing leads to any more and that are older than the lake's grace period.

        A lake that was opened with a shorter one, by ``Settings(grace_s=…)``, is swept by it only with
        ``nobody_writes=True``; else that is ``InvalidRequest``.
        """
        return self.do(calls.Sweep(dry_run=dry_run), progress)

    @show_progress
    def sweep_tables(
        self,
        key: str | Key | None = None,
        *,
        remove_data: bool = False,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> list[SweptTable]:
        """Remove files of Delta and Lance tables that nothing needs, of one or of all; says what came of it.

        Data files go only with ``remove_data``: those that no kept commit names and that are older than the
        setting ``data_grace_days``. A table whose files cannot all be accounted for keeps them, and says why.
        """
        call = calls.SweepTables(
            key=None if key is None else Key.parse(key), remove_data=remove_data, dry_run=dry_run
        )
        call = msgspec.structs.replace(call, limit=self.page_max)
        swept: list[SweptTable] = []
        while page := self.do(call, progress):
            swept += page
            if call.limit is None or len(page) < call.limit:
                break
            call = msgspec.structs.replace(call, after=page[-1].location)
        return swept

    @show_progress
    def erase(
        self,
        key: str | Key,
        *,
        older_than: datetime | timedelta | str | None = None,
        all_references: bool = False,
        dropped: bool = False,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> ErasedTable:
        """Make deleted rows of a table unrecoverable, and end its history before now; says what is left.

        Files that hold deleted rows beside others are rewritten; data files, change data, log entries,
        checkpoints and objects of the lake that only earlier versions need are removed. Where writers rely on
        a grace period, the answer says until when the rest stays: call it again then. It can be repeated at
        any time, also after a crash.

        ``EraseRefused`` while branches, tags, transactions or forks hold rows. With ``all_references`` tags,
        and branches without changes of their own to the table, let go what they hold: the table cannot be
        read there any more. Reading what is gone is ``HistoryExpired``.

        With ``older_than``, a time or how long ago that was, only what was deleted before it is made
        unrecoverable: later history of the table can still be read, reverted and restored.

        With ``dropped`` it is about the tables that were dropped at the key: nothing of them is left then,
        and they cannot be brought back.
        """
        call = calls.EraseTable(
            key=Key.parse(key),
            older_than=None if older_than is None else moment(older_than, now_us()),
            all_references=all_references,
            dropped=dropped,
            dry_run=dry_run,
            who=self.author,
        )
        return self.do(call, progress)

    @show_progress
    def sweep_files(
        self, *, remove_data: bool = False, dry_run: bool = False, progress: Progress = silent
    ) -> SweptFiles:
        """Remove files that tables of a format share and nothing needs, and what jobs left that are over.

        Files go only with ``remove_data``: those that no kept commit names and that are older than the
        setting ``data_grace_days``, or whose job was aborted an hour ago. If anything cannot be read that may
        name one, all stay, and the answer says why.
        """
        swept = [self.do(kind(remove_data=remove_data, dry_run=dry_run), progress) for kind in sweep_calls()]
        return join_swept(swept)

    @show_progress
    def resync(
        self,
        key: str | Key | None = None,
        *,
        leave_own: bool = False,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> Resynced:
        """Take over the versions that tables' own logs and folders have and the lake does not know, of one
        table or of all: as after a restore of the lake's database from a backup.

        With ``leave_own``, versions that only the lake has, and that cannot be added on top, are left behind:
        they can be read at the commit that the answer names. Otherwise they are ``OutOfSync``.
        """
        call = Resync(
            key=None if key is None else Key.parse(key),
            leave_own=leave_own,
            dry_run=dry_run,
            who=self.author,
        )
        return self.do(call, progress)

    @show_progress
    def fsck(self, progress: Progress = silent) -> Checked:
        """Check every reachable object's hash, order and shape."""
        return self.do(calls.Fsck(), progress)

    # -- who may use a server ----------------------------------------------------------------------------

    def tokens(self) -> tuple[Token, ...]:
        """The tokens that servers of this lake know, without their secrets."""
        return self.do(calls.ListTokens())

    def create_token(
        self, name: str, *grants: str, expires: datetime | None = None, replaces: str | None = None
    ) -> str:
        """Make a token with grants such as ``"read"`` or ``"write:dev/*:sales.*"`` and return its text.

        The text is nowhere else: the lake keeps only a hash of its secret. No two tokens have one name,
        unless one ``replaces`` the other, whose id that is: they are one writer until the old one is revoked.
        """
        text, call = new_token(name, grants, expires, replaces)
        self.do(call)
        return text

    def revoke_token(self, token_id: str) -> Token:
        """Let a token not be used any more."""
        return self.do(calls.RevokeToken(id=token_id))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _keys(keys: str | Key | Sequence[str | Key]) -> tuple[Key, ...]:
    return (Key.parse(keys),) if isinstance(keys, str | Key) else tuple(map(Key.parse, keys))


def _key_merges(keys: Mapping[str | Key, HowToMerge] | None) -> dict[str, KeyMerge]:
    return {str(Key.parse(key)): _key_merge(how) for key, how in (keys or {}).items()}


def _key_merge(how: HowToMerge) -> KeyMerge:
    if isinstance(how, KeyMerge):
        return how
    if isinstance(how, Mapping):
        check_folder = load_member("merge.folder")
        return KeyMerge(paths={check_folder(path): _mode(mode) for path, mode in how.items()})
    return KeyMerge(mode=_mode(how))


def _parse_time(text: str | datetime | None) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    try:
        return parse_time(text)
    except (OverflowError, OSError, ValueError):
        raise InvalidName(f"{text!r} is not a valid commit time") from None


def _mode(name: MergeMode | str) -> MergeMode:
    try:
        return MergeMode(name)
    except ValueError:
        modes = ", ".join(mode.value for mode in MergeMode)
        raise InvalidRequest(f"unknown merge mode {name!r}; the modes are {modes}") from None
