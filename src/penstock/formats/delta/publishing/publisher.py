"""Publishing: what follows after a version of a Delta table was ratified, in the background.

On the default branch the version is written into the table's log, after all those before it. On other
branches its file is written where the branch keeps its own. Neither changes anything in the lake: it may be
done late, by another process, or twice. Only tables that name the lake as their owner are published: a copy
of a lake has the same tables, and they are not its own.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from penstock.errors import AdministratorError, PenstockError
from penstock.formats.delta import metrics
from penstock.formats.delta.branch_log.branch_log import BranchLog, OwnershipPhase, Read, decode_branch_log
from penstock.formats.delta.branch_log.ownership import RESYNC, OwnerIdentity, read_line_owner
from penstock.formats.delta.errors import ForeignCommit, ManagedElsewhere
from penstock.formats.delta.protocol.actions import CommitInfo, parse_action
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.line_files import LineFiles
from penstock.formats.delta.publishing.log_ownership import check_named, named_owner
from penstock.formats.delta.publishing.log_writer import (
    LogListing,
    inspect_log,
    publish_versions,
    read_ratified_commits,
)
from penstock.formats.delta.publishing.prefetch_reader import Fetch, PrefetchReader
from penstock.formats.publisher import BackgroundPublisher, JobId, PublisherProfile, TableBacklog
from penstock.kernel.leases import Leases
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, elapsed_s, now_us
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place, Places

SEEN_MAX_S: Final = 60.0
"""What was seen of a log longer ago is looked up again before anything is written: it may be cleaned up."""
IN_SYNC_MAX: Final = 10_000
"""Of how many tables is remembered that their logs are what the lake knows."""
OWNED_MAX: Final = 256
"""Of how many tables is remembered that what they declare names the lake."""
KNOWN_MAX: Final = 10_000
"""Of how many tables and branches is remembered how far they are published."""
UNKNOWN: Final = -1
PROFILE: Final = PublisherProfile(
    name="penstock-publisher",
    published="published",
    publishing="publishing",
    versions=metrics.UNPUBLISHED,
    seconds=metrics.UNPUBLISHED_SECONDS,
    errors=metrics.PUBLISH_ERRORS,
    foreign=metrics.FOREIGN,
)

logger = logging.getLogger("penstock")

AfterPublish: TypeAlias = Callable[[Key, DeltaTable, int], None]
"""Told the table, its line and how far that is published by now. Whatever it raises is logged."""


class UnpublishedVersions(TableBacklog, frozen=True, kw_only=True):
    """A table of the default branch that is not published to its latest version, as far as is known here."""

    published: int
    """Up to where it is; -1 if nothing is."""
    latest: int


class PublishTask(NamedTuple):
    """A line to be published, and under which key it landed."""

    key: Key
    content: DeltaTable
    line: BranchLog
    own: bytes = b""
    """The branch whose own files are written; none for the default branch, and the log."""
    is_follow_up: bool = False
    """Whether it is published, and others are to be told so."""

    @property
    def id(self) -> JobId:
        return JobId(_get_table_id(self.content), self.own, self.is_follow_up)

    @property
    def location(self) -> str:
        return self.content.location


class LogProgress(NamedTuple):
    """How far a log, or a branch's own files, are written."""

    published: int = UNKNOWN
    """Versions up to this one surely are."""
    seen_s: float = 0.0
    """When that was last seen, by ``elapsed_s``."""


