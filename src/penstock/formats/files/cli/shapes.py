"""What ``--json`` prints about tables of files and the jobs that write them; see ``shapes`` for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from penstock.cli.shapes import Shape
from penstock.formats.files.lake.answers import FileEntry, FilesWritten, JobInfo


class FilesTable(Shape, frozen=True, kw_only=True):
    """A table of files as a whole."""

    table: str
    """The key."""
    files: int
    """How many files it has."""
    size: int
    """Of all of them, in bytes."""
    format: str
    """Of its files, as its last job said; empty if none did."""
    partition_by: tuple[str, ...]
    """The columns that its folders are named by."""


class FilesTables(Shape, frozen=True, kw_only=True):
    """The tables of files."""

    ref: str
    """Where it was looked."""
    tables: tuple[FilesTable, ...]
    """By key."""


class StoredFile(Shape, frozen=True, kw_only=True):
    """A file of a table, or a folder in a list that does not go into folders."""

    path: str
    """In the table; of a folder with a slash at its end."""
    size: int
    """In bytes; 0 for a folder."""
    modified: datetime | None
    """When it was written; nothing for a folder."""
    checksum: str
    """`sha256:…` or `etag:…` of its bytes; empty if neither is known."""
    address: str
    """Where its bytes are; empty for a folder."""

    @classmethod
    def of(cls, entry: FileEntry) -> StoredFile:
        return cls(
            path=entry.path,
            size=entry.size,
            modified=entry.modified,
            checksum=entry.checksum,
            address=entry.address,
        )


class FilesListing(Shape, frozen=True, kw_only=True):
    """Files and folders of a table, by path."""

    table: str
    """The key."""
    ref: str
    """Where it was looked."""
    path: str
    """What was listed: a folder with a slash at its end, a file, or nothing for the whole table."""
    files: tuple[StoredFile, ...]
    """By path."""
    next: str | None
    """What `--after` goes on with; nothing if this is all."""


class FileBytes(Shape, frozen=True, kw_only=True):
    """Bytes of a file."""

    table: str
    """The key."""
    path: str
    """In the table."""
    start: int
    """The first byte that is here."""
    size: int
    """How many bytes are here."""
    base64: str
    """The bytes."""


class FilesAmount(Shape, frozen=True, kw_only=True):
    """How much there is in a table, folder or file."""

    path: str
    """In the table; of a folder with a slash at its end, empty for the whole table."""
    files: int
    """How many files."""
    size: int
    """Of all of them, in bytes."""


class FilesAmounts(Shape, frozen=True, kw_only=True):
    """How much there is in a table of files."""

    table: str
    """The key."""
    ref: str
    """Where it was looked."""
    amounts: tuple[FilesAmount, ...]
    """Of each folder that was asked about, then of all of it."""


class FilesChange(Shape, frozen=True, kw_only=True):
    """What a command changed in a table of files, or would change."""

    table: str
    """The key."""
    branch: str
    """The branch."""
    commit: str | None
    """The commit that did it; nothing for a dry run."""
    put: tuple[str, ...]
    """Paths that have new files."""
    removed: tuple[str, ...]
    """Paths and folders, these with a slash at their end, that are gone."""
    dry_run: bool
    """Whether nothing was changed in fact."""

    @classmethod
    def of(
        cls,
        table: str,
        branch: str,
        written: FilesWritten | None,
        put: Sequence[str] = (),
        removed: Sequence[str] = (),
    ) -> FilesChange:
        return cls(
            table=table,
            branch=branch,
            commit=None if written is None or written.commit is None else written.commit.id,
            put=tuple(put),
            removed=tuple(removed),
            dry_run=written is None,
        )


class FilesFetched(Shape, frozen=True, kw_only=True):
    """Files that were written to this machine's disk."""

    table: str
    """The key."""
    ref: str
    """The revision that they are of."""
    to: str
    """The file or directory that has them now."""
    files: int
    """How many."""
    size: int
    """Of all of them, in bytes."""


class Job(Shape, frozen=True, kw_only=True):
    """A job that writes a table of files."""

    id: str
    """32 hexadecimal digits."""
    state: str
    """`running`, `committing`, `committed` or `aborted`."""
    table: str
    """The key of the table that it writes."""
    branch: str
    """The branch that it writes to."""
    own_branch: str
    """The branch that it works on while it runs; empty if it has none."""
    what: str
    """What it does, in its own words."""
    application: str
    """Who runs it, such as a Spark application's id."""
    who: str
    """Who began it."""
    began: datetime
    """When this attempt began."""
    expires: datetime
    """After that it cannot commit any more."""
    changed: datetime
    """When its state last changed."""
    commit: str | None
    """The commit that it came to."""
    why: str
    """Why it was aborted; empty if it was not."""
    late: bool
    """Whether it runs, by what is known of it, and its time is over."""

    @classmethod
    def of(cls, job: JobInfo) -> Job:
        return cls(
            id=job.id,
            state=job.state.value,
            table=job.key,
            branch=job.branch,
            own_branch=job.own_branch,
            what=job.what,
            application=job.application,
            who=job.who,
            began=job.began,
            expires=job.expires,
            changed=job.changed,
            commit=job.commit or None,
            why=job.why,
            late=job.is_late,
        )


class Jobs(Shape, frozen=True, kw_only=True):
    """Jobs that write tables of files."""

    jobs: tuple[Job, ...]
    """Newest first."""
