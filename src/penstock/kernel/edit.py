"""An edit: changes being tried on top of a view, with every rule that their result must satisfy.

Commits, merges, transplants, reverts and restores all go through here; nothing reaches the view below until
the draft that comes out is added to a chain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from uuid import UUID, uuid4

import msgspec

from penstock.errors import Damaged, InvalidContent
from penstock.kernel.chain import CommitDraft
from penstock.kernel.format import (
    DRY_RUN,
    AppliedChange,
    Format,
    FormatRefused,
    Formats,
    OpenTransaction,
    Table,
)
from penstock.kernel.lake_state import StateOverlay, StateView, find_prefix_end
from penstock.kernel.ledger import LedgerChange, TableChange, find_last_content, read_ledger_entry
from penstock.kernel.objects import Objects, PendingObjects, check_object, read_content, split_value
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, Namespace, decode_content, encode_checked_content
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.objects import Blob, Intent, Large, Value
from penstock.model.references import Reference
from penstock.model.transactions import read_transaction

if TYPE_CHECKING:
    from penstock.kernel.table_horizons import TableHorizon, TableHorizons

BEING_ERASED: Final = (
    "is being erased, and can only be written to on the default branch until the erase has begun; try "
    "again, or if it does not end, erase the table again"
)


class EditContext(NamedTuple):
    """For whom an edit is made: a request to a branch, while it is prepared or at its turn."""

    reference: Reference
    notes: dict[Any, Any]
    """The request's own, for its formats to keep what they read."""
    may_read: bool
    """Whether formats may read table storage."""
    is_repeated: bool = False
    """Whether commits are repeated one by one, and not all that a side has is brought."""
    brings_undone: bool = False
    """Whether what the branch had of them and has undone comes again."""


