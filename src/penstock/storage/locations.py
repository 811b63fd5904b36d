"""Locations: where tables are, and which places a lake may use.

A location is a URL or a local path. It is taken apart once and compared piece by piece, so that none can
pretend to lie below a root: no ``..``, no user names, no queries, no root ``/data`` that lets in ``/data-2``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from penstock.errors import InvalidRequest, LocationRefused

LENGTH_MAX: Final = 1000
"""Characters of a location, so that the names of a table's files still fit behind it."""
NAME_MAX_CHARS: Final = 64
"""Of a table's name, as far as it is part of its folder's."""
_GIVEN: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_[A-Za-z0-9._-]{1,64})?")
PARTS_MAX: Final = 64
PART_MAX_BYTES: Final = 255
"""What file systems take as one name."""


def normalise_location(location: str) -> str:
    """The one way to write a location: local paths absolute, no trailing slash."""
    scheme, host, path = _split_location(location)
    return f"{scheme}://{host}{path}" if scheme != "file" else path


def is_under(location: str, root: str) -> bool:
    """Whether a location is a root or lies below it."""
    scheme, host, path = _split_location(location)
    root_scheme, root_host, root_path = _split_location(root)
    if (scheme, host) != (root_scheme, root_host):
        return False
    return path == root_path or path.startswith(root_path.rstrip("/") + "/")


def check_under(location: str, roots: Iterable[str]) -> str:
    """The location, normalised, if it lies below one of the roots; ``LocationRefused`` otherwise."""
    places = list(roots)
    if any(is_under(location, root) for root in places):
        return normalise_location(location)
    known_roots = (
        f"is outside the lake's roots ({', '.join(places)})"
        if places
        else "is outside the lake's roots, because the lake has no roots"
    )
    raise LocationRefused(
        f"{location} {known_roots}; an administrator of the lake can add a root: penstock root add "
        f"{shlex.quote(_get_parent_location(location))}",
        location=location,
        roots=places,
    )


def _get_parent_location(location: str) -> str:
    """Where a location lies, which would be a root for it and its neighbours."""
    place = normalise_location(location)
    above = place.rpartition("/")[0]
    return above if above and not above.endswith(":/") else place


def make_own_place(warehouse: str, table_id: UUID, name: str = "") -> str:
    """The place of a table that has no location of its own: nobody else can be there.

    What can be read of the ``name`` that the table has now follows its id, for people who look into the
    warehouse. ``InvalidRequest`` if the lake has no warehouse.
    """
    if not warehouse:
        raise InvalidRequest(
            "the table has no location, because the lake has no warehouse\n  Give the table a location, or "
            "create the lake with a warehouse: penstock init ADDRESS --warehouse PLACE."
        )
    place = f"{warehouse.rstrip('/')}/{table_id}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:NAME_MAX_CHARS].strip("-.")
    if readable and len(place) + 1 + len(readable) <= LENGTH_MAX:
        place = f"{place}_{readable}"
    return normalise_location(place)


def parse_table_of_place(folder: str) -> UUID | None:
    """The id of the table to which a lake would give a folder of its warehouse with this name."""
    match = _GIVEN.fullmatch(folder)
    return None if match is None else UUID(match[1])


def hide_secrets(location: str) -> str:
    """A location as it may be shown: without a user, a password or a signature that somebody wrote there."""
    if "://" not in location:
        return location
    return re.sub(r"(?<=://)[^/]*@", "…@", location).partition("?")[0]


def _split_location(location: str) -> tuple[str, str, str]:
    if not isinstance(location, str) or not location.strip() or not location.isprintable():
        raise LocationRefused(f"{location!r} is not a location", location=str(location))
    if len(location) > LENGTH_MAX:
        raise LocationRefused(
            f"a location can have at most {LENGTH_MAX} characters, but {location[:60]!r}… has "
            f"{len(location)}",
            location=location[:LENGTH_MAX],
        )
    if location != location.strip():
        raise LocationRefused(f"{location!r} begins or ends with a blank", location=location)
    if "://" not in location:
        return "file", "", _check_path(location, str(Path(location).absolute()))
    try:
        split = urlsplit(location)
    except ValueError as problem:
        shown = hide_secrets(location)
        raise LocationRefused(f"{shown!r} is not a location: {problem}", location=shown) from None
    if "@" in split.netloc or split.query or split.fragment or "\\" in location:
        shown = hide_secrets(location)
        raise LocationRefused(
            f"{shown!r}: a location cannot have a user, query, fragment or backslash", location=shown
        )
    if split.scheme == "file" and split.netloc not in ("", "localhost"):
        raise LocationRefused(f"{location!r} names a file on another host", location=location)
    host = "" if split.scheme == "file" else split.netloc.lower()
    if split.scheme != "file" and not host:
        raise LocationRefused(f"{location!r} names no bucket or host", location=location)
    # In URLs of files, a blank is written as its code. In those of buckets, all is as it is.
    path = unquote(split.path) if split.scheme == "file" else split.path
    return split.scheme.lower(), host, _check_path(location, path)


def _check_path(location: str, path: str) -> str:
    plain = path
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    if "\\" in plain or not plain.isprintable():
        raise LocationRefused(f"{location!r} has a backslash or a control character", location=location)
    if any(part in ("..", ".") for part in plain.split("/")):
        raise LocationRefused(f"{location!r} contains '.' or '..'; write it without them", location=location)
    parts = [part for part in path.split("/") if part]
    if len(parts) > PARTS_MAX:
        raise LocationRefused(
            f"{location!r} is {len(parts)} folders deep; the limit is {PARTS_MAX}", location=location
        )
    for part in parts:
        if len(part.encode()) > PART_MAX_BYTES:
            raise LocationRefused(
                f"{location!r} has a part of {len(part.encode())} bytes, {part[:20]!r}…; the limit is "
                f"{PART_MAX_BYTES}",
                location=location,
            )
    return "/" + "/".join(parts)
