"""Ratification: whether a proposed commit becomes a version of a table, and as which bytes.

Before its turn a proposal is checked against the table of that moment, and all that this takes is read from
storage. At its turn only what came since is looked at, from memory and from the kernel: nothing for a blind
append, unless the table has become another one. What cannot be decided so goes round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import (
    Blobs,
    BranchLog,
    BranchLogTip,
    TableDefinition,
    decode_branch_log,
    encode_object,
    read_table_definition,
    unpack_declared,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.composed_commit import (
    HELD_MAX_BYTES,
    CommitBody,
    ComposedCommit,
    add_terms_to_info,
    compose_commit,
    encode_commit_info_line,
    limit_terms,
    stage_body,
)
from penstock.formats.delta.branch_log.intents import check_history
from penstock.formats.delta.branch_log.ownership import protected_changes
from penstock.formats.delta.branch_log.proposal import DeltaProposal, refusal_error
from penstock.formats.delta.branch_log.replacements import ReplacedFiles, make_replacements, name_replacements
from penstock.formats.delta.branch_log.row_ids import NumberedCommitLines, begin_counter, number_lines
from penstock.formats.delta.errors import InvalidLog, MalformedAction, VersionNotFound
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
    parse_action,
    write_commit,
)
from penstock.formats.delta.protocol.clustering import CLUSTERING, clustering_columns
from penstock.formats.delta.protocol.column_mapping import find_forbidden_mapping_changes
from penstock.formats.delta.protocol.commit_summary import list_first_names
from penstock.formats.delta.protocol.conflicts import DeltaConflict, check_winner, rebase_transaction
from penstock.formats.delta.protocol.feature_table import ROW_TRACKING
from penstock.formats.delta.protocol.features import find_unwritable_features, supported_features
from penstock.formats.delta.protocol.lint import WHOLE_COMMIT, LintProblem, LintRules, LintState, check_commit
from penstock.formats.delta.protocol.lint_files import VECTORS
from penstock.formats.delta.protocol.row_ids import (
    FileRowIds,
    assigns_row_ids,
    collect_row_ids,
    count_rows,
    get_row_ids,
    has_row_tracking,
    mark_row_ids_preserved,
    number_files,
)
from penstock.formats.delta.protocol.transaction import (
    DeltaReads,
    DeltaTransaction,
    WinningCommit,
    choose_isolation,
    find_last_action,
    table_isolation,
)
from penstock.kernel.format import FormatRefused, PrepareAgain, Table
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable


class KnownDefinition(msgspec.Struct, frozen=True):
    """What a table is."""

    protocol: Protocol
    metadata: Metadata
    is_writable: bool = False
    """Whether it was found to be one that Penstock writes."""


class StagedProposal(msgspec.Struct, frozen=True):
    """Lines of a proposal that were put to storage, with the files replaced that were there then."""

    body: CommitBody
    replaced: ReplacedFiles | None


class CheckedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that may be ratified on top of ``tip``."""

    proposal: DeltaProposal
    tip: BranchLogTip
    declared: ObjectId
    transaction: DeltaTransaction | None = None
    """What it read, brought up to the tip; ``None`` if it read no version."""
    live: dict[str, str | None] | None = None
    """Of the files that it speaks of, those that are in the table."""
    clustering: tuple[tuple[str, ...], ...] = ()
    """The columns of which its files must have statistics, where that is not known of its writer."""
    row_ids: Mapping[str, FileRowIds] = {}
    """The ids of rows of those that are in the table, as far as it keeps any, by decoded paths."""
    unnumbered: Mapping[FileKey, Add] | None = None
    """Where the proposal lets the table track rows, files that have no ids yet: it adds them once more."""
    replaced: ReplacedFiles | None = None
    staged: StagedProposal | None = None
    """Where it is too large to be held."""
    is_done: bool = False
    """The table has its batches already, up to the tip."""

    @property
    def may_repeat_files(self) -> bool:
        """Whether files that it adds may be in the table already."""
        if not self.proposal.may_repeat_files or self.live is None:
            return self.proposal.may_repeat_files
        adds = (action for action in self.proposal.plain_actions if isinstance(action, Add))
        return any(add.key.path in self.live for add in adds)