class Edit:
    """Changes on top of a view, and the conflicts they met."""

    def __init__(
        self,
        objects: Objects,
        below: StateView,
        formats: Formats,
        occasion: EditContext,
        earlier: Mapping[ObjectId, bytes] = MappingProxyType({}),
    ) -> None:
        """``earlier`` are objects that the view needs and that are not stored yet."""
        self._earlier = earlier
        self._objects, self._below, self._formats, self._occasion = objects, below, formats, occasion
        self._changes: dict[bytes, Value | None] = {}
        self._blobs: dict[ObjectId, bytes] = {}
        self._intents: list[Intent] = []
        self._seen = PendingObjects(objects, ChainMap(self._blobs, cast("dict[ObjectId, bytes]", earlier)))
        self.view = StateOverlay(below, self._changes)
        self.conflicts: list[Conflict] = []
        self.tables: dict[Key, TableChange] = {}
        """The managed tables that the result changes, once it was checked."""

    @property
    def is_dry_run(self) -> bool:
        """Whether it is only asked what would come of it."""
        return DRY_RUN in self._occasion.notes

    @property
    def may_read(self) -> bool:
        """Whether formats may read table storage."""
        return self._occasion.may_read

    @property
    def notes(self) -> dict[Any, Any]:
        """The request's own, from its preparation to its last turn."""
        return self._occasion.notes

    def find_content(self, key: bytes) -> AnyContent | None:
        """What a key holds, with the changes so far."""
        return self.decode_value(self.view.get(key))

    def decode_value(self, value: Value | None) -> AnyContent | None:
        """The content behind a value, which may be of this edit."""
        if isinstance(value, Large) and (value.parts[0] in self._blobs or value.parts[0] in self._earlier):
            return decode_content(b"".join(map(self._read_object, value.parts)))
        return read_content(self._objects, value)

    def open_table(self, key: Key, content: AnyContent | None, after: AnyContent | None = None) -> Table:
        """A table as its format wants to see it; ``after`` is what it may become where nothing is."""
        reference, notes, may_read, is_repeated, brings_undone = self._occasion
        last: AnyContent | None = None
        if content is None and after is not None:
            last = find_last_content(lambda stored: self.decode_value(self._below.get(stored)), after.id)
        return Table(
            key,
            content,
            self._read_object,
            branch=reference.name,
            is_default=self._formats.is_default(reference.name),
            incarnation=reference.incarnation,
            last=last,
            may_read=may_read,
            notes=notes,
            is_repeated=is_repeated,
            brings_undone=brings_undone,
            objects=self._seen,
            transaction=self._open_transaction,
        )

    @cached_property
    def _open_transaction(self) -> OpenTransaction | None:
        """The transaction on whose branch this is tried, if it is one's."""
        transaction = read_transaction(self._occasion.reference)
        if transaction is None:
            return None
        is_default = self._formats.is_default(transaction.target)
        return OpenTransaction(transaction.id, transaction.target, transaction.incarnation, is_default)

    def is_strange(self, identity: UUID | None) -> bool:
        """Whether the branch never had a table of this id."""
        return identity is not None and read_ledger_entry(self.find_content, identity) is None

    def _read_object(self, object_id: ObjectId) -> bytes:
        data = self._blobs.get(object_id) or self._earlier.get(object_id)
        blob = check_object(object_id, data) if data is not None else self._objects.get(object_id)
        if not isinstance(blob, Blob):
            raise Damaged(
                f"object {object_id.hex()} of the lake is damaged: it holds no bytes",
                objects=[object_id.hex()],
            )
        return blob.data

    def put_content(self, key: bytes, content: AnyContent | None, identity: UUID | None = None) -> None:
        """Let a key hold a content (or nothing). ``identity`` is for one that has no id yet."""
        if content is None:
            self.put_value(key, None)
            return
        if content.id is None:
            content = msgspec.structs.replace(content, id=identity or uuid4())
        value, blobs = split_value(encode_checked_content(content))
        self._blobs.update(blobs)
        self.put_value(key, value)

    def put_value(self, key: bytes, value: Value | None) -> None:
        """Let a key hold a value that is stored already (or nothing)."""
        if value == self._below.get(key):
            self._changes.pop(key, None)
        else:
            self._changes[key] = value

    def put_applied(self, key: bytes, applied: AppliedChange, identity: UUID | None = None) -> None:
        """Let a key hold what its format decided."""
        self._blobs.update(applied.blobs)
        self.put_content(key, applied.content, identity)

    @staticmethod
    def check_object_owner(key: Key, content: AnyContent, *earlier: AnyContent | None) -> None:
        """A content that a writer gives may hold only kernel objects that a known one holds: its format
        puts others there, together with the objects themselves."""
        held = {object_id for content in earlier if content is not None for object_id in content.objects}
        strange = [object_id for object_id in content.objects if object_id not in held]
        if strange:
            raise InvalidContent(
                f"the content for '{key}' references object {strange[0].hex()}, which does not belong to it"
            )

    def add_intent(self, key: bytes, format_name: str, data: bytes) -> None:
        self._intents.append(Intent(key, format_name, data))

    def add_opaque(self, key: bytes, managing: Format) -> None:
        """Remember that a managed key was brought into a given state."""
        self._intents.append(Intent(key, managing.name, b"", True))

    def refuse_key(self, key: Key, refused: FormatRefused) -> None:
        if not refused.clashes:
            self.conflicts.append(
                Conflict(
                    ConflictKind.FORMAT,
                    key,
                    refused.expected,
                    refused.found,
                    refused.why,
                    found_version=refused.found_version,
                )
            )
        for path, expected, found in refused.clashes:
            self.conflicts.append(Conflict(ConflictKind.FORMAT, key, expected, found, refused.why, path))
        if refused.more:
            reason = f"{refused.why} at {refused.more} further paths"
            self.conflicts.append(Conflict(ConflictKind.FORMAT, key, why=reason))

    def create_namespaces(self, key: Key) -> None:
        """Create the namespaces above a key that do not exist."""
        for parent in key.parents:
            stored = parent.encode()
            if self.view.get(stored) is None:
                self.put_content(stored, Namespace())

    def keep_filled_namespaces(self) -> list[Key]:
        """Leave namespaces that would go although something is in them; they are returned."""
        kept_keys: list[Key] = []
        for stored in sorted((key for key, value in self._changes.items() if value is None), reverse=True):
            before, inside = self._below.get(stored), stored + b"\0"
            is_filled = next(iter(self.view.scan_entries(inside, find_prefix_end(inside))), None) is not None
            if is_filled and isinstance(self.decode_value(before), Namespace):
                self.put_value(stored, before)
                kept_keys.append(Key.decode(stored))
        return kept_keys

    def check_result(self) -> None:
        """Check the result as a whole, and note where its tables are.

        A key needs its namespaces, a namespace that goes must be empty, and a managed table has one key.
        """
        missing: set[Key] = set()
        checked: set[Key] = set()
        changed = sorted(self._changes)
        for stored in changed:
            key = Key.decode(stored)
            before, after = self.decode_value(self._below.get(stored)), self.find_content(stored)
            if after is not None:
                for parent in key.parents:
                    if parent not in missing and parent not in checked:
                        self._check_parent(parent, missing, checked)
            if isinstance(before, Namespace) and not isinstance(after, Namespace):
                self._check_emptied(key, stored, changed)
            managing = self._formats.find_managing_format(after, before)
            if managing is not None:
                self.tables[key] = TableChange(managing, before, after)
        if self.tables:
            self._check_horizons()
            self._write_table_ledger()

    def _check_horizons(self) -> None:
        """Refuse to go on from a state of a table that was erased, or is about to be: nobody could read it.

        The default branch is where an erase begins the history anew, so that it is never behind.
        """
        if self._formats.is_default(self._occasion.reference.name):
            return
        if not any(self._find_erased(self._formats.horizons_at_turn())):
            return
        self._formats.forget_horizons()  # an erase may have ended since they were read
        for key, horizon, is_behind in self._find_erased(self._formats.horizons_at_turn()):
            if is_behind:
                raise horizon.expired_error()
            self.refuse_key(key, FormatRefused(BEING_ERASED))

    def _find_erased(self, horizons: TableHorizons | None) -> Iterator[tuple[Key, TableHorizon, bool]]:
        """The tables that would go on from a state that is erased, or is about to be, and whether it is."""
        if not horizons:
            return
        contents = [change.before for change in self.tables.values()]
        for key, change in self.tables.items():
            after = change.after
            horizon = None if after is None or after.id is None else horizons.get(after.id)
            if horizon is None or after in contents:  # or it only has another key
                continue
            is_behind = horizons.is_behind(after)
            if is_behind or horizon.is_under_way:
                yield key, horizon, is_behind

    def _write_table_ledger(self) -> None:
        """Write at which key and location the edit's tables are now; two tables at one location conflict."""
        ledger = LedgerChange(self.find_content, self._formats, self.tables)
        if len(ledger.touched_keys) > 1:
            self.view.get_many(ledger.touched_keys)  # with one request a level of the tree
        self.conflicts += ledger.find_conflicts()
        for stored, entry in ledger.make_entries():
            self.put_content(stored, entry)

    def _check_parent(self, parent: Key, missing: set[Key], checked: set[Key]) -> None:
        content = self.find_content(parent.encode())
        if isinstance(content, Namespace):
            checked.add(parent)
            return
        missing.add(parent)
        kind = ConflictKind.NAMESPACE_ABSENT if content is None else ConflictKind.NOT_A_NAMESPACE
        self.conflicts.append(Conflict(kind, parent))

    def _check_emptied(self, key: Key, stored: bytes, changed: list[bytes]) -> None:
        below, end = stored + b"\0", find_prefix_end(stored + b"\0")
        mine = changed[bisect_left(changed, below) : bisect_left(changed, end or b"")]
        is_put_below = any(self._changes[key] is not None for key in mine)
        if is_put_below or any(key not in self._changes for key, _ in self._below.scan_entries(below, end)):
            self.conflicts.append(Conflict(ConflictKind.NAMESPACE_NOT_EMPTY, key))

    def make_draft(
        self, meta: CommitMeta, key: str, further_parents: tuple[ObjectId, ...] = ()
    ) -> CommitDraft:
        """The commit that this edit asks for."""
        return CommitDraft(self._changes, meta, key, further_parents, tuple(self._intents), self._blobs)

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)


