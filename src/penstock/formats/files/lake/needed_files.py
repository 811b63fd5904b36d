"""The files of tables of files that a lake needs: those in the pool that kept commits name."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.formats.files.lake.referenced_files import FOLDER_CHARS, ReferencedFiles
from penstock.formats.plugin import NeededFolder
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import normalise_location
from penstock.storage.name_hashes import hash_name
from penstock.storage.places import Place


def make_needed_folder(kernel: Kernel, pool: Place, problems: list[str], progress: Progress) -> NeededFolder:
    """The pool. Files that are gone are added to ``problems`` while it is listed."""

    def list_files() -> Iterator[BucketEntry]:
        return _find_needed(kernel, pool, problems, progress)

    return NeededFolder(normalise_location(pool.location), list_files, lambda _: True, lambda _: True)


def _find_needed(
    kernel: Kernel, pool: Place, problems: list[str], progress: Progress
) -> Iterator[BucketEntry]:
    """The referenced files of the pool, for as many folders at a time as fit into memory."""
    after: str | None = ""
    while after is not None:
        named = ReferencedFiles(kernel, lambda _: True, after, progress)
        named.read_new_commits()
        for folder in named.folders:
            remaining_name_hashes = set(named.name_hashes_in(folder))
            for entry in pool.entries(folder):
                data = hash_name(entry.key[FOLDER_CHARS + 1 :])
                if data in remaining_name_hashes:
                    remaining_name_hashes.discard(data)
                    yield entry
            if remaining_name_hashes:
                problems.append(
                    f"{len(remaining_name_hashes)} files of tables are missing in {pool.url}/{folder}"
                )
        after = named.before
