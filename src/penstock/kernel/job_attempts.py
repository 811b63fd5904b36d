"""Attempts of jobs: how one begins, sends its commit and ends, so that at most one of a job ever lands.

An attempt is handed over to the branch (see ``kernel.hand_off``) under the key that the job's row gives it.
Once it was called off the job may begin anew, under another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.hand_off import CommitSettler
from penstock.kernel.jobs import BegunJob, JobInDoubt, JobRows
from penstock.kernel.reference_rows import decode_live_reference
from penstock.kernel.request_outcome import OutcomeLookup
from penstock.kernel.time_limits import WriteRetries
from penstock.model.jobs import Job, JobState

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

SUPERSEDED: Final = "a newer attempt has begun"


class JobAttempts:
    """The attempts of a lake's jobs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.jobs = JobRows(kernel.store, kernel.settings, kernel.graces, kernel.clock)
        self.hand_off: CommitSettler[Job, Job] = CommitSettler(self.jobs, OutcomeLookup(kernel))

    def begin_attempt(self, job: Job) -> BegunJob:
        """Let an attempt begin, in the place of earlier ones.

        One of these that is committing is settled first: it has landed, and so has the job, or it never
        will. ``JobOver`` for an attempt that is older than the newest one.
        """
        tries = WriteRetries(self._kernel.settings)
        while isinstance(new_job := self.jobs.begin_attempt(job), JobInDoubt):
            self.hand_off.call_off(new_job.job, SUPERSEDED)
            tries.wait_for_next_try(f"other attempts of job '{job.id}' were committing each time")
        return new_job

    def send_commit(self, id: str, fence: str, key: str, branch: str) -> Job:  # noqa: A002
        """Let an attempt send its commit. The job that is returned is committing, or has committed.

        ``JobOver`` if it was aborted, superseded or has timed out.
        """
        reference = decode_live_reference(self._kernel.store.reference(branch))
        job = self.jobs.commit_begins(
            id, fence, key, branch, reference.position if reference is not None else 0
        )
        if job.state is JobState.COMMITTING and job.sends > 1:
            commit = self.hand_off.find_commit(job)
            if commit is not None:
                return self.hand_off.note_landed(job, commit)
        return job

    def abort_job(self, id: str, why: str, fence: str | None = None) -> Job:  # noqa: A002
        """Let a job never land, and return it; one that is committing, or has, stays as it is.

        One that nobody is committing any more, by any clock, is settled.
        """
        job = self.jobs.abort(id, why, fence)
        if job.state is not JobState.COMMITTING or fence not in (None, job.fence):
            return job
        if job.is_abandoned(self._kernel.clock()):
            return self.hand_off.call_off(job, why)
        commit = self.hand_off.find_commit(job)
        return job if commit is None else self.hand_off.note_landed(job, commit)
