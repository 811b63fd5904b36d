"""What a lake in this process needs to own Lance tables: made when it first has to do with one.

Lance's own library is not among it: manifests are read and put as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import UUID

from penstock.errors import OutOfSync, PenstockError, ReferenceNotFound
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.folder_check import FolderCheck
from penstock.formats.lance.format import LanceFormat
from penstock.formats.lance.intents import CreateStep, DeregisterStep, NumberedStep, ResyncStep, decode_steps
from penstock.formats.lance.lake.folder_notes import (
    DeregisteredNote,
    mark_files_kept,
    note_not_intended,
    read_deregistered_note,
)
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.ownership import LanceOwnership
from penstock.formats.lance.promoter import Promoter
from penstock.formats.lance.promotion_tasks import PromoteTask
from penstock.formats.lance.refs import RefFileWriter
from penstock.formats.lance.state import NAME, decode_state, is_managed
from penstock.formats.lance.table_changes import list_step_names
from penstock.formats.sync import out_of_sync
from penstock.kernel.description import require_unmoved
from penstock.kernel.format import AppliedChange, LaterCommitLookup, PrepareAgain, Table
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.leases import Leases
from penstock.kernel.ledger import LEDGER, find_holder, find_last_content, find_table
from penstock.kernel.objects import read_content
from penstock.lake.log_search import list_differences
from penstock.model.clock import Clock
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.model.references import Kind
from penstock.model.transactions import PREFIX
from penstock.storage.places import Places

logger = logging.getLogger("penstock")

LET_GO_S: Final = 5.0
"""How long a table that is deregistered may take until all of its versions are where everybody looks."""
DEREGISTERED: Final = list_step_names((NumberedStep(0, DeregisterStep()),))
"""What is kept of a table's change with a commit that deregisters it, and does nothing else to it."""


