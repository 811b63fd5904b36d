"""Answers about tables of files and the jobs that write them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

import msgspec

from penstock.formats.files.files import File
from penstock.model.clock import to_utc_datetime
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT
from penstock.model.jobs import Job, JobState
from penstock.model.keys import Key


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table, or a folder in a list that does not descend into folders."""

    location_fields: ClassVar[tuple[str, ...]] = ("address",)

    path: str
    """Of a folder with a slash at its end."""
    size: int = 0
    modified: datetime | None = None
    """When it was written; null for a folder."""
    checksum: str = ""
    """``sha256:…`` of its bytes, or ``etag:…`` as the storage calls them; empty if neither is known."""
    address: str = ""
    """Where its bytes are: the whole path or URL. Empty for a folder."""

    @classmethod
    def from_file(cls, pool: str, path: str, file: File) -> FileEntry:
        """A file as it is stored, with its whole address."""
        return cls(
            path=path,
            size=file.size,
            modified=to_utc_datetime(file.time_us),
            checksum=file.checksum,
            address=pool + file.address_at(path),
        )

    @property
    def is_folder(self) -> bool:
        return self.path.endswith("/")


class FilesTotal(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is."""

    files: int
    size: int
    """In bytes."""


class TableLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The layout of a table's files: how to read them."""

    format: str = ""
    """As Spark names it, such as `parquet`."""
    partition_by: tuple[str, ...] = ()
    schema: str = ""
    """Spark's, as JSON, with the partition columns."""
    options: dict[str, str] = {}
    """Options that a reader needs, such as `header`."""


class FilesTableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A table of files as a whole."""

    key: Key
    id: UUID
    files: int
    size: int
    """In bytes."""
    root: str
    """The hash of its tree: tables with the same hash have the same files at the same paths."""
    layout: TableLayout = TableLayout()
    """The layout of its files, as its last job declared it: format, partition columns, schema."""


class FilesWritten(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    commit: Commit | None = None
    """Null if nothing was to be done: a write on the condition that the table is empty, which it is not."""
    head: str
    """The branch's head afterwards."""

    @property
    def is_ignored(self) -> bool:
        return self.commit is None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as it is now."""

    id: str
    state: JobState
    key: str
    """Of the table that it writes."""
    branch: str
    own_branch: str = ""
    """The branch that it works on while it runs, if it has one."""
    what: str = ""
    application: str = ""
    who: str = ""
    began: datetime
    expires: datetime
    """Its deadline: after it, the job can no longer commit."""
    changed: datetime
    commit: str = ""
    """The commit that it made; also empty if there was nothing to do."""
    why: str = ""
    """It was aborted."""
    is_late: bool = False
    """It has not ended, but its deadline has passed."""

    @classmethod
    def from_job(cls, job: Job, now_us: int) -> JobInfo:
        return cls(
            id=job.id,
            state=job.state,
            key=job.key,
            branch=job.branch,
            own_branch=job.own_branch,
            what=job.what,
            application=job.application,
            who=job.who,
            began=to_utc_datetime(job.began_us),
            expires=to_utc_datetime(job.expires_us),
            changed=to_utc_datetime(job.changed_us),
            commit=job.commit.hex() if job.commit != NO_COMMIT else "",
            why=job.why,
            is_late=job.state is JobState.RUNNING and now_us > job.expires_us,
        )


class JobBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A job that may write."""

    location_fields: ClassVar[tuple[str, ...]] = ("folder",)

    job: JobInfo
    folder: str
    """Where its files go: the whole path or URL, with a slash at its end."""
    others: tuple[JobInfo, ...] = ()
    """Other jobs that write the same table on the same branch now."""
