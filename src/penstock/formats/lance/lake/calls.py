"""Calls about Lance tables: reading their versions, and changing any number of them in one commit.

A program rarely makes them itself: the namespace (``lake.lance()``) does, which Lance's own clients use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from penstock.errors import KeyNotFound, NotManaged, OwnRefNotFound
from penstock.formats.lance.lake.answers import (
    LanceBranch,
    LanceCommitResult,
    LanceOperationResult,
    LanceStatus,
    LanceTableInfo,
    LanceTag,
    LanceVersion,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.call import Ask, Call, CommitDescription, ReadAt, RetrySafety, WriteCall
from penstock.lake.recovered_answers import get_branch, landed_commit
from penstock.model.commits import Commit
from penstock.model.keys import Key

T = TypeVar("T")


class _Operation(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="operation"
):
    """What all operations share."""

    key: Key
    """Of the table."""


class DeclareLance(_Operation, frozen=True, kw_only=True, tag="declare"):
    """A table that has no version yet."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    id: UUID | None = None
    """Its id, if the caller needs to know the location beforehand; generated if left out. An id that the lake
    ever had, on any branch, is refused."""
    location: str | None = None
    """Its location; chosen by the lake if left out. One that another table of the lake has or had is
    refused."""
    is_private: bool = False
    """Its versions are visible only through the lake; they are not promoted."""
    properties: dict[str, str] = {}
    exist_ok: bool = False
    """Do nothing if there is a Lance table already."""


class RegisterLance(_Operation, frozen=True, kw_only=True, tag="register"):
    """Register a Lance table that exists at a location."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    location: str
    replaces: bool = False
    """Whether it may replace what is at the key."""
    is_private: bool = False
    properties: dict[str, str] = {}


class CreateLanceVersion(_Operation, frozen=True, kw_only=True, tag="create version"):
    """The next version, whose manifest is in storage already."""

    location_fields: ClassVar[tuple[str, ...]] = ("manifest",)

    branch: str = ""
    """One of Lance's own; its main one if nothing is given."""
    version: int
    manifest: str
    """A whole path or URL, inside the table's folder."""
    size: int | None = None
    is_v1: bool = False
    """Whether manifests are named by Lance's first way."""
    e_tag: str = ""
    metadata: dict[str, str] = {}


class DeleteLanceVersions(_Operation, frozen=True, kw_only=True, tag="delete versions"):
    """Remove versions from the table's version list."""

    branch: str = ""
    ranges: tuple[tuple[int, int], ...]
    """From a version up to but without another one; without an end if that is below zero."""


class AlterLance(_Operation, frozen=True, kw_only=True, tag="alter"):
    """Properties of a table."""

    properties: dict[str, str | None]
    """Those without a value are removed."""


class PutLanceTag(_Operation, frozen=True, kw_only=True, tag="put tag"):
    """One of Lance's own tags."""

    tag_name: str
    branch: str = ""
    version: int
    is_new: bool = True
    """Whether it must be new; otherwise it must exist."""
    metadata: dict[str, str] = {}


class DropLanceTag(_Operation, frozen=True, kw_only=True, tag="drop tag"):
    """Delete one of Lance's own tags."""

    tag_name: str


class PutLanceBranch(_Operation, frozen=True, kw_only=True, tag="put branch"):
    """One of Lance's own branches."""

    branch: str
    parent: str = ""
    version: int | None = None
    """A version of the parent; its newest one if left out."""
    metadata: dict[str, str] = {}


class DropLanceBranch(_Operation, frozen=True, kw_only=True, tag="drop branch"):
    """Delete one of Lance's own branches."""

    branch: str


class DeregisterLance(_Operation, frozen=True, kw_only=True, tag="deregister"):
    """The lake forgets a table. Its files stay."""


LanceOperation: TypeAlias = (
    DeclareLance
    | RegisterLance
    | CreateLanceVersion
    | DeleteLanceVersions
    | AlterLance
    | PutLanceTag
    | DropLanceTag
    | PutLanceBranch
    | DropLanceBranch
    | DeregisterLance
)


class CommitLance(WriteCall[LanceCommitResult], frozen=True, kw_only=True):
    """Change any number of Lance tables in one atomic commit.

    An error names the operation that it is about, counted from zero.
    """

    path = "/lance/commits"
    target = "branch"
    answer = LanceCommitResult
    makes_lake = True
    counted = ("operations",)
    unhashed = ("branch",)
    revisions = ()

    branch: str | None = None
    """The default branch if nothing is given; a transaction's is `tx/<id>`."""
    operations: tuple[LanceOperation, ...]
    """In this order; those of one table see what the ones before them did."""
    create: bool = True
    """Create the namespaces above a new table that are not there."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the commit."""

    def recover(self, ask: Ask, landing: LandedRequest) -> LanceCommitResult:
        if not landing.commits:
            return self._recover_result(ask, landing.head, landing.head, None, landing)
        commit = landed_commit(ask, self, landing)
        before = next(iter(commit.parents), commit.id)  # nothing is before the first one of a lake
        return self._recover_result(ask, commit.id, before, commit, landing)

    def _recover_result(
        self, ask: Ask, after: str, before: str, commit: Commit | None, landing: LandedRequest
    ) -> LanceCommitResult:
        landed = _LandedCommit(ask, get_branch(ask, self), after, before)
        return LanceCommitResult(
            commit=commit, head=landing.head, done=tuple(map(landed.make_operation_result, self.operations))
        )


