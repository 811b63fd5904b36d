"""Moving a lake to another place, or forking it."""

from __future__ import annotations

import os
from contextlib import ExitStack

from penstock.kernel.copy import Copied, CopyProgress, copy, silent
from penstock.kernel.description import Seal
from penstock.kernel.seal import cancel
from penstock.kernel.settings import Settings
from penstock.lake.opening import open_lake
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
    call goes on where it was. Tables stay where they are: only the lake moves.

    Stores that the caller made stay open.
    """
    with ExitStack() as stack:
        lake = open_lake(source, create=False, author=author, settings=settings, clock=clock)
        if not isinstance(source, Store):
            stack.callback(lake.close)
        if isinstance(target, Store):
            place = target
        else:
            place = open_store(os.fspath(target), True, clock)
            stack.callback(place.close)
        return copy(
            lake.kernel,
            place,
            source_place=lake.url,
            target_place=place_of(place),
            fork=fork,
            who=lake.author,
            progress=progress,
        )


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
