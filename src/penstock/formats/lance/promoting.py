"""Promoting: what follows after versions of a Lance table were ratified, in the background.

Until then a version's manifest is where only those find it who ask the lake. Now it is put where every reader
of Lance looks, one version after the other, and never over anything. That changes nothing in the lake: it may
be done late, by another process, or twice. Only then does what its writer had staged go.

A manifest of somebody else may be there. Then nothing more is put into that chain: Lance's writers work out
from the manifests of a folder what came before them, and would take the stranger's version for the lake's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import AdministratorError, ForeignCommit, PenstockError, Unavailable
from penstock.formats.lance.backlog import Backlog, JobId, Told, Work
from penstock.formats.lance.chains import Chains, Waiting
from penstock.formats.lance.names import MAIN, MANIFEST, STAGING
from penstock.formats.lance.owning import Ownership
from penstock.formats.lance.reading import Manifests
from penstock.formats.lance.refs import RefFiles
from penstock.formats.lance.state import Versions, state_of
from penstock.formats.sync import SyncState
from penstock.kernel.leases import Leases
from penstock.kernel.objects import Objects
from penstock.metrics import table as metrics
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.content import LanceTable
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.storage.announcements import elapsed_s
from penstock.storage.places import Places

MEASURE_S: Final = 1.0
MEASURED_MAX: Final = 16
"""With more chains that wait, the figures are worked out no more often than that."""
REPORTED_MAX: Final = 1000
"""Of how many tables it is remembered what was said last, so as not to say it again."""
_NO_KEY: Final = Key("table")
"""For what is said of a table whose key its caller does not give."""

logger = logging.getLogger("penstock")

Guard: TypeAlias = Callable[[], None]
"""Asked before every write. ``Unavailable`` if another process may be writing."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of a table with versions that are not promoted, as far as is known here."""

    key: Key
    id: UUID
    location: str
    chain: str
    """Nothing for the default branch's, the table's own folder."""
    versions: int
    since_us: int
    """When the oldest of them was ratified."""
    problem: PenstockError | None = None
    """Why they are not promoted; ``None`` while it is being worked on."""


