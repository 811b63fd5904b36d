"""A job of an engine that saves rows as files of a table, and the calls that begin and commit it.

Nothing here asks a lake or runs an engine. From what a user wants, and from the files that tasks have
written, come the calls; what a save mode means is decided by whoever carries them out, at their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.files import FilesLayout
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake.answers import FilesTableInfo, JobInfo, TableLayout
from penstock.formats.files.lake.calls import BeginJob, ListOfFiles, NewFile, WriteFiles
from penstock.formats.files.layouts import find_difference
from penstock.lake.call import CommitDescription
from penstock.lake.write_jobs import SaveMode
from penstock.model.clock import to_utc_datetime
from penstock.model.keys import Key

PARTITIONS_TOLD_MAX: Final = 20
"""How many folders of partitions a commit names."""
READS_TOLD_MAX: Final = 100
"""How many of the tables that a job has read its commit names."""
OTHERS_TOLD_MAX: Final = 5
"""How many jobs a warning names."""
READER_OPTIONS: Final = frozenset({
    "charset", "chartoescapequoteescaping", "comment", "dateformat", "delimiter", "emptyvalue", "encoding",
    "escape", "header", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "linesep", "locale",
    "multiline", "nullvalue", "quote", "sep", "timestampformat", "timestampntzformat", "timezone",
})  # fmt: skip
"""Options of a write that whoever reads the files has to know, in lower case."""


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


class TaskFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task of Spark's has written, as the task tells."""

    name: str
    """Below the job's folder, or the table's root, as it is: not percent-encoded."""
    partition: str
    """The directory of its partition, as Spark spells it; empty without one."""
    size: int
    modified_ms: int
    etag: str = ""
    """What the storage says that its content is; empty where it says nothing."""

    @property
    def job_file(self) -> JobFile:
        return JobFile(
            path=self.name,
            partition=self.partition,
            size=self.size,
            modified_us=self.modified_ms * 1000,
            checksum=f"etag:{self.etag}" if self.etag else "",
        )


class JobOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has written."""

    added: tuple[NewFile, ...] | ListOfFiles = ()
    files: int = 0
    """How many."""
    bytes: int = 0
    partitions: tuple[str, ...] = ()
    """The folders of partitions that have got files, in order; an empty one for files of no partition."""
    rows: int | None = None
    """Nothing if nobody knows."""


def make_job_output(files: Iterable[JobFile], rows: int | None) -> JobOutput:
    """What a job has written, from its files and the number of its rows, if that is known.

    Without rows there are no files, though Spark may have written one that tells only the columns. It never
    writes more than one for nothing, or one in a partition: beside these, a count of no rows is not trusted.
    """
    written = tuple(files)
    if rows == 0 and (len(written) > 1 or any(file.partition for file in written)):
        rows = None
    if rows == 0:
        return JobOutput(rows=0)
    return JobOutput(
        added=tuple(_make_new_file(file) for file in written),
        files=len(written),
        bytes=sum(file.size for file in written),
        partitions=tuple(sorted({file.partition for file in written})),
        rows=rows,
    )


def make_begin_call(job: FilesJob, job_id: str, fence: str) -> BeginJob:
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


def make_commit_call(
    job: FilesJob, job_id: str, fence: str, folder: str, output: JobOutput, marker: NewFile | None = None
) -> WriteFiles:
    """The one commit of a job.

    ``folder`` is the one that the job was given, and ``marker`` the file that tells that it is done. A job
    without files asks too: it may empty the table, or create one that has only columns.
    """
    return WriteFiles(
        key=job.key,
        branch=job.branch,
        folder=get_folder_below_pool(folder),
        added=output.added,
        put=() if marker is None else (marker,),
        replaced=tuple(list_replaced_folders(job, output.partitions)),
        when=_write_condition(job, output),
        layout=job.layout,
        create=job.create,
        job=job_id,
        fence=fence,
        idempotency_key=job_id,
        said=make_commit_properties(job, job_id, output),
    )


def list_replaced_folders(job: FilesJob, partitions: Sequence[str]) -> Iterator[str]:
    """The folders whose files the job replaces."""
    if job.mode is not SaveMode.OVERWRITE:
        return
    if not job.is_by_partition:
        yield job.folder + job.static_folder
        return
    for partition in partitions:
        yield f"{job.folder}{partition}/" if partition else job.folder


def make_commit_properties(job: FilesJob, job_id: str, output: JobOutput) -> CommitDescription:
    """Message and properties of the job's commit: job id, mode, counts, application."""
    partitions = [partition for partition in output.partitions if partition]
    properties: dict[str, tuple[str, ...]] = {name: (value,) for name, value in job.properties.items()}
    properties |= {
        "penstock.job": (job_id,),
        "mode": (job.mode.value,),
        "files": (str(output.files),),
        "bytes": (str(output.bytes),),
    }
    if job.mode is SaveMode.OVERWRITE:
        properties["partition_overwrite"] = ("dynamic" if job.is_by_partition else "static",)
    if partitions:
        properties["partitions"] = (str(len(partitions)),)
        properties["partition"] = tuple(partitions[:PARTITIONS_TOLD_MAX])
    if output.rows is not None:
        properties["rows"] = (str(output.rows),)
    for name, value in (
        ("spark.application", job.application),
        ("spark.application.name", job.application_name),
        ("format", job.layout.format),
    ):
        if value:
            properties[name] = (value,)
    if job.read:
        properties["read"] = tuple(dict.fromkeys(job.read))[:READS_TOLD_MAX]
    return CommitDescription(
        message=job.message
        if job.message is not None
        else _commit_message(job, output.files, len(partitions)),
        authors=None if job.author is None else tuple(filter(None, (job.author,))),
        properties=properties,
    )


