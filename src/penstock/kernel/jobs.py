"""Jobs in a store: one row for each, beside those of references and of kinds of their own.

A job is *running* until it is aborted, or until it is about to commit: from *committing* on nobody can call
it off by its row alone, and the branch's log tells what came of it (see ``kernel.attempts``). Each new
attempt of a job gets a fence, and only the newest one may commit.

Jobs that have ended change their kind, so that whoever looks for those that run does not read all others.
They belong to the lake at its place: copies leave them behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from penstock.errors import (
    Damaged,
    InvalidRequest,
    JobNotFound,
    JobOver,
    OutcomeUnknown,
)
from penstock.kernel.description import require_unmoved
from penstock.kernel.grace import Graces
from penstock.kernel.reflog import receipt_id
from penstock.kernel.retry import until_moved
from penstock.kernel.settings import DAY_US, Settings
from penstock.model.encoding import ObjectId
from penstock.model.jobs import EARLIER_MAX, Job, JobState, decode_job, encode_job, own_branch
from penstock.model.references import Kind
from penstock.stores.port import Row, Store, Turn

PREFIX: Final = "@job/"
"""No branch or tag has a name that begins so."""
PAGE: Final = 1000
SPENT_MAX: Final = 16
"""How many keys of a forgotten job are looked for. Few ever have a second one."""

J = TypeVar("J", Job, "Job | None")


class InDoubt(Exception):
    """What came of a job's commit has to be settled first: only its branch tells."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.id)
        self.job = job


class Jobs:
    """The rows of a lake's jobs, and how they move."""

    def __init__(self, store: Store, settings: Settings, graces: Graces, clock: Callable[[], int]) -> None:
        self._store, self._settings, self._graces, self._clock = store, settings, graces, clock

    def find(self, id: str) -> Job | None:  # noqa: A002
        row = self._store.reference(PREFIX + id)
        return decoded_job(row) if row is not None else None

    def get(self, id: str) -> Job:  # noqa: A002
        """``JobNotFound`` if there is none, or not any more."""
        found = self.find(id)
        if found is None:
            raise _not_found(id)
        return found

    def open(self) -> Iterator[Job]:
        """Those that have not ended, by id; others are not read."""
        return map(decoded_job, _rows(self._store, Kind.JOB))

    def some_ended(self, after: str, limit: int) -> list[Job]:
        """Some that have ended, by id, after a given one."""
        page = self._store.references(Kind.ENDED_JOB.value, after=PREFIX + after, limit=limit)
        return [decoded_job(row) for row in page]

    def all(self) -> Iterator[Job]:
        """All that are known, by id."""
        return map(decoded_job, job_rows(self._store))

    def begin(self, job: Job) -> tuple[Job, Job | None]:
        """Let an attempt of a job begin, in the place of earlier ones; returns the job as it is then, and as
        it was before.

        One that has committed stays as it is, and so does the very attempt that is sent again. ``JobOver`` if
        a newer attempt has begun, ``InDoubt`` while an earlier one is committing.
        """
        before: Job | None = None

        def decide(found: Job | None) -> Job:
            nonlocal before
            before = found
            if found is None:
                return _attempt(msgspec.structs.replace(job, spent=self._spent_before(job)), 1)
            if (found.key, found.branch) != (job.key, job.branch):
                raise InvalidRequest(
                    f"job {job.id} is one of another table or branch; another job needs another id"
                )
            if job.fence in found.earlier:
                raise _superseded(job.id)
            if found.fence == job.fence or found.state is JobState.COMMITTED:
                return found
            if found.state is JobState.COMMITTING:
                raise InDoubt(found)
            earlier = (found.fence, *found.earlier)[:EARLIER_MAX]
            begun = msgspec.structs.replace(job, earlier=earlier, spent=found.spent)
            return _attempt(begun, found.attempt + 1)

        return self._move(job.id, decide), before

    def _spent_before(self, job: Job) -> int:
        """How many keys a job of the same id has used on the branch, as far as receipts tell.

        It was forgotten, so this is another one, and what the other came to is not its own.
        """
        keys = (msgspec.structs.replace(job, spent=number).commit_key for number in range(SPENT_MAX))
        receipts = [receipt_id(job.incarnation, key, 0) for key in keys]
        found = self._store.fetch(receipts)
        return max((number for number, one in enumerate(receipts, 1) if one in found), default=0)

    def commit_begins(self, id: str, fence: str, key: str, branch: str, position: int) -> Job:  # noqa: A002
        """Let an attempt send its commit, from where there is no way back; ``JobOver`` if it may not.

        ``position`` is the branch's, from where on its log tells what came of it.
        """
        now_us = self._clock()

        def decide(found: Job | None) -> Job:
            found = _current(id, fence, found)
            if (found.key, found.branch) != (key, branch):
                raise InvalidRequest(
                    f"job {id} writes '{found.key}' on '{found.branch}', and not '{key}' on '{branch}'"
                )
            if found.state is JobState.ABORTED:
                raise JobOver(f"job {id} was aborted: {found.why or 'no reason is given'}", job=id)
            if found.state is JobState.COMMITTED:
                return found
            if found.state is JobState.RUNNING and now_us > found.expires_us:
                raise JobOver(f"job {id} took longer than it may, and cannot commit any more", job=id)
            return msgspec.structs.replace(
                found,
                state=JobState.COMMITTING,
                changed_us=now_us,
                sends=found.sends + 1,
                position=found.position if found.sends else position,
            )

        return self._move(id, decide)

    def landed(self, job: Job, commit: ObjectId) -> Job | None:
        """Note that an attempt's commit has landed; returns the row."""
        return self._end(job, lambda: {"state": JobState.COMMITTED, "commit": commit})

    def refused(self, job: Job, why: str, *, never_lands: bool = False) -> Job | None:
        """Note that an attempt's commit was refused; returns the row.

        ``InDoubt`` if it was sent more than once, since another sending of it may still land; unless it
        surely ``never_lands``.
        """

        def end() -> dict[str, object]:
            return {"state": JobState.ABORTED, "why": why, "spent": job.spent + 1}

        return self._end(job, end, alone=not never_lands)

    def _end(self, job: Job, end: Callable[[], dict[str, object]], *, alone: bool = False) -> Job | None:
        now_us = self._clock()

        def decide(found: Job | None) -> Job | None:
            if found is None or found.fence != job.fence or found.state is not JobState.COMMITTING:
                return found  # a newer attempt has taken over, or somebody else has noted it
            if alone and found.sends > 1:
                raise InDoubt(found)
            return msgspec.structs.replace(found, changed_us=now_us, **end())

        return self._move(job.id, decide)

    def abort(self, id: str, why: str, fence: str | None = None) -> Job:  # noqa: A002
        """Let a job never land, and return it. One that is committing, or has, stays as it is."""
        now_us = self._clock()

        def decide(found: Job | None) -> Job:
            if found is None:
                raise _not_found(id)
            if found.state is not JobState.RUNNING or fence not in (None, found.fence):
                return found
            return msgspec.structs.replace(found, state=JobState.ABORTED, why=why, changed_us=now_us)

        return self._move(id, decide)

    def is_old(self, job: Job) -> bool:
        """Whether a job may be forgotten: it was over before any message or file of it that still counts."""
        now_us = self._clock()
        if not job.is_old(now_us, int(self._settings.idempotency_days * DAY_US)):
            return False  # as are most, of which the lake need not be asked
        return job.is_old(now_us, self._graces.of_sweeps().data_us)

    def forget(self, id: str) -> None:  # noqa: A002
        """Remove the row of a job if it is old. What comes of it later is refused as of no job at all."""
        self._move(id, lambda found: None if found is None or self.is_old(found) else found)

    def _move(self, id: str, decide: Callable[[Job | None], J]) -> J:  # noqa: A002
        """Move a row to what is decided; again where another process was faster, or nobody answered."""

        def move(_: bool) -> tuple[J] | None:
            with self._store.turn(PREFIX + id) as turn:
                found = decoded_job(turn.row) if turn.row is not None else None
                wanted = decide(found)
                return (wanted,) if wanted == found or self._advance(turn, wanted) else None

        def doubtful(reason: str) -> OutcomeUnknown:
            return OutcomeUnknown(
                f"it is not known whether job '{id}' was changed in {self._store.url}: {reason}\n"
                "  'penstock jobs list' tells as soon as the store answers; repeating the request is safe.",
                job=id,
            )

        return until_moved(self._settings, move, f"another process changed job '{id}'", doubtful)

    def _advance(self, turn: Turn, wanted: Job | None) -> bool:
        require_unmoved(self._store)
        return turn.advance({}, None if wanted is None else _row(wanted)).swapped


