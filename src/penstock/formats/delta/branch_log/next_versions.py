"""The next versions of a line: net changes, checked like any other commit and ratified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from penstock.formats.delta.branch_log.branch_log import (
    Blobs,
    BranchLog,
    TableDefinition,
    encode_object,
    read_table_definition,
    replace_branch_log,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.composed_commit import METRICS, compose_commit, operation_metrics
from penstock.formats.delta.branch_log.net_change import NetChange
from penstock.formats.delta.branch_log.past_operations import MERGED, OPERATIONS, write_operations
from penstock.formats.delta.branch_log.prepared_table import PreparedTable
from penstock.formats.delta.branch_log.ratification import KnownDefinition, read_declared
from penstock.formats.delta.branch_log.replacements import is_too_long, name_replacements
from penstock.formats.delta.branch_log.row_ids import begin_counter
from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    write_action,
    write_commit,
)
from penstock.formats.delta.protocol.engine_name import engine_info
from penstock.formats.delta.protocol.features import complete_protocol
from penstock.formats.delta.protocol.lint import LintRules, LintState, check_commit
from penstock.formats.delta.protocol.row_ids import (
    ENABLED,
    assigns_row_ids,
    has_row_tracking,
    number_files,
)
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.kernel.format import AppliedChange, FormatRefused, Table, make_object_reader
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable

REDO: Final = (
    "to redo the work, rebase the source onto the target without the table (mode 'drop'), then run the job"
    " again under a new id"
)
WAY_OUT: Final = (
    f"to take one side, merge the table with the mode 'force' (the source's) or 'drop' (the target's); {REDO}"
)


Extend: TypeAlias = Callable[[Table, DeltaTable, BranchLog], BranchLog]
"""Whether a line of a table may get versions, and the line as they go on from it: it raises if not."""


class NextVersionBuilder:
    """The versions that net changes become, on top of a line."""

    def __init__(
        self,
        table: Table,
        commits: CommitReader,
        content: DeltaTable,
        line: BranchLog,
        now_ms: int,
        extend: Extend,
        told: Mapping[str, Any],
        blobs: Blobs | None = None,
    ) -> None:
        self._blobs: Blobs = dict(blobs or {})
        self._table, self._commits = add_unstored_blobs(table, self._blobs), commits
        self._content, self._line, self._now_ms, self._told = content, line, now_ms, told
        self._extend = extend

    def append_all(self, nets: Iterable[NetChange], prepared: PreparedTable | None = None) -> AppliedChange:
        """The table with all of them."""
        if prepared is None:
            content = replace_branch_log(self._content, self._line)
            prepared = PreparedTable(
                self._table, self._commits, content, choose_removal_time(self._table, self._now_ms)
            )
        for net in nets:
            self._ratify_net_change(net, prepared)
        return AppliedChange(replace_branch_log(self._content, self._line), self._blobs)

    def _ratify_net_change(self, net: NetChange, prepared: PreparedTable) -> None:
        line, table = self._line, self._table
        old_declared = None if line.latest < 0 else read_declared(table, line.declared)
        if net.may_be_there:
            net = net.drop_files(_find_present_files(net, prepared))
        actions = self._make_actions(net, old_declared, prepared)
        # A replacement that finds nothing to remove is a version nevertheless: it must not be done again.
        if not actions and not net.replacements and not net.undone:
            return
        if is_too_long(net.replacements) or is_too_long(net.undone):
            raise FormatRefused(
                "was overwritten too many times on the other side for one merge; merge fewer commits at once"
            )
        line = self._extend(table, self._content, line)
        time_ms = max(self._now_ms, line.timestamp_ms + 1)
        info = name_replacements(self._make_commit_info(net, actions), net.replacements, net.undone)
        before = LintState(
            version=line.latest,
            protocol=None if old_declared is None else old_declared.protocol,
            metadata=None if old_declared is None else old_declared.metadata,
            timestamp_ms=None if old_declared is None else line.timestamp_ms,
            live=prepared.find_active_files,
        )
        # What comes back to a clone, or is brought to it, was in it before.
        rules = LintRules(absolute_paths=True)
        problems = check_commit(enumerate((info.with_timestamp(time_ms), *actions), 1), before, rules)
        if problems:
            shown = "; ".join(problem.reason for problem in problems[:_SHOWN])
            more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise FormatRefused(f"cannot get the changes of the other side: {shown}{more}; {WAY_OUT}")
        self._check_numbered(actions, old_declared, prepared)
        actions, highest = self._assign_row_ids(actions, old_declared, line)
        composed = compose_commit(
            table,
            self._commits,
            self._content,
            line,
            write_commit(actions),
            net.terms,
            info,
            self._now_ms,
        )
        # What it says of replacements counts for an undo, also where it finds no file to remove or to add.
        is_append = info.is_blind_append is True and not net.replacements and not net.undone
        after, runs = line.append_entry(
            composed.entry,
            self._store_declared(actions, old_declared),
            is_append=is_append,
            may_repeat_files=False,
            highest_row_id=highest,
        )
        self._blobs |= {**composed.blobs, **runs}
        self._line = after
        prepared.append_commit(actions)

    def _assign_row_ids(
        self, actions: list[Action], old_declared: KnownDefinition | None, line: BranchLog
    ) -> tuple[list[Action], int | None]:
        """The actions with ids of rows, and the highest that was given; ``None`` if the table gives none."""
        protocol = find_last_action(actions, Protocol) or (
            None if old_declared is None else old_declared.protocol
        )
        metadata = find_last_action(actions, Metadata) or (
            None if old_declared is None else old_declared.metadata
        )
        if protocol is None or metadata is None or not assigns_row_ids(protocol, metadata):
            return actions, None
        counter = begin_counter(self._table, self._commits, self._content, line)
        numbered = number_files(actions, counter)
        return [*numbered, *counter.marks], counter.highest

    def _check_numbered(
        self, actions: list[Action], old_declared: KnownDefinition | None, prepared: PreparedTable
    ) -> None:
        """``FormatRefused`` if the table comes to track rows, and has files that do not come with ids."""
        metadata = find_last_action(actions, Metadata)
        if old_declared is None or metadata is None:
            return
        if has_row_tracking(old_declared.metadata) or not has_row_tracking(metadata):
            return
        named = {action.key for action in actions if isinstance(action, Add | Remove)}
        files = prepared.files_to_replace(()).files
        missing = [key for key, file in files.items() if file.base_row_id is None and key not in named]
        if missing:
            raise FormatRefused(
                f"would track rows ('{ENABLED}'), but {len(missing)} files that were added on the other "
                f"side have no row ids; enable it on that side first; {WAY_OUT}"
            )

    def _make_commit_info(self, net: NetChange, actions: Iterable[Action]) -> CommitInfo:
        is_blind = net.terms.reads.nothing and net.terms.replaces is None
        fields: dict[str, Any] = {
            **self._told,
            "isBlindAppend": is_blind and not any(isinstance(action, Remove) for action in actions),
            "engineInfo": engine_info(),
            "txnId": str(uuid4()),
        }
        if figures := operation_metrics(MERGED, actions):
            fields[METRICS] = figures
        if fields["operation"] == MERGED and net.operations:
            parameters = {**fields["operationParameters"], OPERATIONS: write_operations(net.operations)}
            fields["operationParameters"] = parameters
        return CommitInfo(fields)

    def _make_actions(
        self, net: NetChange, old_declared: KnownDefinition | None, prepared: PreparedTable
    ) -> list[Action]:
        """What the commit says, as the table is now."""
        time_ms = choose_removal_time(self._table, self._now_ms)
        added = net.there.union(add.key for add in net.adds)
        replaced = () if net.terms.replaces is None else prepared.files_to_replace(net.terms.replaces).removes
        explicit = {remove.key for remove in net.removes}
        # Where this is repeated, nothing else would tell that these files were not to go.
        keys = {remove.key for remove in replaced if remove.key in net.there}
        spared = (add for add in net.spared if add.key in keys)
        return [
            *_state_actions(net, old_declared),
            # From now on a file is not needed, and not from when it was removed on its branch.
            *(msgspec.structs.replace(remove, deletion_timestamp=time_ms) for remove in net.removes),
            *(remove for remove in replaced if remove.key not in added and remove.key not in explicit),
            *net.adds,
            *(msgspec.structs.replace(add, data_change=False) for add in spared),
            *net.feed,
        ]

    def _store_declared(
        self, actions: Iterable[Action], old_declared: KnownDefinition | None
    ) -> ObjectId | None:
        protocol, metadata = find_last_action(actions, Protocol), find_last_action(actions, Metadata)
        if protocol is None and metadata is None:
            return None
        before = (
            TableDefinition(b"", b"")
            if old_declared is None
            else read_table_definition(self._line, self._table.read)
        )
        object_id, data = encode_object(
            TableDefinition(
                protocol=before.protocol if protocol is None else write_action(protocol),
                metadata=before.metadata if metadata is None else write_action(metadata),
            )
        )
        self._blobs[object_id] = data
        return object_id


def _find_present_files(net: NetChange, prepared: PreparedTable) -> frozenset[FileKey]:
    """The files that a net change adds with new rows, and that are there already as it adds them."""
    keys = [add.key for add in net.adds if add.data_change]
    live = prepared.find_active_files([key.path for key in keys]) if keys else {}
    return frozenset(key for key in keys if key in live.items())


def _state_actions(net: NetChange, old_declared: KnownDefinition | None) -> list[Action]:
    """What a net change says of the table as a whole, where that is not so already.

    With metadata comes the protocol that it needs: the branch may be older than the rule that it must.
    """
    adds = [
        add
        for add in net.state
        if old_declared is None or add not in (old_declared.protocol, old_declared.metadata)
    ]
    protocol, metadata = find_last_action(adds, Protocol), find_last_action(adds, Metadata)
    had = protocol if protocol is not None or old_declared is None else old_declared.protocol
    if metadata is None or had is None:
        return adds
    try:
        needed = complete_protocol(had, metadata)
    except MalformedAction:  # which the check of the commit will tell
        return adds
    return adds if needed == had else [needed, *(add for add in adds if add is not protocol)]


def add_unstored_blobs(table: Table, blobs: Blobs) -> Table:
    """A table that also reads objects which are not stored yet."""
    return msgspec.structs.replace(table, read=make_object_reader(table.read, blobs))


def choose_removal_time(table: Table, now_ms: int) -> int:
    """One time for all that a request removes, so that it writes the same lines however often it is tried."""
    noted: int = table.notes.setdefault(("delta stamp",), now_ms)
    return noted


_SHOWN: Final = 3
