"""Ratifying: whether a proposed commit becomes a version of a table, and as which bytes.

Before its turn a proposal is checked against the table of that moment, and all that this takes is read from
storage. At its turn only what came since is looked at, from memory and from the kernel: nothing for a blind
append, unless the table has become another one. What cannot be decided so goes round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.commits import Commits
from penstock.formats.delta.branch_log.composing import (
    HELD_MAX_BYTES,
    CommitBody,
    Composed,
    bounded,
    compose,
    first_line,
    stage_body,
    telling,
)
from penstock.formats.delta.branch_log.histories import check_history
from penstock.formats.delta.branch_log.line import (
    Blobs,
    Declared,
    Line,
    Tip,
    declared_of,
    keep,
    line_of,
    unpacked,
)
from penstock.formats.delta.branch_log.ownership import protected_changes
from penstock.formats.delta.branch_log.proposal import DeltaProposal, refused
from penstock.formats.delta.branch_log.replacements import naming, new_replacements
from penstock.formats.delta.branch_log.replacing import Replaced
from penstock.formats.delta.errors import InvalidLog, MalformedAction, VersionNotFound
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
    parse_action,
)
from penstock.formats.delta.protocol.clustering import CLUSTERING, clustering_columns
from penstock.formats.delta.protocol.clustering import DOMAIN as CLUSTERING_DOMAIN
from penstock.formats.delta.protocol.conflicts import DeltaConflict, check_winner, rebase
from penstock.formats.delta.protocol.features import supported, unwritable
from penstock.formats.delta.protocol.isolation import isolation_for, table_isolation
from penstock.formats.delta.protocol.lint import WHOLE_COMMIT, LintRules, LintState, Problem, check_commit
from penstock.formats.delta.protocol.lint_files import VECTORS
from penstock.formats.delta.protocol.mapping import mapping_changes
from penstock.formats.delta.protocol.transaction import DeltaReads, DeltaTransaction, Winner, last
from penstock.kernel.format import PrepareAgain, Refused, Table
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable


class KnownProposal(msgspec.Struct, frozen=True):
    """What a table is."""

    protocol: Protocol
    metadata: Metadata
    is_writable: bool = False
    """Whether it was found to be one that Penstock writes."""


class Staged(msgspec.Struct, frozen=True):
    """Lines of a proposal that were put to storage, with the files replaced that were there then."""

    body: CommitBody
    replaced: Replaced | None


class CheckedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that may be ratified on top of ``tip``."""

    proposal: DeltaProposal
    tip: Tip
    declared: ObjectId
    transaction: DeltaTransaction | None = None
    """What it read, brought up to the tip; ``None`` if it read no version."""
    live: dict[str, str | None] | None = None
    """Of the files that it speaks of, those that are in the table."""
    clustering: tuple[tuple[str, ...], ...] = ()
    """The columns of which its files must have statistics, where that is not known of its writer."""
    replaced: Replaced | None = None
    staged: Staged | None = None
    """Where it is too large to be held."""
    is_done: bool = False
    """The table has its batches already, up to the tip."""

    @property
    def may_repeat_files(self) -> bool:
        """Whether files that it adds may be in the table already."""
        if not self.proposal.may_repeat_files or self.live is None:
            return self.proposal.may_repeat_files
        adds = (one for one in self.proposal.unnumbered if isinstance(one, Add))
        return any(one.key.path in self.live for one in adds)


def check(
    table: Table, commits: Commits, content: DeltaTable, proposal: DeltaProposal, now_ms: int
) -> CheckedProposal:
    """Check a proposal without a version against the table as it is, reading what that takes.

    ``InvalidContent`` if it would break the table, ``Refused`` if it does not go with what others committed.
    """
    line, intent = line_of(content), proposal.intent
    if intent.read_version is None and proposal.raw:
        raise InvalidRequest(
            f"the commit to '{table.key}' changes the table's protocol or metadata: give the version it read"
        )
    looked = intent.reads is not None and intent.reads != DeltaReads()
    if intent.read_version is None and looked:
        raise InvalidRequest(f"the commit to '{table.key}' tells what it read: give the version it read, too")
    if intent.read_version is None and intent.read_tip is not None:
        raise InvalidRequest(f"the commit to '{table.key}' has a tip: give the version it read, too")
    checked = check_files(table, commits, content, proposal, now_ms)
    if proposal.batches:
        batches = commits.snapshot(content, table.read).transactions
        done = {name: one.version for name, one in batches.items()}
        if _is_done(proposal.batches, done, f"version {line.latest}"):
            return msgspec.structs.replace(checked, is_done=True)
    if intent.read_version is not None:
        transaction = _rebased(table, commits, content, line, proposal)
        checked = msgspec.structs.replace(checked, transaction=transaction)
    if intent.replaces is not None:
        replaced = Replaced.of(commits.snapshot(content, table.read), intent.replaces, now_ms)
        checked = msgspec.structs.replace(checked, replaced=replaced)
    lint(table, line, checked, now_ms)
    staged = _stage(table, commits, content, line, checked, now_ms)
    return msgspec.structs.replace(checked, staged=staged)


