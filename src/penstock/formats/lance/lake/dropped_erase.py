"""Erasing a Lance table that was dropped: its folder goes as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.formats.lance.lake.erase import find_clones
from penstock.formats.lance.lake.folder_notes import DeregisteredNote, read_deregistered_note
from penstock.formats.lance.lake.sweep import LANCE_DAYS, LanceSweep
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.dropped_erase import DroppedErasure
from penstock.lake.erase import TableHolder
from penstock.storage.locations import normalise_location

if TYPE_CHECKING:
    from penstock.formats.lance.content import LanceTable
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.kernel.reachable import Progress
    from penstock.lake.embedded import Embedded
    from penstock.model.keys import Key


class DroppedLanceErasure(DroppedErasure):
    """A Lance table that was dropped."""

    def explain_left_files(self) -> str:
        return "" if read_deregistered_note(self.place) is DeregisteredNote.NO else "was deregistered"

    def __init__(self, lake: Embedded, parts: LanceServices, key: Key, who: str, content: LanceTable) -> None:
        self._parts, self._dropped = parts, content
        super().__init__(lake, key, who, content)

    def require_erasable(self) -> None:
        self._parts.ownership.require_own_or_free(self._dropped)
        self._parts.folder_check.require_in_sync(self._key, self._dropped, is_default=False)

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:  # noqa: ARG002
        return find_clones(self._lake, self.content.location)

    @property
    def grace_us(self) -> int:
        return self._kernel.graces.find_sweep_grace(LANCE_DAYS).data_us

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        call = SweepTables(remove_data=True, limit=None)
        lake = self._lake
        sweep = LanceSweep(self._kernel, lake.places, lake.id, lake.warehouse, call, progress)
        (swept,) = sweep.sweep_locations([normalise_location(self.content.location)])
        return swept
