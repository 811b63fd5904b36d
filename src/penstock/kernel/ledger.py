"""The ledger: at which key a branch has each managed table, and what those were that it dropped.

A table's files are in one place, so a branch has it at one key at most: a second one would give it two
histories. And a table that is brought back goes on from where it was dropped, which its old content alone
does not tell. Both are looked up by the table's id, under reserved keys of the map itself; so each commit has
the ledger that goes with it. It is written only where a table is created, dropped or renamed.

It also notes which table was the last one to come to a location. Two tables there would write to each other's
files, and one that was dropped does not know what another one has written since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import Damaged
from penstock.kernel.format import Format, Formats
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, ManagedTable, Unknown, content_bytes, decode_content
from penstock.model.encoding import ObjectId, decoder, digest, encode
from penstock.model.keys import RESERVED, Key

LEDGER: Final = RESERVED + b"table\0"
"""The stored keys that begin so are the ledger's; the table's id follows, in hexadecimal digits."""
PLACES: Final = RESERVED + b"place\0"
"""And these are its locations; the hash of one follows, and the content there has its table's id."""
TYPE_NAME: Final = "PENSTOCK_LEDGER"
"""An entry is a content like any other, so that whatever walks over the map can read it."""

Look = Callable[[bytes], AnyContent | None]
"""What a stored key holds."""


class TableChange(NamedTuple):
    """What a request makes of the table at a key; one of the two contents is managed at least."""

    managing: Format
    before: AnyContent | None
    after: AnyContent | None


class Whereabouts(msgspec.Struct, frozen=True, array_like=True):
    """Where a table is, or where it was dropped."""

    key: bytes
    dropped: bytes | None = None
    """The content that it had then. The entry holds what it held, so that the table can go on from it."""


_decode = decoder(Whereabouts).decode


def ledger_key(identity: UUID) -> bytes:
    """The reserved key of a table's entry."""
    return LEDGER + identity.hex.encode()


def place_key(location: str) -> bytes:
    """The reserved key of a location's entry."""
    return PLACES + digest("place", location.rstrip("/").encode()).hex().encode()


def whereabouts(look: Look, identity: UUID) -> Whereabouts | None:
    """What the ledger says of a table; ``None`` if it never was there. ``Damaged`` if that is unreadable."""
    entry = look(ledger_key(identity))
    if entry is None:
        return None
    try:
        found: Whereabouts = _decode(entry.payload if isinstance(entry, Unknown) else b"")
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the ledger's entry of table {identity} cannot be read: {problem}") from None
    return found


def find_table(look: Look, identity: UUID) -> Key | None:
    """The key at which a table is now."""
    found = whereabouts(look, identity)
    if found is None or found.dropped is not None:
        return None
    holder = look(found.key)
    return Key.decode(found.key) if holder is not None and holder.id == identity else None


def last_content(look: Look, identity: UUID | None) -> AnyContent | None:
    """What a branch had of a table last: as it was dropped, or as it still is at another key."""
    found = whereabouts(look, identity) if identity is not None else None
    if found is None:
        return None
    content = look(found.key) if found.dropped is None else decode_content(found.dropped)
    return content if content is not None and content.id == identity else None


class Ledger:
    """What a request does to the ledger: the entries to be written, and the keys that cannot be."""

    def __init__(self, look: Look, formats: Formats, tables: Mapping[Key, TableChange]) -> None:
        """``look`` tells what a stored key holds once the request is done."""
        self._look = look
        self._left: dict[UUID, tuple[Key, AnyContent]] = {}
        self._arrived: dict[UUID, list[Key]] = {}
        self._locations: dict[UUID, str] = {}
        """Of those that arrive."""
        for key, change in tables.items():
            was, now = _managed_id(formats, change.before), _managed_id(formats, change.after)
            if was == now:
                continue
            if was is not None and change.before is not None:
                self._left[was] = key, change.before
            if now is not None:
                self._arrived.setdefault(now, []).append(key)
                if isinstance(change.after, ManagedTable) and change.after.location:
                    self._locations[now] = change.after.location

    @property
    def touched(self) -> set[bytes]:
        """The reserved keys of the tables that come, go or move."""
        tables = {ledger_key(one) for one in self._left.keys() | self._arrived.keys()}
        return tables | {place_key(location) for location in self._locations.values()}

    def conflicts(self) -> Iterator[Conflict]:
        """The keys at which a table would be a second time, or be where another one is."""
        for identity, location in self._locations.items():
            if (why := self._why_not_at(identity, location)) is not None:
                yield Conflict(ConflictKind.FORMAT, self._arrived[identity][0], why=why)
        for identity, (first, *others) in self._arrived.items():
            known = find_table(self._look, identity) or first
            for key in (first, *others):
                if key != known:
                    why = f"is already in the lake, as '{known}'"
                    yield Conflict(ConflictKind.FORMAT, key, why=why)

    def _why_not_at(self, identity: UUID, location: str) -> str | None:
        """Why a table cannot come to a location, if so."""
        entry = self._look(place_key(location))
        known = {entry.id} if entry is not None and entry.id is not None else set()
        also = {one for one, place in self._locations.items() if place_key(place) == place_key(location)}
        others = (known | also) - {identity}
        for other in sorted(others):
            keys = [find_table(self._look, other), *self._arrived.get(other, ())]
            if found := next(filter(None, keys), None):
                return f"is at {location}, where '{found}' is already"
        if others and whereabouts(self._look, identity) is not None:
            return f"was at {location}, which has become another table's since; it cannot go on from there"
        return None

    def entries(self) -> Iterator[tuple[bytes, AnyContent]]:
        """The entries that tell where these tables are from now on."""
        for identity, (key, content) in self._left.items():
            if identity not in self._arrived:
                dropped = Whereabouts(key.encode(), content_bytes(content))
                yield _entry(identity, dropped, content.objects)
        for identity, keys in self._arrived.items():
            yield _entry(identity, Whereabouts(keys[0].encode()))
        for identity, location in self._locations.items():
            yield place_key(location), Unknown(id=identity, type_name=TYPE_NAME)


def _entry(identity: UUID, where: Whereabouts, held: tuple[ObjectId, ...] = ()) -> tuple[bytes, AnyContent]:
    return ledger_key(identity), Unknown(id=identity, type_name=TYPE_NAME, payload=encode(where), held=held)


def _managed_id(formats: Formats, content: AnyContent | None) -> UUID | None:
    return content.id if content is not None and formats.managing(content) is not None else None
