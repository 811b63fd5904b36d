"""Which lake owns a Lance table: a file beside the table names the lake that decides its versions.

A copy of a lake has the same tables, and they are not its own: it may read them, and must put nothing where
the other lake's readers and writers look. Lance's own files have no place for a lake's name that every writer
would carry along, so that it is beside them, where other programs do not look. It is put there once, if
nothing is there, by the first lake that writes to the table.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from math import inf
from threading import Lock
from typing import Final

import msgspec

from penstock.errors import Damaged, ManagedElsewhere, OutcomeUnknown, Unavailable
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.names import OWNER
from penstock.model.clock import elapsed_s
from penstock.model.decoders import get_json_decoder
from penstock.storage.places import Places

KNOWN_MAX: Final = 10_000
"""Of how many tables is remembered whose they are."""
CHECKED_S: Final = 10.0
"""For how long it is taken for granted that a table which a branch has is still the lake's."""


class LanceOwner(msgspec.Struct, frozen=True):
    """What the file says."""

    lake: str
    """The id of the lake."""
    table: str
    """Which table of the lake it was when the lake took it."""


class LanceOwnership:
    """Knows which tables are a lake's own. May be used by many threads."""

    def __init__(self, places: Places, lake: str) -> None:
        self._places, self._lake = places, lake
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = Lock()

    def require_or_claim(self, content: LanceTable, *, is_here: bool = False) -> bool:
        """``ManagedElsewhere`` unless a table is the lake's own, or becomes so now; whether it became so.

        Another process of the lake may have let go of it. That is only done once no branch has the table, so
        that where one ``is_here``, what was found a moment ago will do: a branch that has it again by then
        is another than the default one, and writes to a line that nobody else looks at.
        """
        if is_here and self._get_known_owner(content.location, CHECKED_S) == self._lake:
            return False
        is_new, owner = self._take_ownership(content)
        if owner != self._lake:
            raise _managed_elsewhere_error(content.location, owner)
        return is_new

    def require_own_or_free(self, content: LanceTable) -> None:
        """``ManagedElsewhere`` for a table of another lake. One that is nobody's stays so."""
        (data,) = self._places.open_place(content.location).read([OWNER])
        owner = self._lake if data is None else self._remember_owner(content.location, data)
        if owner != self._lake:
            raise _managed_elsewhere_error(content.location, owner)

    def claim_table(self, content: LanceTable) -> bool:
        """Whether a table is the lake's own. One that is nobody's becomes so."""
        return self._take_ownership(content)[1] == self._lake

    def owns_table(self, content: LanceTable) -> bool:
        """Whether a table is the lake's own, for who does what follows from a write that was checked.

        One that is nobody's stays so: the lake may have let go of it meanwhile.
        """
        known_owner = self._get_known_owner(content.location)
        if known_owner is None:
            (data,) = self._places.open_place(content.location).read([OWNER])
            known_owner = "" if data is None else self._remember_owner(content.location, data)
        return known_owner == self._lake

    def release_table(self, content: LanceTable) -> None:
        """Let a table be nobody's, if it is the lake's own: who has forgotten it lets others have it."""
        place = self._places.open_place(content.location)
        try:
            (data,) = place.read([OWNER])
            if data is not None and _parse_owner_file(content.location, data) == self._lake:
                place.delete([OWNER])
        finally:
            with self._lock:
                self._known.pop(content.location, None)

    def _take_ownership(self, content: LanceTable) -> tuple[bool, str]:
        """Write the owner file of a table unless there is one. Returns whether it is new, and the owner's
        lake."""
        location, is_new = content.location, False
        place = self._places.open_place(location)
        (data,) = place.read([OWNER])
        if data is None:
            ours = msgspec.json.encode(LanceOwner(self._lake, str(content.id)))
            with suppress(OutcomeUnknown):  # what is there tells
                is_new = place.create(OWNER, ours)
            data = ours if is_new else next(iter(place.read([OWNER])))
        if data is None:
            raise Unavailable(f"the owner of the table at {location} cannot be determined; try again")
        return is_new, self._remember_owner(location, data)

    def _get_known_owner(self, location: str, age_max_s: float = inf) -> str | None:
        with self._lock:
            owner, since_s = self._known.get(location, (None, 0.0))
        return owner if elapsed_s() - since_s <= age_max_s else None

    def _remember_owner(self, location: str, data: bytes) -> str:
        lake = _parse_owner_file(location, data)
        with self._lock:
            self._known[location] = lake, elapsed_s()
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return lake


def _managed_elsewhere_error(location: str, owner: str) -> ManagedElsewhere:
    return ManagedElsewhere(
        f"{location} belongs to lake {owner}, and is read-only here\n  Change it through that lake. If that "
        "lake has no such table any more, register it there, and deregister it again.\n  If this lake was "
        "restored from a backup, and is to take that lake's place: penstock restore-backup BACKUP PLACE "
        "--own",
        table=location,
        owner="penstock",
        lake=owner,
    )


def _parse_owner_file(location: str, data: bytes) -> str:
    """The id of the lake that an owner file names."""
    return read_owner(location, data).lake


def read_owner(location: str, data: bytes) -> LanceOwner:
    """What the file of a table at a location says. ``Damaged`` if it does not say whose the table is."""
    try:
        return get_json_decoder(LanceOwner).decode(data)
    except msgspec.MsgspecError as problem:
        raise Damaged(
            f"{location}/{OWNER} cannot be read, so the owner of the table is unknown: {problem}\n  The file "
            'must be JSON with the id of the lake that owns the table: {"lake": "…"}.'
        ) from None
