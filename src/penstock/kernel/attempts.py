"""Attempts of jobs: how one begins, sends its commit and ends, so that at most one of a job ever lands.

A job's row and its branch's row are two rows. What holds them together is the commit's idempotency key: an
attempt notes *committing* in the job's row before it sends its commit under the key that the row gives it.
Whoever must know what came of that asks the branch's log, and where it must not land any more, it is called
off there (see ``kernel.sent``). After that the job may begin anew, under another key. So a job that is said
to be aborted never lands, and one that has landed is never run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.jobs import BegunJob, JobInDoubt, Jobs
from penstock.kernel.retry import Tries
from penstock.kernel.rows import present
from penstock.kernel.sent import Dispatch, Sent
from penstock.model.encoding import ObjectId
from penstock.model.jobs import ABANDONED_AFTER_US, TEXT_MAX_CHARS, Job, JobState

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

SUPERSEDED: Final = "a newer attempt has begun"


class Attempts:
    """The attempts of a lake's jobs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._dispatch = kernel, Dispatch(kernel)
        self.jobs = Jobs(kernel.store, kernel.settings, kernel.graces, kernel.clock)

    def begin(self, job: Job) -> BegunJob:
        """Let an attempt begin, in the place of earlier ones.

        One of these that is committing is settled first: it has landed, and so has the job, or it never
        will. ``JobOver`` for an attempt that is older than the newest one.
        """
        tries = Tries(self._kernel.settings)
        while isinstance(begun := self.jobs.begin(job), JobInDoubt):
            self.settle(begun.job, SUPERSEDED)
            tries.again(f"attempts of job '{job.id}' keep committing")
        return begun

    def send(self, id: str, fence: str, key: str, branch: str) -> Job:  # noqa: A002
        """Let an attempt send its commit. The job that is returned is committing, or has committed.

        ``JobOver`` if it was aborted, superseded or has timed out.
        """
        found = present(self._kernel.store.reference(branch))
        job = self.jobs.commit_begins(id, fence, key, branch, found.position if found is not None else 0)
        if job.state is JobState.COMMITTING and job.sends > 1:
            commit = self.commit_of(job)
            if commit is not None:
                return self.jobs.landed(job, commit) or job
        return job

    def refused(self, job: Job, why: str) -> Job | None:
        """Note that an attempt's commit was refused; returns the job, which may have committed after all.

        Where it was sent several times, one of the others may still be under way: that is called off.
        """
        refused = self.jobs.refused(job, why[:TEXT_MAX_CHARS])
        return self.settle(refused.job, why) if isinstance(refused, JobInDoubt) else refused

    def abort(self, id: str, why: str, fence: str | None = None) -> Job:  # noqa: A002
        """Let a job never land, and return it; one that is committing, or has, stays as it is.

        One that nobody is committing any more, by any clock, is settled.
        """
        job = self.jobs.abort(id, why[:TEXT_MAX_CHARS], fence)
        if job.state is not JobState.COMMITTING or fence not in (None, job.fence):
            return job
        if job.is_abandoned(self._kernel.clock()):
            return self.settle(job, why) or job
        commit = self.commit_of(job)
        return job if commit is None else self.jobs.landed(job, commit) or job

    def settle(self, job: Job, why: str) -> Job | None:
        """Bring a job that is committing to its end: it has landed, or it never will. Returns its row."""
        commit = self._dispatch.call_off(_sent(job))
        if commit is not None:
            return self.jobs.landed(job, commit)
        return self.jobs.called_off(job, why[:TEXT_MAX_CHARS])

    def commit_of(self, job: Job) -> ObjectId | None:
        """The commit that a job's newest attempt has come to, by the log of its branch."""
        return self._dispatch.commit_of(_sent(job))


def _sent(job: Job) -> Sent:
    until_us = job.changed_us + ABANDONED_AFTER_US
    return Sent(job.commit_key, job.branch, job.incarnation, job.position, until_us, job.who)
