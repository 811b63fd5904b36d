"""Whether a table's log is what the lake knows of it: looked at once, before a process commits to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from penstock.errors import LakeMoved, OutOfSync
from penstock.formats.delta.branch_log.line import OwnershipPhase, line_of
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_writer import newest_after
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.sync import SyncState, compare_with_head, out_of_sync
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

logger = logging.getLogger("penstock")

FindLast = Callable[[UUID], DeltaTable | None]
"""A table as the default branch has it now, or had it when it was dropped; ``None`` if it never had it."""


class LogCheck:
    """Compares logs with what the lake knows. Used by many threads at once."""

    def __init__(
        self,
        places: Places,
        publisher: Publisher,
        find_last: FindLast,
        require_unmoved: Callable[[], None],
    ) -> None:
        """``require_unmoved`` raises ``LakeMoved`` if the lake has moved: its tables go on without it."""
        self._places, self._publisher, self._find_last = places, publisher, find_last
        self._require_unmoved = require_unmoved

    def is_checked(self, identity: UUID) -> bool:
        """Whether a table was found to be in sync by this process, and nothing has told otherwise since."""
        return self._publisher.is_in_sync(identity)

    def note_new(self, identity: UUID) -> None:
        """Remember that a table is in sync because it is about to be made, where no log is."""
        self._publisher.note_in_sync(identity)

    def require_in_sync(
        self, key: Key, content: DeltaTable, *, is_default: bool, again: bool = False
    ) -> None:
        """``OutOfSync`` unless a table's log is what the lake knows. Looks once for a table that is, unless
        it is to look ``again``.

        ``content`` is the table as the branch has it that is about to be written to.
        """
        assert content.id is not None, "a managed table has an id"
        if self.is_checked(content.id) and not again:
            return
        state = self.compare(content.id, content.location, content if is_default else None)
        if not state.is_in_sync:
            raise log_out_of_sync(key, content.location, state)
        self._publisher.forget_replaced(content.id, content.location)
        self._publisher.note_in_sync(content.id)

    def warn(self, key: Key, content: DeltaTable) -> None:
        """Log that a table is out of sync, if it is. Raises as storage does."""
        try:
            self.require_in_sync(key, content, is_default=True)
        except OutOfSync as problem:
            logger.warning("%s", problem)
        except LakeMoved:
            logger.debug("'%s' has versions of the lake at its new location", key)

    def compare(self, identity: UUID, location: str, content: DeltaTable | None = None) -> SyncState:
        """What a log has that the lake has not, by what is there now. ``LakeMoved`` if there is something and
        the lake has moved.

        ``content`` is the table as the default branch has it, as far as the caller knows.
        """
        look = partial(self._look, location)
        state = compare_with_head(look, partial(self._find_last, identity), content)
        if not state.is_in_sync:
            self._require_unmoved()
        return state

    def _look(self, location: str, content: DeltaTable | None) -> SyncState:
        if content is None:
            return SyncState(-1, newest_after(self._places.at(location), -1))
        line = line_of(content)
        if line.phase is not OwnershipPhase.OWNED:
            return SyncState(line.fork)  # whose it is, its log has yet to tell, or has told
        if line.published >= line.fork:
            return SyncState(line.fork, newest_after(self._places.at(location), line.fork))
        comparison = self._publisher.compare(content)
        other = -1 if comparison.problem is None else int(comparison.problem.details["version"])
        return SyncState(line.fork, comparison.beyond, other)


def log_out_of_sync(key: Key, location: str, state: SyncState) -> OutOfSync:
    """The error for a log that has what the lake does not know, which names the file that is another one."""
    return out_of_sync(key, location, state, str(CommitName(state.other)) if state.other >= 0 else "")