class Publisher(BackgroundPublisher[PublishTask, UnpublishedVersions]):
    """Publishes lines that it is told. May be used by many threads.

    ``read`` reads kernel objects, ``fetch`` brings several of them into memory at once. ``leases`` keep
    processes apart on storage that does not do it itself; without, such storage is for one process only.
    Without ``background``, tables are only published by ``publish_line`` and ``wait_for_version``, in the
    caller's thread. ``has_table`` says whether the default branch has a table now.
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
        has_table: Callable[[UUID], bool] | None = None,
    ) -> None:
        super().__init__(PROFILE, meter=meter, clock=clock, leases=leases, background=background)
        self.after_publish = after_publish
        self.after_look: Callable[[Key, DeltaTable], None] | None = None
        """Told of a table of the default branch whose log was looked at and goes beyond what was told."""
        self._places, self._read = places, PrefetchReader(read, fetch)
        self._has_table = has_table
        self.is_erased: Callable[[DeltaTable], bool] = lambda _: False
        """Whether nothing is kept of a state of a table any more."""
        self._identity: OwnerIdentity | None = None
        self._owned: set[ObjectId] = set()
        self._in_sync: OrderedDict[UUID, None] = OrderedDict()
        self._known: OrderedDict[JobId, LogProgress] = OrderedDict()
        self._files = LineFiles(places, self._read)

    def publish_for(self, identity: OwnerIdentity) -> None:
        """From now on publish only what belongs to this lake. Before that, whatever is told is published."""
        self._identity, self._owned = identity, set()

    def check_owned(self, content: DeltaTable) -> None:
        """``ManagedElsewhere`` unless a table belongs to the lake that is published for."""
        line = decode_branch_log(content)
        if self._identity is None or line.phase is OwnershipPhase.RELEASED:
            return
        if line.declared in self._owned:
            return
        owner = read_line_owner(line, self._read, content.location)
        if self._identity.is_owner(owner):
            self._owned = {line.declared, *(self._owned if len(self._owned) < OWNED_MAX else ())}
        else:
            raise ManagedElsewhere(
                f"{content.location} belongs to {owner or 'the file system'}, and is read-only here\n  "
                "Change it through its owner.",
                table=content.location,
                owner=owner.name if owner else "",
                lake=owner.lake if owner else "",
            )

    def published_version(self, table_id: UUID) -> int:
        """The last version that is known to be in a table's log; -1 if this process does not know."""
        return self._log_progress(JobId(table_id, b"")).published

    def table_committed(self, key: Key, content: DeltaTable, *, is_default: bool) -> None:
        """Schedule the publication of a newer line of a table. Quick, and never raises."""
        try:
            line = decode_branch_log(content)
        except PenstockError as problem:
            logger.error("'%s' is not published: %s", key, problem)
            return
        try:
            self.check_owned(content)
        except ManagedElsewhere:
            return
        except PenstockError:
            pass  # it cannot be said now: whoever works on it asks again
        own = b"" if is_default else _find_branch_line(line)
        if line.phase is OwnershipPhase.ADOPTING or own is None:
            return  # whether it is the lake's, its log tells; or the branch has no files of its own
        task = PublishTask(key, content, line, own)
        with self.changed:
            job, progress = self.jobs.get(task.id), self._log_progress(task.id)
            newest = job.pending[-1].line.latest if job is not None and job.pending else UNKNOWN
            if is_default and newest > line.latest:
                return  # those who land one after the other may come here in any order
            if own and line.latest <= progress.published:
                self._remember_published(
                    task.id, line.fork_version
                )  # the branch was set back, and has other versions now
            if is_default and line.fork_version <= progress.published:
                self.discard_finished_tasks(task.id, self._is_published)
            else:
                self.add_task(task, retry_alarm=False)

    def wait_for_version(self, table_id: UUID, version: int, timeout_s: float) -> bool:
        """Until a version is published, for at most so long; whether it is.

        Does not wait for what an administrator must mend.
        """
        id = JobId(table_id, b"")  # noqa: A001
        if not self.background and id in self.jobs:
            for task in self.jobs[id].pending:
                self.publish_here(task, timeout_s)
        return self.wait_for(id, lambda _: self._log_progress(id).published >= version, timeout_s)

    def inspect_log(self, content: DeltaTable) -> int:
        """How far the log of a table of the lake is published, by what is there now; nothing is written.

        ``ForeignCommit`` if a file is not what was ratified: ``published`` tells how far it is right before
        that. ``ManagedElsewhere`` for a table of another lake. Raises else as ``publish_line``.
        """
        self.check_owned(content)
        return self._find_published_version(content, decode_branch_log(content).fork_version)

    def publish_line(self, content: DeltaTable, version: int | None = None) -> int:
        """Publish a line now, in this thread, or only up to a version; say how far its log is published.

        Raises ``ForeignCommit``, ``InvalidLog``, ``Denied`` or ``Unavailable`` if it cannot be, and
        ``ManagedElsewhere`` for a table of another lake.
        """
        self.check_owned(content)
        line, id = decode_branch_log(content), JobId(_get_table_id(content), b"")  # noqa: A001
        with self.wait_for_job(id) as job:
            before = self._log_progress(id).published
            try:
                published = self._publish_in_turn(id, content, version)
            except PenstockError as problem:
                if (
                    line.phase is not OwnershipPhase.ADOPTING
                ):  # else it is not the lake's yet: its adopter deals with it
                    self.note_failed_try(job, problem)
                raise
            with self.changed:
                if job.problem is not None and job.problem.details.get("version", UNKNOWN) <= published:
                    job.problem = None
                job.tries = 0
                key = job.pending[-1].key if job.pending else None
                job.pending = [task for task in job.pending if not self._is_published(task)]
        if key is not None:
            self._add_follow_up(PublishTask(key, content, line), before)
        return published

    def provide_files(self, content: DeltaTable, after: int = -1, last: int | None = None) -> dict[int, str]:
        """Have a file for every version of a line after one, up to another, and give their names below the
        table's root.

        Published ones that the line has forgotten are left out. Raises as ``publish_line``.
        """
        line = decode_branch_log(content)
        end = line.latest if last is None else last
        entries = list(takewhile(lambda one: one[0] <= end, line.read_entries_after(after, self._read)))
        published = line.published
        if any(not entry.line for _, entry in entries):
            with suppress(ForeignCommit):  # of a log that is another's no file is named
                published = self._find_published_version(content, published)
        in_log = [version for version, entry in entries if not entry.line and version <= published]
        names = {version: str(CommitName(version)) for version in in_log}
        return names | self._files.provide_files(
            content, [entry for entry in entries if entry[0] not in names]
        )

    def read_held(
        self, content: DeltaTable, after: int, last: int
    ) -> tuple[dict[int, str], dict[int, bytes]]:
        """The names of the files of versions after one, up to another, and the bytes that they hold or would
        hold: for readers where no file can be written. Raises ``InvalidLog`` if bytes are gone."""
        entries = list(
            takewhile(
                lambda one: one[0] <= last, decode_branch_log(content).read_entries_after(after, self._read)
            )
        )
        names = {version: entry.get_staged_path(version) for version, entry in entries}
        ratified_commits = read_ratified_commits(
            self._places.open_place(content.location), content, entries, self._read
        )
        return names, {ratified_commit.version: ratified_commit.data for ratified_commit in ratified_commits}

    def get_problem(self, table_id: UUID) -> PenstockError | None:
        """Why a table is not published, as far as is known here."""
        return self.find_problem(JobId(table_id, b""))

    # -- what the engine asks ------------------------------------------------------------------------------

    def merge_tasks(
        self, pending: Sequence[PublishTask], task: PublishTask, *, is_taken: bool
    ) -> list[PublishTask]:
        """Only the newest: its line has all that those before it have."""
        del pending, is_taken
        return [task]

    def publish_task(self, task: PublishTask) -> None:
        """The newest line of a table, or of a branch's own files; or what follows from that."""
        if task.is_follow_up:
            self._run_after_publish(task)
            return
        try:
            self.check_owned(task.content)
            if not self._is_erased_meanwhile(task):
                self._write_own(task) if task.own else self._write_log(task)
        except ManagedElsewhere:
            pass  # there is nothing to publish here
        except AdministratorError:
            if not self.is_erased(task.content):
                raise

    def _is_erased_meanwhile(self, task: PublishTask) -> bool:
        """Whether another process has erased what could not be published at first: its bytes may still be in
        the memory of this one, and are not to come back."""
        with self.changed:
            job = self.jobs.get(task.id)
            is_first_try = job is None or job.problem is None
        return not is_first_try and self.is_erased(task.content)

    def _write_own(self, task: PublishTask) -> None:
        before = self._log_progress(task.id).published
        self.provide_files(task.content, max(before, task.line.fork_version))
        with self.changed:
            if self._log_progress(task.id).published == before:  # else the branch was set back meanwhile
                self._remember_published(task.id, task.line.latest)

    def _write_log(self, task: PublishTask) -> None:
        before = self._log_progress(task.id).published
        self._publish_in_turn(task.id, task.content)
        if self.after_look is not None and not self.is_in_sync(task.id.table):
            self.after_look(task.key, task.content)
        self._add_follow_up(task, before)

    def _add_follow_up(self, task: PublishTask, before: int) -> None:
        """Have ``after_publish`` called, out of the table's turn, if more is published than before."""
        if self.after_publish is not None and self._log_progress(task.id).published > before:
            self.add_task(task._replace(is_follow_up=True))

    def _run_after_publish(self, task: PublishTask) -> None:
        published = self.published_version(task.id.table)
        try:
            if self.after_publish is not None:
                self.after_publish(task.key, task.content, published)
        except Exception:
            logger.exception(
                "the follow-up work (checkpoint, log compaction) after version %d of '%s' "
                "failed; it is done later",
                published,
                task.key,
            )

    def describe_task(self, task: PublishTask, problem: PenstockError | None) -> UnpublishedVersions | None:
        if task.own or task.is_follow_up or self._is_published(task):
            return None
        published = max(self._log_progress(task.id).published, task.line.published)
        try:
            oldest = task.line.find_entry(published + 1, self._read)
        except PenstockError:  # the store is away, and the newest is all that is known
            oldest = None
        timestamp_ms = task.line.timestamp_ms if oldest is None else oldest.timestamp_ms
        return UnpublishedVersions(
            key=task.key,
            id=task.id.table,
            location=task.location,
            versions=task.line.fork_version - published,
            published=published,
            latest=task.line.fork_version,
            since_us=timestamp_ms * 1000,
            problem=problem,
        )

    def is_dropped(self, pending: Sequence[PublishTask]) -> bool:
        *_, task = pending
        return self._has_table is not None and not task.own and not self._has_table(task.id.table)

    # -- one table -----------------------------------------------------------------------------------------

    def _publish_in_turn(self, id: JobId, content: DeltaTable, version: int | None = None) -> int:  # noqa: A002
        """In the table's turn."""
        place, line = self._places.open_place(content.location), decode_branch_log(content)
        goal = line.fork_version if version is None else min(version, line.fork_version)
        progress = self._log_progress(id)
        published = max(progress.published, line.published)
        try:
            if published < goal and (
                progress.published == UNKNOWN or elapsed_s() > progress.seen_s + SEEN_MAX_S
            ):
                published = self._find_published_version(content, goal)
            if published < goal:
                busy = f"another process is publishing the table at {content.location}; try again"
                with self.guard_place(place, f"delta/{content.id}", busy) as guard:
                    published = publish_versions(
                        place,
                        content,
                        self._read,
                        published,
                        goal,
                        lambda at, written: self._note_progress(id, at, written),
                        guard,
                    )
        except ForeignCommit:
            self._note_foreign(_get_table_id(content))
            raise
        with self.changed:
            self._remember_published(id, max(published, self._log_progress(id).published))
        return published

    def _find_published_version(self, content: DeltaTable, goal: int) -> int:
        """How far a log is published now. A file that is not what was ratified is raised before the goal."""
        line = decode_branch_log(content)
        published = max(self.published_version(_get_table_id(content)), line.published)
        if published >= line.fork_version:
            return published
        comparison = self.compare_log(content)
        published = max(self.published_version(_get_table_id(content)), line.published)
        if comparison.problem is not None and published < goal:
            raise comparison.problem
        return published

    def compare_log(self, content: DeltaTable) -> LogListing:
        """What a log has of a line, and beyond it, by what is there now. Raises as storage does."""
        log_state = inspect_log(
            self._places.open_place(content.location), content, self._read, self._check_named
        )
        with self.changed:
            self._record_published(JobId(_get_table_id(content), b""), log_state.published)
            if log_state.problem is not None:
                self._note_foreign(_get_table_id(content))
            elif log_state.beyond < 0:
                self.remember_in_sync(_get_table_id(content))
        return log_state

    def is_in_sync(self, table_id: UUID) -> bool:
        """Whether a log was seen to have what the lake ratified and no more; nothing has told otherwise."""
        with self.changed:
            return table_id in self._in_sync

    def remember_in_sync(self, table_id: UUID) -> None:
        """Remember that it was seen."""
        with self.changed:
            self._in_sync[table_id] = None
            self._in_sync.move_to_end(table_id)
            if len(self._in_sync) > IN_SYNC_MAX:
                self._in_sync.popitem(last=False)

    def _note_foreign(self, table_id: UUID) -> None:
        """Forget it: who commits next looks again, until the file is gone or its versions are taken over."""
        with self.changed:
            self._in_sync.pop(table_id, None)

    def _check_named(self, place: Place, content: DeltaTable) -> None:
        """What a log names, matters once it is known for whom it is published. A promise is not named yet."""
        if self._identity is None or decode_branch_log(content).phase is OwnershipPhase.ADOPTING:
            return
        try:
            check_named(place, content)
        except ForeignCommit:
            if not self._is_resynced(place, content):
                raise

    def _is_resynced(self, place: Place, content: DeltaTable) -> bool:
        """Whether the very version that comes next names a log anew: a resync made another table of it."""
        line = decode_branch_log(content)
        entry = line.find_entry(line.published + 1, self._read)
        owner = named_owner(place, line.published)
        if entry is None or self._identity is None or not self._identity.is_owner(owner):
            return False
        (ratified_commit,) = read_ratified_commits(place, content, [(line.published + 1, entry)], self._read)
        first = parse_action(ratified_commit.data.partition(b"\n")[0])
        return isinstance(first, CommitInfo) and first.operation == RESYNC

    # -- how far tables are published ----------------------------------------------------------------------

    def _log_progress(self, id: JobId) -> LogProgress:  # noqa: A002
        with self.changed:
            return self._known.get(id, LogProgress())

    def _is_published(self, task: PublishTask) -> bool:
        return self._log_progress(task.id).published >= task.line.fork_version

    def _remember_published(self, id: JobId, published: int, seen_s: float | None = None) -> None:  # noqa: A002
        with self.changed:
            self._known[id] = LogProgress(
                published, self._log_progress(id).seen_s if seen_s is None else seen_s
            )
            self._known.move_to_end(id)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def _record_published(self, id: JobId, published: int) -> None:  # noqa: A002
        """Remember that versions up to one were seen to be published, and wake those who wait for them."""
        with self.changed:
            self._remember_published(id, max(published, self._log_progress(id).published), elapsed_s())
            self.discard_finished_tasks(id, self._is_published)

    def _note_progress(self, id: JobId, published: int, written: int) -> None:  # noqa: A002
        self._record_published(id, published)
        if written:
            self._meter.count(metrics.PUBLISHED, written)


def _get_table_id(content: DeltaTable) -> UUID:
    assert content.id is not None, "a managed table has an id"
    return content.id


def _find_branch_line(line: BranchLog) -> bytes | None:
    """Whose files a branch's newest versions are; ``None`` if all of them are the default branch's."""
    return line.entries[-1].line or None if line.entries else None
