"""Data files with names that other writers gave them, of versions that an erase ends.

A sweep judges files by names that Delta writers give, since whatever else lies in a folder may be somebody's.
A table that was converted, or written by another engine, has data files with any names: its log alone says
that they are the table's. Before an erase cuts the log, a note beside it lists those names, so that the erase
removes the files, however often it is interrupted or has to wait; then the note goes too.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from penstock.errors import InvalidLog
from penstock.formats.delta.branch_log.branch_log import FOLDER
from penstock.formats.delta.log.referenced_files import DeltaNamedFiles, read_log
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.publishing.leftovers import has_writer_name
from penstock.model.decoders import get_json_decoder
from penstock.storage.places import SCRATCH, Place

NOTE: Final = f"{FOLDER}former-files.json"


def read_note(place: Place) -> frozenset[str]:
    """The names that the note of a table lists; none if there is no note. ``InvalidLog`` if it is damaged."""
    (data,) = place.read([NOTE])
    if data is None:
        return frozenset()
    try:
        return frozenset(get_json_decoder(list[str]).decode(data))
    except msgspec.DecodeError as problem:
        raise InvalidLog(f"{place.url}/{NOTE} cannot be parsed: {problem}", file=NOTE) from None


def write_note(place: Place) -> None:
    """Note which files the log references now that have other names than Delta writers give."""
    noted = read_note(place)
    names = noted | list_other_names(place)
    if names != noted:
        place.put(NOTE, msgspec.json.encode(sorted(names)))


def remove_note(place: Place, referenced: Container[str]) -> None:
    """Remove the note if no file is left that it lists, besides those that retained versions reference."""
    noted = [name for name in read_note(place) if name not in referenced]
    if len(place.missing(noted)) == len(noted):
        place.delete([NOTE])


def list_other_names(place: Place) -> frozenset[str]:
    """The files that any version of the log references, and that have other names than writers give."""
    names = _OtherNames()
    read_log(place, names)
    return frozenset(names.names)


class _OtherNames(DeltaNamedFiles):
    """Collects names as they are: a file that is taken for the table's by mistake would be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def _add_path(self, path: str) -> None:
        is_inside = not path.startswith(("/", LOG, f"{SCRATCH}/")) and ":/" not in path and ".." not in path
        if is_inside and not has_writer_name(path):
            self.names.add(path)
