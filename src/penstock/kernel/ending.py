"""How transactions end: they land by one merge, or never.

``open`` goes to ``committing`` or ``aborted``. Anybody may finish what is committing, by sending the same
merge under the same key again; only not without the checks that a sender of it had. A merge that is refused
ends as ``aborted``; where it was sent more than once it is called off first, so that no other sending of it
lands after that (see ``kernel.sent``). What is still committing long after it was sent can be aborted in that
way too: something keeps it from landing that does not go away by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import (
    AdministratorError,
    ConflictError,
    Damaged,
    IdempotencyKeyReused,
    InvalidLog,
    JobOver,
    LakeMoved,
    PenstockError,
    RequestError,
    TransactionOver,
    UnsupportedFormat,
)
from penstock.kernel.bring import MergeOptions
from penstock.kernel.checks import require_able
from penstock.kernel.hand_off import HandOff
from penstock.kernel.reads import ReadEntry, Reads, noted
from penstock.kernel.records import Keep
from penstock.kernel.references import Move
from penstock.kernel.rows import over, present
from penstock.kernel.sent import Dispatch
from penstock.kernel.settings import DAY_US
from penstock.kernel.state import prefix_end
from penstock.kernel.transaction_rows import (
    Known,
    TransactionRows,
    digest_of,
    expired,
    fitting,
    known_in_row,
)
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED
from penstock.model.references import Event
from penstock.model.transactions import Policy, Transaction, TransactionState
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

LEFT_AFTER_US: Final = 10 * 60 * 1_000_000
"""So long after its merge was last sent, others finish a transaction that is still committing; and so long
after it was first sent, it can be aborted all the same."""
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


class Ending(TransactionRows):
    """How the transactions of a lake come to their end, whoever is at them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._hand_off: HandOff[Transaction, Known] = HandOff(self, Dispatch(kernel))

    def seen(self, known: Known) -> Known:
        """A transaction that is committing, as its target's log says it ended. Who looks changes nothing."""
        if known.state is TransactionState.COMMITTING:
            commit = self._hand_off.find_commit(known)
            if commit is not None:
                found = known.transaction
                return known._replace(transaction=found.as_landed(commit, found.changed_us))
        return known

    def abort(self, id: str, why: str = "") -> Known:  # noqa: A002
        """Let a transaction never land, and return it. One that is committing, or has ended, stays so.

        One that is still committing long after it was sent is called off: it ends, as what it came to.
        """

        def decide(found: Transaction, now_us: int) -> Transaction | None:
            return found.as_aborted(why, now_us) if found.state is TransactionState.OPEN else None

        known = self._move(id, decide)
        if known.state is TransactionState.COMMITTING and self._is_stuck(known.transaction):
            return self._hand_off.call_off(known, why)
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
        sent = self._send(id, meta.check())
        known = self._require_ended(id, sent) if isinstance(sent, LackingChecks) else sent
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
            return self._move(found.id, expired)
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

        def decide(row: Row | None) -> Move | Keep[None]:
            if row is None or not self.is_old(known_in_row(row)):
                return Keep(None)
            return Move(None, Event.DELETE)

        self._swapped(known.transaction.id, decide, "")

    def _send(self, id: str, meta: CommitMeta) -> Known | LackingChecks:  # noqa: A002
        """Note that the merge is about to be sent; from here there is no way back but its refusal."""
        known = self.get(id)
        begun = known.transaction
        target = present(self._kernel.store.reference(begun.target))
        position = target.position if target is not None else 0
        if target is not None and not self.seen(known).transaction.has_ended:
            require_able(self._kernel, target, begun.base, known.head)  # or it stays as it is
        checks = {one.name for one in self._kernel.checks.of(begun.target)}

        def decide(found: Transaction, now_us: int) -> Transaction | Keep[LackingChecks] | None:
            if found.has_ended:
                return None
            if found.is_expired(now_us):
                return expired(found, now_us)
            if lacking := sorted(set(found.checks) - checks):
                return Keep(LackingChecks(lacking))
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
            return sent if found.checks == sent.checks and found.sends else fitting(sent)

        return self._move(id, decide)

    def _require_ended(self, id: str, lacking: LackingChecks) -> Known:  # noqa: A002
        """A transaction as others ended it; ``TransactionOver`` while they are committing it."""
        known = self.seen(self.get(id))
        if known.state is TransactionState.COMMITTING:
            raise _unchecked(id, lacking.names)
        is_landed = known.state is TransactionState.COMMITTED
        return self._hand_off.note_landed(known, known.transaction.commit) if is_landed else known

    def _land(self, known: Known) -> Known:
        """Send the merge of a transaction that is committing, and note what comes of it."""
        found = known.transaction
        try:
            commit = self._merge(known) if self._has_changes(known) else NO_COMMIT
        except LakeMoved:
            raise
        except (RequestError, ConflictError, InvalidLog, UnsupportedFormat) as refused:
            # Nothing lands under a key that is another's. What is damaged may have come up later.
            ended = self._hand_off.note_refused(
                known,
                refused.message,
                is_alone=isinstance(refused, IdempotencyKeyReused),
                is_certain=isinstance(refused, RequestError | ConflictError),
            )
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
        return self._hand_off.note_landed(known, commit)

    def _has_changes(self, known: Known) -> bool:
        """Whether it has anything to land. What it has only read is as it was at the instant it began."""
        head, base = known.head, known.transaction.base
        return head != base and any(
            True for _ in self._kernel.differing(base, head, prefix_end(RESERVED) or b"")
        )

    def _merge(self, known: Known) -> ObjectId:
        found = known.transaction
        if found.meta is None:
            raise Damaged(
                f"the row of transaction '{found.id}' does not hold what its commit says",
                transaction=found.id,
            )
        entries = self._noted(known)
        merged = self._kernel.merge(
            known.head,
            found.target,
            found.meta,
            MergeOptions(
                is_snapshot=found.policy is Policy.SNAPSHOT,
                reads=Reads(found.base, found.isolation, entries) if entries else None,
            ),
            grown_from=found.base,
            incarnation=found.incarnation,
            doubt_from=found.position if found.sends > 1 else None,
            key=found.id,
            asked=lambda: digest_of(known),
            is_held=True,
        )
        # Without a commit the target has all of it already: then that is what it landed as.
        return ObjectId(bytes.fromhex(merged.commits[-1])) if merged.commits else known.head

    def _noted(self, known: Known) -> dict[bytes, ReadEntry]:
        state = self._kernel.state(known.head)
        return noted(self._kernel.objects, state, known.reference.incarnation)


class LackingChecks(NamedTuple):
    """Checks that a sender of the merge had, and that are not known here."""

    names: Sequence[str]


def _unchecked(id: str, lacking: Sequence[str]) -> TransactionOver:  # noqa: A002
    names = " and ".join(f"'{name}'" for name in lacking)
    state = TransactionState.COMMITTING.value
    return TransactionOver(UNCHECKED.format(id=id, checks=names), transaction=id, state=state)
