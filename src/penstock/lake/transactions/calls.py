"""Calls about transactions: how one begins, lives and ends.

What is read and written in one is asked for by the other calls, with `tx/<id>` for a branch.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.lake.call import Call, CommitDescription, RetrySafety
from penstock.lake.transactions.answers import TransactionInfo, TransactionLanded
from penstock.model.reads import Read
from penstock.model.transactions import Isolation, Policy


class BeginTransaction(Call[TransactionInfo], frozen=True, kw_only=True):
    """Begin a transaction. It sees the branch as it is now, and whatever it writes itself.

    Asked for twice with the same id, it is begun once.
    """

    method = "POST"
    path = "/transactions"
    answer = TransactionInfo
    retry = RetrySafety.SAFE
    makes_lake = True
    counted = ()

    id: str
    """32 hexadecimal digits, chosen by the caller."""
    target: str | None = None
    """The branch that it lands on; the default branch if nothing is given."""
    policy: Policy = Policy.REBASE
    """What happens if a table that it changed was also changed on the branch: `snapshot` refuses the commit,
    `rebase` applies appends and deletions of other rows on top."""
    isolation: Isolation = Isolation.SNAPSHOT
    """Which of its reads must still hold when it commits: those of tables that it changed, or
    (`serializable`) all."""
    lease_s: float | None = None
    """How long it may be idle. The lake's own limit if nothing is given, and at most that."""
    message: str = ""
    """For people, and for the commit that it lands as."""
    properties: dict[str, str] = {}  # noqa: RUF012 - msgspec makes a new one each time
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class GetTransaction(Call[TransactionInfo], frozen=True, kw_only=True):
    """A transaction, as it stands; for some days also one that has ended."""

    path = "/transactions/{id}"
    answer = TransactionInfo

    id: str
    reads: bool = False
    """Also tell what it has read."""


class RenewTransaction(Call[TransactionInfo], frozen=True, kw_only=True):
    """Renew a transaction's lease, so that it does not time out; or change its properties."""

    method = "POST"
    path = "/transactions/{id}/renew"
    answer = TransactionInfo
    retry = RetrySafety.SAFE
    makes_lake = False
    counted = ()

    id: str
    lease_s: float | None = None
    """From now on; as long as it was begun with if nothing is given."""
    properties: dict[str, str | None] = {}  # noqa: RUF012 - msgspec makes a new one each time
    """Properties to set; those without a value are removed."""


class NoteReads(Call[TransactionInfo], frozen=True, kw_only=True):
    """Say what is about to be read in a transaction: it lands only if that is as it was then.

    What is known already changes nothing.
    """

    method = "POST"
    path = "/transactions/{id}/reads"
    answer = TransactionInfo
    retry = RetrySafety.SAFE
    makes_lake = False
    counted = ()

    id: str
    reads: tuple[Read, ...]


class CommitTransaction(Call[TransactionLanded], frozen=True, kw_only=True):
    """Commit a transaction: all of its writes become visible at once, as one commit on its target branch.

    Repeated, it answers the same outcome. A transaction whose commit is refused is aborted.
    """

    method = "POST"
    path = "/transactions/{id}/commit"
    answer = TransactionLanded
    retry = RetrySafety.SAFE
    makes_lake = False

    id: str
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the commit."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class AbortTransaction(Call[TransactionInfo], frozen=True, kw_only=True):
    """Abort a transaction. One that was committed stays committed. One whose commit is under way is only
    aborted 10 minutes after the commit was first sent, if it has not landed by then."""

    method = "POST"
    path = "/transactions/{id}/abort"
    answer = TransactionInfo
    retry = RetrySafety.SAFE
    makes_lake = False

    id: str
    why: str = ""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class ListTransactions(Call[tuple[TransactionInfo, ...]], frozen=True, kw_only=True):
    """Transactions that are open, and for some days those that ended, by id; the next page is ``after`` the
    last one."""

    path = "/transactions"
    answer = tuple[TransactionInfo, ...]

    target: str | None = None
    """Only those that land on this branch."""
    all: bool = False
    """Also those that ended."""
    after: str | None = None
    """Go on after this one, by its id: the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class IsShared(Call[bool], frozen=True, kw_only=True):
    """Whether a commit is on a branch or tag, or was until lately; and not only in a transaction.

    It is asked within a server, and does not travel.
    """

    answer = bool
    retry = RetrySafety.READ
    makes_lake = False

    commit: str
    """The whole id."""
    via: str | None = None
    """The reference that is looked at first; the default branch if nothing is given."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    BeginTransaction,
    GetTransaction,
    RenewTransaction,
    NoteReads,
    CommitTransaction,
    AbortTransaction,
    ListTransactions,
)
"""All of them that travel."""
ANSWERED: Final = (*CALLS, IsShared)
"""Those too that are asked within a server alone."""