def _stage(
    table: Table, commits: Commits, content: DeltaTable, line: Line, checked: CheckedProposal, now_ms: int
) -> Staged | None:
    """Put what will be too large for the kernel to storage, while that may be done."""
    terms = bounded(checked.proposal.terms)
    told = telling(naming(checked.proposal.told, new_replacements(terms)), terms)
    head = first_line(told, max(now_ms, line.timestamp_ms + 1))
    if len(head) > HELD_MAX_BYTES:
        raise InvalidRequest(
            f"the 'commitInfo' for '{table.key}' has {len(head)} bytes; at most {HELD_MAX_BYTES} are taken"
        )
    lines = lines_of(checked)
    if isinstance(lines, bytes) and len(head) + len(lines) + _MARGIN_BYTES > HELD_MAX_BYTES:
        return Staged(stage_body(table, commits, content.location, lines), checked.replaced)
    return None


def check_files(
    table: Table, commits: Commits, content: DeltaTable, proposal: DeltaProposal, now_ms: int
) -> CheckedProposal:
    """A proposal with what its check needs to know of the table's files, and nothing else looked at.

    ``InvalidContent`` if it has lines that cannot be read, with whatever else is wrong.
    """
    line = line_of(content)
    checked = CheckedProposal(proposal=proposal, tip=Tip.of(line), declared=line.declared)
    if proposal.problems:
        lint(table, line, checked, now_ms)
    if proposal.may_repeat_files and CLUSTERING in supported(known(table, line.declared).protocol):
        domains = commits.snapshot(content, table.read).domains
        checked = msgspec.structs.replace(checked, clustering=clustering_columns(domains))
    if proposal.touches_files or _may_repeat_vectors(table, line, proposal):
        live = dict(commits.live(content, table.read)(proposal.paths))
        return msgspec.structs.replace(checked, live=live)
    return checked


def _may_repeat_vectors(table: Table, line: Line, proposal: DeltaProposal) -> bool:
    """Whether a proposal may add a whole file that is in the table with a deletion vector: its rows would be
    there twice, the deleted ones among them. Only then is it looked up for a commit that removes nothing."""
    return proposal.may_repeat_files and VECTORS in supported(known(table, line.declared).protocol)


def bring(
    table: Table, commits: Commits, content: DeltaTable, line: Line, checked: CheckedProposal, now_ms: int
) -> CheckedProposal:
    """A checked proposal at the end of the line as it is now: at its turn, without any I/O.

    Raises as ``check``, and ``PrepareAgain``.
    """
    proposal, tip = checked.proposal, Tip.of(line)
    if tip == checked.tip and line.declared == checked.declared:
        return checked
    if not proposal.depends and checked.live is None:
        if line.declared != checked.declared:
            if _may_repeat_vectors(table, line, proposal):
                raise PrepareAgain  # the table has deletion vectors since
            checked = _with_declared(table, line, checked, now_ms)
        return checked
    if not checked.tip.is_on(line, table.read):
        raise PrepareAgain
    since = list(commits.versions(table, content, checked.tip.version, line))
    return _brought(table, line, checked, since, now_ms)


def _brought(
    table: Table,
    line: Line,
    checked: CheckedProposal,
    since: Sequence[tuple[int, tuple[Action, ...]]],
    now_ms: int,
) -> CheckedProposal:
    proposal, transaction = checked.proposal, checked.transaction
    winners = [Winner(version, actions) for version, actions in since]
    for winner in winners:
        done = _batches(winner.actions)
        if proposal.batches and _is_done(proposal.batches, done, f"version {winner.version}"):
            return msgspec.structs.replace(checked, is_done=True)
    if transaction is not None:
        transaction = _on_top(winners, transaction)
    live = None if checked.live is None else dict(checked.live)
    replaced = checked.replaced
    if replaced is not None and line.declared != checked.declared:
        replaced = replaced.under(known(table, line.declared).metadata, f"'{table.key}'")
    for _, actions in since:
        if live is not None:
            _move_on(live, proposal.paths, actions)
        if replaced is not None:
            replaced = replaced.after(actions, now_ms)
    moved = msgspec.structs.replace(
        checked,
        tip=Tip.of(line),
        declared=line.declared,
        transaction=transaction,
        live=live,
        replaced=replaced,
    )
    changed = live != checked.live or replaced is not checked.replaced
    if changed or line.declared != checked.declared:
        lint(table, line, moved, now_ms)
    return moved


