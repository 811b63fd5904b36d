"""Erase: making deleted rows of a table unrecoverable, in one command that ends.

A value stands in more places than one: in data files, in files with deletion vectors, in change data, in
statistics of the log and its checkpoints, in objects of the lake, in free pages of its database. The steps,
of which each can be done again after a crash:

1. Whoever else still holds rows is found: references, transactions, forks, backups. If there is anybody,
   nothing is done, unless it was asked to let them go.
2. Files that hold deleted rows beside others are rewritten, by a commit like any other.
3. The lake notes that the table is being erased (``kernel.table_horizons``). From now on nothing of its past
   is brought back: merges, reverts and restores look at the note at their turn.
4. A version is committed with which the history of the table begins, and the lake notes which it is. Earlier
   states are not retained any more, whatever commit has them.
5. The log is cut, data files are swept, the lake's objects are swept, its database is written anew. The grace
   periods hold: what is too young to go stays, and the answer says until when.

An erase that has not ended is taken up by the next one where it was. Which rows it is about does not change
by that: what was deleted after its version is for another erase.

With a moment, the first version is the one that the table was at then, and nothing that was deleted later
goes. A file that holds rows which were deleted before the moment beside others may be needed by later history
all the same: it is rewritten for the newest version, and the answer says which later moment lets it go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID, uuid4

import msgspec

from penstock.errors import (
    CommitNotFound,
    CommitVetoed,
    ConflictError,
    Damaged,
    EraseRefused,
    HistoryExpired,
    InvalidRequest,
    KeyNotFound,
    NotManaged,
    OutOfSync,
    ReferenceNotFound,
    RequestError,
)
from penstock.kernel.description import RegisteredBackup, read_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.ledger import find_table, read_ledger_entry
from penstock.kernel.objects import check_object, read_content
from penstock.kernel.reachable import Progress, ReachableObjects, show_no_progress
from penstock.kernel.settings import DAY_US
from penstock.kernel.sweep import list_heads_of_backup, sweep_objects
from penstock.kernel.table_horizons import (
    GONE,
    ErasedTotals,
    TableHorizon,
    TableHorizons,
    change_horizon,
    find_horizon,
    hash_state,
)
from penstock.lake.answers import ErasedTable
from penstock.lake.calls import EraseTable
from penstock.lake.dropped_tables import list_dropped_tables
from penstock.lake.fork_notes import ForkNotes
from penstock.lake.read_lists import sweep_reads
from penstock.lake.retained_history import RetainedHistory
from penstock.model.clock import to_microseconds, to_utc_datetime
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import AnyObject, CommitObject, Value
from penstock.model.operations import Unchanged
from penstock.model.references import Kind, Reference
from penstock.model.transactions import read_transaction

if TYPE_CHECKING:
    from penstock.lake.answers import SweptTable
    from penstock.lake.embedded import Embedded

HOLDERS_MAX: Final = 20
"""How many holders an error names."""
STRANGERS_MAX: Final = 5


class LeftoverFiles(NamedTuple):
    """Files that no retained state of the table names and that are there still."""

    files: int = 0
    until_us: int = 0
    """When they are old enough to go."""
    strangers: tuple[str, ...] = ()
    """Names of files that no writer of tables gives."""
    forked: int = 0
    """How many more stay for a fork of the lake."""
    needed: tuple[str, ...] = ()
    """What retained history needs although it holds rows that were to go: one sentence each."""
    elsewhere: tuple[str, ...] = ()
    """Where files of other tables may hold rows of this one: one sentence each."""


def make_leftover_files(times_us: Sequence[int], pinned_us: int, grace_us: int) -> LeftoverFiles:
    """What is left of files that were written at some times, of which forks may need those until one."""
    young_us = [time_us for time_us in times_us if time_us > pinned_us]
    until_us = max(young_us, default=0) + grace_us
    return LeftoverFiles(len(young_us), until_us, forked=len(times_us) - len(young_us))


class FirstVersionKept(NamedTuple):
    """The version with which the history of a table begins."""

    first: int
    spared: bytes = b""
    """Hashes of states from before that stay, if these have no versions."""
    content: ManagedTable | None = None
    """The table as it is then, if nothing is left in it that could be erased."""


class Erasure(Protocol):
    """The format's half of an erase, of one table of the default branch."""

    @property
    def content(self) -> ManagedTable: ...
    def require_erasable(self) -> None: ...
    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool: ...
    def find_holders(self, first_version: int | None) -> Iterator[TableHolder]: ...
    def count_files_to_rewrite(self) -> int: ...
    def rewrite_files(self) -> int: ...
    def find_first_kept_version(self, start: ManagedTable, moment_us: int) -> int | None: ...
    def is_state_kept(self, content: ManagedTable) -> bool: ...
    def is_history_cut_at(self, content: ManagedTable, first_version: int) -> bool: ...
    def commit_first_version(self, erase: str) -> FirstVersionKept: ...
    def read_latest_version(self) -> int: ...
    def count_earlier_log_files(self) -> int: ...
    def list_unneeded_file_sizes(self) -> list[int]: ...
    def cut_history(self, first_version: int) -> tuple[int, int, str]: ...
    def sweep_unneeded_files(self, progress: Progress) -> SweptTable: ...
    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles: ...


