"""Answers about tables of files and the jobs that write them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

import msgspec

from penstock.formats.files.files import File
from penstock.model.clock import utc
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT
from penstock.model.jobs import Job, JobState
from penstock.model.keys import Key


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table, or a folder in a list that does not go into folders."""

    location_fields: ClassVar[tuple[str, ...]] = ("address",)

    path: str
    """Of a folder with a slash at its end."""
    size: int = 0
    modified: datetime | None = None
    """When it was written; nothing for a folder."""
    checksum: str = ""
    """``sha256:…`` of its bytes, or ``etag:…`` as the storage calls them; empty if neither is known."""
    address: str = ""
    """Where its bytes are: the whole path or URL. Empty for a folder."""

    @classmethod
    def of(cls, pool: str, path: str, file: File) -> FileEntry:
        """A file as it is stored, with its whole address."""
        return cls(
            path=path,
            size=file.size,
            modified=utc(file.time_us),
            checksum=file.checksum,
            address=pool + file.at(path),
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
    """How the files of a table are to be read."""

    format: str = ""
    """As Spark names it, such as `parquet`."""
    partition_by: tuple[str, ...] = ()
    schema: str = ""
    """Spark's, as JSON, with the partition columns."""
    options: dict[str, str] = {}
    """That a reader needs, such as `header`."""


class FilesAbout(msgspec.Struct, frozen=True, kw_only=True):
    """A table of files as a whole."""

    key: Key
    id: UUID
    files: int
    size: int
    """In bytes."""
    root: str
    """Of its tree: two tables with the same one have the same files at the same paths."""
    layout: TableLayout = TableLayout()
    """How its files are to be read, as its last job said."""


class FilesWritten(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    commit: Commit | None = None
    """Nothing if there was nothing to do: a write that was only for an empty table, and it is not."""
    head: str
    """Of the branch, after it."""

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
    """After that it cannot commit any more."""
    changed: datetime
    commit: str = ""
    """That it came to; empty also if there was nothing to do."""
    why: str = ""
    """It was aborted."""
    is_late: bool = False
    """It runs, by what is known of it, and its time is over."""

    @classmethod
    def of(cls, job: Job, now_us: int) -> JobInfo:
        return cls(
            id=job.id,
            state=job.state,
            key=job.key,
            branch=job.branch,
            own_branch=job.own_branch,
            what=job.what,
            application=job.application,
            who=job.who,
            began=utc(job.began_us),
            expires=utc(job.expires_us),
            changed=utc(job.changed_us),
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
    """That write the same table on the same branch right now."""