def _with_declared(table: Table, line: Line, checked: CheckedProposal, now_ms: int) -> CheckedProposal:
    """A proposal that depends on nothing, on top of a table that has become another one."""
    was, now = known(table, checked.declared), known(table, line.declared)
    both = ((was.protocol, now.protocol), (was.metadata, now.metadata))
    # Who changed it does not matter, so that no commit has to be read for it.
    winner = Winner(line.latest, tuple(after for before, after in both if after != before))
    outcome = check_winner(winner, transaction_of(checked.proposal, was, checked.tip.version))
    if isinstance(outcome, DeltaConflict):
        raise refused_by(outcome)
    moved = msgspec.structs.replace(checked, tip=Tip.of(line), declared=line.declared)
    lint(table, line, moved, now_ms)
    return moved


def lines_of(checked: CheckedProposal) -> bytes | CommitBody:
    """The lines of the commit behind its ``commitInfo``."""
    if checked.replaced is not None:
        return checked.proposal.lines + checked.replaced.lines
    return checked.proposal.lines if checked.proposal.body is None else checked.proposal.body


def ratify(
    table: Table, commits: Commits, content: DeltaTable, line: Line, checked: CheckedProposal, now_ms: int
) -> tuple[Line, Blobs]:
    """The line with a checked proposal as its next version, and the objects that it takes to keep it."""
    proposal, staged = checked.proposal, checked.staged
    lines, between = None, b""
    if staged is not None and checked.replaced is not None and staged.replaced is not None:
        # What came to be replaced since goes into what is held, and the body stays as it was put.
        more = checked.replaced.lines_since(staged.replaced)
        lines, between = (staged.body, more) if more is not None else (None, b"")
    terms = bounded(proposal.terms)
    composed: Composed = compose(
        table,
        commits,
        content,
        line,
        lines_of(checked) if lines is None else lines,
        terms,
        naming(proposal.told, new_replacements(terms)),
        now_ms,
        between,
    )
    declared, blobs = declared_after(table, line, proposal)
    is_append = proposal.told.is_blind_append is True
    after, runs = line.followed_by(
        composed.entry, declared, is_append=is_append, may_repeat_files=checked.may_repeat_files
    )
    return after, {**blobs, **composed.blobs, **runs}


def declared_after(table: Table, line: Line, proposal: DeltaProposal) -> tuple[ObjectId | None, Blobs]:
    """What the table is after a proposal, if that is not what it was before."""
    if not proposal.raw:
        return None, {}
    before = declared_of(line, table.read)
    one, data = keep(
        Declared(
            protocol=proposal.raw.get(Protocol, before.protocol),
            metadata=proposal.raw.get(Metadata, before.metadata),
        )
    )
    return one, {one: data}


def known(table: Table, declared: ObjectId) -> KnownProposal:
    """What a table is, by the object that says so. ``InvalidLog`` if that cannot be understood."""
    return _known(table.read(declared))


@lru_cache(maxsize=64)
def _known(data: bytes) -> KnownProposal:
    declared = unpacked(data)
    protocol, metadata = parse_action(declared.protocol), parse_action(declared.metadata)
    if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
        raise InvalidLog("the lake's note of a table's protocol and metadata cannot be understood")
    return KnownProposal(protocol, metadata, _is_writable(protocol, metadata))


def _is_writable(protocol: Protocol, metadata: Metadata) -> bool:
    try:
        return not unwritable(protocol, metadata)
    except MalformedAction:
        return False


def lint(
    table: Table, line: Line, checked: CheckedProposal, now_ms: int, *, info: CommitInfo | None = None
) -> None:
    """Refuse a proposal that would break the table, with everything that is wrong, line by line."""
    proposal, live = checked.proposal, checked.live
    state = state_of(table, line)
    if live is not None:
        state = msgspec.structs.replace(
            state, live=lambda paths: {path: live[path] for path in paths if path in live}
        )
    state = msgspec.structs.replace(state, clustering=checked.clustering)
    head = proposal.told.at(max(now_ms, line.timestamp_ms + 1)) if info is None else info
    # Removes that the owner adds were never a writer's line; the first may not be allowed at all.
    replaced = () if checked.replaced is None else checked.replaced.clashing(proposal.unnumbered)
    actions = [(1, head), *proposal.actions, *((WHOLE_COMMIT, remove) for remove in replaced)]
    owners = _owners(proposal, known(table, line.declared).metadata)
    problems = (*proposal.problems, *check_commit(actions, state, LintRules(now_ms=now_ms)), *owners)
    if problems:
        raise refused(table.key, sorted(problems))