def job_rows(store: Store) -> Iterator[Row]:
    """The rows of all jobs, as they are stored.

    One that ends, or begins anew, on the way is not missed: those that have not ended are asked for twice.
    """
    known = {row.name: row for kind in (Kind.JOB, Kind.ENDED_JOB, Kind.JOB) for row in _rows(store, kind)}
    return iter([known[name] for name in sorted(known)])


def _rows(store: Store, kind: Kind) -> Iterator[Row]:
    after = ""
    while page := store.references(kind.value, after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def decoded_job(row: Row) -> Job:
    """The job in a row; ``Damaged`` if there is none."""
    try:
        found: Job = decode_job(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
    if _row(found)[:2] != row[:2]:
        raise Damaged(f"the row of '{row.name}' holds job '{found.id}' as {found.state}", name=row.name)
    return found


def _row(job: Job) -> Row:
    kind = Kind.ENDED_JOB if job.has_ended else Kind.JOB
    return Row(PREFIX + job.id, kind.value, encode_job(job))


def _attempt(job: Job, number: int) -> Job:
    """The row of a new attempt. It has a branch of its own, if any: no earlier one's files are there."""
    own = own_branch(job.id, number) if job.own_branch else ""
    return msgspec.structs.replace(job, attempt=number, own_branch=own)


def _current(id: str, fence: str, found: Job | None) -> Job:  # noqa: A002
    if found is None:
        raise JobOver(f"job {id} is not known: it was aborted, or ended long ago", job=id)
    if found.fence != fence:
        raise _superseded(id)
    return found


def _superseded(id: str) -> JobOver:  # noqa: A002
    return JobOver(f"a newer attempt of job {id} has begun, so this one cannot commit", job=id)


def _not_found(id: str) -> JobNotFound:  # noqa: A002
    return JobNotFound(f"there is no job '{id}', or not any more", job=id)
