"""Answers about transactions."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.model.clock import utc
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT
from penstock.model.reads import Read
from penstock.model.transactions import Isolation, Policy, StoredTransaction, TransactionState


class TransactionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction, as it stands."""

    id: str
    """32 hexadecimal digits."""
    state: TransactionState
    target: str
    """The branch that it lands on."""
    branch: str
    """What reads and writes in it name as their branch: `tx/<id>`."""
    base: str
    """The commit that it sees, beside its own writes."""
    policy: Policy
    """What becomes of it if others changed the same tables."""
    isolation: Isolation = Isolation.SNAPSHOT
    """What of that which it read must be as it was when it lands."""
    begun: datetime
    lease_s: float
    """How long it may be idle."""
    expires: datetime | None = None
    """When its lease runs out, unless it is renewed; nothing once it has ended."""
    ended: datetime | None = None
    commit: str = ""
    """What it landed as."""
    who: str = ""
    """Who began it."""
    message: str = ""
    """What it is for, in its own words."""
    why: str = ""
    """Why it was aborted."""
    properties: dict[str, str] = {}
    """Further facts that its program noted."""
    is_late: bool = False
    """It is open, by what is known of it, and its lease has run out: it lands no more."""
    reads: tuple[Read, ...] = ()
    """What it has read, if that was asked for."""

    @classmethod
    def of(cls, transaction: StoredTransaction, now_us: int, reads: tuple[Read, ...] = ()) -> TransactionInfo:
        return cls(
            id=transaction.id,
            state=transaction.state,
            target=transaction.target,
            branch=transaction.branch,
            base=transaction.base.hex(),
            policy=transaction.policy,
            isolation=transaction.isolation,
            begun=utc(transaction.begun_us),
            lease_s=transaction.lease_us / 1e6,
            expires=utc(transaction.expires_us) if transaction.state is TransactionState.OPEN else None,
            ended=utc(transaction.changed_us) if transaction.has_ended else None,
            commit=transaction.commit.hex() if transaction.commit != NO_COMMIT else "",
            who=transaction.who,
            message=transaction.message,
            why=transaction.why,
            properties=transaction.properties,
            is_late=transaction.is_expired(now_us),
            reads=reads,
        )


class TransactionLanded(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction came to."""

    info: TransactionInfo
    commit: Commit | None = None
    """Nothing if it wrote nothing."""
    head: str
    """Where its target was then; where it is now if nothing was written."""
