"""Erasing a table that was dropped: all of its files, and all that the lake has of it.

Nothing of such a table is live, so that nothing is rewritten and no version is committed: its horizon lies
behind every state that it ever had. What is committed is that it is still dropped: by then the lake refuses
to bring it back, and whoever was about to has either done so, which is seen, or finds that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import CommitConflict, EraseRefused, NotManaged
from penstock.kernel.ledger import find_holder, find_table
from penstock.kernel.objects import read_content
from penstock.kernel.table_horizons import GONE
from penstock.lake.answers import SweptTable
from penstock.lake.erase import FirstVersionKept, LeftoverFiles, TableHolder, make_leftover_files
from penstock.lake.fork_notes import ForkNotes
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import ObjectId
from penstock.model.operations import Unchanged
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded
    from penstock.model.keys import Key


def _read_content(lake: Embedded, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return read_content(lake.kernel.objects, lake.kernel.read_state(commit).get(stored))


class DroppedErasure:
    """What an erase does to a table that was dropped. A format says how its files go."""

    def __init__(self, lake: Embedded, key: Key, who: str, content: ManagedTable) -> None:
        self._lake, self._kernel, self._key, self._who = lake, lake.kernel, key, who
        self._branch = lake.kernel.formats.default_branch
        self.content = content
        self._require_own()

    @property
    def place(self) -> Place:
        return self._lake.places.open_place(self.content.location)

    def explain_left_files(self) -> str:
        """Why its files were left to others when it went; nothing if they were not."""
        return ""

    def require_erasable(self) -> None:
        """Refuse a table that another lake owns, or that has versions the lake does not know."""

    def _require_own(self) -> None:
        """``NotManaged`` for a table whose files were left to others when it went."""
        content, reason = self.content, self.explain_left_files()
        if content.location and not reason and self._make_holder() not in (None, content.id):
            reason = f"was at {content.location}, which belongs to another table now"
        if reason:
            raise NotManaged(
                f"'{self._key}' {reason}: the lake cannot remove the files of this dropped table",
                key=str(self._key),
            )

    def _default_branch_head(self) -> ObjectId:
        return self._kernel.references.get_reference(self._branch).head

    def _make_holder(self) -> object:
        return find_holder(
            partial(_read_content, self._lake, self._default_branch_head()), self.content.location
        )

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:  # noqa: ARG002
        return True  # a branch that still has the table has all of it

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:  # noqa: ARG002
        return iter(())

    def count_files_to_rewrite(self) -> int:
        return 0

    def rewrite_files(self) -> int:
        return 0

    def find_first_kept_version(self, start: ManagedTable, moment_us: int) -> int | None:  # noqa: ARG002
        return None  # it goes as a whole

    def is_state_kept(self, content: ManagedTable) -> bool:  # noqa: ARG002
        return False

    def is_history_cut_at(self, content: ManagedTable, first: int) -> bool:  # noqa: ARG002
        return False  # no state is retained

    def commit_first_version(self, erase: str) -> FirstVersionKept:
        """Commit that the table is still dropped. ``EraseRefused`` if it is not."""
        authors = (self._who,) if self._who else ()
        try:
            outcome = self._kernel.commit(
                self._branch,
                [Unchanged(self._key)],
                CommitMeta(
                    message=f"erase {self._key}, which was dropped", committer=self._who, authors=authors
                ),
                base=self._default_branch_head(),
                key=f"erase-{erase}",
                fingerprint=erase.encode,
            )
        except CommitConflict:
            raise self._is_back() from None
        head = outcome.commits[-1] if outcome.commits else outcome.head
        assert self.content.id is not None
        if find_table(partial(_read_content, self._lake, head), self.content.id) is not None:
            raise self._is_back()
        return FirstVersionKept(GONE)

    def _is_back(self) -> EraseRefused:
        return EraseRefused(
            f"'{self._key}' was changed by another writer: the table may have been restored; check it, and "
            "erase again if it is still to be erased",
            key=str(self._key),
        )

    def read_latest_version(self) -> int:
        return GONE

    def count_earlier_log_files(self) -> int:
        return 0

    # -- what goes -------------------------------------------------------------------------------------------

    def cut_history(self, first: int) -> tuple[int, int, str]:  # noqa: ARG002 - the log goes with the folder
        return 0, 0, ""

    def list_unneeded_file_sizes(self) -> list[int]:
        """The sizes of all files that the table has."""
        return [entry.size for entry in self.place.entries()]

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        """Remove the files of the table that nobody can be about to commit."""
        raise NotImplementedError

    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles:  # noqa: ARG002 - nothing of it is retained
        times_us = [entry.modified_us for entry in self.place.entries()]
        return make_leftover_files(times_us, self.forks.find_pinned_time_us(), self.grace_us)

    @property
    def grace_us(self) -> int:
        """How old files are at least that go."""
        return self._kernel.graces.find_sweep_grace().data_us

    @property
    def forks(self) -> ForkNotes:
        return ForkNotes(self._kernel.store, self._lake.places)
