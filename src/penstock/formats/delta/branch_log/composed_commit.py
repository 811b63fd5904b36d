"""The bytes of a commit whose version the owner assigns, composed at its turn.

First comes a ``commitInfo`` with the time of that moment, then the lines as their writer gave them. Up to
``HELD_MAX_BYTES`` the kernel holds all of it. Of a larger one it holds the first line alone; the others were
put to the table's storage before the turn, as a *body*, under a name made of their hash. Either way the name
of the commit's file follows from its bytes, so that anybody may write the file, any number of times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import InvalidContent, OutcomeUnknown, Unavailable
from penstock.formats.delta.branch_log.branch_log import (
    FOLDER,
    Blobs,
    BranchLog,
    BranchLogEntry,
    CommitRecord,
    CommitTerms,
    encode_object,
    make_uuid,
)
from penstock.formats.delta.branch_log.commits import REPLACES, CommitReader, ReplacedPartitions
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, CommitInfo, Remove, write_action
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.format import DRY_RUN, PrepareAgain, Table
from penstock.model.decoders import get_json_decoder
from penstock.model.encoding import encode, hash_parts
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place

HELD_MAX_BYTES: Final = 128 * 1024
"""Commits up to this size are held by the kernel as a whole."""
TERMS_MAX_BYTES: Final = 32 * 1024
"""Terms beyond this size are held as the strictest ones."""
BODIES: Final = FOLDER + "bodies/"


class ComposedCommit(NamedTuple):
    """A commit that can be ratified: its entry, and the kernel objects that this takes."""

    entry: BranchLogEntry
    blobs: Blobs
    data: bytes | None
    """All of its bytes; ``None`` if the most of them are in a body."""


class CommitBody(NamedTuple):
    """Lines of a commit in a file of their own."""

    name: str
    sha256: bytes
    size: int


def compose_commit(
    table: Table,
    commits: CommitReader,
    content: DeltaTable,
    line: BranchLog,
    lines: bytes | CommitBody,
    terms: CommitTerms,
    info: CommitInfo,
    now_ms: int,
    between: bytes = b"",
) -> ComposedCommit:
    """The next version of a line, on the branch of ``table``: ``info`` with its time, then the lines.

    ``content`` tells the table's id and location; ``lines`` hold no ``commitInfo``. ``PrepareAgain`` if they
    are too many to be held and no body of them was put while storage might be touched. Lines ``between`` are
    held in any case: they are what a body lacks that was put earlier.
    """
    version, time_ms = line.latest + 1, max(now_ms, line.timestamp_ms + 1)
    terms = limit_terms(terms)
    head = encode_commit_info_line(add_terms_to_info(info, terms), time_ms) + between
    whole = lines
    if isinstance(lines, bytes) and len(head) + len(lines) > HELD_MAX_BYTES:
        lines = stage_body(table, commits, content.location, lines)
    if len(head) > HELD_MAX_BYTES:
        raise PrepareAgain
    if isinstance(lines, CommitBody):
        name = hash_parts("delta", version.to_bytes(8, "big"), head, lines.sha256)
        composed = _compose_entry(table, content, name, time_ms, CommitRecord(terms, head), lines)
        if DRY_RUN in table.notes and isinstance(whole, bytes):  # no file has them
            commits.cache_staged_commit(content.location, version, composed.entry, head + whole)
        return composed
    data = head + lines
    name = hashlib.sha256(version.to_bytes(8, "big") + data).digest()
    composed = _compose_entry(table, content, name, time_ms, CommitRecord(terms, data), None)
    commits.cache_staged_commit(content.location, version, composed.entry, data)
    return composed


def add_terms_to_info(info: CommitInfo, terms: CommitTerms) -> CommitInfo:
    """What stands first in a commit that rests on such terms: the log has to say what it replaced."""
    fields = {name: value for name, value in info.fields.items() if name != REPLACES}
    if terms.replaces is not None:
        fields[REPLACES] = msgspec.to_builtins(ReplacedPartitions(terms.replaces, terms.reads.nothing))
    return CommitInfo(fields)


def encode_commit_info_line(info: CommitInfo, time_ms: int) -> bytes:
    """A ``commitInfo`` of a moment, as the first line of a commit."""
    times = {"inCommitTimestamp": time_ms, "timestamp": time_ms}
    return write_action(CommitInfo({**times, **info.fields, **times})) + b"\n"


def stage_body(table: Table, commits: CommitReader, location: str, lines: bytes) -> CommitBody:
    """Lines as a file of their own, put once for a request. ``PrepareAgain`` if that may not be done now."""
    staged: CommitBody | None = table.notes.get(("body", location, lines))
    if staged is not None:
        return staged
    if not table.may_read:
        raise PrepareAgain
    sha256 = hashlib.sha256(lines).digest()
    body = CommitBody(f"{BODIES}{sha256.hex()}.json", sha256, len(lines))
    if DRY_RUN not in table.notes and not write_staged_file(
        commits.places.open_place(location), body.name, lines
    ):
        raise InvalidContent(
            f"{body.name} of the table {location} does not have the content that its name stands for\n  Move "
            "it away, and write again: that creates the right file.",
            file=body.name,
        )
    table.notes["body", location, lines] = body
    return body


def write_staged_file(place: Place, name: str, data: bytes) -> bool:
    """Write a file durably; whether it has these bytes now, be it from now or from before.

    One from before is written again if it lies beside the log: there the age of a file tells those who clean
    up that nobody is about to name it. ``Unavailable`` if the outcome is not known: nothing was ratified, and
    the request may be sent again.
    """
    why = ""
    try:
        if place.create(name, data):
            return True
    except OutcomeUnknown as problem:
        why = f"{problem.message}; nothing was committed"
    (existing,) = place.read([name])
    if why and existing is None:
        raise Unavailable(why, part="storage")
    if existing == data and name.startswith(FOLDER):
        try:
            place.put(name, data)
        except OutcomeUnknown as problem:
            raise Unavailable(f"{problem.message}; nothing was committed", part="storage") from None
    return existing == data


def line_id(table: Table, identity: UUID) -> bytes:
    """The line that a branch writes a table to: nothing for the default branch, whose log is the table's."""
    return b"" if table.is_default else hash_parts("line", table.incarnation, identity.bytes)[:16]


