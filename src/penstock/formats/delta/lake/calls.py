"""Calls about Delta tables whose commits the lake decides.

A program rarely makes them itself: ``Table`` does. They are what an engine needs that brings its own reader
and writer of Delta logs: ratify a version, ask for the commits that are not published, have them published.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.formats.delta.lake.answers import (
    BulkOwnershipResult,
    CleanedLog,
    OwnershipResult,
    PublishedTable,
    RecoveredTable,
    ReservedColumnIds,
    ReservedIdentities,
    TablePlace,
    TableStatus,
    TableVersions,
    WrittenFile,
)
from penstock.lake.answers import CommittedTable, LandedRequest, TableCommitResult
from penstock.lake.call import PAGE_MAX, Ask, Call, CommitDescription, ReadAt, RetrySafety, WriteCall
from penstock.lake.read_calls import GetChanges
from penstock.lake.recovered_answers import get_branch, landed_commit
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable


class TablePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a table: the files whose partition values are among these, column by column, and for whose
    values a condition is true. Without either, it is the whole table."""

    values: dict[str, tuple[str | None, ...]] = {}
    """As the log writes them."""
    where: str | None = None
    """A condition on partition columns alone, such as `day >= '2026-11-01'`. In what a writer looked at, a
    file of which that cannot be told counts as one for which it is true."""


class WriterReads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The read set of a writer in the version that it read. Without fields: nothing, as for a blind
    append."""

    whole_table: bool = False
    """Whether the writer does not know what it read: then the whole table counts as read."""
    parts: tuple[TablePart, ...] = ()
    """Partitions that it read completely, so that a new file there conflicts."""
    files: tuple[str, ...] | None = None
    """The decoded paths of the files that were read; if nothing is given, all that there were in `parts`."""
    applications: tuple[str, ...] = ()
    """The applications whose last batch it looked up."""


class ActionsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Actions that are too many to be sent: a file that their writer put into `_penstock/bodies/`.

    It is put right before it is sent. One that is a day old and that no commit names is cleaned up.
    """

    name: str
    """Relative to the table's root."""
    size: int
    sha256: ObjectId


class TableCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next version of one table.

    With `version`, exactly that version, or the commit is refused. Without it, the next version: checked
    against all commits since `read_version`, or unchecked if that is left out too.
    """

    key: Key
    actions: str | ActionsFile
    """The lines of a commit, one action each, with or without a `commitInfo`; or the file that holds them."""
    table: UUID | None = None
    """The id of the table that the actions were written for: another one under the same key is refused. If
    nothing is given, whichever has the key."""
    attempt: UUID | None = None
    """Of this attempt: its `txnId`, unless the actions have one. With `version` it also names the file, and
    the same attempt sent again is known by it and answered as before. Without `version` it is not: only the
    request's idempotency key keeps a repetition from being a second commit then. Made up if not given."""
    version: int | None = None
    """The version that it must become."""
    read_version: int | None = None
    """The version that the writer read."""
    read_tip: str | None = None
    """The `tip` of that version, or of one after it, as it was answered to the writer: on a branch that has
    another history by now, this is refused. If nothing is given, a version of the same number will do."""
    reads: WriterReads | None = None
    """What it looked at there; if nothing is given, nothing for files that are only added blindly, else the
    whole table. Who gives this, `table` and `read_tip` says as well that no commit has named the files before
    that it adds: they are not looked up."""
    replaces: tuple[TablePart, ...] | None = None
    """Also remove whatever files these parts hold at its turn; an empty list is the whole table."""


class CommitTables(WriteCall[TableCommitResult], frozen=True, kw_only=True):
    """Ratify the next versions of one or several Delta tables, all or none.

    A 409 of the code `table_conflict` carries the commits that came first in its details, as `winners`.
    """

    path = "/delta/commits"
    target = "branch"
    answer = TableCommitResult
    makes_lake = False
    counted = ("tables",)
    unhashed = ("branch",)
    revisions = ()

    tables: tuple[TableCommit, ...]
    """No table twice."""
    branch: str | None = None
    """The default branch if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the lake's commit."""

    def recover(self, ask: Ask, landing: LandedRequest) -> TableCommitResult:
        commit, branch = landed_commit(ask, self, landing), get_branch(ask, self)
        tables = (_ratified_table(ask, table, landing, branch) for table in self.tables)
        return TableCommitResult(commit=commit, tables=tuple(tables))


