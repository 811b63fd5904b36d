"""The Delta tables of all kept commits: whatever anybody can still read, at any reference."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.retained_history import NeighbourTables, RetainedHistory
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED
from penstock.model.nessie import DeltaTable
from penstock.model.objects import CommitObject


class RetainedDeltaTables:
    """Looks at every commit that a branch or tag leads to, or one that was there until lately; once each.

    A table that was dropped is told as it was last, for as long as the lake knows of it: it may be brought
    back. Tables are told with their location, whatever their id: one that was released and adopted again, or
    dropped and recovered, has another id since, and the same files.
    """

    def __init__(
        self, kernel: Kernel, tables: DeltaTableStore, progress: Progress = show_no_progress
    ) -> None:
        self._kernel, self._tables = kernel, tables
        self.neighbours = NeighbourTables(DeltaTable)
        self._history = RetainedHistory(kernel, self._tables_of_commit, progress)

    def walk_unseen_tables(self) -> Iterator[DeltaTable]:
        """Managed tables as commits have them at which nobody has looked before, some of them repeatedly.

        ``Damaged`` if something is missing that has not expired.
        """
        return self._history.list_unseen()

    def _tables_of_commit(self, data: ObjectId, commit: CommitObject, is_first: bool) -> Iterator[DeltaTable]:
        """What a commit has changed; all that it has, if it is the first one that is kept."""
        if is_first:
            for stored, value in self._kernel.read_state(data).scan_entries():
                self.neighbours.note_content(stored, read_content(self._kernel.objects, value))
            for tables in (self._tables.list_tables(data), self._tables.list_dropped_tables(data)):
                for _, content in tables:
                    if (retained := self._history.drop_erased(content)) is not None:
                        yield retained
            return
        for stored, _, now in self._kernel.iterate_differences(commit.parent, data):
            changed = read_content(self._kernel.objects, now)
            self.neighbours.note_content(stored, changed)
            if not isinstance(changed, DeltaTable) or not changed.state or stored.startswith(RESERVED):
                continue
            if (retained := self._history.drop_erased(changed)) is not None:
                yield retained
