"""Attempts: commits whose version their writer gives, to be ratified as exactly that one or not at all.

The file of an attempt is written, whole and durable, before its turn; ratifying it means to name it. An
attempt that is repeated, because nobody knows what became of it, finds itself in the table and does nothing.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.branch_log import (
    Blobs,
    BranchLog,
    BranchLogEntry,
    BranchLogTip,
    CommitRecord,
    CommitTerms,
    decode_branch_log,
    encode_object,
    make_uuid,
)
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.composed_commit import (
    encode_commit_info_line,
    limit_terms,
    line_id,
    write_staged_file,
)
from penstock.formats.delta.branch_log.intents import check_history
from penstock.formats.delta.branch_log.proposal import DeltaProposal
from penstock.formats.delta.branch_log.ratification import (
    check_files,
    find_definition_after,
    lint_proposal,
    number_rows,
    read_declared,
)
from penstock.formats.delta.branch_log.replacements import (
    check_partitions,
    make_replacements,
    name_replacements,
)
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import CommitInfo
from penstock.kernel.format import FormatRefused, PrepareAgain, Table
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable


class CommitAttempt(msgspec.Struct, frozen=True):
    """A staged commit."""

    proposal: DeltaProposal
    version: int
    tip: BranchLogTip
    declared: ObjectId
    entry: BranchLogEntry | None
    """``None``: it is in the table already."""
    blobs: Blobs = msgspec.field(default_factory=Blobs)
    is_append: bool = False
    """It says of itself that it only appends, and has read nothing."""
    may_repeat_files: bool = True
    """Files that it adds may be in the table already."""
    highest_row_id: int | None = None
    """How far ids of rows are given with it; ``None`` if it gives none."""


def stage_versioned_proposal(
    table: Table, commits: CommitReader, content: DeltaTable, proposal: DeltaProposal, now_ms: int
) -> CommitAttempt:
    """Check a proposal with a version, and stage it.

    ``InvalidRequest`` for a version that cannot be the next one, ``FormatRefused`` for one that is taken,
    ``InvalidContent`` if the table would break.
    """
    line, version = decode_branch_log(content), proposal.intent.version
    assert version is not None
    begun = CommitAttempt(proposal, version, BranchLogTip.from_line(line), line.declared, None)
    if is_ratified(table, commits, content, line, begun):
        return begun
    metadata = read_declared(table, line.declared).metadata
    proposal.check_conditions(metadata)
    check_partitions(proposal.intent.replaces or (), metadata, f"'{table.key}'")
    checked = check_files(table, commits, content, proposal, now_ms)
    info = _complete_commit_info(proposal, line, now_ms)
    lint_proposal(table, line, checked, now_ms, info=info)
    time_ms = info.in_commit_timestamp
    assert time_ms is not None
    head = proposal.info_line + b"\n" if info is proposal.info else encode_commit_info_line(info, time_ms)
    begun = msgspec.structs.replace(
        begun, is_append=info.is_blind_append is True, may_repeat_files=checked.may_repeat_files
    )
    lines = proposal.lines
    if (numbered := number_rows(table, commits, content, line, checked)) is not None:
        lines = numbered.lines
        begun = msgspec.structs.replace(begun, highest_row_id=numbered.highest_row_id)
    return _stage_attempt(table, commits, content, begun, head + lines, time_ms)


def ratify_attempt(table: Table, line: BranchLog, attempt: CommitAttempt) -> tuple[BranchLog, Blobs]:
    """The line with an attempt as its next version, ``PrepareAgain`` if it was staged for another one."""
    if (
        attempt.entry is None
        or attempt.tip != BranchLogTip.from_line(line)
        or attempt.declared != line.declared
    ):
        raise PrepareAgain
    declared, blobs = find_definition_after(table, line, attempt.proposal)
    after, runs = line.append_entry(
        attempt.entry,
        declared,
        is_append=attempt.is_append,
        may_repeat_files=attempt.may_repeat_files,
        highest_row_id=attempt.highest_row_id,
    )
    return after, {**attempt.blobs, **blobs, **runs}


def is_ratified(
    table: Table, commits: CommitReader, content: DeltaTable, line: BranchLog, attempt: CommitAttempt
) -> bool:
    """Whether a version is this very attempt. Raises if it is another's, or can be nobody's yet."""
    version = attempt.version
    if version < 1:
        raise InvalidRequest(
            f"version {version} of '{table.key}' cannot be committed: a table's "
            "first version is 0, which creating the table writes"
        )
    if version > line.latest:  # an attempt that landed is answered as before, whatever it has read
        check_history(table, line, attempt.proposal.intent)
    if version > line.latest + 1:
        raise InvalidRequest(
            f"version {version} of '{table.key}' cannot be committed: the next one is {line.latest + 1}"
        )
    if version == line.latest + 1:
        return False
    entry = line.find_entry(version, table.read)
    if entry is not None and entry.uuid == attempt.proposal.intent.uuid.bytes:
        return True
    if entry is not None or version <= line.published:
        with suppress(VersionNotFound):  # a log that was cleaned up does not tell any more
            info = commits.read_commit_info(table, content.location, version, entry)
            if info is not None and info.transaction_id == attempt.proposal.transaction_id:
                return True
    raise FormatRefused(
        f"already has a version {version}, by another writer: the newest one is {line.latest}",
        expected=f"version {version - 1}",
        found=f"version {line.latest}",
        found_version=line.latest,
    )


def _complete_commit_info(proposal: DeltaProposal, line: BranchLog, now_ms: int) -> CommitInfo:
    """The writer's ``commitInfo``, completed by the owner's fields and without fields that only the owner may
    set."""
    writer_info, time_ms = proposal.info, max(now_ms, line.timestamp_ms + 1)
    replacements = make_replacements(limit_terms(proposal.terms))
    owner_info = name_replacements(proposal.commit_info, replacements)
    if writer_info is None or writer_info.in_commit_timestamp is None:
        return owner_info.with_timestamp(time_ms)
    return (
        name_replacements(writer_info, replacements)
        if writer_info.transaction_id
        else owner_info.with_timestamp(writer_info.in_commit_timestamp)
    )


def _stage_attempt(
    table: Table, commits: CommitReader, content: DeltaTable, begun: CommitAttempt, data: bytes, time_ms: int
) -> CommitAttempt:
    assert content.id is not None
    terms, blobs, held = limit_terms(begun.proposal.terms), Blobs(), None
    if terms != CommitTerms():
        held, packed = encode_object(CommitRecord(terms))
        blobs[held] = packed
    place = commits.places.open_place(content.location)
    for uuid in _choose_staged_names(begun.proposal.intent.uuid, data):
        entry = BranchLogEntry(uuid, len(data), time_ms, line_id(table, content.id), held)
        if write_staged_file(place, entry.get_staged_path(begun.version), data):
            commits.cache_staged_commit(content.location, begun.version, entry, data)
            return msgspec.structs.replace(begun, entry=entry, blobs=blobs)
    raise InvalidRequest(f"the file of attempt {begun.proposal.intent.uuid} at '{table.key}' has other bytes")


def _choose_staged_names(uuid: UUID, data: bytes) -> tuple[bytes, bytes]:
    """Names for an attempt's file: its own, or one of its bytes where it was tried with others before."""
    return uuid.bytes, make_uuid(hashlib.sha256(uuid.bytes + data).digest())
