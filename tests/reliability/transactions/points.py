"""Where a process that runs a transaction is killed, and how it is made to die there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

from penstock.model.transactions import PREFIX
from penstock.storage.local import LocalBucket
from penstock.testing.faults import FaultyStore, Point


class At(StrEnum):
    """Where it dies. If its transaction ends before it gets there, it dies before it tells anybody so."""

    BEFORE_BEGIN = "before it begins"
    IN_BEGIN = "while it begins"
    AFTER_BEGIN = "when it has begun"
    IN_DATA = "in the midst of the rows of a write"
    BEFORE_STEP = "before a write or a read is committed to it"
    IN_STEP = "while one is committed"
    AFTER_STEP = "when one is committed"
    BEFORE_MERGE = "before its merge"
    IN_MERGE = "in its merge"
    AFTER_MERGE = "between its merge and the note of it"
    IN_PUBLISHING = "while it is published"
    BEFORE_ANSWER = "before the answer"


OWN: Final = {
    At.BEFORE_BEGIN: Point.TURN,
    At.IN_BEGIN: Point.BEFORE_SWAP,
    At.AFTER_BEGIN: Point.AFTER_SWAP,
    At.BEFORE_STEP: Point.BEFORE_OBJECTS,
    At.IN_STEP: Point.BEFORE_SWAP,
    At.AFTER_STEP: Point.AFTER_SWAP,
}
"""Of the transaction's row."""
STEPS: Final = (At.BEFORE_STEP, At.IN_STEP, At.AFTER_STEP)
OF_THE_TARGET: Final = {
    At.BEFORE_MERGE: Point.BEFORE_OBJECTS,
    At.IN_MERGE: Point.BEFORE_SWAP,
    At.AFTER_MERGE: Point.AFTER_SWAP,
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(store: FaultyStore, at: At, transaction: str, step: int, dying: Callable[[], None] = die) -> None:
    """Have this process die at a point of a transaction: of the steps, at the one of that number."""
    if at in OWN:
        skip = 1 + step if at in STEPS else 0
        store.at(OWN[at], dying, name=PREFIX + transaction, skip=skip)
    elif at in OF_THE_TARGET:
        store.at(OF_THE_TARGET[at], dying, name="main")
    elif at is At.IN_PUBLISHING:
        store.at(Point.AFTER_SWAP, partial(_die_while_publishing, dying), name="main")


def _die_while_publishing(dying: Callable[[], None]) -> None:
    """Right after the next file of a log, or the next manifest, is where everybody finds it."""
    put_new, put_all, link = LocalBucket.put_new_now, LocalBucket.put_all, LocalBucket.link_now

    def die_if_published(*keys: str) -> None:
        if any("_delta_log/0" in key or "_versions/" in key for key in keys):
            dying()

    def watched_put_new(self: LocalBucket, key: str, data: bytes) -> bool:
        is_new = put_new(self, key, data)
        die_if_published(key)
        return is_new

    async def watched_put_all(self: LocalBucket, items: Sequence[tuple[str, bytes]]) -> int:
        done = await put_all(self, items)
        die_if_published(*(key for key, _ in items))
        return done

    def watched_link(self: LocalBucket, key: str, other: str) -> bool:
        is_new = link(self, key, other)
        die_if_published(key)
        return is_new

    watched: dict[str, Any] = {
        "put_new_now": watched_put_new,
        "put_all": watched_put_all,
        "link_now": watched_link,
    }
    for name, function in watched.items():
        setattr(LocalBucket, name, function)
