"""Known tables: what every state of the lake that somebody can return to says of ids and of locations.

A table's id makes its folder, and a folder belongs to one table for as long as the lake may read that table
anywhere. Each commit has a ledger of its own, which also remembers what was dropped. So an id or a location
is looked up in the ledger of every branch, tag and transaction, and of every reference that was deleted so
lately that it can be had back.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.errors import (
    CommitNotFound,
    Damaged,
    HistoryExpired,
    InvalidRequest,
    LocationRefused,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
)
from penstock.kernel.grace_periods import GRACE_MIN_S
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.leases import Lease, Leases
from penstock.kernel.ledger import (
    LEDGER,
    Look,
    find_holder,
    find_last_content,
    find_table,
    is_entangled,
    list_folders_above,
    read_ledger_entry,
)
from penstock.kernel.objects import read_content
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId, hash_parts
from penstock.model.objects import CommitObject, LogEntry
from penstock.model.references import Kind

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

HEADS_AT_ONCE: Final = 256
"""How many commits are read with one request."""
TAKES_MAX: Final = 3
"""How often an id is reserved if answers are lost."""
RESERVED_S: Final = GRACE_MIN_S / 2
"""How long an id stays reserved if its request is never decided: no write may take longer, by any setting."""
LIVE: Final = (Kind.TRANSACTION, Kind.BRANCH, Kind.TAG)
"""In the order in which they are read: what a transaction has may land on a branch meanwhile, never the other
way round."""


class NewTableId:
    """The id of a table that one request creates."""

    def __init__(self, id: UUID) -> None:  # noqa: A002
        self.id = id
        self.is_sent = False
        """Whether the commit of the request may have been sent: then it may land, whatever happens here."""


class KnownTables:
    """Looks up ids and locations in every state of the lake that somebody can return to.

    There is one for each lake that is open (``Kernel.known_tables``), since it also watches ids that others
    have reserved.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self.reservations = kernel, Leases(kernel.store, good_s=RESERVED_S)

    @contextmanager
    def reserve_id(self, identity: UUID, branch: str, key: str | None) -> Iterator[NewTableId]:
        """Keep the id of a new table for one request, until it is decided: no ledger has it before that.

        ``InvalidRequest`` if the lake knows the id, or another request is creating a table with it, on
        whatever branch. By its idempotency key a request is known when it is repeated. If its commit was
        sent, and it stays unknown what became of it, the id stays reserved for ``RESERVED_S``.
        """
        holder = (
            secrets.token_bytes(16) if key is None else hash_parts("creation", f"{branch}\0{key}".encode())
        )
        lease = self._take_lease(f"table/{identity}", holder)
        if lease is None:
            raise InvalidRequest(
                f"another request is creating a table with the id {identity}; choose another id",
                id=str(identity),
            )
        new = NewTableId(identity)
        try:
            self.require_unknown(identity)
            yield new
        except BaseException as problem:
            is_refused = isinstance(problem, PenstockError) and not isinstance(problem, OutcomeUnknown)
            if is_refused or not new.is_sent:
                # The same request may have been sent twice, and the other one not be decided yet.
                lease.release(if_taken_once=key is not None)
            raise
        lease.release()

    def _take_lease(self, id: str, holder: bytes) -> Lease | None:  # noqa: A002
        """The lease on an id. Where an answer was lost it is taken once more; nothing else has begun yet."""
        for _ in range(TAKES_MAX):
            with suppress(OutcomeUnknown):
                return self.reservations.take_lease(id, holder)
        raise Unavailable(f"the store did not say whether '{id}' is reserved; nothing was created")

    def require_unknown(self, identity: UUID) -> None:
        """``InvalidRequest`` for an id that a table of the lake has, or had before it was dropped."""
        if self.is_known(identity):
            raise InvalidRequest(
                f"the lake already had a table with the id {identity}; choose another id", id=str(identity)
            )

    def is_known(self, identity: UUID) -> bool:
        """Whether any state of the lake has a table with an id, or had one and dropped it."""
        return any(read_ledger_entry(look, identity) is not None for look in self._look_up_at_heads())

    def require_format(self, location: str, kind: type[ManagedTable]) -> None:
        """``LocationRefused`` for the folder of a table of another kind, also of one that was dropped: who
        looks after the one table would take the files of the other for leftovers."""
        for problem in self.find_other_formats([location], kind).values():
            raise problem

    def find_other_formats(
        self, locations: Collection[str], kind: type[ManagedTable]
    ) -> dict[str, LocationRefused]:
        """Those of some locations at which ``require_format`` raises, with what it raises."""
        refusals = dict[str, LocationRefused]()
        for look in self._look_up_at_heads():
            for location in locations:
                content = find_last_content(look, find_holder(look, location))
                if content is not None and not isinstance(content, kind):
                    refusals[location] = LocationRefused(
                        f"{location} is or was the location of another table of the lake ({content.type}), "
                        "which a branch, a tag or their history may still read; choose another location",
                        location=location,
                    )
        return refusals

    def require_vacant(self, location: str) -> None:
        """``LocationRefused`` for a place at which a table was, in any state, where a new one is to begin:
        who reads the former one would find the files of the new one.

        A table that the default branch has there is left to the turn, which tells its key.
        """
        default = self._look_at(self._read_default_head())
        here = find_holder(default, location)
        if here is not None and find_table(default, here) is not None:
            return
        if any(find_holder(look, location) is not None for look in self._look_up_at_heads()):
            raise LocationRefused(
                f"{location} was the location of another table of the lake, which a branch, a tag or their "
                "history may still read; choose another location, or give none: then the lake chooses one",
                location=location,
            )

    def is_entangled(self, location: str) -> bool:
        """Whether any state of the lake has a table above a location or below it, or had one above it; or
        whether the default branch dropped one below it."""
        return bool(self.find_entangled([location]))

    def find_entangled(self, locations: Collection[str]) -> set[str]:
        """Those of some locations of which that is so. However many they are, ledgers are read once."""
        entangled = set[str]()
        for look in self._look_up_at_heads():
            entangled |= {
                place for place in locations if is_entangled(look, place) or _was_above(look, place)
            }
        dropped = {
            folder for location in self._list_dropped_locations() for folder in list_folders_above(location)
        }
        return entangled | {place for place in locations if place.rstrip("/") in dropped}

    def _list_dropped_locations(self) -> Iterator[str]:
        """The locations of tables that the default branch has dropped."""
        head = self._read_default_head()
        look = self._look_at(head)
        for stored, _ in self._kernel.read_state(head).scan_entries(LEDGER, find_prefix_end(LEDGER)):
            identity = UUID(hex=stored.removeprefix(LEDGER).decode())
            entry = read_ledger_entry(look, identity)
            if entry is not None and entry.dropped is not None:
                content = find_last_content(look, identity)
                if isinstance(content, ManagedTable) and content.location:
                    yield content.location

    def _look_up_at_heads(self) -> Iterator[Look]:
        references = self._kernel.references
        live = {reference.head for kind in LIVE for reference in references.list_all_references(kind)} - {
            NO_COMMIT
        }
        yield from map(self._look_at, self._read_ahead(live))
        for head in self._read_ahead(self._list_deleted_heads() - live):
            with suppress(CommitNotFound, HistoryExpired, Damaged):
                yield _look_if_there(self._look_at(head))

    def _read_ahead(self, heads: Collection[ObjectId]) -> Iterator[ObjectId]:
        """Commits, with what reading a key of them takes brought into memory, for many with one request: how
        many requests a look-up costs hardly depends on the number of branches."""
        objects, ordered = self._kernel.objects, sorted(heads)
        for start in range(0, len(ordered), HEADS_AT_ONCE):
            some = ordered[start : start + HEADS_AT_ONCE]
            commits = [commit for commit in objects.find(some).values() if isinstance(commit, CommitObject)]
            objects.find({segment for commit in commits for segment, _ in commit.recent})
            objects.find({commit.root for commit in commits})
            yield from some

    def _list_deleted_heads(self) -> set[ObjectId]:
        """Where references were that were deleted lately; a sweep while nobody wrote may have taken some."""
        deleted = [*self._kernel.references.list_all_references(Kind.DELETED)]
        newest = self._kernel.objects.find([reference.log for reference in deleted])
        # For so long a deleted reference can be had back: see ``References.require_reachable``.
        oldest_us = self._kernel.clock() - self._kernel.graces.find_past_grace().objects_us // 2
        return {
            reference.head
            for reference in deleted
            if isinstance(entry := newest.get(reference.log), LogEntry) and entry.time_us >= oldest_us
        } - {NO_COMMIT}

    def _read_default_head(self) -> ObjectId:
        return self._kernel.references.get_reference(self._kernel.formats.default_branch).head

    def _look_at(self, commit: ObjectId) -> Look:
        state = self._kernel.read_state(commit)
        return lambda stored: read_content(self._kernel.objects, state.get(stored))


def _look_if_there(lookup: Look) -> Look:
    def look_up(stored: bytes) -> AnyContent | None:
        with suppress(CommitNotFound, HistoryExpired, Damaged):
            return lookup(stored)
        return None

    return look_up


def _was_above(lookup: Look, location: str) -> bool:
    """Whether a table came to a folder above a location, and may have left it since."""
    return any(find_holder(lookup, folder) is not None for folder in list_folders_above(location))
