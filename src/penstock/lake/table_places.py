"""Where a table may be: apart from all others, so that no file is a part of two tables.

A table that lies inside another could be damaged by looking after that one, and whoever may write to it could
write the other's log. So a place that somebody names is compared with those of all tables before it is taken.
The refusal does not say whose place it is: not everybody who asks may know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from penstock.errors import LocationRefused
from penstock.lake.plugins import list_plugin_types
from penstock.model.keys import Key
from penstock.storage.locations import is_under, normalise_location, parse_table_of_place
from penstock.storage.places import SCRATCH

ENTANGLED: Final = "is inside or above the folder of another table; choose another location"


def check_new_place(location: str, warehouse: str, roots: Iterable[str]) -> None:
    """``LocationRefused`` for a place at which no table may be created: a root, or one that a lake gives."""
    if any(is_under(root, location) for root in roots):
        raise _refused_error(location, "is a root of the lake, or is above one; choose a folder below it")
    if (
        warehouse
        and is_under(location, warehouse)
        and parse_table_of_place(_split_relative_location(location, warehouse)[0].lower()) is not None
    ):
        raise _refused_error(
            location, "is inside the folder where the lake places tables itself; choose another location"
        )


def check_apart(
    location: str,
    key: Key | None,
    others: Iterable[tuple[Key, str]],
    warehouse: str = "",
    is_entangled: Callable[[str], bool] = lambda _: False,
) -> None:
    """``LocationRefused`` for a place inside or above that of another table, or inside its records.

    ``is_entangled`` tells so of tables that only other branches have.
    The very place of another table is refused too, unless ``key`` is left out: then the table is to be looked
    at, and what is found there says whose it is.
    """
    where = normalise_location(location)
    if records := _record_folders().intersection(where.split("/")):
        raise _refused_error(
            location, f"is inside a folder where a table keeps its metadata ({min(records)})"
        )
    if warehouse:
        if is_under(warehouse, where):
            raise _refused_error(
                location, "is the lake's warehouse, or is above it; choose a folder below it"
            )
        below = _split_relative_location(where, warehouse) if is_under(where, warehouse) else []
        if len(below) > 1 and parse_table_of_place(below[0].lower()) is not None:
            raise _refused_error(location, "is inside the folder of a table; choose another location")
    for other, place in others:
        if normalise_location(place) == where:
            if key is not None and other != key:
                raise _refused_error(
                    location, "is the location of another table of the lake; choose another location"
                )
        elif is_under(where, place) or is_under(place, where):
            raise _refused_error(location, ENTANGLED)
    if is_entangled(where):
        raise _refused_error(location, ENTANGLED)


@cache
def _record_folders() -> frozenset[str]:
    """What tables keep their own records in."""
    return frozenset(
        (SCRATCH, *(folder for plugin in list_plugin_types() for folder in plugin.record_folders))
    )


def _split_relative_location(location: str, root: str) -> list[str]:
    """The parts of a location below a root; one that is empty, if it is the root."""
    return normalise_location(location).removeprefix(normalise_location(root)).strip("/").split("/")


def _refused_error(location: str, why: str) -> LocationRefused:
    return LocationRefused(f"{location} {why}", location=location)
