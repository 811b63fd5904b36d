"""Files of Lance tables that are gone, as ``fsck`` finds them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.lance.lake.readability import LanceReadability
from penstock.formats.plugin import MissingFile, MissingFiles
from penstock.kernel.kernel import Kernel
from penstock.storage.places import Places


class MissingLanceFiles(MissingFiles):
    """Looks at all tables of all references at once: their versions share most files."""

    def __init__(self, kernel: Kernel, places: Places) -> None:
        self._kernel, self._places = kernel, places

    def find_rest(self) -> Iterator[MissingFile]:
        for unreadable in LanceReadability(
            self._kernel, self._places, with_files=True
        ).find_unreadable_tables():
            yield MissingFile(str(unreadable.key), unreadable.reference, None, unreadable.why)
