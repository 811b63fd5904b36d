"""Answers about transactions."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.model.clock import to_utc_datetime
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
    """Its target branch."""
    branch: str
    """The name of its private branch for reads and writes: `tx/<id>`."""
    base: str
    """The commit that it sees, beside its own writes."""
    policy: Policy
    """What happens if others changed the same tables."""
    isolation: Isolation = Isolation.SNAPSHOT
    """Which of its reads must still hold when it commits."""
    begun: datetime
    lease_s: float
    """How long it may be idle."""
    expires: datetime | None = None
    """When its lease runs out, unless it is renewed; nothing once it has ended."""
    ended: datetime | None = None
    commit: str = ""
    """The commit on its target."""
    who: str = ""
    """Who began it."""
    message: str = ""
    """Its message."""
    why: str = ""
    """Why it was aborted."""
    properties: dict[str, str] = {}
    """Further facts that its program noted."""
    is_late: bool = False
    """It has not ended, but its lease has run out: it can no longer be committed."""
    reads: tuple[Read, ...] = ()
    """What it has read, if that was asked for."""

    @classmethod
    def from_stored(
        cls, transaction: StoredTransaction, now_us: int, reads: tuple[Read, ...] = ()
    ) -> TransactionInfo:
        return cls(
            id=transaction.id,
            state=transaction.state,
            target=transaction.target,
            branch=transaction.branch,
            base=transaction.base.hex(),
            policy=transaction.policy,
            isolation=transaction.isolation,
            begun=to_utc_datetime(transaction.begun_us),
            lease_s=transaction.lease_us / 1e6,
            expires=to_utc_datetime(transaction.expires_us)
            if transaction.state is TransactionState.OPEN
            else None,
            ended=to_utc_datetime(transaction.changed_us) if transaction.has_ended else None,
            commit=transaction.commit.hex() if transaction.commit != NO_COMMIT else "",
            who=transaction.who,
            message=transaction.message,
            why=transaction.why,
            properties=transaction.properties,
            is_late=transaction.is_expired(now_us),
            reads=reads,
        )


class TransactionLanded(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a transaction."""

    info: TransactionInfo
    commit: Commit | None = None
    """Null if it wrote nothing."""
    head: str
    """The target's head after it; the present one if nothing was written."""
