"""Writes of code that knows only its Spark session: what becomes of each, decided from facts.

Spark's own classes write the files, and tell what they know of the write: its path, options and save mode.
The answers come from here, in the driver's Python process or, where there is none, in a server. Nothing is
remembered from step to step: every request has all the facts, and whatever was answered when the job began.
So a step may be asked for twice, and a process that has just been started can answer it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, JobNotFound, KeyNotFound, NotManaged
from penstock.lake import files_saving
from penstock.lake.call import Call
from penstock.lake.files_answers import FilesAbout, FilesWritten, JobBegun, JobInfo
from penstock.lake.files_calls import AbortJob, GetFilesTable, ListJobs, NewFile
from penstock.lake.files_facts import OPTION, Facts, job_of
from penstock.lake.files_saving import FilesJob, JobFile
from penstock.model.jobs import JobState
from penstock.storage.hadoop import hadoop_address

if TYPE_CHECKING:
    from penstock.storage.places import Places


class TaskFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task has written, as the task tells."""

    name: str
    """Below the job's folder."""
    partition: str
    size: int
    modified_ms: int
    etag: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of write it is."""

    is_ours: bool
    """Whether the write is to a table of the lake. Any other one is Spark's own affair."""


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A job that may write."""

    folder: str
    """Where its files go, as Hadoop spells it."""
    subdirectory: str = ""
    """Of that folder: all files go into it."""
    place: str
    """The same folder, as the lake spells it."""
    keeps_layout: bool = False
    """How the table's files are to be read stays as it is."""
    has_landed: bool = False
    """An earlier attempt of the same job has: whatever this one writes is in vain."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to."""

    commit: str = ""
    """Empty if there was nothing to be done, or it was aborted."""
    remove: bool = False
    """Whether the files that were written are certain to be nobody's."""


class SessionWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a write of Spark's."""

    facts: Facts
    begun: Begun | None = None
    """As it was answered when the job began; nothing before."""
    files: tuple[TaskFile, ...] = ()
    """That were written, once all of them are."""


class Deciding(msgspec.Struct, frozen=True):
    """Who decides: what asks the lake, and where files of its own can be written."""

    do: Callable[[Call[Any]], Any]
    places: Places | None = None
    """Nothing in a server, which writes no files for others."""
    who: str = ""
    """Who acts. A server knows that by itself."""

    def write(self, call: Call[Any]) -> Any:
        """Carry out a call that says who acts."""
        return self.do(msgspec.structs.replace(call, who=self.who) if self.who else call)


def check(by: Deciding, asked: SessionWrite) -> Checked:
    """Whether a write is to a table of the lake; ``InvalidRequest`` if it is, and cannot be done."""
    job = job_of(asked.facts)
    if job is not None and job.success_file and by.places is None:
        raise InvalidRequest(
            "penstock.success_file is for drivers in Python, since a server writes no files for others; "
            "leave it out"
        )
    return Checked(is_ours=job is not None)


def begin(by: Deciding, asked: SessionWrite) -> Begun:
    """Let the job begin. Sent again, it is answered the same."""
    job, job_id = _required(asked.facts)
    about = _about(by, job)
    if about is not None and not job.folder:
        files_saving.check_fits(job, about)
    begun: JobBegun = by.write(files_saving.begin(job, job_id, asked.facts.attempt))
    return Begun(
        folder=hadoop_address(begun.folder),
        subdirectory=job.folder.removesuffix("/"),
        place=begun.folder,
        keeps_layout=bool(job.folder and about is not None and about.format),
        has_landed=begun.job.state is JobState.COMMITTED,
    )


def commit(by: Deciding, asked: SessionWrite) -> Ended:
    """Commit what the job has written, once, however often this is asked for."""
    job, job_id = _required(asked.facts)
    begun = _begun(asked)
    if begun.has_landed:
        return Ended(commit=_landed(by, job_id), remove=True)
    files = [_job_file(one) for one in asked.files]
    marker = _marker(by, job, job_id, files, begun)
    call = files_saving.commit(job, job_id, asked.facts.attempt, begun.place, files, marker)
    if begun.keeps_layout:
        call = msgspec.structs.replace(call, layout=None)
    written: FilesWritten = by.write(call)
    if written.commit is None:
        return Ended(remove=True)  # the table has files already, and stays as it is
    return Ended(commit=written.commit.id)


def abort(by: Deciding, asked: SessionWrite) -> Ended:
    """Let the job never land. One that may have landed keeps its files."""
    _, job_id = _required(asked.facts)
    if _begun(asked).has_landed:
        return Ended(remove=True)
    try:
        told: JobInfo = by.write(AbortJob(id=job_id, fence=asked.facts.attempt, why="the Spark job failed"))
    except JobNotFound:
        return Ended()
    return Ended(remove=told.state is JobState.ABORTED)


STEPS: Final[Mapping[str, Callable[[Deciding, SessionWrite], Checked | Begun | Ended]]] = {
    "check": check,
    "begin": begin,
    "commit": commit,
    "abort": abort,
}


def _required(facts: Facts) -> tuple[FilesJob, str]:
    job = job_of(facts)
    if job is None:
        raise InvalidRequest(f"{facts.path} is no table of the lake")
    return job, files_saving.job_id(facts.options.get(f"{OPTION}job_id", facts.job))


def _begun(asked: SessionWrite) -> Begun:
    if asked.begun is None:
        raise InvalidRequest("this step is for a job that has begun")
    return asked.begun


def _about(by: Deciding, job: FilesJob) -> FilesAbout | None:
    """The table as it is now, if there is one. Only what would be refused anyway is refused for it."""
    try:
        found: FilesAbout = by.do(GetFilesTable(key=job.key, at=job.branch))
    except KeyNotFound:
        return None
    except NotManaged:
        raise InvalidRequest(
            f"'{job.key}' is no table of files, so that Spark's files cannot be added to it\n"
            f"  Write it by penstock.spark.write(df, '{job.key}').",
            table=str(job.key),
        ) from None
    return found


def _job_file(file: TaskFile) -> JobFile:
    return JobFile(
        path=file.name,
        partition=file.partition,
        size=file.size,
        modified_us=file.modified_ms * 1000,
        checksum=f"etag:{file.etag}" if file.etag else "",
    )


def _marker(by: Deciding, job: FilesJob, job_id: str, files: list[JobFile], begun: Begun) -> NewFile | None:
    if not job.success_file or by.places is None:
        return None
    now_us = time.time_ns() // 1000
    data = files_saving.success(job, job_id, files, now_us)
    made = files_saving.marker(data, now_us)
    by.places.at(begun.place).put(made.path, data)
    return made


def _landed(by: Deciding, job_id: str) -> str:
    found: tuple[JobInfo, ...] = by.do(ListJobs(id=job_id, all=True, limit=1))
    return next((one.commit for one in found), "")
