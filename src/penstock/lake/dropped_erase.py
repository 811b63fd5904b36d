"""Erasing a table that was dropped: all of its files, and all that the lake has of it.

Nothing of such a table is live, so that nothing is rewritten and no version is committed: its horizon lies
behind every state that it ever had. What is committed is that it is still dropped: by then the lake refuses
to bring it back, and whoever was about to has either done so, which is seen, or finds that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.errors import CommitConflict, EraseRefused, LocationRefused, NotManaged, PenstockError
from penstock.formats.delta.lines.line import Phase, line_of
from penstock.kernel.conflict import content_of
from penstock.kernel.ledger import find_table, holder
from penstock.kernel.table_horizons import GONE
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.delta_kept import KeptTables
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.erase import Holder, Leftovers, Settled, left_of
from penstock.lake.files.erase import FilesErasure
from penstock.lake.fork_notes import ForkNotes
from penstock.lake.sweep_engine import Listing, SweepEngine, Tally
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, DeltaTable, FilesTable, LanceTable, ManagedTable
from penstock.model.encoding import ObjectId
from penstock.model.operations import Unchanged
from penstock.storage.fates import Fate, Judged
from penstock.storage.locations import normalise
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded
    from penstock.model.keys import Key

LANCE_DAYS: Final = 7.0
"""For so long Lance's own writers take for granted that their files stay."""


