"""Transactions: writes to a branch that nobody else sees, until all of them land on another by one swap.

A transaction is a row like a branch's, of a kind of its own, so that no list of branches shows it. Its note
says how far it is, and is swapped with the row: a write that is in flight when the transaction ends loses its
swap, looks again, and is refused. ``open`` goes to ``committing`` or ``aborted``; nobody cancels what is
committing, and anybody may finish it, by sending the same merge under the same key again. A merge that is
refused ends as ``aborted``; where it was sent more than once it is called off first, so that no other sending
of it lands after that (see ``kernel.sent``). Rows that have ended are of another kind; they leave no
tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import msgspec

from penstock.errors import (
    ConflictError,
    IdempotencyKeyReused,
    InvalidRequest,
    JobOver,
    LakeMoved,
    RequestError,
)
from penstock.kernel.bring import MergeOptions
from penstock.kernel.description import require_unmoved
from penstock.kernel.references import NOTE_MAX_BYTES, Move
from penstock.kernel.rows import decoded_reference, no_transaction, over, present
from penstock.kernel.sent import Dispatch, Sent
from penstock.kernel.settings import DAY_US
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId, digest
from penstock.model.references import Event, Kind, Reference
from penstock.model.transactions import (
    PREFIX,
    TEXT_MAX_CHARS,
    Policy,
    Transaction,
    TransactionState,
    check_transaction_id,
    encode_transaction,
    is_transaction,
    transaction_of,
)
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

OUT_OF_TIME: Final = "its lease ran out"
GIVEN_MAX_BYTES: Final = 6 * 1024
"""Of the note of an open transaction. Its commit says the same once more."""
LEFT_AFTER_US: Final = 10 * 60 * 1_000_000
"""So long after its merge was last sent, others finish a transaction that is still committing."""
LANDS_WITHIN_US: Final = 2 * 3600 * 1_000_000
"""A merge lands within this time of being sent, or never; more than clocks are apart."""


class Known(NamedTuple):
    """A transaction as its row has it."""

    transaction: Transaction
    reference: Reference

    @property
    def state(self) -> TransactionState:
        return self.transaction.state

    @property
    def head(self) -> ObjectId:
        return self.reference.head


class Transactions:
    """The transactions of a lake: how they begin, live and end."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._dispatch = kernel, Dispatch(kernel)

    # -- finding ---------------------------------------------------------------------------------------

    def find(self, id: str) -> Known | None:  # noqa: A002
        row = self._kernel.store.reference(PREFIX + check_transaction_id(id))
        return _known(row) if row is not None else None

    def get(self, id: str) -> Known:  # noqa: A002
        """``TransactionNotFound`` if there is none, or not any more."""
        found = self.find(id)
        if found is None:
            raise no_transaction(id)
        return found

    def seen(self, known: Known) -> Known:
        """A transaction that is committing, as its target's log says it ended. Who looks changes nothing."""
        if known.state is TransactionState.COMMITTING:
            commit = self._dispatch.commit_of(self._sent(known))
            if commit is not None:
                landed = msgspec.structs.replace(
                    known.transaction, state=TransactionState.COMMITTED, commit=commit
                )
                return known._replace(transaction=landed)
        return known

    def open(self, after: str = "") -> Iterator[Known]:
        """Those that have not ended, by id; others are not read."""
        return self._all(Kind.TRANSACTION, after)

    def ended(self, after: str = "") -> Iterator[Known]:
        """Those that have ended and are still known, by id."""
        return self._all(Kind.ENDED_TRANSACTION, after)

    def _all(self, kind: Kind, after: str) -> Iterator[Known]:
        last = PREFIX + after if after else ""
        for reference in self._kernel.references.all(kind, PREFIX, last):
            yield _of(reference)

    # -- living ----------------------------------------------------------------------------------------

    def begin(
        self,
        id: str,  # noqa: A002
        target: str,
        *,
        policy: Policy = Policy.SNAPSHOT,
        lease_us: int | None = None,
        who: str = "",
        message: str = "",
        properties: dict[str, str] | None = None,
    ) -> Known:
        """Begin a transaction on a branch as it is now; one of that id that has begun is returned as it is.

        ``InvalidRequest`` if that one is for another branch, or has another policy.
        """
        check_transaction_id(id)
        if is_transaction(target):
            raise InvalidRequest(f"a transaction lands on a branch, and '{target}' is a transaction's")
        require_unmoved(self._kernel.store)
        lease_us = self._lease(lease_us)
        known = self.find(id)  # before the target is looked at, which may be gone by now
        if known is None:
            branch, now_us = self._kernel.branch(target), self._kernel.clock()
            wanted = Transaction(
                id=id,
                state=TransactionState.OPEN,
                target=target,
                incarnation=branch.incarnation,
                base=branch.head,
                policy=policy,
                begun_us=now_us,
                lease_us=lease_us,
                expires_us=now_us + lease_us,
                changed_us=now_us,
                who=who,
                message=message,
                properties=dict(properties or {}),
            )
            known = self._begin(wanted)
        found = known.transaction
        if (found.target, found.policy) != (target, policy):
            raise InvalidRequest(
                f"transaction {id} was begun for '{found.target}' with the policy '{found.policy}'; "
                "another one needs another id"
            )
        return known

    def _begin(self, wanted: Transaction) -> Known:
        def decide(row: Row | None) -> Move:
            if row is not None:
                raise _AsItIs(decoded_reference(row))
            begun = Reference(
                kind=Kind.TRANSACTION,
                name=wanted.branch,
                head=wanted.base,
                incarnation=uuid4().bytes,
                log=NO_COMMIT,
                position=0,
                created_us=wanted.begun_us,
                note=encode_transaction(_checked(wanted)),
            )
            return Move(begun, Event.CREATE)

        return self._swapped(wanted.id, decide, wanted.who)

    def _lease(self, lease_us: int | None) -> int:
        settings = self._kernel.settings
        if lease_us is None:
            return min(int(settings.transaction_lease_s * 1e6), self._longest_us)
        if not 0 < lease_us <= self._longest_us:
            raise InvalidRequest(
                f"the lease of a transaction is at most {settings.transaction_max_days:g} days long, "
                "and longer than nothing"
            )
        return lease_us

    @property
    def _longest_us(self) -> int:
        return int(self._kernel.settings.transaction_max_days * DAY_US)

    def renew(
        self,
        id: str,  # noqa: A002
        lease_us: int | None = None,
        properties: dict[str, str | None] | None = None,
    ) -> Known:
        """Let a transaction live on: as long as it was begun with from now on, or for another lease.

        It is not open for longer than the lake allows in all. Properties without a value go.
        ``TransactionOver`` if it is not open any more.
        """
        if lease_us is not None:
            self._lease(lease_us)

        def decide(found: Transaction, now_us: int) -> Transaction:
            lease = found.lease_us if lease_us is None else lease_us
            changed = {**found.properties, **(properties or {})}
            renewed = msgspec.structs.replace(
                found,
                lease_us=lease,
                expires_us=min(now_us + lease, found.begun_us + self._longest_us),
                changed_us=now_us,
                properties={name: value for name, value in changed.items() if value is not None},
            )
            return _checked(renewed) if properties else renewed

        return self._move_open(id, decide)

    # -- ending ----------------------------------------------------------------------------------------

    def abort(self, id: str, why: str = "") -> Known:  # noqa: A002
        """Let a transaction never land, and return it. One that is committing, or has ended, stays so."""

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            return _aborted(found, why, now_us) if found.state is TransactionState.OPEN else None

        return self._move(id, decide)

    def commit(self, id: str, meta: CommitMeta) -> Known:  # noqa: A002
        """Let a transaction land as one commit of its target, that says of itself what ``meta`` says.

        One that has landed is returned. ``TransactionOver`` if it was aborted; what refuses its merge is
        raised, and aborts it. Any other error leaves it committing: to be repeated, by anybody.
        """
        known = self._send(id, meta.check())
        if known.state is TransactionState.COMMITTED:
            return known
        if known.state is TransactionState.ABORTED:
            raise over(known.reference)
        return self._land(known)

    def settle(self, known: Known) -> Known:
        """Bring a transaction to its end that nobody may be at any more: finish it if it is committing,
        abort it if its lease ran out. Any other one stays as it is."""
        found = known.transaction
        if known.state is TransactionState.COMMITTING and found.meta is not None:
            try:
                return self.commit(found.id, found.meta)
            except LakeMoved:
                raise
            except (RequestError, ConflictError):
                return self.find(found.id) or known
        if found.is_expired(self._kernel.clock()):
            return self._move(found.id, _expired)
        return known

    def is_left(self, known: Known) -> bool:
        """Whether nobody seems to be at it any more, so that whoever meets it may settle it."""
        found, now_us = known.transaction, self._kernel.clock()
        if found.state is TransactionState.COMMITTING:
            return now_us > found.changed_us + LEFT_AFTER_US
        return found.is_expired(now_us)

    def is_old(self, known: Known) -> bool:
        """Whether one that has ended may be forgotten: no message about it is on its way any more."""
        kept_us = int(self._kernel.settings.idempotency_days * DAY_US)
        found = known.transaction
        return found.has_ended and found.changed_us < self._kernel.clock() - kept_us

    def forget(self, known: Known) -> None:
        """Remove the row of a transaction that ended long ago. It leaves no tombstone: its end is in the log
        of its target."""

        def decide(row: Row | None) -> Move:
            if row is None or not self.is_old(_known(row)):
                raise _AsItIs(known.reference)
            return Move(None, Event.DELETE)

        self._swapped(known.transaction.id, decide, "")

    def _send(self, id: str, meta: CommitMeta) -> Known:  # noqa: A002
        """Note that the merge is about to be sent; from here there is no way back but its refusal."""
        begun = self.get(id).transaction
        target = present(self._kernel.store.reference(begun.target))
        position = target.position if target is not None else 0

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            if found.has_ended:
                return None
            if found.is_expired(now_us):
                return _expired(found, now_us)
            sent = msgspec.structs.replace(
                found,
                state=TransactionState.COMMITTING,
                meta=meta if found.meta is None else found.meta,
                changed_us=now_us,
                sends=found.sends + 1,
                position=found.position if found.sends else position,
            )
            return sent if found.sends else _checked(sent)

        return self._move(id, decide)

    def _land(self, known: Known) -> Known:
        """Send the merge of a transaction that is committing, and note what comes of it."""
        found = known.transaction
        if known.head == found.base:
            return self._landed(known, NO_COMMIT)
        try:
            commit = self._merge(known)
        except LakeMoved:
            raise
        except (RequestError, ConflictError) as refused:
            ended = self._refused(known, refused)
            if ended.state is TransactionState.COMMITTED:
                return ended
            if isinstance(refused, IdempotencyKeyReused | JobOver):  # another sending of it was refused
                raise over(ended.reference) from None
            raise
        return self._landed(known, commit)

    def _merge(self, known: Known) -> ObjectId:
        found = known.transaction
        assert found.meta is not None
        merged = self._kernel.merge(
            known.head,
            found.target,
            found.meta,
            MergeOptions(is_snapshot=found.policy is Policy.SNAPSHOT),
            grown_from=found.base,
            incarnation=found.incarnation,
            doubt_from=found.position if found.sends > 1 else None,
            key=found.id,
            asked=lambda: _digest(known),
            is_held=True,
        )
        # Without a commit the target has all of it already: then that is what it landed as.
        return ObjectId(bytes.fromhex(merged.commits[-1])) if merged.commits else known.head

    def _sent(self, known: Known) -> Sent:
        found = known.transaction
        until_us = found.changed_us + LANDS_WITHIN_US
        return Sent(
            found.id, found.target, found.incarnation, found.position, until_us, found.who, _digest(known)
        )

    def _landed(self, known: Known, commit: ObjectId) -> Known:
        def decide(found: Transaction, now_us: int) -> Transaction | None:
            if found.state is not TransactionState.COMMITTING:
                return None  # somebody else has noted it
            return msgspec.structs.replace(
                found, state=TransactionState.COMMITTED, commit=commit, changed_us=now_us
            )

        return self._move(known.transaction.id, decide)

    def _refused(self, known: Known, refused: RequestError | ConflictError) -> Known:
        """Note that the merge was refused. Where it was sent several times, another sending may be under
        way: that is called off first, or found to have landed."""
        is_alone = isinstance(refused, IdempotencyKeyReused)  # nothing lands under a key that is another's

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            if found.state is not TransactionState.COMMITTING:
                return None
            if found.sends > 1 and not is_alone:
                raise _SentAgain
            return _aborted(found, refused.message, now_us)

        try:
            return self._move(known.transaction.id, decide)
        except _SentAgain:
            commit = self._dispatch.call_off(self._sent(self.get(known.transaction.id)))
        if commit is not None:
            return self._landed(known, commit)
        is_alone = True
        return self._move(known.transaction.id, decide)

    # -- the row ---------------------------------------------------------------------------------------

    def _move_open(self, id: str, decide: Callable[[Transaction, int], Transaction]) -> Known:  # noqa: A002
        """Move the row of a transaction that is open; ``TransactionOver`` if it is not."""

        def decide_open(found: Transaction, now_us: int) -> Transaction | None:
            if found.is_expired(now_us):
                return _expired(found, now_us)
            return decide(found, now_us) if found.state is TransactionState.OPEN else None

        known = self._move(id, decide_open)
        if known.state is not TransactionState.OPEN:
            raise over(known.reference)
        return known

    def _move(
        self,
        id: str,  # noqa: A002
        decide: Callable[[Transaction, int], Transaction | None],
    ) -> Known:
        """Move a row to what is decided, ``None`` for what it is; ``TransactionNotFound`` if it is gone."""
        check_transaction_id(id)

        def decide_row(row: Row | None) -> Move:
            if row is None:
                raise no_transaction(id)
            known = _known(row)
            wanted = decide(known.transaction, self._kernel.clock())
            if wanted is None:
                raise _AsItIs(known.reference)
            kind = Kind.ENDED_TRANSACTION if wanted.has_ended else Kind.TRANSACTION
            note = encode_transaction(wanted)
            return Move(msgspec.structs.replace(known.reference, kind=kind, note=note), Event.NOTE)

        return self._swapped(id, decide_row, "")

    def _swapped(self, id: str, decide: Callable[[Row | None], Move], who: str) -> Known:  # noqa: A002
        try:
            return _of(self._kernel.references.swap(PREFIX + id, decide, who))
        except _AsItIs as found:
            return _of(found.reference)