class Promoter:
    """Promotes what it is told. May be used by many threads.

    ``current`` tells a table as its branch has it now; nothing if it is not there any more. ``leases`` keep
    processes apart on storage that does not do it itself; without, such storage is for one process only.
    Without ``background``, tables are only promoted by ``promote``, in the caller's thread.
    """

    def __init__(
        self,
        places: Places,
        manifests: Manifests,
        objects: Objects,
        ownership: Ownership,
        *,
        refs: RefFiles | None = None,
        current: Callable[[Told], LanceTable | None] | None = None,
        meter: Meter = SILENT,
        clock: Clock = now_us,
        leases: Leases | None = None,
        background: bool = True,
    ) -> None:
        self._places, self._objects, self._ownership = places, objects, ownership
        self._chains = Chains(places, manifests, objects)
        self._refs, self._current = refs, current
        self._meter, self._clock, self._leases = meter, clock, leases
        self.after_look: Callable[[Key, LanceTable], None] | None = None
        """Told of every table of the default branch whose folder was worked on."""
        self._reported: dict[JobId, str] = {}
        self._measured_s = 0.0
        self._lock = Lock()
        self._backlog = Backlog(self._work, background=background)

    def told(self, key: Key, content: LanceTable, *, is_default: bool, branch: str = "") -> None:
        """A table is so on a branch now: it is promoted soon. Quick, and never raises.

        What is in a transaction is for nobody else to see, and is not promoted.
        """
        if branch.startswith(PREFIX):
            return
        try:
            told = Told(key, content, state_of(content), branch)
        except PenstockError as problem:
            logger.error("'%s' is not promoted: %s", key, problem)
            return
        if not told.state.is_private and is_default == (not told.state.owner):
            self._backlog.add(told)  # otherwise the branch has only what is another one's

    def promote(self, content: LanceTable, until_s: float, key: Key | None = None) -> bool:
        """Promote a table now, in this thread; whether everybody sees all of its versions then.

        A thread that is at it already is waited for, until a time by ``time.monotonic``. The table has to be
        as a branch has it, never as a transaction does. What stands against it is told by ``status``, and it
        is tried again in the background. A private table has nothing to promote.
        """
        state = state_of(content)
        if state.is_private:
            return True
        told = Told(key or _NO_KEY, content, state)
        if not self._chains.waiting(told):
            return True
        return self._backlog.do(told, until_s) is None and self._ownership.owns(content)

    def pin_before(self, content: LanceTable, versions: Versions, one: Waiting) -> None:
        """Pin the version before one that somebody is about to see, though it is not promoted.

        Raises as storage does. A copy of a lake has the same tables, and they are not its own.
        """
        if not state_of(content).is_private and self._ownership.owns(content):
            self._chains.pin_before(content, versions, one)

    def apart(self, content: LanceTable, one: Waiting) -> str:
        """Where a version is for who reads it though it cannot be promoted. See ``Chains.apart``."""
        return self._chains.apart(content, one)

    def linked(self, content: LanceTable, one: Waiting) -> str | None:
        """The same under one more name of its file. See ``Chains.linked``."""
        return self._chains.linked(content, one)

    def is_promoted(self, content: LanceTable, one: Waiting) -> bool:
        """Whether a version is known to be where everybody looks, and none after it is."""
        return self._chains.is_promoted(content, one)

    def compare(self, location: str, content: LanceTable | None) -> SyncState:
        """What a table's folder has that the lake has not. See ``Chains.compare``."""
        return self._chains.compare(location, content)

    def is_foreign(self, table_id: UUID) -> bool:
        """Whether a manifest was found in a table's folder that is not the lake's, and nothing came since."""
        with self._backlog.changed:
            job = self._backlog.jobs.get(JobId(table_id, "", Work.VERSIONS))
            return job is not None and isinstance(job.problem, ForeignCommit)

    def forget(self, table_id: UUID) -> None:
        """Nothing is to be promoted of a table any more: it has become another one."""
        self._backlog.forget(table_id)

    def forget_replaced(self, table_id: UUID, location: str) -> None:
        """The same, for tables that could not go on because of others' manifests, and in whose folder this
        one is by now: a resync, maybe of another process, has put it in their place."""
        with self._backlog.changed:
            jobs = [job for job in self._backlog.jobs.values() if isinstance(job.problem, ForeignCommit)]
            replaced = {
                told.table
                for job in jobs
                for told in job.waiting
                if told.table != table_id and told.content.location == location
            }
        for one in replaced:
            self.forget(one)

    def wait(self, ids: Iterable[UUID], timeout_s: float) -> bool:
        """Until all that was told of some tables is promoted, for at most so long; whether it is.

        Does not wait for what an administrator must mend.
        """
        return self._backlog.wait(ids, timeout_s)

    def finish(self, timeout_s: float) -> dict[Key, PenstockError | None]:
        """Until all that was told is promoted and what was staged is gone. See ``Backlog.finish``."""
        return self._backlog.finish(timeout_s)

    def unpromoted(self, content: LanceTable) -> tuple[Waiting, ...]:
        """Versions of a table that are not where everybody looks, by what is there now, in their order.

        Raises ``Unavailable`` or ``Denied`` as storage does.
        """
        state = state_of(content)
        if state.is_private:
            return ()
        told = Told(_NO_KEY, content, state)
        return tuple(
            one for branch in self._chains.branches(told) for one in self._chains.look(told, branch).missing
        )

    def status(self, content: LanceTable) -> Behind | None:
        """What is known here of versions that are not promoted; ``None`` if none are."""
        wanted = content.id, state_of(content).chain
        return next((one for one in self.backlog() if (one.id, one.chain) == wanted), None)

    def backlog(self) -> tuple[Behind, ...]:
        """The chains with versions that are not promoted, by key."""
        with self._backlog.changed:
            jobs = [(job.waiting[-1], job.problem) for job in self._backlog.jobs.values() if job.is_behind]
        return tuple(sorted((self._behind(*one) for one in jobs), key=lambda one: (one.key, one.chain)))

    def measure(self) -> None:
        """Set the gauges to what they are now. The age of what waits grows by itself: to be called often."""
        if self._meter is SILENT:
            return
        behind, now_us = self.backlog(), self._clock()
        oldest_us = min((one.since_us for one in behind), default=now_us)
        self._meter.gauge(metrics.LANCE_UNPROMOTED, sum(one.versions for one in behind))
        self._meter.gauge(metrics.LANCE_UNPROMOTED_SECONDS, max(0, now_us - oldest_us) / 1e6)

    def _measure_at_times(self) -> None:
        with self._backlog.changed:
            is_small = len(self._backlog.jobs) <= MEASURED_MAX
            if not is_small and elapsed_s() < self._measured_s + MEASURE_S:
                return
            self._measured_s = elapsed_s()
        self.measure()

    def close(self, timeout_s: float) -> None:
        """Finish what can be finished in that time, then stop. Whoever comes next promotes the rest."""
        self._backlog.close(timeout_s)

    # -- the work ------------------------------------------------------------------------------------------

    def _work(self, told: Told) -> None:
        """What a thread of the background does, and whoever helps, in the job's turn."""
        try:
            match told.work:
                case Work.VERSIONS:
                    self._promote(told)
                    if self.after_look is not None and told.branch and not told.state.owner:
                        self.after_look(told.key, told.content)
                case Work.REFS if self._refs is not None and self._ownership.owns(told.content):
                    self._refs.have(told)
                case Work.STAGED:
                    self._remove(told)
        except PenstockError as problem:
            self._report(told, problem)
            raise
        finally:
            self._measure_at_times()
        with self._lock:
            self._reported.pop(told.id, None)

    def _promote(self, told: Told) -> None:
        if not self._ownership.owns(told.content):
            return  # a copy of a lake has the same tables, and they are not its own
        if self._is_left(told):
            return
        done: list[Waiting] = []
        try:
            with self._guard(told.content) as guard:
                self._put_all(told, guard, done)
        finally:
            staged = tuple(one.version.staged for one in done if _is_apart(one.version.staged))
            if staged:
                self._backlog.add(told._replace(work=Work.STAGED, staged=staged))
        if self._refs is not None and told.branch and self._refs.is_news(told):
            self._backlog.add(told._replace(work=Work.REFS))

    def _is_left(self, told: Told) -> bool:
        """Whether a branch other than the default one was set back behind what was told of it, or is gone.

        Whoever goes on from there looks whether its folder is free, and must not find it taken later.
        """
        newest = next(self._chains.own(told, MAIN), None)
        if self._current is None or not told.branch or not told.state.owner or newest is None:
            return False
        now = self._current(told)
        if now is None:
            return True
        known = Versions(self._objects, state_of(now)).get(MAIN, newest.number)
        return known is None or known.id(newest.number) != newest.version.id(newest.number)

    def _put_all(self, told: Told, guard: Guard, done: list[Waiting]) -> None:
        """Put what is missing of each of Lance's own branches. What stands against one keeps no other from
        going on; the first such problem is raised in the end."""
        failed: PenstockError | None = None
        for branch in self._chains.branches(told):
            try:
                found = self._chains.look(told, branch)
                done.extend(found.there)
                for one in found.missing:
                    guard()
                    if self._chains.put(told, one):
                        self._meter.count(metrics.LANCE_PROMOTED)
                    done.append(one)
            except PenstockError as problem:
                failed = failed or problem
        if failed is not None:
            raise failed

    def _remove(self, told: Told) -> None:
        """Remove what writers staged of versions that are at their place now. What is left is swept."""
        try:
            self._places.at(told.content.location).delete(told.staged)
        except (PenstockError, RuntimeError) as problem:  # a process that ends starts no threads any more
            logger.info("what was staged of '%s' is left for the sweep: %s", told.key, problem)

    def _report(self, told: Told, problem: PenstockError) -> None:
        """Say what went wrong, but not again and again."""
        self._meter.count(metrics.LANCE_PROMOTE_ERRORS, error=problem.code)
        with self._lock:
            if self._reported.get(told.id) == problem.message:
                return
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported[told.id] = problem.message
        is_alarm = isinstance(problem, AdministratorError)
        logger.log(logging.ERROR if is_alarm else logging.WARNING, "not promoted: %s", problem)
        if isinstance(problem, ForeignCommit):
            self._meter.count(metrics.LANCE_FOREIGN)

    def _behind(self, told: Told, problem: PenstockError | None) -> Behind:
        try:
            waiting = self._chains.waiting(told)
        except PenstockError:  # the store is away, and that something waits is all that is known
            waiting = []
        return Behind(
            key=told.key,
            id=told.table,
            location=told.content.location,
            chain=told.state.chain,
            versions=len(waiting),
            since_us=min((one.version.time_us for one in waiting), default=self._clock()),
            problem=problem,
        )

    @contextmanager
    def _guard(self, content: LanceTable) -> Iterator[Guard]:
        """What keeps other processes away while manifests are put; nothing where storage itself does."""
        if self._leases is None or self._places.at(content.location).keeps_conditions:
            yield lambda: None
            return
        lease = self._leases.take(f"lance/{content.id}")
        busy = Unavailable(f"another process is promoting the table at {content.location}; try again")
        if lease is None:
            raise busy

        def guard() -> None:
            if not lease.keep():
                raise busy

        try:
            yield guard
        finally:
            lease.release()


def _is_apart(name: str) -> bool:
    """Whether a name is one that only its writer uses, so that it can go. No reader lists such names; but a
    writer may just as well have named a manifest that is at the place of one."""
    return STAGING in name or f"{MANIFEST}-" in name
