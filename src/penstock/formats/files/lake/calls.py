"""Calls about tables of files: reading what they have, writing, and the jobs that write them.

A program rarely makes them itself: ``Table.files`` does. Bytes never travel in a call: who reads or writes a
file does so in storage, with access of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake.answers import (
    FileEntry,
    FilesTableInfo,
    FilesTotal,
    FilesWritten,
    JobBegun,
    JobInfo,
    TableLayout,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.call import Ask, Call, CommitDescription, ReadAt, RetrySafety, WriteCall
from penstock.lake.recovered_answers import landed_commit
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key


class NewFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that its writer has stored durably."""

    path: str
    """In the table, such as `day=1/part-0.parquet`."""
    name: str = ""
    """Below the writer's folder; the path itself if nothing is given."""
    size: int
    modified_us: int = 0
    """When it was written; when it is committed, if nothing is given."""
    checksum: str = ""
    """`sha256:…` or `etag:…`, if either is known."""


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that is to be there under another path too, without a copy of its bytes."""

    path: str
    """Where it is to be."""
    source: str
    """The path where it is."""
    key: Key | None = None
    """The table where it is; the same one if nothing is given."""
    at: str | None = None
    """The revision where it is; the branch that is written if nothing is given."""


class ListOfFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of new files that is too long for a request: a file in the writer's folder.

    It holds a list of `NewFile` in MessagePack.
    """

    name: str
    """Below the writer's folder."""
    size: int
    """Of the list, in bytes."""
    sha256: ObjectId
    """Of the list."""
    files: ObjectId | None = None
    """SHA-256 of a list in MessagePack with `[path, size, checksum]` of each file, in the same order, if
    every checksum is a `sha256:…`. By it a request that is sent again is known, wherever its files lie."""


def hash_of_files(new: Iterable[NewFile]) -> ObjectId | None:
    """What new files are, wherever they lie; nothing if not all are known by a hash of their bytes."""
    facts = [(file.path, file.size, file.checksum) for file in new]
    if not all(checksum.startswith("sha256:") for _, _, checksum in facts):
        return None
    return hash_object(encode(facts))


class WriteFiles(WriteCall[FilesWritten], frozen=True, kw_only=True):
    """Change the files of a table in one commit.

    It acts on the table as it is when its turn comes: first what lies below `replaced` goes, then `removed`,
    then the new files come.
    """

    path = "/files/commits"
    target = "branch"
    answer = FilesWritten
    makes_lake = True
    counted = ("copied", "removed", "replaced")
    unhashed = ("branch",)
    revisions = ()
    location_fields = ("expected",)

    key: Key
    """Of the table."""
    branch: str | None = None
    """The default branch if nothing is given."""
    folder: str = ""
    """The writer's, below the pool, as in `20261115-0123456789ab/<32 hexadecimal digits>/`: all new files are
    in it."""
    added: tuple[NewFile, ...] | ListOfFiles = ()
    """New files at paths that must be free."""
    put: tuple[NewFile, ...] | ListOfFiles = ()
    """New files that replace what is at their paths."""
    copied: tuple[CopiedFile, ...] = ()
    """Copied files, which also replace what is at their paths."""
    removed: tuple[str, ...] = ()
    """Paths of files to remove. Each must exist."""
    replaced: tuple[str, ...] = ()
    """Folders, each with a slash at its end, whose files are removed first; an empty one is the whole
    table."""
    when: WriteCondition = WriteCondition.ALWAYS
    """`empty` refuses it if the table has any file, `ignore` does nothing then."""
    expected: dict[str, str | None] = {}  # noqa: RUF012 - msgspec makes a new one each time
    """Of paths: the address, as it was answered, of the file there; nothing for no file."""
    layout: TableLayout | None = None
    """The layout of its files from now on: format, partition columns, schema."""
    create: bool = True
    """Create the table, and the namespaces above it, if it is not there."""
    job: str | None = None
    """The job that this is the commit of."""
    fence: str | None = None
    """Of the job's attempt. All that it sends lies in the folder that `BeginJob` answered, and the
    idempotency key is the job's id."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the commit."""

    @property
    def fixed_key(self) -> str | None:
        """For the commit of a job it is the job's id; the job's row has the outcome."""
        return self.job

    def list_named_revisions(self) -> Iterator[str]:
        return (file.at or "" for file in self.copied)

    def replace_unhashed_values(self) -> dict[str, Any]:
        """Also where new files lie, and since when: a writer who asks again has put the same bytes somewhere
        else. It matters if not all of them are known by a hash of their bytes."""
        files = {"added": _hash_known_files(self.added), "put": _hash_known_files(self.put)}
        where = {} if None in files.values() else {"folder": "", **files}
        return {**super().replace_unhashed_values(), **where}

    def recover(self, ask: Ask, landing: LandedRequest) -> FilesWritten:
        commit = landed_commit(ask, self, landing) if landing.commits else None
        return FilesWritten(commit=commit, head=landing.head)


