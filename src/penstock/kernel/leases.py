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

import msgspec

from penstock.errors import Damaged, OutcomeUnknown, Unavailable
from penstock.model.encoding import decoder, encode
from penstock.storage.announcements import elapsed_s
from penstock.stores.port import Row, Store

PREFIX: Final = "@lease/"
"""No branch or tag has a name that begins so."""
KIND: Final = "lease"
GOOD_S: Final = 75.0
MARGIN_S: Final = 30.0
"""More than a request takes that is answered or given up."""

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
        self._watched: dict[str, _Watched] = {}
        self._lock = Lock()

    def take(self, id: str) -> Lease | None:  # noqa: A002
        """The lease on something, to be released; ``None`` while another has it, or just took it.

        ``Unavailable`` or ``OutcomeUnknown`` if the store does not answer: then it is taken again, by
        anyone, when it is not good any more.
        """
        mine = _Term(secrets.token_bytes(16), 0, self.good_s)
        begun_s = self.elapsed_s()
        with self.store.turn(PREFIX + id) as turn:
            if turn.row is not None and not self._is_left(id, turn.row):
                return None
            if not turn.advance({}, _row(id, mine)).swapped:
                return None
        with self._lock:
            self._watched.pop(id, None)
        return Lease(self, id, mine, begun_s)

    def _is_left(self, id: str, row: Row) -> bool:  # noqa: A002
        """Whether nobody has renewed a lease for as long as it is good, while this process watched."""
        now_s = self.elapsed_s()
        with self._lock:
            watched = self._watched.get(id)
            if watched is None or watched.row != row:
                self._watch(id, _Watched(row, now_s))
                return False
            return now_s - watched.since_s > _term(row).good_s

    def _watch(self, id: str, seen: _Watched) -> None:  # noqa: A002
        """Watch a lease, unless so many are watched already: those are taken first, or wanted no more."""
        if len(self._watched) >= WATCHED_MAX:
            until_s = seen.since_s - WATCHED_S
            self._watched = {id: one for id, one in self._watched.items() if one.since_s > until_s}  # noqa: A001
        if id in self._watched or len(self._watched) < WATCHED_MAX:
            self._watched[id] = seen


class Lease:
    """A lease that this process took. To be used by one thread."""

    def __init__(self, leases: Leases, id: str, term: _Term, begun_s: float) -> None:  # noqa: A002
        self._leases, self._id, self._term, self._begun_s = leases, id, term, begun_s
        self._is_lost = False

    def keep(self) -> bool:
        """Before every step of the work: whether it may be done. The lease is renewed when it is time."""
        leases = self._leases
        usable_s = leases.good_s - leases.margin_s
        if not self._is_lost and self._age_s() > usable_s / 3:
            # What cannot be renewed may still be good for this step.
            with suppress(Unavailable, OutcomeUnknown):
                self._renew()
        return not self._is_lost and self._age_s() < usable_s

    def release(self) -> None:
        """Let others take it at once, if that can be said to them; else they wait until it is not good."""
        if self._is_lost:
            return
        self._is_lost = True
        with suppress(Unavailable, OutcomeUnknown), self._leases.store.turn(PREFIX + self._id) as turn:
            if turn.row is not None and _term(turn.row).holder == self._term.holder:
                turn.advance({}, None)

    def _age_s(self) -> float:
        return self._leases.elapsed_s() - self._begun_s

    def _renew(self) -> None:
        next_term = self._term._replace(number=self._term.number + 1)
        begun_s = self._leases.elapsed_s()
        with self._leases.store.turn(PREFIX + self._id) as turn:
            # By the holder and not by the number: the answer to the last renewal may have been lost.
            if turn.row is None or _term(turn.row).holder != self._term.holder:
                self._is_lost = True
                return
            next_term = next_term._replace(number=_term(turn.row).number + 1)
            if turn.advance({}, _row(self._id, next_term)).swapped:
                self._term, self._begun_s = next_term, begun_s


class _Term(NamedTuple):
    """What a row says: whose the lease is, how often it was renewed, and for how long it is good."""

    holder: bytes
    number: int
    good_s: float


class _Watched(NamedTuple):
    row: Row
    since_s: float


_decode = decoder(_Term).decode


def _row(id: str, term: _Term) -> Row:  # noqa: A002
    return Row(PREFIX + id, KIND, encode(term))


def _term(row: Row) -> _Term:
    try:
        found: _Term = _decode(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
    return found
