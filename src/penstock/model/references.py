"""References: names for commits. A reference is one row of the store, and moves by one swap of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.model.encoding import NO_COMMIT, ObjectId, encode, make_decoder


class Kind(StrEnum):
    """What a row of the store's reference table stands for."""

    BRANCH = "branch"
    TAG = "tag"
    DELETED = "deleted"
    """A deleted branch or tag: it keeps its name's log until it expires."""
    LAKE = "lake"
    """The lake's own description."""
    TOKEN = "token"
    """Somebody's right to use a server."""
    JOB = "job"
    """A write that takes its time, and has not ended."""
    ENDED_JOB = "ended-job"
    """One that has. It is listed apart, so that those that run are found without reading all others."""
    TRANSACTION = "transaction"
    """The branch of a transaction that has not ended. Nobody lists it, and only the transaction merges it."""
    ENDED_TRANSACTION = "ended-transaction"
    """One that has, kept for some days to tell what it came to."""
    HORIZON = "horizon"
    """From where on the history of a table exists that was erased."""
    BACKUP = "backup"
    """A point in time that a backup can go back to. Only stores of backups have any."""


class Event(StrEnum):
    """The kinds of entries in a reference's log."""

    CREATE = "create"
    COMMIT = "commit"
    MERGE = "merge"
    TRANSPLANT = "transplant"
    ASSIGN = "assign"
    DELETE = "delete"
    ABORT = "abort"
    """The commit of a job or a transaction was called off before it landed. The head stays."""
    NOTE = "note"
    """What the row says beside its head changed: how far a transaction is."""
    SEAL = "seal"
    """The lake is about to move: nothing follows while its description says so."""


class Reference(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A branch or tag. Every swap of the row compares all of it.

    ``incarnation`` is new each time a name is created, so that a re-created branch is never mistaken for
    the old one. ``log`` is the newest entry of the reference's log. ``note`` is for whoever owns the
    reference, such as a transaction; it changes with the row.
    """

    kind: Kind
    name: str
    head: ObjectId = NO_COMMIT
    incarnation: ObjectId
    log: ObjectId
    position: int
    """The number of the newest log entry."""
    created_us: int
    note: bytes = b""
    was: Kind | None = None
    """Of a deleted reference: its former kind."""

    @property
    def id(self) -> str:
        """The head as people write it."""
        return self.head.hex()


encode_reference = encode
decode_reference = make_decoder(Reference).decode
