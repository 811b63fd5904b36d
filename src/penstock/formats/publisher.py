"""The publisher: what follows in the background after versions of tables were ratified, for all formats.

A format says what is pending for a table and publishes one task. The engine does the rest: it has the queue
and its threads, back-off, leases, alarms, those who wait, metrics, and the end.

Every table has one job for each part that is published by itself. A job is worked on by one thread at a time,
for the tasks that are pending then, the newest first: it has most of what the others have. A task that fails
is tried again after a pause that grows up to half a minute, for as long as the process lives. A problem that
only an administrator can solve is an alarm: its job is not tried again until somebody asks for it. Publishing
changes nothing in the lake: a task may be published late, by another process, or twice.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from threading import Condition, RLock, Thread
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack
from uuid import UUID

import msgspec

from penstock.errors import AdministratorError, Denied, ForeignCommit, PenstockError, Unavailable
from penstock.kernel.leases import Leases
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import Metric
from penstock.model.clock import Clock, elapsed_s, now_us
from penstock.model.keys import Key
from penstock.storage.places import Place

THREADS_MAX: Final = 4
PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0
DOUBLINGS_MAX: Final = 16
"""Of a pause; far beyond the longest."""
CATCH_UP_END_S: Final = 1.0
"""How long the end waits for the look at a table that another process may have left."""
MEASURE_S: Final = 1.0
MEASURED_MAX: Final = 16
"""With more jobs than that, the gauges are set at most once in ``MEASURE_S``."""

logger = logging.getLogger("penstock")

Guard: TypeAlias = Callable[[], None]
"""Called before every write. Raises ``Unavailable`` if another process may be writing."""


class JobId(NamedTuple):
    """A part of a table that is published by itself."""

    table: UUID
    part: Hashable
    is_follow_up: bool = False
    """Whether it follows from other jobs and has time: it is done when no other is ready."""


class TableTask(Protocol):
    """One state of a table that is to be published."""

    @property
    def id(self) -> JobId: ...

    @property
    def key(self) -> Key: ...

    @property
    def location(self) -> str: ...


T = TypeVar("T", bound=TableTask)


class PublisherProfile(NamedTuple):
    """The words and metrics of a format's publisher."""

    name: str
    """Of its threads."""
    published: str
    publishing: str
    """What it does to a version, in its format's word."""
    versions: Metric
    seconds: Metric
    errors: Metric
    foreign: Metric


class TableBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a table that is not published to its latest version, as far as this process knows."""

    key: Key
    id: UUID
    location: str
    versions: int
    """How many are pending."""
    since_us: int
    """When the oldest of them was ratified."""
    problem: PenstockError | None = None
    """Why they are not published; ``None`` while a thread works on them."""


B = TypeVar("B", bound=TableBacklog)


class TableJob(Generic[T]):
    """What is pending for one part of a table. Changed only with the engine's lock held."""

    def __init__(self, id: JobId, left: Condition) -> None:  # noqa: A002
        self.id, self.left = id, left
        """Notified when the job comes further. Those who wait for another job are not woken by that."""
        self.pending: list[T] = []
        """Oldest first."""
        self.problem: PenstockError | None = None
        self.tries = 0
        """That failed, since the last success."""
        self.is_taken = self.is_queued = False
        self.is_last_try = False
        """Whether it is not tried again after this, because the engine is being closed."""
        self.helpers = 0
        """How many threads wait for their turn."""
        self.watchers = 0
        """How many threads wait until it comes further."""

    @property
    def is_idle(self) -> bool:
        return not (self.pending or self.problem or self.is_under_way or self.watchers)

    @property
    def is_under_way(self) -> bool:
        """Whether a thread works on it, or will."""
        return bool(self.is_taken or self.is_queued or self.helpers)

    @property
    def is_stuck(self) -> bool:
        """Whether only an administrator can help: this is an alarm."""
        return isinstance(self.problem, AdministratorError) and not isinstance(self.problem, Denied)


class PublisherOptions(TypedDict, total=False):
    """What a publisher works with, in a kernel or without one."""

    meter: Meter
    clock: Clock
    leases: Leases | None
    """They keep processes apart on storage that does not do it itself; without, it is for one process."""
    background: bool
    """Whether threads of its own publish; otherwise only whoever waits does."""