class GetTableVersions(ReadAt[TableVersions], frozen=True, kw_only=True):
    """The latest version of a Delta table at a commit of the lake, and the commits that are not published.

    Up to `published`, versions are in the table's own log. Those after it are listed, oldest first, by the
    files that hold them; the files exist. They are those from `start` to `end`, if these are given.
    """

    path = "/delta/commits"
    answer = TableVersions

    key: Key
    start: int | None = None
    """The first version that is wanted."""
    end: int | None = None
    """The last version that is wanted."""
    limit: int | None = PAGE_MAX
    """At most this many; continue with the version after the last one as `start`."""
    tip: str | None = None
    """The tip of a version that was read before: the answer says whether it is still on the branch."""


class PublishTable(Call[PublishedTable], frozen=True, kw_only=True):
    """Publish the versions of a Delta table to its own log, up to one or all, before this is answered.

    It can be repeated, by any caller.
    """

    method = "POST"
    path = "/delta/publish"
    answer = PublishedTable
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key
    branch: str | None = None
    """The default branch if nothing is given. On another one, its commits are written where readers of the
    branch find them, and nothing is published."""
    version: int | None = None
    """Up to this version; all if left out."""


class ReserveIdentities(Call[ReservedIdentities], frozen=True, kw_only=True):
    """Reserve numbers of an identity column of a Delta table, for all branches, before rows are written.

    Numbers that are not used are never given to anybody else. Doing it again reserves others.
    """

    method = "POST"
    path = "/delta/identities"
    answer = ReservedIdentities
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key
    branch: str | None = None
    """Where the rows are written; the default branch if nothing is given."""
    column: str
    count: int
    """How many numbers; 0 to only keep numbers free."""
    reached: int | None = None
    """A number that rows already have: it and all numbers before it are never given."""


class ReserveColumnIds(Call[ReservedColumnIds], frozen=True, kw_only=True):
    """Reserve ids for new columns of a Delta table with mapped columns, for all branches.

    Ids that are not used are never given to any other column. Doing it again reserves others.
    """

    method = "POST"
    path = "/delta/column-ids"
    answer = ReservedColumnIds
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key
    branch: str | None = None
    """Where the columns are added; the default branch if nothing is given."""
    count: int
    """How many ids; 0 to only get the last one that was given."""


class CreateTable(WriteCall[OwnershipResult], frozen=True, kw_only=True):
    """Create a Delta table, empty or with its first files: either way it is one version and one commit."""

    path = "/delta/tables"
    target = "branch"
    answer = OwnershipResult
    makes_lake = True
    counted = ()
    unhashed = ("branch",)
    revisions = ()
    location_fields = ("location",)

    key: Key
    schema: str
    """The schema as in Delta's metadata: a JSON object of the type `struct`."""
    partition_by: tuple[str, ...] = ()
    """The partition columns."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    """Table properties, such as `delta.appendOnly`."""
    description: str = ""
    """For people."""
    id: UUID | None = None
    """What it is to be known by, so that its place is known before it exists: without a named location it is
    the folder of that name, in small letters, below the lake's warehouse. One that the lake has known before
    is refused. Made up if not given."""
    actions: str | ActionsFile | None = None
    """Its first files and batches, and the columns that it is clustered by (`domainMetadata`), as the lines
    of a commit, or the file that holds them. Protocol and metadata are not among them. The files are at the
    table's place when this is sent."""
    location: str | None = None
    """Its location; a folder of its own below the warehouse if left out."""
    sole_writer: bool = False
    """For a given location in storage without put-if-absent: state that no other program writes there."""
    branch: str | None = None
    """The default branch if nothing is given. A given location is for the default branch only."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the lake's commit."""

    def recover(self, ask: Ask, landing: LandedRequest) -> OwnershipResult:
        made = _describe_created_table(ask, self, self.key, landing)
        return made if self.location is None else _publish_promised_version(ask, self, made)


