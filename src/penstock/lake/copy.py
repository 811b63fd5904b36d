"""Copying a lake, and moving it to another place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypedDict

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.copy import CopyProgress, CopyResult, copy_store, show_no_progress
from penstock.kernel.description import LakeDescription, Seal, find_description
from penstock.kernel.lake_seal import cancel_seal
from penstock.kernel.object_copy import WORKERS
from penstock.kernel.settings import Settings
from penstock.kernel.undo_move import undo_lake_move
from penstock.lake.embedded import Embedded
from penstock.lake.fork_notes import ForkNotes
from penstock.lake.lake import Lake
from penstock.lake.notebook_progress import show_progress
from penstock.lake.opener import is_remote, open_lake, open_or_make_store, require_no_server
from penstock.model.clock import Clock, now_us
from penstock.stores import get_place
from penstock.stores.port import Store

Place = str | os.PathLike[str] | Store
"""A directory, a URL, or a store that the caller made, which stays open."""


@show_progress
def copy_lake(
    source: Place,
    target: Place,
    *,
    author: str | None = None,
    settings: Settings | None = None,
    progress: CopyProgress = show_no_progress,
    clock: Clock = now_us,
) -> CopyResult:
    """Copy a lake with its whole history to an empty location; the source does not change.

    The copy is a lake with its own id. After an interruption, the same call continues. Tables stay where they
    are: managed tables are read-only in the copy. Files that the copy shares with its source stay for as long
    as a note in the warehouse says so (see ``fork_notes.py``).
    """
    with open_lake_at(source, author, settings, clock) as lake, open_target(target, clock) as place:
        notes = fork_notes(lake)
        if notes is not None:
            description = find_description(place)
            if description is None or _is_fork_of(description, lake.id):  # else the copy is refused
                notes.note_begun_fork(
                    lake.id, get_place(place), None if description is None else description.id
                )
        copied = copy_store(
            lake.kernel,
            place,
            source_place=lake.url,
            target_place=get_place(place),
            fork=True,
            who=lake.author,
            progress=progress,
        )
        # A lake that had no tables before the copy has no files that are old enough for any sweep.
        notes = notes or fork_notes(lake)
        if notes is not None:
            notes.note_complete_fork(lake.id, get_place(place), copied.id, clock())
        return copied


@show_progress
def move_lake(
    source: Place,
    target: Place,
    *,
    author: str | None = None,
    settings: Settings | None = None,
    progress: CopyProgress = show_no_progress,
    clock: Clock = now_us,
) -> CopyResult:
    """Move a lake with its whole history to an empty location; afterwards the source is read-only.

    The lake keeps its id. After an interruption, the same call continues; ``cancel_move`` cancels the move
    instead. ``undo_move`` moves the lake back, as long as nothing was written to the target. Tables stay
    where they are: only the lake moves. A note in the warehouse says where the lake is (see
    ``fork_notes.py``); where that cannot be written, the move is refused.
    """
    with open_lake_at(source, author, settings, clock) as lake, open_target(target, clock) as place:

        def record_move_target(is_certain: bool) -> None:
            notes = fork_notes(lake)
            if notes is not None:
                _note_move(notes, lake.id, get_place(place), clock(), is_certain)

        return copy_store(
            lake.kernel,
            place,
            source_place=lake.url,
            target_place=get_place(place),
            who=lake.author,
            progress=progress,
            record_move_target=record_move_target,
        )


def undo_move(
    source: Place,
    target: Place,
    *,
    author: str | None = None,
    settings: Settings | None = None,
    clock: Clock = now_us,
) -> None:
    """Undo a move from ``source`` to ``target``: the lake is at the source again, and the target is sealed.

    ``InvalidRequest`` if something was written to the target since, because that would be lost. After an
    interruption, the same call continues. At no time do both locations accept writes.
    """
    with (
        open_lake_at(source, author, settings, clock) as here,
        open_lake_at(target, author, settings, clock) as target_lake,
        ThreadPoolExecutor(WORKERS) as workers,
    ):
        undo_lake_move(
            here.kernel,
            target_lake.kernel,
            source_place=here.url,
            target_place=target_lake.url,
            who=here.author,
            workers=workers,
        )


def cancel_move(source: Place, *, settings: Settings | None = None) -> Seal:
    """Cancel a move that is not complete; ``LakeMoved`` if the lake has moved already.

    What was copied so far is not used any more.
    """
    with open_lake_at(source, None, settings, now_us) as lake:
        return cancel_seal(lake.kernel.store, lake.kernel.settings)


def require_own_store(place: Place) -> None:
    """``InvalidRequest`` if a lake is behind a server, where its store is needed."""
    if not isinstance(place, Store) and is_remote(os.fspath(place)):
        raise InvalidRequest(
            f"{os.fspath(place)} is a server, and copies, moves and backups need direct access to the lake's "
            "store: run this where the database can be reached, with the lake address that 'penstock serve' "
            "was started with",
            url=os.fspath(place),
        )


class OpenOptions(TypedDict, total=False):
    """How a lake is opened, as ``penstock.open`` takes it."""

    author: str | None
    """The author; by default the user of the system."""
    settings: Settings | None
    """Settings of the kernel, such as time limits."""
    clock: Clock
    """The time in microseconds, for tests."""


class LakeOpening(NamedTuple):
    """The same, complete. ``TypeError`` for any other option."""

    author: str | None = None
    settings: Settings | None = None
    clock: Clock = now_us


@contextmanager
def open_lake_at(
    source: Place,
    author: str | None,
    settings: Settings | None,
    clock: Clock,
    *,
    catch_up: bool = True,
) -> Iterator[Lake]:
    """The lake at a place, or in a store that the caller made and closes."""
    require_own_store(source)
    lake = open_lake(source, create=False, author=author, settings=settings, clock=clock, catch_up=catch_up)
    try:
        yield lake
    finally:
        if not isinstance(source, Store):
            lake.close()
        elif isinstance(lake.catalogue, Embedded):
            lake.catalogue.stop_background()  # the store may be closed next


@contextmanager
def open_target(target: Place, clock: Clock) -> Iterator[Store]:
    """The store at a place, which is made if there is none."""
    if isinstance(target, Store):
        yield target
        return
    require_no_server(os.fspath(target))
    store = open_or_make_store(os.fspath(target), clock)
    try:
        yield store
    finally:
        store.close()


def fork_notes(lake: Lake) -> ForkNotes | None:
    """The notes of forks of a lake; nothing if it has no tables, or no place for any."""
    embedded = lake.catalogue
    if not isinstance(embedded, Embedded) or not lake.roots or not embedded.has_any_tables():
        return None
    return ForkNotes(embedded.kernel.store, embedded.places)


def _note_move(notes: ForkNotes, lake_id: str, target: str, now_us: int, is_certain: bool) -> None:
    try:
        notes.note_owner(lake_id, target, now_us, is_certain=is_certain)
    except PenstockError as error:
        message = (
            f"the note that the lake moves to {target} could not be written to its warehouse, so the move "
            f"stopped: {error.message}\n  By that note whoever restores a backup finds the lake. Run the "
            "same command where the warehouse can be written."
        )
        if is_certain:
            message += (
                " Until then the lake takes no writes, unless 'penstock move SOURCE --cancel' cancels it."
            )
        raise type(error)(message, **error.details) from error


def _is_fork_of(description: LakeDescription, source_id: str) -> bool:
    return (
        description.arrival is not None
        and description.arrival.is_fork
        and description.arrival.source_id == source_id
    )
