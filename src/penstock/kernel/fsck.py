"""Checking a lake: its rows and logs, every reachable object's hash and shape, and what is damaged.

Some tables have trees of their own, which are checked as the lake's own map is. What
their entries mean is for their formats to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.kernel.description import ROW_NAME, LakeDescription, read_description
from penstock.kernel.expired import list_blobs_of_lake, read_expired_commits
from penstock.kernel.jobs import JOBS, read_job_rows
from penstock.kernel.object_checks import TreeChecker, find_object_flaws
from penstock.kernel.objects import check_stored, expand_keys
from penstock.kernel.reachable import BLOCK, HistoryHorizon, Progress, ReachableObjects, show_no_progress
from penstock.kernel.read_ahead import ReadAhead
from penstock.kernel.records import list_rows_of_kind
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.skip_pointers import ChainLink
from penstock.kernel.table_horizons import HORIZONS, TableHorizons, read_horizon_rows
from penstock.kernel.tokens import TOKENS, read_token_rows
from penstock.model.content import AnyContent, Unknown, decode_content, encode_type, load_content_types
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import (
    BEGINNING,
    EMPTY_ROOT,
    AnyObject,
    CommitObject,
    Leaf,
    LogEntry,
    Node,
    Segment,
    Value,
)
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import read_transaction
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

ATTEMPTS_MAX: Final = 5
"""How often everything is checked again because a sweep cut history off meanwhile."""

Inspect: TypeAlias = Callable[[str, AnyContent], Iterable[tuple[str, str]]]
"""What is wrong with the table at a key, by its format: of what, and what."""


class Damage(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    object: str
    what: str

    def __str__(self) -> str:
        return f"{self.object}: {self.what}"


class CheckResult(msgspec.Struct, frozen=True):
    """What a check looked at, and what it found wrong."""

    references: int
    commits: int
    objects: int
    damages: tuple[Damage, ...]


def fsck(
    kernel: Kernel, progress: Progress = show_no_progress, inspect: Inspect = lambda _key, _content: ()
) -> CheckResult:
    """Check everything that the lake's references lead to, and that whatever else is stored can be read.

    ``inspect`` is asked about every state that a table with a tree of its own, or of a format that is not
    Penstock's, is found in.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        horizon = read_description(kernel.store).horizon
        checked = _Fsck(kernel, progress, inspect).run()
        # A sweep that cuts history off meanwhile removes what was there a moment ago, and is no damage.
        if not checked.damages or read_description(kernel.store).horizon == horizon:
            return checked
    return _Fsck(kernel, progress, inspect).run()