def _hash_known_files(new: tuple[NewFile, ...] | ListOfFiles) -> ObjectId | None:
    return new.files if isinstance(new, ListOfFiles) else hash_of_files(new)


class ListFiles(ReadAt[tuple[FileEntry, ...]], frozen=True, kw_only=True):
    """Files by path, in the order of their UTF-8 bytes; the next page is ``after`` the last path."""

    path = "/files"
    answer = tuple[FileEntry, ...]
    pinned_by = ("at",)

    key: Key
    prefix: str = ""
    """How the paths begin."""
    folders: bool = False
    """Do not descend into folders below the prefix: each is one entry."""
    after: str = ""
    """Go on after this path, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class GetFiles(ReadAt[tuple[FileEntry, ...]], frozen=True, kw_only=True):
    """Files at given paths; those that are not there are left out."""

    path = "/files/entries"
    answer = tuple[FileEntry, ...]
    pinned_by = ("at",)

    key: Key
    file: tuple[str, ...] = ()
    """Paths. May be given several times."""


class SumFiles(ReadAt[FilesTotal], frozen=True, kw_only=True):
    """How many files there are below a prefix, and how large they are together."""

    path = "/files/total"
    answer = FilesTotal
    pinned_by = ("at",)

    key: Key
    prefix: str = ""
    """How the paths begin."""


class GetFilesTable(ReadAt[FilesTableInfo], frozen=True, kw_only=True):
    """A table of files as a whole."""

    path = "/files/table"
    answer = FilesTableInfo
    pinned_by = ("at",)

    key: Key


class BeginJob(Call[JobBegun], frozen=True, kw_only=True):
    """Begin an attempt of a job: it may write files, and commit them once unless it is aborted before.

    An attempt that runs already under the same id is superseded. A job that has committed is answered so.
    """

    method = "POST"
    path = "/jobs"
    answer = JobBegun
    retry = RetrySafety.SAFE
    makes_lake = True

    id: str
    """32 hexadecimal digits, of the job."""
    fence: str
    """The fencing token of this attempt: 32 hexadecimal digits, chosen by the caller."""
    key: Key
    """Of the table that it writes."""
    branch: str | None = None
    """The default branch if nothing is given."""
    own_branch: bool = False
    """Work on a branch of its own, which is merged when it commits: `jobs/<id>`, or `jobs/<id>-2` for the
    second attempt."""
    what: str = ""
    """For people: what it does."""
    application: str = ""
    """For people: who runs it."""
    timeout_s: float | None = None
    """Its deadline: after it, the job can no longer commit. At most half of the lake's data grace time, which
    it is if nothing is given."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class AbortJob(Call[JobInfo], frozen=True, kw_only=True):
    """Abort a job, so that it cannot commit. One that is committing, or has committed, stays as it is."""

    method = "POST"
    path = "/jobs/{id}/abort"
    answer = JobInfo
    retry = RetrySafety.SAFE
    makes_lake = False

    id: str
    fence: str | None = None
    """Only this attempt."""
    why: str = ""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class ListJobs(Call[tuple[JobInfo, ...]], frozen=True, kw_only=True):
    """Jobs that run, and for some days those that ended, newest first; the next page is ``after`` the last
    one."""

    path = "/jobs"
    answer = tuple[JobInfo, ...]

    key: Key | None = None
    """Only of this table."""
    branch: str | None = None
    """Only on this branch."""
    all: bool = False
    """Also those that ended."""
    id: str | None = None
    """Only this job."""
    after: str | None = None
    """Go on after this job, by its id: the last one of the page before. If it was forgotten meanwhile, or has
    begun anew, the list goes on from the beginning: some jobs come twice then, and none is missed."""
    limit: int | None = 100
    """At most this many."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    WriteFiles,
    ListFiles,
    GetFiles,
    SumFiles,
    GetFilesTable,
    BeginJob,
    AbortJob,
    ListJobs,
)
"""All of them."""