def state_of(table: Table, line: Line) -> LintState:
    """The table at the end of a line, for the check of a commit that follows; its files are not known."""
    about = known(table, line.declared)
    return LintState(
        version=line.latest,
        protocol=about.protocol,
        metadata=about.metadata,
        timestamp_ms=line.timestamp_ms,
        is_writable=about.is_writable,
    )


def _owners(proposal: DeltaProposal, before: Metadata) -> Iterator[Problem]:
    """What a writer may not say of the table, nor of its own commit."""
    wanted = last(proposal.unnumbered, Metadata)
    for name in () if wanted is None else protected_changes(before, wanted):
        yield Problem(WHOLE_COMMIT, "", f"the property '{name}' changes with the table's owner alone")
    for line, action in proposal.actions:
        if isinstance(action, DomainMetadata) and action.domain == CLUSTERING_DOMAIN:
            how = "release the table, change them with the engine that clusters it, and adopt it again"
            reason = f"the columns that a table of a lake is clustered by do not change: {how}"
            yield Problem(line, "domainMetadata", reason)
    for reason in () if wanted is None else mapping_changes(before, wanted):
        yield Problem(WHOLE_COMMIT, "metaData", reason)
    says = proposal.info is not None and proposal.info.is_blind_append
    if says and any(isinstance(action, Remove) for action in proposal.unnumbered):
        yield Problem(1, "commitInfo", "'isBlindAppend' is true, but files are removed")


def transaction_of(proposal: DeltaProposal, at: KnownProposal, read_version: int) -> DeltaTransaction:
    """What a proposal read, for the rules of conflicts."""
    terms = proposal.terms
    level = isolation_for(
        table_isolation(at.metadata), proposal.unnumbered, operation_changes_data=terms.changes_data
    )
    return DeltaTransaction(
        read_version=read_version,
        protocol=at.protocol,
        metadata=at.metadata,
        isolation=level,
        actions=proposal.unnumbered,
        reads=terms.reads,
    )


def refused_by(conflict: DeltaConflict) -> Refused:
    """A conflict of the table's, as the kernel tells it."""
    return Refused(
        f"changed while this was being written: {conflict}",
        expected=f"version {conflict.read_version}",
        found=f"version {conflict.winner}",
    )


def _rebased(
    table: Table, commits: Commits, content: DeltaTable, line: Line, proposal: DeltaProposal
) -> DeltaTransaction:
    """What the proposal read, on top of everything that came since."""
    version = proposal.intent.read_version
    assert version is not None
    check_history(table, line, proposal.intent)
    if not 0 <= version <= line.latest:
        raise InvalidRequest(
            f"version {version} of '{table.key}' cannot have been read; the newest one is {line.latest}"
        )
    try:
        winners = [Winner(*one) for one in commits.versions(table, content, version, line)]
    except VersionNotFound:
        raise Refused(
            f"was read at version {version}, and its log does not reach back so far any more: read it again",
            expected=f"version {version}",
            found=f"version {line.latest}",
        ) from None
    at = known(table, line.declared)
    if any(isinstance(action, Protocol | Metadata) for winner in winners for action in winner.actions):
        snapshot = commits.snapshot(content, table.read, version)
        at = KnownProposal(snapshot.protocol, snapshot.metadata)
    proposal.check_conditions(at.metadata)
    return _on_top(winners, transaction_of(proposal, at, version))


def _on_top(winners: Sequence[Winner], mine: DeltaTransaction) -> DeltaTransaction:
    outcome = rebase(winners, mine)
    if isinstance(outcome, DeltaConflict):
        raise refused_by(outcome)
    return outcome.transaction


def _is_done(ours: dict[str, int], theirs: dict[str, int], where: str) -> bool:
    """Whether the batches are in the table already: all of them or none, else it cannot be told."""
    done = [name for name, version in ours.items() if theirs.get(name, version - 1) >= version]
    if done and len(done) < len(ours):
        raise Refused(
            f"has batch {ours[done[0]]} of the application '{done[0]}' in {where}, but not the others"
        )
    return bool(done)


def _batches(actions: Sequence[Action]) -> dict[str, int]:
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
