"""Jobs in a store: one row for each, beside those of references and of kinds of their own.

A job is *running* until it is aborted, or until it is about to commit: from *committing* on nobody can call
it off by its row alone, and the branch's log tells what came of it (see ``kernel.attempts``). Each new
attempt of a job gets a fence, and only the newest one may commit.

Jobs that have ended change their kind, so that whoever looks for those that run does not read all others.
They belong to the lake at its place: copies leave them behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import InvalidRequest, JobNotFound, JobOver
from penstock.kernel.description import require_unmoved
from penstock.kernel.grace_periods import GracePeriodRules
from penstock.kernel.records import (
    Decision,
    KeepRow,
    RecordType,
    RemoveRow,
    ReplaceRow,
    RowSubject,
    list_rows_of_kind,
)
from penstock.kernel.reflog import make_receipt_id
from penstock.kernel.request_outcome import SubmittedRequest
from penstock.kernel.settings import DAY_US, Settings
from penstock.model.jobs import (
    ABANDONED_AFTER_US,
    EARLIER_MAX,
    Job,
    JobState,
    decode_job,
    encode_job,
    name_own_branch,
)
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

PREFIX: Final = "@job/"
"""No branch or tag has a name that begins so."""
SPENT_MAX: Final = 16
"""How many keys of a forgotten job are looked for. Few ever have a second one."""

A = TypeVar("A")


def _job_subject(id: str) -> RowSubject:  # noqa: A002
    advice = "'penstock jobs list' shows it once the store answers; repeating the request is safe."
    return RowSubject(f"job '{id}'", advice, {"job": id})


JOBS: Final[RecordType[Job]] = RecordType(
    PREFIX,
    lambda job: Kind.ENDED_JOB.value if job.has_ended else Kind.JOB.value,
    encode_job,
    decode_job,
    _job_subject,
    lambda job: job.id,
)


class JobInDoubt(NamedTuple):
    """A job whose commit has to be settled first: only its branch tells what came of it."""

    job: Job


class BegunJob(NamedTuple):
    """A job whose attempt has begun."""

    job: Job
    before: Job | None
    """The job as it was before that."""


class JobRows:
    """The rows of a lake's jobs, and how they move."""

    def __init__(
        self, store: Store, settings: Settings, graces: GracePeriodRules, clock: Callable[[], int]
    ) -> None:
        self._store, self._settings, self._graces, self._clock = store, settings, graces, clock

    def find_job(self, id: str) -> Job | None:  # noqa: A002
        return JOBS.find_record(self._store, id)

    def get_job(self, id: str) -> Job:  # noqa: A002
        """``JobNotFound`` if there is none, or not any more."""
        job = self.find_job(id)
        if job is None:
            raise _not_found_error(id)
        return job

    def list_open_jobs(self) -> Iterator[Job]:
        """Those that have not ended, by id; others are not read."""
        return map(JOBS.decode_row, list_rows_of_kind(self._store, Kind.JOB))

    def list_some_ended_jobs(self, after: str, limit: int) -> list[Job]:
        """Some that have ended, by id, after a given one."""
        page = self._store.references(Kind.ENDED_JOB.value, after=PREFIX + after, limit=limit)
        return [JOBS.decode_row(row) for row in page]

    def list_jobs(self) -> Iterator[Job]:
        """All that are known, by id."""
        return map(JOBS.decode_row, read_job_rows(self._store))

    def begin_attempt(self, job: Job) -> BegunJob | JobInDoubt:
        """Let an attempt of a job begin, in the place of earlier ones.

        One that has committed stays as it is, and so does the very attempt that is sent again. ``JobOver`` if
        a newer attempt has begun; nothing is changed while an earlier one is committing.
        """
        before: Job | None = None

        def decide_change(stored_job: Job | None) -> ReplaceRow[Job] | KeepRow[Job | JobInDoubt]:
            nonlocal before
            before = stored_job
            if stored_job is None:
                new_job = msgspec.structs.replace(job, spent=self._count_used_keys(job))
                return ReplaceRow(_make_attempt(new_job, 1))
            if (stored_job.key, stored_job.branch) != (job.key, job.branch):
                raise InvalidRequest(
                    f"the id {job.id} is in use by a job that writes another table or "
                    "branch; give this job another id"
                )
            if job.fence in stored_job.earlier:
                raise _superseded_error(job.id)
            if stored_job.fence == job.fence or stored_job.state is JobState.COMMITTED:
                return KeepRow(stored_job)
            if stored_job.state is JobState.COMMITTING:
                return KeepRow(JobInDoubt(stored_job))
            earlier = (stored_job.fence, *stored_job.earlier)[:EARLIER_MAX]
            new_job = msgspec.structs.replace(job, earlier=earlier, spent=stored_job.spent)
            return ReplaceRow(_make_attempt(new_job, stored_job.attempt + 1))

        job_or_doubt = self._update_job(job.id, decide_change)
        return job_or_doubt if isinstance(job_or_doubt, JobInDoubt) else BegunJob(job_or_doubt, before)

    def _count_used_keys(self, job: Job) -> int:
        """How many keys a job of the same id has used on the branch, as far as receipts tell.

        It was forgotten, so this is another one, and what the other came to is not its own.
        """
        keys = (msgspec.structs.replace(job, spent=number).commit_key for number in range(SPENT_MAX))
        receipts = [make_receipt_id(job.incarnation, key, 0) for key in keys]
        data_by_id = self._store.fetch(receipts)
        return max((number for number, receipt in enumerate(receipts, 1) if receipt in data_by_id), default=0)

    def commit_begins(self, id: str, fence: str, key: str, branch: str, position: int) -> Job:  # noqa: A002
        """Let an attempt send its commit, from where there is no way back; ``JobOver`` if it may not.

        ``position`` is the branch's, from where on its log tells what came of it.
        """
        now_us = self._clock()

        def decide_change(job: Job | None) -> ReplaceRow[Job] | KeepRow[Job]:
            job = _require_current(id, fence, job)
            if (job.key, job.branch) != (key, branch):
                raise InvalidRequest(
                    f"job {id} writes '{job.key}' on '{job.branch}', not '{key}' on '{branch}'"
                )
            if job.state is JobState.ABORTED:
                raise JobOver(f"job {id} was aborted: {job.why or 'no reason is given'}", job=id)
            if job.state is JobState.COMMITTED:
                return KeepRow(job)
            if job.state is JobState.RUNNING and now_us > job.expires_us:
                raise JobOver(f"job {id} timed out and can no longer commit", job=id)
            sent_job = msgspec.structs.replace(
                job,
                state=JobState.COMMITTING,
                changed_us=now_us,
                sends=job.sends + 1,
                position=job.position if job.sends else position,
            )
            return ReplaceRow(
                sent_job, is_counted=True
            )  # of two who send it at once, none may think it is alone

        return self._update_job(id, decide_change)

    def change_committing(self, job: Job, change: Callable[[Job, int], Job | KeepRow[A]]) -> Job | A:
        """Change the row of an attempt that is committing; any other one stays as it is.

        It is returned as it is then; the given one if there is none any more.
        """
        now_us = self._clock()

        def decide_change(stored_job: Job | None) -> ReplaceRow[Job] | KeepRow[Job | A]:
            if (
                stored_job is None
                or stored_job.fence != job.fence
                or stored_job.state is not JobState.COMMITTING
            ):
                return KeepRow(
                    stored_job or job
                )  # a newer attempt has taken over, or somebody else has noted it
            changed = change(stored_job, now_us)
            return changed if isinstance(changed, KeepRow) else ReplaceRow(changed)

        return self._update_job(job.id, decide_change)

    def read_again(self, job: Job) -> Job:
        """The same attempt as its row has it now."""
        stored_job = self.find_job(job.id)
        return job if stored_job is None or stored_job.fence != job.fence else stored_job

    def describe_sent(self, job: Job) -> SubmittedRequest:
        """The commit that an attempt sends."""
        until_us = job.changed_us + ABANDONED_AFTER_US
        return SubmittedRequest(job.commit_key, job.branch, job.incarnation, job.position, until_us, job.who)

    def abort(self, id: str, why: str, fence: str | None = None) -> Job:  # noqa: A002
        """Let a job never land, and return it. One that is committing, or has, stays as it is."""
        now_us = self._clock()

        def decide_change(job: Job | None) -> ReplaceRow[Job] | KeepRow[Job]:
            if job is None:
                raise _not_found_error(id)
            if job.state is not JobState.RUNNING or fence not in (None, job.fence):
                return KeepRow(job)
            return ReplaceRow(job.mark_aborted(why, now_us))

        return self._update_job(id, decide_change)

    def is_old(self, job: Job) -> bool:
        """Whether a job may be forgotten: it was over before any message or file of it that still counts."""
        now_us = self._clock()
        if not job.is_old(now_us, int(self._settings.idempotency_days * DAY_US)):
            return False  # as are most, of which the lake need not be asked
        return job.is_old(now_us, self._graces.find_sweep_grace().data_us)

    def forget_job(self, id: str) -> None:  # noqa: A002
        """Remove the row of a job if it is old. What comes of it later is refused as of no job at all."""

        def decide_change(job: Job | None) -> RemoveRow[Job] | KeepRow[None]:
            return RemoveRow(job) if job is not None and self.is_old(job) else KeepRow(None)

        self._update_job(id, decide_change)

    def _update_job(self, id: str, decide_change: Callable[[Job | None], Decision[Job, A]]) -> Job | A:  # noqa: A002
        """Change a row as is decided; ``LakeMoved`` if the lake is moving."""

        def decide_unmoved(job: Job | None) -> Decision[Job, A]:
            decision = decide_change(job)
            if not isinstance(decision, KeepRow):
                require_unmoved(self._store)
            return decision

        return JOBS.update_record(self._store, self._settings, id, decide_unmoved)


