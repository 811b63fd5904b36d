"""What lies between two states of a table of files: which paths come, go or get other files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import decode_state
from penstock.formats.files.trees import find_differences
from penstock.kernel.objects import Objects
from penstock.model.merges import ChangeSummary
from penstock.model.objects import EMPTY_ROOT

if TYPE_CHECKING:
    from penstock.storage.places import Place


def summarize_change(objects: Objects, before: FilesTable | None, after: FilesTable | None) -> ChangeSummary:
    """What a change does to a table. How many rows its files have is not known."""
    added = removed = changed = bytes_added = bytes_removed = 0
    for _, old_file, becomes in find_differences(objects, _get_tree_root(before), _get_tree_root(after)):
        added += old_file is None
        removed += becomes is None
        changed += old_file is not None and becomes is not None
        bytes_added += 0 if becomes is None else becomes.size
        bytes_removed += 0 if old_file is None else old_file.size
    return ChangeSummary(
        files_added=added,
        files_removed=removed,
        files_changed=changed,
        bytes_added=bytes_added,
        bytes_removed=bytes_removed,
    )


def missing_files(
    objects: Objects, pool: Place, before: FilesTable | None, after: FilesTable
) -> Sequence[str]:
    """Of the files that one state has and another has not, the paths of those that the pool has no more."""
    addresses: dict[str, str] = {}
    for path, _, becomes in find_differences(objects, _get_tree_root(before), _get_tree_root(after)):
        if becomes is not None:
            addresses[becomes.address_at(path)] = path
    return [addresses[address] for address in pool.missing(list(addresses))]


def _get_tree_root(content: FilesTable | None) -> bytes:
    return EMPTY_ROOT if content is None else decode_state(content).root
