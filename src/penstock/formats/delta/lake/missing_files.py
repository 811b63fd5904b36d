"""Files of Delta tables that are gone: those of the rows of the version that is there, or its log."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import PenstockError
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.file_addresses import name_inside, open_table_place
from penstock.formats.delta.rows.vectors import get_vector_file_name
from penstock.formats.plugin import MissingFile, MissingFiles, list_missing
from penstock.lake.table import Table
from penstock.model.nessie import DeltaTable
from penstock.storage.linked_places import LinkedPlace
from penstock.storage.places import Place


class MissingDeltaFiles(MissingFiles):
    """Lists each folder once, however many states of a table lie in it."""

    def __init__(self, parts: DeltaServices) -> None:
        self._parts = parts
        self._listed: dict[str, frozenset[str]] = {}

    def find_missing(self, table: Table, reference: str) -> Iterator[MissingFile]:
        content = table.content
        assert isinstance(content, DeltaTable)
        key = str(table.key)
        try:
            # Not as readers get it: nothing is written for them at a place that may be the wrong one.
            snapshot = self._parts.commits.read_snapshot(content, self._parts.owner.tables.read_object)
            gone = self.find_gone(content, snapshot)
        except PenstockError as problem:
            yield MissingFile(key, reference, None, f"its log cannot be read: {problem.message}")
            return
        if gone:
            yield MissingFile(key, reference, snapshot.version, list_missing(gone))

    def find_gone(self, content: DeltaTable, snapshot: LogSnapshot) -> list[str]:
        """The files of one version of a table that are gone: data files, and those of deletion vectors."""
        place = open_table_place(self._parts.places, content.location, snapshot.metadata.configuration)
        names = {name for add in snapshot.read_files() for name in _list_file_names(add, place)}
        present_names = self._list_names(place)
        for source in place.sources if isinstance(place, LinkedPlace) else ():
            present_names = present_names | {f"{source.url}/{name}" for name in self._list_names(source)}
        return sorted(names - present_names)

    def _list_names(self, place: Place) -> frozenset[str]:
        if place.url not in self._listed:
            self._listed[place.url] = frozenset(entry.key for entry in place.entries())
        return self._listed[place.url]


def _list_file_names(add: Add, place: Place) -> Iterator[str]:
    yield name_inside(add.path, place)
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == "u":
        yield get_vector_file_name(vector)
    elif vector is not None and vector.storage_type == "p":
        yield name_inside(vector.path_or_inline_dv, place)