def check_proposal(
    table: Table, commits: CommitReader, content: DeltaTable, proposal: DeltaProposal, now_ms: int
) -> CheckedProposal:
    """Check a proposal without a version against the table as it is, reading what that takes.

    ``InvalidContent`` if it would break the table, ``FormatRefused`` if it does not go with what others
    committed.
    """
    line, intent = decode_branch_log(content), proposal.intent
    if intent.read_version is None and proposal.raw:
        raise InvalidRequest(
            f"the commit to '{table.key}' changes the table's protocol or metadata: give the version it read"
        )
    looked = intent.reads is not None and intent.reads != DeltaReads()
    if intent.read_version is None and looked:
        raise InvalidRequest(
            f"the commit to '{table.key}' lists what it read, but not at which version: give 'read_version'"
        )
    if intent.read_version is None and intent.read_tip is not None:
        raise InvalidRequest(f"the commit to '{table.key}' has 'read_tip' without 'read_version': give both")
    checked = check_files(table, commits, content, proposal, now_ms)
    if proposal.batches:
        batches = commits.read_snapshot(content, table.read).transactions
        batch_versions = {name: txn.version for name, txn in batches.items()}
        if _is_done(proposal.batches, batch_versions, f"version {line.latest}"):
            return msgspec.structs.replace(checked, is_done=True)
    if intent.read_version is not None:
        transaction = _transaction_on_latest(table, commits, content, line, proposal)
        checked = msgspec.structs.replace(checked, transaction=transaction)
    if intent.replaces is not None:
        replaced = ReplacedFiles.from_snapshot(
            commits.read_snapshot(content, table.read), intent.replaces, now_ms
        )
        checked = msgspec.structs.replace(checked, replaced=replaced)
    lint_proposal(table, line, checked, now_ms)
    staged = _stage_large_parts(table, commits, content, line, checked, now_ms)
    return msgspec.structs.replace(checked, staged=staged)


def _stage_large_parts(
    table: Table,
    commits: CommitReader,
    content: DeltaTable,
    line: BranchLog,
    checked: CheckedProposal,
    now_ms: int,
) -> StagedProposal | None:
    """Put what will be too large for the kernel to storage, while that may be done."""
    terms = limit_terms(checked.proposal.terms)
    numbered = number_rows(table, commits, content, line, checked)
    info = add_terms_to_info(
        name_replacements(commit_info_of(checked.proposal, numbered), make_replacements(terms)), terms
    )
    head = encode_commit_info_line(info, max(now_ms, line.timestamp_ms + 1))
    if len(head) > HELD_MAX_BYTES:
        raise InvalidRequest(
            f"the 'commitInfo' for '{table.key}' has {len(head)} bytes; the limit is "
            f"{HELD_MAX_BYTES}; shorten the message and properties of the commit"
        )
    lines = encode_lines(checked) if numbered is None else numbered.lines
    if isinstance(lines, bytes) and len(head) + len(lines) + _MARGIN_BYTES > HELD_MAX_BYTES:
        return StagedProposal(stage_body(table, commits, content.location, lines), checked.replaced)
    return None


def check_files(
    table: Table, commits: CommitReader, content: DeltaTable, proposal: DeltaProposal, now_ms: int
) -> CheckedProposal:
    """A proposal with what its check needs to know of the table's files, and nothing else looked at.

    ``InvalidContent`` if it has lines that cannot be read, with whatever else is wrong.
    """
    line = decode_branch_log(content)
    checked = CheckedProposal(proposal=proposal, tip=BranchLogTip.from_line(line), declared=line.declared)
    if proposal.problems:
        lint_proposal(table, line, checked, now_ms)
    if proposal.may_repeat_files and CLUSTERING in supported_features(
        read_declared(table, line.declared).protocol
    ):
        domains = commits.read_snapshot(content, table.read).domains
        checked = msgspec.structs.replace(checked, clustering=clustering_columns(domains))
    if proposal.touches_files or _must_look_up_files(table, line, proposal):
        live = dict(commits.make_active_file_lookup(content, table.read)(proposal.paths))
        checked = msgspec.structs.replace(checked, live=live)
    if _begins_row_tracking(read_declared(table, line.declared).metadata, proposal):
        files = commits.read_snapshot(content, table.read).read_files()
        checked = msgspec.structs.replace(
            checked, unnumbered=_find_files_without_row_ids(table, proposal, files)
        )
    row_ids = _row_ids(table, commits, content, proposal, checked.live or {})
    return msgspec.structs.replace(checked, row_ids=row_ids) if row_ids else checked


