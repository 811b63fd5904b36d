"""How Delta tables merge, are restored and reverted: two lines of one table become one.

One side's line stays and gets one version more, with the net change of the other. On the default branch its
own line stays, since its log is public and only grows. On other branches the line stays that goes along with
the default branch further: so a branch is always a part of the default branch's line and a tail of its own.

The net change is held against what the other side committed meanwhile, by the rules for any transaction that
was overtaken, and checked like any other commit before it is ratified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.formats.delta.branch_log.branch_log import (
    Blobs,
    BranchLog,
    BranchLogTip,
    OwnershipPhase,
    TableDefinition,
    decode_branch_log,
    encode_object,
    replace_branch_log,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import files_before, list_brought_files
from penstock.formats.delta.branch_log.later_versions import MERGE_INFO, RESTORED
from penstock.formats.delta.branch_log.merge_conflict import NetChangeConflict
from penstock.formats.delta.branch_log.net_change import (
    RESTORE,
    NetChange,
    NetStep,
    copy_terms,
    fold_all,
    fold_steps,
)
from penstock.formats.delta.branch_log.next_versions import (
    REDO,
    WAY_OUT,
    Extend,
    NextVersionBuilder,
    add_unstored_blobs,
    choose_removal_time,
)
from penstock.formats.delta.branch_log.ownership import PROTECTED
from penstock.formats.delta.branch_log.prepared_table import (
    PreparedTable,
    find_parting_version,
    find_undone_replacements,
    make_lookup_at_version,
    note_table_state,
    read_steps,
    replacements_since,
)
from penstock.formats.delta.branch_log.ratification import KnownDefinition, read_declared
from penstock.formats.delta.branch_log.row_id_transfer import find_first_mark, transfer_row_ids
from penstock.formats.delta.branch_log.state_difference import StateDifference, unite_protocols
from penstock.formats.delta.branch_log.undo import redo_change, undo_change
from penstock.formats.delta.branch_log.unmerged_commits import (
    drop_repeated_files,
    drop_repeated_replacements,
    find_files_of_known_replacements,
    has_inline_vector,
    select_unmerged,
    wrote_only_files,
)
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    write_action,
)
from penstock.formats.delta.protocol.added_columns import can_hold_files, merge_metadata, missing_columns
from penstock.formats.delta.protocol.column_mapping import (
    MAX_ID,
    collect_column_ids,
    get_max_column_id,
    has_ids_in_files,
    renamed_partitions,
)
from penstock.formats.delta.protocol.column_rules import added_constraints, keep_marks
from penstock.formats.delta.protocol.conflicts import DeltaConflict, rebase_transaction
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.transaction import (
    DeltaIsolation,
    DeltaTransaction,
    WinningCommit,
    choose_isolation,
    find_last_action,
    table_isolation,
)
from penstock.kernel.format import AppliedChange, FormatRefused, LaterCommitLookup, Table
from penstock.model.nessie import DeltaTable

_SHOWN: Final = 3
"""How many columns are told."""


def merge_table(
    table: Table,
    commits: CommitReader,
    base: DeltaTable | None,
    source: DeltaTable | None,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """The table after a source's changes since a base; ``extend`` is asked before a line gets versions.

    ``FormatRefused`` if they do not go with what the table is now, ``PrepareAgain`` if that cannot be told
    without table storage.
    """
    target = _require_managed(table)
    if source is None:
        return _drop_table(table, target, base)
    _check_phase(source, "on the other side ")
    if target is None:
        return _take_new_table(table, commits, base, source, now_ms, extend)
    if _is_forked_during_adoption(table, target):
        return AppliedChange(source)
    _check_phase(target)
    _check_same(target, source)
    note_table_state(table, target.location, target)
    lost = ("delta lost", source.location, BranchLogTip.from_line(decode_branch_log(source)))
    try:
        if lost not in table.notes:
            return _TableMerge(table, commits, base, target, source, now_ms, extend).compute_result()
    except VersionNotFound as problem:
        table.notes[lost] = problem.message  # at the turn nobody may look for it again
    raise FormatRefused(
        f"was changed on both sides, and {table.notes[lost]}; to take the target's, merge the table with the"
        f" mode 'drop'; {REDO}"
    )


def restore_table(
    table: Table, commits: CommitReader, after: DeltaTable | None, now_ms: int, extend: Extend
) -> AppliedChange:
    """The table in a wanted state, by a new version: a log does not go back. Raises as ``merge_table``."""
    target = _require_managed(table)
    before = table.last if target is None and isinstance(table.last, DeltaTable) else target
    is_left_behind = before is not None and _is_forked_during_adoption(table, before)
    if target is not None and not is_left_behind:
        _check_phase(target)
    if after is None:
        return AppliedChange(None)
    if before is None or is_left_behind:
        _check_phase(after, "on the other side ")
        return (
            AppliedChange(after)
            if is_left_behind
            else _take_new_table(table, commits, None, after, now_ms, extend)
        )
    if target is None:
        _check_phase(before)
        target = replace_branch_log(before, decode_branch_log(before))
    _check_same(target, after)
    line, tip = decode_branch_log(target), BranchLogTip.from_line(decode_branch_log(after))
    if BranchLogTip.from_line(line) == tip:
        return AppliedChange(target)
    if not table.is_default and BranchLogTip.from_line(line).is_on(decode_branch_log(after), table.read):
        _check_phase(after, "on the other side ")
        return AppliedChange(after)
    note_table_state(table, target.location, target)
    standing = PreparedTable(table, commits, target, choose_removal_time(table, now_ms))
    difference = standing.compute_difference_to(after)
    # What the difference goes by need not be looked up again in all files of the table.
    standing.note_files(line.latest, difference.files_before)
    is_now = read_declared(table, line.declared)
    for then, name in renamed_partitions(difference.metadata, is_now.metadata):
        raise FormatRefused(
            f"was partitioned by the column '{then}' at that version; the column is called '{name}' now, "
            "and cannot be renamed back, because newer commits use the new name"
        )
    difference = msgspec.structs.replace(
        difference, metadata=_replace_owner(difference.metadata, is_now.metadata)
    )
    net = difference.make_net_change(is_now.protocol, is_now.metadata, with_batches=False)
    net = msgspec.structs.replace(
        net,
        replacements=replacements_since(table, commits, line, after),
        undone=find_undone_replacements(table, commits, target, after),
    )
    net = transfer_row_ids(table, commits, target, after, net)
    info_fields = {"operation": RESTORE, "operationParameters": {RESTORED: str(tip.version)}}
    return NextVersionBuilder(table, commits, target, line, now_ms, extend, info_fields).append_all(
        [net], standing
    )


def _replace_owner(metadata: Metadata, now: Metadata) -> Metadata:
    """Metadata of an earlier state, with the owner that the table has: it may have had another, or none."""
    configuration = {name: text for name, text in metadata.configuration.items() if name not in PROTECTED}
    owner = {name: text for name, text in now.configuration.items() if name in PROTECTED}
    if get_max_column_id(now) > get_max_column_id(metadata):  # ids of columns are never given again
        owner[MAX_ID] = str(get_max_column_id(now))
    return keep_marks(msgspec.structs.replace(metadata, configuration={**configuration, **owner}), now)


def restore_version(
    table: Table, commits: CommitReader, version: int, now_ms: int, extend: Extend
) -> AppliedChange:
    """The table at an earlier version of its line. Raises as ``restore_table``, and ``VersionNotFound``."""
    target = _require_managed(table)
    assert target is not None, "or it has no versions"
    line = decode_branch_log(target)
    if not 0 <= version <= line.latest:
        raise VersionNotFound(
            f"'{table.key}' has no version {version}; the newest one is {line.latest}",
            table=str(table.key),
            version=version,
        )
    wanted_line = replace_branch_log(target, line.truncate_at_version(version, table.read))
    return restore_table(table, commits, wanted_line, now_ms, extend)


def revert_table(
    table: Table,
    commits: CommitReader,
    committed: DeltaTable | None,
    previous: DeltaTable | None,
    since: LaterCommitLookup,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """The table without what made ``committed`` of ``previous``, whatever came later. As ``merge_table``.

    A table that came then goes, and one that went comes back.
    """
    target = _require_managed(table)
    if committed is None:
        return _restore_dropped(table, commits, target, previous, since, now_ms, extend)
    if previous is None:
        return _undo_creation(table, commits, target, committed, since)
    if target is None:
        raise FormatRefused(
            "was dropped or renamed after the commit to be reverted; revert the commit that did so "
            "first, or leave it with the mode 'drop' (drops the change, not the table)"
        )
    _check_phase(target)
    if not target.id == committed.id == previous.id:
        raise FormatRefused(
            f"is a different table now ({target.location}){_describe_creator(since, target)}; drop or "
            "rename that one and revert again, or leave it as it is with the mode 'drop' (drops the "
            "change, not the table)"
        )
    return undo_change(table, commits, target, committed, previous, since, now_ms, extend)


def _restore_dropped(
    table: Table,
    commits: CommitReader,
    target: DeltaTable | None,
    after: DeltaTable | None,
    since: LaterCommitLookup,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """A table that was dropped, back as it was."""
    if target is not None and (after is None or target.id == after.id):
        return AppliedChange(target)
    if target is not None:
        raise FormatRefused(
            "was dropped by this commit, and another table was created with this name since "
            f"({target.location}){_describe_creator(since, target)}; drop or rename that one and revert "
            "again, or leave it as it is with the mode 'drop' (drops the change, not the table)"
        )
    return restore_table(table, commits, after, now_ms, extend)


def _undo_creation(
    table: Table,
    commits: CommitReader,
    target: DeltaTable | None,
    before: DeltaTable,
    since: LaterCommitLookup,
) -> AppliedChange:
    """No table where the commit made one, if it is still as it was made."""
    if target is None or _is_forked_during_adoption(table, target):
        return AppliedChange(None)
    _check_phase(target)
    if target.id == before.id and _is_as(table, commits, target, before):
        return AppliedChange(None)
    later_commits = [commit.describe() for commit in since.commits if not commit.is_parallel]
    more = f" and {len(later_commits) - _SHOWN} more" if len(later_commits) > _SHOWN else ""
    by = f" ({', '.join(later_commits[:_SHOWN])}{more})" if later_commits else ""
    raise FormatRefused(
        f"was created by this commit, and written to since{by}; revert those first, or use the mode "
        "'force', which drops the table with all its rows, or the mode 'drop', which leaves it as it is",
        expected=f"version {decode_branch_log(before).latest}",
        found=f"version {decode_branch_log(target).latest}",
        found_version=decode_branch_log(target).latest,
    )


def _is_as(table: Table, commits: CommitReader, target: DeltaTable, before: DeltaTable) -> bool:
    """Whether a table is in a state that it had before, because all that came since was undone."""
    line, then = decode_branch_log(target), decode_branch_log(before)
    if BranchLogTip.from_line(line) == BranchLogTip.from_line(then):
        return True
    lost = ("delta lost", target.location, BranchLogTip.from_line(line))
    if lost in table.notes or not BranchLogTip.from_line(then).is_on(line, table.read):
        return False
    metadata = read_declared(table, line.declared).metadata
    if metadata != read_declared(table, then.declared).metadata:
        return False
    try:
        since = read_steps(table, commits, target, then.latest, line.latest)
    except VersionNotFound as problem:
        table.notes[lost] = problem.message
        return False
    net = fold_all(since, metadata.schema_string)
    is_all_there = not net.removes and not net.doubtful and net.terms.replaces is None
    return is_all_there and all(not add.data_change for add in net.adds)


def _describe_creator(since: LaterCommitLookup, target: DeltaTable) -> str:
    """The commit that brought another table to a key."""
    for commit in since.commits:
        had = {None if content is None else content.id for content in commit.before}
        if commit.after is not None and commit.after.id == target.id and target.id not in had:
            return f" by {commit.describe()}"
    return ""


# --- one side has no table --------------------------------------------------------------------------------


def _drop_table(table: Table, target: DeltaTable | None, base: DeltaTable | None) -> AppliedChange:
    """The source has dropped the table, or given it another name."""
    if target is None or _is_forked_during_adoption(table, target):
        return AppliedChange(None)
    _check_phase(target)
    if (
        base is None
        or base.id != target.id
        or BranchLogTip.from_line(decode_branch_log(base))
        != BranchLogTip.from_line(decode_branch_log(target))
    ):
        since_version = "" if base is None else f" since version {decode_branch_log(base).latest}"
        raise FormatRefused(
            f"was dropped or renamed on the other side, and is at version {decode_branch_log(target).latest} "
            f"here, changed{since_version}; drop or rename it here too, or keep it with the mode 'drop' "
            "(drops the change, not the table)"
        )
    return AppliedChange(None)


def _take_new_table(
    table: Table,
    commits: CommitReader,
    base: DeltaTable | None,
    source: DeltaTable,
    now_ms: int,
    extend: Extend,
) -> AppliedChange:
    """The source has a table that is not here."""
    line = decode_branch_log(source)
    if base is not None and base.id == source.id:
        if BranchLogTip.from_line(decode_branch_log(base)) == BranchLogTip.from_line(line):
            return AppliedChange(None)
        raise FormatRefused(
            "was dropped or renamed here, and changed on the other side: "
            f"version {decode_branch_log(base).latest} has become {line.latest} there; "
            "bring it back with the mode 'force', or leave it with 'drop'"
        )
    if isinstance(table.last, DeltaTable):
        return restore_table(table, commits, source, now_ms, extend)
    if not table.is_default or line.tail is None:
        return AppliedChange(source)
    schema_string = read_declared(table, line.declared).metadata.schema_string
    since = read_steps(table, commits, source, line.fork_version, line.latest)
    first_mark = find_first_mark(source, since)
    nets = [_resolve_doubtful_files(table, commits, source, net) for net in fold_steps(since, schema_string)]
    start, blobs = _cut_line_at_fork(table, commits, source)
    seeing = add_unstored_blobs(table, blobs)
    note_table_state(
        seeing, source.location, None if line.fork_version < 0 else replace_branch_log(source, start)
    )
    nets = [transfer_row_ids(seeing, commits, replace_branch_log(source, start), source, net) for net in nets]
    if first_mark is not None:
        start = msgspec.structs.replace(start, highest_row_id=first_mark)
    return NextVersionBuilder(seeing, commits, source, start, now_ms, extend, MERGE_INFO, blobs).append_all(
        nets
    )


def _cut_line_at_fork(table: Table, commits: CommitReader, content: DeltaTable) -> tuple[BranchLog, Blobs]:
    """The part of a line that is the default branch's, and the objects that it takes to keep it."""
    line = decode_branch_log(content)
    fork = line.fork_version
    published = min(line.published, fork)
    part = msgspec.structs.replace(
        line,
        published=published,
        latest=published,
        timestamp_ms=-1,
        tail=None,
        entries=(),
        runs=(),
        changes=None,
        repeats=None,
        highest_row_id=None,
    )
    if fork < 0:
        return part, {}

    def read_fork() -> tuple[int, TableDefinition]:
        snapshot = commits.read_snapshot(content, table.read, fork)
        info = commits.read_commit_info(table, content.location, fork, line.find_entry(fork, table.read))
        time_ms = None if info is None else info.in_commit_timestamp
        return time_ms or 0, TableDefinition(write_action(snapshot.protocol), write_action(snapshot.metadata))

    time_ms, declared = table.read_once(
        ("delta fork", content.location, BranchLogTip.from_line(line)), read_fork
    )
    object_id, data = encode_object(declared)
    blobs = {object_id: data}
    for _, entry in line.read_entries_after(published, table.read):
        if part.latest < fork:
            part, runs = part.append_entry(entry)
            blobs |= runs
    return msgspec.structs.replace(part, timestamp_ms=time_ms, declared=object_id), blobs


