"""The backlog: chains of Lance tables that have versions to be promoted, and the threads that work on them.

Every chain of a table has one job, and one more for each of the things that follow from it. A job is worked
on by one thread at a time, for all that it was told until then. What fails is tried again later and later,
and at last every half minute for as long as the process lives; what an administrator must mend, not before
somebody tells or asks of it again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from threading import Condition, RLock, Thread
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import AdministratorError, Denied, PenstockError, Unavailable
from penstock.formats.lance.state import LanceState
from penstock.model.content import LanceTable
from penstock.model.keys import Key
from penstock.storage.announcements import elapsed_s

THREADS_MAX: Final = 4
PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0
DOUBLINGS_MAX: Final = 16
"""Of a pause; far beyond the longest."""
WAITING_MAX: Final = 100
"""How much of what was told of a chain is kept: whatever landed last has all that landed before it."""
STAGED_MAX: Final = 1000
"""How many files are removed at once. If more wait, a sweep has to take the others."""

logger = logging.getLogger("penstock")


class Work(Enum):
    """What there is to do for a chain."""

    VERSIONS = 1
    """Its manifests are put where everybody looks."""
    REFS = 2
    """So are Lance's own branches and tags."""
    STAGED = 3
    """What writers staged goes."""


class JobId(NamedTuple):
    """The table, the chain of it, and what is done for that."""

    table: UUID
    chain: str
    work: Work


class Told(NamedTuple):
    """A table as it landed on the branch whose chain it goes on in."""

    key: Key
    content: LanceTable
    state: LanceState
    branch: str = ""
    """The lake's; empty if it is not known."""
    work: Work = Work.VERSIONS
    staged: tuple[str, ...] = ()
    """What is to go, below the table's folder."""

    @property
    def table(self) -> UUID:
        assert self.content.id is not None, "a managed table has an id"
        return self.content.id

    @property
    def id(self) -> JobId:
        return JobId(self.table, self.state.chain, self.work)


class Job:
    """What is to be done for a chain. Changed only with the backlog's lock held."""

    def __init__(self, id: JobId, left: Condition) -> None:  # noqa: A002
        self.id, self.left = id, left
        """Notified when a thread has worked on it. Whoever waits for another job is not woken by that: there
        may be many who wait, and few jobs are theirs."""
        self.waiting: list[Told] = []
        """What was told and is not done, oldest first. It may have been told in another order than it landed
        in, so that none of it stands for the others."""
        self.problem: PenstockError | None = None
        self.tries = 0
        """That failed, since the last that did not."""
        self.is_taken = self.is_queued = False
        self.is_last_try = False
        """Whether it is not tried again after this, because the lake is being closed."""
        self.helpers = 0
        """How many threads wait for their turn."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody has to do with it any more."""
        return not (self.waiting or self.problem or self.is_taken or self.is_queued or self.helpers)

    @property
    def is_under_way(self) -> bool:
        """Whether something waits, and a thread does it or will."""
        return bool(self.waiting) and bool(self.is_taken or self.is_queued or self.helpers)

    @property
    def is_behind(self) -> bool:
        """Whether versions wait to be promoted."""
        return bool(self.waiting) and self.id.work is Work.VERSIONS

    @property
    def is_stuck(self) -> bool:
        """Whether only an administrator can help."""
        return isinstance(self.problem, AdministratorError) and not isinstance(self.problem, Denied)