def _begins_row_tracking(before: Metadata, proposal: DeltaProposal) -> bool:
    after = find_last_action(proposal.plain_actions, Metadata)
    return after is not None and has_row_tracking(after) and not has_row_tracking(before)


def _find_files_without_row_ids(
    table: Table, proposal: DeltaProposal, files: Iterable[Add]
) -> dict[FileKey, Add]:
    """Of some files, those without ids of rows that a proposal leaves in the table.

    ``InvalidContent`` if one does not say how many rows it has.
    """
    other_files = (file for file in files if file.key.path not in proposal.paths)
    unnumbered = {file.key: file for file in other_files if get_row_ids(file) is None}
    uncounted = sorted(key.path for key, file in unnumbered.items() if count_rows(file) is None)
    if uncounted:
        paths = list_first_names(uncounted)
        reason = f"rows cannot be tracked: 'stats' of {paths} do not say how many rows there are"
        raise refusal_error(table.key, [LintProblem(WHOLE_COMMIT, "", reason)])
    return unnumbered


def _must_look_up_files(table: Table, line: BranchLog, proposal: DeltaProposal) -> bool:
    """Whether files that a proposal adds are looked up although it removes nothing.

    One that is in the table with a deletion vector may not be added as a whole: its rows would be there
    twice, the deleted ones among them. One that is there with ids of rows keeps them.
    """
    features = supported_features(read_declared(table, line.declared).protocol)
    return proposal.may_repeat_files and bool(features & {VECTORS, ROW_TRACKING})


def _row_ids(
    table: Table,
    commits: CommitReader,
    content: DeltaTable,
    proposal: DeltaProposal,
    live: Mapping[str, str | None],
) -> dict[str, FileRowIds]:
    """The ids of the files that a proposal speaks of and that are in the table."""
    line = decode_branch_log(content)
    if ROW_TRACKING not in supported_features(read_declared(table, line.declared).protocol):
        return {}
    if not proposal.may_repeat_files:
        # Penstock's own writers remove files as the log has them, and so they add them once more.
        # A branch may have files of the default branch with higher versions than its own.
        by_path = collect_row_ids(proposal.plain_actions)
        return {
            path: ids
            for path, ids in by_path.items()
            if ids.version <= line.latest or not (table.is_default or ids.is_provisional)
        }
    if not live:
        return {}
    snapshot = commits.read_snapshot(content, table.read)
    return collect_row_ids(snapshot.find_files([FileKey(*pair) for pair in live.items()]).values())


def move_to_tip(
    table: Table,
    commits: CommitReader,
    content: DeltaTable,
    line: BranchLog,
    checked: CheckedProposal,
    now_ms: int,
) -> CheckedProposal:
    """A checked proposal at the end of the line as it is now: at its turn, without any I/O.

    Raises as ``check_proposal``, and ``PrepareAgain``.
    """
    proposal, tip = checked.proposal, BranchLogTip.from_line(line)
    if tip == checked.tip and line.declared == checked.declared:
        return checked
    if not proposal.depends_on_table_state and checked.live is None:
        if line.declared != checked.declared:
            if _must_look_up_files(table, line, proposal):
                raise PrepareAgain  # the table has deletion vectors since, or ids of rows
            checked = _rebase_on_new_definition(table, line, checked, now_ms)
        return checked
    if not checked.tip.is_on(line, table.read):
        raise PrepareAgain
    since = list(commits.read_versions_after(table, content, checked.tip.version, line))
    return _rebase_proposal(table, line, checked, since, now_ms)