class LanceServices:
    """Manifests, promoter and format of a lake's Lance tables. Used by many threads at once."""

    def __init__(self, kernel: Kernel, places: Places, lake_id: str) -> None:
        self._kernel = kernel
        self.places = places
        self.manifests = ManifestReader(places)
        self.ownership = LanceOwnership(places, lake_id)
        self.promoter = Promoter(
            places,
            self.manifests,
            kernel.objects,
            self.ownership,
            refs=RefFileWriter(places, kernel.objects, lake_id, self._read_current_content, kernel.clock),
            current=self._read_current_content,
            has_table=self._has_table,
            meter=kernel.meter,
            clock=kernel.clock,
            leases=Leases(kernel.store),
        )
        self.folder_check = FolderCheck(self.promoter, self.find_last, partial(require_unmoved, kernel.store))
        self.promoter.after_look = self.folder_check.warn
        self.format = OwnLanceFormat(
            places,
            self.manifests,
            kernel.clock,
            self.promoter,
            self.ownership,
            self._settle_removed_table,
            self.folder_check,
        )

    def catch_up(self) -> None:
        """Have promoted, in the background, what earlier processes left."""
        self.promoter.catch_up(self._catch_up)

    def finish(self, timeout_s: float) -> dict[str, PenstockError | None]:
        """Until what was ratified here, or left by others, is promoted and what was staged of it is gone, for
        at most so long; returns what is left, each with what stands against it."""
        ends_s = monotonic() + timeout_s
        if not self.promoter.await_catch_up(timeout_s):
            return {"the versions to be promoted are still being determined": None}
        unpromoted = self.promoter.finish(max(0.0, ends_s - monotonic()))
        return {f"'{key}' is not promoted": problem for key, problem in unpromoted.items()}

    def report_metrics(self) -> None:
        """Tell the meter which versions wait to be promoted."""
        self.promoter.report_metrics()

    def close(self, timeout_s: float) -> None:
        """Promote what was ratified here, for at most so long."""
        self.promoter.close(timeout_s)

    def _read_current_content(self, task: PromoteTask) -> LanceTable | None:
        """The table of a task, as its branch has it now; nothing if it does not."""
        try:
            head = self._kernel.references.get_reference(task.branch).head
        except ReferenceNotFound:
            return None
        if head == NO_COMMIT:
            return None
        content = read_content(self._kernel.objects, self._kernel.read_state(head).get(task.key.encode()))
        if not isinstance(content, LanceTable) or not is_managed(content) or content.id != task.content.id:
            return None
        return content

    def _has_table(self, task: PromoteTask) -> bool:
        """Whether the branch of a task, or the default one, has its table under any key."""
        try:
            head = self._kernel.references.get_reference(
                task.branch or self._kernel.formats.default_branch
            ).head
        except ReferenceNotFound:
            return False
        return head != NO_COMMIT and find_table(partial(self._read_content, head), task.table) is not None

    def find_last(self, identity: UUID) -> LanceTable | None:
        """A table as the default branch has it, or had it when it was dropped."""
        head = self._kernel.references.get_reference(self._kernel.formats.default_branch).head
        content = (
            None if head == NO_COMMIT else find_last_content(partial(self._read_content, head), identity)
        )
        return content if isinstance(content, LanceTable) and is_managed(content) else None

    def check_folder(self, key: Key, content: LanceTable) -> str:
        """What is wrong with the folder of a table of the default branch, by what is there now; nothing if it
        is what the lake knows, or another lake's. Raises as storage does."""
        if content.id is None or not self.ownership.owns_table(content):
            return ""
        state = self.folder_check.compare(content.id, content.location, content)
        return "" if state.is_in_sync else out_of_sync(key, content.location, state).message

    def list_tables(self) -> Iterator[tuple[Key, LanceTable]]:
        """The Lance tables of the default branch."""
        yield from self._tables_in_ledger(
            self._kernel.references.get_reference(self._kernel.formats.default_branch).head
        )

    def _settle_removed_table(self, key: Key, commit: ObjectId) -> None:
        """A commit took a table from a branch, which settles what is noted of its files. If it was
        deregistered, and no branch has it, others may.

        They see what is in its folder, so that all of its versions have to be there first. Whoever dies
        before that, or cannot have them there, leaves the table to the lake, which can register it again.
        """
        before = self._kernel.history.read_commit(commit).parent
        old_content = None if before == NO_COMMIT else self._read_content(before, key.encode())
        if (
            not isinstance(old_content, LanceTable)
            or not is_managed(old_content)
            or not self.ownership.owns_table(old_content)
        ):
            return
        place, is_location_of_table = (
            self.places.open_place(old_content.location),
            self.is_location_of_table(old_content.location),
        )
        if self._has_deregistered(commit, old_content):
            mark_files_kept(place)
        elif not is_location_of_table:
            note_not_intended(place)
        if is_location_of_table or read_deregistered_note(place) is not DeregisteredNote.YES:
            return
        if self.promoter.promote_table(old_content, monotonic() + LET_GO_S):
            self.ownership.release_table(old_content)

    def _has_deregistered(self, commit: ObjectId, table: LanceTable) -> bool:
        """Whether a commit deregistered a table, or brought another one that did."""
        landed = self._kernel.history.read_commit(commit)
        brought = (
            each
            for parent in landed.further_parents
            for _, each in self._kernel.history.list_commits_only_in(parent, landed.parent)
        )
        for each in (landed, *brought):
            for intent in self._kernel.objects.read_intents(each):
                if (intent.format, intent.data) == (NAME, DEREGISTERED):
                    before = None if each.parent == NO_COMMIT else self._read_content(each.parent, intent.key)
                    if before is not None and before.id == table.id:
                        return True
        return False

    def is_location_of_table(self, location: str) -> bool:
        """Whether any branch has a table at a place."""
        for reference in self._kernel.references.list_all_references(Kind.BRANCH):
            look = partial(self._read_content, reference.head)
            identity = None if reference.head == NO_COMMIT else find_holder(look, location)
            if identity is not None and find_table(look, identity) is not None:
                return True
        return False

    def _read_content(self, commit: ObjectId, stored: bytes) -> AnyContent | None:
        return read_content(self._kernel.objects, self._kernel.read_state(commit).get(stored))

    def _catch_up(self) -> None:
        for branch, key, content in self._list_tables():
            if self.promoter.is_closing:
                return
            is_default = branch == self._kernel.formats.default_branch
            self.promoter.note_commit(key, content, is_default=is_default, branch=branch)

    def _list_tables(self) -> Iterator[tuple[str, Key, LanceTable]]:
        """The tables of the default branch, and those of other branches that differ from them."""
        default = self._kernel.formats.default_branch
        head = self._kernel.references.get_reference(default).head
        yield from ((default, *table) for table in self._tables_in_ledger(head))
        for reference in self._kernel.references.list_all_references(Kind.BRANCH):
            if reference.name == default or reference.name.startswith(PREFIX) or reference.head == head:
                continue
            for key, content in self._find_changed_tables(head, reference.head):
                if decode_state(content).owner:
                    yield reference.name, key, content

    def _tables_in_ledger(self, commit: ObjectId) -> Iterator[tuple[Key, LanceTable]]:
        """The Lance tables of a commit, from the ledger: other keys are not looked at."""
        if commit == NO_COMMIT:
            return
        state = self._kernel.read_state(commit)

        def read_stored_content(stored: bytes) -> AnyContent | None:
            return read_content(self._kernel.objects, state.get(stored))

        for stored, _ in state.scan_entries(LEDGER, find_prefix_end(LEDGER)):
            key = find_table(read_stored_content, UUID(hex=stored.removeprefix(LEDGER).decode()))
            content = None if key is None else read_stored_content(key.encode())
            if key is not None and isinstance(content, LanceTable) and is_managed(content):
                yield key, content

    def _find_changed_tables(self, before: ObjectId, after: ObjectId) -> Iterator[tuple[Key, LanceTable]]:
        """The managed Lance tables that differ between two commits. Shared parts of the trees are not
        read."""
        for difference in list_differences(self._kernel, before, after, None, None):
            if isinstance(difference.after, LanceTable) and is_managed(difference.after):
                yield difference.key, difference.after