# --- both sides have it -----------------------------------------------------------------------------------


class _IncomingChange(NamedTuple):
    """What a side is to bring to the other one."""

    since: int
    """The version of its line after which its commits are to be brought."""
    nets: tuple[NetChange, ...]
    """What these come to, one for each version that they become."""
    commits: list[NetStep]
    known_to_both: list[NetStep]
    """Its commits since the lines parted that the other side has by an earlier merge."""


class _TableMerge:
    """Two lines of a table, and where they parted."""

    def __init__(
        self,
        table: Table,
        commits: CommitReader,
        base: DeltaTable | None,
        target: DeltaTable,
        source: DeltaTable,
        now_ms: int,
        extend: Extend,
    ) -> None:
        self._table, self._commits, self._now_ms, self._extend = table, commits, now_ms, extend
        self._base = base if base is not None and base.id == target.id else None
        self._base_tip = (
            BranchLogTip(-1, b"")
            if self._base is None
            else BranchLogTip.from_line(decode_branch_log(self._base))
        )
        self._target, self._source = target, source

    def compute_result(self) -> AppliedChange:
        target, source = decode_branch_log(self._target), decode_branch_log(self._source)
        read = self._table.read
        if self._table.since is not None:
            return self._redo_undone()
        if BranchLogTip.from_line(source).is_on(target, read):
            return self._redo_undone() if self._table.is_repeated else AppliedChange(self._target)
        if self._table.brings_undone and (was_here := self._is_change_present()) is not None:
            return self._redo_undone(was_here=was_here)
        may_take = not self._table.is_default and self._base_tip.is_on(target, read)
        # Of a commit that is repeated nothing but its own change may come, on top of all that is here.
        is_repeated = self._table.is_repeated
        if is_repeated and self._base_tip != BranchLogTip.from_line(target):
            may_take = False
        if may_take and BranchLogTip.from_line(target).is_on(source, read):
            return AppliedChange(self._source)
        if may_take and not is_repeated and source.fork_version > target.fork_version:
            return self._append_net_change(self._source, self._target)
        return self._append_net_change(self._target, self._source)

    def _is_change_present(self) -> bool | None:
        """Whether this branch has, or had, a transplanted commit by another transplant or by a merge:
        all files that it added. ``False`` if it only brings back files that others removed, and they never
        came back here; ``None`` if the commit is new."""
        table, source = self._table, decode_branch_log(self._source)
        if not self._base_tip.is_on(source, table.read):
            return None
        brought = read_steps(table, self._commits, self._source, self._base_tip.version, source.latest)
        files = _count_brought(brought)
        if not files:
            return None
        line = decode_branch_log(self._target)
        parted = find_parting_version(line, source, table.read)
        earlier = read_steps(table, self._commits, self._source, parted, self._base_tip.version)
        own = read_steps(table, self._commits, self._target, parted, line.latest)
        here = _count_brought(own)
        added, removed = _count_brought(earlier), _removed_files(earlier)
        # A file that went before it was added was there when the lines parted, and so here, too.
        came_back = files.keys() <= removed and files.keys() <= here.keys() | (removed - added.keys())
        if came_back:
            return all(here[key] >= added[key] + files[key] for key in files)
        is_named = not all(map(has_inline_vector, _added_files(brought, files)))
        # An inline vector may be that of another commit, which has put the rows into another file.
        if not is_named and not wrote_only_files(own, files.keys(), added.keys()):
            return None
        return True if files.keys() <= here.keys() else None

    def _redo_undone(self, *, was_here: bool = True) -> AppliedChange:
        """A commit that is repeated where it is already: once more, if it was undone since."""
        if self._base is None:
            return AppliedChange(self._target)
        return redo_change(
            self._table,
            self._commits,
            self._target,
            self._base,
            self._source,
            self._table.since,
            self._now_ms,
            self._extend,
            was_here=was_here,
        )

    def _append_net_change(self, onto: DeltaTable, source: DeltaTable) -> AppliedChange:
        """The line of ``onto``, with the net change of ``source`` as its next version."""
        line = decode_branch_log(onto)
        parted = find_parting_version(line, decode_branch_log(source), self._table.read)
        incoming = self._find_net_changes(onto, source, parted)
        since = incoming.since
        after = max(parted, self._base_tip.version if self._base_tip.is_on(line, self._table.read) else -1)
        standing = PreparedTable(
            self._table, self._commits, onto, choose_removal_time(self._table, self._now_ms)
        )
        own: list[NetStep] = []
        if since == parted:  # else more commits would have to be read than the table's files
            own = read_steps(self._table, self._commits, source, parted, decode_branch_log(source).latest)
            standing.note_files(parted, files_before(own))
        landing = []
        written = self._metadata_writers_read(source)
        for net in incoming.nets:
            net = _resolve_doubtful_files(self._table, self._commits, source, net)
            written = find_last_action(net.state, Metadata) or written
            if find_last_action(net.state, Metadata) is not None:
                self._check_column_ids(onto, source, parted, after)
            try:
                landing.append(self._check_conflicts(onto, after, net, incoming))
            except NetChangeConflict as clash:
                raise clash.refusal(net, own, is_here=onto is self._target) from None
            self._check_columns(onto, landing[-1], written)
        landing = [transfer_row_ids(self._table, self._commits, onto, source, net) for net in landing]
        return NextVersionBuilder(
            self._table, self._commits, onto, line, self._now_ms, self._extend, MERGE_INFO
        ).append_all(landing, standing)

    def _find_net_changes(self, stays: DeltaTable, comes: DeltaTable, parted: int) -> _IncomingChange:
        """What one side is to bring to the other."""
        line = decode_branch_log(comes)
        schema_string = read_declared(self._table, line.declared).metadata.schema_string
        known_to_both: list[NetStep] = []

        def read_theirs() -> Sequence[NetStep]:
            return read_steps(self._table, self._commits, stays, parted, decode_branch_log(stays).latest)

        if self._base_tip.is_on(line, self._table.read):
            since = max(parted, self._base_tip.version)
            brought = unrepeated_steps = read_steps(self._table, self._commits, comes, since, line.latest)
            if any(step.terms.replaces is not None for step in brought):
                unrepeated_steps, known_to_both = drop_repeated_replacements(
                    read_theirs(), brought, schema_string
                )
            unrepeated_steps, repeated = drop_repeated_files(read_theirs, unrepeated_steps)
            known_to_both += repeated + read_steps(self._table, self._commits, comes, parted, since)
            return _IncomingChange(since, fold_steps(unrepeated_steps, schema_string), brought, known_to_both)
        base = self._base
        assert base is not None  # nothing is on every line

        def read_difference() -> StateDifference:
            before, after = (
                self._commits.read_snapshot(content, self._table.read) for content in (base, comes)
            )
            return StateDifference.compare_snapshots(
                before, after, choose_removal_time(self._table, self._now_ms)
            )

        key = ("delta difference", comes.location, self._base_tip, BranchLogTip.from_line(line))
        old_declared = read_declared(self._table, decode_branch_log(base).declared)
        net = self._table.read_once(key, read_difference).make_net_change(
            old_declared.protocol, old_declared.metadata, with_batches=True
        )
        own = read_steps(self._table, self._commits, comes, parted, line.latest)
        unrepeated = drop_repeated_replacements(read_theirs(), own, schema_string)
        net = copy_terms(net, fold_all(unrepeated.steps, schema_string))
        # What both sides have got is not brought; if it went on this one since, it goes.
        net = net.drop_files(
            find_files_of_known_replacements(unrepeated).difference(remove.key for remove in net.removes)
        )
        gone, repeated = drop_repeated_files(read_theirs, own)
        net = _add_removes_of_repeated_commits(net, gone, repeated)
        # What the base has had is not a part of the difference, and does not come with it.
        before = {
            replacement.id
            for replacement in replacements_since(self._table, self._commits, decode_branch_log(stays), base)
        }
        brought_ids = tuple(replacement for replacement in net.replacements if replacement.id not in before)
        net = msgspec.structs.replace(net, replacements=brought_ids)
        return _IncomingChange(self._base_tip.version, (net,), own, [*unrepeated.known, *repeated])

    def _check_conflicts(
        self, stays: DeltaTable, after: int, net: NetChange, incoming: _IncomingChange
    ) -> NetChange:
        """The net change, checked against what the other side has committed since. ``NetChangeConflict`` if
        they conflict."""
        line, table = decode_branch_log(stays), self._table
        if not net.actions and net.terms.replaces is None:
            return net
        theirs = read_steps(table, self._commits, stays, after, line.latest)
        net = self._with_added_columns(net, read_declared(table, line.declared))
        live_before = make_lookup_at_version(table, self._commits, stays, after)
        unmerged = select_unmerged(theirs, incoming.known_to_both, net, live_before, incoming.commits)
        net = net.drop_files(unmerged.shared)
        known_before = self._definition_before_changes(stays, after, theirs, unmerged.winners)
        transaction = DeltaTransaction(
            read_version=incoming.since,
            protocol=known_before.protocol,
            metadata=known_before.metadata,
            isolation=DeltaIsolation.SERIALIZABLE if net.is_strict else _choose_isolation(known_before, net),
            actions=net.actions,
            reads=net.terms.reads,
        )
        outcome = rebase_transaction(
            [WinningCommit(step.version, step.actions) for step in unmerged.winners], transaction
        )
        if isinstance(outcome, DeltaConflict):
            raise NetChangeConflict(
                outcome, next(winner for winner in unmerged.winners if winner.version == outcome.winner)
            )
        return net

    def _check_column_ids(self, stays: DeltaTable, comes: DeltaTable, parted: int, after: int) -> None:
        """``FormatRefused`` if both sides gave an id to a new column, and readers of files go by ids.

        A column counts that is gone by now: files of its side may hold its values.
        """
        is_on = self._base_tip.is_on(decode_branch_log(comes), self._table.read)
        since = max(parted, self._base_tip.version) if is_on else parted
        ids_here, ids_there = (
            self._collect_column_ids_since(stays, after),
            self._collect_column_ids_since(comes, since),
        )
        for number in sorted(ids_here.keys() & ids_there.keys()):
            if ids_here[number] != ids_there[number]:
                raise FormatRefused(
                    "got a new column on both sides, and both columns have the column mapping id "
                    f"{number}, by which readers find them in files; {WAY_OUT}"
                )

    def _collect_column_ids_since(self, content: DeltaTable, version: int) -> dict[int, str]:
        """The ids of all columns that a table has had since a version of its line, if readers go by them."""
        line = decode_branch_log(content)
        ids: dict[int, str] = {}
        if has_ids_in_files(read_declared(self._table, line.declared).metadata):
            for step in read_steps(self._table, self._commits, content, version, line.latest):
                for action in step.actions:
                    if isinstance(action, Metadata):
                        ids |= collect_column_ids(action)
        return ids

    def _metadata_writers_read(self, comes: DeltaTable) -> Metadata | None:
        """What the table was to the writers of the commits that come, as far as these do not change it."""
        if self._base is None:
            return None
        is_on = self._base_tip.is_on(decode_branch_log(comes), self._table.read)
        return read_declared(self._table, decode_branch_log(self._base if is_on else comes).declared).metadata

    def _check_columns(self, stays: DeltaTable, net: NetChange, written: Metadata | None) -> None:
        """``FormatRefused`` if the files that come have columns that are not there where they land.

        So it is where a commit is repeated without the one that added the columns: nobody would see them.
        """
        lands = (
            find_last_action(net.state, Metadata)
            or read_declared(self._table, decode_branch_log(stays).declared).metadata
        )
        if not net.adds or written is None:
            return
        for constraint in added_constraints(written, lands):
            raise FormatRefused(
                f"has {constraint}, and the rows to be merged were not checked against it; include the "
                f"commits that changed the constraints; {WAY_OUT}"
            )
        if can_hold_files(lands.schema_string, written.schema_string):
            return
        names = missing_columns(lands.schema_string, written.schema_string)
        shown_names = ", ".join(f"'{name}'" for name in names[:_SHOWN]) or "others"
        raise FormatRefused(
            f"lacks columns of the rows to be merged: {shown_names}; include the commits that changed the "
            f"columns; {WAY_OUT}"
        )

    def _definition_before_changes(
        self, stays: DeltaTable, after: int, theirs: Sequence[NetStep], winners: Sequence[NetStep]
    ) -> KnownDefinition:
        """What the table was to the line that stays, before it was changed there in a way that is news."""
        if not any(_changes_metadata(step) for step in winners):
            return read_declared(self._table, decode_branch_log(stays).declared)
        declared = self._definition_at_version(stays, after)
        for step, winner in zip(theirs, winners, strict=True):
            if _changes_metadata(winner):
                break
            protocol, metadata = (
                find_last_action(step.actions, Protocol),
                find_last_action(step.actions, Metadata),
            )
            declared = KnownDefinition(protocol or declared.protocol, metadata or declared.metadata)
        return declared

    def _definition_at_version(self, stays: DeltaTable, version: int) -> KnownDefinition:
        """What the table was at a version of the line that stays."""
        line = decode_branch_log(stays)
        if version < 0 or version == line.latest:
            return read_declared(self._table, line.declared)
        tip = self._base_tip
        if self._base is not None and tip.version == version and tip.is_on(line, self._table.read):
            return read_declared(self._table, decode_branch_log(self._base).declared)

        def read_definition() -> KnownDefinition:
            snapshot = self._commits.read_snapshot(stays, self._table.read, version)
            return KnownDefinition(snapshot.protocol, snapshot.metadata)

        at = BranchLogTip.from_line_version(
            line, version, self._table.read
        )  # whatever the line's end is by now
        return self._table.read_once(("delta known", stays.location, at), read_definition)

    def _with_added_columns(self, net: NetChange, now: KnownDefinition) -> NetChange:
        """A net change whose metadata and protocol say also what the other side has added meanwhile; without
        them, if the other side has it all."""
        declared_before = (
            now if self._base is None else read_declared(self._table, decode_branch_log(self._base).declared)
        )
        state: list[Action] = []
        for action in net.state:
            if isinstance(action, Metadata):
                action = merge_metadata(declared_before.metadata, now.metadata, action) or action
            elif isinstance(action, Protocol) and supported_features(
                declared_before.protocol
            ) <= supported_features(action):
                action = unite_protocols(now.protocol, action)
            if action not in (now.metadata, now.protocol):
                state.append(action)
        return msgspec.structs.replace(net, state=tuple(state))


