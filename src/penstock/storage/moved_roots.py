"""Moved roots: folders of a lake's tables that lie elsewhere now.

A lake names its tables by the locations that they were stored with, for good: contents, ledger, logs and
commit ids are hashes over them. Where the files were moved, the lake's description maps the *old* root to the
*new* one. A location is mapped where it leaves the lake, towards storage and towards callers
(``map_to_storage``), and back where it comes in (``map_to_lake``). No place lies inside that of another root,
so that each direction has one answer, and mapping a location twice is the same as mapping it once.

Files that were written in between have addresses in them of the place that was the new one then. So that
stays known: a root that has moved on, or back, has *passed* it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

import msgspec

from penstock.errors import InvalidRequest, LocationRefused
from penstock.storage.forbidden_hosts import check_host
from penstock.storage.locations import hide_secrets, is_under, normalise_location

MOVED_MAX: Final = 100
"""How many roots of a lake may have moved."""


class MovedRoot(msgspec.Struct, frozen=True, array_like=True):
    """A root of a lake whose files were moved, and their present location."""

    old: str
    """The original location, which the lake's stored data names."""
    new: str
    """The present location; the original one, if the files were moved back."""
    passed: tuple[str, ...] = ()
    """Locations in between."""

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

    def map_to_storage(self, location: str) -> str:
        """Where the files of a location lie: of one of the lake, or of a place that they were moved from."""
        for root in self.all:
            for place in root.places:
                if (rest := _find_part_below(location, place)) is not None:
                    return root.new + rest
        return location

    def map_to_lake(self, location: str) -> str:
        """The location by which the lake knows a place of storage. Whatever is no location stays as it is."""
        if not self.all:
            return location
        try:
            normal = normalise_location(location)
        except LocationRefused:
            return location
        for root in self.all:
            for place in root.places:
                if (rest := _find_part_below(normal, place)) is not None:
                    return root.old + rest + ("/" if location.endswith("/") else "")
        return location

    def list_known_roots(self, location: str) -> tuple[str, ...]:
        """A place of storage, and all locations that its files had before they were moved there; the one by
        which the lake knows it is the second, or the only one."""
        for root in self.all:
            if (rest := _find_part_below(location, root.new)) is not None:
                return tuple(other + rest for other in root.places)
        return (location,)


NOT_MOVED: Final = MovedRoots()


def map_roots(before: Sequence[MovedRoot], roots: Iterable[str], old: str, new: str) -> tuple[MovedRoot, ...]:
    """The moved roots of a lake once files below ``old`` lie below ``new``.

    ``old`` may be a place that files were moved to before: then these have moved once more, or back.
    ``InvalidRequest`` if one place would be meant by two locations.
    """
    old, new = _normalise_root(old), _normalise_root(new)
    if old == new:
        raise InvalidRequest(f"{old} is mapped to itself: give two different locations")
    check_host(new)
    known_root = next((root for root in before if old in (root.old, root.new)), MovedRoot(old, old))
    passed = tuple(place for place in known_root.places if place not in (known_root.old, new))
    moved = (*(root for root in before if root is not known_root), MovedRoot(known_root.old, new, passed))
    _check_apart(moved, [_normalise_root(root) for root in roots])
    if len(moved) > MOVED_MAX:
        raise InvalidRequest(f"a lake can have at most {MOVED_MAX} mapped roots")
    return moved


def unmap_root(before: Sequence[MovedRoot], roots: Iterable[str], location: str) -> tuple[MovedRoot, ...]:
    """The moved roots of a lake once files of one of them, named by either place, are back at the old one."""
    wanted_root = _normalise_root(location)
    for root in before:
        if wanted_root in (root.old, root.new) and root.old != root.new:
            return map_roots(before, roots, root.new, root.old)
    raise InvalidRequest(
        f"{location} is not a mapped root of the lake; 'penstock root' lists them", location=location
    )


def _check_apart(moved: Sequence[MovedRoot], roots: Sequence[str]) -> None:
    """``InvalidRequest`` where a place of a root lies in another one, or is the same."""
    places = [(root, place) for root in moved for place in root.places]
    for (first, place), (other, another) in combinations(places, 2):
        if _is_nested(place, another):
            also = ", or was," if place in first.passed or another in other.passed else ""
            raise InvalidRequest(
                f"{place} and {another} cannot both be{also} locations of moved files: they are equal or one "
                "contains the other, so that a location would be ambiguous",
                locations=[place, another],
            )
    for moved_root in moved:
        for root in roots:
            if _do_roots_overlap(root, moved_root):
                raise InvalidRequest(
                    f"{moved_root.old} cannot be mapped to {moved_root.new}: the lake has the root {root}, "
                    "and tables may already be at these locations\n  Choose a location for the files that "
                    "is neither below nor above a root of the lake.",
                    locations=[moved_root.new, root],
                )


def check_added(moved: Iterable[MovedRoot], added: Iterable[str]) -> None:
    """``InvalidRequest`` for a root that is added above a place to which files have moved, or below it: a
    location there would be one of that root, and one of those files."""
    places = list(moved)
    for root in added:
        for moved_root in places:
            if _do_roots_overlap(root, moved_root):
                raise InvalidRequest(
                    f"{root} cannot become a root of the lake: files of another root were moved to "
                    f"{moved_root.new}, so that a location would be ambiguous\n  Add a root that is neither "
                    "above nor below that location.",
                    locations=[root, moved_root.new],
                )


def _do_roots_overlap(root: str, moved: MovedRoot) -> bool:
    return moved.new != moved.old and not is_under(root, moved.old) and _is_nested(moved.new, root)


def _is_nested(location: str, other: str) -> bool:
    return is_under(location, other) or is_under(other, location)


def _normalise_root(location: str) -> str:
    """A place as roots are written here: without a slash at its end, also if it is a whole bucket."""
    root = normalise_location(location).rstrip("/")
    if not root:
        raise InvalidRequest(f"{hide_secrets(location)!r} is the whole disk, which cannot be mapped")
    return root


def _find_part_below(location: str, root: str) -> str | None:
    """What follows a root in a location below it, with the slash; ``None`` if the location lies elsewhere."""
    if location == root:
        return ""
    return location[len(root) :] if location.startswith(f"{root}/") else None
