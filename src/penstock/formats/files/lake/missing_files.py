"""Files of tables of files that are gone from the pool."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.plugin import MissingFile, MissingFiles, list_missing
from penstock.lake.table import Table
from penstock.storage.places import Places


class MissingPoolFiles(MissingFiles):
    """Lists the folders of the pool in which a table has files."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def find_missing(self, table: Table, reference: str) -> Iterator[MissingFile]:
        entries = [entry for entry in table.files.walk() if not entry.is_folder]
        folders = {entry.address.rpartition("/")[0] for entry in entries}
        existing = {
            f"{folder}/{entry.key}"
            for folder in folders
            for entry in self._places.open_place(folder).entries()
        }
        gone = sorted(entry.path for entry in entries if entry.address not in existing)
        if gone:
            yield MissingFile(str(table.key), reference, None, list_missing(gone))