# Conflicts: comparing what a writer saw at a key with what is there now.


def describe_content(content: AnyContent | None) -> str:
    """A content in a few words: its type, always first, where it is, and the beginning of its id."""
    if content is None:
        return ""
    place = getattr(content, "metadata_location", "") or getattr(content, "location", "")
    identity = f" [{str(content.id)[:8]}]" if content.id else ""
    return f"{content.type}{' ' + place if place else ''}{identity}"


def describe_difference(key: Key, expected: AnyContent | None, content: AnyContent | None) -> Conflict:
    """The conflict between two different contents of a key."""
    if expected is None:
        kind = ConflictKind.KEY_EXISTS
    elif content is None:
        kind = ConflictKind.KEY_DOES_NOT_EXIST
    elif expected.type != content.type:
        kind = ConflictKind.PAYLOAD_DIFFERS
    elif expected.id != content.id:
        kind = ConflictKind.CONTENT_ID_DIFFERS
    else:
        kind = ConflictKind.VALUE_DIFFERS
    return Conflict(kind, key, describe_content(expected), describe_content(content))


# Landing: what formats are told once what a request did to their tables is visible.


class LandingNotice:
    """The managed tables that a request's commits change, each as the last of them leaves it."""

    def __init__(self, formats: Formats, branch: str) -> None:
        self._branch, self._is_default = branch, formats.is_default(branch)
        self._tables: dict[Key, tuple[TableChange, int]] = {}
        self._commits = 0

    def add_tables(self, tables: Mapping[Key, TableChange]) -> None:
        """What the next commit changes."""
        self._tables.update((key, (change, self._commits)) for key, change in tables.items())
        self._commits += 1

    def notify_formats(self, commits: Sequence[ObjectId]) -> None:
        """Have formats publish what has landed as these commits.

        One that fails keeps no other from being told; the first failure is raised in the end.
        """
        failed: Exception | None = None
        for key, (change, number) in self._tables.items():
            managing, after = change.managing, change.after
            content = after if after is not None and managing.manages(after) else None
            try:
                managing.after_commit(
                    key, content, commits[number], branch=self._branch, is_default=self._is_default
                )
            except Exception as problem:  # noqa: BLE001 - raised below, once the others were told
                failed = failed or problem
        if failed is not None:
            raise failed
