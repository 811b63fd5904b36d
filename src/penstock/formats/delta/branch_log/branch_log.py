"""A line: what the lake knows of a Delta table, and all that a branch needs to read and to extend it.

Versions up to ``published`` are in the table's own log. Those after it are the line's entries, each a commit
that was ratified: the name of its file and, where its version was assigned at its turn, the kernel object
that holds its bytes. A reader takes published versions from the log and the others by the names given here,
never by listing: a branch that left at version 10 must not see what became version 11 elsewhere.

Entries are kept in runs that do not change any more, the newest few in the content itself, so that a commit
costs the same however long the line is.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.formats.delta.protocol.names import StagedName
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.format import blob
from penstock.model.encoding import ObjectId, encode, hash_parts, make_decoder
from penstock.model.nessie import DeltaTable
from penstock.storage.places import SCRATCH

RUN_MAX: Final = 16
"""So many entries, or runs of the same level, become one run."""
PACKED_FROM_BYTES: Final = 64 * 1024
"""Metadata beyond this size is compressed: a schema of thousands of columns fits into an object then."""
FOLDER: Final = f"{SCRATCH}/"
"""Below the table's root: what other engines do not look at, and do not clean up."""

Read = Callable[[ObjectId], bytes]
Blobs = dict[ObjectId, bytes]


class OwnershipPhase(StrEnum):
    """Whose table it is."""

    ADOPTING = "adopting"
    """The lake has promised to own it; whether it does, the file of the last entry in the log tells."""
    OWNED = "owned"
    RELEASED = "released"
    """It goes back to the file system: no more commits, only publishing is left."""


class CommitTerms(msgspec.Struct, frozen=True, array_like=True):
    """On what a commit rests: what must not have changed for it to be repeated elsewhere."""

    reads: DeltaReads = DeltaReads(whole_table=True)
    replaces: tuple[PartitionFilter, ...] | None = None
    """It removed whatever files were there, in these partitions, at its turn."""
    changes_data: bool = True
    """Whether its operation is of a kind that changes rows."""


class CommitRecord(msgspec.Struct, frozen=True, array_like=True):
    """What the kernel holds of a commit."""

    terms: CommitTerms = CommitTerms()
    head: bytes | None = None
    """The first bytes of its file; all of them, unless the entry names a body. ``None``: its writer wrote
    the file, and nothing is held but the terms."""


class BranchLogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A ratified commit. Its version follows from its place in the line."""

    uuid: bytes
    size: int
    """Of its file, in bytes."""
    timestamp_ms: int
    """Its in-commit timestamp."""
    line: bytes = b""
    """Whose folder its file is in; nothing is the default branch's."""
    held: ObjectId | None = None
    """The object with its ``CommitRecord``; ``None`` stands for ``CommitRecord()``."""
    body: str = ""
    """The file, by its name below the table's root, that follows after the held bytes."""

    def get_staged_path(self, version: int) -> str:
        """Of its file that is not published, below the table's root."""
        if not self.line:
            return str(StagedName(version, UUID(bytes=self.uuid)))
        return f"{line_folder(self.line)}{version:020}.{UUID(bytes=self.uuid)}.json"


class BranchLogSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries in a row, or runs of them, as one kernel object."""

    first: int
    last: int
    level: int
    id: ObjectId


class VersionList(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The versions of a line of which something may be true. Of all others after ``after`` it is not."""

    after: int
    """Of the versions up to this one nothing is known."""
    recent: tuple[int, ...] = ()
    """The newest of them."""
    runs: tuple[BranchLogSegment, ...] = ()
    """Those before them, oldest first; the data of a run of level 0 are versions."""

    def append_version(self, version: int, blobs: Blobs) -> VersionList:
        """With one more; objects that it takes to keep it are put to ``blobs``."""
        recent, runs = self.recent, self.runs
        if len(recent) == RUN_MAX:
            runs = (*runs, _make_segment(blobs, recent[0], recent[-1], 0, recent, ()))
            recent, runs = (), _fold_runs(runs, blobs)
        return VersionList(self.after, (*recent, version), runs)

    def read_versions_between(self, after: int, last: int, read: Read) -> Iterator[int]:
        """The listed versions after one and up to another, oldest first."""
        for version in chain(*(_read_segment_versions(run, after, read) for run in self.runs), self.recent):
            if version > last:
                return
            if version > after:
                yield version


