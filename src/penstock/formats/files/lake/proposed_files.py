"""The files of a table that is about to be published: read from the lake's tree and pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from penstock.errors import FileNotFound, NotManaged
from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import decode_state, is_managed
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.file_bytes import TableBytes
from penstock.formats.files.lake.paths import normalise_folder
from penstock.formats.files.lake.pool import find_pool
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.storage.places import Places

if TYPE_CHECKING:
    from penstock.kernel.checks import BranchProposal
    from penstock.lake.embedded import Embedded


class ProposedFiles:
    """The files that a table would have."""

    def __init__(self, objects: Objects, places: Places, warehouse: str, key: Key, root: ObjectId) -> None:
        self._objects, self._places, self._warehouse = objects, places, warehouse
        self._key, self._root = key, root
        self._pool = find_pool(warehouse)

    def walk(self, folder: str = "") -> Iterator[FileEntry]:
        """Files in a folder and in those below it, or all, by path."""
        for path, file in trees.list_below(self._objects, self._root, normalise_folder(folder)):
            yield FileEntry.from_file(self._pool, path, file)

    def list(self, folder: str = "") -> list[FileEntry]:
        """All of them at once."""
        return [*self.walk(folder)]

    def stat(self, path: str) -> FileEntry:
        """``FileNotFound`` if there would be no file at a path."""
        file = trees.find_files(self._objects, self._root, [path]).get(path)
        if file is None:
            raise FileNotFound(f"'{self._key}' has no file at '{path}'", table=str(self._key), path=path)
        return FileEntry.from_file(self._pool, path, file)

    def open(self, path: str) -> BinaryIO:
        """A file as a file object, which reads what is asked for; ``FileNotFound`` as ``stat``."""
        entry = self.stat(path)
        return TableBytes(self._places, self._warehouse, self._key).open_file(entry)


def find_proposed_files(
    lake: Embedded, proposal: BranchProposal, key: Key, content: AnyContent
) -> ProposedFiles:
    """The files that a table would have; ``NotManaged`` if it is not a table of files."""
    if not isinstance(content, FilesTable) or not is_managed(content):
        raise NotManaged(f"'{key}' is {content.type_in_words}, not a table of files", table=str(key))
    warehouse = lake.moved.map_to_storage(lake.warehouse)
    return ProposedFiles(proposal.objects, lake.places, warehouse, key, decode_state(content).root)