class GetLanceTable(ReadAt[LanceTableInfo], frozen=True, kw_only=True):
    """A Lance table as a whole."""

    path = "/lance/table"
    answer = LanceTableInfo

    key: Key
    to_write: bool = False
    """Whether the caller is going to write: on a branch, the table's folder for that branch is then
    created."""


class GetLanceStatus(Call[LanceStatus], frozen=True, kw_only=True):
    """How far a Lance table of the default branch is promoted, and whether its folder has what the lake
    knows, and no more. Storage is looked at."""

    path = "/lance/status"
    answer = LanceStatus

    key: Key


class ListLanceVersions(ReadAt[tuple[LanceVersion, ...]], frozen=True, kw_only=True):
    """The versions of a Lance table, newest first; the next page is ``below`` the last one."""

    path = "/lance/versions"
    answer = tuple[LanceVersion, ...]

    key: Key
    branch: str = ""
    """One of Lance's own; its main one if nothing is given."""
    below: int | None = None
    """Go on below this version, the last one of the page before."""
    version: int | None = None
    """Only this one."""
    to_write: bool = False
    """Answer the locations for a writer, as in the call for the table."""
    limit: int | None = 100
    """At most this many."""


class ListLanceBranches(ReadAt[tuple[LanceBranch, ...]], frozen=True, kw_only=True):
    """Lance's own branches of a table, by name; the next page is ``after`` the last one."""

    path = "/lance/branches"
    answer = tuple[LanceBranch, ...]

    key: Key
    after: str = ""
    """Go on after this name, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class ListLanceTags(ReadAt[tuple[LanceTag, ...]], frozen=True, kw_only=True):
    """Lance's own tags of a table, by name; the next page is ``after`` the last one."""

    path = "/lance/tags"
    answer = tuple[LanceTag, ...]

    key: Key
    after: str = ""
    """Go on after this name, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class PromoteLance(Call[LanceTableInfo], frozen=True, kw_only=True):
    """Promote the versions of a table: put their manifests where every reader of Lance looks.

    This happens in the background; call it to be sure that it is done.
    """

    method = "POST"
    path = "/lance/promote"
    answer = LanceTableInfo
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key
    branch: str | None = None
    """The default branch if nothing is given."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    CommitLance,
    GetLanceTable,
    GetLanceStatus,
    ListLanceVersions,
    ListLanceBranches,
    ListLanceTags,
    PromoteLance,
)
"""All of them."""


# -- what a commit came to, operation by operation: told from the lake at that commit and before it --------


class _LandedCommit:
    """A commit that has landed, and who is asked about it."""

    def __init__(self, ask: Ask, branch: str, commit: str, before: str) -> None:
        """``before`` is the commit before it."""
        self.ask, self.branch, self.commit, self.before = ask, branch, commit, before
        self._counted: set[tuple[Key, str, int]] = set()
        """The versions that an operation deleted, so that no other one counts them."""

    def make_operation_result(self, operation: LanceOperation) -> LanceOperationResult:
        """The result of an operation; empty for a table that a later operation removed."""
        at = self.before if isinstance(operation, DeregisterLance) else self.commit
        try:
            if isinstance(operation, CreateLanceVersion):
                return LanceOperationResult(
                    version=self._find_version(operation.key, operation.branch, operation.version)
                )
            if isinstance(operation, PutLanceBranch):
                return LanceOperationResult(version=self._find_first_version(operation.key, operation.branch))
            if isinstance(operation, DeleteLanceVersions):
                deleted = {
                    (operation.key, operation.branch, deleted_version)
                    for deleted_version in self._list_deleted_versions(operation)
                }
                counted, self._counted = self._counted, self._counted | deleted
                return LanceOperationResult(deleted=len(deleted - counted))
            about: LanceTableInfo = self.ask(GetLanceTable(key=operation.key, at=at, via=self.branch))
        except (KeyNotFound, NotManaged, OwnRefNotFound):
            return LanceOperationResult()
        return LanceOperationResult(location=about.location, folder=about.folder, properties=about.properties)

    def _find_version(self, key: Key, branch: str, version: int) -> LanceVersion | None:
        query = ListLanceVersions(key=key, branch=branch, version=version, at=self.commit, via=self.branch)
        return next(iter(self.ask(query)), None)

    def _find_first_version(self, key: Key, name: str) -> LanceVersion | None:
        """The first version of one of Lance's own branches."""
        branches = ListLanceBranches(key=key, at=self.commit, via=self.branch)
        for branch in self._list_all(branches, lambda last: {"after": last.name}):
            if branch.name == name:
                return self._find_version(key, name, branch.version)
        return None

    def _list_deleted_versions(self, operation: DeleteLanceVersions) -> Iterator[int]:
        """The versions that an operation deleted."""
        remaining_versions = set(self._list_version_numbers(operation, self.commit))
        for number in self._list_version_numbers(operation, self.before):
            if number not in remaining_versions and any(
                start <= number and (end < 0 or number < end) for start, end in operation.ranges
            ):
                yield number

    def _list_version_numbers(self, operation: DeleteLanceVersions, at: str) -> Iterator[int]:
        versions = ListLanceVersions(key=operation.key, branch=operation.branch, at=at, via=self.branch)
        return (version.version for version in self._list_all(versions, lambda last: {"below": last.version}))

    def _list_all(
        self, call: Call[tuple[T, ...]], next_page: Callable[[T], dict[str, str | int]]
    ) -> Iterator[T]:
        """All items of a list, page by page."""
        while page := self.ask(call):
            yield from page
            call = msgspec.structs.replace(call, **next_page(page[-1]))
