"""Moved roots: folders of a lake's tables that lie elsewhere now.

A lake names its tables by the locations that they were stored with, for good: contents, ledger, logs and
commit ids are hashes over them. Where the files were moved, the lake's description maps the *old* root to the
*new* one. A location is mapped where it leaves the lake, towards storage and towards callers
(``to_storage``), and back where it comes in (``to_lake``). No place lies inside that of another root, so that
each direction has one answer, and mapping a location twice is the same as mapping it once.

Files that were written in between have addresses in them of the place that was the new one then. So that
stays known: a root that has moved on, or back, has *passed* it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

import msgspec

from penstock.errors import InvalidRequest, LocationRefused
from penstock.storage.hosts import check_host
from penstock.storage.locations import is_under, normalise, without_secrets

MOVED_MAX: Final = 100
"""How many roots of a lake may have moved."""


class MovedRoot(msgspec.Struct, frozen=True, array_like=True):
    """A root of a lake's tables, and where it lies now."""

    old: str
    """Where it was at first. What is stored in the lake names it so."""
    new: str
    """Where it is; the same, if it is back."""
    passed: tuple[str, ...] = ()
    """Where it was in between."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where it is, and everywhere that it was."""
        return tuple(dict.fromkeys((self.new, self.old, *self.passed)))


class MovedRoots:
    """All roots that have moved. Without any, every location stays as it is."""

    def __init__(self, moved: Iterable[MovedRoot] = ()) -> None:
        self.all = tuple(moved)

    def __bool__(self) -> bool:
        return bool(self.all)

    def to_storage(self, location: str) -> str:
        """Where the files of a location lie: of one of the lake, or of a place that they were moved from."""
        for one in self.all:
            for place in one.places:
                if (rest := _below(location, place)) is not None:
                    return one.new + rest
        return location

    def to_lake(self, location: str) -> str:
        """The location by which the lake knows a place of storage. Whatever is no location stays as it is."""
        if not self.all:
            return location
        try:
            known = normalise(location)
        except LocationRefused:
            return location
        for one in self.all:
            for place in one.places:
                if (rest := _below(known, place)) is not None:
                    return one.old + rest + ("/" if location.endswith("/") else "")
        return location

    def roots_of(self, place: str) -> tuple[str, ...]:
        """A place of storage, and all locations that its files had before they were moved there; the one by
        which the lake knows it is the second, or the only one."""
        for one in self.all:
            if (rest := _below(place, one.new)) is not None:
                return tuple(other + rest for other in one.places)
        return (place,)


NOT_MOVED: Final = MovedRoots()


def map_roots(before: Sequence[MovedRoot], roots: Iterable[str], old: str, new: str) -> tuple[MovedRoot, ...]:
    """The moved roots of a lake once files below ``old`` lie below ``new``.

    ``old`` may be a place that files were moved to before: then these have moved once more, or back.
    ``InvalidRequest`` if one place would be meant by two locations.
    """
    old, new = _root(old), _root(new)
    if old == new:
        raise InvalidRequest(f"{old} is mapped to itself: name two places")
    check_host(new)
    known = next((one for one in before if old in (one.old, one.new)), MovedRoot(old, old))
    passed = tuple(one for one in known.places if one not in (known.old, new))
    moved = (*(one for one in before if one is not known), MovedRoot(known.old, new, passed))
    _check_apart(moved, [_root(one) for one in roots])
    if len(moved) > MOVED_MAX:
        raise InvalidRequest(f"at most {MOVED_MAX} roots of a lake may have moved")
    return moved


def unmap_root(before: Sequence[MovedRoot], roots: Iterable[str], place: str) -> tuple[MovedRoot, ...]:
    """The moved roots of a lake once files of one of them, named by either place, are back at the old one."""
    wanted = _root(place)
    for one in before:
        if wanted in (one.old, one.new) and one.old != one.new:
            return map_roots(before, roots, one.new, one.old)
    raise InvalidRequest(
        f"{place} is no root of the lake that was mapped; 'penstock root' lists them", location=place
    )


def _check_apart(moved: Sequence[MovedRoot], roots: Sequence[str]) -> None:
    """``InvalidRequest`` where a place of a root lies in another one, or is the same."""
    places = [(one, place) for one in moved for place in one.places]
    for (one, place), (other, another) in combinations(places, 2):
        if _is_nested(place, another):
            was = ", or was," if place in one.passed or another in other.passed else ""
            raise InvalidRequest(
                f"{place} and {another} cannot both be{was} places of files that move: one is the other, or "
                "lies in it, so that a location could mean two places",
                locations=[place, another],
            )
    for one in moved:
        for root in roots:
            if _gets_in_the_way(root, one):
                raise InvalidRequest(
                    f"{one.old} cannot be mapped to {one.new}: the lake has the root {root}, and tables may "
                    "be at these locations already\n"
                    "  Have the files at a place that is not below a root of the lake, nor above one.",
                    locations=[one.new, root],
                )


def check_added(moved: Iterable[MovedRoot], added: Iterable[str]) -> None:
    """``InvalidRequest`` for a root that is added above a place to which files have moved, or below it: a
    location there would be one of that root, and one of those files."""
    places = list(moved)
    for root in added:
        for one in places:
            if _gets_in_the_way(root, one):
                raise InvalidRequest(
                    f"{root} cannot become a root of the lake: files of another root have moved to {one.new}"
                    ", so that a location could mean two places\n"
                    "  Add a root that is not above that place, nor below it.",
                    locations=[root, one.new],
                )


def _gets_in_the_way(root: str, one: MovedRoot) -> bool:
    return one.new != one.old and not is_under(root, one.old) and _is_nested(one.new, root)


def _is_nested(place: str, other: str) -> bool:
    return is_under(place, other) or is_under(other, place)


def _root(place: str) -> str:
    """A place as roots are written here: without a slash at its end, also if it is a whole bucket."""
    root = normalise(place).rstrip("/")
    if not root:
        raise InvalidRequest(f"{without_secrets(place)!r} is the whole disk, which cannot be mapped")
    return root


def _below(location: str, root: str) -> str | None:
    """What follows a root in a location below it, with the slash; ``None`` if the location lies elsewhere."""
    if location == root:
        return ""
    return location[len(root) :] if location.startswith(f"{root}/") else None
