"""Files that tables need and that are gone: named by table and version, before anybody relies on them.

What is looked at is every table at every branch and tag. Delta tables: the log and the data files of the
version that is there. Lance tables: as ``fsck`` does. Tables of files: their files in the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.errors import PenstockError
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.inside import name_inside
from penstock.kernel.table_horizons import TableHorizons
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.content import DeltaTable, FilesTable
from penstock.model.encoding import NO_COMMIT
from penstock.storage.places import Places

NAMES_MAX: Final = 3
"""How many files of one table are named."""


class MissingFile(NamedTuple):
    """Something that a table needs at a branch or tag and that is not there."""

    table: str
    reference: str
    version: int | None
    what: str

    def __str__(self) -> str:
        version = "" if self.version is None else f" (version {self.version})"
        return f"'{self.table}' at '{self.reference}'{version}: {self.what}"


def missing_files(lake: Lake) -> Iterator[MissingFile]:
    """All files that are gone, of the tables at all branches and tags of an embedded lake."""
    catalogue = lake.catalogue
    if not isinstance(catalogue, Embedded) or not catalogue.has_any_tables():
        return
    places = catalogue.places
    horizons = TableHorizons.read(catalogue.kernel.store, catalogue.kernel.formats)
    listed: dict[str, frozenset[str]] = {}
    seen: set[tuple[str, bytes]] = set()
    for reference in (*lake.branches(), *lake.tags()):
        if reference.reference.head == NO_COMMIT:
            continue
        for table in lake.at(reference.name).tables():
            content = table.content
            if not isinstance(content, DeltaTable | FilesTable) or not content.state:
                continue  # what the lake does not manage it does not answer for
            if horizons.is_behind(content):
                continue  # it was erased, and is not to be there
            if (str(content.id), content.state) in seen:
                continue
            seen.add((str(content.id), content.state))
            if isinstance(content, DeltaTable):
                yield from _of_delta(catalogue, table, content, reference.name, listed)
            else:
                yield from _of_files(table, reference.name, places)
    from penstock.lake.lance.readability import LanceReadability

    for one in LanceReadability(catalogue.kernel, places, with_files=True).unreadable():
        yield MissingFile(str(one.key), one.reference, None, one.why)


def _of_delta(
    catalogue: Embedded,
    table: Table,
    content: DeltaTable,
    reference: str,
    listed: dict[str, frozenset[str]],
) -> Iterator[MissingFile]:
    key, place = str(table.key), catalogue.places.at(content.location)
    try:
        # Not as readers get it: nothing is written for them at a place that may be the wrong one.
        parts = catalogue.plugin(DeltaPlugin).parts
        snapshot = parts.commits.snapshot(content, parts.owner.tables.read)
        names = [*_names(snapshot.files(), place.roots)]
    except PenstockError as problem:
        yield MissingFile(key, reference, None, f"its log cannot be read: {problem.message}")
        return
    if place.url not in listed:
        listed[place.url] = frozenset(entry.key for entry in place.entries())
    gone = sorted(name for name in names if name not in listed[place.url])
    if gone:
        yield MissingFile(key, reference, snapshot.version, _listing(gone))


def _names(files: Iterable[Add], roots: Sequence[str]) -> Iterator[str]:
    for add in files:
        yield name_inside(add.path, roots)


def _of_files(table: Table, reference: str, places: Places) -> Iterator[MissingFile]:
    entries = [entry for entry in table.files.walk() if not entry.is_folder]
    folders = {entry.address.rpartition("/")[0] for entry in entries}
    there = {f"{folder}/{one.key}" for folder in folders for one in places.at(folder).entries()}
    gone = sorted(entry.path for entry in entries if entry.address not in there)
    if gone:
        yield MissingFile(str(table.key), reference, None, _listing(gone))


def _listing(gone: list[str]) -> str:
    more = f" and {len(gone) - NAMES_MAX} more" if len(gone) > NAMES_MAX else ""
    return f"{', '.join(gone[:NAMES_MAX])}{more} {'is' if len(gone) == 1 else 'are'} gone"
