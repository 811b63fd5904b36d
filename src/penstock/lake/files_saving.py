"""Saving: what a job of an engine is to do to a table of files, as the calls that begin and commit it.

Nothing here asks a lake or runs an engine. From what a user wants, and from the files that tasks have
written, come the calls; what a save mode means is decided by whoever carries them out, at their turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.files import MARKER
from penstock.formats.files.intents import When
from penstock.lake.call import Said
from penstock.lake.files_answers import FilesAbout
from penstock.lake.files_calls import BeginJob, NewFile, TableLayout, WriteFiles
from penstock.model.clock import utc
from penstock.model.keys import Key

PARTITIONS_TOLD_MAX: Final = 20
"""How many folders of partitions a commit names."""
READER_OPTIONS: Final = frozenset({
    "charset", "chartoescapequoteescaping", "comment", "dateformat", "delimiter", "emptyvalue", "encoding",
    "escape", "header", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "linesep", "locale",
    "multiline", "nullvalue", "quote", "sep", "timestampformat", "timestampntzformat", "timezone",
})  # fmt: skip
"""Options of a write that whoever reads the files has to know, in lower case."""

_ID: Final = re.compile("[0-9a-f]{32}")


class SaveMode(StrEnum):
    """What becomes of the files that a table has when a job commits."""

    APPEND = "append"
    """They stay."""
    OVERWRITE = "overwrite"
    """They go, or those of some folders do."""
    ERROR = "error"
    """If there are any, the job is refused."""
    IGNORE = "ignore"
    """If there are any, nothing happens."""


class FilesJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to do."""

    key: Key
    branch: str | None = None
    mode: SaveMode = SaveMode.APPEND
    is_dynamic: bool = False
    """Overwrite only the partitions that get files."""
    folder: str = ""
    """The folder of the table that it writes below, with a slash at its end; nothing for the whole table."""
    static_folder: str = ""
    """The folder, below that one, of the partitions whose values the job fixes; with a slash at its end."""
    layout: TableLayout = TableLayout()
    create: bool = True
    """Create the table if it is not there."""
    own_branch: bool = False
    success_file: bool = False
    timeout_s: float | None = None
    application: str = ""
    application_name: str = ""
    message: str | None = None
    author: str | None = None
    properties: dict[str, str] = {}
    """That the user gives the commit."""
    read: tuple[str, ...] = ()
    """What the job has read, each as `key@commit`."""

    @property
    def is_beside(self) -> bool:
        """Whether its files may come to lie beside others, which it does not replace."""
        if self.mode is SaveMode.OVERWRITE:
            return self.is_by_partition or bool(self.folder + self.static_folder)
        return self.mode is SaveMode.APPEND

    @property
    def is_by_partition(self) -> bool:
        """Whether it overwrites single partitions. A table without partition columns is one as a whole."""
        return self.mode is SaveMode.OVERWRITE and self.is_dynamic and bool(self.layout.partition_by)


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task has written, and that its job commits."""

    path: str
    """In the table, and below the job's folder."""
    partition: str = ""
    """The folder of its partition, as the engine spells it; without a slash at its end."""
    size: int
    modified_us: int = 0
    checksum: str = ""
    rows: int = -1
    """-1 if nobody knows."""


def job_id(given: str | None) -> str:
    """The id of a job: a new one, the one that is given, or what a name of the user's stands for."""
    if given is None:
        return uuid4().hex
    if not given:
        raise InvalidRequest("the id of a job is empty; leave it out, or give each job a name of its own")
    plain = given.replace("-", "").lower()
    return plain if _ID.fullmatch(plain) else hashlib.sha256(given.encode()).hexdigest()[:32]


def begin(job: FilesJob, job_id: str, fence: str) -> BeginJob:
    """The call that lets an attempt of a job begin."""
    return BeginJob(
        id=job_id,
        fence=fence,
        key=job.key,
        branch=job.branch,
        own_branch=job.own_branch,
        what=f"{job.mode} {job.layout.format} files".replace("  ", " "),
        application=" ".join(filter(None, (job.application_name, job.application))),
        timeout_s=job.timeout_s,
    )


def commit(
    job: FilesJob,
    job_id: str,
    fence: str,
    folder: str,
    files: Sequence[JobFile],
    marker: NewFile | None = None,
    rows: int | None = None,
) -> WriteFiles:
    """The one commit of a job.

    ``folder`` is the one that the job was given, and ``marker`` the file that tells that it is done. ``rows``
    are those of all files, if their number is known. A job without files asks too: it may empty the table, or
    create one that has only columns.
    """
    return WriteFiles(
        key=job.key,
        branch=job.branch,
        folder=below_pool(folder),
        added=tuple(_new(one) for one in files),
        put=() if marker is None else (marker,),
        replaced=tuple(replaced(job, files)),
        when=_when(job, files),
        layout=job.layout,
        create=job.create,
        job=job_id,
        fence=fence,
        idempotency_key=job_id,
        said=said(job, job_id, files, rows),
    )


