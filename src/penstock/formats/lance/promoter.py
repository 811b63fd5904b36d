"""Promoting: what follows after versions of a Lance table were ratified, in the background.

Until then a version's manifest is where only those find it who ask the lake. Now it is put where every reader
of Lance looks, one version after the other, and never over anything. That changes nothing in the lake: it may
be done late, by another process, or twice. Only then does what its writer had staged go.

A manifest of somebody else may be there. Then nothing more is put into that chain: Lance's writers work out
from the manifests of a folder what came before them, and would take the stranger's version for the lake's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final, Unpack
from uuid import UUID

from penstock.errors import ForeignCommit, PenstockError
from penstock.formats.lance import metrics
from penstock.formats.lance.chains import ManifestChains, WaitingVersion
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.names import MAIN, MANIFEST, STAGING
from penstock.formats.lance.ownership import LanceOwnership
from penstock.formats.lance.promotion_tasks import PromoteTask, PromoteWork, make_job_id, merge_tasks
from penstock.formats.lance.refs import RefFileWriter
from penstock.formats.lance.state import LanceVersionReader, decode_state
from penstock.formats.publisher import (
    BackgroundPublisher,
    Guard,
    PublisherOptions,
    PublisherProfile,
    TableBacklog,
)
from penstock.formats.sync import SyncState
from penstock.kernel.objects import Objects
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.storage.places import Places

PROFILE: Final = PublisherProfile(
    name="penstock-promoter",
    published="promoted",
    publishing="promoting",
    versions=metrics.UNPROMOTED,
    seconds=metrics.UNPROMOTED_SECONDS,
    errors=metrics.PROMOTE_ERRORS,
    foreign=metrics.FOREIGN,
)
_NO_KEY: Final = Key("table")
"""For what is said of a table whose key its caller does not give."""

logger = logging.getLogger("penstock")


class UnpromotedChain(TableBacklog, frozen=True, kw_only=True):
    """A chain of a table with versions that are not promoted, as far as is known here."""

    chain: str
    """Nothing for the default branch's, the table's own folder."""


class Promoter(BackgroundPublisher[PromoteTask, UnpromotedChain]):
    """Promotes what it is told. May be used by many threads.

    ``current`` tells a table as its branch has it now; nothing if it is not there any more. ``has_table``
    says whether a branch has the table of a task now, under any key. ``leases`` keep processes apart on
    storage that does not do it itself; without, such storage is for one process only. Without
    ``background``, tables are only promoted by ``promote_table``, in the caller's thread.
    """

    def __init__(
        self,
        places: Places,
        manifests: ManifestReader,
        objects: Objects,
        ownership: LanceOwnership,
        *,
        refs: RefFileWriter | None = None,
        current: Callable[[PromoteTask], LanceTable | None] | None = None,
        has_table: Callable[[PromoteTask], bool] | None = None,
        **options: Unpack[PublisherOptions],
    ) -> None:
        super().__init__(PROFILE, **options)
        self._places, self._objects, self._ownership = places, objects, ownership
        self._chains = ManifestChains(places, manifests, objects)
        self._refs, self._current, self._has_table = refs, current, has_table
        self.after_look: Callable[[Key, LanceTable], None] | None = None
        """Told of every table of the default branch whose folder was worked on."""

    def note_commit(self, key: Key, content: LanceTable, *, is_default: bool, branch: str = "") -> None:
        """A commit with this table has landed: promote it soon. Quick, and never raises.

        What is in a transaction is for nobody else to see, and is not promoted.
        """
        if branch.startswith(PREFIX):
            return
        try:
            task = PromoteTask(key, content, decode_state(content), branch)
        except PenstockError as problem:
            logger.error("'%s' is not promoted: %s", key, problem)
            return
        if not task.state.is_private and is_default == (not task.state.owner):
            self.add_task(task)  # otherwise the branch has only what is another one's

    def promote_table(self, content: LanceTable, until_s: float, key: Key | None = None) -> bool:
        """Promote a table now, in this thread; whether everybody sees all of its versions then.

        A thread that is at it already is waited for, until a time by ``time.monotonic``. The table has to be
        as a branch has it, never as a transaction does. What stands against it is told by ``status``, and it
        is tried again in the background. A private table has nothing to promote.
        """
        state = decode_state(content)
        if state.is_private:
            return True
        task = PromoteTask(key or _NO_KEY, content, state)
        if not self._chains.list_unpromoted_versions(task):
            return True
        problem = self.publish_here(task, until_s - monotonic())
        return problem is None and self._ownership.owns_table(content)

    def pin_before(self, content: LanceTable, versions: LanceVersionReader, waiting: WaitingVersion) -> None:
        """Pin the version before one that somebody is about to see, though it is not promoted.

        Raises as storage does. A copy of a lake has the same tables, and they are not its own.
        """
        if not decode_state(content).is_private and self._ownership.owns_table(content):
            self._chains.pin_before(content, versions, waiting)

    def find_private_path(self, content: LanceTable, waiting: WaitingVersion, transaction: str = "") -> str:
        """Where a version is for who reads it though it cannot be promoted. See
        ``ManifestChains.make_private_path``."""
        return self._chains.make_private_path(content, waiting, transaction)

    def link_privately(self, content: LanceTable, waiting: WaitingVersion) -> str | None:
        """The same under one more name of its file. See ``ManifestChains.link_privately``."""
        return self._chains.link_privately(content, waiting)

    def is_promoted(self, content: LanceTable, waiting: WaitingVersion) -> bool:
        """Whether a version is known to be where everybody looks, and none after it is."""
        return self._chains.is_promoted(content, waiting)

    def compare_with_folder(self, location: str, content: LanceTable | None) -> SyncState:
        """What a table's folder has that the lake has not. See ``ManifestChains.compare_with_folder``."""
        return self._chains.compare_with_folder(location, content)

    def has_foreign_manifest(self, table_id: UUID) -> bool:
        """Whether a manifest was found in a table's folder that is not the lake's, and nothing came since."""
        return isinstance(self.find_problem(make_job_id(table_id)), ForeignCommit)

    def wait(self, ids: Iterable[UUID], timeout_s: float) -> bool:
        """Until all that was told of some tables is promoted, for at most so long; whether it is.

        Does not wait for what an administrator must mend.
        """
        identities, until_s = frozenset(ids), monotonic() + timeout_s
        with self.changed:
            jobs = [job for job in self.jobs if job.table in identities and not job.is_follow_up]
        promoted = [self.wait_for(job, lambda job: not job.pending, until_s - monotonic()) for job in jobs]
        return all(promoted)

    def find_unpromoted(self, content: LanceTable) -> tuple[WaitingVersion, ...]:
        """The versions of a table that are not promoted yet, by what is in its folder now, in order.

        Raises ``Unavailable`` or ``Denied`` as storage does.
        """
        state = decode_state(content)
        if state.is_private:
            return ()
        task = PromoteTask(_NO_KEY, content, state)
        return tuple(
            waiting
            for branch in self._chains.list_branches(task)
            for waiting in self._chains.read_chain_state(task, branch).missing
        )

    def find_unpromoted_status(self, content: LanceTable) -> UnpromotedChain | None:
        """What is known here of versions that are not promoted; ``None`` if none are."""
        identities = content.id, decode_state(content).chain
        return next(
            (
                unpromoted
                for unpromoted in self.list_unpublished()
                if (unpromoted.id, unpromoted.chain) == identities
            ),
            None,
        )

    # -- what the engine asks ------------------------------------------------------------------------------

    def merge_tasks(
        self, pending: Sequence[PromoteTask], task: PromoteTask, *, is_taken: bool
    ) -> list[PromoteTask]:
        return merge_tasks(pending, task, is_taken=is_taken)

    def publish_task(self, task: PromoteTask) -> None:
        match task.work:
            case PromoteWork.VERSIONS:
                self._promote_task(task)
                if self.after_look is not None and task.branch and not task.state.owner:
                    self.after_look(task.key, task.content)
            case PromoteWork.REFS if self._refs is not None and self._ownership.owns_table(task.content):
                self._refs.update_files(task)
            case PromoteWork.STAGED:
                self._remove_staged(task)

    def describe_task(self, task: PromoteTask, problem: PenstockError | None) -> UnpromotedChain | None:
        if task.work is not PromoteWork.VERSIONS:
            return None
        try:
            waiting = self._chains.list_unpromoted_versions(task)
        except PenstockError:  # the store is away, and that something waits is all that is known
            waiting = []
        return UnpromotedChain(
            key=task.key,
            id=task.table,
            location=task.location,
            chain=task.state.chain,
            versions=len(waiting),
            since_us=min((waiting.version.time_us for waiting in waiting), default=self._clock()),
            problem=problem,
        )

    def is_dropped(self, pending: Sequence[PromoteTask]) -> bool:
        """By the branch that the chain belongs to, as far as it is known."""
        promote_tasks = [task for task in pending if task.branch or not task.state.owner]
        return self._has_table is not None and bool(promote_tasks) and not self._has_table(promote_tasks[-1])

    # -- one table -----------------------------------------------------------------------------------------

    def _promote_task(self, task: PromoteTask) -> None:
        if not self._ownership.owns_table(task.content):
            return  # a copy of a lake has the same tables, and they are not its own
        if self._was_branch_set_back(task):
            return
        promoted: list[WaitingVersion] = []
        place = self._places.open_place(task.location)
        busy = f"another process is promoting the table at {task.location}; try again"
        try:
            with self.guard_place(place, f"lance/{task.table}", busy) as guard:
                self._put_all(task, guard, promoted)
        finally:
            staged = tuple(
                waiting.version.staged for waiting in promoted if _is_apart(waiting.version.staged)
            )
            if staged:
                self.add_task(task._replace(work=PromoteWork.STAGED, staged=staged))
        if self._refs is not None and task.branch and self._refs.needs_update(task):
            self.add_task(task._replace(work=PromoteWork.REFS))

    def _was_branch_set_back(self, task: PromoteTask) -> bool:
        """Whether the task's branch, if not the default one, was set back behind its newest version or went.

        Whoever goes on from there looks whether its folder is free, and must not find it taken later.
        """
        newest = next(self._chains.own_versions(task, MAIN), None)
        if self._current is None or not task.branch or not task.state.owner or newest is None:
            return False
        now = self._current(task)
        if now is None:
            return True
        version = LanceVersionReader(self._objects, decode_state(now)).get_version(MAIN, newest.number)
        return version is None or version.make_id(newest.number) != newest.version.make_id(newest.number)

    def _put_all(self, task: PromoteTask, guard: Guard | None, promoted: list[WaitingVersion]) -> None:
        """Put what is missing of each of Lance's own branches. What stands against one keeps no other from
        going on; the first such problem is raised in the end."""
        failed: PenstockError | None = None
        for branch in self._chains.list_branches(task):
            try:
                look = self._chains.read_chain_state(task, branch)
                promoted.extend(look.there)
                for waiting in look.missing:
                    if guard is not None:
                        guard()
                    if self._chains.put_manifest(task, waiting):
                        self._meter.count(metrics.PROMOTED)
                    promoted.append(waiting)
            except PenstockError as problem:
                failed = failed or problem
        if failed is not None:
            raise failed

    def _remove_staged(self, task: PromoteTask) -> None:
        """Remove what writers staged of versions that are at their place now. What is left is swept."""
        try:
            self._places.open_place(task.content.location).delete(task.staged)
        except (PenstockError, RuntimeError) as problem:  # a process that ends starts no threads any more
            logger.info("the staged files of '%s' are left for the sweep: %s", task.key, problem)


def _is_apart(name: str) -> bool:
    """Whether a name is one that only its writer uses, so that it can go. No reader lists such names; but a
    writer may just as well have named a manifest that is at the place of one."""
    return STAGING in name or f"{MANIFEST}-" in name
