"""Removed rows: what a version of a Lance table still holds of rows that were removed before it.

An erase up to a moment lets history begin with the version that the table was at then. A data file of it may
have rows that a deletion file took, or a column that was dropped; an index may have values of rows that were
there when it was made; and a deletion says by which condition. Later versions may have the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from penstock.formats.lance.erasure import SYSTEM, has_old_columns
from penstock.formats.lance.lake.manifest_files import list_fragments_with_files
from penstock.formats.lance.manifests import Manifest, ManifestOperation
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import DELETION_FILE, INDEX_NAME, INDEX_VERSION, make_index_id
from penstock.formats.lance.state import LanceVersionReader

_REMOVES_NOTHING: Final = frozenset(
    (
        ManifestOperation.APPEND,
        ManifestOperation.CREATE_INDEX,
        ManifestOperation.REWRITE,
        ManifestOperation.RESERVE,
        ManifestOperation.CONFIG,
    )
)
"""What takes no row and no value from a table that it had."""


class RemovedRows(NamedTuple):
    """What a version holds of rows that were removed before it."""

    version: Manifest
    files: frozenset[str]
    """Data files with such rows, or with columns that it does not have any more."""
    made_of: int
    """What an index was made of that may have values of such rows: any version before this one."""
    restated: frozenset[UUID] = frozenset()
    """Indexes of which a later version says that nothing was removed since they were made."""

    def __bool__(self) -> bool:
        return bool(self.files or self.index_count or self.is_deletion)

    @property
    def version_number(self) -> int:
        """The number of the version."""
        return self.version.version

    @property
    def index_count(self) -> int:
        """How many indexes may have values of such rows."""
        return sum(1 for _ in list_early_indexes(self.version, self.made_of))

    @property
    def is_deletion(self) -> bool:
        """Whether the version itself is a deletion, whose transaction says by which condition."""
        return self.version.operation is ManifestOperation.DELETE

    @staticmethod
    def from_manifest(manifest: Manifest, folder: str) -> RemovedRows:
        """What a version holds that lies at the folder of a chain."""
        indexes = set[str]()
        for fragment, files in list_fragments_with_files(manifest, folder):
            if fragment.get_values(DELETION_FILE) or has_old_columns(manifest, fragment):
                indexes |= files
        return RemovedRows(manifest, frozenset(indexes), manifest.version)

    def is_in(self, manifest: Manifest, folder: str) -> bool:
        """Whether another version needs one of these files, or such an index."""
        if any(list_early_indexes(manifest, self.made_of)):
            return True
        return any(files & self.files for _, files in list_fragments_with_files(manifest, folder))

    def count_fragments_to_rewrite(self, manifest: Manifest, folder: str) -> tuple[int, int]:
        """How many fragments of another version have these files, and hold there what is not in the table: a
        column, or only rows."""
        columns = deletions = 0
        for fragment, files in list_fragments_with_files(manifest, folder):
            if files & self.files:
                is_old = has_old_columns(manifest, fragment)
                columns += is_old
                deletions += not is_old and bool(fragment.get_values(DELETION_FILE))
        return columns, deletions

    def add_indexes_of(self, manifest: Manifest) -> RemovedRows:
        """The same, with what another version says of its indexes. Versions are to come newest first.

        The version by which an erase begins says of an index from before that it is made of the first one, if
        no row was removed in between (``formats.lance.erasure``).
        """
        early = [
            early_index
            for early_index in list_early_indexes(manifest, self.version_number)
            if make_index_id(early_index) in self.restated
        ]
        made_of = min((self.made_of, *(message.get_number(INDEX_VERSION) or 0 for message in early)))
        late = {
            make_index_id(index)
            for index in manifest.indexes
            if (index.get_number(INDEX_VERSION) or 0) >= self.version_number
        }
        return self._replace(made_of=made_of, restated=self.restated | late)


def list_early_indexes(manifest: Manifest, first_version: int) -> Iterator[ProtobufMessage]:
    """The indexes of a version, but Lance's own, that were made of versions before the first, or renewed from
    such: Lance lets them say of what the first of them was made."""
    for index in manifest.indexes:
        is_own = (index.get_text(INDEX_NAME) or "").startswith(SYSTEM)
        if not is_own and (index.get_number(INDEX_VERSION) or 0) < first_version:
            yield index


def list_stale_indexes(manifest: Manifest, first_version: int, versions: LanceVersionReader) -> list[str]:
    """The names of the indexes of a version that may have values of rows which were removed up to the first
    version; ``versions`` are those of the table."""
    names = {
        early_index.get_text(INDEX_NAME) or ""
        for early_index in list_early_indexes(manifest, first_version)
        if not _is_nothing_removed(versions, early_index.get_number(INDEX_VERSION) or 0, first_version)
    }
    return sorted(names)


def _is_nothing_removed(versions: LanceVersionReader, made_of: int, first_version: int) -> bool:
    """Whether no row was removed from one version to another, as far as is known."""
    expected = first_version
    for number, version in versions.list_versions(MAIN, first_version + 1):
        if number <= made_of:
            break
        is_merge = version.arrived is not None or version.copied != b""
        if number != expected or is_merge or version.operation not in _REMOVES_NOTHING:
            return False
        expected -= 1
    return expected == made_of
