"""Clones of a lake: which tables have files of others, and why neither kind is handed back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import TableStateRefused
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.formats.delta.protocol.clones import clone_sources
from penstock.kernel.description import CLONES_VERSION, find_description, raise_version
from penstock.kernel.kernel import Kernel
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.references import Kind
from penstock.storage.locations import normalise_location


def has_clones(kernel: Kernel) -> bool:
    """Whether any table of the lake was ever cloned."""
    lake = find_description(kernel.store)
    return lake is not None and lake.format_version >= CLONES_VERSION


def note_clone(kernel: Kernel, sources: Sequence[str]) -> None:
    """Have everybody know that the lake has clones, before a table lands that has files of others."""
    if sources:
        raise_version(kernel.store, kernel.settings, CLONES_VERSION)


class SourceFinder:
    """Says whose files tables have beside their own. Each state of a table's metadata is read once."""

    def __init__(self, tables: DeltaTableStore) -> None:
        self._tables = tables
        self._sources: dict[ObjectId, tuple[str, ...]] = {}

    def find_sources(self, content: DeltaTable) -> tuple[str, ...]:
        """The locations of the tables whose files a table has."""
        line = decode_branch_log(content)
        if line.declared not in self._sources:
            _, metadata = self._tables.parse_declared(line)
            self._sources[line.declared] = tuple(
                map(normalise_location, clone_sources(metadata.configuration))
            )
        return self._sources[line.declared]


def require_releasable(tables: DeltaTableStore, key: Key, content: DeltaTable) -> None:
    """``TableStateRefused`` for a clone, and for a table whose files a clone has: outside of the lake nobody
    would know that the one needs the files of the other."""
    finder = SourceFinder(tables)
    if sources := finder.find_sources(content):
        raise TableStateRefused(
            f"'{key}' is a clone: it needs files of the table at {sources[0]}, so it cannot be released\n  "
            "Copy its rows into another table and release that one: lake.create_table(…, "
            f"data=lake.table('{key}').snapshot())",
            key=str(key),
        )
    location = normalise_location(content.location)
    clone = next(
        (other for other, table in _tables_at_heads(tables) if location in finder.find_sources(table)), None
    )
    if clone is not None:
        raise TableStateRefused(
            f"'{key}' cannot be released: its clone '{clone}' needs its files\n  Drop the clone on every "
            "branch first.",
            key=str(key),
            clone=str(clone),
        )


def _tables_at_heads(tables: DeltaTableStore) -> Iterator[tuple[Key, DeltaTable]]:
    """The Delta tables that branches, tags and transactions have; none where no table was cloned."""
    if not has_clones(tables.kernel):
        return
    references = tables.kernel.references
    heads = {head for _, head in references.list_heads()}
    heads |= {reference.head for reference in references.list_all_references(Kind.TRANSACTION)}
    for head in sorted(heads - {NO_COMMIT}):
        yield from tables.list_tables(head)
