"""The backlog: lines whose versions are to be published, and the threads that work on it.

Every table has one job, every branch's own files of a table another. A job is worked on by one thread at a
time, for the newest line that it was told. What fails is tried again later and later, and at last every half
minute for as long as the process lives; what an administrator must mend, not before somebody asks for it. A
job that is done is forgotten, but for how far it came.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread
from typing import Final, TypeAlias
from uuid import UUID

from penstock.errors import AdministratorError, Denied, PenstockError, Unavailable
from penstock.formats.delta.lines.line import Line
from penstock.model.content import DeltaTable
from penstock.model.keys import Key
from penstock.storage.announcements import elapsed_s

THREADS_MAX: Final = 4
PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0
DOUBLINGS_MAX: Final = 16
"""Of a pause; far beyond the longest."""
KNOWN_MAX: Final = 10_000
"""Of how many jobs that are done is remembered how far they came."""
UNKNOWN: Final = -1

logger = logging.getLogger("penstock")

JobId: TypeAlias = tuple[UUID, bytes]
"""The table, and the line whose files are written; no line is the default branch, and the log."""


class Told:
    """A line to be published, and under which key it landed."""

    __slots__ = ("content", "key", "line")

    def __init__(self, key: Key, content: DeltaTable, line: Line) -> None:
        self.key, self.content, self.line = key, content, line


class Job:
    """What is known of a table's log, and what is to be done. Changed only with the backlog's lock held."""

    def __init__(self, id: JobId, published: int, seen_s: float) -> None:  # noqa: A002
        self.id = id
        self.told: Told | None = None
        """The newest."""
        self.done: Told | None = None
        """The last that was worked on with success."""
        self.published = published
        """Versions up to this one are surely done."""
        self.seen_s = seen_s
        """When that was last seen to be so, by ``elapsed_s``."""
        self.problem: PenstockError | None = None
        self.tries = 0
        """That failed, since the last that did not."""
        self.is_taken = self.is_queued = False
        self.waiting = 0
        """How many threads wait for their turn."""
        self.following = 0
        """How many threads tell others that it is done."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody has to do with it any more."""
        return self.problem is None and not self.is_behind and not self.is_under_way

    @property
    def is_under_way(self) -> bool:
        """Whether a thread does it, or will, or does what follows from it."""
        return bool(self.is_taken or self.is_queued or self.waiting or self.following)

    @property
    def is_behind(self) -> bool:
        return self.told is not None and self.published < self.told.line.fork

    @property
    def is_stuck(self) -> bool:
        """Whether only an administrator can help."""
        return isinstance(self.problem, AdministratorError) and not isinstance(self.problem, Denied)