def replaced(job: FilesJob, files: Sequence[JobFile]) -> Iterator[str]:
    """The folders whose files make room for those of the job."""
    if job.mode is not SaveMode.OVERWRITE:
        return
    if not job.is_by_partition:
        yield job.folder + job.static_folder
        return
    for partition in sorted({one.partition for one in files}):
        yield f"{job.folder}{partition}/" if partition else job.folder


def said(job: FilesJob, job_id: str, files: Sequence[JobFile], rows: int | None = None) -> Said:
    """What the commit says of itself, so that the history tells what ran."""
    partitions = sorted({one.partition for one in files if one.partition})
    if rows is None and files and all(one.rows >= 0 for one in files):
        rows = sum(one.rows for one in files)
    told: dict[str, tuple[str, ...]] = {name: (value,) for name, value in job.properties.items()}
    told |= {
        "penstock.job": (job_id,),
        "mode": (job.mode.value,),
        "files": (str(len(files)),),
        "bytes": (str(sum(one.size for one in files)),),
    }
    if job.mode is SaveMode.OVERWRITE:
        told["partition_overwrite"] = ("dynamic" if job.is_by_partition else "static",)
    if partitions:
        told["partitions"] = (str(len(partitions)),)
        told["partition"] = tuple(partitions[:PARTITIONS_TOLD_MAX])
    if rows is not None:
        told["rows"] = (str(rows),)
    for name, value in (
        ("spark.application", job.application),
        ("spark.application.name", job.application_name),
        ("format", job.layout.format),
    ):
        if value:
            told[name] = (value,)
    if job.read:
        told["read"] = job.read
    return Said(
        message=job.message if job.message is not None else _message(job, len(files), len(partitions)),
        authors=None if job.author is None else tuple(filter(None, (job.author,))),
        properties=told,
    )


def _message(job: FilesJob, files: int, partitions: int) -> str:
    count = _counted(files, "file")
    match job.mode:
        case SaveMode.APPEND:
            return f"append {count} to {job.key}"
        case SaveMode.OVERWRITE if job.is_by_partition:
            return f"overwrite {_counted(partitions, 'partition')} of {job.key} with {count}"
        case SaveMode.OVERWRITE:
            return f"overwrite {job.key} with {count}"
        case _:
            return f"write {count} to {job.key}"


def success(
    job: FilesJob,
    job_id: str,
    files: Sequence[JobFile],
    now_us: int,
    *,
    began_us: int | None = None,
    rows: int | None = None,
) -> bytes:
    """The content of the marker: a summary of the job, for programs that wait for one."""
    return msgspec.json.encode(
        {
            "job": job_id,
            "application": job.application,
            "application_name": job.application_name,
            "table": str(job.key),
            "mode": job.mode.value,
            "format": job.layout.format,
            "began": None if began_us is None else utc(began_us).isoformat(),
            "ended": utc(now_us).isoformat(),
            "rows": rows,
            "bytes": sum(one.size for one in files),
            "files": [{"path": one.path, "size": one.size} for one in files],
        }
    )


def marker(data: bytes, now_us: int) -> NewFile:
    """The marker as a file of the table, once its content lies in the job's folder."""
    return NewFile(
        path=MARKER,
        size=len(data),
        modified_us=now_us,
        checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
    )


def check_fits(job: FilesJob, about: FilesAbout) -> None:
    """``InvalidRequest`` if a job would lay files beside others that are partitioned otherwise."""
    theirs, ours = about.partition_by, job.layout.partition_by
    if not about.files or not about.format or theirs == ours or not job.is_beside:
        return
    raise InvalidRequest(
        f"'{job.key}' is partitioned by {_names(theirs)}, and the job writes files partitioned by "
        f"{_names(ours)}\n  Write it with the table's partition columns, or overwrite the table.",
        table=str(job.key),
    )


def below_pool(folder: str) -> str:
    """The folder of an attempt, as it was answered, as a commit names it: below the pool."""
    day, attempt = folder.removesuffix("/").split("/")[-2:]
    return f"{day}/{attempt}/"


def reader_options(options: dict[str, str]) -> dict[str, str]:
    """Of a write's options those that a reader needs."""
    return {name: value for name, value in options.items() if name.lower() in READER_OPTIONS}


def _when(job: FilesJob, files: Sequence[JobFile]) -> When:
    if not files and (job.mode is SaveMode.APPEND or job.is_by_partition):
        # A table that has files stays as it is; one that is not there is created, with its columns alone.
        return When.IGNORE
    return _WHEN[job.mode]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _new(file: JobFile) -> NewFile:
    return NewFile(path=file.path, size=file.size, modified_us=file.modified_us, checksum=file.checksum)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in columns) or "nothing"


_WHEN: Final = {
    SaveMode.APPEND: When.ALWAYS,
    SaveMode.OVERWRITE: When.ALWAYS,
    SaveMode.ERROR: When.EMPTY,
    SaveMode.IGNORE: When.IGNORE,
}