def _rebase_proposal(
    table: Table,
    line: BranchLog,
    checked: CheckedProposal,
    since: Sequence[tuple[int, tuple[Action, ...]]],
    now_ms: int,
) -> CheckedProposal:
    proposal, transaction = checked.proposal, checked.transaction
    winners = [WinningCommit(version, actions) for version, actions in since]
    for winner in winners:
        batches = _batch_versions(winner.actions)
        if proposal.batches and _is_done(proposal.batches, batches, f"version {winner.version}"):
            return msgspec.structs.replace(checked, is_done=True)
    if transaction is not None:
        transaction = _rebase_or_refuse(winners, transaction)
    live = None if checked.live is None else dict(checked.live)
    replaced, row_ids, unnumbered = checked.replaced, dict(checked.row_ids), checked.unnumbered
    if replaced is not None and line.declared != checked.declared:
        replaced = replaced.adapt_to_metadata(read_declared(table, line.declared).metadata, f"'{table.key}'")
    for _, actions in since:
        if live is not None:
            _move_on(live, proposal.paths, actions)
            row_ids |= {path: ids for path, ids in collect_row_ids(actions).items() if path in proposal.paths}
        if replaced is not None:
            replaced = replaced.apply_commit(actions, now_ms)
        if unnumbered is not None:
            gone = {action.key for action in actions if isinstance(action, Remove)}
            remaining = {key: file for key, file in unnumbered.items() if key not in gone}
            adds = [action for action in actions if isinstance(action, Add)]
            unnumbered = {**remaining, **_find_files_without_row_ids(table, proposal, adds)}
    moved = msgspec.structs.replace(
        checked,
        tip=BranchLogTip.from_line(line),
        declared=line.declared,
        transaction=transaction,
        live=live,
        row_ids=row_ids,
        unnumbered=unnumbered,
        replaced=replaced,
    )
    changed = live != checked.live or replaced is not checked.replaced
    if changed or line.declared != checked.declared:
        lint_proposal(table, line, moved, now_ms)
    return moved


def _rebase_on_new_definition(
    table: Table, line: BranchLog, checked: CheckedProposal, now_ms: int
) -> CheckedProposal:
    """A proposal that depends on nothing, on top of a table that has become another one."""
    declared_before, now = read_declared(table, checked.declared), read_declared(table, line.declared)
    both = ((declared_before.protocol, now.protocol), (declared_before.metadata, now.metadata))
    # Who changed it does not matter, so that no commit has to be read for it.
    winner = WinningCommit(line.latest, tuple(after for before, after in both if after != before))
    outcome = check_winner(winner, make_transaction(checked.proposal, declared_before, checked.tip.version))
    if isinstance(outcome, DeltaConflict):
        raise conflict_refusal(outcome)
    moved = msgspec.structs.replace(checked, tip=BranchLogTip.from_line(line), declared=line.declared)
    lint_proposal(table, line, moved, now_ms)
    return moved


def encode_lines(checked: CheckedProposal) -> bytes | CommitBody:
    """The lines of the commit behind its ``commitInfo``."""
    if checked.replaced is not None:
        return checked.proposal.lines + checked.replaced.lines
    return checked.proposal.lines if checked.proposal.body is None else checked.proposal.body


def number_rows(
    table: Table, commits: CommitReader, content: DeltaTable, line: BranchLog, checked: CheckedProposal
) -> NumberedCommitLines | None:
    """The lines of the commit with ids of rows, as the next version of a line; ``None`` if the table gives
    none. ``PrepareAgain`` if it is not known how far ids were given."""
    proposal, about = checked.proposal, read_declared(table, line.declared)
    protocol = find_last_action(proposal.plain_actions, Protocol) or about.protocol
    if not assigns_row_ids(protocol, find_last_action(proposal.plain_actions, Metadata) or about.metadata):
        return None
    counter = begin_counter(table, commits, content, line)
    more = b"" if checked.replaced is None else checked.replaced.lines
    files = (checked.unnumbered or {}).values()
    again = (msgspec.structs.replace(file, data_change=False) for file in files)
    more += write_commit(number_files(again, counter))
    return number_lines(proposal, checked.row_ids, counter, more)


def ratify_proposal(
    table: Table,
    commits: CommitReader,
    content: DeltaTable,
    line: BranchLog,
    checked: CheckedProposal,
    now_ms: int,
) -> tuple[BranchLog, Blobs]:
    """The line with a checked proposal as its next version, and the objects that it takes to keep it."""
    proposal, staged = checked.proposal, checked.staged
    lines: bytes | CommitBody | None = None
    between = b""
    numbered = number_rows(table, commits, content, line, checked)
    if numbered is not None:
        lines = numbered.lines
    elif staged is not None and checked.replaced is not None and staged.replaced is not None:
        # What came to be replaced since goes into what is held, and the body stays as it was put.
        more = checked.replaced.encode_removes_since(staged.replaced)
        lines, between = (staged.body, more) if more is not None else (None, b"")
    terms = limit_terms(proposal.terms)
    composed: ComposedCommit = compose_commit(
        table,
        commits,
        content,
        line,
        encode_lines(checked) if lines is None else lines,
        terms,
        name_replacements(commit_info_of(proposal, numbered), make_replacements(terms)),
        now_ms,
        between,
    )
    declared, blobs = find_definition_after(table, line, proposal)
    is_append = proposal.commit_info.is_blind_append is True
    after, runs = line.append_entry(
        composed.entry,
        declared,
        is_append=is_append,
        may_repeat_files=checked.may_repeat_files,
        highest_row_id=None if numbered is None else numbered.highest_row_id,
    )
    return after, {**blobs, **composed.blobs, **runs}


