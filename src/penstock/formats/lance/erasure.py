"""Which versions of a Lance table hold rows or values that were deleted, and the version that begins anew.

A deleted row stays in its data file, and a file of deletions says that it is gone. A column that was dropped,
or written anew, stays in the data files that had it. An index has what it was made of.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.lance.columns import numbers_of
from penstock.formats.lance.manifests import Manifest, ManifestOperation, transaction
from penstock.formats.lance.names import LINES
from penstock.formats.lance.protobuf import ProtobufMessage, unpacked_numbers
from penstock.formats.lance.relocation import (
    DELETION_FILE,
    FILES,
    INDEX_NAME,
    INDEX_VERSION,
    move_to_folder,
    without_idle,
)

SYSTEM: Final = "__lance_"
"""How the names of indexes begin that are Lance's own."""
REUSED: Final = "__lance_frag_reuse"
"""The index that tells where compaction has put fragments. It has no values."""
_FIELDS_OF_FILE: Final = 2


def fragments_with_deletions(manifest: Manifest) -> int:
    """How many fragments hold rows that were deleted."""
    return sum(bool(fragment.all(DELETION_FILE)) for fragment in manifest.fragments)


def fragments_with_old_columns(manifest: Manifest) -> int:
    """How many fragments hold columns that the table does not have, or has elsewhere by now."""
    numbers = numbers_of(manifest)
    return sum(_has_others(fragment, numbers) for fragment in manifest.fragments)


def has_old_columns(manifest: Manifest, fragment: ProtobufMessage) -> bool:
    """Whether a fragment of a version is one of these."""
    return _has_others(fragment, numbers_of(manifest))


def _has_others(fragment: ProtobufMessage, columns: frozenset[int]) -> bool:
    for file in map(ProtobufMessage.read, fragment.all(FILES)):
        fields = {number for packed in file.all(_FIELDS_OF_FILE) for number in unpacked_numbers(packed)}
        if fields - columns:
            return True
    return False


def index_names(manifest: Manifest) -> list[str]:
    """The names of its indexes but Lance's own."""
    names = {index.text(INDEX_NAME) or "" for index in manifest.indexes}
    return sorted(name for name in names if not name.startswith(SYSTEM))


def first_version(
    manifest: Manifest, folder: str, location: str, uuid: str, time_us: int, first: int | None = None
) -> Manifest:
    """The next version of a table, which changes nothing, and with which its history begins, unless that
    begins with an earlier one, ``first``.

    It says of all indexes that they are made of the first version: those that are renewed later still say so,
    and one that was made of an earlier version is told by that.
    """
    number = manifest.version + 1
    moved = without_idle(move_to_folder(manifest, folder, location), f"{location}/{LINES}")
    made_of = number if first is None else first
    indexes = [
        index.with_field(INDEX_VERSION, max(made_of, index.number(INDEX_VERSION) or 0))
        for index in moved.indexes
    ]
    message = transaction(ManifestOperation.RESERVE, manifest.version, uuid, ProtobufMessage.of(), {})
    return moved.with_parts(indexes=indexes).as_version(number, None, message, time_us)
