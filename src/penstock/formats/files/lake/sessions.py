"""Writes of code that knows only its Spark session: what becomes of each, decided from facts.

Spark's own classes write the files, and tell what they know of the write: its path, options and save mode.
The answers come from here, in the driver's Python process or, where there is none, in a server. Nothing is
remembered from step to step: every request has all the facts, and whatever was answered when the job began.
So a step may be asked for twice, and a process that has just been started can answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest, JobNotFound, KeyNotFound, PenstockError
from penstock.formats.files.files import make_repeatable_fence
from penstock.formats.files.lake import job_markers as files_beside
from penstock.formats.files.lake import save_job as files_save_job
from penstock.formats.files.lake.answers import FilesTableInfo, FilesWritten, JobBegun, JobInfo
from penstock.formats.files.lake.calls import AbortJob, GetFilesTable, ListJobs, ListOfFiles
from penstock.formats.files.lake.pending_changes import SENT_MAX
from penstock.formats.files.lake.save_job import FilesJob, JobOutput, TaskFile
from penstock.formats.files.lake.session_facts import WriteFacts, find_job
from penstock.lake.call import Call
from penstock.lake.calls import GetAbout
from penstock.lake.session_settings import OPTION
from penstock.lake.write_jobs import SaveMode, check_new_key, make_job_id
from penstock.model.jobs import JobState, check_job_id
from penstock.storage.hadoop import make_hadoop_address

if TYPE_CHECKING:
    from penstock.storage.places import Places


class ListedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are too many to be told: a list of them lies in the job's folder, as a commit takes it."""

    name: str
    """Of the list, below the folder."""
    size: int
    """Of the list, in bytes."""
    sha256: str
    """Of the list, in hexadecimal digits."""
    files: int
    """How many it names."""
    bytes: int
    """How large they are together."""
    partitions: tuple[str, ...]
    """The folders of their partitions, each once, in order; an empty one for files of no partition."""


class CheckedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of write it is."""

    is_ours: bool
    """Whether the write is to a table of the lake. Any other one is Spark's own affair."""


class BegunSession(msgspec.Struct, frozen=True, kw_only=True):
    """A job that may write."""

    job: str
    """Its id, which stays the same whatever becomes of the lake's default branch."""
    folder: str
    """Where its files go, as Hadoop spells it."""
    subdirectory: str = ""
    """Of that folder: all files go into it."""
    place: str
    """The same folder, as the lake spells it."""
    began: datetime
    others: str = ""
    """What is to be said of other jobs that write the same table now."""
    sent_max: int | None = None
    """Above this number of files, a list in the folder names them. Unset if there is no limit."""
    has_landed: bool = False
    """An earlier attempt of the same job has: whatever this one writes is in vain."""


class EndedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to."""

    remove: bool = False
    """Whether the files that were written are certain to be nobody's."""


class SessionWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a write of Spark's."""

    facts: WriteFacts
    begun: BegunSession | None = None
    """As it was answered when the job began; nothing before."""
    files: tuple[TaskFile, ...] = ()
    """That were written, once all of them are."""
    listed: ListedFiles | None = None
    """The same, if they are too many to be told."""
    rows: int | None = None
    """How many there are in all files."""


class SessionCaller(msgspec.Struct, frozen=True):
    """Who decides: what asks the lake, and where files of its own can be written."""

    do: Callable[[Call[Any]], Any]
    places: Places | None = None
    """Nothing in a server, which writes no files for others."""
    who: str = ""
    """Who acts. A server knows that by itself."""

    def do_write_call(self, call: Call[Any]) -> Any:
        """Carry out a call that says who acts."""
        return self.do(msgspec.structs.replace(call, who=self.who) if self.who else call)


def check_session_write(by: SessionCaller, session_write: SessionWrite) -> CheckedSession:
    """Whether a write is to a table of the lake; ``InvalidRequest`` if it is, and cannot be done."""
    job = find_job(session_write.facts)
    if job is not None and job.success_file and by.places is None:
        raise InvalidRequest(
            "penstock.success_file needs a driver in Python, because a server cannot write files for it; "
            "leave it out"
        )
    return CheckedSession(is_ours=job is not None)


def begin_session_job(by: SessionCaller, session_write: SessionWrite) -> BegunSession:
    """Let the job begin. Sent again, it is answered the same."""
    job = _require_job(session_write.facts)
    job_id = _choose_job_id(by, job, session_write.facts)
    try:
        _check_table(by, job)
    except PenstockError:
        if not _has_landed(by, job_id):  # what became of the table since is nothing to it
            raise
    begun: JobBegun = by.do_write_call(
        files_save_job.make_begin_call(job, job_id, _make_fence(by, job, session_write.facts))
    )
    return BegunSession(
        job=job_id,
        folder=make_hadoop_address(begun.folder),
        subdirectory=job.folder.removesuffix("/"),
        place=begun.folder,
        began=begun.job.began,
        others=files_save_job.write_concurrent_jobs_warning(job.key, begun.others),
        sent_max=SENT_MAX if by.places is None else None,
        has_landed=begun.job.state is JobState.COMMITTED,
    )