class _Fsck:
    def __init__(self, kernel: Kernel, progress: Progress, inspect: Inspect) -> None:
        self._kernel, self._progress, self._inspect = kernel, progress, inspect
        self._damages: dict[Damage, None] = {}
        self._commits: dict[ObjectId, CommitObject] = {}
        self._entries: dict[ObjectId, LogEntry] = {}
        self._segments: dict[ObjectId, int] = {}
        """How many changes each has."""
        self._tables: dict[Value, bytes] = {}
        """The states of tables that are looked into, and a key that each was found at."""
        self._roots: dict[ObjectId, None] = {}
        """Of commits that were read since trees were checked last."""
        self._inspected = tuple(
            kind for kind in load_content_types().values() if kind.holds_trees or kind is Unknown
        )
        self._type_bytes = frozenset(map(encode_type, self._inspected))
        self._trees = TreeChecker(kernel.objects)
        self._reader = ReadAhead(kernel.store.uncached)
        self._read = 0

    def run(self) -> CheckResult:
        lake = read_description(self._kernel.store)
        horizons = self._read_table_horizons()
        reach = ReachableObjects(
            self._fetch_objects,
            self._read_expired_commits(lake),
            horizons.list_retained_objects,
            self._check_trees,
        )
        reach.mark_blobs(list_blobs_of_lake(lake), "by the lake's description")
        references = list(self._list_readable_references())
        reach.mark_log_entries(reference.log for reference in references)
        reach.mark_commits(
            [reference.head for reference in references if reference.kind is not Kind.DELETED],
            HistoryHorizon(),
        )
        for object_id, what in reach.damaged.items():
            self._report_damage(object_id.hex(), what)
        for reference in references:
            self._check_reference(reference)
        for object_id, entry in self._entries.items():
            self._check_entry(object_id, entry)
        for object_id, commit in self._commits.items():
            self._check_commit(object_id, commit)
        self._check_trees()
        self._check_tables(horizons)
        commits, objects = len(self._commits), len(reach.seen - {NO_COMMIT, EMPTY_ROOT})
        self._check_rest(reach.seen)
        self._check_tokens()
        self._check_jobs()
        self._check_ended_transactions()
        return CheckResult(len(references), commits, objects, tuple(self._damages))

    def _read_expired_commits(self, lake: LakeDescription) -> Collection[ObjectId]:
        try:
            return read_expired_commits(lake, self._kernel.objects)
        except Damaged as damaged:
            self._report_damage(ROW_NAME, damaged.message)
            return ()

    def _read_table_horizons(self) -> TableHorizons:
        horizons = []
        for row in read_horizon_rows(self._kernel.store):
            try:
                horizons.append(HORIZONS.decode_row(row))
            except Damaged as damaged:
                self._report_damage(row.name, damaged.message)
        return TableHorizons(self._kernel.formats, {horizon.table: horizon for horizon in horizons})

    def _report_damage(self, name: str, subject: str) -> None:
        self._damages[Damage(name, subject)] = None

    def _list_readable_references(self) -> Iterator[Reference]:
        """Those whose rows can be read."""
        for row in self._read_rows():
            try:
                reference = decode_reference_row(row)
                read_transaction(reference)
                yield reference
            except Damaged as damaged:
                self._report_damage(row.name, damaged.message)

    def _read_rows(self) -> Iterator[Row]:
        for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED, Kind.TRANSACTION):
            yield from list_rows_of_kind(self._kernel.store, kind)

    def _fetch_objects(self, ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        objects: dict[ObjectId, AnyObject] = {}
        for object_id, data in self._reader.fetch(ids).items():
            try:
                stored = check_stored(object_id, data)
            except Damaged as damaged:
                self._report_damage(object_id.hex(), damaged.message)
                continue
            objects[object_id] = whole = expand_keys(stored)
            for what in find_object_flaws(stored, whole, data):
                self._report_damage(object_id.hex(), what)
            self._remember_object(object_id, whole)
            if isinstance(whole, Leaf | Node):
                self._kernel.objects.cache_decoded(object_id, whole, len(data))
        self._read += len(ids)
        self._progress("checked", self._read)
        return objects

    def _remember_object(self, object_id: ObjectId, decoded: AnyObject) -> None:
        if isinstance(decoded, CommitObject):
            self._commits[object_id] = decoded
            self._roots[decoded.root] = None
        elif isinstance(decoded, LogEntry):
            self._entries[object_id] = decoded
        elif isinstance(decoded, Leaf | Segment):
            if isinstance(decoded, Segment):
                self._segments[object_id] = len(decoded.keys)
            # A table that is looked into is too large to be in place, or has such a type.
            for key, value in zip(decoded.keys, decoded.values, strict=False):
                if value is None or (type(value) is bytes and value[1:2] not in self._type_bytes):
                    continue
                if not key.startswith(RESERVED):
                    self._tables[value] = key

    def _check_rest(self, seen: set[ObjectId]) -> None:
        """What nothing leads to can be read: receipts, and what a commit may store again as it is."""
        token = b""
        while True:
            page, token = self._kernel.store.scan(token, BLOCK)
            self._fetch_objects([stored.id for stored in page if stored.id not in seen])
            if not token:
                return

    def _check_trees(self) -> None:
        """The trees of commits that were read just now: their nodes are in memory still."""
        for root in self._roots:
            for object_id, what in self._trees.find_tree_flaws(root):
                self._report_damage(object_id.hex(), what)
        self._roots = {}

    def _check_tables(self, horizons: TableHorizons) -> None:
        """Tables with trees of their own, those trees; and what the formats say of them."""
        for value, stored in self._tables.items():
            try:
                content, key = decode_content(self._kernel.objects.read_value(value)), str(Key.decode(stored))
            except (Damaged, msgspec.MsgspecError, ValueError):
                continue  # reported by whoever follows it
            if not isinstance(content, self._inspected) or horizons.is_behind(content):
                continue
            for root in content.objects if content.holds_trees else ():
                for object_id, what in self._trees.find_tree_flaws(root):
                    self._report_damage(object_id.hex(), what)
            for name, what in self._inspect(key, content):
                self._report_damage(name, what)

    def _check_jobs(self) -> None:
        for row in read_job_rows(self._kernel.store):
            try:
                JOBS.decode_row(row)
            except Damaged as damaged:
                self._report_damage(row.name, damaged.message)

    def _check_ended_transactions(self) -> None:
        for row in list_rows_of_kind(self._kernel.store, Kind.ENDED_TRANSACTION):
            try:
                read_transaction(decode_reference_row(row))
            except Damaged as damaged:
                self._report_damage(row.name, damaged.message)

    def _check_tokens(self) -> None:
        for row in read_token_rows(self._kernel.store):
            try:
                TOKENS.decode_row(row).check()
            except (Damaged, InvalidRequest) as wrong:
                self._report_damage(row.name, wrong.message)

    def _check_reference(self, reference: Reference) -> None:
        """A reference is what the newest entry of its log says: one swap made both."""
        entry = self._entries.get(reference.log)
        if entry is None:
            return  # reported as missing
        if reference.head != entry.after:
            self._report_damage(
                reference.name, f"is at {reference.id}, but its log ends at {entry.after.hex()}"
            )
        names = (entry.name, entry.incarnation, entry.position)
        if (reference.name, reference.incarnation, reference.position) != names:
            self._report_damage(
                reference.name, f"has log entry {reference.log.hex()}, which belongs to another reference"
            )

    def _check_entry(self, entry_id: ObjectId, entry: LogEntry) -> None:
        if _is_wrong_jump(self._find_entry, entry):
            self._report_damage(entry_id.hex(), "has a skip link to an entry that is not part of its log")
        if entry.previous == NO_COMMIT and entry.position != 1:
            self._report_damage(
                entry_id.hex(), f"is log entry {entry.position}, but there is no entry before it"
            )
        previous = self._entries.get(entry.previous)
        if previous is None:
            return  # the first one, or reported as missing
        if entry.position != previous.position + 1:
            self._report_damage(
                entry_id.hex(), f"is log entry {entry.position}, but follows {previous.position}"
            )
        if entry.before != previous.after:
            self._report_damage(
                entry_id.hex(), "starts at another commit than the one where the log entry before it ended"
            )
        if entry.name != previous.name:
            self._report_damage(
                entry_id.hex(),
                f"is about '{entry.name}', but the log entry before it is about '{previous.name}'",
            )
        if entry.incarnation != previous.incarnation and entry.kind != Event.CREATE:
            self._report_damage(
                entry_id.hex(), "is about another incarnation of the reference than the log entry before it"
            )

    def _check_commit(self, commit_id: ObjectId, commit: CommitObject) -> None:
        for segment, count in commit.recent:
            length = self._segments.get(segment, 0)
            if not 0 < count <= length:
                self._report_damage(
                    commit_id.hex(), f"uses {count} changes of segment {segment.hex()}, which has {length}"
                )
        if _is_wrong_jump(self._read_commit, commit):
            self._report_damage(
                commit_id.hex(), "has a skip link to a commit that is not one of its first-parent ancestors"
            )
        first = self._read_commit(commit.parent)
        further = [self._read_commit(parent) for parent in commit.further_parents]
        if first is None or None in further:
            return  # cut off by the horizon, or reported as missing
        if commit.depth != first.depth + 1:
            self._report_damage(
                commit_id.hex(), f"has depth {commit.depth}, but its parent has depth {first.depth}"
            )
        if commit.time_us <= first.time_us:
            self._report_damage(commit_id.hex(), "is not later than its parent")
        if commit.merges != first.merges + bool(further):
            self._report_damage(commit_id.hex(), "has a wrong count of the merges before it")
        if commit.generation != 1 + max(parent.generation for parent in (first, *further) if parent):
            self._report_damage(commit_id.hex(), "has a generation that does not follow from its parents'")

    def _read_commit(self, commit_id: ObjectId) -> CommitObject | None:
        return BEGINNING if commit_id == NO_COMMIT else self._commits.get(commit_id)

    def _find_entry(self, entry_id: ObjectId) -> CommitObject | LogEntry | None:
        return BEGINNING if entry_id == NO_COMMIT else self._entries.get(entry_id)


def _is_wrong_jump(read: Callable[[ObjectId], ChainLink | None], link: ChainLink) -> bool:
    """Whether a jump leads neither to the parent nor on from where the parent's jump leads (see
    ``skip_pointers``).

    Then it may leave the chain. Where the horizon has cut these off, it cannot be told.
    """
    parent = read(link.parent)
    landing = read(parent.jump) if parent else None
    return landing is not None and link.jump not in (link.parent, landing.jump)
