"""The ledger: at which key a branch has each managed table, and what those were that it dropped.

A table's files are in one place, so a branch has it at one key at most: a second one would give it two
histories. And a table that is brought back goes on from where it was dropped, which its old content alone
does not tell. Both are looked up by the table's id, under reserved keys of the map itself; so each commit has
the ledger that goes with it. It is written only where a table is created, dropped or renamed.

It also notes which table was the last one to come to a location. Two tables there would write to each other's
files, and one that was dropped does not know what another one has written since. A table that leaves as it
came has come to nothing, and its location is again what it was before. And it counts, for every folder above
a location, the tables below: whoever comes to such a folder would have another table's files among its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.errors import Damaged
from penstock.kernel.format import Format, Formats
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, ManagedTable, Unknown, decode_content, encode_checked_content
from penstock.model.encoding import ObjectId, encode, hash_parts, make_decoder
from penstock.model.keys import RESERVED, Key

LEDGER: Final = RESERVED + b"table\0"
"""The stored keys that begin so are the ledger's; the table's id follows, in hexadecimal digits."""
PLACES: Final = RESERVED + b"place\0"
"""And these are its locations; the hash of one follows, and the content there has its table's id."""
FOLDERS: Final = RESERVED + b"folder\0"
"""And these are the folders above locations; the hash of one follows."""
FOLDERS_MAX: Final = 64
"""How many folders above a location are looked at: a location has no more parts than that."""
TYPE_NAME: Final = "PENSTOCK_LEDGER"
"""An entry is a content like any other, so that whatever walks over the map can read it."""

Look = Callable[[bytes], AnyContent | None]
"""What a stored key holds."""


class TableChange(NamedTuple):
    """What a request makes of the table at a key; one of the two contents is managed at least."""

    managing: Format
    before: AnyContent | None
    after: AnyContent | None


class LedgerPlace(NamedTuple):
    """A table with a location."""

    location: str
    content: AnyContent


class LedgerEntry(msgspec.Struct, frozen=True, array_like=True):
    """Where a table is, or where it was dropped."""

    key: bytes
    dropped: bytes | None = None
    """The content that it had then. The entry holds what it held, so that the table can go on from it."""


