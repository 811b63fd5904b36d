"""Where a server lets tables be: below the lake's roots, and never at an address that hands out secrets.

A location in a content is followed by engines, by formats and by clean-up, all with rights that whoever sent
it may not have. So it is refused before it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.errors import LocationRefused
from penstock.model.content import AnyContent
from penstock.storage.forbidden_hosts import check_host
from penstock.storage.locations import check_under

SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""What engines call a store that is written otherwise in a root."""


def check_locations(contents: Iterable[AnyContent | None], roots: Iterable[str]) -> None:
    """``LocationRefused`` if a content names a place where no table of the lake may be."""
    places = [_normalise_root(root) for root in roots]
    for content in contents:
        for location in content.locations if content is not None else ():
            check_host(location)
            check_under(_require_absolute(location), places)


def _require_absolute(location: str) -> str:
    """A location as roots are written; one that depends on where a program runs is refused."""
    place = _normalise_root(location)
    if "://" in place or place.startswith("/"):
        return place
    raise LocationRefused(
        f"{location!r} is not an absolute location: write a full path, or a URL with '://'", location=location
    )


def _normalise_root(location: str) -> str:
    """A location in the spelling that roots have: engines write ``s3a://`` and ``file:/``."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.lower() == "file" and not rest.startswith("//"):
        return f"file://{rest}" if rest.startswith("/") else location
    return SAME_SCHEMES.get(scheme.lower(), scheme) + colon + rest if rest.startswith("//") else location
