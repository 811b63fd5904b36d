"""Answering calls about jobs, and the one commit that each may make, from a kernel in this process.

A process may die between any two steps here, and a repetition of the call continues from there. The log of
the job's branch decides whether a commit has landed, not the job's row, which only follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from penstock.errors import (
    ConflictError,
    HistoryExpired,
    IdempotencyKeyReused,
    InvalidRequest,
    JobOver,
    LakeMoved,
    PenstockError,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
    RequestError,
)
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.files.lake.answers import FilesWritten, JobBegun, JobInfo
from penstock.formats.files.lake.ended_jobs import drop_branch
from penstock.formats.files.lake.pool import find_pool, require_fence
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.job_attempts import SUPERSEDED, JobAttempts
from penstock.kernel.reference_rows import decode_branch_or_tag
from penstock.kernel.three_way import MergeOptions
from penstock.lake.call import Call, request_digest, take_first
from penstock.model.commits import Commit, CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.jobs import (
    TEXT_MAX_CHARS,
    Job,
    JobState,
    check_job_id,
    make_own_branch_note,
    name_own_branch,
    parse_attempt,
)
from penstock.model.operations import Change
from penstock.model.references import Kind

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

logger = logging.getLogger("penstock")
CANCELLED: Final = "it was cancelled"
"""The reason in the row of a job whose commit was called off before anybody gave a reason."""

TIDIED_AT_ONCE: Final = 10
"""How many rows of jobs that are over are looked at when another one begins: that costs about the same,
however many there are, and keeps their number in bounds."""
OUT_OF_TIME: Final = "it timed out"


class JobHandlers:
    """Answers the calls about jobs, and lands what jobs write."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self._attempts = JobAttempts(lake.kernel)
        self._jobs = self._attempts.jobs
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            files_calls.BeginJob: self._begin_job,
            files_calls.AbortJob: self._abort_job,
            files_calls.ListJobs: self._list_jobs,
        }

    # -- the one commit ------------------------------------------------------------------------------------

    def check_write(self, call: files_calls.WriteFiles) -> None:
        """``InvalidRequest`` for what no attempt of a job would send."""
        assert call.job is not None
        check_job_id(call.job)
        if call.fence is None:
            raise InvalidRequest("the commit of a job needs the fencing token of its attempt")
        require_fence(call.fence, self._lake.get_branch_or_default(call.branch), call.key)
        if call.idempotency_key not in (None, call.job):
            raise InvalidRequest("the idempotency key of a job's commit must be the id of the job")
        if call.folder and call.folder.rstrip("/").rpartition("/")[2] != call.fence:
            raise InvalidRequest(f"{call.folder!r} is not the folder of this attempt of job {call.job}")

    def commit_job(self, call: files_calls.WriteFiles, change: Change, meta: CommitMeta) -> FilesWritten:
        """The one commit of a job: it lands once, or it never will.

        A refusal tells that this attempt has not landed, and never will: its writer may remove the files.
        """
        assert call.job is not None
        assert call.fence is not None
        branch = self._lake.get_branch_or_default(call.branch)
        job = self._attempts.send_commit(call.job, call.fence, str(call.key), branch)
        if job.state is JobState.COMMITTED:
            self._delete_branches(job.list_own_branches())
            return self._read_result(job)
        try:
            written = self._commit_or_merge_branch(call, change, meta, job)
        except LakeMoved:
            raise
        except (RequestError, ConflictError) as refused:
            return self._note_refused(job, refused)
        commit = NO_COMMIT if written.commit is None else written.commit.object_id
        self._attempts.hand_off.note_landed(job, commit)
        self._delete_branches(job.list_own_branches())
        return written

    def _note_refused(self, job: Job, refused: RequestError | ConflictError) -> FilesWritten:
        """Note that a job's commit was refused, and raise the reason. If another sender of it has landed it,
        return that result instead."""
        is_off = isinstance(refused, IdempotencyKeyReused | JobOver)
        why = CANCELLED if is_off else refused.message
        ended = self._attempts.hand_off.note_refused(job, why)
        if ended.fence == job.fence:
            self._delete_branches(ended.list_own_branches())
            if ended.state is JobState.COMMITTED:
                return self._read_result(ended)
        else:
            self._delete_branches([job.own_branch] if job.own_branch else [])
        if is_off:
            reason = ended.why if ended.fence == job.fence else SUPERSEDED
            cause = f": {reason}" if reason and reason != CANCELLED else ""
            raise JobOver(
                f"this attempt of job {job.id} was cancelled before it was applied{cause}", job=job.id
            ) from None
        raise refused

    def _commit_or_merge_branch(
        self, call: files_calls.WriteFiles, change: Change, meta: CommitMeta, job: Job
    ) -> FilesWritten:
        if job.own_branch and call.when is not WriteCondition.IGNORE:
            return self._commit_and_merge(call, change, meta, job)
        # Whether there is anything to ignore it for, only the target's turn tells: a merge would be a commit
        # also if it changes nothing.
        outcome = self._kernel.commit(
            job.branch,
            [change],
            meta,
            grown_from=job.base,
            incarnation=job.incarnation,
            create_namespaces=call.create,
            doubt_from=job.position,
            key=job.commit_key,
            fingerprint=partial(request_digest, call),
        )
        return describe_written(self._lake, outcome)

    def _commit_and_merge(
        self, call: files_calls.WriteFiles, change: Change, meta: CommitMeta, job: Job
    ) -> FilesWritten:
        """Commit on the attempt's own branch, then merge it: both under the job's idempotency key, so that
        whoever repeats them goes on where another one stopped."""
        key, digest = job.commit_key, partial(request_digest, call)
        made = self._commit_on_own_branch(call, change, meta, job)
        if not made.commits:
            return FilesWritten(head=self._kernel.references.get_reference(job.branch).id)
        merged = self._kernel.merge(
            made.head,
            job.branch,
            meta,
            MergeOptions(),
            grown_from=job.base,
            incarnation=job.incarnation,
            doubt_from=job.position,
            key=key,
            fingerprint=digest,
        )
        # Somebody may have merged the attempt's branch by hand: then its own commit is in the target.
        commit = ObjectId(bytes.fromhex(merged.commits[-1])) if merged.commits else made.commits[-1]
        return FilesWritten(
            commit=Commit.from_stored(commit, self._kernel.history.read_commit(commit)), head=merged.head
        )

    def _commit_on_own_branch(
        self, call: files_calls.WriteFiles, change: Change, meta: CommitMeta, job: Job
    ) -> RequestOutcome:
        """The commit on the branch that the attempt has made; ``JobOver`` if that is gone."""
        try:
            own = self._kernel.references.get_reference(job.own_branch)
            if own.note == make_own_branch_note(job.fence):
                return self._kernel.commit(
                    job.own_branch,
                    [change],
                    meta,
                    incarnation=own.incarnation,
                    create_namespaces=call.create,
                    key=job.commit_key,
                    fingerprint=partial(request_digest, call),
                )
        except (ReferenceNotFound, ReferenceChanged):
            pass
        raise JobOver(
            f"the branch '{job.own_branch}' of this attempt of job {job.id} no longer exists", job=job.id
        )

    def _read_result(self, job: Job) -> FilesWritten:
        """The result of a job that has committed, from its row."""
        head = job.commit
        with suppress(ReferenceNotFound):
            head = self._kernel.references.get_reference(job.branch).head
        commit: Commit | None = None
        if job.commit != NO_COMMIT:
            with suppress(HistoryExpired):
                commit = Commit.from_stored(job.commit, self._kernel.history.read_commit(job.commit))
        return FilesWritten(commit=commit, head=head.hex())

    def _delete_branches(self, branches: Iterable[str]) -> None:
        """Remove branches that attempts made which are over; what cannot go now, goes with the next sweep."""
        for name in branches:
            try:
                branch_or_tag = decode_branch_or_tag(self._kernel.store.reference(name))
                if branch_or_tag is not None and parse_attempt(branch_or_tag) is not None:
                    drop_branch(self._kernel, branch_or_tag)
            except PenstockError as problem:
                logger.warning(
                    "branch '%s' of an ended job could not be removed yet; the next sweep removes it: %s",
                    name,
                    problem,
                )

    # -- beginning -----------------------------------------------------------------------------------------

    def _begin_job(self, call: files_calls.BeginJob) -> JobBegun:
        check_job_id(call.id)
        require_fence(call.fence, self._lake.get_branch_or_default(call.branch), call.key)
        pool, now_us = find_pool(self._lake.warehouse), self._kernel.clock()
        begun, before = self._attempts.begin_attempt(self._make_job(call, now_us))
        if begun.has_ended:
            self._delete_branches(begun.list_own_branches())
        elif before is not None and before.own_branch != begun.own_branch:
            self._delete_branches([before.own_branch] if before.own_branch else [])
        if begun.own_branch and begun.state is JobState.RUNNING:
            self._make_branch(begun)
        # Of this attempt, also where an earlier one has landed: that one's files are the table's.
        folder = pool + make_folder_name(self._lake.id, UUID(hex=call.fence), begun.began_us)
        others = tuple(self._list_concurrent_jobs(begun, now_us))
        self._forget_some_old_jobs()
        return JobBegun(job=JobInfo.from_job(begun, now_us), folder=folder, others=others)

    def _make_branch(self, job: Job) -> None:
        """Make the branch of an attempt, unless that was done when this very attempt began.

        What a job left there that is forgotten goes. ``ReferenceExists`` if people have a branch of that
        name; then nothing comes of the job.
        """
        note = make_own_branch_note(job.fence)
        branch_or_tag = decode_branch_or_tag(self._kernel.store.reference(job.own_branch))
        if (
            branch_or_tag is not None
            and branch_or_tag.note != note
            and parse_attempt(branch_or_tag) is not None
        ):
            drop_branch(self._kernel, branch_or_tag)
        try:
            self._kernel.references.create_reference(
                job.own_branch, Kind.BRANCH, job.base, who=job.who, note=note
            )
        except ReferenceExists as problem:
            branch_or_tag = decode_branch_or_tag(self._kernel.store.reference(job.own_branch))
            if branch_or_tag is not None and branch_or_tag.note != note:
                self._jobs.abort(job.id, problem.message, job.fence)
                raise

    def _make_job(self, call: files_calls.BeginJob, now_us: int) -> Job:
        longest_s = self._kernel.graces.find_writer_grace().data_us / 2 / 1e6
        timeout_s = longest_s if call.timeout_s is None else call.timeout_s
        if not 0 < timeout_s <= longest_s:  # also if it is no number
            raise InvalidRequest(
                f"timeout_s must be greater than 0 and at most {longest_s:g} ({longest_s / 86_400:g} days, "
                f"half of the lake's data_grace_days), got {timeout_s:g}"
            )
        branch = self._kernel.branch(self._lake.get_branch_or_default(call.branch))
        return Job(
            id=call.id,
            fence=call.fence,
            state=JobState.RUNNING,
            key=str(call.key),
            branch=branch.name,
            incarnation=branch.incarnation,
            base=branch.head,
            # In a transaction the branch is its own already, and nothing is forked from there.
            own_branch=name_own_branch(call.id, 1) if call.own_branch and branch.kind is Kind.BRANCH else "",
            what=_make_storable_text(call.what),
            application=_make_storable_text(call.application),
            who=_make_storable_text(call.who),
            began_us=now_us,
            expires_us=now_us + int(timeout_s * 1e6),
            changed_us=now_us,
        )

    def _list_concurrent_jobs(self, mine: Job, now_us: int) -> Iterator[JobInfo]:
        """Jobs that write the same table right now. On the way, some that were abandoned are ended."""
        tidied = 0
        for job in self._jobs.list_open_jobs():
            if job.is_abandoned(now_us) and tidied < TIDIED_AT_ONCE:
                tidied += 1
                self._end_abandoned_job(job)
            elif _is_concurrent(job, mine) and not job.is_over(now_us):
                yield JobInfo.from_job(job, now_us)

    def _end_abandoned_job(self, job: Job) -> None:
        """End a job that its process has left in the middle."""
        if job.state is JobState.COMMITTING:
            self._attempts.hand_off.call_off(job, OUT_OF_TIME)
        else:
            self._jobs.abort(job.id, OUT_OF_TIME, job.fence)
        self._delete_branches(job.list_own_branches())

    def _forget_some_old_jobs(self) -> None:
        """Forget jobs that ended long ago, among a few that are looked at, wherever chance begins."""
        for job in self._jobs.list_some_ended_jobs(uuid4().hex, TIDIED_AT_ONCE):
            if self._jobs.is_old(job):
                self._delete_branches(job.list_own_branches())
                self._jobs.forget_job(job.id)

    # -- what there is, and an end -------------------------------------------------------------------------

    def _abort_job(self, call: files_calls.AbortJob) -> JobInfo:
        if call.fence is not None:
            check_job_id(call.fence, "fence")
        why = _make_storable_text(call.why or (f"by {call.who}" if call.who else ""))
        job = self._attempts.abort_job(check_job_id(call.id), why, call.fence)
        if job.has_ended:
            self._delete_branches(job.list_own_branches())
        return JobInfo.from_job(job, self._kernel.clock())

    def _with_known_end(self, job: Job) -> Job:
        """The job; if it was committing and its branch has the commit, as committed. The row is not
        changed."""
        if job.state is not JobState.COMMITTING:
            return job
        commit = self._attempts.hand_off.find_commit(job)
        return job if commit is None else job.mark_landed(commit, job.changed_us)

    def _list_jobs(self, call: files_calls.ListJobs) -> tuple[JobInfo, ...]:
        now_us = self._kernel.clock()
        if call.id is not None:
            job = self._jobs.find_job(check_job_id(call.id))
            jobs = [] if job is None else [job]
        else:
            jobs = list(self._jobs.list_jobs() if call.all else self._jobs.list_open_jobs())
            last = self._jobs.find_job(check_job_id(call.after)) if call.after is not None else None
            if last is not None:  # otherwise it was forgotten meanwhile, and nobody knows where it was
                jobs = [job for job in jobs if _start_order(job) < _start_order(last)]
            jobs.sort(key=_start_order, reverse=True)
        chosen = (
            self._with_known_end(job)
            for job in jobs
            if (call.key is None or job.key == str(call.key)) and call.branch in (None, job.branch)
        )
        shown_jobs = (JobInfo.from_job(job, now_us) for job in chosen if call.all or not job.has_ended)
        return tuple(take_first(shown_jobs, call.limit))


def _start_order(job: Job) -> tuple[int, str]:
    """By when it began."""
    return job.began_us, job.id


def _is_concurrent(job: Job, mine: Job) -> bool:
    """Whether it is another job that writes the same table on the same branch."""
    return job.id != mine.id and (job.key, job.branch) == (mine.key, mine.branch)


def _make_storable_text(text: str) -> str:
    """What is told for people, in a form that can be stored."""
    return text[:TEXT_MAX_CHARS].encode(errors="replace").decode()


def describe_written(lake: Embedded, outcome: RequestOutcome) -> FilesWritten:
    """What a write came to, as it is answered."""
    if not outcome.commits:
        return FilesWritten(head=outcome.head.hex())
    commit = outcome.commits[-1]
    return FilesWritten(
        commit=Commit.from_stored(commit, outcome.newest or lake.kernel.history.read_commit(commit)),
        head=outcome.head.hex(),
    )
