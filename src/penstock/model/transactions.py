"""Transactions: a row of the store each, whose note says how far it is. One swap decides how it ends."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, make_decoder
from penstock.model.references import Kind, Reference

PREFIX: Final = "tx/"
"""How the name of a transaction's branch begins; its id follows. Nobody else's begins so."""
TEXT_MAX_CHARS: Final = 2000
"""Of what is told for people: why one was aborted."""
_ID: Final = re.compile(r"[0-9a-f]{32}")


class TransactionState(StrEnum):
    """How far a transaction is. ``open`` ends as ``aborted`` or goes to ``committing``, which never ends so,
    unless what it would land as is refused, or was called off because nobody could bring it to an end."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Policy(StrEnum):
    """What becomes of a transaction if a table that it changed was changed on its target meanwhile."""

    SNAPSHOT = "snapshot"
    """It is refused."""
    REBASE = "rebase"
    """What can be done again on top of the other change is: appends, deletions of other rows."""


class Isolation(StrEnum):
    """Which of the things that a transaction has read must be as they were when it lands."""

    SNAPSHOT = "snapshot"
    """Those of tables that it changed too: nobody's change is lost because it was not seen."""
    SERIALIZABLE = "serializable"
    """All of them: it could have run alone, at the instant at which it lands."""


class StoredTransaction(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The note of a transaction's row. It is swapped with the row, so that no write comes in between."""

    id: str
    """32 hexadecimal digits."""
    state: TransactionState
    target: str
    """Its target branch."""
    incarnation: bytes
    """Of the target, when the transaction began."""
    base: ObjectId
    """The target's head then."""
    policy: Policy
    begun_us: int
    lease_us: int
    """How long it may be idle."""
    expires_us: int
    """After that it counts as abandoned, unless it is renewed or committing before."""
    changed_us: int
    """When it was last renewed, began to commit, was sent again, or ended."""
    who: str = ""
    """Began it."""
    message: str = ""
    properties: dict[str, str] = {}
    meta: CommitMeta | None = None
    """What its commit says of itself, from *committing* on: whoever finishes it says the same."""
    sends: int = 0
    """How often its merge was sent."""
    position: int = 0
    """Of the target's log, when that was first sent."""
    commit: ObjectId = NO_COMMIT
    """That it landed as; none if it wrote nothing."""
    why: str = ""
    """It was aborted."""
    checks: tuple[str, ...] = ()
    """The names of all checks that those had who sent its merge: nobody lands it without one of them."""
    sent_us: int = 0
    """When its merge was first sent."""
    isolation: Isolation = Isolation.SNAPSHOT

    @property
    def branch(self) -> str:
        """What reads and writes in it name as their branch."""
        return PREFIX + self.id

    def mark_landed(self, commit: ObjectId, now_us: int) -> StoredTransaction:
        return msgspec.structs.replace(
            self, state=TransactionState.COMMITTED, commit=commit, changed_us=now_us
        )

    def mark_aborted(self, why: str, now_us: int) -> StoredTransaction:
        why = why[:TEXT_MAX_CHARS].encode(errors="replace").decode()
        return msgspec.structs.replace(self, state=TransactionState.ABORTED, why=why, changed_us=now_us)

    @property
    def has_ended(self) -> bool:
        return self.state in (TransactionState.COMMITTED, TransactionState.ABORTED)

    def is_expired(self, now_us: int) -> bool:
        """Whether its lease ran out before it was committed or aborted."""
        return self.state is TransactionState.OPEN and now_us > self.expires_us


encode_transaction = encode
_decode = make_decoder(StoredTransaction).decode


def read_transaction(reference: Reference) -> StoredTransaction | None:
    """The transaction whose row a reference is; ``None`` if it is a branch or a tag."""
    if reference.kind not in (Kind.TRANSACTION, Kind.ENDED_TRANSACTION):
        return None
    try:
        transaction: StoredTransaction = _decode(reference.note)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(
            f"the note of '{reference.name}' cannot be read: {problem}", name=reference.name
        ) from None
    if transaction.branch != reference.name or transaction.has_ended != (
        reference.kind is Kind.ENDED_TRANSACTION
    ):
        raise Damaged(
            f"the row of '{reference.name}' holds transaction '{transaction.id}' as {transaction.state}",
            name=reference.name,
        )
    return transaction


def is_transaction(name: str) -> bool:
    """Whether a name is kept for transactions."""
    return name.startswith(PREFIX)


def is_transaction_branch_name(name: str) -> bool:
    """Whether a transaction can have this name."""
    return is_transaction(name) and _ID.fullmatch(name, len(PREFIX)) is not None


def check_transaction_id(text: str) -> str:
    """``InvalidRequest`` if it is none."""
    if not _ID.fullmatch(text):
        raise InvalidRequest(f"{text!r} is not the id of a transaction, which has 32 hexadecimal digits")
    return text
