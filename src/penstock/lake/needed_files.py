"""All files of tables that a lake needs, folder by folder: what every kept commit of it can be read by.

Each format finds its own, as its sweep finds what is to stay (``lake.retained_history``). What is only a
hint, and would tell of later versions, is left out. Of a folder that is not understood, all files count as
needed, and what is wrong is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.formats.plugin import NeededFolder
from penstock.kernel.reachable import Progress, show_no_progress

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class NeededFiles:
    """Looks at all kept commits of a lake, once, and tells which files they need."""

    def __init__(self, lake: Embedded, progress: Progress = show_no_progress) -> None:
        self._lake, self._progress = lake, progress
        self.problems: list[str] = []
        """What stands against knowing what some folder needs."""

    def list_needed_folders(self) -> Iterator[NeededFolder]:
        """All folders in which something is needed. ``Damaged`` if history cannot be walked."""
        if not self._lake.has_any_tables():
            return
        for plugin in self._lake.plugins:
            yield from plugin.needed_folders(self.problems, self._progress)