class TableDefinition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the table is at the end of a line: the last lines of the log that say so."""

    protocol: bytes
    metadata: bytes
    is_packed: bool = False
    """Whether the metadata is compressed, as that of a table with very many columns is when it is stored."""


class BranchLog(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A Delta table on a branch."""

    phase: OwnershipPhase
    published: int
    """Versions up to this one are read from the log. It may be more by now: publishing changes no content."""
    latest: int
    timestamp_ms: int
    """Of the latest version."""
    declared: ObjectId
    """The object with its ``TableDefinition``."""
    tail: int | None = None
    """The first version that is not the default branch's; ``None`` if all are."""
    entries: tuple[BranchLogEntry, ...] = ()
    """The newest; the last of them is the latest version."""
    runs: tuple[BranchLogSegment, ...] = ()
    """Those before them, oldest first."""
    changes: VersionList | None = None
    """The versions that may have done more than to append files without having read anything. Whoever undoes
    a commit looks through those that came since, and most of these are appends. ``None`` if nothing is known:
    an earlier release has written the line."""
    repeats: VersionList | None = None
    """The versions that may have added files which were in the table already, as a retry of another engine
    does. ``None`` likewise."""
    highest_row_id: int | None = None
    """Of a table that gives ids to rows, the highest that was given on the line. ``None`` if the log has to
    be asked."""

    @property
    def fork_version(self) -> int:
        """The last version that is the default branch's."""
        return self.latest if self.tail is None else self.tail - 1

    @property
    def held_objects(self) -> tuple[ObjectId, ...]:
        """The kernel objects that the line needs."""
        entries = (entry.held for entry in self.entries if entry.held is not None)
        listed = (
            run
            for version_list in (self.changes, self.repeats)
            if version_list is not None
            for run in version_list.runs
        )
        return (self.declared, *entries, *(run.id for run in (*self.runs, *listed)))

    def append_entry(
        self,
        entry: BranchLogEntry,
        declared: ObjectId | None = None,
        *,
        is_append: bool = False,
        may_repeat_files: bool = True,
        highest_row_id: int | None = None,
    ) -> tuple[BranchLog, Blobs]:
        """The line with one more version, and the objects that it takes to keep it.

        ``is_append``: the version says of itself that it only appended, and read nothing.
        ``may_repeat_files``: files that it adds may have been in the table already.
        ``highest_row_id``: how far ids of rows are given with it, where it gives any.
        """
        entries, runs, blobs = self.entries, self.runs, Blobs()
        if len(entries) == RUN_MAX:
            first = self.latest - len(entries) + 1
            held = tuple(entry.held for entry in entries if entry.held is not None)
            runs = (*runs, _make_segment(blobs, first, self.latest, 0, entries, held))
            entries, runs = (), _fold_runs(runs, blobs)
        changes, repeats = self.changes or VersionList(self.latest), self.repeats or VersionList(self.latest)
        line = msgspec.structs.replace(
            self,
            latest=self.latest + 1,
            timestamp_ms=entry.timestamp_ms,
            declared=self.declared if declared is None else declared,
            tail=self.latest + 1 if self.tail is None and entry.line else self.tail,
            entries=(*entries, entry),
            runs=runs,
            changes=changes if is_append else changes.append_version(self.latest + 1, blobs),
            repeats=repeats.append_version(self.latest + 1, blobs) if may_repeat_files else repeats,
            highest_row_id=self.highest_row_id if highest_row_id is None else highest_row_id,
        )
        return line, blobs

    def drop_published_entries(self, version: int) -> BranchLog:
        """The line once versions up to this one are known to be in the log: they are forgotten here."""
        if version <= self.published:
            return self
        published = min(version, self.fork_version)
        first = self.latest - len(self.entries) + 1
        return msgspec.structs.replace(
            self,
            published=published,
            entries=self.entries[max(0, published + 1 - first) :],
            runs=tuple(run for run in self.runs if run.last > published),
        )

    def read_entries_after(self, version: int, read: Read) -> Iterator[tuple[int, BranchLogEntry]]:
        """The entries after a version with their versions, oldest first; published ones are left out."""
        after = max(version, self.published)
        for run in self.runs:
            yield from _read_segment_entries(run, after, read)
        first = self.latest - len(self.entries) + 1
        for number, entry in enumerate(self.entries, first):
            if number > after:
                yield number, entry

    def truncate_at_version(self, version: int, read: Read) -> BranchLog:
        """The line as if it ended at one of its versions, to be read; what it declares is that of its end."""
        published = min(self.published, version)
        entries = tuple(
            entry for number, entry in self.read_entries_after(published, read) if number <= version
        )
        return msgspec.structs.replace(
            self,
            published=published,
            latest=version,
            timestamp_ms=entries[-1].timestamp_ms if entries else -1,
            tail=self.tail if version > self.fork_version else None,
            entries=entries,
            runs=(),
            changes=None,
            repeats=None,
            highest_row_id=None,
        )

    def find_versions_beyond_appends(self, after: int, read: Read) -> Sequence[int]:
        """The versions after one that may have done more than append, oldest first."""
        if self.changes is None or self.changes.after > after:
            return range(after + 1, self.latest + 1)
        return [*self.changes.read_versions_between(after, self.latest, read)]

    def versions_with_repeats(self, after: int, last: int, read: Read) -> set[int]:
        """The versions after one and up to another that may have added files which were there already."""
        unknown = last if self.repeats is None else min(self.repeats.after, last)
        listed = (
            ()
            if self.repeats is None
            else self.repeats.read_versions_between(max(after, unknown), last, read)
        )
        return {*range(after + 1, unknown + 1), *listed}

    def find_entry(self, version: int, read: Read) -> BranchLogEntry | None:
        """The entry of a version; ``None`` if the line has none, as where it is published."""
        first = self.latest - len(self.entries) + 1
        if version >= first:
            return self.entries[version - first] if version <= self.latest else None
        entry_at = next(self.read_entries_after(version - 1, read), None)
        return entry_at[1] if entry_at is not None and entry_at[0] == version else None