def commit_info_of(proposal: DeltaProposal, numbered: NumberedCommitLines | None) -> CommitInfo:
    """What the commit says of itself: also that rows have kept their ids, as Penstock's own writers see to,
    and as it is where no row is written anew."""
    removes = any(isinstance(action, Remove) for action in proposal.plain_actions)
    if numbered is None or (removes and proposal.may_repeat_files):
        return proposal.commit_info
    return mark_row_ids_preserved(proposal.commit_info)


def find_definition_after(
    table: Table, line: BranchLog, proposal: DeltaProposal
) -> tuple[ObjectId | None, Blobs]:
    """What the table is after a proposal, if that is not what it was before."""
    if not proposal.raw:
        return None, {}
    before = read_table_definition(line, table.read)
    object_id, data = encode_object(
        TableDefinition(
            protocol=proposal.raw.get(Protocol, before.protocol),
            metadata=proposal.raw.get(Metadata, before.metadata),
        )
    )
    return object_id, {object_id: data}


def read_declared(table: Table, declared: ObjectId) -> KnownDefinition:
    """Protocol and metadata of a table, read from a kernel object. ``InvalidLog`` if they cannot be
    parsed."""
    definition = _parse_declared(table.read(declared))
    if definition is None:
        raise InvalidLog(
            f"the lake's record of the protocol and metadata of '{table.key}' is damaged; restore the "
            "lake's database from a backup",
            key=str(table.key),
        )
    return definition


@lru_cache(maxsize=64)
def _parse_declared(data: bytes) -> KnownDefinition | None:
    declared = unpack_declared(data)
    protocol, metadata = parse_action(declared.protocol), parse_action(declared.metadata)
    if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
        return None
    return KnownDefinition(protocol, metadata, _is_writable(protocol, metadata))


def _is_writable(protocol: Protocol, metadata: Metadata) -> bool:
    try:
        return not find_unwritable_features(protocol, metadata)
    except MalformedAction:
        return False


def lint_proposal(
    table: Table, line: BranchLog, checked: CheckedProposal, now_ms: int, *, info: CommitInfo | None = None
) -> None:
    """Refuse a proposal that would break the table, with everything that is wrong, line by line."""
    proposal, live = checked.proposal, checked.live
    state = state_of(table, line)
    if live is not None:
        state = msgspec.structs.replace(
            state, live=lambda paths: {path: live[path] for path in paths if path in live}
        )
    state = msgspec.structs.replace(state, clustering=checked.clustering)
    head = proposal.commit_info.with_timestamp(max(now_ms, line.timestamp_ms + 1)) if info is None else info
    # Removes that the owner adds were never a writer's line; the first may not be allowed at all.
    replaced = (
        () if checked.replaced is None else checked.replaced.select_clashing_removes(proposal.plain_actions)
    )
    actions = [(1, head), *proposal.actions, *((WHOLE_COMMIT, remove) for remove in replaced)]
    owners = _check_reserved_actions(proposal, read_declared(table, line.declared).metadata)
    problems = (*proposal.problems, *check_commit(actions, state, LintRules(now_ms=now_ms)), *owners)
    if problems:
        raise refusal_error(table.key, sorted(problems))


def state_of(table: Table, line: BranchLog) -> LintState:
    """The table at the end of a line, for the check of a commit that follows; its files are not known."""
    about = read_declared(table, line.declared)
    return LintState(
        version=line.latest,
        protocol=about.protocol,
        metadata=about.metadata,
        timestamp_ms=line.timestamp_ms,
        is_writable=about.is_writable,
    )