def _look(lake: Embedded, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return content_of(lake.kernel.objects, lake.kernel.state(commit).get(stored))


class DroppedErasure:
    """What an erase does to a table that was dropped from the default branch."""

    def __init__(self, lake: Embedded, key: Key, who: str, content: ManagedTable) -> None:
        self._lake, self._kernel, self._key, self._who = lake, lake.kernel, key, who
        self._branch = lake.kernel.formats.default_branch
        self.content = content
        self._require_own()

    @property
    def _place(self) -> Place:
        return self._lake.places.at(self.content.location)

    def _require_own(self) -> None:
        """``NotManaged`` for a table whose files were left to others when it went."""
        content, why = self.content, ""
        if isinstance(content, DeltaTable) and line_of(content).phase is not Phase.OWNED:
            why = "was released"
        elif isinstance(content, LanceTable):
            from penstock.lake.lance.notes import Stays, stays

            why = "was deregistered" if stays(self._place) is not Stays.NO else ""
        if content.location and not why and self._holder() not in (None, content.id):
            why = f"was at {content.location}, which has become another table's since"
        if why:
            raise NotManaged(
                f"'{self._key}' {why}: its files are not the lake's to remove", key=str(self._key)
            )

    def _head(self) -> ObjectId:
        return self._kernel.references.get(self._branch).head

    def _holder(self) -> object:
        return holder(partial(_look, self._lake, self._head()), self.content.location)

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:  # noqa: ARG002
        return True  # a branch that still has the table has all of it

    def holders(self, first: int | None) -> Iterator[Holder]:  # noqa: ARG002
        if isinstance(self.content, LanceTable):
            from penstock.lake.lance.erase import clones_of

            yield from clones_of(self._lake, self.content.location)

    def files_to_rewrite(self) -> int:
        return 0

    def rewrite(self) -> int:
        return 0

    def begin_at(self, start: ManagedTable, moment_us: int) -> int | None:  # noqa: ARG002
        return None  # it goes as a whole

    def spares(self, content: ManagedTable) -> bool:  # noqa: ARG002
        return False

    def begins_at(self, content: ManagedTable, first: int) -> bool:  # noqa: ARG002
        return False  # no state is retained

    def settle(self, erase: str) -> Settled:
        """Commit that the table is still dropped. ``EraseRefused`` if it is not."""
        authors = (self._who,) if self._who else ()
        try:
            outcome = self._kernel.commit(
                self._branch,
                [Unchanged(self._key)],
                CommitMeta(
                    message=f"erase {self._key}, which was dropped", committer=self._who, authors=authors
                ),
                base=self._head(),
                key=f"erase-{erase}",
                asked=erase.encode,
            )
        except CommitConflict:
            raise self._is_back() from None
        head = outcome.commits[-1] if outcome.commits else outcome.head
        assert self.content.id is not None
        if find_table(partial(_look, self._lake, head), self.content.id) is not None:
            raise self._is_back()
        return Settled(GONE)

    def _is_back(self) -> EraseRefused:
        return EraseRefused(
            f"'{self._key}' was changed meanwhile: the table may have been brought back; look at it again",
            key=str(self._key),
        )

    def latest(self) -> int:
        return GONE

    def earlier_log_files(self) -> int:
        return 0

    # -- what goes -------------------------------------------------------------------------------------------

    def cut(self, first: int) -> tuple[int, int, str]:  # noqa: ARG002 - the log goes with the folder
        return 0, 0, ""

    def unneeded_files(self) -> list[int]:
        """The sizes of all files that the table has."""
        if isinstance(self.content, FilesTable):
            return self._files().unneeded_files()
        return [one.size for one in self._place.entries()]

    def sweep(self, progress: Progress) -> SweptTable:
        """Remove the files of the table that nobody can be about to commit."""
        if isinstance(self.content, FilesTable):
            return self._files().sweep(progress)
        if isinstance(self.content, LanceTable):
            from penstock.lake.lance.sweep import LanceSweep

            call = SweepTables(remove_data=True, limit=None)
            lake = self._lake
            sweep = LanceSweep(self._kernel, lake.places, lake.id, lake.warehouse, call, progress)
            (swept,) = sweep.run([normalise(self.content.location)])
            return swept
        engine = SweepEngine(
            remove_data=True, dry_run=False, pinned_us=self._forks().pinned_us, progress=progress
        )
        tally, problem = Tally(), ""
        try:
            engine.sweep(_GoneFolder(self._lake, self.content.location, self._before_us()), tally)
        except PenstockError as error:
            problem = error.message
        return engine.answer(self._key, self.content.location, tally, problem)

    def left(self, horizon: TableHorizon) -> Leftovers:
        if isinstance(self.content, FilesTable):
            return self._files().left(horizon)
        times_us = [one.modified_us for one in self._place.entries()]
        return left_of(times_us, self._forks().pinned_us(), self._grace_us())

    def _grace_us(self) -> int:
        days = (LANCE_DAYS,) if isinstance(self.content, LanceTable) else ()
        return self._kernel.graces.of_sweeps(*days).data_us

    def _before_us(self) -> int:
        return self._kernel.clock() - self._grace_us()

    def _forks(self) -> ForkNotes:
        return ForkNotes(self._kernel.store, self._lake.places)

    def _files(self) -> FilesErasure:
        return FilesErasure(self._lake, self._key, self._who, dropped=self.content.id)


class _GoneFolder:
    """The folder of a Delta table of which nothing is retained: all of it goes."""

    def __init__(self, lake: Embedded, location: str, before_us: int) -> None:
        self._location, self._before_us = location.rstrip("/"), before_us
        self._place = lake.places.at(location)
        self._kept = KeptTables(lake.kernel, lake.plugin(DeltaPlugin).parts.owner.tables)

    def begin(self) -> None:
        self.look_again()

    def judge(self, listing: Listing) -> Iterator[Judged]:
        for entry in listing(self._place, ""):
            yield Judged(entry, Fate.DATA if entry.modified_us < self._before_us else Fate.WAITING)

    def look_again(self) -> None:
        """``LocationRefused`` if another table is there, above or below."""
        for content in self._kept.news():
            other = content.location.rstrip("/")
            if f"{other}/".startswith(f"{self._location}/") or f"{self._location}/".startswith(f"{other}/"):
                raise LocationRefused(
                    f"another table of the lake is at {other}, so that nothing is removed there",
                    location=self._location,
                )
        self._kept.neighbours.check(self._location)

    def judge_again(self, candidate: Judged) -> Fate:
        return candidate.fate

    def remove(self, files: Sequence[Judged]) -> None:
        self._place.delete([one.entry.key for one in files])

    def finish(self, tally: Tally) -> None:
        if not tally.stays:
            self._place.prune()
        else:
            self._place.remove_empty_folders()