def _resolve_doubtful_files(
    table: Table, commits: CommitReader, comes: DeltaTable, net: NetChange
) -> NetChange:
    """The net change, with doubtful files resolved by looking up which files were live before."""
    paths = net.doubtful_paths
    return (
        net.resolve_doubtful_files(make_lookup_at_version(table, commits, comes, net.after)(paths))
        if paths
        else net
    )


def _add_removes_of_repeated_commits(
    net: NetChange, own: Sequence[NetStep], repeated: Sequence[NetStep]
) -> NetChange:
    """A difference that tells also what became of files of commits that both sides have: those which came go,
    as they are not a part of it, and those which went do not go once more."""
    passing = {action.key for step in repeated for action in step.actions if isinstance(action, Add)}
    went = frozenset(_removed_files(repeated))
    removes = {
        action.key: action
        for step in own
        for action in step.actions
        if isinstance(action, Remove) and action.key in passing
    }
    net = net.drop_files(went)
    return msgspec.structs.replace(net, removes=(*net.removes, *removes.values()))


def _count_brought(steps: Sequence[NetStep]) -> Counter[FileKey]:
    """The files that commits brought, and how often."""
    return Counter(key for step in steps for key in list_brought_files(step))


def _added_files(steps: Sequence[NetStep], keys: Collection[FileKey]) -> Iterator[Add]:
    return (
        action for step in steps for action in step.actions if isinstance(action, Add) and action.key in keys
    )


