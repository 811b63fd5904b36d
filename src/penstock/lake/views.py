"""Views: a branch, a tag, the lake at a commit. They hold a name, not a copy of what it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from penstock.errors import InvalidRequest, ReferenceNotFound
from penstock.lake import calls
from penstock.lake.answers import CatalogEntry, LogLine
from penstock.lake.call import CommitOptions
from penstock.lake.options import (
    BranchCommitOptions,
    BranchMergeOptions,
    BranchRestoreOptions,
    LogOptions,
    RebaseOptions,
)
from penstock.lake.table import Table
from penstock.lake.transactions.read_set import note_reads
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from penstock.model.operations import Delete, Operation, Put
from penstock.model.reads import Read
from penstock.model.references import Kind, Reference

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.sql.result import SqlResult

FIRST_PAGE = 100
"""So many entries are read ahead for whoever may only want the first."""


class NamedReference:
    """What branches and tags share."""

    kind: Kind

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake, self.name = lake, name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_reference

        return show_reference(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.name, other._lake) == (self.name, self._lake)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    @property
    def reference(self) -> Reference:
        """The stored reference as it is now."""
        reference = self._lake.do(calls.GetReference(name=self.name))
        if not self._is_named(reference.kind):
            raise InvalidRequest(f"'{self.name}' is a {reference.kind.value}, not a {self.kind.value}")
        return reference

    def _is_named(self, kind: Kind) -> bool:
        return kind is self.kind or (self.kind is Kind.BRANCH and kind is Kind.TRANSACTION)

    @property
    def head(self) -> str:
        """The id of the commit it names now."""
        return self.reference.id

    @property
    def exists(self) -> bool:
        """Whether there is one now."""
        try:
            return self._is_named(self._lake.do(calls.GetReference(name=self.name)).kind)
        except ReferenceNotFound:
            return False

    def create(self, at: str | None = None, *, idempotency_key: str | None = None) -> Any:
        """Create it at a revision, the default branch's head if none is given."""
        self._lake.do(
            calls.CreateReference(
                name=self.name,
                kind=self.kind,
                at=at,
                who=self._lake.author,
                idempotency_key=idempotency_key,
            )
        )
        return self

    def assign(self, to: str, *, expected: str | None = None, idempotency_key: str | None = None) -> Any:
        """Assign it to another commit, if it is at the commit ``expected``."""
        self._lake.do(
            calls.AssignReference(
                name=self.name,
                to=to,
                kind=self.kind,
                expected=expected,
                who=self._lake.author,
                idempotency_key=idempotency_key,
            )
        )
        return self

    def delete(self, *, expected: str | None = None, idempotency_key: str | None = None) -> None:
        """Delete it, if it is at the commit ``expected``. Its log can still be read for a while."""
        self._lake.do(
            calls.DeleteReference(
                name=self.name,
                kind=self.kind,
                expected=expected,
                who=self._lake.author,
                idempotency_key=idempotency_key,
            )
        )

    def snapshot(self) -> Snapshot:
        """The lake as it is here now, pinned."""
        return Snapshot(self._lake, self.head, self.name)

    def tables(self, prefix: str | Key | None = None) -> list[Table]:
        """The tables here now, below a namespace or all."""
        return [Table(self._lake, table.key, self.name) for table in self.snapshot().tables(prefix)]

    def table(self, key: str | Key) -> Table:
        """A table here."""
        return Table(self._lake, Key.parse(key), self.name)

    def log(self, **options: Unpack[LogOptions]) -> list[Commit]:
        """Its commits, newest first."""
        return self._lake.log(self.name, **options)

    def reflog(self, *, limit: int = 100) -> list[LogLine]:
        """Its changes, newest first."""
        return self._lake.reflog(self.name, limit=limit)


class Branch(NamedReference):
    """A line of work that commits are added to."""

    kind = Kind.BRANCH

    def commit(self, operations: Sequence[Operation], **options: Unpack[BranchCommitOptions]) -> Commit:
        """Commit operations to the branch, all or none, and return the commit."""
        return self._lake.commit(operations, branch=self.name, **options)

    def put(self, key: str | Key, content: AnyContent, **options: Unpack[BranchCommitOptions]) -> Commit:
        """Create or replace a catalog entry. Namespaces above it are created as needed."""
        path = Key.parse(key)
        options.setdefault("create_namespaces", True)
        return self.commit([Put(path, content)], **_add_message(options, f"put {path}"))

    def drop(self, key: str | Key, **options: Unpack[BranchCommitOptions]) -> Commit:
        """Delete a catalog entry. A namespace must be empty."""
        path = Key.parse(key)
        return self.commit([Delete(path)], **_add_message(options, f"drop {path}"))

    def create_namespace(
        self, key: str | Key, properties: Mapping[str, str] | None = None, **options: Unpack[CommitOptions]
    ) -> Commit:
        """Create a namespace, and those above it as needed; ``CommitConflict`` if it exists."""
        path = Key.parse(key)
        options.setdefault("message", f"create namespace {path}")
        return self.commit(
            [Put(path, Namespace(properties=dict(properties or {})))],
            base=EMPTY_COMMIT_ID,  # where it did not exist
            create_namespaces=True,
            **options,
        )

    def merge_into(
        self, target: str | Branch | None = None, **options: Unpack[BranchMergeOptions]
    ) -> MergeResult:
        """Merge this branch into another, the default one if none is given."""
        into = target.name if isinstance(target, Branch) else target
        return self._lake.merge(self.name, into, **options)

    def restore(
        self, keys: str | Key | Sequence[str | Key] = (), **options: Unpack[BranchRestoreOptions]
    ) -> MergeResult:
        """Restore tables on this branch to their state at an earlier commit, by one new commit."""
        return self._lake.restore(keys, branch=self.name, **options)

    def rebase(self, onto: str | None = None, **options: Unpack[RebaseOptions]) -> MergeResult:
        """Repeat this branch's own commits on a new base."""
        return self._lake.rebase(self.name, onto, **options)