class BranchLogTip(NamedTuple):
    """Which version it is, on whatever line: enough to tell whether another line has this very one.

    A line that has it also has all that came before it there. The number alone does not tell: a branch that
    is created anew, set to another commit or merged into gets other versions of the same numbers.
    """

    version: int
    uuid: bytes
    """Nothing for a version of the default branch, of which there is one."""
    line: bytes = b""
    """Whose version it is: a writer may use the id of an attempt on several branches."""

    @classmethod
    def from_line(cls, line: BranchLog) -> BranchLogTip:
        if line.tail is None:
            return cls(line.latest, b"")
        return cls(line.latest, line.entries[-1].uuid, line.entries[-1].line)

    @classmethod
    def from_line_version(cls, line: BranchLog, version: int, read: Read) -> BranchLogTip:
        """Of a version that a line has."""
        entry = line.find_entry(version, read) if version > line.fork_version else None
        return cls(version, b"") if entry is None else cls(version, entry.uuid, entry.line)

    @classmethod
    def parse(cls, text: str) -> BranchLogTip:
        """What ``text`` says. ``InvalidRequest`` for anything else."""
        match = _TIP.fullmatch(text)
        if match is None or int(match[1]) > _VERSION_MAX:
            shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
            raise InvalidRequest(
                f"{shown!r} is not a tip of the table; pass the 'tip' of an earlier response without changes"
            )
        version, uuid, line = match.groups(default="")
        return cls(int(version), bytes.fromhex(uuid), bytes.fromhex(line))

    @property
    def text(self) -> str:
        """As others keep it, without a need to understand it."""
        return f"{self.version}-{self.uuid.hex()}-{self.line.hex()}" if self.uuid else str(self.version)

    def is_on(self, line: BranchLog, read: Read) -> bool:
        """Whether a line has this very version. The default branch only moves forward (M1)."""
        if not self.uuid:
            return self.version <= line.fork_version
        entry = line.find_entry(self.version, read)
        return entry is not None and (entry.uuid, entry.line) == (self.uuid, self.line)


def make_uuid(hashed: bytes) -> bytes:
    """A UUID for a file whose name is made of a hash."""
    return UUID(bytes=hashed[:16], version=5).bytes


def is_named_after(version: int, entry: BranchLogEntry, head: bytes, body: bytes) -> bool:
    """Whether an entry got its name from these very bytes, as every one does that has a body."""
    composed = hash_parts("delta", version.to_bytes(8, "big"), head, hashlib.sha256(body).digest())
    whole = hashlib.sha256(head)  # of a commit that was given as a whole, and only kept in two parts
    whole.update(body)
    return entry.uuid in (make_uuid(composed), make_uuid(whole.digest()))


