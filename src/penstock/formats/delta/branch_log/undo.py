"""Undoing a commit to a Delta table by its files, whatever came after it.

What the commit added goes, as far as it is still there, and what it removed comes back. Later appends and
changes of other files are no conflict. A conflict is, with the files and the commit named:

- a later commit wrote rows of the commit into other files: nobody could find them there;
- the commit wrote rows anew, and its files were changed since: what it had removed holds these rows, too;
- a file of which it had deleted rows by a vector is gone;
- what it changed of the metadata was changed since, or is used by files that came since.

What later commits *said* counts, too: where partitions were replaced since, nothing comes back, because it
would have gone then. Rows that a later deletion vector deleted in the same file stay deleted.

The same serves to do a commit again that was undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.formats.delta.branch_log.branch_log import BranchLogTip, CommitTerms, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import collect_paths
from penstock.formats.delta.branch_log.later_versions import HELD_IN, MERGE_INFO, REPEATED, REVERTED
from penstock.formats.delta.branch_log.net_change import RESTORE, NetChange
from penstock.formats.delta.branch_log.next_versions import Extend, NextVersionBuilder
from penstock.formats.delta.branch_log.prepared_table import select_replacements_in_force
from penstock.formats.delta.branch_log.ratification import read_declared
from penstock.formats.delta.branch_log.replacements import Replacement, mark_as_parts
from penstock.formats.delta.branch_log.reversal_checks import ReversalChecks
from penstock.formats.delta.branch_log.reversed_change import ReversedChange
from penstock.formats.delta.branch_log.reversed_files import ReversedFiles
from penstock.formats.delta.branch_log.row_id_transfer import transfer_row_ids
from penstock.formats.delta.branch_log.undo_metadata import UndoneMetadata, undo_metadata
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import Action, Add, DomainMetadata, Metadata
from penstock.formats.delta.protocol.commit_summary import list_first_names
from penstock.formats.delta.protocol.row_ids import is_high_water_mark
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter, find_last_action
from penstock.kernel.format import AppliedChange, FormatRefused, LaterCommitLookup, Table
from penstock.model.nessie import DeltaTable

HELD_IN_MAX: Final = 1000
"""Into how many other files rows may have been written that are brought again: the commit names them."""


def undo_change(
    table: Table,
    commits: CommitReader,
    target: DeltaTable,
    committed: DeltaTable,
    previous: DeltaTable,
    since: LaterCommitLookup,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """The table without what made ``committed`` of ``previous``; ``FormatRefused`` with all reasons against
    it."""
    change = ReversedChange(table, commits, target, committed, previous, since, now_ms)
    return _TableUndo(change, now_ms).apply_undo(extend)


def redo_change(
    table: Table,
    commits: CommitReader,
    target: DeltaTable,
    base: DeltaTable,
    source: DeltaTable,
    since: LaterCommitLookup | None,
    now_ms: int,
    extend: Extend,
    *,
    was_here: bool = True,
) -> AppliedChange:
    """The table with what made ``source`` of ``base`` once more, if that was undone since; else as it is.

    Unless the change ``was_here``, and not only the files that it brings back, it is done for the first time.
    """
    change = ReversedChange(
        table, commits, target, base, source, since, now_ms, is_redo=True, is_first=not was_here
    )
    return _TableUndo(change, now_ms).apply_undo(extend)


class _TableUndo:
    """One undo of a change, or one more time that it is done."""

    def __init__(self, change: ReversedChange, now_ms: int) -> None:
        self._change, self._now_ms = change, now_ms
        self._checks = ReversalChecks(change)
        self._files = ReversedFiles(change, self._checks, now_ms)

    def apply_undo(self, extend: Extend) -> AppliedChange:
        try:
            net = self._make_net_change()
        except VersionNotFound as problem:
            # At the turn nobody may look for it again.
            self._change.table.notes[self._missing_files_key] = problem.message
            raise self._make_refusal([f"{problem.message}, so later changes cannot be determined"]) from None
        if self._checks.problems:
            raise self._make_refusal(self._checks.problems)
        if not net.actions and not net.undone and not net.replacements:
            return AppliedChange(self._change.target)
        line = decode_branch_log(self._change.target)
        commit_info_fields = self._commit_info_fields(net)
        versions = NextVersionBuilder(
            self._change.table,
            self._change.commits,
            self._change.target,
            line,
            self._now_ms,
            extend,
            commit_info_fields,
        )
        net = transfer_row_ids(
            self._change.table, self._change.commits, self._change.target, self._change.to_state, net
        )
        return versions.append_all([net], self._change.prepared)

    def _commit_info_fields(self, net: NetChange) -> Mapping[str, Any]:
        """Fields of the ``commitInfo`` of the undo."""
        version = str(decode_branch_log(self._change.newest).latest)
        if not self._change.is_redo:
            return {"operation": RESTORE, "operationParameters": {REVERTED: version}}
        parameters = {REPEATED: version}
        if held := self._change.later_versions.files_with_rows_of(
            dict.fromkeys(collect_paths(net.adds)), self._change.file_shifts
        ):
            if len(held) > HELD_IN_MAX:
                raise self._make_refusal([f"its rows were rewritten into {len(held)} other files since"])
            parameters[HELD_IN] = msgspec.json.encode(sorted(held)).decode()
        return {**MERGE_INFO, "operationParameters": parameters}

    @property
    def _missing_files_key(self) -> tuple[object, ...]:
        return (
            "delta lost",
            self._change.target.location,
            BranchLogTip.from_line(decode_branch_log(self._change.target)),
        )

    def _make_net_change(self) -> NetChange:
        if self._missing_files_key in self._change.table.notes:
            raise VersionNotFound(self._change.table.notes[self._missing_files_key])
        domains, problems = self._reverse_domains()
        stands = self._change.is_redo and not self._change.is_first and not self._change.was_undone()
        if stands and not domains:
            return NetChange()
        for problem in problems:
            self._checks.add_problem(problem)
        metadata = self._make_undone_metadata()
        removes, adds = self._files.compute_actions(metadata or self._change.present_definition.metadata)
        state: tuple[Action, ...] = (*([] if metadata is None else [metadata]), *domains)
        paths = frozenset(collect_paths(removes) | collect_paths(adds))
        replacements, undone, replaces = self._find_reversed_replacements()
        return NetChange(
            state=state,
            removes=tuple(removes),
            adds=tuple(adds),
            terms=CommitTerms(
                DeltaReads(files=paths), replaces, changes_data=any(add.data_change for add in removes + adds)
            ),
            replacements=replacements,
            undone=undone,
        )

    def _find_reversed_replacements(
        self,
    ) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...], tuple[PartitionFilter, ...] | None]:
        """The replacements that come into force again by this, those that go, and where all files go."""
        steps = self._change.own_steps
        summed = mark_as_parts([*select_replacements_in_force(steps).values()])
        gone = mark_as_parts(
            [*{replacement.id: replacement for step in steps for replacement in step.undone}.values()]
        )
        if self._change.is_redo:  # it replaces what is there, and replaces what is there
            where = [step.terms.replaces for step in steps if step.terms.replaces is not None]
            parts = tuple(part for each in where for part in each)
            return summed, gone, None if not where else () if () in where else parts
        known_ids = (
            select_replacements_in_force([later.step for later in self._change.later_changes])
            if summed or gone
            else {}
        )
        return tuple(replacement for replacement in gone if replacement.id not in known_ids), summed, None

    def _make_undone_metadata(self) -> Metadata | None:
        """What the table's metadata becomes, if that is not what it is."""
        then, undone = (
            read_declared(self._change.table, decode_branch_log(later).declared).metadata
            for later in (self._change.to_state, self._change.from_state)
        )
        if then == undone:
            return None
        undone_metadata: UndoneMetadata = undo_metadata(
            then,
            undone,
            self._change.present_definition.metadata,
            self._list_files_since,
            self._list_rewritten_files,
        )
        for name in undone_metadata.changed_since:
            changes = (
                later_step
                for later_step in self._change.later_versions.all_versions
                if find_last_action(later_step.step.actions, Metadata) is not None
            )
            later = next(changes, None)
            self._checks.add_problem(f"{name} was changed since, by {self._change.describe_version(later)}")
        for what, files in undone_metadata.used.items():
            paths = set(files)
            later = next(
                (add for add in self._change.later_versions.all_versions if collect_paths(add.adds) & paths),
                None,
            )
            self._checks.add_problem(
                f"{what}: {list_first_names(sorted(files))}, from {self._change.describe_version(later)}"
            )
        return (
            undone_metadata.metadata
            if undone_metadata.metadata != self._change.present_definition.metadata
            else None
        )

    def _list_files_since(self) -> list[Add]:
        """The files of the table that came since the change, and not by it."""
        adds = {add.key.path: add for later in self._change.later_versions.all_versions for add in later.adds}
        others = {path: add for path, add in adds.items() if path not in self._change.file_shifts}
        live = self._change.prepared.find_active_files(others.keys()) if others else {}
        return [action for path, action in others.items() if path in live]

    def _list_rewritten_files(self) -> list[Add]:
        """Those that have rows of files which went. One that got a vector has its own."""
        if self._change.is_redo:
            return []
        rewritten: set[str] = set()
        for later in self._change.later_versions.all_versions:
            added, removed = collect_paths(later.adds), collect_paths(later.removes)
            if removed - added and not later.is_undo:
                rewritten |= added - removed
        return [file for file in self._list_files_since() if file.key.path in rewritten]

    def _reverse_domains(self) -> tuple[list[DomainMetadata], list[str]]:
        """The domains that become what they were, and what stands against that: others changed them since.

        What they are now is what the states of the change and the later versions say. So nothing is looked up
        in versions that the request itself is about to make.
        """
        change = self._change
        names = {
            action.domain
            for step in change.own_steps
            for action in step.actions
            if isinstance(action, DomainMetadata) and not is_high_water_mark(action)
        }
        if not names:
            return [], []

        def read_domains() -> list[dict[str, DomainMetadata]]:
            states = change.to_state, change.from_state
            return [dict(change.commits.read_snapshot(state, change.table.read).domains) for state in states]

        tips = (
            BranchLogTip.from_line(decode_branch_log(change.to_state)),
            BranchLogTip.from_line(decode_branch_log(change.from_state)),
        )
        then, reversed_state = change.table.read_once(
            ("delta domains", change.target.location, *tips), read_domains
        )
        now = dict(then if change.newest is change.to_state else reversed_state)
        changed_by = {}
        for later in change.later_versions.all_versions:  # one that only says a domain counts as an append
            for action in later.step.actions:
                if isinstance(action, DomainMetadata) and action.domain in names:
                    now[action.domain], changed_by[action.domain] = action, later
        domains, problems = [], []
        for name in sorted(names):
            gone = DomainMetadata(domain=name, configuration="", removed=True)
            before, after, current = (
                _get_domain_value(state.get(name)) for state in (then, reversed_state, now)
            )
            if current == after != before:
                domains.append(then.get(name, gone))
            elif current != before:
                problems.append(
                    f"the domain '{name}' was changed since, "
                    f"by {change.describe_version(changed_by.get(name))}"
                )
        return domains, problems

    def _make_refusal(self, problems: Sequence[str]) -> FormatRefused:
        before, then, now = (
            f"version {decode_branch_log(content).latest}"
            for content in (self._change.to_state, self._change.from_state, self._change.target)
        )
        shown = "; ".join(problems[:_SHOWN]) + (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        what, ways = ("repeated", WAYS_TO_REDO) if self._change.is_redo else ("undone", WAYS_TO_UNDO)
        return FormatRefused(
            f"cannot be {what} alone ({before} became {then}, and the table is at {now} now): {shown}; "
            f"{ways}",
            expected=then,
            found=now,
        )


def _get_domain_value(domain: DomainMetadata | None) -> str | None:
    return None if domain is None or domain.removed else domain.configuration


_FIRST: Final = "revert the named commits first, beginning with the newest"
_LEAVE: Final = "or leave the table as it is with the mode 'drop' (drops the change, not the table)"
WAYS_TO_UNDO: Final = (
    f"{_FIRST}; or reset the table to its state before the commit, without any later change, with the mode "
    f"'force'; {_LEAVE}"
)
WAYS_TO_REDO: Final = (
    f"{_FIRST}; or reset the table to its state at that commit, without any later change, with the mode "
    f"'force'; {_LEAVE}"
)
_SHOWN: Final = 5
"""So many problems are told."""