class Tag(NamedReference):
    """A fixed name for a commit."""

    kind = Kind.TAG


class Snapshot:
    """The lake at a commit. It never changes."""

    def __init__(self, lake: Lake, commit: str, via: str | None = None, *, is_noted: bool = True) -> None:
        """``is_noted`` says whether what is read of it in a transaction counts as read."""
        self._lake, self.id, self.via = lake, commit, via
        self._is_noted = is_noted

    def __repr__(self) -> str:
        return f"<Snapshot {self.id[:8]} of {self._lake.url}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_snapshot

        return show_snapshot(self)

    @property
    def outside_read_set(self) -> Snapshot:
        """The same, but reads are not added to a transaction's read set."""
        return Snapshot(self._lake, self.id, self.via, is_noted=False)

    def _note_reads(self, *reads: Read) -> None:
        if self._is_noted:
            note_reads(self._lake, self.id, self.via, *reads)

    def get(self, key: str | Key) -> AnyContent | None:
        """What a key holds, ``None`` if nothing."""
        return self.get_many([key]).get(Key.parse(key))

    def get_many(self, keys: Sequence[str | Key]) -> dict[Key, AnyContent]:
        """The contents of those keys that exist."""
        paths = tuple(Key.parse(key) for key in keys)
        self._note_reads(*(Read(key=path) for path in paths))
        entries = self._lake.do(calls.GetContents(at=self.id, via=self.via, key=paths))
        return {entry.key: entry.content for entry in entries}

    def entries(
        self, prefix: str | Key | None = None, *, after: str | Key | None = None
    ) -> Iterator[tuple[Key, AnyContent]]:
        """Keys and contents in order: at and below a key or all, after a key or from the start."""
        scope = Key.parse(prefix) if prefix is not None else None
        last = Key.parse(after) if after is not None else None
        self._note_reads(Read(key=scope, is_listing=True))
        for page in self._list_pages(scope, last):
            self._note_reads(*(Read(key=entry.key) for entry in page))
            for entry in page:
                yield entry.key, entry.content

    def _list_pages(self, scope: Key | None, last: Key | None) -> Iterator[tuple[CatalogEntry, ...]]:
        most, page_size = self._lake.page_max or calls.PAGE_MAX, FIRST_PAGE
        while True:
            page = self._lake.do(
                calls.ListEntries(at=self.id, via=self.via, prefix=scope, after=last, limit=page_size)
            )
            yield page
            if len(page) < page_size:
                return
            page_size = most
            last = page[-1].key

    def tables(self, prefix: str | Key | None = None) -> list[Table]:
        """Everything that is not a namespace, below a namespace or all."""
        return [
            Table(self._lake, key, self.id, self.via, is_noted=self._is_noted)
            for key, content in self._list_entries(prefix)
            if not isinstance(content, Namespace)
        ]

    def namespaces(self, prefix: str | Key | None = None) -> list[Key]:
        """The namespaces, at and below a key or all."""
        return [key for key, content in self._list_entries(prefix) if isinstance(content, Namespace)]

    def _list_entries(self, prefix: str | Key | None) -> Iterator[tuple[Key, AnyContent]]:
        """The entries, of which only the names are told."""
        scope = Key.parse(prefix) if prefix is not None else None
        self._note_reads(Read(key=scope, is_listing=True))
        return self.outside_read_set.entries(scope)

    def table(self, key: str | Key) -> Table:
        """A table as it was here."""
        return Table(self._lake, Key.parse(key), self.id, self.via, is_noted=self._is_noted)

    def at(self, revision: str | None) -> Snapshot:
        """The lake at another commit."""
        return self._lake.at(revision)

    def sql(self, query: str) -> SqlResult:
        """Run a query over the tables at this reference; see ``Lake.sql``."""
        from penstock.lake.sql.result import run_sql

        return run_sql(self, query)

    def log(self, **options: Unpack[LogOptions]) -> list[Commit]:
        """The commits that led here, newest first."""
        return self._lake.log(self.id, via=self.via, **options)


def _add_message(options: BranchCommitOptions, message: str) -> BranchCommitOptions:
    """The options of a commit, with a message if the program gives none."""
    return options if options.get("message") is not None else {**options, "message": message}
