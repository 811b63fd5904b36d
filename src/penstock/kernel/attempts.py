"""Attempts of jobs: how one begins, sends its commit and ends, so that at most one of a job ever lands.

A job's row and its branch's row are two rows, and no swap moves both. What holds them together is the
commit's idempotency key. An attempt notes *committing* in the job's row before it sends its commit under the
key that the row gives it. Whoever must know what came of that asks the branch's log; and whoever must be sure
that nothing will come of it any more *calls it off*: one swap of the branch's row writes the key into the
log, with no commit. A commit that is in flight loses its swap by that, looks for its key, and finds that it
was called off. One that was never sent finds its key used. After that the job may begin anew, under another
key. So a job that is said to be aborted never lands, and one that has landed is never run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import ReferenceNotFound
from penstock.kernel.batch import is_called_off, outcome_of
from penstock.kernel.jobs import InDoubt, Jobs
from penstock.kernel.references import Move
from penstock.kernel.reflog import RefLog, made_before, receipt, receipt_id
from penstock.kernel.retry import Tries
from penstock.kernel.rows import decoded_reference, live
from penstock.model.encoding import ObjectId, encode, object_id
from penstock.model.jobs import ABANDONED_AFTER_US, TEXT_MAX_CHARS, Job, JobState
from penstock.model.objects import Landed, LogEntry
from penstock.model.references import Event, Kind, Reference
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

SUPERSEDED: Final = "a newer attempt has begun"


class Attempts:
    """The attempts of a lake's jobs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._log = kernel, RefLog(kernel.objects)
        self.jobs = Jobs(kernel.store, kernel.settings, kernel.clock)

    def begin(self, job: Job) -> tuple[Job, Job | None]:
        """Let an attempt begin, in the place of earlier ones; returns the job as it is then, and as it was.

        One of these that is committing is settled first: it has landed, and so has the job, or it never
        will. ``JobOver`` for an attempt that is older than the newest one.
        """
        tries = Tries(self._kernel.settings)
        while True:
            try:
                return self.jobs.begin(job)
            except InDoubt as doubt:
                self.settle(doubt.job, SUPERSEDED)
            tries.again(f"attempts of job '{job.id}' keep committing")

    def send(self, id: str, fence: str, key: str, branch: str) -> Job:  # noqa: A002
        """Let an attempt send its commit. The job that is returned is committing, or has committed.

        ``JobOver`` if it was aborted, superseded or has timed out.
        """
        found = live(self._kernel.store.reference(branch))
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
        try:
            return self.jobs.refused(job, why[:TEXT_MAX_CHARS])
        except InDoubt as doubt:
            return self.settle(doubt.job, why)

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
        commit = self._call_off(job)
        if commit is not None:
            return self.jobs.landed(job, commit)
        return self.jobs.refused(job, why[:TEXT_MAX_CHARS], never_lands=True)

    def commit_of(self, job: Job) -> ObjectId | None:
        """The commit that a job's newest attempt has come to, by the log of its branch."""
        row = self._kernel.store.reference(job.branch)
        if row is None or row.kind not in (Kind.BRANCH, Kind.DELETED):
            return None
        return self._commit_in(job, self._entry(job, decoded_reference(row)))

    def _commit_in(self, job: Job, entry: LogEntry | None) -> ObjectId | None:
        if entry is None or is_called_off(entry, job.commit_key):
            return None
        return outcome_of(self._kernel.objects, entry, job.commit_key).head

    def _entry(self, job: Job, reference: Reference) -> LogEntry | None:
        """The entry of the log that names the job's key: it landed, or was called off.

        A receipt leads there. They are not kept for ever: without one, the log is read from where it was.
        """
        found, receipts = made_before(
            self._kernel.store, self._log, reference, job.incarnation, job.commit_key, None
        )
        if found is None and receipts == 0:
            until_us = job.changed_us + ABANDONED_AFTER_US
            found = self._log.find(reference, job.commit_key, job.position, until_us, job.incarnation)
        return found[1] if found is not None else None

    def _call_off(self, job: Job) -> ObjectId | None:
        """Make sure that a commit does not land any more; returns it if it has."""

        def decide(row: Row | None) -> Move:
            reference = live(row)
            if row is None or reference is None or reference.incarnation != job.incarnation:
                # No commit lands on a branch that is gone; what did before, its log may tell.
                raise _Decided(self._entry(job, decoded_reference(row)) if row is not None else None)
            entry = self._entry(job, reference)
            if entry is not None:
                raise _Decided(entry)
            return Move(reference, Event.ABORT, self._spend_key(job, reference), (_nothing(job, reference),))

        try:
            self._kernel.references.swap(job.branch, decide)
        except _Decided as decided:
            return self._commit_in(job, decided.entry)
        except ReferenceNotFound:
            return None
        return None

    def _spend_key(self, job: Job, reference: Reference) -> dict[ObjectId, bytes]:
        """A receipt as if another request had used the key: who comes with it later finds it."""
        key = job.commit_key
        _, number = made_before(self._kernel.store, self._log, reference, job.incarnation, key, None)
        data = receipt(object_id(encode(("called off", key))), reference.position, self._kernel.clock())
        return {receipt_id(job.incarnation, key, number): data}


class _Decided(Exception):
    """The branch's log tells already what came of a commit, or nothing can come of it."""

    def __init__(self, entry: LogEntry | None) -> None:
        super().__init__()
        self.entry = entry


def _nothing(job: Job, reference: Reference) -> Landed:
    """How a log entry names a request that was called off: with no commit."""
    return Landed(Event.ABORT.value, job.commit_key, job.who, reference.head, 0)