def _removed_files(steps: Sequence[NetStep]) -> set[FileKey]:
    return {action.key for step in steps for action in step.actions if isinstance(action, Remove)}


def _changes_metadata(step: NetStep) -> bool:
    """Whether a commit says what the table is."""
    return any(isinstance(action, Metadata | Protocol) for action in step.actions)


def _choose_isolation(proposal: KnownDefinition, net: NetChange) -> DeltaIsolation:
    return choose_isolation(
        table_isolation(proposal.metadata), net.actions, operation_changes_data=net.terms.changes_data
    )


def _require_managed(table: Table) -> DeltaTable | None:
    content = table.content
    if content is None or (isinstance(content, DeltaTable) and content.state):
        return content
    raise FormatRefused(
        "is not a table of the lake here, but is one on the other side; rename one of them, or keep this "
        "one with the mode 'drop' (drops the change, not the table)"
    )


def _check_same(target: DeltaTable, source: DeltaTable) -> None:
    if target.id != source.id and target.location == source.location:
        raise FormatRefused(
            f"was released and adopted again since ({target.location}), so the two sides have no common "
            "history; keep this one with the mode 'drop' (drops the change, not the table), create a new "
            "branch, and write the changes of the other side there again"
        )
    if target.id != source.id or target.location != source.location:
        raise FormatRefused(
            f"is another table here ({target.location}) than on the other side ({source.location}); "
            "rename one of them, or keep this one with the mode 'drop' (drops the change, not the table)"
        )


def _is_forked_during_adoption(table: Table, target: DeltaTable) -> bool:
    """Whether a branch left while a table was being adopted, and knows nothing of how that ended.

    Nobody can have committed to it there, so that the other side's state, whatever it is, can be taken.
    """
    return not table.is_default and decode_branch_log(target).phase is OwnershipPhase.ADOPTING


def _check_phase(content: DeltaTable, where: str = "") -> None:
    phase = decode_branch_log(content).phase
    if phase is OwnershipPhase.RELEASED:
        raise FormatRefused(
            f"{where}was released from the lake, which no longer commits to it; leave the table out with the "
            "mode 'drop', or, if the lake is to manage it again, adopt the table and append the rows that "
            "the other side has"
        )
    if phase is OwnershipPhase.ADOPTING:
        raise FormatRefused(f"{where}is being adopted, and the outcome is not known yet; try again")
