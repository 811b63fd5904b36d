"""References: creating, assigning, deleting and finding branches and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple, TypeAlias
from uuid import uuid4

import msgspec

from penstock.errors import (
    CommitNotFound,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
    TryAgainError,
    Unavailable,
)
from penstock.kernel.history import History
from penstock.kernel.objects import Objects
from penstock.kernel.queue import live, row_of
from penstock.kernel.reflog import RefLog
from penstock.kernel.retry import Tries
from penstock.kernel.settings import Settings
from penstock.model.clock import Clock
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.names import check_name
from penstock.model.objects import Landed, LogEntry
from penstock.model.references import Event, Kind, Reference, decode_reference
from penstock.stores.port import Row, Store, Turn

PAGE = 1000
REPEATS_LOOK_MAX = 4
"""How many log entries are looked at to see whether a lost answer was a success."""
REPEATS_SEARCH_MAX = 10_000
"""How many are, before a request that names its idempotency key is refused."""
NOTE_MAX_BYTES = 16 * 1024


class Move(NamedTuple):
    """A decision about a row: what it becomes (``None``: nothing), and what the log says about it."""

    reference: Reference | None
    event: Event
    objects: Mapping[ObjectId, bytes] = {}
    landed: tuple[Landed, ...] = ()


Decide: TypeAlias = Callable[[Row | None], Move]


class References:
    """The branches and tags of a lake."""

    def __init__(
        self, store: Store, objects: Objects, history: History, clock: Clock, settings: Settings
    ) -> None:
        self._store, self._objects, self._history = store, objects, history
        self._clock, self._settings = clock, settings
        self._log = RefLog(objects)

    def get(self, name: str) -> Reference:
        """The branch or tag ``name``."""
        found = live(self._store.reference(check_name(name)))
        if found is None:
            raise ReferenceNotFound(f"there is no branch or tag '{name}'", name=name)
        return found

    def list(self, kind: Kind, prefix: str = "", after: str = "", limit: int = PAGE) -> list[Reference]:
        """References of one kind by name, some at a time; others are not read."""
        rows = self._store.references(kind.value, prefix, after, limit)
        return [decode_reference(row.data) for row in rows]

    def all(self, kind: Kind, prefix: str = "") -> Iterator[Reference]:
        """All references of one kind."""
        after = ""
        while page := self.list(kind, prefix, after):
            yield from page
            after = page[-1].name

    def create(
        self, name: str, kind: Kind, at: ObjectId, *, who: str = "", key: str = "", note: bytes = b""
    ) -> Reference:
        """Create a branch or tag at a commit, which must be reachable (see ``require_reachable``)."""
        check_name(name)
        if kind not in (Kind.BRANCH, Kind.TAG):
            raise InvalidRequest("only branches and tags can be created")
        self._history.commit(at)

        def decide(before: Row | None) -> Move:
            if (found := live(before)) is not None:
                raise ReferenceExists(f"there is a {found.kind} '{name}' already", name=name, found=found.id)
            created = Reference(
                kind=kind,
                name=name,
                head=at,
                incarnation=uuid4().bytes,
                log=NO_COMMIT,
                position=0,
                created_us=self._clock(),
                note=note,
            )
            return Move(created, Event.CREATE)

        return self.swap(name, decide, who, key)

    def assign(
        self, name: str, to: ObjectId, *, expected: ObjectId | None = None, who: str = "", key: str = ""
    ) -> Reference:
        """Let a branch or tag name another commit, which must be reachable (see ``require_reachable``)."""
        self._history.commit(to)

        def decide(before: Row | None) -> Move:
            found = self.expected(name, before, expected)
            return Move(msgspec.structs.replace(found, head=to), Event.ASSIGN)

        return self.swap(name, decide, who, key)

    def annotate(self, name: str, expected: Reference, note: bytes, *, who: str = "") -> Reference:
        """Replace a reference's note if nothing about the reference changed since it was read."""
        if len(note) > NOTE_MAX_BYTES:
            raise InvalidRequest(f"a note has at most {NOTE_MAX_BYTES} bytes, this one has {len(note)}")

        def decide(before: Row | None) -> Move:
            found = self.expected(name, before, None)
            if found != expected:
                raise ReferenceChanged(f"'{name}' changed since it was read", name=name, found=found.id)
            return Move(msgspec.structs.replace(found, note=note), Event.ASSIGN)

        return self.swap(name, decide, who, "")

    def delete(
        self,
        name: str,
        *,
        expected: ObjectId | None = None,
        who: str = "",
        key: str = "",
        leave_log: bool = True,
    ) -> Reference:
        """Delete a branch or tag; its log can be read until it expires, unless it leaves none."""

        def decide(before: Row | None) -> Move:
            found = self.expected(name, before, expected)
            if not leave_log:
                return Move(None, Event.DELETE)
            return Move(msgspec.structs.replace(found, kind=Kind.DELETED, was=found.kind), Event.DELETE)

        before = self.get(name)
        self.swap(name, decide, who, key)
        return before

    def expected(self, name: str, row: Row | None, expected: ObjectId | None) -> Reference:
        found = live(row)
        if found is None:
            raise ReferenceNotFound(f"there is no branch or tag '{name}'", name=name)
        if expected is not None and found.head != expected:
            raise ReferenceChanged(
                f"{found.kind} '{name}' is at {found.id[:8]}, not at {expected.hex()[:8]}",
                name=name,
                expected=expected.hex(),
                found=found.id,
            )
        return found

    def swap(self, name: str, decide: Decide, who: str = "", key: str = "") -> Reference:
        """Move one row by one swap, again where another process was faster.

        If this very request had done it before, the answer is what it did then.
        """
        tries, in_doubt = Tries(self._settings), False
        last: Reference | None = None
        lost: str | Unavailable
        key_is_given, key = bool(key), key or uuid4().hex
        while True:
            try:
                with self._store.turn(name) as turn:
                    if in_doubt and last is not None and turn.row is None:
                        return last  # it was removed, and only the answer was lost
                    last = decode_reference(turn.row.data) if turn.row is not None else None
                    result = self._attempt(turn, name, decide, who, key, key_is_given)
                if result is not None:
                    return result
                lost = f"another process moved '{name}'"
            except OutcomeUnknown as unknown:
                in_doubt, lost = True, str(unknown)
            except Unavailable as unavailable:
                lost = unavailable
            try:
                tries.again(lost)
            except TryAgainError as exhausted:
                raise self._unresolved(exhausted, in_doubt, name, key) from None

    def _attempt(
        self, turn: Turn, name: str, decide: Decide, who: str, key: str, key_is_given: bool
    ) -> Reference | None:
        before: Reference | None = decode_reference(turn.row.data) if turn.row is not None else None
        done = self._done_before(before, key, REPEATS_LOOK_MAX)
        if done is not None:
            return done
        try:
            after, event, objects, landed = decide(turn.row)
        except PenstockError:
            done = self._done_before(before, key, REPEATS_SEARCH_MAX) if key_is_given else None
            if done is None:
                raise
            return done
        if after is None:
            return before if turn.advance({}, None).swapped else None
        one, data, entry = self._log.entry(
            before,
            event,
            name=name,
            incarnation=after.incarnation,
            head=after.head,
            now_us=self._clock(),
            who=who,
            key=key,
            landed=landed,
        )
        result = msgspec.structs.replace(after, log=one, position=entry.position)
        return result if turn.advance({**objects, one: data}, row_of(result)).swapped else None

    def _done_before(self, before: Reference | None, key: str, most: int) -> Reference | None:
        """The reference as this request left it, if one of the newest log entries is its own."""
        if before is None:
            return None
        for one, entry in islice(self._log.walk(before.log), most):
            if entry.key == key:
                return msgspec.structs.replace(before, head=entry.after, log=one, position=entry.position)
        return None

    def _unresolved(self, exhausted: TryAgainError, in_doubt: bool, name: str, key: str) -> PenstockError:
        if not in_doubt:
            return exhausted
        return OutcomeUnknown(
            f"{self._store.url} did not answer while moving '{name}'\n"
            f"  Look at '{name}' when it is back, or repeat the request with idempotency key {key}.",
            key=key,
            name=name,
        )

    def log(self, name: str) -> Iterator[tuple[ObjectId, LogEntry]]:
        """The log of a reference, newest first; also of a deleted one."""
        row = self._store.reference(check_name(name))
        if row is None or row.kind == Kind.LAKE:
            raise ReferenceNotFound(
                f"there is no branch or tag '{name}', and no log of a deleted one", name=name
            )
        yield from self._log.walk(decode_reference(row.data).log)

    def require_reachable(self, commit: ObjectId) -> None:
        """Refuse a commit that no reference leads to: the sweep may be removing it.

        What the recent log of a reference names counts too, for half of the grace period, so that it cannot
        come to an end between this check and the swap.
        """
        if commit == NO_COMMIT:
            return
        self._history.commit(commit)
        if not self.is_reachable(commit):
            raise CommitNotFound(
                f"commit {commit.hex()} is on no branch or tag, and not in their recent logs",
                commit=commit.hex(),
            )

    def is_reachable(self, commit: ObjectId) -> bool:
        oldest_us = self._clock() - int(self._settings.grace_s * 500_000)
        heads: set[ObjectId] = set()
        for head in chain(self.heads(), self.left_behind(oldest_us)):
            if head not in heads:
                heads.add(head)
                if self._history.is_ancestor(commit, head):
                    return True
        return False

    def heads(self) -> Iterator[ObjectId]:
        """The heads of all branches and tags."""
        for kind in (Kind.BRANCH, Kind.TAG):
            for reference in self.all(kind):
                yield reference.head

    def left_behind(self, oldest_us: int) -> Iterator[ObjectId]:
        """The heads that references left behind since a time, by being assigned, rebased or deleted."""
        for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
            for reference in self.all(kind):
                yield from self._left_by(reference, oldest_us)

    def _left_by(self, reference: Reference, oldest_us: int) -> Iterator[ObjectId]:
        for _, entry in self._log.walk(reference.log):
            if entry.time_us < oldest_us:
                return
            if entry.kind in (Event.ASSIGN, Event.DELETE, Event.TRANSPLANT):
                yield entry.before