class Backlog:
    """Jobs and their threads. ``work`` does one thing that was told; what it raises counts as a failure."""

    def __init__(self, work: Callable[[Told], None], *, background: bool) -> None:
        self._lock = RLock()
        self.changed = Condition(self._lock)
        """To be held to look at jobs or to change them; notified as the end comes nearer."""
        self._wanted = Condition(self._lock)
        """Notified when there is something to do."""
        self.jobs: dict[JobId, Job] = {}
        """Those that are not done."""
        self._work, self._background = work, background
        self._ready: deque[Job] = deque()
        self._afterwards: deque[Job] = deque()
        """What nobody waits for: it is done when no versions are ready."""
        self._later: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._threads: list[Thread] = []
        self._idle = 0
        self._is_closing = self.is_closed = False

    def add(self, told: Told) -> None:
        """Have something done soon."""
        with self.changed:
            job = self._job(told.id)
            if told.work is Work.STAGED and job.waiting and not job.is_taken:  # files that go together
                told = told._replace(staged=(*job.waiting.pop().staged, *told.staged)[-STAGED_MAX:])
            job.waiting = [*job.waiting[1 - WAITING_MAX :], told]
            self._want(job)

    def forget(self, table: UUID) -> None:
        """Leave undone what waits for a table."""
        with self.changed:
            for job in [one for one in self.jobs.values() if one.id.table == table]:
                job.waiting, job.problem = [], None
                self._forget_idle(job)

    def do(self, told: Told, until_s: float) -> PenstockError | None:
        """Do something now, in this thread, with all that waits for the same chain; say what stands against
        it. ``Unavailable`` if another thread is at it for longer than is waited."""
        with self.changed:
            job = self._job(told.id)
            job.helpers += 1
            try:
                while job.is_taken:
                    if self.is_closed or not job.left.wait(max(0.0, until_s - monotonic())):
                        return Unavailable(f"'{told.key}' is still being promoted by another thread")
                job.is_taken = True
                job.waiting = [*job.waiting[1 - WAITING_MAX :], told]
            finally:
                job.helpers -= 1
                self._forget_idle(job)
        return self._do(job)

    def wait(self, ids: Iterable[UUID], timeout_s: float) -> bool:
        """Until no versions of some tables wait that waited before, for at most so long; whether none do.

        Does not wait for what an administrator must mend.
        """
        wanted, deadline_s = frozenset(ids), elapsed_s() + timeout_s
        with self.changed:
            jobs = [job for job in self.jobs.values() if job.id.table in wanted]
            stuck = 0
            for job in jobs:
                while job.is_behind and not job.is_stuck:
                    left_s = deadline_s - elapsed_s()
                    if self.is_closed or left_s <= 0:
                        return False
                    job.left.wait(left_s)
                stuck += job.is_behind
            return stuck == 0

    def finish(self, timeout_s: float) -> dict[Key, PenstockError | None]:
        """Until all that was told is done, and what follows from it, for at most so long; returns the tables
        that are left, each with what stands against it.

        Does not wait for what an administrator must mend.
        """
        left: dict[Key, PenstockError | None] = {}
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            for is_versions in (True, False):  # what follows from versions is told before their job ends
                jobs = [job for job in self.jobs.values() if (job.id.work is Work.VERSIONS) is is_versions]
                for job in jobs:
                    while job.is_under_way and not self.is_closed and elapsed_s() < deadline_s:
                        job.left.wait(deadline_s - elapsed_s())
                    left |= {told.key: job.problem for told in job.waiting}
        return left

    def close(self, timeout_s: float) -> None:
        """Finish what can be in that time, trying once more what has failed; then stop."""
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            if self.is_closed:
                return
            self._is_closing = True
            for _, _, job in self._later:
                self._make_ready(job)
            self._later.clear()
            self._wanted.notify_all()
            if self._threads:
                self.changed.wait_for(self._is_done, timeout_s)
            self.is_closed = True
            self._wanted.notify_all()
            for job in self.jobs.values():
                job.left.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - elapsed_s()))

    def _is_done(self) -> bool:
        waiting = self._ready or self._afterwards or self._later
        return not waiting and not any(job.is_taken for job in self.jobs.values())

    def _job(self, id: JobId) -> Job:  # noqa: A002
        found = self.jobs.get(id)
        if found is None:
            found = self.jobs[id] = Job(id, Condition(self._lock))
        return found

    def _forget_idle(self, job: Job) -> None:
        if job.is_idle and self.jobs.get(job.id) is job:
            del self.jobs[job.id]

    def _want(self, job: Job) -> None:
        """Let a job be done soon. With the lock held."""
        if job.is_queued or job.is_taken or self.is_closed or not self._background:
            return  # whoever has it looks again when it is done
        job.is_queued = True
        self._make_ready(job)
        ready = len(self._ready) + len(self._afterwards)
        if ready > self._idle and len(self._threads) < THREADS_MAX:
            thread = Thread(target=self._run, name="penstock-promoter", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._wanted.notify()

    def _make_ready(self, job: Job) -> None:
        (self._ready if job.id.work is Work.VERSIONS else self._afterwards).append(job)

    def _run(self) -> None:
        while (job := self._take()) is not None:
            self._do(job)

    def _take(self) -> Job | None:
        """The next job to be done, as soon as there is one; ``None`` when it is time to stop."""
        with self.changed:
            while not self.is_closed:
                now_s = elapsed_s()
                while self._later and self._later[0][0] <= now_s:
                    self._make_ready(heappop(self._later)[2])
                while ready := self._ready or self._afterwards:
                    job = ready.popleft()
                    job.is_queued = False
                    if job.waiting and not job.is_taken:
                        job.is_taken = True
                        return job
                    self._forget_idle(job)
                if self._is_closing:
                    self.changed.notify_all()
                self._idle += 1
                self._wanted.wait(self._later[0][0] - now_s if self._later else None)
                self._idle -= 1
        return None

    def _do(self, job: Job) -> PenstockError | None:
        """Do what waits, in the job's turn, which ends with it. The newest comes first: it has most of what
        the others have."""
        with self.changed:
            waiting = tuple(reversed(job.waiting))
        done: list[Told] = []
        problem: PenstockError | None = None
        for told in waiting:
            try:
                self._work(told)
            except PenstockError as refused:
                problem = refused
                break
            except Exception as unforeseen:
                logger.exception("promoting '%s' failed", told.key)
                problem = Unavailable(f"promoting '{told.key}' failed: {unforeseen}")
                break
            done.append(told)
        with self.changed:
            finished = set(map(id, done))
            job.waiting = [told for told in job.waiting if id(told) not in finished]
            job.problem, job.tries = problem, 0 if problem is None else job.tries + 1
            self._leave(job)
        return problem

    def _leave(self, job: Job) -> None:
        """Give a job back; it is queued again if it failed, or if something was told meanwhile."""
        job.is_taken = False
        if job.waiting and not job.is_stuck:
            self._want_later(job) if job.tries else self._want(job)
        self._forget_idle(job)
        job.left.notify_all()
        if self._is_closing:
            self.changed.notify_all()

    def _want_later(self, job: Job) -> None:
        if job.is_queued or not self._background:
            return
        if self._is_closing:
            if not job.is_last_try:
                job.is_last_try = True
                self._want(job)
            return
        job.is_queued = True
        pause_s = min(PAUSE_MIN_S * 2 ** min(job.tries - 1, DOUBLINGS_MAX), PAUSE_MAX_S)
        heappush(self._later, (elapsed_s() + pause_s, next(self._numbers), job))
        self._wanted.notify_all()  # each may be the one that is free by then
