"""Finding the Delta tables below a folder, and what they are to be called in a lake."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.formats.delta.ownership.handover_settler import TABLES_AT_ONCE
from penstock.formats.delta.protocol.names import LOG
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.model.keys import Key
from penstock.storage.places import Places


def find_tables(places: Places, folder: str, progress: Progress = show_no_progress) -> list[str]:
    """The locations of all tables in a folder, in order: folders that have a log.

    Nothing inside of a table is looked at, nor any folder whose name begins with ``_`` or ``.``.
    """
    tables, folders, looked_at = list[str](), [folder], 0
    with ThreadPoolExecutor(TABLES_AT_ONCE, "penstock-find") as threads:
        while folders:
            below = list[str]()
            looks = threads.map(lambda location: _look_into(places, location), folders)
            for location, names in zip(folders, looks, strict=True):
                looked_at += 1
                progress("looking through folders", looked_at)
                if names is None:
                    tables.append(location)
                else:
                    below += [_join_location(location, name) for name in names]
            folders = below
    return sorted(tables)


def name_table(location: str, folder: str, namespace: Sequence[str] = ()) -> Key:
    """The key of a table that was found in a folder: the path that leads from there to the table.

    The folder itself, if it is a table, is called by its last part. ``InvalidKey`` if that makes no key.
    """
    path = location.removeprefix(folder.rstrip("/")).strip("/") or folder.rstrip("/").rpartition("/")[2]
    parts = path.replace("%25", "%").split("/") if "://" in folder else path.split("/")
    return Key(*namespace, *parts)


def _look_into(places: Places, location: str) -> list[str] | None:
    """The names of the folders below one; ``None`` if it is a table."""
    place = places.open_place(location)
    if next(place.entries(LOG), None) is not None:
        return None
    return [name for name in place.folders() if not name.startswith(("_", "."))]


def _join_location(location: str, name: str) -> str:
    """The location of a folder. In a URL, a percent sign is one that is written as its code."""
    return f"{location.rstrip('/')}/{name.replace('%', '%25') if '://' in location else name}"
