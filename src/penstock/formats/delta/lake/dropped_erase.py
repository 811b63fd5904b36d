"""Erasing a Delta table that was dropped: its folder goes as a whole, with the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import InvalidLog, LocationRefused, PenstockError
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.lake.clone_needs import CloneNeeds, clone_holders
from penstock.formats.delta.lake.services import DeltaServices
from penstock.kernel.kernel import Kernel
from penstock.lake.answers import SweptTable
from penstock.lake.dropped_erase import DroppedErasure
from penstock.lake.erase import TableHolder
from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress
    from penstock.lake.embedded import Embedded


class DroppedDeltaErasure(DroppedErasure):
    """A Delta table that was dropped."""

    content: DeltaTable

    def __init__(self, lake: Embedded, parts: DeltaServices, key: Key, who: str, content: DeltaTable) -> None:
        self._parts = parts
        super().__init__(lake, key, who, content)

    def explain_left_files(self) -> str:
        return "" if decode_branch_log(self.content).phase is OwnershipPhase.OWNED else "was released"

    def require_erasable(self) -> None:
        content = self.content
        self._parts.publisher.check_owned(content)
        with suppress(InvalidLog):  # an earlier erase may have removed a part of it
            self._parts.log_check.require_in_sync(self._key, content, is_default=False, again=True)

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:  # noqa: ARG002 - it goes as a whole
        """Clones that still need files of it."""
        return clone_holders(self._kernel, self._parts, self.content, self._list_all_files)

    def _list_all_files(self) -> list[str]:
        return [entry.key for entry in self.place.entries()]

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        engine = SweepEngine(
            remove_data=True, dry_run=False, pinned_us=self.forks.find_pinned_time_us, progress=progress
        )
        tally, problem = SweepTally(), ""
        before_us = self._kernel.clock() - self.grace_us
        try:
            engine.sweep_folder(
                _GoneFolder(self._kernel, self._parts, self.content.location, before_us), tally
            )
        except PenstockError as error:
            problem = error.message
        return engine.make_swept_table(self._key, self.content.location, tally, problem)


class _GoneFolder:
    """The folder of a Delta table of which nothing is retained: all of it goes."""

    def __init__(self, kernel: Kernel, parts: DeltaServices, location: str, before_us: int) -> None:
        self._location, self._before_us = location.rstrip("/"), before_us
        self._place = parts.places.open_place(location)
        self._kept = CloneNeeds(kernel, parts)

    def gather_references(self) -> None:
        self.gather_new_references()

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        for entry in listing(self._place, ""):
            yield JudgedFile(
                entry, SweepDecision.DATA if entry.modified_us < self._before_us else SweepDecision.WAITING
            )

    def gather_new_references(self) -> None:
        """``LocationRefused`` if another table is there, above or below."""
        for content in self._kept.walk_unseen_tables():
            other = content.location.rstrip("/")
            if f"{other}/".startswith(f"{self._location}/") or f"{self._location}/".startswith(f"{other}/"):
                raise LocationRefused(
                    f"another table of the lake is at {other}, so nothing is removed there",
                    location=self._location,
                )
        self._kept.neighbours.check_location(self._location)
        self._kept.check_clones(self._location)

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        """A clone that was made since the erase began keeps what it needs."""
        is_needed = self._kept.is_needed_file(self._location, candidate.entry.key)
        return SweepDecision.KEPT if is_needed else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._place.delete([file.entry.key for file in files])

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        if not tally.has_remaining_files:
            self._place.prune()
        else:
            self._place.remove_empty_folders()