def line_folder(line: bytes) -> str:
    """Where a line that is not the default branch's keeps its files, below the table's root."""
    return f"{FOLDER}{line.hex()}/"


def decode_branch_log(content: DeltaTable) -> BranchLog:
    """What a content of a managed table says. ``Damaged`` if it cannot be read."""
    try:
        line: BranchLog = _decode_line(content.state)
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the branch log of table {content.id} cannot be read: {problem}") from None
    return line


def replace_branch_log(content: DeltaTable, line: BranchLog) -> DeltaTable:
    """The content that says so."""
    return msgspec.structs.replace(content, state=encode(line), held=line.held_objects)


def read_commit_record(entry: BranchLogEntry, read: Read) -> CommitRecord:
    """What the kernel holds of a commit."""
    if entry.held is None:
        return CommitRecord()
    held: CommitRecord = _decode_held(read(entry.held))
    return held


def read_table_definition(line: BranchLog, read: Read) -> TableDefinition:
    """What the table is at the end of a line."""
    return unpack_declared(read(line.declared))


def unpack_declared(data: bytes) -> TableDefinition:
    """Protocol and metadata of a table, from the bytes that ``encode_object`` made of them."""
    declared: TableDefinition = _decode_declared(data)
    if not declared.is_packed:
        return declared
    return TableDefinition(declared.protocol, zlib.decompress(declared.metadata))


def encode_object(value: CommitRecord | TableDefinition) -> tuple[ObjectId, bytes]:
    """A value as a kernel object: its id and its bytes. ``InvalidContent`` if it is too large for one."""
    if isinstance(value, TableDefinition) and len(value.metadata) > PACKED_FROM_BYTES and not value.is_packed:
        value = TableDefinition(value.protocol, zlib.compress(value.metadata), is_packed=True)
    return blob(encode(value))


_TIP: Final = re.compile(r"(-1|[0-9]{1,19})(?:-([0-9a-f]{32})-([0-9a-f]{32}))?")
_VERSION_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 100

_decode_line = make_decoder(BranchLog).decode
_decode_held = make_decoder(CommitRecord).decode
_decode_declared = make_decoder(TableDefinition).decode
_decode_entries = make_decoder(tuple[BranchLogEntry, ...]).decode
_decode_runs = make_decoder(tuple[BranchLogSegment, ...]).decode
_decode_versions = make_decoder(tuple[int, ...]).decode


def _make_segment(
    blobs: Blobs,
    first_version: int,
    last: int,
    level: int,
    parts: tuple[BranchLogEntry | BranchLogSegment | int, ...],
    held: tuple[ObjectId, ...],
) -> BranchLogSegment:
    run_id, data = blob(encode(parts), held)
    blobs[run_id] = data
    return BranchLogSegment(first_version, last, level, run_id)


def _fold_runs(runs: tuple[BranchLogSegment, ...], blobs: Blobs) -> tuple[BranchLogSegment, ...]:
    """Fold runs until no level has ``RUN_MAX`` of them, as digits of a number carry over."""
    level = 0
    while sum(run.level == level for run in runs) >= RUN_MAX:
        same = tuple(run for run in runs if run.level == level)
        higher = _make_segment(
            blobs, same[0].first, same[-1].last, level + 1, same, tuple(run.id for run in same)
        )
        runs = (*(run for run in runs if run.level > level), higher)
        level += 1
    return runs


def _read_segment_entries(
    run: BranchLogSegment, after: int, read: Read
) -> Iterator[tuple[int, BranchLogEntry]]:
    if run.last <= after:
        return
    if run.level:
        for lower in _decode_runs(read(run.id)):
            yield from _read_segment_entries(lower, after, read)
        return
    for number, entry in enumerate(_decode_entries(read(run.id)), run.first):
        if number > after:
            yield number, entry


def _read_segment_versions(run: BranchLogSegment, after: int, read: Read) -> Iterator[int]:
    if run.last <= after:
        return
    if run.level:
        for lower in _decode_runs(read(run.id)):
            yield from _read_segment_versions(lower, after, read)
        return
    yield from _decode_versions(read(run.id))