class OwnLanceFormat(LanceFormat):
    """Lance tables, of which a lake changes only those that are its own."""

    def __init__(
        self,
        places: Places,
        manifests: ManifestReader,
        clock: Clock,
        promoter: Promoter,
        ownership: LanceOwnership,
        gone: Callable[[Key, ObjectId], None],
        folder_check: FolderCheck,
    ) -> None:
        super().__init__(places, manifests, clock, promoter)
        self._ownership, self._own, self._gone = ownership, promoter, gone
        self._folder_check = folder_check

    def prepare(self, table: Table, change: Change) -> Any:
        if isinstance(table.content, LanceTable) and is_managed(table.content):
            self._ownership.require_or_claim(table.content, is_here=True)
            steps = [step.step for step in decode_steps(change.intent).steps]
            if not any(isinstance(step, DeregisterStep | ResyncStep) for step in steps):
                written = {step.path for step in steps if isinstance(step, CreateStep)}
                self._folder_check.require_in_sync(
                    table.key, table.content, is_default=table.is_default, written=written
                )
        return super().prepare(table, change)

    def check_may_write(self, table: Table, content: LanceTable) -> object:
        self._ownership.require_or_claim(content)
        self._folder_check.require_in_sync(
            table.key, content, is_default=table.is_default and table.content is content
        )
        return None

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> AppliedChange:
        return self._check_applied(table, super().merge(table, base, source, intents))

    def restore(self, table: Table, after: AnyContent | None) -> AppliedChange:
        return self._check_applied(table, super().restore(table, after))

    def revert(
        self,
        table: Table,
        committed: AnyContent | None,
        previous: AnyContent | None,
        since: LaterCommitLookup,
    ) -> AppliedChange | None:
        reverted = super().revert(table, committed, previous, since)
        return None if reverted is None else self._check_applied(table, reverted)

    def check_direct_change(self, table: Table, content: AnyContent | None) -> None:
        super().check_direct_change(table, content)
        if content is None:
            self._check_folder(table, is_drop=True)

    def _check_applied(self, table: Table, applied: AppliedChange) -> AppliedChange:
        if applied.content != table.content:
            self._check_folder(table, is_drop=applied.content is None)
        return applied

    def _check_folder(self, table: Table, *, is_drop: bool) -> None:
        """``OutOfSync`` for a table that the default branch is to have otherwise, or not any more, and whose
        folder has what the lake does not know: versions of a transaction that was written before would be
        others of the same numbers, and what is dropped nobody could bring back. ``PrepareAgain`` where it is
        not known.

        A table whose storage is away, or has lost it, can be dropped; one that is deregistered keeps all.
        """
        content = table.content
        if not table.is_default or not isinstance(content, LanceTable) or not is_managed(content):
            return
        assert content.id is not None, "a managed table has an id"
        note = "folder", content.id, is_drop
        if note in table.notes or self._folder_check.is_checked(content.id):
            return
        if not table.may_read:
            raise PrepareAgain
        try:
            if self._ownership.owns_table(content):
                self._folder_check.require_in_sync(table.key, content, is_default=True)
        except OutOfSync:
            raise
        except PenstockError as problem:
            if not is_drop:
                raise
            logger.info("'%s' is removed without a check of its folder: %s", table.key, problem)
        table.notes[note] = True

    def after_commit(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        if isinstance(content, LanceTable) and is_managed(content):
            self._own.note_commit(key, content, is_default=is_default, branch=branch)
        elif not branch.startswith(PREFIX):
            self._own.forget_dropped()
            self._gone(key, commit)
