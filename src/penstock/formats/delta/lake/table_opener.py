"""Opens a Delta table by its location: as the lake that owns it has it, or as its own log has it."""

from __future__ import annotations

import os
from datetime import datetime

from penstock.errors import InvalidRequest, KeyNotFound, LakeMoved, ManagedElsewhere, NotManaged
from penstock.formats.delta.branch_log.ownership import PENSTOCK, TableOwner, find_owner
from penstock.formats.delta.lake.calls import FindTable
from penstock.formats.delta.lake.snapshot import TableSnapshot, load_published
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.table import Table
from penstock.storage.locations import hide_secrets, normalise_location
from penstock.storage.places import Places, open_place
from penstock.stores import is_local


def read_delta(
    location: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
) -> TableSnapshot:
    """Read any Delta table by its own log, without a lake: the newest version, an older one, or that of a
    time.

    ``location`` is a path, or a URL of a bucket; keys and regions come from the environment. Nothing is
    written there. For a table that a lake owns, only published versions are read. ``to_arrow()`` and
    ``to_batches()`` return rows, with ``columns`` and ``where``. To copy the rows into a lake:
    ``lake.create_table(key, data=penstock.read_delta(location))``.

    ``TableNotFound`` if there is no table, ``VersionNotFound`` if it has no such version,
    ``UnsupportedFeature`` names what reading it takes that Penstock does not know.
    """
    return load_published(open_place(make_absolute_location(location)), version, timestamp)


def make_absolute_location(location: str | os.PathLike[str]) -> str:
    """A location as it can be found from wherever a lake runs: a path of this process is made absolute."""
    place = os.fspath(location)
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - without '..'


def open_table(
    location: str | os.PathLike[str],
    *,
    ref: str | None = None,
    lake: str | os.PathLike[str] | Lake | None = None,
    author: str | None = None,
    token: str | None = None,
) -> Table:
    """Open the Delta table at a location through the lake that owns it: on the default branch, or at ``ref``.

    ``lake`` is the address of the lake, or an open lake. Without it, the address in the table's own metadata
    is used if it is on a local disk or equal to ``PENSTOCK_LAKE``. Any other address is refused, and named: a
    writer to the table's folder could have put it there to get this caller's token. ``table.lake.close()``
    closes the lake.

    ``NotManaged`` for a table that no lake owns, ``ManagedElsewhere`` if it belongs to another lake than the
    given one or is a copy of a table that lies elsewhere, ``TableNotFound`` if there is none.
    """
    place = make_absolute_location(location)
    owner = owner_at(place)
    if isinstance(lake, Lake):
        return _find_table(lake, place, owner, ref)
    at = _require_trusted_address(place, owner) if lake is None else os.fspath(lake)
    opened = open_lake(at, create=False, author=author, token=token)
    try:
        return _find_table(opened, place, owner, ref)
    except BaseException:
        opened.close()
        raise


def _require_trusted_address(location: str, owner: TableOwner) -> str:
    """The address of the lake that owns a table, if the table's own metadata may be trusted with it."""
    if not owner.lake_address:
        raise InvalidRequest(
            f"{location} belongs to {owner}, but its log does not contain the address of that lake: give it, "
            "as in penstock.open_table(…, lake=…)"
        )
    if is_local(owner.lake_address):
        return owner.lake_address
    address = os.environ.get("PENSTOCK_LAKE", "")
    if address and hide_secrets(address).rstrip("/") == hide_secrets(owner.lake_address).rstrip("/"):
        return address
    raise InvalidRequest(
        f"{location} names {owner.lake_address!r} as its lake, "
        "and that address is not trusted without confirmation\n  "
        f"If that is your lake: penstock.open_table(…, lake={owner.lake_address!r}), "
        "or set PENSTOCK_LAKE to it.",
        location=location,
        lake=owner.lake_address,
    )


def owner_at(location: str) -> TableOwner:
    """The owner that the published log of a table names."""
    places = Places()
    try:
        snapshot = load_snapshot(PlaceFiles(places.open_place(location)))
        owner = find_owner(snapshot.protocol, snapshot.metadata, location)
    finally:
        places.close()
    if owner is None:
        raise NotManaged(
            f"{location} is not managed by a lake: other engines commit to its log directly\n  To let a lake "
            f"manage it: penstock --lake LAKE delta adopt {location}",
            location=location,
        )
    if owner.name != PENSTOCK:
        raise ManagedElsewhere(f"{location} belongs to {owner}, which is not a lake", owner=owner.name)
    return owner


def _find_table(lake: Lake, location: str, owner: TableOwner, ref: str | None) -> Table:
    if target := lake.moving_to:
        raise LakeMoved(
            f"{location} belongs to a lake that is moving, or has moved, to {target}: open the table with "
            "lake=…",
            target=target,
        )
    if lake.id != owner.lake:
        raise ManagedElsewhere(
            f"{location} belongs to {owner}, but {lake.url} is lake {lake.id}",
            owner=owner.name,
            lake=owner.lake,
        )
    table_place = lake.do(FindTable(id=str(owner.table), at=ref)) if owner.table is not None else None
    if table_place is None:
        where = ref if ref is not None else lake.default_branch
        raise KeyNotFound(
            f"{location} belongs to {owner}, but that lake does not have it at '{where}'", ref=where
        )
    if not _is_same_place(location, table_place.location):
        raise ManagedElsewhere(
            f"{location} is a copy: it names '{table_place.key}' of {owner}, and that table is at "
            f"{table_place.location}\n  "
            "Open the table there. A copy receives no commits, and must not be written to.",
            owner=owner.name,
            lake=owner.lake,
        )
    return lake.table(table_place.key, ref)


def _is_same_place(one: str, other: str) -> bool:
    """Whether two locations are the same place, by whatever links they lead there."""
    one, other = normalise_location(one), normalise_location(other)
    return one == other or ("://" not in one + other and os.path.realpath(one) == os.path.realpath(other))
