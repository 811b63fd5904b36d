"""The intents that change who owns a Delta table: adoption, release, creation, recovery.

The bytes of such a commit are whole when it is asked for, and the kernel holds them. Whether an adoption came
about, the table's own log decides, at the version that was asked for; here it is only promised and noted.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import (
    Blobs,
    BranchLog,
    BranchLogEntry,
    CommitRecord,
    CommitTerms,
    OwnershipPhase,
    TableDefinition,
    decode_branch_log,
    encode_object,
    make_uuid,
    read_table_definition,
    replace_branch_log,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.composed_commit import HELD_MAX_BYTES, line_id, stage_body
from penstock.formats.delta.branch_log.intents import (
    AdoptIntent,
    CreateIntent,
    ReleaseIntent,
    ResyncIntent,
    SettleIntent,
)
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, find_owner
from penstock.formats.delta.branch_log.proposal import refusal_error
from penstock.formats.delta.branch_log.ratification import state_of
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata, Protocol, parse_action, parse_commit
from penstock.formats.delta.protocol.feature_table import IN_COMMIT_TIMESTAMP, MANAGED_COMMITS
from penstock.formats.delta.protocol.lint import LintRules, LintState, check_bytes
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.kernel.format import AppliedChange, FormatRefused, Table
from penstock.model.encoding import encode
from penstock.model.nessie import DeltaTable

Custody: TypeAlias = CreateIntent | AdoptIntent | SettleIntent | ReleaseIntent | ResyncIntent


def prepare_custody(table: Table, commits: CommitReader, intent: Custody, owner: OwnerIdentity) -> None:
    """Check what can be checked before the turn, and put what is too large for the kernel to storage.

    ``InvalidRequest`` if a table that is to come would not name this lake as its owner.
    """
    if isinstance(intent, SettleIntent):
        return
    if isinstance(intent, ResyncIntent):
        _check_own(table, intent, owner)
        if intent.replaced is not None:
            _check_named(table, intent, owner)
            _read_once(table, commits, _make_content(intent), intent.actions)
        return
    if isinstance(intent, CreateIntent | AdoptIntent):
        _check_named(table, intent, owner)
    if isinstance(intent, CreateIntent):
        _check_commit_lines(table, intent.actions, LintState(), LintRules())
        if table.content is None:
            _check_unused(commits, intent)
    if isinstance(intent, CreateIntent | AdoptIntent):
        _read_once(table, commits, _make_content(intent), intent.actions)
    elif isinstance(table.content, DeltaTable) and table.content.state:
        _read_once(table, commits, table.content, intent.actions)


def apply_custody(table: Table, commits: CommitReader, intent: Custody) -> AppliedChange:
    """The table after such a change. The same one a second time changes nothing."""
    if isinstance(intent, CreateIntent | AdoptIntent):
        return _begin_change(table, commits, intent)
    if isinstance(intent, ResyncIntent):
        return _resync_table(table, commits, intent)
    content = table.content
    if not isinstance(content, DeltaTable) or not content.state:
        if isinstance(intent, SettleIntent):
            return AppliedChange(content)
        raise FormatRefused("does not exist")
    if isinstance(intent, SettleIntent):
        return _apply_settle(content, intent)
    return _release_table(table, commits, content, intent)


def _check_named(
    table: Table, intent: CreateIntent | AdoptIntent | ResyncIntent, owner: OwnerIdentity
) -> None:
    actions = [line.action for line in parse_commit(intent.actions)]
    protocol, metadata = find_last_action(actions, Protocol), find_last_action(actions, Metadata)
    if protocol is None or metadata is None:
        raise InvalidRequest(
            f"the first commit that the lake makes to '{table.key}' lacks protocol or metadata"
        )
    if not owner.is_owner(find_owner(protocol, metadata, str(table.key))):
        raise InvalidRequest(
            f"the lake's first commit to '{table.key}' names another owner than this lake, or none"
        )


def _check_own(table: Table, intent: ResyncIntent, owner: OwnerIdentity) -> None:
    protocol, metadata = parse_action(intent.protocol), parse_action(intent.metadata)
    if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
        raise InvalidRequest(f"the log of '{table.key}' contains no protocol or no metadata")
    named = find_owner(protocol, metadata, str(table.key))
    if named is None or not owner.is_owner(named) or named.table != (intent.replaced or intent.id):
        raise InvalidRequest(
            f"the log of '{table.key}' names another lake or table as its owner, or none, so its versions "
            "are not taken over"
        )


def _check_unused(commits: CommitReader, intent: CreateIntent) -> None:
    """Refuse a location that has a log: of a table that this very request created, and that is dropped."""
    first, second = commits.places.open_place(intent.location).read([str(CommitName(0)), str(CommitName(1))])
    if second is not None or (first is not None and first != intent.actions):
        raise FormatRefused(f"cannot be created: there is already a log at {intent.location}")


def _begin_change(table: Table, commits: CommitReader, intent: CreateIntent | AdoptIntent) -> AppliedChange:
    if table.content is not None:
        if _is_repeated(table, commits, intent):
            return AppliedChange(table.content)
        raise FormatRefused("exists already")
    phase, before = OwnershipPhase.OWNED, -1
    if isinstance(intent, AdoptIntent):
        phase, before = OwnershipPhase.ADOPTING, intent.version - 1
        if not table.is_default:
            raise FormatRefused("can be adopted on the default branch only")
    content = _make_content(intent)
    first = _read_once(table, commits, content, intent.actions)
    assert first.protocol is not None  # it was prepared
    assert first.metadata is not None
    declared, packed = encode_object(TableDefinition(first.protocol, first.metadata))
    empty = BranchLog(phase=phase, published=before, latest=before, timestamp_ms=-1, declared=declared)
    line, runs = empty.append_entry(first.entry, may_repeat_files=isinstance(intent, AdoptIntent))
    return AppliedChange(
        replace_branch_log(content, line),
        {declared: packed, **first.blobs, **runs},
        _encode_without_actions(intent),
    )


def _is_repeated(table: Table, commits: CommitReader, intent: CreateIntent | AdoptIntent) -> bool:
    """Whether the table that is there is the one of this very request."""
    content = table.content
    if not isinstance(content, DeltaTable) or content.id != intent.id:
        return False
    if isinstance(intent, AdoptIntent) or not intent.is_given:
        return True  # nobody else has made up the same id
    first = decode_branch_log(content).find_entry(0, table.read)
    return (
        first is not None and first == _read_once(table, commits, _make_content(intent), intent.actions).entry
    )


def _apply_settle(content: DeltaTable, intent: SettleIntent) -> AppliedChange:
    line = decode_branch_log(content)
    if content.id != intent.id or line.phase is OwnershipPhase.OWNED:
        return AppliedChange(content)
    if not intent.owned:
        return AppliedChange(None)
    if line.phase is OwnershipPhase.RELEASED:
        raise FormatRefused("was released, so the lake cannot keep it")
    owned = msgspec.structs.replace(line.drop_published_entries(line.latest), phase=OwnershipPhase.OWNED)
    return AppliedChange(replace_branch_log(content, owned))


def _resync_table(table: Table, commits: CommitReader, intent: ResyncIntent) -> AppliedChange:
    if not table.is_default:
        raise FormatRefused("can be resynced on the default branch only")
    content, known_version = table.content, -1
    if content is not None:
        old_identity = intent.replaced or intent.id
        if not isinstance(content, DeltaTable) or not content.state or content.id != old_identity:
            raise FormatRefused("is another table now")
        line = decode_branch_log(content)
        known_version = line.latest
        if line.phase is not OwnershipPhase.OWNED:
            raise FormatRefused(f"cannot be resynced while it is {line.phase}")
    if known_version != intent.known:
        raise FormatRefused(
            "was changed while it was compared with its log",
            expected=f"version {intent.known}",
            found=f"version {known_version}",
            found_version=known_version,
        )
    declared, packed = encode_object(TableDefinition(intent.protocol, intent.metadata))
    line = BranchLog(
        phase=OwnershipPhase.OWNED,
        published=intent.version,
        latest=intent.version,
        timestamp_ms=intent.timestamp_ms,
        declared=declared,
    )
    blobs: Blobs = {declared: packed}
    if intent.replaced is not None:
        next_one = _read_once(table, commits, _make_content(intent), intent.actions)
        assert next_one.protocol is not None  # it was prepared
        assert next_one.metadata is not None
        after, packed = encode_object(TableDefinition(next_one.protocol, next_one.metadata))
        line, runs = line.append_entry(next_one.entry, after)
        blobs = {after: packed, **next_one.blobs, **runs}
    short = msgspec.structs.replace(intent, protocol=b"", metadata=b"", actions=b"")
    return AppliedChange(replace_branch_log(_make_content(intent), line), blobs, encode(short))


def _release_table(
    table: Table, commits: CommitReader, content: DeltaTable, intent: ReleaseIntent
) -> AppliedChange:
    line = decode_branch_log(content)
    if not table.is_default:
        raise FormatRefused("can be released on the default branch only")
    if line.phase is OwnershipPhase.RELEASED and line.latest == intent.version:
        return AppliedChange(content)
    if line.phase is not OwnershipPhase.OWNED:
        raise FormatRefused(f"cannot be released while it is {line.phase}")
    if intent.version != line.latest + 1:
        raise FormatRefused(
            "was committed to while it was being released",
            expected=f"version {intent.version - 1}",
            found=f"version {line.latest}",
            found_version=line.latest,
        )
    added = frozenset({MANAGED_COMMITS, IN_COMMIT_TIMESTAMP})  # what a table may have got from its owner
    _check_commit_lines(table, intent.actions, state_of(table, line), LintRules(droppable=added))
    final = _read_once(table, commits, content, intent.actions)
    old_declared = read_table_definition(line, table.read)
    declared, packed = encode_object(
        TableDefinition(final.protocol or old_declared.protocol, final.metadata or old_declared.metadata)
    )
    after, runs = line.append_entry(final.entry, declared)
    released = msgspec.structs.replace(after, phase=OwnershipPhase.RELEASED)
    return AppliedChange(
        replace_branch_log(content, released),
        {declared: packed, **final.blobs, **runs},
        _encode_without_actions(intent),
    )


class _WholeCommit(NamedTuple):
    """A commit whose bytes are given, as an entry that the kernel holds."""

    entry: BranchLogEntry
    blobs: Blobs
    protocol: bytes | None
    metadata: bytes | None


def _read_once(table: Table, commits: CommitReader, content: DeltaTable, data: bytes) -> _WholeCommit:
    """The commit as an entry, parsed once for a request: it may have very many lines."""
    assert content.id is not None
    noted = ("delta whole", line_id(table, content.id), content.location, data)
    if noted not in table.notes:
        table.notes[noted] = _read_whole_commit(table, commits, content, data)
    whole: _WholeCommit = table.notes[noted]
    return whole


def _read_whole_commit(table: Table, commits: CommitReader, content: DeltaTable, data: bytes) -> _WholeCommit:
    assert content.id is not None
    lines = {type(line.action): line for line in parse_commit(data)}
    raw = {kind: line.raw for kind, line in lines.items()}
    info = lines[CommitInfo].action if CommitInfo in lines else None
    if not isinstance(info, CommitInfo) or info.in_commit_timestamp is None:
        raise InvalidRequest(f"the commit that changes the owner of '{table.key}' has no timestamp")
    head, body = data, None
    if len(data) > HELD_MAX_BYTES:
        cut = data.find(b"\n") + 1
        head, body = data[:cut], stage_body(table, commits, content.location, data[cut:])
    held, packed = encode_object(CommitRecord(CommitTerms(), head))
    entry = BranchLogEntry(
        uuid=make_uuid(hashlib.sha256(data).digest()),
        size=len(data),
        timestamp_ms=info.in_commit_timestamp,
        line=line_id(table, content.id),
        held=held,
        body="" if body is None else body.name,
    )
    return _WholeCommit(entry, {held: packed}, raw.get(Protocol), raw.get(Metadata))


def _check_commit_lines(table: Table, data: bytes, before: LintState, rules: LintRules) -> None:
    problems = check_bytes(data, before, rules)
    if problems:
        raise refusal_error(table.key, problems)


def _make_content(intent: CreateIntent | AdoptIntent | ResyncIntent) -> DeltaTable:
    return DeltaTable(id=intent.id, location=intent.location)


def _encode_without_actions(intent: CreateIntent | AdoptIntent | ReleaseIntent) -> bytes:
    """What is stored of an intent: the line has all the rest."""
    return encode(msgspec.structs.replace(intent, actions=b""))