class _AsItIs(Exception):
    """The row stays as it is."""

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self.reference = reference


class _SentAgain(Exception):
    """The merge was sent more than once, so that its refusal alone does not tell how it ends."""


def _known(row: Row) -> Known:
    return _of(decoded_reference(row))


def _of(reference: Reference) -> Known:
    found = transaction_of(reference)
    if found is None:  # a branch of that name, made when the prefix was not kept yet
        raise InvalidRequest(f"'{reference.name}' is a {reference.kind}, and no transaction")
    return Known(found, reference)


def _checked(transaction: Transaction) -> Transaction:
    """Refuse what a caller gives if it is too much for a row. How it ends always fits."""
    most = NOTE_MAX_BYTES if transaction.meta is not None else GIVEN_MAX_BYTES
    if len(encode_transaction(transaction)) > most:
        raise InvalidRequest(
            f"the message and the properties of a transaction have at most {GIVEN_MAX_BYTES} bytes in all"
        )
    return transaction


def _digest(known: Known) -> bytes:
    """What tells the merge of a transaction from one of another transaction that had its id before."""
    return digest("transaction", known.transaction.id, known.reference.incarnation)


def _aborted(found: Transaction, why: str, now_us: int) -> Transaction:
    why = why[:TEXT_MAX_CHARS].encode(errors="replace").decode()
    return msgspec.structs.replace(found, state=TransactionState.ABORTED, why=why, changed_us=now_us)


def _expired(found: Transaction, now_us: int) -> Transaction | None:
    """Aborted, if its lease has run out; ``None`` if it stays."""
    return _aborted(found, OUT_OF_TIME, now_us) if found.is_expired(now_us) else None