class LocationClaim(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a location beside the table that came there last."""

    arrived: bytes = b""
    """The hash of the content that the table came with."""
    former: UUID | None = None
    """The table before it."""


class TablesBelow(msgspec.Struct, frozen=True, array_like=True):
    """How many tables a branch has below a folder."""

    count: int


_decode = make_decoder(LedgerEntry).decode
_decode_claim = make_decoder(LocationClaim).decode
_decode_below = make_decoder(TablesBelow).decode


def encode_ledger_key(identity: UUID) -> bytes:
    """The reserved key of a table's entry."""
    return LEDGER + identity.hex.encode()


def encode_place_key(location: str) -> bytes:
    """The reserved key of a location's entry."""
    return PLACES + hash_parts("place", location.rstrip("/").encode()).hex().encode()


def encode_folder_key(location: str) -> bytes:
    """The reserved key of the entry of a folder above locations."""
    return FOLDERS + hash_parts("folder", location.rstrip("/").encode()).hex().encode()


def list_folders_above(location: str) -> tuple[str, ...]:
    """The folders that a location lies in, the nearest first; a bucket is one, a whole disk is none."""
    start = location.find("://") + 3 if "://" in location else 0
    folder, folders = location.rstrip("/"), list[str]()
    while len(folders) < FOLDERS_MAX and (end := folder.rfind("/", start)) > start:
        folder = folder[:end]
        folders.append(folder)
    return tuple(folders)


def find_holder(lookup: Look, location: str) -> UUID | None:
    """The table that came to a location last, whether it is still there or not."""
    entry = lookup(encode_place_key(location))
    return None if entry is None else entry.id


def is_entangled(lookup: Look, location: str) -> bool:
    """Whether a table lies above a location or below it."""
    if _count_below(lookup, location):
        return True
    holders = (find_holder(lookup, folder) for folder in list_folders_above(location))
    return any(table_id is not None and find_table(lookup, table_id) is not None for table_id in holders)


def _count_below(lookup: Look, folder: str) -> int:
    entry = lookup(encode_folder_key(folder))
    if entry is None:
        return 0
    try:
        below: TablesBelow = _decode_below(entry.payload if isinstance(entry, Unknown) else b"")
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the lake's index of table locations is damaged at {folder}: {problem}") from None
    return below.count


def _read_claim(entry: AnyContent | None, location: str) -> LocationClaim:
    try:
        payload = entry.payload if isinstance(entry, Unknown) else b""
        claim: LocationClaim = _decode_claim(payload) if payload else LocationClaim()
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the lake's index of table locations is damaged at {location}: {problem}") from None
    return claim


def read_ledger_entry(lookup: Look, identity: UUID) -> LedgerEntry | None:
    """What the ledger says of a table; ``None`` if it never was there. ``Damaged`` if that is unreadable."""
    entry = lookup(encode_ledger_key(identity))
    if entry is None:
        return None
    try:
        place: LedgerEntry = _decode(entry.payload if isinstance(entry, Unknown) else b"")
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the ledger's entry of table {identity} cannot be read: {problem}") from None
    return place


def find_table(lookup: Look, identity: UUID) -> Key | None:
    """The key at which a table is now."""
    entry = read_ledger_entry(lookup, identity)
    if entry is None or entry.dropped is not None:
        return None
    holder = lookup(entry.key)
    return Key.decode(entry.key) if holder is not None and holder.id == identity else None


def find_last_content(lookup: Look, identity: UUID | None) -> AnyContent | None:
    """What a branch had of a table last: as it was dropped, or as it still is at another key."""
    entry = read_ledger_entry(lookup, identity) if identity is not None else None
    if entry is None:
        return None
    content = lookup(entry.key) if entry.dropped is None else decode_content(entry.dropped)
    return content if content is not None and content.id == identity else None


def read_dropped_content(stored: bytes, entry: AnyContent | None) -> AnyContent | None:
    """The table that an entry of the ledger remembers as dropped; ``entry`` is what the stored key holds.

    ``None`` for other keys, and for an entry that cannot be read: ``read_ledger_entry`` raises ``Damaged``.
    """
    if not stored.startswith(LEDGER) or not isinstance(entry, Unknown):
        return None
    try:
        last: LedgerEntry = _decode(entry.payload)
    except msgspec.MsgspecError:
        return None
    return None if last.dropped is None else decode_content(last.dropped)


class LedgerChange:
    """What a request does to the ledger: the entries to be written, and the keys that cannot be."""

    def __init__(self, lookup: Look, formats: Formats, tables: Mapping[Key, TableChange]) -> None:
        """``lookup`` tells what a stored key holds once the request is done."""
        self._look = lookup
        self._left: dict[UUID, tuple[Key, AnyContent]] = {}
        self._arrived: dict[UUID, list[Key]] = {}
        self._places: dict[UUID, LedgerPlace] = {}
        """Those that arrive at a location."""
        for key, change in tables.items():
            old_id, now = _get_managed_id(formats, change.before), _get_managed_id(formats, change.after)
            if old_id == now:
                continue
            if old_id is not None and change.before is not None:
                self._left[old_id] = key, change.before
            if now is not None:
                self._arrived.setdefault(now, []).append(key)
                if (placed := _find_ledger_place(change.after)) is not None:
                    self._places[now] = placed
        removed_places = {
            table_id: _find_ledger_place(content)
            for table_id, (_, content) in self._left.items()
            if table_id not in self._arrived
        }
        self._gone = {table_id: placed for table_id, placed in removed_places.items() if placed is not None}
        """Those that leave one."""
        self._coming: defaultdict[bytes, set[UUID]] = defaultdict(set)
        """The tables that arrive, by the reserved keys of their locations."""
        for table_id, placed in self._places.items():
            self._coming[encode_place_key(placed.location)].add(table_id)
        self._below: Counter[str] = Counter()
        """How many tables more are below each folder."""
        for table_id, placed in self._places.items():
            if table_id not in self._left:
                self._below.update(list_folders_above(placed.location))
        for placed in self._gone.values():
            self._below.subtract(list_folders_above(placed.location))

    @property
    def touched_keys(self) -> set[bytes]:
        """The reserved keys of the tables that come, go or move, and of the places around them."""
        tables = {encode_ledger_key(table_id) for table_id in self._left.keys() | self._arrived.keys()}
        located = [place.location for place in (*self._places.values(), *self._gone.values())]
        above = {folder for place in self._places.values() for folder in list_folders_above(place.location)}
        folders = {encode_folder_key(location) for location in (*self._below, *located)}
        return tables | folders | {encode_place_key(location) for location in (*located, *above)}

    def find_conflicts(self) -> Iterator[Conflict]:
        """The keys at which a table would be a second time, or be where another one is."""
        for identity, (location, _) in self._places.items():
            reason = self._explain_taken_location(identity, location) or self._explain_nested_location(
                identity, location
            )
            if reason is not None:
                yield Conflict(ConflictKind.FORMAT, self._arrived[identity][0], why=reason)
        for identity, (first, *others) in self._arrived.items():
            known_key = find_table(self._look, identity) or first
            for key in (first, *others):
                if key != known_key:
                    reason = f"is already in the lake, as '{known_key}'"
                    yield Conflict(ConflictKind.FORMAT, key, why=reason)

    def _explain_taken_location(self, identity: UUID, location: str) -> str | None:
        """Why a table cannot come to a location, if so."""
        holders = {find_holder(self._look, location), *self._coming.get(encode_place_key(location), ())}
        others = {table_id for table_id in holders if table_id is not None} - {identity}
        for other in sorted(others):
            keys = [find_table(self._look, other), *self._arrived.get(other, ())]
            if key := next(filter(None, keys), None):
                return f"is at {location}, which is already the location of '{key}'"
        if others and read_ledger_entry(self._look, identity) is not None:
            return f"was at {location}, which belongs to another table now, so it cannot be brought back"
        return None

    def _explain_nested_location(self, identity: UUID, location: str) -> str | None:
        """Why a table cannot come to a location because of those above it or below it, if so.

        Whose those are is not said: not everybody who asks may know.
        """
        if identity in self._left:
            return None  # it was there already
        location = location.rstrip("/")
        if _count_below(self._look, location) + self._below[location] > 0:
            return f"is at {location}, but another table is inside that folder"
        for folder in list_folders_above(location):
            table_id = find_holder(self._look, folder)
            is_coming = encode_place_key(folder) in self._coming
            if is_coming or (table_id is not None and find_table(self._look, table_id) is not None):
                return f"is at {location}, which is inside the folder of another table"
        return None

    def make_entries(self) -> Iterator[tuple[bytes, AnyContent | None]]:
        """The entries that tell where these tables are from now on; nothing for one that goes."""
        for identity, (key, content) in self._left.items():
            if identity not in self._arrived:
                remembered = _encode_dropped_table(content)
                yield _encode_entry(
                    identity,
                    LedgerEntry(key.encode(), encode_checked_content(remembered)),
                    remembered.objects,
                )
        for identity, keys in self._arrived.items():
            yield _encode_entry(identity, LedgerEntry(keys[0].encode()))
        yield from self._list_claims()
        for folder, more in self._below.items():
            if more:
                count = max(0, _count_below(self._look, folder) + more)
                below = Unknown(id=_FOLDER_ID, type_name=TYPE_NAME, payload=encode(TablesBelow(count)))
                yield encode_folder_key(folder), below if count else None

    def _list_claims(self) -> Iterator[tuple[bytes, AnyContent | None]]:
        """Whose the locations are now."""
        for identity, (location, content) in self._gone.items():
            stored = encode_place_key(location)
            entry = self._look(stored)
            claim = _read_claim(entry, location)
            has_come_to_nothing = claim.arrived == _hash_content(content)
            if (
                entry is not None
                and entry.id == identity
                and has_come_to_nothing
                and stored not in self._coming
            ):
                yield stored, None if claim.former is None else _encode_claim(claim.former, LocationClaim())
        for identity, (location, content) in self._places.items():
            former = find_holder(self._look, location)
            if former != identity:
                yield (
                    encode_place_key(location),
                    _encode_claim(identity, LocationClaim(_hash_content(content), former)),
                )


_FOLDER_ID: Final = UUID(int=0)
"""A folder is no table, but an entry has an id."""


def _encode_claim(identity: UUID, claim: LocationClaim) -> AnyContent:
    return Unknown(id=identity, type_name=TYPE_NAME, payload=encode(claim))


def _find_ledger_place(content: AnyContent | None) -> LedgerPlace | None:
    if not isinstance(content, ManagedTable) or not content.location:
        return None
    return LedgerPlace(content.location, content)


def _encode_dropped_table(content: AnyContent) -> AnyContent:
    """What is kept of a table that was dropped, for as long as the lake lives.

    Of a table without a place only that it was there: it has nothing that it would have to go on from. Older
    commits have all of it, and with them it goes.
    """
    if isinstance(content, ManagedTable) and not content.location:
        return msgspec.structs.replace(content, state=b"", held=())
    return content


def _hash_content(content: AnyContent) -> bytes:
    return hash_parts("content", encode_checked_content(content))


def _encode_entry(
    identity: UUID, where: LedgerEntry, held: tuple[ObjectId, ...] = ()
) -> tuple[bytes, AnyContent]:
    return encode_ledger_key(identity), Unknown(
        id=identity, type_name=TYPE_NAME, payload=encode(where), held=held
    )


def _get_managed_id(formats: Formats, content: AnyContent | None) -> UUID | None:
    return content.id if content is not None and formats.find_managing_format(content) is not None else None