class Backlog:
    """Jobs and their threads. ``work`` does a job; whatever it raises counts as a failure.

    When it has done one, ``after`` is called with how far that was done before, out of the job's turn.
    """

    def __init__(
        self, work: Callable[[Job, Told], None], after: Callable[[Job, Told, int], None], *, background: bool
    ) -> None:
        self.changed = Condition()
        """To be held to look at jobs or to change them; notified when one changed."""
        self.jobs: dict[JobId, Job] = {}
        """Those that are not done."""
        self._known: OrderedDict[JobId, tuple[int, float]] = OrderedDict()
        self._work, self._after, self._background = work, after, background
        self._ready: deque[Job] = deque()
        self._later: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._threads: list[Thread] = []
        self._idle = 0
        self._is_closing = False
        self.is_closed = False

    def job(self, id: JobId) -> Job:  # noqa: A002
        """The job, made if need be. With the lock held."""
        found = self.jobs.get(id)
        if found is None:
            found = self.jobs[id] = Job(id, *self._known.get(id, (UNKNOWN, 0.0)))
        return found

    def published(self, id: JobId) -> int:  # noqa: A002
        """How far a job is surely done. With the lock held."""
        job = self.jobs.get(id)
        return self._known.get(id, (UNKNOWN, 0.0))[0] if job is None else job.published

    def forget_idle(self, job: Job) -> None:
        """Forget a job if there is nothing more to do, but for how far it is done. With the lock held."""
        if not job.is_idle or self.jobs.get(job.id) is not job:
            return
        del self.jobs[job.id]
        self.changed.notify_all()
        self._known[job.id] = job.published, job.seen_s
        self._known.move_to_end(job.id)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def want(self, job: Job) -> None:
        """Let a job be done soon. With the lock held."""
        if job.is_queued or job.is_taken or job.told is None or self.is_closed or not self._background:
            return  # whoever has it looks again when it is done
        job.is_queued = True
        self._ready.append(job)
        if len(self._ready) > self._idle and len(self._threads) < THREADS_MAX:
            thread = Thread(target=self._run, name="penstock-publisher", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.changed.notify_all()

    @contextmanager
    def turn(self, id: JobId) -> Iterator[Job]:  # noqa: A002
        """A job for this thread alone. ``Unavailable`` if another has it that does not end, after closing."""
        with self.changed:
            job = self.job(id)
            job.waiting += 1
            try:
                self.changed.wait_for(lambda: not job.is_taken or self.is_closed)
                if job.is_taken:
                    raise Unavailable("the lake is closed, and the table is still being published")
                job.is_taken = True
            finally:
                job.waiting -= 1
                self.forget_idle(job)
        try:
            yield job
        finally:
            self._leave(job)

    def do_here(self, id: JobId) -> None:  # noqa: A002
        """Do a job in this thread, if there is anything to do. What fails is noted in the job."""
        with self.changed:
            found = self.jobs.get(id)
            told = None if found is None else found.told
        if told is not None:
            with self.turn(id) as job:
                before = job.published
                is_done = self._do(job, told)
            if is_done:
                self._follow(job, told, before)

    def finish(self, timeout_s: float) -> dict[Key, PenstockError | None]:
        """Until all that was told is done, for at most so long; returns the tables that are left, each with
        what stands against it.

        Does not wait for what an administrator must mend.
        """
        left: dict[Key, PenstockError | None] = {}
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            for job in [job for job in self.jobs.values() if job.told is not None]:
                while job.is_under_way and not self.is_closed and elapsed_s() < deadline_s:
                    self.changed.wait(deadline_s - elapsed_s())
                if not job.is_idle and job.told is not None:
                    left[job.told.key] = job.problem
        return left

    def close(self, timeout_s: float) -> None:
        """Finish what can be in that time, without trying anything again; then stop."""
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            self._is_closing = True
            self.hurry()
            if self._threads:
                self.changed.wait_for(self._is_done, timeout_s)
            self.is_closed = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - elapsed_s()))

    def _is_done(self) -> bool:
        return not self._ready and not self._later and not any(job.is_taken for job in self.jobs.values())

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            job, told = taken
            before = job.published
            is_done = self._do(job, told)
            self._leave(job)
            if is_done:
                self._follow(job, told, before)

    def _take(self) -> tuple[Job, Told] | None:
        """The next job to be done, as soon as there is one; ``None`` when it is time to stop."""
        with self.changed:
            while not self.is_closed:
                now_s = elapsed_s()
                while self._later and self._later[0][0] <= now_s:
                    self._ready.append(heappop(self._later)[2])
                while self._ready:
                    job = self._ready.popleft()
                    job.is_queued = False
                    if job.told is not None and not job.is_taken:
                        job.is_taken = True
                        return job, job.told
                    self.forget_idle(job)
                self._idle += 1
                self.changed.wait(self._later[0][0] - now_s if self._later else None)
                self._idle -= 1
        return None

    def _do(self, job: Job, told: Told) -> bool:
        problem: PenstockError | None = None
        try:
            self._work(job, told)
        except PenstockError as refused:
            problem = refused
        except Exception as unforeseen:
            logger.exception("publishing '%s' failed", told.key)
            problem = Unavailable(f"publishing '{told.key}' failed: {unforeseen}")
        with self.changed:
            if problem is None:
                job.done = told
                job.following += 1
            else:
                self.failed(job, problem)
        return problem is None

    def _follow(self, job: Job, told: Told, before: int) -> None:
        """Tell others what is done. The job is kept until they know: whoever waits for it, waits for that."""
        try:
            self._after(job, told, before)
        finally:
            with self.changed:
                job.following -= 1
                self.forget_idle(job)
                self.changed.notify_all()

    def failed(self, job: Job, problem: PenstockError) -> None:
        """Note what a try ended with. With the lock held."""
        job.problem, job.tries = problem, job.tries + 1
        self.changed.notify_all()

    def succeeded(self, job: Job, published: int) -> None:
        """Note how far a job is done. With the lock held."""
        job.published = max(job.published, published)
        if job.problem is not None and job.problem.details.get("version", UNKNOWN) <= published:
            job.problem = None
        job.tries = 0
        self.changed.notify_all()

    def reached(self, job: Job, published: int) -> None:
        """Note that versions up to one were seen to be done. With the lock held."""
        job.published, job.seen_s = max(job.published, published), elapsed_s()
        self.changed.notify_all()

    def hurry(self) -> None:
        """Whatever waits for its next try has it now. With the lock held."""
        self._ready.extend(job for _, _, job in self._later)
        self._later.clear()
        self.changed.notify_all()

    def _leave(self, job: Job) -> None:
        """Give a job back; it is queued again if it failed, or if something newer was told meanwhile."""
        with self.changed:
            job.is_taken = False
            if job.told is not job.done and not job.is_stuck:
                self._want_later(job) if job.tries else self.want(job)
            self.forget_idle(job)
            self.changed.notify_all()

    def _want_later(self, job: Job) -> None:
        if job.is_queued or self._is_closing or not self._background:
            return
        job.is_queued = True
        pause_s = min(PAUSE_MIN_S * 2 ** min(job.tries - 1, DOUBLINGS_MAX), PAUSE_MAX_S)
        heappush(self._later, (elapsed_s() + pause_s, next(self._numbers), job))
        self.changed.notify_all()
