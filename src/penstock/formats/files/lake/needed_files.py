"""The files of tables of files that a lake needs: those in the pool that kept commits name."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.files.lake.named import FOLDER_CHARS, NamedFiles
from penstock.formats.plugin import NeededFolder
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import normalise
from penstock.storage.name_hashes import name_hash
from penstock.storage.places import Place


def needed_folder(kernel: Kernel, pool: Place, problems: list[str], progress: Progress) -> NeededFolder:
    """The pool. Files that are gone are added to ``problems`` while it is listed."""

    def files() -> Iterator[BucketEntry]:
        return _needed(kernel, pool, problems, progress)

    return NeededFolder(normalise(pool.location), files, lambda _: True, lambda _: True)


def _needed(kernel: Kernel, pool: Place, problems: list[str], progress: Progress) -> Iterator[BucketEntry]:
    """The files that are named, of as many folders at a time as can be in memory."""
    after: str | None = ""
    while after is not None:
        named = NamedFiles(kernel, lambda _: True, after, progress)
        named.look()
        for folder in named.folders:
            left = set(named.inside(folder))
            for entry in pool.entries(folder):
                one = name_hash(entry.key[FOLDER_CHARS + 1 :])
                if one in left:
                    left.discard(one)
                    yield entry
            if left:
                problems.append(f"{len(left)} files of tables are gone in {pool.url}/{folder}")
        after = named.before
