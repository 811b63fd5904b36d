"""The files of a table that is about to be published: read from the lake's tree and pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from penstock.errors import FileNotFound
from penstock.formats.files import trees
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.paths import as_folder
from penstock.formats.files.lake.pool import pool_of
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.storage.places import Places


class ProposedFiles:
    """The files that a table would have."""

    def __init__(self, objects: Objects, places: Places, warehouse: str, key: Key, root: ObjectId) -> None:
        self._objects, self._places, self._warehouse = objects, places, warehouse
        self._key, self._root = key, root
        self._pool = pool_of(warehouse)

    def walk(self, folder: str = "") -> Iterator[FileEntry]:
        """Files in a folder and in those below it, or all, by path."""
        for path, file in trees.below(self._objects, self._root, as_folder(folder)):
            yield FileEntry.of(self._pool, path, file)

    def list(self, folder: str = "") -> list[FileEntry]:
        """All of them at once."""
        return [*self.walk(folder)]

    def stat(self, path: str) -> FileEntry:
        """``FileNotFound`` if there would be no file at a path."""
        found = trees.find(self._objects, self._root, [path]).get(path)
        if found is None:
            raise FileNotFound(f"'{self._key}' has no file at '{path}'", table=str(self._key), path=path)
        return FileEntry.of(self._pool, path, found)

    def open(self, path: str) -> BinaryIO:
        """A file as a file object, which reads what is asked for; ``FileNotFound`` as ``stat``."""
        from penstock.formats.files.lake.reader import TableBytes

        entry = self.stat(path)
        return TableBytes(self._places, self._warehouse, self._key).open(entry)