class BackgroundPublisher(ABC, Generic[T, B]):
    """Jobs, and the threads that work on them: the part of a publisher that all formats share. May be used by
    many threads.

    ``leases`` keep processes apart on storage that does not do it itself; without, such storage is for one
    process only. Without ``background`` a job is only worked on in the thread of a caller.
    """

    def __init__(
        self,
        profile: PublisherProfile,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        **options: Unpack[PublisherOptions],
    ) -> None:
        self.background = options.get("background", True)
        self._lock = RLock()
        self.changed = Condition(self._lock)
        """To be held to look at jobs or to change them; notified as the end comes nearer."""
        self._wanted = Condition(self._lock)
        """Notified when a job is ready."""
        self.jobs: dict[JobId, TableJob[T]] = {}
        """Those that are not idle."""
        self._profile = profile
        self._meter, self._clock = options.get("meter", SILENT), options.get("clock", now_us)
        self._leases, self._uniform = options.get("leases"), uniform
        self._ready: deque[TableJob[T]] = deque()
        self._follow_ups: deque[TableJob[T]] = deque()
        self._later: list[tuple[float, int, TableJob[T]]] = []
        self._numbers = count()
        self._threads: list[Thread] = []
        self._idle = 0
        self._measured_s = 0.0
        self._catching_up: Thread | None = None
        self.is_closing = self.is_closed = False

    # -- what a format says --------------------------------------------------------------------------------

    @abstractmethod
    def merge_tasks(self, pending: Sequence[T], task: T, *, is_taken: bool) -> list[T]:
        """What is pending for a job after one more task, oldest first. With the lock held.

        ``is_taken``: a thread works on what was pending.
        """

    @abstractmethod
    def publish_task(self, task: T) -> None:
        """Publish one task, in its job's turn. Whatever it raises is a failure of the task."""

    @abstractmethod
    def describe_task(self, task: T, problem: PenstockError | None) -> B | None:
        """What the newest task of a job has to publish; ``None`` if nothing."""

    @abstractmethod
    def is_dropped(self, pending: Sequence[T]) -> bool:
        """Whether the lake has the table of a job no more, so that its alarm concerns nobody."""

    # -- what is pending -----------------------------------------------------------------------------------

    def add_task(self, task: T, *, retry_alarm: bool = True) -> None:
        """Have a task published soon; if its job has an alarm, only with ``retry_alarm``."""
        with self.changed:
            job = self._find_job(task.id)
            job.pending = self.merge_tasks(job.pending, task, is_taken=job.is_taken)
            if retry_alarm or not job.is_stuck:
                self._enqueue_job(job)

    def discard_finished_tasks(self, id: JobId, is_done: Callable[[T], bool]) -> None:  # noqa: A002
        """A job came further: wake those who wait for it, and take from it the tasks that are done, unless a
        thread works on it, which takes them when it has done what follows from them. With the last of them
        its alarm ends: whatever was in the way is not there any more."""
        with self.changed:
            if (job := self.jobs.get(id)) is not None:
                if not job.is_taken:
                    unfinished = [task for task in job.pending if not is_done(task)]
                    if job.pending and not unfinished:
                        job.problem, job.tries = None, 0
                    job.pending = unfinished
                    self._forget_idle(job)
                job.left.notify_all()

    def forget_table(self, table: UUID) -> None:
        """Leave undone what is pending for a table: it has become another one."""
        with self.changed:
            self._forget_jobs([job for job in self.jobs.values() if job.id.table == table])

    def forget_replaced(self, table: UUID, location: str) -> None:
        """The same for tables that others' commits have stopped, and at whose location this table is by now:
        a resync, maybe of another process, has put it in their place."""
        with self.changed:
            replaced = {
                job.id.table
                for job in self.jobs.values()
                if isinstance(job.problem, ForeignCommit)
                and job.id.table != table
                and any(task.location == location for task in job.pending)
            }
            self._forget_jobs([job for job in self.jobs.values() if job.id.table in replaced])

    def forget_dropped(self) -> None:
        """The same for tables that have an alarm and that the lake has no more."""
        with self.changed:
            alarms = [(job, job.pending) for job in self.jobs.values() if job.is_stuck and job.pending]
        dropped = [(job, pending) for job, pending in alarms if self._is_surely_dropped(pending)]
        with self.changed:  # a task that came meanwhile may be of a table that is back in the lake
            self._forget_jobs([job for job, pending in dropped if job.pending is pending])

    def _is_surely_dropped(self, pending: Sequence[T]) -> bool:
        try:
            return self.is_dropped(pending)
        except Exception as problem:  # the store is away or damaged: the alarm stays
            logger.debug("it is not known whether '%s' was dropped", pending[-1].key, exc_info=problem)
            return False

    def _forget_jobs(self, jobs: Sequence[TableJob[T]]) -> None:
        for job in jobs:
            job.pending, job.problem = [], None
            self._forget_idle(job)
            job.left.notify_all()

    def find_problem(self, id: JobId) -> PenstockError | None:  # noqa: A002
        """Why a job's tasks are not published, as far as this process knows."""
        with self.changed:
            job = self.jobs.get(id)
            return None if job is None or not job.pending else job.problem

    def list_unpublished(self) -> tuple[B, ...]:
        """What is not published, by key."""
        with self.changed:
            newest = [(job.pending[-1], job.problem) for job in self.jobs.values() if job.pending]
        described = [self.describe_task(*task) for task in newest]
        return tuple(
            sorted((backlog for backlog in described if backlog is not None), key=lambda backlog: backlog.key)
        )

    def catch_up(self, look: Callable[[], None]) -> None:
        """Have ``look`` add, in a thread, what earlier processes left. It ends when the engine is closing."""
        name = f"{self._profile.name} catch up"
        self._catching_up = Thread(target=self._catch_up, args=(look,), name=name, daemon=True)
        self._catching_up.start()

    def _catch_up(self, look: Callable[[], None]) -> None:
        try:
            look()
        except (PenstockError, OSError) as problem:
            if not self.is_closing:
                what = f"it is not known which tables still have to be {self._profile.published}"
                logger.warning("%s: %s", what, problem)

    def await_catch_up(self, timeout_s: float) -> bool:
        """Until all that earlier processes left is added, for at most so long; whether it is."""
        if self._catching_up is not None:
            self._catching_up.join(timeout_s)
        return self._catching_up is None or not self._catching_up.is_alive()

    # -- waiting -------------------------------------------------------------------------------------------

    def wait_for(self, id: JobId, is_done: Callable[[TableJob[T]], bool], timeout_s: float) -> bool:  # noqa: A002
        """Until a job is done, for at most so long; whether it is. Does not wait for an administrator."""
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            job = self._find_job(id)
            job.watchers += 1
            try:
                while not is_done(job):
                    left_s = deadline_s - elapsed_s()
                    if self.is_closed or left_s <= 0 or job.is_stuck:
                        return False
                    job.left.wait(left_s)
                return True
            finally:
                job.watchers -= 1
                self._forget_idle(job)

    def finish(self, timeout_s: float) -> dict[Key, PenstockError | None]:
        """Until all that is pending is published, with what follows from it, for at most so long; returns the
        tables that are left, each with its problem.

        Does not wait for an administrator. An alarm of a table that was dropped is left out.
        """
        deadline_s = elapsed_s() + timeout_s
        waited: list[TableJob[T]] = []
        with self.changed:
            for is_follow_up in (
                False,
                True,
            ):  # a follow-up is added before the job that it follows from ends
                jobs = [job for job in self.jobs.values() if job.id.is_follow_up is is_follow_up]
                for job in jobs:
                    while job.is_under_way and not self.is_closed and elapsed_s() < deadline_s:
                        job.left.wait(deadline_s - elapsed_s())
                waited += jobs
        self.forget_dropped()
        with self.changed:
            return {task.key: job.problem for job in waited for task in job.pending}

    # -- in the caller's thread ----------------------------------------------------------------------------

    @contextmanager
    def wait_for_job(self, id: JobId, timeout_s: float | None = None) -> Iterator[TableJob[T]]:  # noqa: A002
        """A job for this thread alone. ``Unavailable`` if another thread has it for longer than is waited, or
        does not end when the lake is closed."""
        deadline_s = None if timeout_s is None else elapsed_s() + timeout_s
        with self.changed:
            job = self._find_job(id)
            job.helpers += 1
            try:
                while job.is_taken:
                    left_s = None if deadline_s is None else deadline_s - elapsed_s()
                    if self.is_closed:
                        raise Unavailable(
                            f"the lake was closed while the table was still being {self._profile.published}"
                        )
                    if left_s is not None and left_s <= 0:
                        raise Unavailable(
                            f"the table is still being {self._profile.published} by another thread"
                        )
                    job.left.wait(left_s)
                job.is_taken = True
            finally:
                job.helpers -= 1
                self._forget_idle(job)
        try:
            yield job
        finally:
            self._return_job(job)

    def publish_here(self, task: T, timeout_s: float) -> PenstockError | None:
        """Publish a task now, with all that is pending for its job; returns the problem.

        Another thread that has the job is waited for. If that takes too long, the task is not added.
        """
        try:
            with self.wait_for_job(task.id, timeout_s) as job:
                with self.changed:
                    job.pending = self.merge_tasks(job.pending, task, is_taken=True)
                return self._publish_pending(job)
        except Unavailable as busy:
            return busy

    def note_failed_try(self, job: TableJob[T], problem: PenstockError) -> None:
        """Note and report what a try in the job's turn ended with."""
        self._report_problem(job, problem)
        with self.changed:
            job.problem, job.tries = problem, job.tries + 1

    @contextmanager
    def guard_place(self, place: Place, lease: str, busy: str) -> Iterator[Guard | None]:
        """What keeps other processes away while files are written; ``None`` where storage itself does."""
        if place.keeps_conditions:
            yield None
            return
        if self._leases is None:
            yield lambda: None
            return
        held = self._leases.take_lease(lease)
        if held is None:
            raise Unavailable(busy)

        def require_lease() -> None:
            if not held.renew_if_due():
                raise Unavailable(busy)

        try:
            yield require_lease
        finally:
            held.release()

    # -- metrics -------------------------------------------------------------------------------------------

    def report_metrics(self) -> None:
        """Set the gauges to what they are now. The age of what is pending grows by itself: call it often."""
        if self._meter is SILENT:
            return
        behind, now_us = self.list_unpublished(), self._clock()
        oldest_us = min((backlog.since_us for backlog in behind), default=now_us)
        self._meter.gauge(self._profile.versions, sum(backlog.versions for backlog in behind))
        self._meter.gauge(self._profile.seconds, max(0, now_us - oldest_us) / 1e6)

    def _measure_at_times(self) -> None:
        with self.changed:
            is_small = len(self.jobs) <= MEASURED_MAX
            if not is_small and elapsed_s() < self._measured_s + MEASURE_S:
                return
            self._measured_s = elapsed_s()
        self.report_metrics()

    def _report_problem(self, job: TableJob[T], problem: PenstockError) -> None:
        """Log a problem when it is new. After the end nothing is reported: the store is closed, too."""
        with self.changed:
            if self.is_closed:
                return
            is_known = job.problem is not None and job.problem.message == problem.message
        self._meter.count(self._profile.errors, error=problem.code)
        if is_known:
            return
        is_alarm = isinstance(problem, AdministratorError)
        level = logging.ERROR if is_alarm else logging.WARNING
        logger.log(level, "not %s: %s", self._profile.published, problem)
        if isinstance(problem, ForeignCommit):
            self._meter.count(self._profile.foreign)

    # -- the end -------------------------------------------------------------------------------------------

    def close(self, timeout_s: float) -> None:
        """Finish what can be finished in that time, with one more try of what failed; then stop.

        The next process publishes the rest. A thread that does not end in time reports nothing any more.
        """
        self.is_closing = True
        self.await_catch_up(CATCH_UP_END_S)
        deadline_s = elapsed_s() + timeout_s
        with self.changed:
            for _, _, job in self._later:
                self._make_ready(job)
            self._later.clear()
            self._wanted.notify_all()
            if self._threads and not self.is_closed:
                self.changed.wait_for(self._is_done, timeout_s)
            self.is_closed = True
            self._wanted.notify_all()
            for job in self.jobs.values():
                job.left.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - elapsed_s()))

    def _is_done(self) -> bool:
        is_queued = self._ready or self._follow_ups or self._later
        return not is_queued and not any(job.is_taken for job in self.jobs.values())

    # -- jobs and threads ----------------------------------------------------------------------------------

    def _find_job(self, id: JobId) -> TableJob[T]:  # noqa: A002
        job = self.jobs.get(id)
        if job is None:
            job = self.jobs[id] = TableJob(id, Condition(self._lock))
        return job

    def _forget_idle(self, job: TableJob[T]) -> None:
        if job.is_idle and self.jobs.get(job.id) is job:
            del self.jobs[job.id]

    def _enqueue_job(self, job: TableJob[T]) -> None:
        if job.is_queued or job.is_taken or self.is_closed or not self.background:
            return  # the thread that has it looks again when it leaves it
        job.is_queued = True
        self._make_ready(job)
        if len(self._ready) + len(self._follow_ups) > self._idle and len(self._threads) < THREADS_MAX:
            self._start_thread()
        self._wanted.notify()

    def _enqueue_later(self, job: TableJob[T]) -> None:
        if job.is_queued or not self.background:
            return
        if self.is_closing:
            if not job.is_last_try:
                job.is_last_try = True
                self._enqueue_job(job)
            return
        job.is_queued = True
        heappush(self._later, (elapsed_s() + self._retry_pause_s(job.tries), next(self._numbers), job))
        if not self._threads:
            self._start_thread()
        self._wanted.notify_all()  # each may be the one that is free by then

    def _start_thread(self) -> None:
        thread = Thread(target=self._publish_until_closed, name=self._profile.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _retry_pause_s(self, tries: int) -> float:
        """Between half and the whole of a pause that doubles: processes that failed together come apart."""
        longest_s = min(PAUSE_MIN_S * 2 ** min(tries - 1, DOUBLINGS_MAX), PAUSE_MAX_S)
        return self._uniform(longest_s / 2, longest_s)

    def _make_ready(self, job: TableJob[T]) -> None:
        (self._follow_ups if job.id.is_follow_up else self._ready).append(job)

    def _publish_until_closed(self) -> None:
        while (job := self._take_next_job()) is not None:
            try:
                self._publish_pending(job)
            finally:
                self._return_job(job)

    def _take_next_job(self) -> TableJob[T] | None:
        """The next job, as soon as there is one; ``None`` when it is time to stop."""
        with self.changed:
            while not self.is_closed:
                now_s = elapsed_s()
                while self._later and self._later[0][0] <= now_s:
                    self._make_ready(heappop(self._later)[2])
                while ready := self._ready or self._follow_ups:
                    job = ready.popleft()
                    job.is_queued = False
                    if job.pending and not job.is_taken:
                        job.is_taken = True
                        return job
                    self._forget_idle(job)
                    job.left.notify_all()
                if self.is_closing:
                    self.changed.notify_all()
                self._idle += 1
                self._wanted.wait(self._later[0][0] - now_s if self._later else None)
                self._idle -= 1
        return None

    def _publish_pending(self, job: TableJob[T]) -> PenstockError | None:
        """Publish what is pending, in the job's turn, until a task fails; returns the problem."""
        with self.changed:
            tasks = job.pending[::-1]
        published: set[int] = set()
        problem: PenstockError | None = None
        for task in tasks:
            try:
                self.publish_task(task)
            except PenstockError as refused:
                problem = refused
                self._report_problem(job, problem)
            except Exception as unforeseen:
                failed = f"{self._profile.publishing} '{task.key}' failed"
                logger.log(logging.DEBUG if self.is_closed else logging.ERROR, failed, exc_info=unforeseen)
                problem = Unavailable(f"{failed}: {unforeseen}")
            finally:
                self._measure_at_times()
            if problem is not None:
                break
            published.add(id(task))
        with self.changed:
            job.pending = [task for task in job.pending if id(task) not in published]
            job.problem = problem if job.pending else None  # a job may have been forgotten meanwhile
            job.tries = 0 if problem is None else job.tries + 1
        return problem

    def _return_job(self, job: TableJob[T]) -> None:
        """Give a job back. It is queued again if a task failed, or if one was added meanwhile."""
        with self.changed:
            job.is_taken = False
            if job.pending and not job.is_stuck:
                self._enqueue_later(job) if job.tries else self._enqueue_job(job)
            self._forget_idle(job)
            job.left.notify_all()
            if self.is_closing:
                self.changed.notify_all()
