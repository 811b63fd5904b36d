"""Notes in a table's folder: which lake owns it, and that its files are to stay whatever becomes of it.

Lakes may share a warehouse, as a fork does with its source, and no commit of one tells of the tables that
another has. So a lake notes that a table is its own before anything is written there (see
``formats.lance.ownership``), and a sweep looks after the tables of its own lake, and after no others.

A table that is deregistered keeps its files, while one that is dropped loses them when no kept commit has it
any more. What the commit did is not known for as long as the lake lives; so a note says it. It is there
before the table is deregistered, and says then that this is intended: it may be refused yet, and a
transaction may be aborted. The commit by which a branch loses the table settles it, whatever it was: files of
a table that was deregistered stay for good, and the note goes if it was dropped.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Final

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.formats.lance.names import LINES, OWNER
from penstock.formats.lance.ownership import read_owner
from penstock.storage.places import Place

STAYS: Final = f"{LINES}deregistered"
_INTENDED: Final = b"intended"


class DeregisteredNote(Enum):
    """What is noted of files when no branch has their table any more."""

    NO = "no"
    INTENDED = "intended"
    """Somebody was about to deregister the table."""
    YES = "yes"


def read_owner_id(place: Place) -> str | None:
    """The id of the lake that owns the table at a place; ``None`` if it is nobody's. ``Damaged`` if the note
    cannot be read."""
    (data,) = place.read([OWNER])
    if data is None:
        return None
    return read_owner(place.url, data).lake


def note_intended(place: Place) -> bool:
    """Note that a table is about to be deregistered; whether there was no note before."""
    with suppress(OutcomeUnknown):  # what is there tells
        return place.create(STAYS, _INTENDED)
    if read_deregistered_note(place) is DeregisteredNote.NO:
        raise Unavailable(f"it could not be recorded at {place.url} that its files must be kept; try again")
    return False


def mark_files_kept(place: Place) -> None:
    """Note that the files of the table at a place are to stay when no branch has it any more."""
    place.put(STAYS, b"")


def note_not_intended(place: Place) -> None:
    """Take back that a table is about to be deregistered. That one was deregistered stays noted."""
    if read_deregistered_note(place) is DeregisteredNote.INTENDED:
        place.delete([STAYS])


def read_deregistered_note(place: Place) -> DeregisteredNote:
    """What is noted of the files at a place."""
    (data,) = place.read([STAYS])
    if data is None:
        return DeregisteredNote.NO
    return DeregisteredNote.INTENDED if data == _INTENDED else DeregisteredNote.YES
