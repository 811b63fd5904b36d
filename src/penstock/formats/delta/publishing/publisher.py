"""Publishing: what follows after a version of a Delta table was ratified, in the background.

On the default branch the version is written into the table's log, after all those before it. On other
branches its file is written where the branch keeps its own. Neither changes anything in the lake: it may be
done late, by another process, or twice.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import AdministratorError, OutcomeUnknown, PenstockError, Unavailable
from penstock.formats.delta.errors import ForeignCommit, InvalidLog
from penstock.formats.delta.lines.line import Entry, Line, Phase, Read, held_of, line_of
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.backfill import Guard, backfill, batches, bytes_of, look
from penstock.formats.delta.publishing.backlog import TRIES_MAX, UNKNOWN, Backlog, Job, Told
from penstock.kernel.leases import Leases
from penstock.metrics import table as metrics
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.content import DeltaTable
from penstock.model.keys import Key
from penstock.storage.announcements import elapsed_s
from penstock.storage.places import Place, Places

NAMES_MAX: Final = 20_000
"""How many names of files are remembered that surely exist."""

logger = logging.getLogger("penstock")

AfterPublish: TypeAlias = Callable[[Key, DeltaTable, int], None]
"""Told the table, its line and how far that is published by now. Whatever it raises is logged."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the default branch that is not published to its latest version, as far as is known here."""

    key: Key
    id: UUID
    location: str
    published: int
    """Up to where it is; -1 if nothing is."""
    latest: int
    since_us: int
    """When the oldest version that is missing was ratified."""
    problem: PenstockError | None = None
    """Why it is not published; ``None`` while it is being worked on."""


