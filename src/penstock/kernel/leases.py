"""Leases: of several processes one does a piece of work, and another takes over when it dies.

For work that storage itself cannot keep apart. A lease is a row beside those of references, of a kind of its
own, which copies of a lake leave behind. Who holds one renews it by a swap of the row; who wants one that
another holds watches the row, and takes it when nobody has renewed it for as long as it is good.

No two machines' clocks are compared. The holder counts from before its last swap was sent, the one who waits
from after it first saw that row, which is later. The holder also stops a margin earlier, so that what it sent
last is carried out before another begins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple

from penstock.errors import OutcomeUnknown, RetriesExhausted, TryAgainError
from penstock.kernel.records import KeepRow, RecordType, RemoveRow, ReplaceRow, RowSubject
from penstock.kernel.settings import Settings
from penstock.model.clock import elapsed_s
from penstock.model.encoding import encode, make_decoder
from penstock.stores.port import Store

PREFIX: Final = "@lease/"
"""No branch or tag has a name that begins so."""
KIND: Final = "lease"
GOOD_S: Final = 75.0
MARGIN_S: Final = 30.0
"""More than a request takes that is answered or given up."""

TRIES: Final = Settings(tries_max=3, write_timeout_s=2.0)
"""Enough for a moment's trouble of the store. Nobody waits longer: the next look at the lease tries again."""

NUMBER_BITS: Final = 48
"""How long the first number of a lease is whose holder is given."""

WATCHED_MAX: Final = 10_000
"""How many leases of others are watched at the same time."""
WATCHED_S: Final = 3600.0
"""Who has not looked at a lease for so long does not want it any more."""


class Leases:
    """The leases of a lake, for ordinary threads."""

    def __init__(
        self,
        store: Store,
        *,
        good_s: float = GOOD_S,
        margin_s: float = MARGIN_S,
        elapsed_s: Callable[[], float] = elapsed_s,
    ) -> None:
        self.store, self.good_s, self.margin_s, self.elapsed_s = store, good_s, margin_s, elapsed_s
        self._watched: dict[str, _WatchedLease] = {}
        self._lock = Lock()

    def take_lease(self, id: str, holder: bytes | None = None) -> Lease | None:  # noqa: A002
        """The lease on something, to be released; ``None`` while another has it, or just took it.

        A given ``holder`` takes again at once what it has already, as a request that is repeated does.
        ``Unavailable`` or ``OutcomeUnknown`` if the store does not answer: then it is taken again, by
        anyone, when it is not good any more.
        """
        # Two requests of a given holder that take it at once must not mistake each other's row for their own.
        number = 0 if holder is None else secrets.randbits(NUMBER_BITS)
        mine = LeaseTerm(holder or secrets.token_bytes(16), number, self.good_s)
        begun_s = self.elapsed_s()

        def decide_change(term: LeaseTerm | None) -> ReplaceRow[LeaseTerm] | KeepRow[None]:
            if term is not None and term.holder == holder:
                return ReplaceRow(
                    term._replace(number=term.number + 1)
                )  # who watches it must see that it was taken anew
            return ReplaceRow(mine) if term is None or self._is_left(id, term) else KeepRow(None)

        try:
            term = LEASES.update_record(self.store, TRIES, id, decide_change)
        except RetriesExhausted:  # others were faster each time
            term = None
        if term is None:
            return None
        with self._lock:
            self._watched.pop(id, None)
        return Lease(self, id, term, begun_s, is_retaken=term != mine)

    def _is_left(self, id: str, term: LeaseTerm) -> bool:  # noqa: A002
        """Whether nobody has renewed a lease for as long as it is good, while this process watched."""
        now_s = self.elapsed_s()
        with self._lock:
            watched = self._watched.get(id)
            if watched is None or watched.term != term:
                self._watch_lease(id, _WatchedLease(term, now_s))
                return False
            return now_s - watched.since_s > term.good_s

    def _watch_lease(self, id: str, seen: _WatchedLease) -> None:  # noqa: A002
        """Watch a lease, unless so many are watched already: those are taken first, or wanted no more."""
        if len(self._watched) >= WATCHED_MAX:
            until_s = seen.since_s - WATCHED_S
            recent = ((name, watched) for name, watched in self._watched.items() if watched.since_s > until_s)
            self._watched = dict(recent)
        if id in self._watched or len(self._watched) < WATCHED_MAX:
            self._watched[id] = seen


class Lease:
    """A lease that this process took. To be used by one thread."""

    def __init__(
        self,
        leases: Leases,
        id: str,  # noqa: A002
        term: LeaseTerm,
        begun_s: float,
        *,
        is_retaken: bool,
    ) -> None:
        """``is_retaken`` says that the same holder had it already."""
        self._leases, self._id, self._term, self._begun_s = leases, id, term, begun_s
        self._is_lost, self._is_retaken = False, is_retaken

    def renew_if_due(self) -> bool:
        """Before every step of the work: whether it may be done. The lease is renewed when it is time."""
        leases = self._leases
        usable_s = leases.good_s - leases.margin_s
        if not self._is_lost and self._lease_age_s() > usable_s / 3:
            # What cannot be renewed may still be good for this step.
            with suppress(TryAgainError, OutcomeUnknown):
                self._renew_now()
        return not self._is_lost and self._lease_age_s() < usable_s

    def release(self, *, if_taken_once: bool = False) -> None:
        """Let others take it at once, if that can be said to them; else they wait until it is not good.

        With ``if_taken_once`` only if the same holder has not taken it before, nor since: another request of
        that holder may still need it.
        """
        if self._is_lost:
            return
        self._is_lost = True
        if if_taken_once and self._is_retaken:
            return

        def decide_change(term: LeaseTerm | None) -> RemoveRow[LeaseTerm] | KeepRow[None]:
            if term is None or not self._is_held_by(term) or (if_taken_once and term != self._term):
                return KeepRow(None)
            return RemoveRow(term)

        with suppress(TryAgainError, OutcomeUnknown):
            LEASES.update_record(self._leases.store, TRIES, self._id, decide_change)

    def _is_held_by(self, term: LeaseTerm) -> bool:
        # By the holder and not by the number: the answer to the last renewal may have been lost.
        return term.holder == self._term.holder

    def _lease_age_s(self) -> float:
        return self._leases.elapsed_s() - self._begun_s

    def _renew_now(self) -> None:
        begun_s = self._leases.elapsed_s()

        def decide_change(term: LeaseTerm | None) -> ReplaceRow[LeaseTerm] | KeepRow[None]:
            if term is None or not self._is_held_by(term):
                return KeepRow(None)
            return ReplaceRow(term._replace(number=term.number + 1))

        renewed = LEASES.update_record(self._leases.store, TRIES, self._id, decide_change)
        if renewed is None:
            self._is_lost = True
        else:
            self._term, self._begun_s = renewed, begun_s


class LeaseTerm(NamedTuple):
    """What a row holds: whose the lease is, a number that grows when it is renewed or taken again, and for
    how long it is good."""

    holder: bytes
    number: int
    good_s: float


class _WatchedLease(NamedTuple):
    term: LeaseTerm
    since_s: float


def _lease_subject(id: str) -> RowSubject:  # noqa: A002
    advice = f"The lease lasts {GOOD_S:g} s; after that, another process can take it."
    return RowSubject(f"the lease '{id}'", advice, {"lease": id})


LEASES: Final[RecordType[LeaseTerm]] = RecordType(
    PREFIX, lambda _: KIND, encode, make_decoder(LeaseTerm).decode, _lease_subject
)