class CloneTable(WriteCall[OwnershipResult], frozen=True, kw_only=True):
    """Create a shallow clone of a Delta table: a new table that references the files of another one.

    No file is copied, and both tables change independently from then on. It is one version and one commit.
    """

    path = "/delta/clone"
    target = "branch"
    answer = OwnershipResult
    makes_lake = False
    unhashed = ("branch",)
    revisions = ("at",)

    source: Key
    """The table that is cloned."""
    key: Key
    """What the clone is called."""
    at: str | None = None
    """The branch, tag or commit that has the source; the default branch's head if nothing is given."""
    version: int | None = None
    """The version of the source; the latest that it has there, if nothing is given."""
    branch: str | None = None
    """The branch that the clone is created on; the default one, if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the lake's commit."""

    @property
    def is_checked_again(self) -> bool:
        return True

    def recover(self, ask: Ask, landing: LandedRequest) -> OwnershipResult:
        return _describe_created_table(ask, self, self.key, landing)


class AdoptTable(WriteCall[OwnershipResult], frozen=True, kw_only=True):
    """Adopt a Delta table: from now on, the lake decides its commits.

    If another program commits to it at that moment, no commit is lost: the table stays as it was, and the
    adoption is refused.
    """

    path = "/delta/adopt"
    target = "branch"
    answer = OwnershipResult
    makes_lake = True
    unhashed = ("branch",)
    revisions = ()
    location_fields = ("location",)

    location: str
    """Where it is."""
    key: Key | None = None
    """What it is called in the lake; the last part of its location, if nothing is given."""
    sole_writer: bool = False
    """For storage without put-if-absent: state that no other program writes there."""
    branch: str | None = None
    """The default branch, and no other."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the lake's commit."""

    def recover(self, ask: Ask, landing: LandedRequest) -> OwnershipResult:
        return _publish_promised_version(ask, self, _describe_created_table(ask, self, self.key, landing))


class ReleaseTable(WriteCall[OwnershipResult], frozen=True, kw_only=True):
    """Release a Delta table to the file system, with all its versions published to its log; its key is
    deleted."""

    path = "/delta/release"
    target = "branch"
    answer = OwnershipResult
    makes_lake = False
    unhashed = ("branch",)
    revisions = ()

    key: Key
    branch: str | None = None
    """The default branch, and no other."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the lake's commit."""

    def recover(self, ask: Ask, landing: LandedRequest) -> OwnershipResult:
        return _describe_created_table(ask, self, self.key, landing)


class AdoptTables(Call[BulkOwnershipResult], frozen=True, kw_only=True):
    """Adopt all Delta tables below a folder, by two commits.

    A table's key is its path below the folder. Tables that cannot be adopted are reported and do not stop the
    others; a key that is in use stops all, before anything is written. If it is interrupted, repeating it
    finishes it.
    """

    method = "POST"
    path = "/delta/adopt-all"
    answer = BulkOwnershipResult
    retry = RetrySafety.SAFE
    makes_lake = True
    is_long = True
    goes_on = True
    location_fields = ("location",)

    location: str
    """The folder."""
    namespace: Key | None = None
    """The namespace to put the tables in; none, if nothing is given."""
    sole_writer: bool = False
    """For storage without put-if-absent: state that no other program writes there."""
    dry_run: bool = False
    """Change nothing; only report what would be done."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the commit that adopts them."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class ReleaseTables(Call[BulkOwnershipResult], frozen=True, kw_only=True):
    """Release all Delta tables of the default branch to the file system, or those below a namespace.

    One commit ratifies their last versions, one deletes their keys. If it is interrupted, doing it again
    finishes it.
    """

    method = "POST"
    path = "/delta/release-all"
    answer = BulkOwnershipResult
    retry = RetrySafety.SAFE
    makes_lake = False
    is_long = True
    goes_on = True

    namespace: Key | None = None
    """Only tables below it."""
    dry_run: bool = False
    """Change nothing; only report what would be done."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the first commit."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class RecoverTable(Call[RecoveredTable], frozen=True, kw_only=True):
    """Recover a Delta table from its published log, after the lake that owned it was lost for good.

    What the lost lake had ratified and not published is not in the log. Files that may have been such
    versions are named in the answer: whether they were can no longer be determined.
    """

    method = "POST"
    path = "/delta/recover"
    answer = RecoveredTable
    retry = RetrySafety.ONCE  # the table is this lake's then
    makes_lake = True
    location_fields = ("location",)

    location: str
    """Where it is."""
    key: Key | None = None
    """What it is called in the lake; if nothing is given, what its own metadata calls it, where that can be a
    key, else the last part of its location."""
    lost: str | None = None
    """The id of the lake that was lost: a table of another is refused."""
    any_lake: bool = False
    """Instead of `lost`: whatever lake the table names counts as lost."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class GetTableStatus(Call[tuple[TableStatus, ...]], frozen=True, kw_only=True):
    """The Delta tables of the default branch, by key, and how far each is published."""

    path = "/delta/status"
    answer = tuple[TableStatus, ...]

    key: Key | None = None
    """Only this table."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class FindTable(ReadAt[TablePlace | None], frozen=True, kw_only=True):
    """Where in the lake the Delta table with an id is; nothing if it is not there."""

    path = "/delta/tables/{id}"
    answer = TablePlace | None

    id: str
    """As the table's own metadata names it to its owner."""


