"""The files of the pool that any table of files references, at any retained commit.

Every node of a table's tree is read once, however many commits and tables share it. Of a name only a short
hash is in memory, and of all names only those of some folders at a time: of as many as have a million names
together, unless one attempt alone has written more. The ids of nodes that were read are in memory as well, as
in a sweep of the lake's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.errors import Damaged
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import decode_file, decode_state, is_managed
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.retained_history import RetainedHistory
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED
from penstock.model.objects import EMPTY_ROOT, CommitObject, Leaf, Node, Value
from penstock.storage.name_hashes import hash_name

NAMES_MAX: Final = 1_000_000
"""How many names are in memory at once, about."""
FOLDER_CHARS: Final = len("20261115-0123456789ab/") + 32
"""An attempt's folder below the pool, without a slash at its end."""
BLOCK: Final = 500
NONE: Final[frozenset[bytes]] = frozenset()


class ReferencedFiles:
    """The names in some folders of the pool: in those that matter, from one on as far as memory allows.

    ``before`` is the first folder that had no room, nothing if all had. Names come only from ``look``; each
    further one costs what was committed in between.
    """

    def __init__(
        self,
        kernel: Kernel,
        matters: Callable[[str], bool],
        after: str = "",
        progress: Progress = show_no_progress,
    ) -> None:
        """``matters`` tells of a folder whether its names are wanted; those before ``after`` are not."""
        self._kernel, self._matters, self._after, self._progress = kernel, matters, after, progress
        self._history = RetainedHistory(kernel, self._list_addresses_in, progress)
        self._read: set[ObjectId] = {EMPTY_ROOT}
        self._names: dict[str, set[bytes]] = {}
        self._count = 0
        self._is_bounded = False
        self.before: str | None = None

    def read_new_commits(self) -> None:
        """Take in what kept commits name. ``Damaged`` if some of it cannot be read."""
        for address in self._history.list_unseen():
            folder = address[:FOLDER_CHARS]
            if self._has_room_for(folder):
                names = self._names.setdefault(folder, set())
                size = len(names)
                names.add(hash_name(address[FOLDER_CHARS + 1 :]))
                self._count += len(names) - size
                if self._count > NAMES_MAX and not self._is_bounded:
                    self._make_room()
        self._is_bounded = True  # whoever looks again has begun with these folders

    def covers_folder(self, folder: str) -> bool:
        """Whether the names in a folder are among those that were taken in."""
        return folder >= self._after and (self.before is None or folder < self.before)

    def name_hashes_in(self, folder: str) -> set[bytes] | frozenset[bytes]:
        """The hashes of names in a folder."""
        return self._names.get(folder, NONE)

    @property
    def folders(self) -> list[str]:
        """All in which something is named."""
        return sorted(self._names)

    def _has_room_for(self, folder: str) -> bool:
        return self.covers_folder(folder) and self._matters(folder)

    def _make_room(self) -> None:
        """Leave the last folders to another round; the first one stays in any case."""
        first, *others = sorted(self._names)
        count = len(self._names[first])
        for folder in others:
            count += len(self._names[folder])
            if count > NAMES_MAX // 2:
                self.before = folder if self.before is None else min(folder, self.before)
                break
        self._names = {folder: names for folder, names in self._names.items() if self.covers_folder(folder)}
        self._count = sum(map(len, self._names.values()))

    # -- what commits tell ---------------------------------------------------------------------------------

    def _list_addresses_in(self, data: ObjectId, commit: CommitObject, is_first: bool) -> Iterator[str]:
        """The addresses of files in trees that a commit has changed, or in all of them, as far as they are
        new."""
        if is_first:
            values: Iterator[tuple[bytes, Value | None]] = self._kernel.read_state(data).scan_entries()
        else:
            values = (
                (stored, now) for stored, _, now in self._kernel.iterate_differences(commit.parent, data)
            )
        for stored, value in values:
            if not stored.startswith(RESERVED):
                content = read_content(self._kernel.objects, value)
                is_kept = self._history.is_retained(content)
                if isinstance(content, FilesTable) and is_managed(content) and is_kept:
                    yield from self._addresses_in_new_nodes(decode_state(content).root)

    def _addresses_in_new_nodes(self, root: ObjectId) -> Iterator[str]:
        """The addresses in those nodes of a tree that no other tree had.

        They count as read when all of them are: who is interrupted reads them again.
        """
        nodes: set[ObjectId] = set()
        waiting = [root]
        while waiting:
            block = {data for data in waiting[-BLOCK:] if data not in self._read and data not in nodes}
            del waiting[-BLOCK:]
            for data, node in self._kernel.objects.get_many(block).items():
                if isinstance(node, Leaf):
                    for path, value in zip(node.keys, node.values, strict=True):
                        yield decode_file(value).address_at(path.decode())
                elif isinstance(node, Node):
                    waiting += node.children
                else:
                    raise Damaged(f"object {data.hex()} is not a node of a tree", objects=[data.hex()])
            nodes |= block
        self._read |= nodes
        self._progress("trees", len(self._read))