class Publisher:
    """Publishes lines that it is told. May be used by many threads.

    ``read`` reads kernel objects. ``leases`` keep processes apart on storage that does not do it itself;
    without, such storage is for one process only. Without ``background``, tables are only published by
    ``publish`` and ``wait``, in the caller's thread.
    """

    def __init__(
        self,
        places: Places,
        read: Read,
        *,
        wait_s: float = 0.0,
        meter: Meter = SILENT,
        clock: Clock = now_us,
        background: bool = True,
        leases: Leases | None = None,
        after_publish: AfterPublish | None = None,
    ) -> None:
        self.after_publish = after_publish
        self._places, self._read, self._wait_s = places, read, wait_s
        self._meter, self._clock, self._leases = meter, clock, leases
        self._background = background
        self._backlog = Backlog(self._work, self._done, background=background)
        self._changed = self._backlog.changed
        self._files = _Names(NAMES_MAX)

    def published(self, table_id: UUID) -> int:
        """Up to which version a table's log is surely published; -1 if this process does not know."""
        with self._changed:
            job = self._backlog.jobs.get((table_id, b""))
            return UNKNOWN if job is None else job.published

    def told(self, key: Key, content: DeltaTable, *, is_default: bool) -> None:
        """A newer line of a table landed: it is published soon. Quick, and never raises."""
        try:
            line = line_of(content)
        except PenstockError as problem:
            logger.error("'%s' is not published: %s", key, problem)
            return
        own = b"" if is_default else _own_line(line)
        if line.phase is Phase.ADOPTING or own is None:
            return  # whether it is the lake's, its log tells; or the branch has no files of its own
        with self._changed:
            job = self._backlog.job((_id(content), own))
            if is_default and job.told is not None and job.told.line.latest > line.latest:
                return  # those who land one after the other may come here in any order
            if own and line.latest <= job.published:
                job.published = line.fork  # the branch was set back, and has other versions now
            job.told = Told(key, content, line)
            if job.tries >= TRIES_MAX:
                job.tries = 0
            if not job.is_stuck:
                self._backlog.want(job)

    def poke(self, table_id: UUID | None = None) -> None:
        """Try again what failed, also what only an administrator could mend; of all tables or of one."""
        with self._changed:
            for (one, _), job in self._backlog.jobs.items():
                if table_id in (None, one) and job.problem is not None:
                    job.problem, job.tries = None, 0
                    self._backlog.want(job)
            self._backlog.hurry()

    def wait(self, table_id: UUID, version: int, timeout_s: float | None = None) -> bool:
        """Until a version is published, for at most so long (else ``wait_s``); whether it is.

        Does not wait for what an administrator must mend.
        """
        deadline_s = elapsed_s() + (self._wait_s if timeout_s is None else timeout_s)
        if not self._background:
            self._backlog.do_here((table_id, b""))
        with self._changed:
            job = self._backlog.job((table_id, b""))
            while job.published < version:
                left_s = deadline_s - elapsed_s()
                if job.is_stuck or self._backlog.is_closed or left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def look(self, content: DeltaTable) -> int:
        """How far a table's log is published: what is known, or else what is there now.

        Raises as ``publish``.
        """
        known = self.published(_id(content))
        if known == UNKNOWN:
            with self._backlog.turn((_id(content), b"")) as job:
                known = self._start(job, content)
        return max(known, line_of(content).published)

    def publish(self, content: DeltaTable, version: int | None = None) -> int:
        """Publish a line now, in this thread, or only up to a version; say how far its log is published.

        Raises ``ForeignCommit``, ``InvalidLog``, ``Denied`` or ``Unavailable`` if it cannot be.
        """
        with self._backlog.turn((_id(content), b"")) as job:
            before = job.published
            try:
                done = self._publish(job, content, version)
            except PenstockError as problem:
                self._note_problem(job, line_of(content), problem)
                raise
            with self._changed:
                self._backlog.succeeded(job, done)
                told = job.told
        if told is not None:
            self._done(job, Told(told.key, content, line_of(content)), before)
        return done

    def materialise(self, content: DeltaTable, after: int = -1) -> dict[int, str]:
        """Have a file for every version of a line after one, and give their names below the table's root.

        Published ones that the line has forgotten are left out. Raises as ``publish``.
        """
        line = line_of(content)
        entries = list(line.since(after, self._read))
        published = self.look(content) if any(not entry.line for _, entry in entries) else line.published
        names: dict[int, str] = {}
        missing: list[tuple[int, Entry]] = []
        for version, entry in entries:
            names[version] = entry.name(version)
            if entry.line:
                if (_id(content), names[version]) not in self._files:
                    missing.append((version, entry))
            elif version <= published:
                names[version] = str(CommitName(version))
            else:
                missing.append((version, entry))
        for some in batches(missing):
            names |= self._have_files(content, some)
        return names

    def backlog(self) -> tuple[Behind, ...]:
        """The tables that are not published to their latest version, by key."""
        with self._changed:
            jobs = [
                (job.told, job.published, job.problem)
                for (_, own), job in self._backlog.jobs.items()
                if not own and job.told is not None and job.is_behind
            ]
        return tuple(sorted((self._behind(*one) for one in jobs), key=lambda one: one.key))

    def measure(self) -> None:
        """Set the gauges to what they are now. The age of what waits grows by itself: to be called often."""
        behind, now_us = self.backlog(), self._clock()
        oldest_us = min((one.since_us for one in behind), default=now_us)
        self._meter.gauge(metrics.DELTA_UNPUBLISHED, sum(one.latest - one.published for one in behind))
        self._meter.gauge(metrics.DELTA_UNPUBLISHED_SECONDS, max(0, now_us - oldest_us) / 1e6)

    def close(self, timeout_s: float) -> None:
        """Finish what can be finished in that time, then stop. Whoever comes next publishes the rest."""
        self._backlog.close(timeout_s)

    def _work(self, job: Job, told: Told) -> None:
        """What a thread of the background does: the newest line of a table, or of a branch's own files."""
        _, own = job.id
        try:
            if own:
                self.materialise(told.content, max(job.published, told.line.fork))
                done = told.line.latest
            else:
                done = self._publish(job, told.content)
        except PenstockError as problem:
            self._report(job, problem)
            raise
        finally:
            self.measure()
        with self._changed:
            self._backlog.succeeded(job, done)

    def _publish(self, job: Job, content: DeltaTable, version: int | None = None) -> int:
        """In the table's turn."""
        place, fork = self._places.at(content.location), line_of(content).fork
        goal = fork if version is None else min(version, fork)
        done = self._start(job, content)
        if done < goal:
            with self._guard(place, content) as guard:
                done = backfill(
                    place,
                    content,
                    self._read,
                    done,
                    goal,
                    lambda at, written: self._note_progress(job, at, written),
                    guard,
                )
        return done

    def _start(self, job: Job, content: DeltaTable) -> int:
        if job.published == UNKNOWN:
            self._note_progress(job, look(self._places.at(content.location), content, self._read), 0)
        return max(job.published, line_of(content).published)

    def _done(self, job: Job, told: Told, before: int) -> None:
        """Tell what is published by now, if it is more than before."""
        _, own = job.id
        if self.after_publish is None or own or job.published <= before:
            return
        try:
            self.after_publish(told.key, told.content, job.published)
        except Exception:
            logger.exception("what follows version %d of '%s' is not done yet", job.published, told.key)

    def _note_progress(self, job: Job, published: int, written: int) -> None:
        with self._changed:
            job.published = max(job.published, published)
            self._changed.notify_all()
        if written:
            self._meter.count(metrics.DELTA_PUBLISHED, written)

    def _note_problem(self, job: Job, line: Line, problem: PenstockError) -> None:
        if line.phase is Phase.ADOPTING:
            return  # the table is not the lake's yet: its adopter deals with it
        self._report(job, problem)
        with self._changed:
            self._backlog.failed(job, problem)

    def _report(self, job: Job, problem: PenstockError) -> None:
        """Say what went wrong, but not again and again."""
        self._meter.count(metrics.DELTA_PUBLISH_ERRORS, error=problem.code)
        with self._changed:
            if self._backlog.is_closed or (job.problem and job.problem.message == problem.message):
                return
        is_alarm = isinstance(problem, AdministratorError)
        logger.log(logging.ERROR if is_alarm else logging.WARNING, "not published: %s", problem)
        if isinstance(problem, ForeignCommit):
            self._meter.count(metrics.DELTA_FOREIGN)

    def _behind(self, told: Told, published: int, problem: PenstockError | None) -> Behind:
        published = max(published, told.line.published)
        try:
            oldest = told.line.at(published + 1, self._read)
        except PenstockError:  # the store is away, and the newest is all that is known
            oldest = None
        timestamp_ms = told.line.timestamp_ms if oldest is None else oldest.timestamp_ms
        return Behind(
            key=told.key,
            id=_id(told.content),
            location=told.content.location,
            published=published,
            latest=told.line.fork,
            since_us=timestamp_ms * 1000,
            problem=problem,
        )

    @contextmanager
    def _guard(self, place: Place, content: DeltaTable) -> Iterator[Guard | None]:
        """What keeps other processes away while files are written; nothing where storage itself does."""
        if place.keeps_conditions:
            yield None
            return
        if self._leases is None:
            yield lambda: None
            return
        lease = self._leases.take(f"delta/{content.id}")
        busy = Unavailable(f"another process is publishing the table at {content.location}; try again")
        if lease is None:
            raise busy

        def guard() -> None:
            if not lease.keep():
                raise busy

        try:
            yield guard
        finally:
            lease.release()

    def _have_files(self, content: DeltaTable, entries: Sequence[tuple[int, Entry]]) -> dict[int, str]:
        """Write the files that can be made of held bytes, and see that the others are there."""
        place = self._places.at(content.location)
        held = [one for one in entries if held_of(one[1], self._read).head is not None]
        staged = [one for one in entries if one not in held]
        names = {version: entry.name(version) for version, entry in entries}
        items = [(names[one.version], one.data) for one in bytes_of(place, content, held, self._read)]
        try:
            created = place.create_each(items)
        except OutcomeUnknown:  # doing it twice does no harm
            created = place.create_each(items)
        there = [one for one, is_new in zip(held, created, strict=True) if not is_new] + staged
        sizes = place.sizes([names[version] for version, _ in there])
        for (version, entry), size in zip(there, sizes, strict=True):
            if size == entry.size:
                continue
            if size is not None or entry.line or place.size(str(CommitName(version))) != entry.size:
                raise InvalidLog(
                    f"{content.location}/{names[version]} is "
                    + ("gone" if size is None else f"{size} bytes long instead of {entry.size}"),
                    location=content.location,
                    version=version,
                    name=names[version],
                )
            names[version] = str(CommitName(version))
        self._files.add((_id(content), name) for name in names.values())
        return names


class _Names:
    """Some names of files that are there for good, the newest of those that were seen."""

    def __init__(self, names_max: int) -> None:
        self._max = names_max
        self._names: OrderedDict[tuple[UUID, str], None] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, one: object) -> bool:
        return one in self._names

    def add(self, some: Iterable[tuple[UUID, str]]) -> None:
        with self._lock:
            for one in some:
                self._names[one] = None
                self._names.move_to_end(one)
            while len(self._names) > self._max:
                self._names.popitem(last=False)


def _id(content: DeltaTable) -> UUID:
    assert content.id is not None, "a managed table has an id"
    return content.id


def _own_line(line: Line) -> bytes | None:
    """Whose files a branch's newest versions are; ``None`` if all of them are the default branch's."""
    return line.entries[-1].line or None if line.entries else None
