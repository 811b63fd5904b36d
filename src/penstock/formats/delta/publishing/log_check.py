"""Whether a table's log is what the lake knows of it: looked at once, before a process commits to it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.errors import OutOfSync
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_writer import find_newest_version_after
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.sync import SyncCheck, SyncState, out_of_sync
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

FindLast = Callable[[UUID], DeltaTable | None]
"""A table as the default branch has it now, or had it when it was dropped; ``None`` if it never had it."""


class LogCheck(SyncCheck[DeltaTable]):
    """Compares logs with what the lake knows. Used by many threads at once."""

    def __init__(
        self,
        places: Places,
        publisher: Publisher,
        find_last: FindLast,
        require_unmoved: Callable[[], None],
    ) -> None:
        super().__init__(find_last, require_unmoved)
        self._places, self._publisher = places, publisher

    def is_checked(self, identity: UUID) -> bool:
        """Whether a table was found to be in sync by this process, and nothing has told otherwise since."""
        return self._publisher.is_in_sync(identity)

    def note_new(self, identity: UUID) -> None:
        """Remember that a table is in sync because it is about to be made, where no log is."""
        self._publisher.remember_in_sync(identity)

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
        self._publisher.remember_in_sync(content.id)

    def _compare_with_storage(self, location: str, content: DeltaTable | None) -> SyncState:
        if content is None:
            return SyncState(-1, find_newest_version_after(self._places.open_place(location), -1))
        line = decode_branch_log(content)
        if line.phase is not OwnershipPhase.OWNED:
            return SyncState(line.fork_version)  # whose it is, its log has yet to tell, or has told
        if line.published >= line.fork_version:
            return SyncState(
                line.fork_version,
                find_newest_version_after(self._places.open_place(location), line.fork_version),
            )
        comparison = self._publisher.compare_log(content)
        other = -1 if comparison.problem is None else int(comparison.problem.details["version"])
        return SyncState(line.fork_version, comparison.beyond, other)


def log_out_of_sync(key: Key, location: str, state: SyncState) -> OutOfSync:
    """The error for a log that has what the lake does not know, which names the file that is another one."""
    return out_of_sync(key, location, state, str(CommitName(state.other)) if state.other >= 0 else "")