class TableHolder(NamedTuple):
    """Somebody who still has rows of the table, and the way out."""

    name: str
    can_go: bool
    """Whether it lets go what it holds if that is asked for."""
    way_out: str

    def __str__(self) -> str:
        return f"{self.name}: {self.way_out}"


class EraseRun:
    """One run of an erase, as a call asks for it."""

    def __init__(
        self,
        lake: Embedded,
        call: EraseTable,
        progress: Progress,
        format: Erasure | None = None,  # noqa: A002
    ) -> None:
        self._lake, self._kernel, self._call, self._progress = lake, lake.kernel, call, progress
        self._store = lake.kernel.store
        self._format = self._start_erasure() if format is None else format
        content = self._format.content
        assert content.id is not None
        self._table: UUID = content.id
        self._moment_us = None if call.older_than is None else to_microseconds(call.older_than)
        self._wanted: int | None = None
        """The first version that is to exist, if there is a moment and anything is older."""
        self._set_us: int | None = None
        """When an erase that is taken up has said which version is the first."""
        self._keeps_younger = self._moment_us is not None
        """Whether history from a moment on stays."""
        self._left: list[str] = []
        self._needed: tuple[str, ...] = ()
        self._until_us: list[int] = []

    def erase_now(self) -> ErasedTable:
        """Do what can be done now. ``EraseRefused`` if others hold rows, or a check vetoes: then nothing was
        removed, and nothing is under way any more unless its history has begun."""
        self._kernel.graces.require_agreed()
        known_horizon = find_horizon(self._store, self._table)
        if known_horizon is None or known_horizon.first < GONE:  # else it is taken up, and files are gone
            self._format.require_erasable()  # before anything is noted or written, and in a preview too
        if self._moment_us is not None:
            self._wanted = self._find_wanted(self._moment_us)
        if self._call.dry_run:
            return self._preview_erase(known_horizon)
        if self._is_nothing_older(known_horizon):
            if known_horizon is not None and known_horizon.is_under_way:
                self._withdraw_earlier_erase(known_horizon)
            return self._report_nothing_older(known_horizon)
        is_new = self._is_new(known_horizon)
        if known_horizon is not None and known_horizon.is_set and not is_new:
            self._resume_earlier_run(known_horizon)
            self._require_alone(known_horizon.first)
            self._require_no_backup_since(known_horizon)
            return self._remove_old_files(known_horizon, 0)
        horizon = None if is_new else known_horizon
        try:
            self._require_alone(self._wanted)
            rewritten = self._format.rewrite_files()
            horizon = self._note_begun(known_horizon) if horizon is None else horizon
            if not horizon.is_set:
                self._commit_to_every_branch(horizon)
                self._require_alone(self._wanted)  # who came since the first look
                self._progress("ending history", 0)
                horizon = self._set_horizon(horizon, self._format.commit_first_version(horizon.erase))
                self._require_no_backup_since(horizon)
        except (ConflictError, RequestError, OutOfSync) as problem:
            if horizon is not None:
                self._withdraw_erase(horizon)
            raise self._vetoed_error(problem) if isinstance(problem, CommitVetoed) else problem from None
        return self._remove_old_files(horizon, rewritten)

    def _vetoed_error(self, veto: CommitVetoed) -> EraseRefused:
        return EraseRefused(
            f"'{self._call.key}' was not erased, and nothing was removed: {veto.message}\n  An erase commits "
            "to the branches that keep the table, without changing a row. Erase it when the check allows "
            "that commit.",
            key=str(self._call.key),
            **veto.details,
        )

    def _resume_earlier_run(self, horizon: TableHorizon) -> None:
        self._keeps_younger = horizon.keeps_younger
        self._set_us = horizon.set_us if self._keeps_younger else None

    def _is_new(self, horizon: TableHorizon | None) -> bool:
        """Whether another erase is to begin, and not an earlier one to be taken up."""
        if horizon is None:
            return True
        if self._call.dropped and horizon.first >= GONE:
            return False  # there is no more to go
        if self._moment_us is not None:
            is_later = self._wanted is not None and self._wanted > horizon.first
            return is_later and (horizon.ended_us is not None or horizon.moment_us is not None)
        if horizon.ended_us is not None:
            return horizon.state != hash_state(self._format.content)  # or nothing was deleted since
        # What is to go until now comprises what was to go until a moment before.
        return horizon.is_set and horizon.moment_us is not None

    # -- a moment --------------------------------------------------------------------------------------------

    def _find_wanted(self, moment_us: int) -> int | None:
        """The first version of the history from a moment on; ``None`` if nothing is older."""
        if moment_us > self._kernel.clock():
            raise InvalidRequest(
                f"older_than must not be in the future, got {to_utc_datetime(moment_us).isoformat()}"
            )
        head = self._kernel.references.get_reference(self._kernel.formats.default_branch).head
        start = self._content_at_time(head, moment_us)
        return (
            self._format.find_first_kept_version(start, moment_us)
            if isinstance(start, ManagedTable)
            else None
        )

    def _content_at_time(self, head: ObjectId, moment_us: int) -> AnyContent | None:
        """The table as a reference had it at a moment, if it did and that has not expired."""
        with suppress(HistoryExpired):
            commit = self._kernel.history.find_commit_at_time(head, moment_us)
            return None if commit == NO_COMMIT else self._read_content_at(commit)
        return None

    def _is_nothing_older(self, horizon: TableHorizon | None) -> bool:
        if self._moment_us is None or (horizon is not None and horizon.is_set and horizon.ended_us is None):
            return False
        return self._wanted is None or (horizon is not None and horizon.first > self._wanted)

    def _report_nothing_older(self, horizon: TableHorizon | None) -> ErasedTable:
        assert self._call.older_than is not None
        since = (
            f": its history begins at {horizon.start_as_text}"
            if horizon is not None and horizon.first >= 0
            else ""
        )
        moment = self._call.older_than.strftime("%Y-%m-%d %H:%M:%S UTC")
        return ErasedTable(
            key=self._call.key,
            id=str(self._table),
            first_version=-1 if horizon is None else horizon.first,
            begun=to_utc_datetime(self._kernel.clock()),
            older_than=self._call.older_than,
            who=self._call.who,
            finished=True,
            left=(f"nothing of '{self._call.key}' is older than {moment}{since}", *self._left),
            dry_run=self._call.dry_run,
        )

    def _commit_to_every_branch(self, horizon: TableHorizon) -> None:
        """Commit to every other branch that has the table: what was about to be written or brought back there
        without a look at the horizon has landed by then, and is seen, or looks at it at its turn."""
        authors = (self._call.who,) if self._call.who else ()
        until = "" if self._moment_us is None else " up to a moment"
        meta = CommitMeta(message=f"erase {self._call.key}{until}", committer=self._call.who, authors=authors)
        for reference in self._kernel.references.list_all_references(Kind.BRANCH):
            is_default = reference.name == self._kernel.formats.default_branch
            if is_default or reference.head == NO_COMMIT or self._read_content_at(reference.head) is None:
                continue
            with suppress(ReferenceNotFound, CommitNotFound):  # it was moved, which does as well
                self._kernel.commit(
                    reference.name,
                    [Unchanged(Key(horizon.erase))],  # of a key that nobody has, so that nothing conflicts
                    meta,
                    base=reference.head,
                    key=f"erase-{horizon.erase}-{reference.incarnation.hex()}",
                    fingerprint=horizon.erase.encode,
                )

    # -- who holds rows --------------------------------------------------------------------------------------

    def _require_alone(self, first_version: int | None) -> None:
        """``EraseRefused`` if others hold rows: of any version, or of those before the first."""
        self._require_none([*self._find_holders(first_version)])

    def _require_none(self, holders: Sequence[TableHolder]) -> None:
        in_the_way = [holder for holder in holders if not (holder.can_go and self._call.all_references)]
        if not in_the_way:
            self._left += [f"the table is no longer readable at {holder.name}" for holder in holders]
            return
        more = len(in_the_way) - HOLDERS_MAX
        lines = [f"  {holder}" for holder in in_the_way[:HOLDERS_MAX]]
        lines += [f"  and {more} more"] if more > 0 else []
        raise EraseRefused(
            f"'{self._call.key}' cannot be erased yet, because others still hold its rows:\n"
            + "\n".join(lines),
            key=str(self._call.key),
            holders=[holder.name for holder in in_the_way],
        )

    def _find_holders(self, first_version: int | None) -> Iterator[TableHolder]:
        default = self._kernel.formats.default_branch
        for kind in (Kind.BRANCH, Kind.TAG, Kind.TRANSACTION):
            for reference in self._kernel.references.list_all_references(kind):
                if reference.name != default and reference.head != NO_COMMIT:
                    yield from self._find_holder_of_reference(reference, first_version)
        yield from self._format.find_holders(first_version)
        yield from self._find_fork_holders()
        yield from self._find_backup_holders(first_version)

    def _require_no_backup_since(self, horizon: TableHorizon) -> None:
        """``EraseRefused`` if a backup came after the last look that does not have the horizon; the same call
        goes on once it is removed. One that comes now has it (``BackupMaker``)."""
        self._set_us = horizon.set_us
        self._require_none([*self._find_backup_holders(None)])

    def _find_backup_holders(self, first_version: int | None) -> Iterator[TableHolder]:
        """Backups that have the table: they have its past, and the lake keeps the files of it for them, or
        they have copies of them."""
        if self._call.dropped and first_version is not None:
            return  # only those that came before the horizon was set: they are looked for by themselves
        for backup in read_description(self._store).backups:
            if self._set_us is not None and backup.created_us > self._set_us:
                continue  # it has no earlier history
            if self._is_in_backup(backup, first_version):
                lost = " --lost" if backup.has_data else ""
                way = (
                    f"remove it (penstock backups expire {backup.target} {backup.id}), or if it is lost, "
                    f"forget it (penstock backups forget {backup.id}{lost}); later backups do not contain "
                    "these rows"
                )
                what = "backup with data" if backup.has_data else "backup"
                yield TableHolder(f"{what} {backup.id} at {backup.target}", False, way)

    def _is_in_backup(self, backup: RegisteredBackup, first_version: int | None) -> bool:
        """Whether a backup has states of the table that an erase is about.

        For one with data the lake keeps nothing: what is gone here by now may be in its files.
        """
        try:
            heads = list_heads_of_backup(backup, self._kernel.objects)
            return any(self._backup_holds_table(head, first_version) for head in heads)
        except (Damaged, CommitNotFound, HistoryExpired):
            if backup.keeps_files:
                raise
            return True

    def _is_held(self, content: AnyContent | None, first_version: int | None) -> bool:
        """Whether a state of the table is one of those that an erase is about."""
        managing = self._kernel.formats.find_managing_format(content)
        if content is None or managing is None:
            return False
        return first_version is None or managing.lacks_version(
            content, first_version, keeps_younger=self._keeps_younger
        )

    def _find_holder_of_reference(
        self, reference: Reference, first_version: int | None
    ) -> Iterator[TableHolder]:
        content = self._read_content_at(reference.head)
        if (
            reference.kind is Kind.TAG
            and isinstance(content, ManagedTable)
            and self._format.is_state_kept(content)
        ):
            return
        if not self._is_held(content, first_version):
            yield from self._find_younger_holder(reference, content, first_version)
            return
        transaction = read_transaction(reference)
        if transaction is not None:
            way = f"wait for it, or abort it: penstock tx abort {transaction.id}"
            yield TableHolder(f"transaction {transaction.id}", False, way)
        elif reference.kind is Kind.TAG:
            way = (
                f"delete the tag, or use --all-references, which makes '{self._call.key}' unreadable at the "
                "tag"
            )
            yield TableHolder(f"tag '{reference.name}'", True, way)
        elif self._call.dropped:
            way = "it still has the table; drop the table there as well, or delete the branch"
            yield TableHolder(f"branch '{reference.name}'", False, way)
        elif isinstance(content, ManagedTable) and self._format.has_own_changes(content, reference.head):
            way = "it has changes of its own to the table; merge it and delete it, or delete it"
            yield TableHolder(f"branch '{reference.name}'", False, way)
        else:
            way = (
                "delete the branch, or use --all-references, which makes the table unreadable there until "
                f"the branch is rebased (penstock rebase {reference.name})"
            )
            yield TableHolder(f"branch '{reference.name}'", True, way)

    def _find_younger_holder(
        self, reference: Reference, content: AnyContent | None, first_version: int | None
    ) -> Iterator[TableHolder]:
        """A reference whose state of the table is retained, and that needs something from before all the
        same."""
        managing = self._kernel.formats.find_managing_format(content)
        if not isinstance(content, ManagedTable) or managing is None or first_version is None:
            return
        if reference.kind is Kind.TAG:
            return
        transaction = read_transaction(reference)
        if not self._format.is_history_cut_at(content, first_version):
            yield from self._find_branch_with_early_changes(reference) if transaction is None else ()
        elif transaction is not None:
            way = f"wait for it, or abort it: penstock tx abort {transaction.id}"
            yield TableHolder(f"transaction {transaction.id}", False, way)
        else:
            way = (
                "it builds on the history of the table from before that time; rebase it "
                f"(penstock rebase {reference.name}), or delete it"
            )
            yield TableHolder(f"branch '{reference.name}'", False, way)

    def _find_branch_with_early_changes(self, reference: Reference) -> Iterator[TableHolder]:
        """A branch that changed the table itself before the moment."""
        if self._moment_us is None:
            return
        before = self._content_at_time(reference.head, self._moment_us)
        if isinstance(before, ManagedTable) and self._format.has_own_changes(before, reference.head):
            way = "it has changes of its own from before that; merge it and delete it, or delete it"
            yield TableHolder(f"branch '{reference.name}'", False, way)

    def _read_content_at(self, commit: ObjectId) -> AnyContent | None:
        state = self._kernel.read_state(commit)

        def read_stored_content(stored: bytes) -> AnyContent | None:
            return read_content(self._kernel.objects, state.get(stored))

        key = find_table(read_stored_content, self._table)
        return None if key is None else read_stored_content(key.encode())

    def _backup_holds_table(self, head: ObjectId, first_version: int | None) -> bool:
        """Whether a backup with a head has rows of the table; if that was dropped by then, of its past."""
        state = self._kernel.read_state(head)

        def read_stored_content(stored: bytes) -> AnyContent | None:
            return read_content(self._kernel.objects, state.get(stored))

        if self._call.dropped:
            return read_ledger_entry(read_stored_content, self._table) is not None
        content = self._read_content_at(head)
        # One from after the moment has earlier history as well.
        return self._is_held(content, None if self._keeps_younger else first_version)

    def _find_fork_holders(self) -> Iterator[TableHolder]:
        for target, note in ForkNotes(self._store, self._lake.places).describe_others():
            way = (
                f"delete the fork, and then its note ({note}); --all-references erases the table here "
                "anyway, which makes it unreadable in the fork, but files from before the fork stay until "
                "the note is removed"
            )
            yield TableHolder(f"the fork of this lake at {target}", True, way)

    # -- the note with the lake ------------------------------------------------------------------------------

    def _change_horizon(self, change: Callable[[TableHorizon | None], TableHorizon]) -> TableHorizon:
        try:
            return change_horizon(self._store, self._kernel.settings, self._table, change)
        finally:
            self._kernel.formats.forget_horizons()

    def _note_begun(self, horizon: TableHorizon | None) -> TableHorizon:
        """Note that the table is being erased. ``EraseRefused`` if another erase has moved the horizon since
        it was looked up: with a moment, what is to stay was found out by that."""
        erase, begun_us = uuid4().hex, self._kernel.clock()

        def update_horizon(stored: TableHorizon | None) -> TableHorizon:
            has_ended = stored is not None and stored.ended_us is not None
            if stored == horizon or (self._moment_us is None and has_ended):
                return TableHorizon(
                    table=self._table,
                    key=str(self._call.key),
                    erase=erase,
                    who=self._call.who,
                    begun_us=begun_us,
                    first=-1 if stored is None else stored.first,
                    moment_us=None if stored is None else stored.moment_us,
                    spared=b"" if stored is None else stored.spared,
                )
            assert stored is not None, "a horizon stays"
            is_beside = stored.is_under_way and stored.first == (-1 if horizon is None else horizon.first)
            if stored.erase == erase or is_beside or self._moment_us is None:
                return stored  # it was noted, or another began as well
            raise EraseRefused(
                f"another erase of '{self._call.key}' was applied first; erase again",
                key=str(self._call.key),
            )

        return self._change_horizon(update_horizon)

    def _set_horizon(self, horizon: TableHorizon, settled: FirstVersionKept) -> TableHorizon:
        def update_horizon(stored: TableHorizon | None) -> TableHorizon:
            now = stored or horizon
            if now.erase != horizon.erase or now.is_set:
                return now
            return msgspec.structs.replace(
                now,
                first=max(settled.first, now.first),
                is_set=True,
                moment_us=self._moment_us,
                set_us=self._kernel.clock(),
                spared=settled.spared,
                state=b"" if settled.content is None else hash_state(settled.content),
            )

        after = self._change_horizon(update_horizon)
        if after.erase != horizon.erase or after.is_given_up:
            raise EraseRefused(
                f"another run has cancelled or replaced this erase of '{self._call.key}', which had removed "
                "nothing; erase again",
                key=str(self._call.key),
            )
        return after

    def _withdraw_earlier_erase(self, horizon: TableHorizon) -> None:
        """An erase that an earlier run has begun is not wanted any more: this one has another moment."""
        if self._withdraw_erase(horizon).is_given_up:
            self._left.append("an erase that had begun was cancelled: it had removed nothing")

    def _withdraw_erase(self, horizon: TableHorizon) -> TableHorizon:
        """The erase has changed nothing, and what was there before counts again."""

        def update_horizon(stored: TableHorizon | None) -> TableHorizon:
            now = stored or horizon
            if now.erase != horizon.erase or now.is_set:
                return now
            return msgspec.structs.replace(now, is_set=True, ended_us=self._kernel.clock())

        return self._change_horizon(update_horizon)

    def _note_run(self, horizon: TableHorizon, removed: ErasedTotals, *, is_ended: bool) -> TableHorizon:
        """Add what a run has removed, and whether that was the last of it."""
        removed_before = horizon.removed

        def update_horizon(stored: TableHorizon | None) -> TableHorizon:
            now = stored or horizon
            if now.erase != horizon.erase:
                return now
            ended_us = self._kernel.clock() if is_ended and now.ended_us is None else now.ended_us
            # In doubt this is asked twice, and has been done if the numbers have changed.
            total = now.removed + removed if now.removed == removed_before else now.removed
            return msgspec.structs.replace(now, ended_us=ended_us, removed=total)

        return self._change_horizon(update_horizon)

    # -- removing --------------------------------------------------------------------------------------------

    def _remove_old_files(self, horizon: TableHorizon, rewritten: int) -> ErasedTable:
        erased = self._find_erased_objects()
        log_files, until_us, what = self._format.cut_history(horizon.first)
        if what:
            self._wait_until(until_us, what)
        swept = self._format.sweep_unneeded_files(self._progress)
        self._sweep_reads(horizon)
        if swept.problem:
            self._left.append(f"data files: {swept.problem}")
        is_waiting = bool(swept.problem) or self._has_left(horizon)
        objects = sweep_objects(self._kernel, progress=self._progress).removed
        is_waiting |= bool(self._until_us)
        if present := self._count_present(erased):
            grace_us = self._kernel.graces.find_sweep_grace().objects_us
            self._wait_until(self._kernel.clock() + grace_us, f"{present} objects of the lake's database")
            is_waiting = True
        elif text := self._store.scrub():
            self._left.append(text)
        self._left += self._needed
        if self._moment_us is None and horizon.moment_us is not None:
            self._left.append("another erase ended at the same time; erase again")
            is_waiting = True
        finished = not is_waiting and not self._needed
        run = ErasedTotals(rewritten, log_files, swept.data_files, swept.data_bytes, objects)
        total = self._note_run(horizon, run, is_ended=not is_waiting).removed
        is_later = horizon.moment_us is None and self._format.read_latest_version() > horizon.first + 1
        if is_waiting and is_later:  # one more belongs to the erase
            self._left.append(
                f"rows deleted after version {horizon.first} need another erase once this one has ended"
            )
        return ErasedTable(
            key=self._call.key,
            id=str(self._table),
            first_version=-1 if horizon.first >= GONE else horizon.first,
            begun=to_utc_datetime(horizon.begun_us),
            older_than=None if horizon.moment_us is None else to_utc_datetime(horizon.moment_us),
            who=horizon.who,
            finished=finished,
            until=self._get_horizon_time() if not finished else None,
            left=tuple(self._left),
            **msgspec.structs.asdict(total),
        )

    def _has_left(self, horizon: TableHorizon) -> bool:
        """Whether files are left that may hold rows; says which."""
        leftovers = self._format.find_leftovers(horizon)
        self._needed = leftovers.needed
        self._left += leftovers.elsewhere
        if leftovers.files:
            self._wait_until(leftovers.until_us, f"{leftovers.files} files of the table")
        if leftovers.strangers:
            more = len(leftovers.strangers) - STRANGERS_MAX
            self._left.append(
                "files in the table's folder whose names are not those of table files, and that may contain "
                "its rows: "
                + ", ".join(leftovers.strangers[:STRANGERS_MAX])
                + (f" and {more} more" if more > 0 else "")
            )
        if leftovers.forked:
            self._left.append(
                f"{leftovers.forked} files stay because a fork of the lake may need them; they may contain "
                "rows of the table"
            )
        return bool(leftovers.files or leftovers.strangers or leftovers.forked)

    def _sweep_reads(self, horizon: TableHorizon) -> None:
        """Lists of files that readers made for Spark name partitions; a reader may need one for a day."""
        if not self._lake.warehouse:
            return
        grace_us = min(DAY_US, self._kernel.graces.find_sweep_grace().data_us)
        leftover_entries = sweep_reads(
            self._lake.places, self._lake.warehouse, self._kernel.clock() - grace_us
        )
        early = [entry.modified_us for entry in leftover_entries if entry.modified_us <= horizon.begun_us]
        if early:
            self._wait_until(max(early) + grace_us, f"{len(early)} lists of files that readers made")

    def _wait_until(self, until_us: int, subject: str) -> None:
        self._until_us.append(until_us)
        until = to_utc_datetime(until_us).strftime("%Y-%m-%d %H:%M UTC")
        self._left.append(f"{subject}: a writer may need them until {until}; erase again then")

    def _get_horizon_time(self) -> datetime | None:
        return to_utc_datetime(max(self._until_us)) if self._until_us else None

    def _find_erased_objects(self) -> set[ObjectId]:
        """Objects that only states of the table from before its horizon hold."""
        horizons = TableHorizons.read_horizons(self._store, self._kernel.formats)
        erased_reach, kept_reach = (
            ReachableObjects(self._fetch_objects),
            ReachableObjects(self._fetch_objects),
        )
        for content in list_retained_states(self._kernel, self._table, self._progress):
            erased_reach.mark_blobs(content.objects, "by the table")
            kept_reach.mark_blobs(horizons.list_retained_objects(content), "by the table")
        return erased_reach.seen - kept_reach.seen

    def _fetch_objects(self, ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        objects: dict[ObjectId, AnyObject] = {}
        for object_id, data in self._store.uncached.fetch(ids).items():
            with suppress(Damaged):
                objects[object_id] = check_object(object_id, data)
        return objects

    def _count_present(self, ids: set[ObjectId]) -> int:
        return len(self._store.uncached.fetch(sorted(ids))) if ids else 0

    # -- without doing it ------------------------------------------------------------------------------------

    def _preview_erase(self, horizon: TableHorizon | None) -> ErasedTable:
        if self._is_nothing_older(horizon):
            return self._report_nothing_older(horizon)
        is_under_way = (
            horizon is not None and horizon.is_set and horizon.ended_us is None and not self._is_new(horizon)
        )
        first = self._wanted
        if horizon is not None and is_under_way:
            self._resume_earlier_run(horizon)
            first = horizon.first
        unneeded = self._format.list_unneeded_file_sizes()
        return ErasedTable(
            key=self._call.key,
            id=str(self._table),
            first_version=-1 if first is None else first,
            begun=to_utc_datetime(
                horizon.begun_us if horizon is not None and is_under_way else self._kernel.clock()
            ),
            older_than=self._call.older_than,
            who=self._call.who,
            rewritten_files=0 if is_under_way else self._format.count_files_to_rewrite(),
            log_files=self._format.count_earlier_log_files(),
            data_files=len(unneeded),
            data_bytes=sum(unneeded),
            left=tuple(map(str, self._find_holders(first))),
            dry_run=True,
        )

    def _start_erasure(self) -> Erasure:
        key, branch = self._call.key, self._kernel.formats.default_branch
        content = self._lake.read_content_at(self._kernel.references.get_reference(branch).head, key)
        if content is None:
            raise KeyNotFound(
                f"there is no '{key}' on '{branch}'\n  To erase a table that was dropped: --dropped "
                "(dropped=True).",
                key=str(key),
            )
        if (plugin := self._lake.find_plugin(content)) is None:
            raise NotManaged(
                f"'{key}' is not a table that this lake manages, so it cannot erase it", key=str(key)
            )
        return plugin.erasure(self._call)


def erase_table(lake: Embedded, call: EraseTable, progress: Progress) -> ErasedTable:
    """Carry out a call: of the table at a key, or of all tables that were dropped there."""
    if not call.dropped:
        return EraseRun(lake, call, progress).erase_now()
    if call.older_than is not None:
        raise InvalidRequest("older_than cannot be used with dropped tables, which are erased completely")
    tables = [table for key, table in list_dropped_tables(lake) if key == call.key]
    if not tables:
        raise KeyNotFound(
            f"no table was dropped at '{call.key}' on '{lake.kernel.formats.default_branch}'",
            key=str(call.key),
        )
    plugins = [(lake.find_plugin(table, was_dropped=True), table) for table in tables]
    erasures = [plugin.dropped_erasure(call, table) for plugin, table in plugins if plugin is not None]
    return _sum_up([EraseRun(lake, call, progress, erasure).erase_now() for erasure in erasures])


def _sum_up(erased: Sequence[ErasedTable]) -> ErasedTable:
    """What was found and done of several tables, in one answer; it has the id of the first."""
    until = [table.until for table in erased if table.until is not None]
    sums = {
        name: sum(getattr(table, name) for table in erased)
        for name in ("rewritten_files", "log_files", "data_files", "data_bytes", "objects")
    }
    return msgspec.structs.replace(
        erased[0],
        finished=all(table.finished for table in erased),
        until=max(until, default=None),
        left=tuple(dict.fromkeys(line for table in erased for line in table.left)),
        **sums,
    )


def list_retained_states(
    kernel: Kernel, table: UUID | None, progress: Progress = show_no_progress
) -> Iterator[AnyContent]:
    """The states of a table that kept commits have, also those from before its horizon; some repeatedly."""
    return (content for _, content in list_dated_states(kernel, table, progress))


def list_dated_states(
    kernel: Kernel, table: UUID | None, progress: Progress = show_no_progress
) -> Iterator[tuple[int, AnyContent]]:
    """The same, each with the time of a commit that made it so."""

    def values_of_commit(
        commit_id: ObjectId, commit: CommitObject, is_first: bool
    ) -> Iterator[tuple[int, AnyContent]]:
        values = (
            kernel.read_state(commit_id).scan_entries()
            if is_first
            else _list_changed_values(kernel, commit.parent, commit_id)
        )
        for stored, value in values:
            if not stored.startswith(RESERVED):
                content = read_content(kernel.objects, value)
                if content is not None and content.id == table:
                    yield commit.time_us, content

    return RetainedHistory(kernel, values_of_commit, progress).list_unseen()


def _list_changed_values(
    kernel: Kernel, before: ObjectId, after: ObjectId
) -> Iterator[tuple[bytes, Value | None]]:
    return ((stored, now) for stored, _, now in kernel.iterate_differences(before, after))