def write_concurrent_jobs_warning(key: Key, others: Sequence[JobInfo]) -> str:
    """A warning that names other jobs which write the same table on the same branch; empty if there are
    none."""
    if not others:
        return ""
    named = [f"{job.id} ({_describe_job(job)})" for job in others[:OTHERS_TOLD_MAX]]
    more = len(others) - len(named)
    return (
        f"'{key}' is being written on '{others[0].branch}' by other jobs too: "
        + ", ".join(named)
        + (f" and {more} more" if more else "")
    )


def _describe_job(job: JobInfo) -> str:
    parts = [job.what, f"by {job.application}" if job.application else ""]
    return " ".join([*filter(None, parts), f"since {job.began:%Y-%m-%d %H:%M} UTC"])


def _commit_message(job: FilesJob, files: int, partitions: int) -> str:
    count = _format_count(files, "file")
    match job.mode:
        case SaveMode.APPEND:
            return f"append {count} to {job.key}"
        case SaveMode.OVERWRITE if job.is_by_partition:
            return f"overwrite {_format_count(partitions, 'partition')} of {job.key} with {count}"
        case SaveMode.OVERWRITE:
            return f"overwrite {job.key} with {count}"
        case _:
            return f"write {count} to {job.key}"


def encode_success_marker(
    job: FilesJob, job_id: str, output: JobOutput, began: datetime, now_us: int
) -> bytes:
    """The content of the marker: a summary of the job, for programs that wait for one."""
    files = () if isinstance(output.added, ListOfFiles) else output.added
    return msgspec.json.encode(
        {
            "job": job_id,
            "application": job.application,
            "application_name": job.application_name,
            "table": str(job.key),
            "mode": job.mode.value,
            "format": job.layout.format,
            "began": began.isoformat(),
            "ended": to_utc_datetime(now_us).isoformat(),
            "rows": output.rows,
            "bytes": output.bytes,
            "files": [{"path": file.path, "size": file.size} for file in files],
        }
    )


def check_fits(job: FilesJob, about: FilesTableInfo) -> None:
    """``InvalidRequest`` if a job would lay files beside others that could not be read together with them.

    It only saves work: what is there when the job commits decides.
    """
    mixed = (
        find_difference(_make_layout(about.layout), _make_layout(job.layout))
        if about.files and job.is_beside
        else None
    )
    if mixed is not None:
        raise InvalidRequest(
            f"'{job.key}' has files {mixed.one}, but the job writes {mixed.other}\n  Write files like those "
            "of the table, write to another table, or replace all files of this one with mode='overwrite'.",
            table=str(job.key),
        )


def get_folder_below_pool(folder: str) -> str:
    """The folder of an attempt, as it was answered, as a commit names it: below the pool."""
    parts = folder.removesuffix("/").split("/")
    if len(parts) < 2:
        raise InvalidRequest(
            f"{folder!r} is not a folder that a job may write to: each attempt is given its own at its start"
        )
    return "/".join(parts[-2:]) + "/"


def select_reader_options(options: dict[str, str]) -> dict[str, str]:
    """Of a write's options those that a reader needs."""
    return {name: value for name, value in options.items() if name.lower() in READER_OPTIONS}


def _write_condition(job: FilesJob, output: JobOutput) -> WriteCondition:
    if not output.files and (job.mode is SaveMode.APPEND or job.is_by_partition):
        # A table that has files stays as it is; one that is not there is created, with its columns alone.
        return WriteCondition.IGNORE
    return _WHEN[job.mode]


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _make_new_file(file: JobFile) -> NewFile:
    return NewFile(path=file.path, size=file.size, modified_us=file.modified_us, checksum=file.checksum)


def _make_layout(table_layout: TableLayout) -> FilesLayout:
    return FilesLayout(**msgspec.structs.asdict(table_layout))


_WHEN: Final = {
    SaveMode.APPEND: WriteCondition.ALWAYS,
    SaveMode.OVERWRITE: WriteCondition.ALWAYS,
    SaveMode.ERROR: WriteCondition.EMPTY,
    SaveMode.IGNORE: WriteCondition.IGNORE,
}