def read_job_rows(store: Store) -> Iterator[Row]:
    """The rows of all jobs, as they are stored.

    One that ends, or begins anew, on the way is not missed: those that have not ended are asked for twice.
    """
    kinds = Kind.JOB, Kind.ENDED_JOB, Kind.JOB
    known_rows = {row.name: row for kind in kinds for row in list_rows_of_kind(store, kind)}
    return iter([known_rows[name] for name in sorted(known_rows)])


def _make_attempt(job: Job, number: int) -> Job:
    """The row of a new attempt. It has a branch of its own, if any: no earlier one's files are there."""
    own = name_own_branch(job.id, number) if job.own_branch else ""
    return msgspec.structs.replace(job, attempt=number, own_branch=own)


def _require_current(id: str, fence: str, job: Job | None) -> Job:  # noqa: A002
    if job is None:
        raise JobOver(f"job {id} no longer exists: it was aborted, or ended long ago", job=id)
    if job.fence != fence:
        raise _superseded_error(id)
    return job


def _superseded_error(id: str) -> JobOver:  # noqa: A002
    return JobOver(f"this attempt of job {id} cannot commit: a newer attempt has begun", job=id)


def _not_found_error(id: str) -> JobNotFound:  # noqa: A002
    return JobNotFound(f"there is no job '{id}', or it no longer exists", job=id)
