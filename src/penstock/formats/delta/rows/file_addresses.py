"""Which files a table may lead to: those below its root, and those of tables that it was cloned from.

What a lake may read is said by its roots, and by what it noted when it made a clone; not by a log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import decode_path
from penstock.formats.delta.protocol.clones import clone_sources
from penstock.storage.linked_places import LinkedPlace
from penstock.storage.places import Place, Places

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")


def open_table_place(places: Places, location: str, configuration: dict[str, str]) -> Place:
    """Where the files of a table of a lake are read; of a clone, also those of the tables that it was cloned
    from."""
    place, sources = places.open_place(location), clone_sources(configuration)
    return LinkedPlace(place, [places.open_place(source) for source in sources]) if sources else place


def name_inside(path: str, place: Place) -> str:
    """The name at a table's place of a file of its log, decoded; the whole address of one elsewhere.

    ``UnsupportedFeature`` if the table does not lead there: others' shallow clones have such files.
    """
    is_plain = path and path[0] != "/" and ".." not in path and ":" not in path and "%" not in path
    return path if is_plain else check_inside(decode_path(path), place)


def check_inside(path: str, place: Place) -> str:
    """The same for a path that is decoded already."""
    name = path
    if _ABSOLUTE.match(name):
        name = _name_below(path, place.roots) or _address_in_sources(path, place)
    if not name or ".." in name.split("/"):
        raise UnsupportedFeature(
            f"{place.url} has the file {path!r}, which is outside the table\n  Penstock reads only the "
            "shallow clones that it made itself; make a full copy of the table (CREATE TABLE … AS SELECT).",
            table=place.url,
            feature="absolute paths",
        )
    return name


def _address_in_sources(path: str, place: Place) -> str:
    if isinstance(place, LinkedPlace):
        for source in place.sources:
            if name := _name_below(path, source.roots):
                return f"{source.url}/{name}"
    return ""


def _name_below(address: str, roots: Sequence[str]) -> str:
    return next(filter(None, (_get_relative_path(address, root) for root in roots)), "")


def _get_relative_path(address: str, root: str) -> str:
    """The part of an absolute address below a root; empty if it lies elsewhere."""
    for other in ("s3a://", "s3n://"):
        if address.startswith(other):
            address = "s3://" + address.removeprefix(other)
    top = f"{unquote(root) if '://' in root else root}/"
    return address.removeprefix(top) if address.startswith(top) else ""