def commit_session_job(by: SessionCaller, session_write: SessionWrite) -> EndedSession:
    """Commit what the job has written, once, however often this is asked for."""
    job, begun = _require_job(session_write.facts), _require_begun(session_write)
    if begun.has_landed:
        return EndedSession(remove=True)  # of this attempt, whose folder is not that of the one that landed
    output, marker = _make_output(session_write), None
    folder = files_save_job.get_folder_below_pool(begun.place)
    pool = None if by.places is None else by.places.open_place(begun.place.removesuffix(folder))
    if job.success_file and pool is not None:
        marker = files_beside.put_marker(pool, folder, job, begun.job, output, begun.began)
    call = files_save_job.make_commit_call(
        job, begun.job, _get_attempt_fence(begun), begun.place, output, marker
    )
    written: FilesWritten = by.do_write_call(
        call if pool is None else files_beside.with_file_list(pool, call)
    )
    # What was ignored, and what has no rows, is named by no commit.
    is_ignored = job.mode is SaveMode.IGNORE and written.commit is None
    return EndedSession(remove=is_ignored or not output.files)


def abort_session_job(by: SessionCaller, session_write: SessionWrite) -> EndedSession:
    """Let the job never land. One that may have landed keeps its files."""
    begun = _require_begun(session_write)
    if begun.has_landed:
        return EndedSession()
    try:
        job: JobInfo = by.do_write_call(
            AbortJob(id=begun.job, fence=_get_attempt_fence(begun), why="the Spark job failed")
        )
    except JobNotFound:
        return EndedSession()
    return EndedSession(remove=job.state is JobState.ABORTED)


STEPS: Final[
    Mapping[str, Callable[[SessionCaller, SessionWrite], CheckedSession | BegunSession | EndedSession]]
] = {
    "check": check_session_write,
    "begin": begin_session_job,
    "commit": commit_session_job,
    "abort": abort_session_job,
}


def _require_job(facts: WriteFacts) -> FilesJob:
    job = find_job(facts)
    if job is None:
        raise InvalidRequest(f"{facts.path} is not a table of the lake")
    return job


def _choose_job_id(by: SessionCaller, job: FilesJob, facts: WriteFacts) -> str:
    """The id of the job: what the user's name for it stands for, on the branch that it writes, or Spark's."""
    name = facts.options.get(f"{OPTION}job_id")
    branch = job.branch
    if name is not None and branch is None:
        branch = by.do(GetAbout()).default_branch
    return make_job_id(facts.job if name is None else name, job.key, branch or "")


def _make_fence(by: SessionCaller, job: FilesJob, facts: WriteFacts) -> str:
    """The fence of the attempt: the same, however often it begins."""
    attempt = UUID(hex=check_job_id(facts.attempt, "id of an attempt"))
    return make_repeatable_fence(job.branch or by.do(GetAbout()).default_branch, job.key, attempt).hex


def _get_attempt_fence(begun: BegunSession) -> str:
    """The fence of the attempt, by which its folder is named."""
    return begun.place.rstrip("/").rpartition("/")[2]


def _require_begun(session_write: SessionWrite) -> BegunSession:
    if session_write.begun is None:
        raise InvalidRequest("this write has not begun: begin the job first")
    return session_write.begun


def _check_table(by: SessionCaller, job: FilesJob) -> None:
    """Refuse what cannot be done to the table as it is now; ``NotManaged`` if the key is something else's."""
    try:
        about: FilesTableInfo = by.do(GetFilesTable(key=job.key, at=job.branch))
    except KeyNotFound:
        check_new_key(job.key)
        return
    files_save_job.check_fits(job, about)


def _has_landed(by: SessionCaller, job_id: str) -> bool:
    jobs: tuple[JobInfo, ...] = by.do(ListJobs(id=job_id, all=True, limit=1))
    return any(job.state is JobState.COMMITTED for job in jobs)


def _make_output(session_write: SessionWrite) -> JobOutput:
    listed_files = session_write.listed
    if listed_files is None:
        return files_save_job.make_job_output(
            (file.job_file for file in session_write.files), session_write.rows
        )
    try:
        added = ListOfFiles(
            name=listed_files.name, size=listed_files.size, sha256=bytes.fromhex(listed_files.sha256)
        )
    except ValueError:
        raise InvalidRequest(
            f"the SHA-256 of the list of files must be 64 hexadecimal digits, got '{listed_files.sha256}'"
        ) from None
    return JobOutput(
        added=added,
        files=listed_files.files,
        bytes=listed_files.bytes,
        partitions=listed_files.partitions,
        rows=session_write.rows,
    )
