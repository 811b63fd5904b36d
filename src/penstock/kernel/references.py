"""References: creating, assigning, deleting and finding branches and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from penstock.errors import (
    CommitNotFound,
    HistoryExpired,
    InvalidName,
    InvalidRequest,
    OutcomeUnknown,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
    TryAgainError,
)
from penstock.kernel.description import HistoryRule, find_description, lake_moved_error
from penstock.kernel.expired import read_expired_commits
from penstock.kernel.format import PrepareAgain
from penstock.kernel.grace_periods import GracePeriodRules
from penstock.kernel.history import History
from penstock.kernel.objects import Objects
from penstock.kernel.records import PAGE, KeepRow, RowSubject, RowSwap, list_rows_of_kind, swap_row
from penstock.kernel.reference_rows import (
    decode_branch_or_tag,
    decode_live_reference,
    decode_reference_row,
    encode_reference_row,
    not_found_error,
)
from penstock.kernel.reflog import RefLog, encode_receipt, find_earlier_request, make_receipt_id
from penstock.kernel.request import measure_request, request_key
from penstock.kernel.settings import DAY_US, Settings
from penstock.kernel.time_limits import check_read_may_go_on, describe_reason
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock
from penstock.model.commits import remove_key_owner
from penstock.model.encoding import NO_COMMIT, ObjectId, hash_parts
from penstock.model.expectations import has_expectations
from penstock.model.names import check_name
from penstock.model.objects import CommitObject, Landed, LogEntry
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import PREFIX, is_transaction, read_transaction
from penstock.stores.port import Row, Store

NOTE_MAX_BYTES = 16 * 1024


class ReferenceDecision(NamedTuple):
    """A decision about a row: what it becomes (``None``: nothing), and what the log says about it."""

    reference: Reference | None
    event: Event
    objects: Mapping[ObjectId, bytes] = {}
    landed: tuple[Landed, ...] = ()


A = TypeVar("A")
Decide: TypeAlias = Callable[[Row | None], ReferenceDecision | KeepRow[A]]


class References:
    """The branches and tags of a lake."""

    def __init__(
        self,
        store: Store,
        objects: Objects,
        history: History,
        clock: Clock,
        settings: Settings,
        graces: GracePeriodRules,
        meter: Meter = SILENT,
        moved: Callable[[str], None] = lambda _: None,
        check_move: Callable[[Reference, ObjectId], None] = lambda _reference, _to: None,
    ) -> None:
        self._store, self._objects, self._history = store, objects, history
        self._clock, self._settings, self._meter, self._moved = clock, settings, meter, moved
        self._check_move, self._graces = check_move, graces
        self._log = RefLog(objects)

    def get_reference(self, name: str) -> Reference:
        """The branch or tag ``name``, or the branch of a transaction that has not ended.

        ``ReferenceNotFound`` if there is none; ``TransactionNotFound`` or ``TransactionOver`` if the name is
        a transaction's.
        """
        row = self._store.reference(check_name(name))
        reference = decode_live_reference(row)
        if reference is None:
            raise not_found_error(name, row)
        return reference

    def list_references(
        self, kind: Kind, prefix: str = "", after: str = "", limit: int = PAGE
    ) -> list[Reference]:
        """References of one kind by name, some at a time; others are not read."""
        if limit < 0:
            raise InvalidRequest(f"limit must be 0 or greater, got {limit}")
        return [decode_reference_row(row) for row in self._store.references(kind.value, prefix, after, limit)]

    def list_all_references(self, kind: Kind, prefix: str = "", after: str = "") -> Iterator[Reference]:
        """All references of one kind, or those after a name."""
        for row in list_rows_of_kind(self._store, kind, prefix=prefix, after=after):
            check_read_may_go_on()
            yield decode_reference_row(row)

    def create_reference(
        self,
        name: str,
        kind: Kind,
        at: ObjectId,
        *,
        who: str = "",
        key: str = "",
        note: bytes = b"",
        asked: bytes | None = None,
    ) -> Reference:
        """Create a branch or tag at a commit, which must be reachable (see ``require_reachable``).

        ``asked`` is a hash of the request as its writer put it (see ``RequestTerms.fingerprint``).
        """
        check_new_name(name)
        if kind not in (Kind.BRANCH, Kind.TAG):
            raise InvalidRequest("only branches and tags can be created")
        _check_note(note)
        self.require_kept(at)
        is_new_name = False

        def decide_change(before: Row | None) -> ReferenceDecision:
            nonlocal is_new_name
            is_new_name = before is None
            if (reference := decode_branch_or_tag(before)) is not None:
                raise ReferenceExists(
                    f"the {reference.kind} '{name}' already exists", name=name, found=reference.id
                )
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
            return ReferenceDecision(created, Event.CREATE)

        created = self.swap_reference(
            name, decide_change, who, key, asked or hash_parts("create", name, kind, at, note)
        )
        if is_new_name:
            try:
                self._withdraw_if_moved(created)
            except TryAgainError as problem:
                raise OutcomeUnknown(
                    f"'{name}' was created, but it is not known whether that is permanent: "
                    f"{describe_reason(problem)}",
                    key=key,
                    name=name,
                ) from None
        return created

    def _withdraw_if_moved(self, created: Reference) -> None:
        """Take back a reference that was made while the lake was being sealed, unless it goes along.

        A new name has no log that could have been sealed, so its maker looks afterwards.
        """
        lake = find_description(self._store)
        if lake is None or lake.sealed is None:
            return

        def decide_change(row: Row | None, _: bool) -> RowSwap[bool] | KeepRow[bool]:
            return RowSwap(None, True) if row == encode_reference_row(created) else KeepRow(False)

        subject = RowSubject(
            f"'{created.name}'", "Look at it when the store answers.", {"name": created.name}
        )
        if swap_row(self._store, self._settings, created.name, subject, decide_change):
            raise lake_moved_error(lake.sealed, self._store)

    def assign_reference(
        self,
        name: str,
        to: ObjectId,
        *,
        kind: Kind | None = None,
        expected: ObjectId | None = None,
        who: str = "",
        key: str = "",
        asked: bytes | None = None,
        checked: Reference | None = None,
    ) -> Reference:
        """Let a branch or tag name another commit, which must be reachable (see ``require_reachable``).

        ``InvalidRequest`` if it is the default branch and has a managed table that cannot follow.
        ``PrepareAgain`` if it is not any more as it was when checks agreed to this, or if it expects
        something that nobody was asked about.
        """
        self.require_kept(to)

        def decide_change(before: Row | None) -> ReferenceDecision:
            reference = self.require_expected(name, before, expected, kind)
            if (
                has_expectations(reference)
                if checked is None
                else _parts_seen_by_checks(checked) != _parts_seen_by_checks(reference)
            ):
                raise PrepareAgain
            self._check_move(reference, to)
            return ReferenceDecision(msgspec.structs.replace(reference, head=to), Event.ASSIGN)

        return self.swap_reference(
            name, decide_change, who, key, asked or hash_parts("assign", name, to, expected or b"")
        )

    def delete_reference(
        self,
        name: str,
        *,
        kind: Kind | None = None,
        expected: ObjectId | None = None,
        who: str = "",
        key: str = "",
        asked: bytes | None = None,
        leave_log: bool = True,
    ) -> Reference:
        """Delete a branch or tag; its log can be read until it expires, unless it leaves none.

        The default branch is never deleted.
        """
        lake = find_description(self._store)
        if lake is not None and name == lake.default_branch:
            raise InvalidRequest(f"the default branch '{name}' cannot be deleted", name=name)

        def decide_change(before: Row | None) -> ReferenceDecision:
            reference = self.require_expected(name, before, expected, kind)
            if not leave_log:
                return ReferenceDecision(None, Event.DELETE)
            return ReferenceDecision(
                msgspec.structs.replace(reference, kind=Kind.DELETED, was=reference.kind), Event.DELETE
            )

        return self.swap_reference(
            name, decide_change, who, key, asked or hash_parts("delete", name, expected or b"")
        )

    def require_expected(
        self, name: str, row: Row | None, expected: ObjectId | None, kind: Kind | None = None
    ) -> Reference:
        """The branch or tag in a row, if it is what the caller expects."""
        reference = decode_branch_or_tag(row)
        if reference is None:
            if decode_live_reference(row) is not None:
                raise InvalidRequest(
                    f"'{name}' is the branch of a transaction: only the commit or the abort of the "
                    "transaction moves it",
                    name=name,
                )
            raise not_found_error(name, row)
        if kind is not None and reference.kind is not kind:
            raise InvalidRequest(f"'{name}' is a {reference.kind.value}, not a {kind.value}", name=name)
        if expected is not None and reference.head != expected:
            raise ReferenceChanged(
                f"{reference.kind} '{name}' is at {reference.id[:8]}, not at {expected.hex()[:8]}",
                name=name,
                expected=expected.hex(),
                found=reference.id,
            )
        return reference

    def swap_reference(
        self, name: str, decide_change: Decide[A], who: str = "", key: str = "", request: bytes | None = None
    ) -> Reference | A:
        """Move one row as ``decide_change`` says, by one swap, with an entry in its log (see
        ``records.swap_row``).

        With a ``key`` that the caller gave for the ``request``, a repetition is answered by what it did
        then.
        """
        check_name(name)
        if key:
            request_key(key)
        with measure_request(self._meter, name, "reference"):
            moving = _ReferenceMove(
                self._store, self._log, self._clock, name, decide_change, who, key, request
            )
            answer = swap_row(self._store, self._settings, name, moving.subject, moving.decide_change)
            if moving.has_moved:
                self._moved(name)
            return answer

    def walk_log(self, name: str, before: int | None = None) -> Iterator[tuple[ObjectId, LogEntry]]:
        """The log of a reference, newest first, or from before a position on; also of a deleted one."""
        row = self._store.reference(check_name(name))
        if row is None or row.kind == Kind.LAKE:
            raise ReferenceNotFound(
                f"there is no branch or tag '{name}', and no deleted one whose log is still kept", name=name
            )
        reference = decode_reference_row(row)
        yield from self._log.walk_entries(
            reference.log if before is None else self._log.find_entry_before(reference, before)
        )

    def require_reachable(self, commit: ObjectId) -> None:
        """Refuse a commit that no reference leads to: the sweep may be removing it.

        What the recent log of a reference names counts too, for half of the grace period, so that it cannot
        come to an end between this check and the swap.
        """
        if commit == NO_COMMIT:
            return
        self._history.read_commit(commit)
        if not self._is_reachable(commit):
            raise CommitNotFound(
                f"commit {commit.hex()} is not on any branch or tag, nor in their recent logs",
                commit=commit.hex(),
            )
        self.require_kept(commit)

    def is_shared(self, commit: ObjectId, nearest: str) -> bool:
        """Whether a branch or tag leads to a commit, or one did within the grace period. One that only a
        transaction leads to is not. ``nearest`` is looked at first: almost always that is the one.
        """
        reference = decode_branch_or_tag(self._store.reference(check_name(nearest)))
        if reference is not None and self._history.is_ancestor(commit, reference.head):
            return True
        oldest_us = self._clock() - self._graces.find_past_grace().objects_us
        heads = dict.fromkeys(head for _, head in chain(self.list_heads(), self.list_past_heads(oldest_us)))
        return any(self._history.is_ancestor(commit, head) for head in heads)

    def _is_reachable(self, commit: ObjectId) -> bool:
        return any(self._history.is_ancestor(commit, head) for _, head in self._list_lasting_heads())

    def _list_lasting_heads(self) -> Iterator[tuple[str, ObjectId]]:
        """Heads, first those of references, that the sweep surely honours for as long as a write may take."""
        oldest_us = self._clock() - self._graces.find_past_grace().objects_us // 2
        seen: set[tuple[str, ObjectId]] = set()
        for named in chain(self.list_heads(), self.list_past_heads(oldest_us)):
            if named not in seen:
                seen.add(named)
                yield named

    def require_kept(self, commit: ObjectId) -> None:
        """Refuse a commit that lies behind the history horizon, even if it has not been removed yet.

        A sweep that began within the last grace period may go by what references and rules were then. So
        they count as they were, all of them; a young commit is never swept.
        """
        found_commit = self._history.read_commit(commit)
        lake = find_description(self._store)
        if commit == NO_COMMIT or lake is None:
            return
        is_expired = commit in read_expired_commits(lake, self._objects)
        if not lake.history and not is_expired:
            return
        grace_us = self._graces.find_past_grace().objects_us
        oldest_us = self._clock() - grace_us
        if grace_us and found_commit.time_us >= self._clock() - grace_us // 2:
            return
        if is_expired:
            raise _history_expired_error(commit)
        if any(head == commit for _, head in self.list_heads()):
            return
        live = self.list_heads() if found_commit.time_us >= oldest_us else ()
        for name, head in chain(live, self.list_past_heads(oldest_us)):
            if self._is_kept_from(head, commit, found_commit, lake.find_rules_since(name, oldest_us)):
                return
        if not self._is_within_transaction(commit):
            raise _history_expired_error(commit)

    def _is_within_transaction(self, commit: ObjectId) -> bool:
        """Whether an open transaction has made a commit. Its row keeps it, and nobody else takes anything
        from there: whoever does so in the transaction loses the swap of that row once it has ended."""
        is_ancestor = self._history.is_ancestor
        return any(
            transaction.base != commit
            and is_ancestor(commit, reference.head)
            and is_ancestor(transaction.base, commit)
            for reference in self.list_all_references(Kind.TRANSACTION)
            if (transaction := read_transaction(reference)) is not None
        )

    def _is_kept_from(
        self, head: ObjectId, commit_id: ObjectId, commit: CommitObject, rules: Sequence[HistoryRule]
    ) -> bool:
        return self._history.is_ancestor(commit_id, head) and all(
            self._is_kept_by(rule, head, commit_id, commit) for rule in rules
        )

    def _is_kept_by(
        self, rule: HistoryRule, head: ObjectId, commit_id: ObjectId, commit: CommitObject
    ) -> bool:
        if rule.max_days is not None and commit.time_us >= self._clock() - int(rule.max_days * DAY_US):
            return True
        return rule.max_commits is not None and self._history.is_near(commit_id, head, rule.max_commits)

    def list_heads(self) -> Iterator[tuple[str, ObjectId]]:
        """The names and heads of all branches and tags."""
        for kind in (Kind.BRANCH, Kind.TAG):
            for reference in self.list_all_references(kind):
                yield reference.name, reference.head

    def list_past_heads(self, oldest_us: int) -> Iterator[tuple[str, ObjectId]]:
        """The heads that references had at a time, and those they left behind since.

        A head is left behind by an assignment, a rebase or a deletion; what was only committed on is not.
        """
        for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
            for reference in self.list_all_references(kind):
                for head in self.list_past_heads_of(reference, oldest_us):
                    yield reference.name, head

    def list_past_heads_of(self, reference: Reference, oldest_us: int) -> Iterator[ObjectId]:
        """The head that one reference had at a time, and those it left behind since."""
        for _, entry in self._log.walk_entries(reference.log):
            if entry.kind == Event.SEAL:
                continue  # it changed nothing
            if entry.time_us < oldest_us:
                if entry.kind != Event.DELETE:
                    yield entry.after
                return
            if entry.kind in (Event.ASSIGN, Event.DELETE, Event.TRANSPLANT):
                yield entry.before


class _ReferenceMove(Generic[A]):
    """One request to move one row."""

    def __init__(
        self,
        store: Store,
        log: RefLog,
        clock: Clock,
        name: str,
        decide_change: Decide[A],
        who: str,
        key: str,
        request: bytes | None,
    ) -> None:
        self._store, self._log, self._clock = store, log, clock
        self._name, self._decide_change, self._who = name, decide_change, who
        self._key = key or uuid4().hex
        self._request = request if key else None
        self._last: Reference | None = None
        self.has_moved = False
        """Whether the row was moved, by this request or by an earlier sending of it."""

    @property
    def subject(self) -> RowSubject:
        key = remove_key_owner(self._key)
        advice = f"Look at it when the store answers, or repeat the request with idempotency key {key}."
        return RowSubject(f"'{self._name}'", advice, {"key": key, "name": self._name}, "moved")

    def decide_change(
        self, row: Row | None, in_doubt: bool
    ) -> RowSwap[Reference | A] | KeepRow[Reference | A]:
        before = decode_reference_row(row) if row is not None else None
        earlier, failed_receipts = self._find_earlier_outcome(before, in_doubt)
        if earlier is not None:
            self.has_moved = True
            return KeepRow(earlier)
        self._last = before
        decision = self._decide_change(row)
        self.has_moved = not isinstance(decision, KeepRow)
        return (
            decision if isinstance(decision, KeepRow) else self._make_swap(decision, before, failed_receipts)
        )

    def _find_earlier_outcome(
        self, before: Reference | None, in_doubt: bool
    ) -> tuple[Reference | None, dict[ObjectId, bytes]]:
        """The reference as this very request left it before, if it did, and receipts of tries that came to
        nothing."""
        located_entry: tuple[ObjectId, LogEntry] | None = None
        failed_receipts: dict[ObjectId, bytes] = {}
        if before is not None and in_doubt:
            located_entry = self._log.find_request(
                before, self._key, self._last.position if self._last else 0
            )
        if located_entry is None and self._request is not None:
            scope = self._name.encode()
            located_entry, failed_receipts = find_earlier_request(
                self._store, self._log, before, scope, self._key, self._request
            )
        if before is None or located_entry is None:
            return None, failed_receipts
        entry_id, entry = located_entry
        reference = msgspec.structs.replace(before, head=entry.after, log=entry_id, position=entry.position)
        return reference, failed_receipts

    def _make_swap(
        self, move: ReferenceDecision, before: Reference | None, failed_receipts: Mapping[ObjectId, bytes]
    ) -> RowSwap[Reference]:
        """The swap of the row, with an entry in its log, and a receipt if the caller gave a key."""
        after, event, objects, landed = move
        if after is None:
            assert before is not None
            self._log.require_unsealed(before)
            return RowSwap(None, before)
        entry_id, data, entry = self._log.make_entry(
            before,
            event,
            name=self._name,
            incarnation=after.incarnation,
            head=after.head,
            now_us=self._clock(),
            who=self._who,
            key=self._key,
            landed=landed,
        )
        receipts = {}
        if self._request is not None:
            mine = make_receipt_id(self._name.encode(), self._key, len(failed_receipts))
            receipts[mine] = encode_receipt(self._request, entry.position - 1, entry.time_us)
        result = msgspec.structs.replace(after, log=entry_id, position=entry.position)
        return RowSwap(
            encode_reference_row(result),
            result,
            {**objects, **failed_receipts, **receipts, entry_id: data},
            receipts.keys(),
        )


def _history_expired_error(commit: ObjectId) -> HistoryExpired:
    return HistoryExpired(
        f"commit {commit.hex()} is older than the history that this lake keeps", commit=commit.hex()
    )


def check_new_name(name: str) -> str:
    """Return ``name`` if somebody may make a branch or tag of that name."""
    if is_transaction(check_name(name)):
        raise InvalidName(
            f"{name!r} cannot be the name of a branch or tag: '{PREFIX}' is reserved for transactions"
        )
    return name


def _parts_seen_by_checks(reference: Reference) -> tuple[bytes, ObjectId, bytes]:
    """What checks go by."""
    return reference.incarnation, reference.head, reference.note


def _check_note(note: bytes) -> None:
    if len(note) > NOTE_MAX_BYTES:
        raise InvalidRequest(f"a note can have at most {NOTE_MAX_BYTES} bytes, got {len(note)}")