class CheckpointTable(Call[WrittenFile], frozen=True, kw_only=True):
    """Write a checkpoint of the newest published version of a Delta table, unless there is one."""

    method = "POST"
    path = "/delta/checkpoint"
    answer = WrittenFile
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key


class CompactLog(Call[WrittenFile], frozen=True, kw_only=True):
    """Write one file that stands in for several published commits of a Delta table's log."""

    method = "POST"
    path = "/delta/compact"
    answer = WrittenFile
    retry = RetrySafety.SAFE
    makes_lake = False

    key: Key
    first: int | None = None
    """The first version; the one after the newest checkpoint, if nothing is given."""
    last: int | None = None
    """The last version; the newest that is published, if nothing is given."""


class CleanLog(Call[CleanedLog], frozen=True, kw_only=True):
    """Remove from a Delta table's log what is no longer needed: expired versions, and files of commits that
    lost a race or belong to deleted branches.

    Files that a retained commit of the lake needs stay.
    """

    method = "POST"
    path = "/delta/clean"
    answer = CleanedLog
    retry = RetrySafety.ONCE  # it answers what it removed
    makes_lake = False

    key: Key
    dry_run: bool = False
    """Remove nothing; only report what would be removed."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    CommitTables,
    GetTableVersions,
    PublishTable,
    ReserveIdentities,
    ReserveColumnIds,
    CreateTable,
    CloneTable,
    AdoptTable,
    ReleaseTable,
    AdoptTables,
    ReleaseTables,
    RecoverTable,
    GetTableStatus,
    FindTable,
    CheckpointTable,
    CompactLog,
    CleanLog,
)
"""All of them."""


# -- what writes came to: a commit of the lake holds the tables as it left them ----------------------------


def _ratified_table(ask: Ask, commit: TableCommit, landing: LandedRequest, branch: str) -> CommittedTable:
    """A table as a commit left it: at the version that it got, or already had."""
    versions = _get_versions(ask, commit.key, landing.head, branch, commit.version)
    version = versions.latest_version if commit.version is None else commit.version
    entry = next((each for each in versions.commits if each.version == version), None)
    return CommittedTable(
        key=commit.key,
        version=version,
        name=entry.name if entry is not None else "",
        timestamp_ms=entry.timestamp_ms if entry is not None else 0,
        repeated=True,
    )


def _describe_created_table(
    ask: Ask, call: WriteCall[OwnershipResult], key: Key | None, landing: LandedRequest
) -> OwnershipResult:
    """A table as its creation, adoption or release left it, in the first commit that one made."""
    branch = get_branch(ask, call)
    commit = landing.commits[0] if landing.commits else landing.head
    if key is None:
        changes = ask(GetChanges(revision=commit, via=branch))
        key = next(change.key for change in changes if isinstance(change.after, DeltaTable))
    versions = _get_versions(ask, key, commit, branch)
    return OwnershipResult(
        key=key,
        id=versions.id,
        location=versions.location,
        version=versions.latest_version,
        commit=landing.head,
    )


def _publish_promised_version(
    ask: Ask, call: WriteCall[OwnershipResult], promised: OwnershipResult
) -> OwnershipResult:
    """A table at a place of its own. Its first version there was promised by the commit, and is kept now, if
    nobody has; ``KeyNotFound`` if nothing came of it, or if the table was dropped since."""
    version = promised.version + 1
    ask(PublishTable(key=promised.key, branch=call.target_name, version=version))
    return msgspec.structs.replace(promised, version=version)


def _get_versions(ask: Ask, key: Key, commit: str, branch: str, start: int | None = None) -> TableVersions:
    versions: TableVersions = ask(GetTableVersions(key=key, at=commit, via=branch, start=start))
    return versions