def _check_reserved_actions(proposal: DeltaProposal, before: Metadata) -> Iterator[LintProblem]:
    """What a writer may not say of the table, nor of its own commit."""
    new_metadata = find_last_action(proposal.plain_actions, Metadata)
    for name in () if new_metadata is None else protected_changes(before, new_metadata):
        yield LintProblem(
            WHOLE_COMMIT, "", f"the property '{name}' can only change with the owner of the table"
        )
    for reason in () if new_metadata is None else find_forbidden_mapping_changes(before, new_metadata):
        yield LintProblem(WHOLE_COMMIT, "metaData", reason)
    says = proposal.info is not None and proposal.info.is_blind_append
    if says and any(isinstance(action, Remove) for action in proposal.plain_actions):
        yield LintProblem(1, "commitInfo", "'isBlindAppend' is true, but files are removed")


def make_transaction(proposal: DeltaProposal, at: KnownDefinition, read_version: int) -> DeltaTransaction:
    """What a proposal read, for the rules of conflicts."""
    terms = proposal.terms
    level = choose_isolation(
        table_isolation(at.metadata), proposal.plain_actions, operation_changes_data=terms.changes_data
    )
    return DeltaTransaction(
        read_version=read_version,
        protocol=at.protocol,
        metadata=at.metadata,
        isolation=level,
        actions=proposal.plain_actions,
        reads=terms.reads,
    )


def conflict_refusal(conflict: DeltaConflict) -> FormatRefused:
    """A conflict of the table's, as the kernel tells it."""
    return FormatRefused(
        f"was changed while this commit was being written: {conflict}",
        expected=f"version {conflict.read_version}",
        found=f"version {conflict.winner}",
        found_version=conflict.winner,
    )


def _transaction_on_latest(
    table: Table, commits: CommitReader, content: DeltaTable, line: BranchLog, proposal: DeltaProposal
) -> DeltaTransaction:
    """The proposal's read set as a transaction on the latest version."""
    version = proposal.intent.read_version
    assert version is not None
    check_history(table, line, proposal.intent)
    if not 0 <= version <= line.latest:
        raise InvalidRequest(
            f"version {version} of '{table.key}' cannot have been read; the newest one is {line.latest}"
        )
    try:
        winners = [
            WinningCommit(*version) for version in commits.read_versions_after(table, content, version, line)
        ]
    except VersionNotFound:
        raise FormatRefused(
            f"was read at version {version}, which is no longer in its log: read it again",
            expected=f"version {version}",
            found=f"version {line.latest}",
            found_version=line.latest,
        ) from None
    at = read_declared(table, line.declared)
    if any(isinstance(action, Protocol | Metadata) for winner in winners for action in winner.actions):
        snapshot = commits.read_snapshot(content, table.read, version)
        at = KnownDefinition(snapshot.protocol, snapshot.metadata)
    proposal.check_conditions(at.metadata)
    return _rebase_or_refuse(winners, make_transaction(proposal, at, version))


def _rebase_or_refuse(winners: Sequence[WinningCommit], mine: DeltaTransaction) -> DeltaTransaction:
    outcome = rebase_transaction(winners, mine)
    if isinstance(outcome, DeltaConflict):
        raise conflict_refusal(outcome)
    return outcome.transaction


def _is_done(ours: dict[str, int], theirs: dict[str, int], where: str) -> bool:
    """Whether the batches are in the table already: all of them or none, else it cannot be told."""
    done_batches = [name for name, version in ours.items() if theirs.get(name, version - 1) >= version]
    if done_batches and len(done_batches) < len(ours):
        raise FormatRefused(
            f"already has some of this commit's batches in {where} (batch {ours[done_batches[0]]} of "
            f"the application '{done_batches[0]}'), but not those of its other applications, so it "
            "cannot be determined whether the rows are there; commit the batches of each application by "
            "themselves"
        )
    return bool(done_batches)


def _batch_versions(actions: Sequence[Action]) -> dict[str, int]:
    return {action.app_id: action.version for action in actions if isinstance(action, Txn)}


def _move_on(live: dict[str, str | None], paths: frozenset[str], actions: Sequence[Action]) -> None:
    """Let files come and go. Removes first: a commit may replace a file's deletion vector."""
    for action in actions:
        if isinstance(action, Remove):
            live.pop(action.key.path, None)
    for action in actions:
        if isinstance(action, Add) and action.key.path in paths:
            live[action.key.path] = action.key.vector


_MARGIN_BYTES: Final = 64
"""How much longer the first line may be at the turn, when it has another time."""