def _compose_entry(
    table: Table, content: DeltaTable, name: bytes, time_ms: int, held: CommitRecord, body: CommitBody | None
) -> ComposedCommit:
    assert content.id is not None
    assert held.head is not None
    object_id, data = encode_object(held)
    entry = BranchLogEntry(
        uuid=make_uuid(name),
        size=len(held.head) + (0 if body is None else body.size),
        timestamp_ms=time_ms,
        line=line_id(table, content.id),
        held=object_id,
        body="" if body is None else body.name,
    )
    return ComposedCommit(entry, {object_id: data}, held.head if body is None else None)


def limit_terms(terms: CommitTerms) -> CommitTerms:
    """Terms that fit into an object: a read set that is too large becomes a read of the whole table.

    A replacement of too many partitions is not repeated elsewhere either, but counts as such a reader.
    """
    if len(encode(terms)) <= TERMS_MAX_BYTES:
        return terms
    return CommitTerms(DeltaReads(whole_table=True), changes_data=terms.changes_data)


# The figures of a commit that people find in its history, under the names that Delta Spark gives them.
#
# They are counted from what the commit says of files, so that every writer's commits have them. A figure that
# does not follow from that, such as how many rows an update changed, is the writer's to tell.


METRICS: Final = "operationMetrics"
WRITES: Final = frozenset({"WRITE", "STREAMING UPDATE", "CREATE TABLE AS SELECT"})
MERGE_NAMES: Final = {
    "numAddedFiles": "numTargetFilesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedBytes": "numTargetBytesRemoved",
    "numAddedChangeFiles": "numTargetChangeFilesAdded",
}
"""How a MERGE calls them."""


class _FileRows(msgspec.Struct):
    """What is read of the statistics of a file."""

    num_records: int | None = msgspec.field(default=None, name="numRecords")


def operation_metrics(operation: str | None, actions: Iterable[Action]) -> dict[str, str]:
    """The figures of a commit, all of them as text; none if it says nothing of files."""
    adds, removes, feed = list[Add](), list[Remove](), 0
    for action in actions:
        if isinstance(action, Add):
            adds.append(action)
        elif isinstance(action, Remove):
            removes.append(action)
        elif isinstance(action, Cdc):
            feed += 1
    if not adds and not removes:
        return {}
    added_rows = _count_rows(adds)
    added_bytes = sum(add.size for add in adds)
    if operation in WRITES and not removes:
        rows = {} if added_rows is None else {"numOutputRows": added_rows}
        return _write_figures({"numFiles": len(adds), "numOutputBytes": added_bytes, **rows})
    figures = {
        "numAddedFiles": len(adds),
        "numRemovedFiles": len(removes),
        "numAddedBytes": added_bytes,
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "numAddedChangeFiles": feed,
    }
    removed_rows = _count_rows(removes)
    if operation == "DELETE" and added_rows is not None and removed_rows is not None:
        figures["numDeletedRows"] = removed_rows - added_rows
    if operation == "MERGE":
        figures = {MERGE_NAMES[name]: count for name, count in figures.items()}
    return _write_figures(figures)


def _count_rows(files: Iterable[Add | Remove]) -> int | None:
    """How many rows files have, without those that are deleted in them; ``None`` if one does not tell."""
    count = 0
    for file in files:
        try:
            rows = get_json_decoder(_FileRows).decode(file.stats).num_records if file.stats else None
        except msgspec.MsgspecError:
            return None
        if rows is None:
            return None
        count += rows - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return count


def _write_figures(figures: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in figures.items()}
