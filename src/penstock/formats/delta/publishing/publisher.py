"""Publishing: what follows after a version of a Delta table was ratified, in the background.

On the default branch the version is written into the table's log, after all those before it. On other
branches its file is written where the branch keeps its own. Neither changes anything in the lake: it may be
done late, by another process, or twice. Only tables that name the lake as their owner are published: a copy
of a lake has the same tables, and they are not its own.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import AdministratorError, PenstockError, Unavailable
from penstock.formats.delta.errors import ForeignCommit, ManagedElsewhere
from penstock.formats.delta.lines.line import Line, Phase, Read, line_of
from penstock.formats.delta.owner.ownership import RESYNC, OwnerIdentity, owner_of_line
from penstock.formats.delta.protocol.actions import CommitInfo, parse_action
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.backfill import Guard, Looked, backfill, bytes_of, look
from penstock.formats.delta.publishing.backlog import UNKNOWN, Backlog, Job, Told
from penstock.formats.delta.publishing.line_files import LineFiles
from penstock.formats.delta.publishing.naming import check_named, named_owner
from penstock.formats.delta.publishing.reading import Fetch, Reading
from penstock.kernel.leases import Leases
from penstock.metrics import table as metrics
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.content import DeltaTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.storage.announcements import elapsed_s
from penstock.storage.places import Place, Places

SEEN_MAX_S: Final = 60.0
"""What was seen of a log longer ago is looked up again before anything is written: it may be cleaned up."""
IN_SYNC_MAX: Final = 10_000
"""Of how many tables is remembered that their logs are what the lake knows."""
OWNED_MAX: Final = 256
"""Of how many tables is remembered that what they declare names the lake."""
MEASURE_S: Final = 1.0
MEASURED_MAX: Final = 16
"""With more tables that wait, the figures are worked out no more often than that."""

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

    ``read`` reads kernel objects, ``fetch`` brings several of them into memory at once. ``leases`` keep
    processes apart on storage that does not do it itself; without, such storage is for one process only.
    Without ``background``, tables are only published by ``publish`` and ``wait``, in the caller's thread.
    """

    def __init__(
        self,
        places: Places,
        read: Read,
        *,
        meter: Meter = SILENT,
        clock: Clock = now_us,
        background: bool = True,
        leases: Leases | None = None,
        after_publish: AfterPublish | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        self.after_publish = after_publish
        self.after_look: Callable[[Key, DeltaTable], None] | None = None
        """Told of a table of the default branch whose log was looked at and goes beyond what was told."""
        self._places, self._read = places, Reading(read, fetch)
        self._meter, self._clock, self._leases = meter, clock, leases
        self._background = background
        self._identity: OwnerIdentity | None = None
        self._owned: set[ObjectId] = set()
        self._in_sync: OrderedDict[UUID, None] = OrderedDict()
        self._measured_s = 0.0
        self._backlog = Backlog(self._work, self._done, background=background)
        self._changed = self._backlog.changed
        self._files = LineFiles(places, self._read)

    def publish_for(self, identity: OwnerIdentity) -> None:
        """From now on publish only what belongs to this lake. Before that, whatever is told is published."""
        self._identity, self._owned = identity, set()

    def check_owned(self, content: DeltaTable) -> None:
        """``ManagedElsewhere`` unless a table belongs to the lake that is published for."""
        line = line_of(content)
        if self._identity is None or line.phase is Phase.RELEASED:
            return
        if line.declared in self._owned:
            return
        owner = owner_of_line(line, self._read, content.location)
        if self._identity.owns(owner):
            self._owned = {line.declared, *(self._owned if len(self._owned) < OWNED_MAX else ())}
        else:
            raise ManagedElsewhere(
                f"{content.location} belongs to {owner or 'the file system'}, and can only be read here\n"
                "  Whatever changes its log has to be asked for there.",
                table=content.location,
                owner=owner.name if owner else "",
                lake=owner.lake if owner else "",
            )

    def published(self, table_id: UUID) -> int:
        """Up to which version a table's log is surely published; -1 if this process does not know."""
        with self._changed:
            return self._backlog.published((table_id, b""))

    def told(self, key: Key, content: DeltaTable, *, is_default: bool) -> None:
        """A newer line of a table landed: it is published soon. Quick, and never raises."""
        try:
            line = line_of(content)
        except PenstockError as problem:
            logger.error("'%s' is not published: %s", key, problem)
            return
        try:
            self.check_owned(content)
        except ManagedElsewhere:
            return
        except PenstockError:
            pass  # it cannot be said now: whoever works on it asks again
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
            if is_default and not job.is_behind:
                job.done = job.told
                self._backlog.forget_idle(job)
            elif not job.is_stuck:
                self._backlog.want(job)

    def forget(self, table_id: UUID) -> None:
        """Nothing is to be published of a table any more: it has become another one."""
        with self._changed:
            for job in [one for id_, one in self._backlog.jobs.items() if id_[0] == table_id]:
                job.told = job.problem = None
                self._backlog.forget_idle(job)

    def forget_replaced(self, table_id: UUID, location: str) -> None:
        """The same, for tables that could not go on because of others' commits, and whose log is this one's
        by now: a resync, maybe of another process, has put it in their place."""
        with self._changed:
            replaced = {
                job.id[0]
                for job in self._backlog.jobs.values()
                if isinstance(job.problem, ForeignCommit)
                and job.told is not None
                and job.id[0] != table_id
                and job.told.content.location == location
            }
        for one in replaced:
            self.forget(one)

    def wait(self, table_id: UUID, version: int, timeout_s: float) -> bool:
        """Until a version is published, for at most so long; whether it is.

        Does not wait for what an administrator must mend.
        """
        deadline_s = elapsed_s() + timeout_s
        if not self._background:
            self._backlog.do_here((table_id, b""))
        with self._changed:
            while self._backlog.published((table_id, b"")) < version:
                job = self._backlog.jobs.get((table_id, b""))
                left_s = deadline_s - elapsed_s()
                if self._backlog.is_closed or left_s <= 0 or (job is not None and job.is_stuck):
                    return False
                self._changed.wait(left_s)
            return True

    def finish(self, timeout_s: float) -> dict[Key, PenstockError | None]:
        """Until all that was told is published. See ``Backlog.finish``."""
        return self._backlog.finish(timeout_s)

    def look(self, content: DeltaTable) -> int:
        """How far the log of a table of the lake is published, by what is there now; nothing is written.

        ``ForeignCommit`` if a file is not what was ratified: ``published`` tells how far it is right before
        that. ``ManagedElsewhere`` for a table of another lake. Raises else as ``publish``.
        """
        self.check_owned(content)
        return self._look(content, line_of(content).fork)

    def publish(self, content: DeltaTable, version: int | None = None) -> int:
        """Publish a line now, in this thread, or only up to a version; say how far its log is published.

        Raises ``ForeignCommit``, ``InvalidLog``, ``Denied`` or ``Unavailable`` if it cannot be, and
        ``ManagedElsewhere`` for a table of another lake.
        """
        self.check_owned(content)
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

    def materialise(self, content: DeltaTable, after: int = -1, last: int | None = None) -> dict[int, str]:
        """Have a file for every version of a line after one, up to another, and give their names below the
        table's root.

        Published ones that the line has forgotten are left out. Raises as ``publish``.
        """
        line = line_of(content)
        end = line.latest if last is None else last
        entries = list(takewhile(lambda one: one[0] <= end, line.since(after, self._read)))
        published = line.published
        if any(not entry.line for _, entry in entries):
            with suppress(ForeignCommit):  # of a log that is another's no file is named
                published = self._look(content, published)
        in_log = [version for version, entry in entries if not entry.line and version <= published]
        names = {version: str(CommitName(version)) for version in in_log}
        return names | self._files.have(content, [one for one in entries if one[0] not in names])

    def read_held(
        self, content: DeltaTable, after: int, last: int
    ) -> tuple[dict[int, str], dict[int, bytes]]:
        """The names of the files of versions after one, up to another, and the bytes that they hold or would
        hold: for readers where no file can be written. Raises ``InvalidLog`` if bytes are gone."""
        entries = list(takewhile(lambda one: one[0] <= last, line_of(content).since(after, self._read)))
        names = {version: entry.name(version) for version, entry in entries}
        found = bytes_of(self._places.at(content.location), content, entries, self._read)
        return names, {one.version: one.data for one in found}

    def problem(self, table_id: UUID) -> PenstockError | None:
        """Why a table is not published, as far as is known here."""
        with self._changed:
            job = self._backlog.jobs.get((table_id, b""))
            return None if job is None or job.told is None else job.problem

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
            self.check_owned(told.content)
            if own:
                self.materialise(told.content, max(job.published, told.line.fork))
                done = told.line.latest
            else:
                done = self._publish(job, told.content)
                if self.after_look is not None and not self.is_in_sync(job.id[0]):
                    self.after_look(told.key, told.content)
        except ManagedElsewhere:
            with self._changed:
                if job.told is told:  # what came meanwhile may be the lake's again
                    job.told = job.problem = None
            return
        except PenstockError as problem:
            self._report(job, problem)
            raise
        finally:
            self._measure_at_times()
        with self._changed:
            self._backlog.succeeded(job, done)

    def _measure_at_times(self) -> None:
        with self._changed:
            is_small = len(self._backlog.jobs) <= MEASURED_MAX
            if not is_small and elapsed_s() < self._measured_s + MEASURE_S:
                return
            self._measured_s = elapsed_s()
        self.measure()

    def _publish(self, job: Job, content: DeltaTable, version: int | None = None) -> int:
        """In the table's turn."""
        place, fork = self._places.at(content.location), line_of(content).fork
        goal = fork if version is None else min(version, fork)
        done = max(job.published, line_of(content).published)
        try:
            if done < goal and (job.published == UNKNOWN or elapsed_s() > job.seen_s + SEEN_MAX_S):
                done = self._look(content, goal)
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
        except ForeignCommit:
            self._note_foreign(_id(content))
            raise
        return done

    def _look(self, content: DeltaTable, goal: int) -> int:
        """How far a log is published now. A file that is not what was ratified is raised before the goal."""
        line = line_of(content)
        known = max(self.published(_id(content)), line.published)
        if known >= line.fork:
            return known
        found = self.compare(content)
        known = max(self.published(_id(content)), line.published)
        if found.problem is not None and known < goal:
            raise found.problem
        return known

    def compare(self, content: DeltaTable) -> Looked:
        """What a log has of a line, and beyond it, by what is there now. Raises as storage does."""
        found = look(self._places.at(content.location), content, self._read, self._check_named)
        with self._changed:
            job = self._backlog.job((_id(content), b""))
            self._backlog.reached(job, found.published)
            self._backlog.forget_idle(job)
            if found.problem is not None:
                self._note_foreign(_id(content))
            elif found.beyond < 0:
                self.note_in_sync(_id(content))
        return found

    def is_in_sync(self, table_id: UUID) -> bool:
        """Whether a log was seen to have what the lake ratified and no more; nothing has told otherwise."""
        with self._changed:
            return table_id in self._in_sync

    def note_in_sync(self, table_id: UUID) -> None:
        """Remember that it was seen."""
        with self._changed:
            self._in_sync[table_id] = None
            self._in_sync.move_to_end(table_id)
            if len(self._in_sync) > IN_SYNC_MAX:
                self._in_sync.popitem(last=False)

    def _note_foreign(self, table_id: UUID) -> None:
        """Forget it: who commits next looks again, until the file is gone or its versions are taken over."""
        with self._changed:
            self._in_sync.pop(table_id, None)

    def _check_named(self, place: Place, content: DeltaTable) -> None:
        """What a log names, matters once it is known for whom it is published. A promise is not named yet."""
        if self._identity is None or line_of(content).phase is Phase.ADOPTING:
            return
        try:
            check_named(place, content)
        except ForeignCommit:
            if not self._is_resynced(place, content):
                raise

    def _is_resynced(self, place: Place, content: DeltaTable) -> bool:
        """Whether the very version that comes next names a log anew: a resync made another table of it."""
        line = line_of(content)
        entry = line.at(line.published + 1, self._read)
        owner = named_owner(place, line.published)
        if entry is None or self._identity is None or not self._identity.owns(owner):
            return False
        (found,) = bytes_of(place, content, [(line.published + 1, entry)], self._read)
        first = parse_action(found.data.partition(b"\n")[0])
        return isinstance(first, CommitInfo) and first.operation == RESYNC

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
            self._backlog.reached(job, published)
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


def _id(content: DeltaTable) -> UUID:
    assert content.id is not None, "a managed table has an id"
    return content.id


def _own_line(line: Line) -> bytes | None:
    """Whose files a branch's newest versions are; ``None`` if all of them are the default branch's."""
    return line.entries[-1].line or None if line.entries else None
