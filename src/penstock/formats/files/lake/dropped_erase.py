"""Erasing a table of files that was dropped: its files in the pool go, as far as no other table has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.formats.files.lake.erase import FilesErasure
from penstock.lake.answers import SweptTable
from penstock.lake.dropped_erase import DroppedErasure
from penstock.lake.erase import LeftoverFiles, TableHolder

if TYPE_CHECKING:
    from penstock.kernel.reachable import Progress
    from penstock.kernel.table_horizons import TableHorizon


class DroppedFilesErasure(DroppedErasure):
    """A table of files that was dropped."""

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:
        return self._files.find_holders(first)

    def list_unneeded_file_sizes(self) -> list[int]:
        return self._files.list_unneeded_file_sizes()

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        return self._files.sweep_unneeded_files(progress)

    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles:
        return self._files.find_leftovers(horizon)

    @property
    def _files(self) -> FilesErasure:
        return FilesErasure(self._lake, self._key, self._who, dropped=self.content.id)
