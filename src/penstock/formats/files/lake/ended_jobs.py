"""Jobs that have ended: what they left in the lake is removed, and which folders of the pool they still hold.

A job that its process left in the middle is told from one that goes on by its row alone: by its deadline, and
by the log of its branch if it was about to commit. Nothing is decided from what its files look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from penstock.formats.files.files import make_folder_name
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.kernel import Kernel
from penstock.kernel.records import KeepRow
from penstock.kernel.reference_rows import decode_branch_or_tag
from penstock.kernel.references import ReferenceDecision
from penstock.model.jobs import OWN_BRANCH, Job, JobState, parse_attempt
from penstock.model.references import Event, Kind, Reference
from penstock.stores.port import Row

ABORTED_US: Final = 3_600_000_000
"""How long the files of an aborted attempt stay: a task of it may still be writing some."""
NEVER_LANDED: Final = "its commit was never applied"


class FolderClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs say of the folders of their attempts, which have no slash at their ends."""

    held: frozenset[str] = frozenset()
    """Of jobs that may yet commit, or ended so lately that another clock might let them."""
    aborted: frozenset[str] = frozenset()
    """Of attempts that never land, and have been aborted for a while."""


class EndedJobsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what a look through the jobs of a lake changed."""

    claims: FolderClaims = FolderClaims()
    settled: int = 0
    """Jobs whose commit had an unrecorded outcome, which this look recorded."""
    forgotten: int = 0
    branches: int = 0
    """Of jobs that are over: dropped."""


class EndedJobs:
    """Looks through the jobs of a lake."""

    def __init__(self, kernel: Kernel, lake_id: str, *, dry_run: bool) -> None:
        self._kernel, self._lake_id, self._dry_run = kernel, lake_id, dry_run
        self._attempts = JobAttempts(kernel)
        self._now_us = kernel.clock()
        self._grace_us = kernel.graces.find_sweep_grace().data_us
        self._settled = 0

    def settle_ended_jobs(self) -> EndedJobsResult:
        """Settle what can be settled, and say what is left. ``Damaged`` if a row cannot be read."""
        jobs = {job.id: self._settle_job(job) for job in [*self._attempts.jobs.list_jobs()]}
        return EndedJobsResult(
            claims=FolderClaims(
                held=frozenset(self._make_job_folder(job) for job in jobs.values() if self._may_commit(job)),
                aborted=frozenset(
                    self._make_job_folder(job) for job in jobs.values() if self._is_long_aborted(job)
                ),
            ),
            settled=self._settled,
            branches=self._drop_branches(jobs),
            forgotten=self._forget_old_jobs(jobs.values()),
        )

    def _make_job_folder(self, job: Job) -> str:
        return make_folder_name(self._lake_id, UUID(hex=job.fence), job.began_us).rstrip("/")

    def _may_commit(self, job: Job) -> bool:
        """Also for a grace time after its deadline: clocks differ."""
        if job.state is JobState.RUNNING:
            return self._now_us < job.expires_us + self._grace_us
        return job.state is JobState.COMMITTING

    def _is_long_aborted(self, job: Job) -> bool:
        return job.state is JobState.ABORTED and job.changed_us < self._now_us - ABORTED_US

    def _settle_job(self, job: Job) -> Job:
        """A job that was about to commit, as the log of its branch says it ended.

        One that nobody is at any more is called off there, so that it does not end otherwise afterwards.
        """
        if job.state is not JobState.COMMITTING:
            return job
        commit = self._attempts.hand_off.find_commit(job)
        if commit is None and not job.is_abandoned(self._now_us):
            return job
        self._settled += 1
        if self._dry_run:
            return job
        if commit is not None:
            return self._attempts.hand_off.note_landed(job, commit)
        return self._attempts.hand_off.call_off(job, NEVER_LANDED)

    def _forget_old_jobs(self, jobs: Iterable[Job]) -> int:
        """Forget jobs that were over long ago: none of their messages is answered any more."""
        old = [job for job in jobs if self._attempts.jobs.is_old(job)]
        for job in old if not self._dry_run else ():
            self._attempts.jobs.forget_job(job.id)
        return len(old)

    # -- branches ------------------------------------------------------------------------------------------

    def _drop_branches(self, jobs: Mapping[str, Job]) -> int:
        """Drop the branches of attempts that are over, and of those that the lake does not know any more,
        such as a lake has that was copied; how many. Branches that people made stay, whatever their names."""
        count = 0
        for branch in [*self._kernel.references.list_all_references(Kind.BRANCH, OWN_BRANCH)]:
            own = parse_attempt(branch)
            if own is None:
                continue
            id, attempt = own  # noqa: A001
            job = jobs.get(id)
            if job is None:
                is_over = branch.created_us < self._now_us - self._grace_us
            else:
                is_over = not (attempt >= job.attempt and self._may_commit(job))
            if is_over and self._delete_branch(branch, id, job):
                count += 1
        return count

    def _delete_branch(self, branch: Reference, id: str, job: Job | None) -> bool:  # noqa: A002
        """Delete a branch, unless another attempt of its job has begun since it was seen.

        An attempt is noted before it makes its branch: so one that was seen before the job was found to be as
        it was, is not the other attempt's.
        """
        found_job = self._attempts.jobs.find_job(id)
        if (found_job and found_job.fence) != (job and job.fence):
            return False
        return self._dry_run or drop_branch(self._kernel, branch)


def drop_branch(kernel: Kernel, branch: Reference) -> bool:
    """Delete the branch of an attempt with its log, and say whether it was there: this very one, and not
    another one of its name."""

    def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[None]:
        branch_or_tag = decode_branch_or_tag(row)
        is_same = branch_or_tag is not None and branch_or_tag.incarnation == branch.incarnation
        return ReferenceDecision(None, Event.DELETE) if is_same else KeepRow(None)

    return kernel.references.swap_reference(branch.name, decide_change) is not None
