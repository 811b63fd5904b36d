"""The files of Lance tables that a lake needs: what kept versions name, also in other folders.

The version hint is left out, which would tell of later versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.formats.lance.lake.leftovers import HINT, LanceNeeds, is_data, judge_file
from penstock.formats.lance.lake.retained_tables import RetainedTable, RetainedTables
from penstock.formats.plugin import NeededFolder
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import is_under
from penstock.storage.places import Places
from penstock.storage.sweep_decisions import SweepDecision

ALWAYS_US: Final = 2**63 - 1
"""Later than any file was written: none is too young to be judged."""


def list_needed_folders(
    kernel: Kernel, places: Places, problems: list[str], progress: Progress
) -> Iterator[NeededFolder]:
    """The folders of Lance tables, and others that have files of theirs. What stands against knowing what one
    needs is added to ``problems``."""
    retained_tables = RetainedTables(kernel, places, progress)
    retained_tables.read_new_commits()
    for location, table in sorted(retained_tables.tables.items()):
        if table.problem:
            problems.append(f"the Lance table at {location}: {table.problem}")
        needed = _FolderNeeds(places, retained_tables, location, table)
        yield NeededFolder(location, needed.files, needed.needs, is_data)
    for location in sorted(retained_tables.bases):
        if not any(
            is_under(location, other_location)
            for other_location in (*retained_tables.tables, *retained_tables.bases - {location})
        ):
            needed = _FolderNeeds(places, retained_tables, location, None)
            yield NeededFolder(location, needed.files, needed.needs, is_data)


class _FolderNeeds:
    """What kept commits need of a folder of Lance: of a table, or of files that tables elsewhere name."""

    def __init__(
        self, places: Places, retained_tables: RetainedTables, location: str, table: RetainedTable | None
    ) -> None:
        self._place, self._kept, self._location, self._table = (
            places.open_place(location),
            retained_tables,
            location,
            table,
        )

    def files(self) -> Iterator[BucketEntry]:
        return (entry for entry in self._place.entries() if self._is_kept(entry))

    def needs(self, name: str) -> bool:
        return self._kept.is_file_named(f"{self._location}/{name}") and is_data(name)

    def _is_kept(self, entry: BucketEntry) -> bool:
        if entry.key.rpartition("/")[2] == HINT:
            return False
        if self._table is None:
            return self._kept.is_file_named(f"{self._location}/{entry.key}")
        if self._table.problem:
            return True
        return (
            judge_file(entry, LanceNeeds(self._table, self._kept.is_file_named, (), ALWAYS_US))
            is SweepDecision.KEPT
        )
