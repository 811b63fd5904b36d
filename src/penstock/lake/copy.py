"""Moving a lake to another place, or forking it."""

from __future__ import annotations

import os
from contextlib import ExitStack

from penstock.kernel.copy import Copied, CopyProgress, copy, silent
from penstock.kernel.description import Description, Seal, find_description
from penstock.kernel.seal import cancel
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.lake.files.forks import ForkNotes
from penstock.lake.files.pool import pool_of
from penstock.lake.lake import Lake
from penstock.lake.opening import open_lake, require_target
from penstock.model.clock import Clock, now_us
from penstock.stores import open_store, place_of
from penstock.stores.port import Store


def copy_lake(
    source: str | os.PathLike[str] | Store,
    target: str | os.PathLike[str] | Store,
    *,
    fork: bool = False,
    author: str | None = None,
    settings: Settings | None = None,
    progress: CopyProgress = silent,
    clock: Clock = now_us,
) -> Copied:
    """Move a lake with its whole history to an empty place; afterwards the source can only be read.

    A ``fork`` leaves the source as it is, and is a lake with an id of its own. If it is interrupted, the same
    call goes on where it was. Tables stay where they are: only the lake moves. Files that a fork shares with
    its source stay for as long as a note in the warehouse says so (see ``files/forks.py``).

    Stores that the caller made stay open.
    """
    with ExitStack() as stack:
        lake = open_lake(source, create=False, author=author, settings=settings, clock=clock)
        if not isinstance(source, Store):
            stack.callback(lake.close)
        if isinstance(target, Store):
            place = target
        else:
            require_target(os.fspath(target))
            place = open_store(os.fspath(target), True, clock)
            stack.callback(place.close)
        notes = _fork_notes(lake) if fork else None
        if notes is not None:
            found = find_description(place)
            if found is None or _is_fork_of(found, lake.id):  # else the copy is refused
                notes.begin(lake.id, place_of(place), None if found is None else found.id)
        copied = copy(
            lake.kernel,
            place,
            source_place=lake.url,
            target_place=place_of(place),
            fork=fork,
            who=lake.author,
            progress=progress,
        )
        # A lake that had no files before the copy has none that are old enough for any sweep.
        notes = notes or (_fork_notes(lake) if fork else None)
        if notes is not None:
            notes.complete(lake.id, place_of(place), copied.id, clock())
        return copied


def _fork_notes(lake: Lake) -> ForkNotes | None:
    """The notes in the pool of a lake; nothing if it has no tables, or no files of any."""
    embedded = lake.catalogue
    if not isinstance(embedded, Embedded) or not lake.warehouse or not embedded.has_any_tables():
        return None
    pool = lake.places.at(pool_of(lake.warehouse))
    return ForkNotes(pool) if any(True for _ in pool.folders()) else None


def _is_fork_of(found: Description, source_id: str) -> bool:
    return found.arrival is not None and found.arrival.is_fork and found.arrival.source_id == source_id


def cancel_copy(source: str | os.PathLike[str] | Store, *, settings: Settings | None = None) -> Seal:
    """Let a lake stay where it is that was about to move; ``LakeMoved`` if it has moved already.

    What was copied so far is of no use any more.
    """
    lake = open_lake(source, create=False, settings=settings)
    try:
        return cancel(lake.kernel.store, lake.kernel.settings)
    finally:
        if not isinstance(source, Store):
            lake.close()
