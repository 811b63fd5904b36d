"""Whether a table has what the lake knows of it, and no more: what all formats with logs of their own share.

A lake whose database came back from a backup is older than its tables: they have versions that it does not
know. Whatever it ratified then would be a second version of a number that others have read. So nobody commits
to such a table until its versions are taken over.

A table that is ahead of what this process knows may only be ahead of that: another process of the lake may
have committed and published meanwhile. A version is ratified before anybody else can see it. So after a
version was seen, the newest commit of the default branch has it, or the lake never had it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from penstock.errors import LakeMoved, OutOfSync
from penstock.model.content import ManagedTable
from penstock.model.keys import Key

C = TypeVar("C")
T = TypeVar("T", bound=ManagedTable)

logger = logging.getLogger("penstock")


class SyncState(NamedTuple):
    """What a table has that the lake has not."""

    known: int
    """The newest version that the lake has of it; below all versions if there is none."""
    beyond: int = -1
    """The newest version of the table, if that is newer."""
    other: int = -1
    """The first version that is another one in the table than in the lake."""

    @property
    def is_in_sync(self) -> bool:
        return self.beyond < 0 and self.other < 0


class SyncCheck(ABC, Generic[T]):
    """Compares tables with what the lake knows: each once, before a process commits to it. Used by many
    threads at once."""

    def __init__(self, find_last: Callable[[UUID], T | None], require_unmoved: Callable[[], None]) -> None:
        """``find_last`` tells a table as the default branch has it now, or had it when it was dropped;
        ``None`` if it never had it. ``require_unmoved`` raises ``LakeMoved`` if the lake has moved: its
        tables go on without it."""
        self._find_last, self._require_unmoved = find_last, require_unmoved

    @abstractmethod
    def require_in_sync(self, key: Key, content: T, *, is_default: bool) -> None:
        """``OutOfSync`` unless a table is what the lake knows. Looks once for a table that is.

        ``content`` is the table as the branch has it that is about to be written to.
        """

    @abstractmethod
    def _compare_with_storage(self, location: str, content: T | None) -> SyncState:
        """What is there now, beside what a content says."""

    def warn(self, key: Key, content: T) -> None:
        """Log that a table is out of sync, if it is. Raises as storage does."""
        try:
            self.require_in_sync(key, content, is_default=True)
        except OutOfSync as problem:
            logger.warning("%s", problem)
        except LakeMoved:
            logger.debug("'%s' has versions of the lake at its new location", key)

    def compare(self, identity: UUID, location: str, content: T | None = None) -> SyncState:
        """What a table has that the lake has not, by what is there now. ``LakeMoved`` if there is something
        and the lake has moved.

        ``content`` is the table as the default branch has it, as far as the caller knows.
        """
        look = partial(self._compare_with_storage, location)
        state = compare_with_head(look, partial(self._find_last, identity), content)
        if not state.is_in_sync:
            self._require_unmoved()
        return state


def compare_with_head(
    look: Callable[[C | None], SyncState], find_last: Callable[[], C | None], known: C | None
) -> SyncState:
    """What a table has that the lake has not.

    ``look`` compares what is in storage with a content. ``find_last`` tells the content that the default
    branch has now, and ``known`` is one that it had, as far as the caller knows.
    """
    content, seen = known or find_last(), -1
    while True:
        state = look(content)
        if state.other < 0 and (state.beyond < 0 or 0 <= seen <= state.known):
            return SyncState(state.known)  # what came since the table was first seen, somebody ratified
        now = find_last()
        if now == content or state.other >= 0:
            return state
        content, seen = now, state.beyond if seen < 0 else seen


def out_of_sync(key: object, location: str, state: SyncState, name: str = "") -> OutOfSync:
    """The error for a table that has what the lake does not know; ``name`` is the file that is another one,
    where one can be named."""
    if state.other >= 0:
        at = f"{location}/{name}" if name else location
        what = f"version {state.other} at {at} is not the one that the lake has"
    else:
        known_versions = "none" if state.known < 0 else f"none after {state.known}"
        what = f"{location} has version {state.beyond}, but the lake knows {known_versions}"
    return OutOfSync(
        f"'{key}' is out of sync: {what}\n  The lake was restored from an older copy, or another "
        f"program wrote to the table without the lake. Nothing was written. 'penstock resync {key}' "
        "imports the table's versions, with all their rows; 'penstock resync --all' does so for every "
        "table of the lake.",
        table=str(key),
        location=location,
        known=state.known,
        version=state.other if state.other >= 0 else state.beyond,
    )


def own_versions_left(key: object, location: str, first_version: int, last: int, commit: str) -> OutOfSync:
    """The error for a table of which the lake has versions that cannot be repeated on top of its own."""
    return OutOfSync(
        f"'{key}' is out of sync: versions {first_version} to {last} of the lake differ from those "
        f"at {location}, and cannot be repeated on top of them\n  'penstock resync {key} --leave-own' "
        "imports the versions at that location. The lake's own versions stay readable at commit "
        f"{commit} while its history is kept: write their changes again.",
        table=str(key),
        location=location,
        known=last,
        version=first_version,
        commit=commit,
    )
