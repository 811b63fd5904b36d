"""Opening a Delta table by where it is: its own metadata names the lake that decides its commits."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import InvalidRequest, KeyNotFound, LakeMoved, ManagedElsewhere, NotManaged
from penstock.formats.delta.branch_log.ownership import PENSTOCK, Owner, owner_of
from penstock.formats.delta.lake.calls import FindTable
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.lake.lake import Lake
from penstock.lake.opening import open_lake
from penstock.lake.table import Table
from penstock.storage.locations import normalise, without_secrets
from penstock.storage.places import Places
from penstock.stores import is_local


def open_table(
    location: str | os.PathLike[str],
    *,
    ref: str | None = None,
    lake: str | os.PathLike[str] | Lake | None = None,
    author: str | None = None,
    token: str | None = None,
) -> Table:
    """The Delta table at a place, as the lake that owns it has it: on the default branch, or at ``ref``.

    ``lake`` says where the lake is, or is one that is open already. Without it, the address in the table's
    own metadata is followed if it is on this machine's disks, or the one that ``PENSTOCK_LAKE`` names. Any
    other is refused, and told: whoever can write to the table's folder could have put it there, and would be
    sent this caller's token. ``table.lake.close()`` lets go of the lake.

    ``NotManaged`` for a table that no lake owns, ``ManagedElsewhere`` if it belongs to another lake than the
    given one or is a copy of a table that lies elsewhere, ``TableNotFound`` if there is none.
    """
    place = os.fspath(location)
    place = place if "://" in place else str(Path(place).absolute())
    owner = owner_at(place)
    if isinstance(lake, Lake):
        return _found(lake, place, owner, ref)
    at = _trusted(place, owner) if lake is None else os.fspath(lake)
    opened = open_lake(at, create=False, author=author, token=token)
    try:
        return _found(opened, place, owner, ref)
    except BaseException:
        opened.close()
        raise


def _trusted(place: str, owner: Owner) -> str:
    """Where a table's lake is, as far as the table may be believed."""
    if not owner.at:
        raise InvalidRequest(
            f"{place} belongs to {owner}, and does not say where that is: say it, as in "
            "penstock.open_table(…, lake=…)"
        )
    if is_local(owner.at):
        return owner.at
    told = os.environ.get("PENSTOCK_LAKE", "")
    if told and without_secrets(told).rstrip("/") == without_secrets(owner.at).rstrip("/"):
        return told
    raise InvalidRequest(
        f"{place} says that it belongs to a lake at {owner.at}, which is not asked for its word alone\n"
        f"  If that is your lake: penstock.open_table(…, lake={owner.at!r}), or set PENSTOCK_LAKE to it.",
        location=place,
        lake=owner.at,
    )


def owner_at(place: str) -> Owner:
    """The owner that the published log of a table names."""
    places = Places()
    try:
        snapshot = load_snapshot(PlaceFiles(places.at(place)))
        owner = owner_of(snapshot.protocol, snapshot.metadata, place)
    finally:
        places.close()
    if owner is None:
        raise NotManaged(
            f"{place} gets its commits from the file system: no lake owns it\n"
            f"  To have a lake decide its commits: penstock --lake LAKE delta adopt {place}",
            location=place,
        )
    if owner.name != PENSTOCK:
        raise ManagedElsewhere(f"{place} belongs to {owner}, which is no lake", owner=owner.name)
    return owner


def _found(lake: Lake, place: str, owner: Owner, ref: str | None) -> Table:
    if target := lake.moving_to:
        raise LakeMoved(
            f"{place} belongs to a lake that moves, or moved, to {target}: open the table with lake=…",
            target=target,
        )
    if lake.id != owner.lake:
        raise ManagedElsewhere(
            f"{place} belongs to {owner}, and {lake.url} is lake {lake.id}", owner=owner.name, lake=owner.lake
        )
    found = lake.do(FindTable(id=str(owner.table), at=ref)) if owner.table is not None else None
    if found is None:
        where = ref if ref is not None else lake.default_branch
        raise KeyNotFound(f"{place} belongs to {owner}, which has it not at '{where}'", ref=where)
    if not _is_same(place, found.location):
        raise ManagedElsewhere(
            f"{place} is a copy: it names '{found.key}' of {owner}, and that table lies at {found.location}\n"
            "  Open it there. A copy gets no commits, and nobody may write to it.",
            owner=owner.name,
            lake=owner.lake,
        )
    return lake.table(found.key, ref)


def _is_same(one: str, other: str) -> bool:
    """Whether two locations are the same place, by whatever links they lead there."""
    one, other = normalise(one), normalise(other)
    return one == other or ("://" not in one + other and os.path.realpath(one) == os.path.realpath(other))
