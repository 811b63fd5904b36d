"""Files that tables need and that are gone: named by table and version, before anybody relies on them.

What is looked at is every table at every branch and tag. Delta tables: the log and the data files of the
version that is there. Lance tables: as ``fsck`` does. Tables of files: their files in the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.errors import PenstockError
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.inside import name_inside
from penstock.kernel.table_horizons import TableHorizons
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
            found = _of_delta if isinstance(content, DeltaTable) else _of_files
            yield from found(table, reference.name, places, listed)
    from penstock.lake.lance.readability import LanceReadability

    for one in LanceReadability(catalogue.kernel, places, with_files=True).unreadable():
        yield MissingFile(str(one.key), one.reference, None, one.why)


def _of_delta(
    table: Table, reference: str, places: Places, listed: dict[str, frozenset[str]]
) -> Iterator[MissingFile]:
    key, location = str(table.key), table.location
    try:
        snapshot = table.snapshot()
        names = [*_names(snapshot.files(), location)]
    except PenstockError as problem:
        yield MissingFile(key, reference, None, f"its log cannot be read: {problem.message}")
        return
    if location not in listed:
        listed[location] = frozenset(entry.key for entry in places.at(location).entries())
    gone = sorted(name for name in names if name not in listed[location])
    if gone:
        yield MissingFile(key, reference, snapshot.version, _listing(gone))


def _names(files: Iterable[Add], location: str) -> Iterator[str]:
    for add in files:
        yield name_inside(add.path, location)


def _of_files(
    table: Table,
    reference: str,
    places: Places,
    listed: dict[str, frozenset[str]],  # noqa: ARG001
) -> Iterator[MissingFile]:
    entries = [entry for entry in table.files.walk() if not entry.is_folder]
    folders = {entry.address.rpartition("/")[0] for entry in entries}
    there = {f"{folder}/{one.key}" for folder in folders for one in places.at(folder).entries()}
    gone = sorted(entry.path for entry in entries if entry.address not in there)
    if gone:
        yield MissingFile(str(table.key), reference, None, _listing(gone))


def _listing(gone: list[str]) -> str:
    more = f" and {len(gone) - NAMES_MAX} more" if len(gone) > NAMES_MAX else ""
    return f"{', '.join(gone[:NAMES_MAX])}{more} {'is' if len(gone) == 1 else 'are'} gone"
