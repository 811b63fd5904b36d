"""Transactions: writes to a branch that nobody else sees, until all of them land on another by one swap.

A transaction is a row like a branch's, of a kind of its own, so that no list of branches shows it. Its note
says how far it is, and is swapped with the row: a write that is in flight when the transaction ends loses its
swap, looks again, and is refused. ``open`` goes to ``committing`` or ``aborted``. Anybody may finish what is
committing, by sending the same merge under the same key again; only not without the checks that a sender of
it had. A merge that is refused ends as ``aborted``; where it was sent more than once it is called off first,
so that no other sending of it lands after that (see ``kernel.sent``). What is still committing long after it
was sent can be aborted in that way too: something keeps it from landing that does not go away by itself. Rows
that have ended are of another kind; they leave no tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import msgspec

from penstock.errors import (
    AdministratorError,
    ConflictError,
    IdempotencyKeyReused,
    InvalidLog,
    InvalidRequest,
    JobOver,
    LakeMoved,
    PenstockError,
    RequestError,
    TransactionOver,
    UnsupportedFormat,
)
from penstock.kernel.bring import MergeOptions
from penstock.kernel.description import require_unmoved
from penstock.kernel.references import NOTE_MAX_BYTES, PAGE, Move
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

logger = logging.getLogger("penstock")

OUT_OF_TIME: Final = "its lease ran out"
GIVEN_MAX_BYTES: Final = 6 * 1024
"""Of the note of an open transaction. Its commit says the same once more."""
LEFT_AFTER_US: Final = 10 * 60 * 1_000_000
"""So long after its merge was last sent, others finish a transaction that is still committing; and so long
after it was first sent, it can be aborted all the same."""
LANDS_WITHIN_US: Final = 2 * 3600 * 1_000_000
"""A merge lands within this time of being sent, or never; more than clocks are apart."""
STUCK: Final = (
    "  Transaction {id} is still being committed: once that is mended, 'penstock tx commit {id}' finishes\n"
    "  it. 10 minutes after it was first sent, 'penstock tx abort {id}' ends it without that."
)
UNCHECKED: Final = (
    "transaction {id} is being committed by a program that has the check {checks}, and nobody lands it "
    "without\n"
    "  Commit it from a program that has it; or, 10 minutes after it was first sent, abort it with "
    "'penstock tx abort {id}'."
)


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

    def open(self, after: str = "", *, skips_damaged: bool = False) -> Iterator[Known]:
        """Those that have not ended, by id; others are not read."""
        return self._all(Kind.TRANSACTION, after, skips_damaged)

    def ended(self, after: str = "", *, skips_damaged: bool = False) -> Iterator[Known]:
        """Those that have ended and are still known, by id."""
        return self._all(Kind.ENDED_TRANSACTION, after, skips_damaged)

    def _all(self, kind: Kind, after: str, skips_damaged: bool) -> Iterator[Known]:
        last = PREFIX + after if after else ""
        while page := self._kernel.store.references(kind.value, PREFIX, last, PAGE):
            for row in page:
                try:
                    known = _known(row)
                except PenstockError as problem:
                    if not skips_damaged:
                        raise
                    logger.warning("a transaction is passed over: %s", problem)
                    continue
                yield known
            last = page[-1].name

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
        """Let a transaction never land, and return it. One that is committing, or has ended, stays so.

        One that is still committing long after it was sent is called off: it ends, as what it came to.
        """

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            return _aborted(found, why, now_us) if found.state is TransactionState.OPEN else None

        known = self._move(id, decide)
        if known.state is TransactionState.COMMITTING and self._is_stuck(known.transaction):
            return self._call_off(known, why)
        return known

    def _is_stuck(self, found: Transaction) -> bool:
        # Not by when it was last sent: others send it again and again, each in vain.
        return self._kernel.clock() > found.sent_us + LEFT_AFTER_US

    def commit(self, id: str, meta: CommitMeta) -> Known:  # noqa: A002
        """Let a transaction land as one commit of its target, that says of itself what ``meta`` says.

        One that has landed is returned. ``TransactionOver`` if it was aborted; what refuses its merge is
        raised, and aborts it. Any other error leaves it committing: to be repeated, by anybody. So does
        ``TransactionOver`` for one that somebody is committing with checks that are not known here.
        """
        try:
            known = self._send(id, meta.check())
        except _Unchecked as left:
            known = self.seen(self.get(id))
            if known.state is TransactionState.COMMITTED:
                known = self._landed(known, known.transaction.commit)
            elif known.state is TransactionState.COMMITTING:
                raise _unchecked(id, left.lacking) from None
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
            except PenstockError:
                ended = self.find(found.id)
                if ended is None or not ended.transaction.has_ended:
                    raise
                return ended
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
        checks = {one.name for one in self._kernel.checks.of(begun.target)}

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            if found.has_ended:
                return None
            if found.is_expired(now_us):
                return _expired(found, now_us)
            if lacking := sorted(set(found.checks) - checks):
                raise _Unchecked(lacking)
            sent = msgspec.structs.replace(
                found,
                state=TransactionState.COMMITTING,
                meta=meta if found.meta is None else found.meta,
                changed_us=now_us,
                sends=found.sends + 1,
                position=found.position if found.sends else position,
                checks=tuple(sorted(checks)),
                sent_us=found.sent_us if found.sends else now_us,
            )
            return sent if found.checks == sent.checks and found.sends else _checked(sent)

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
        except (RequestError, ConflictError, InvalidLog, UnsupportedFormat) as refused:
            ended = self._refused(known, refused)
            if ended.state is TransactionState.COMMITTED:
                return ended
            if isinstance(refused, IdempotencyKeyReused | JobOver):  # another sending of it was refused
                raise over(ended.reference) from None
            raise
        except AdministratorError as problem:
            stuck = copy(problem)  # others may have been told the same error
            stuck.message += "\n" + STUCK.format(id=found.id)
            stuck.args = (stuck.message,)
            raise stuck from problem
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

    def _refused(self, known: Known, refused: PenstockError) -> Known:
        """Note that the merge was refused. Where it was sent several times, another sending may be under
        way: that is called off first, or found to have landed."""
        is_alone = isinstance(refused, IdempotencyKeyReused)  # nothing lands under a key that is another's
        is_plain = isinstance(refused, RequestError | ConflictError)

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            if found.state is not TransactionState.COMMITTING:
                return None
            if not is_alone and (found.sends > 1 or not is_plain):
                raise _InDoubt
            return _aborted(found, refused.message, now_us)

        try:
            return self._move(known.transaction.id, decide)
        except _InDoubt:
            return self._call_off(known, refused.message)

    def _call_off(self, known: Known, why: str) -> Known:
        """End a transaction that is committing: as committed if it has landed, or else so that it never
        will, whoever is sending it."""
        commit = self._dispatch.call_off(self._sent(self.get(known.transaction.id)))
        if commit is not None:
            return self._landed(known, commit)

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            is_committing = found.state is TransactionState.COMMITTING
            return _aborted(found, why, now_us) if is_committing else None

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


class _InDoubt(Exception):
    """The merge was sent more than once, so that its refusal alone does not tell how it ends; or it was
    refused for a reason that may have come up after it was sent."""


class _Unchecked(Exception):
    """The merge was sent by somebody with checks that are not known here."""

    def __init__(self, lacking: Sequence[str]) -> None:
        super().__init__()
        self.lacking = lacking


def _unchecked(id: str, lacking: Sequence[str]) -> TransactionOver:  # noqa: A002
    names = " and ".join(f"'{name}'" for name in lacking)
    state = TransactionState.COMMITTING.value
    return TransactionOver(UNCHECKED.format(id=id, checks=names), transaction=id, state=state)


def _known(row: Row) -> Known:
    return _of(decoded_reference(row))


def _of(reference: Reference) -> Known:
    found = transaction_of(reference)
    if found is None:  # a branch of that name, made when the prefix was not kept yet
        raise InvalidRequest(f"'{reference.name}' is a {reference.kind}, and no transaction")
    return Known(found, reference)


def _checked(transaction: Transaction) -> Transaction:
    """Refuse what a caller gives if it is too much for a row. How it ends always fits."""
    whose, most = "a transaction", GIVEN_MAX_BYTES
    if transaction.meta is not None:
        whose, most = "a transaction and of its commit", NOTE_MAX_BYTES
    size = len(encode_transaction(transaction))
    if size > most:
        raise InvalidRequest(
            f"the messages and properties of {whose}, with what else its row says, have at most {most} bytes "
            f"in all, and these have {size}"
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
