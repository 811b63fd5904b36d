"""Notes in a table's folder: which lake owns it, and that its files are to stay whatever becomes of it.

Lakes may share a warehouse, as a fork does with its source, and no commit of one tells of the tables that
another has. So a lake notes that a table is its own before anything is written there (see
``formats.lance.owning``), and a sweep looks after the tables of its own lake, and after no others.

A table that is deregistered keeps its files, while one that is dropped loses them when no kept commit has it
any more. What the commit did is not known for as long as the lake lives; so a note says it, which is there
before the table is deregistered. If that is refused after all, the note only keeps more than is needed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.names import LINES
from penstock.formats.lance.owning import OWNER, Owner
from penstock.storage.places import Place

STAYS: Final = f"{LINES}deregistered"


def owner_of(place: Place) -> str | None:
    """The id of the lake that owns the table at a place; ``None`` if it is nobody's. ``Damaged`` if the note
    cannot be read."""
    (data,) = place.read([OWNER])
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Owner).lake
    except msgspec.MsgspecError as problem:
        raise Damaged(f"{place.url}/{OWNER} does not say whose the table is: {problem}") from None


def note_stays(place: Place) -> None:
    """Note that the files of the table at a place are to stay when no branch has it any more."""
    place.put(STAYS, b"")


def is_to_stay(place: Place) -> bool:
    """Whether the files at a place are to stay when no branch has the table any more."""
    return place.size(STAYS) is not None
