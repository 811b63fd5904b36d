"""Erasing a Lance table that was dropped: its folder goes as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.formats.lance.lake.erase import clones_of
from penstock.formats.lance.lake.notes import Stays, stays
from penstock.formats.lance.lake.sweep import LANCE_DAYS, LanceSweep
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.dropped_erase import DroppedErasure
from penstock.lake.erase import TableHolder
from penstock.storage.locations import normalise

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress


class DroppedLance(DroppedErasure):
    """A Lance table that was dropped."""

    def why_left(self) -> str:
        return "" if stays(self.place) is Stays.NO else "was deregistered"

    def holders(self, first: int | None) -> Iterator[TableHolder]:  # noqa: ARG002
        return clones_of(self._lake, self.content.location)

    @property
    def grace_us(self) -> int:
        return self._kernel.graces.of_sweeps(LANCE_DAYS).data_us

    def sweep(self, progress: Progress) -> SweptTable:
        call = SweepTables(remove_data=True, limit=None)
        lake = self._lake
        sweep = LanceSweep(self._kernel, lake.places, lake.id, lake.warehouse, call, progress)
        (swept,) = sweep.run([normalise(self.content.location)])
        return swept
