"""What clones need of the folders of other tables.

Whoever removes files of a Delta table looks at the retained commits through this: it tells the tables that
they have, as ``RetainedDeltaTables`` does, and learns which of them are clones, and which files these
reference. The log of a clone is read when it is first met, and the commits that landed until then are looked
at once more: so whatever the log shows by then, the commits explain.

A lake in which no table was cloned says so by its format version, which is raised before the first clone
lands. Nothing is looked up there for the sake of clones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.formats.delta.lake.retained_files import RetainedFiles
from penstock.formats.delta.lake.retained_tables import RetainedDeltaTables
from penstock.formats.delta.ownership.clones import SourceFinder, has_clones
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.erase import TableHolder
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.locations import normalise_location

if TYPE_CHECKING:
    from penstock.formats.delta.lake.services import DeltaServices
    from penstock.lake.retained_history import NeighbourTables


class CloneNeeds:
    """The Delta tables of all retained commits, and what those that are clones need of others."""

    def __init__(self, kernel: Kernel, parts: DeltaServices, progress: Progress = show_no_progress) -> None:
        self._kernel, self._parts, self._progress = kernel, parts, progress
        self._kept = RetainedDeltaTables(kernel, parts.owner.tables, progress)
        self._has_clones = False
        """Whether any table was cloned, as far as was known when commits were looked at."""
        self._finder = SourceFinder(parts.owner.tables)
        self._clones: dict[str, RetainedFiles] = {}
        """By their own locations."""
        self._borrowers: dict[str, set[str]] = {}
        """The locations of clones, by those of the tables whose files they have."""

    @property
    def neighbours(self) -> NeighbourTables:
        return self._kept.neighbours

    def walk_unseen_tables(self) -> Iterator[DeltaTable]:
        """As ``RetainedDeltaTables.walk_unseen_tables``."""
        if not self._has_clones and has_clones(self._kernel):
            self._has_clones = True
            self._kept = RetainedDeltaTables(self._kernel, self._parts.owner.tables, self._progress)
        clone_count = len(self._clones)
        yield from self._walk_history()
        if not self._has_clones and has_clones(self._kernel):  # the first one came meanwhile
            yield from self.walk_unseen_tables()
        elif len(self._clones) > clone_count:
            yield from self._walk_history()
        for clone in self._clones.values():
            clone.read_deferred_commits()

    @property
    def sources(self) -> list[str]:
        """The locations of all tables whose files a clone has."""
        return sorted(self._borrowers)

    def find_clones(self, location: str) -> list[RetainedFiles]:
        """The clones that have had files of the table at a location."""
        return [
            self._clones[clone] for clone in sorted(self._borrowers.get(normalise_location(location), ()))
        ]

    def is_needed_file(self, location: str, name: str) -> bool:
        """Whether a clone needs a file of the table at a location; ``check_clones`` says if that is known."""
        return any(name in clone.named for clone in self.find_clones(location))

    def check_clones(self, location: str) -> None:
        """Raise what stands against knowing all files that clones need at a location, if anything."""
        for clone in self.find_clones(location):
            clone.check_completeness()

    def _walk_history(self) -> Iterator[DeltaTable]:
        for content in self._kept.walk_unseen_tables():
            if self._has_clones:
                self._add_content(content)
            yield content

    def _add_content(self, content: DeltaTable) -> None:
        where = normalise_location(content.location)
        sources = self._finder.find_sources(content)
        if where not in self._clones:
            if not sources:
                return
            self._clones[where] = RetainedFiles(
                self._parts, self._find_key(content), content, is_default=False
            )
        for source in sources:
            self._borrowers.setdefault(source, set()).add(where)
        self._clones[where].add_content(content)

    def _find_key(self, content: DeltaTable) -> Key:
        """The key of a table on the default branch, or what else it can be called."""
        tables = self._parts.owner.tables
        try:
            head = tables.find_head()
            key = None if head == NO_COMMIT else tables.find_key(head, content.id)
        except PenstockError:
            key = None
        return Key(str(content.id)) if key is None else key


def clone_holders(
    kernel: Kernel, parts: DeltaServices, content: DeltaTable, list_going: Callable[[], Sequence[str]]
) -> Iterator[TableHolder]:
    """The clones of a table that need files of it which an erase is to remove, by their names."""
    if not has_clones(kernel):
        return
    needs = CloneNeeds(kernel, parts)
    for _ in needs.walk_unseen_tables():
        pass
    clones = needs.find_clones(content.location)
    going = list_going() if clones else ()
    for clone in clones:
        clone.check_completeness()
        if any(name in clone.named for name in going):
            way = (
                f"it has files with these rows; delete the rows there too and erase it (penstock erase "
                f"{clone.key}), or drop it and erase it (penstock erase {clone.key} --dropped)"
            )
            yield TableHolder(f"clone '{clone.key}'", False, way)
