"""Which versions of a Lance table hold rows or values that were deleted, and the version that begins anew.

A deleted row stays in its data file, and a file of deletions says that it is gone. A column that was dropped,
or written anew, stays in the data files that had it. An index has what it was made of.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.lance.columns import list_column_numbers
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.names import LINES
from penstock.formats.lance.protobuf import ProtobufMessage, unpack_numbers
from penstock.formats.lance.relocation import (
    DELETION_FILE,
    FILES,
    INDEX_NAME,
    INDEX_VERSION,
    move_to_folder,
    remove_idle_bases,
)

SYSTEM: Final = "__lance_"
"""How the names of indexes begin that are Lance's own."""
REUSED: Final = "__lance_frag_reuse"
"""The index that tells where compaction has put fragments. It has no values."""
_FIELDS_OF_FILE: Final = 2


def count_fragments_with_deletions(manifest: Manifest) -> int:
    """How many fragments hold rows that were deleted."""
    return sum(bool(fragment.get_values(DELETION_FILE)) for fragment in manifest.fragments)


def count_fragments_with_old_columns(manifest: Manifest) -> int:
    """How many fragments hold columns that the table does not have, or has elsewhere by now."""
    numbers = list_column_numbers(manifest)
    return sum(_has_other_columns(fragment, numbers) for fragment in manifest.fragments)


def has_old_columns(manifest: Manifest, fragment: ProtobufMessage) -> bool:
    """Whether a fragment of a version is one of these."""
    return _has_other_columns(fragment, list_column_numbers(manifest))


def _has_other_columns(fragment: ProtobufMessage, columns: frozenset[int]) -> bool:
    for file in map(ProtobufMessage.decode, fragment.get_values(FILES)):
        fields = {number for packed in file.get_values(_FIELDS_OF_FILE) for number in unpack_numbers(packed)}
        if fields - columns:
            return True
    return False


def list_index_names(manifest: Manifest) -> list[str]:
    """The names of its indexes but Lance's own."""
    names = {index.get_text(INDEX_NAME) or "" for index in manifest.indexes}
    return sorted(name for name in names if not name.startswith(SYSTEM))


def make_first_version(
    manifest: Manifest, folder: str, location: str, uuid: str, time_us: int, first: int | None = None
) -> Manifest:
    """The next version of a table, which changes nothing, and with which its history begins, unless that
    begins with an earlier one, ``first``.

    It says of all indexes that they are made of the first version: those that are renewed later still say so,
    and one that was made of an earlier version is told by that.
    """
    number = manifest.version + 1
    moved = remove_idle_bases(move_to_folder(manifest, folder, location), f"{location}/{LINES}")
    made_of = number if first is None else first
    indexes = [
        index.replace_field(INDEX_VERSION, max(made_of, index.get_number(INDEX_VERSION) or 0))
        for index in moved.indexes
    ]
    message = make_transaction(
        ManifestOperation.RESERVE, manifest.version, uuid, ProtobufMessage.from_fields(), {}
    )
    return moved.replace_parts(indexes=indexes).make_version(number, None, message, time_us)
