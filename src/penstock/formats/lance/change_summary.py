"""What lies between two states of a Lance table: which data files come and go, and what that is in rows.

Fragments tell it, as the manifests of both newest versions have them. A fragment is known by its data files:
one with the same files and other deleted rows has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.fragments import FolderVersion, Fragment, list_fragments
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.merge_sides import NumberedVersion, TableSide
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.formats.lance.relocation import FILES, UnknownPlacement
from penstock.formats.lance.state import make_folder_url
from penstock.kernel.objects import Objects
from penstock.model.merges import ChangeSummary
from penstock.storage.places import Places

_FILE_BYTES: Final = 6
"""The field of a data file that says how large it is; older versions of Lance do not write it."""

_ByFiles: TypeAlias = dict[tuple[str, ...], Fragment]


class FragmentChanges(NamedTuple):
    """The fragments that only one of two states has, by their data files, and those with other rows."""

    added: _ByFiles
    removed: _ByFiles
    changed: tuple[tuple[Fragment, Fragment], ...]
    """Before and after."""


def compare_fragments(
    objects: Objects, manifests: ManifestReader, before: LanceTable | None, after: LanceTable | None
) -> FragmentChanges:
    """What leads from one state to another. ``UnknownPlacement`` or ``Damaged`` if that cannot be read."""
    old_fragments, becomes = (_fragments_by_files(objects, manifests, content) for content in (before, after))
    changed = [
        (old_fragments[files], fragment)
        for files, fragment in becomes.items()
        if files in old_fragments and old_fragments[files].deletions != fragment.deletions
    ]
    return FragmentChanges(
        {files: fragment for files, fragment in becomes.items() if files not in old_fragments},
        {files: fragment for files, fragment in old_fragments.items() if files not in becomes},
        tuple(changed),
    )


def _find_newest_version(objects: Objects, content: LanceTable | None) -> NumberedVersion | None:
    return None if content is None else TableSide.from_table(content, objects).find_newest()


def _fragments_by_files(objects: Objects, manifests: ManifestReader, content: LanceTable | None) -> _ByFiles:
    newest = _find_newest_version(objects, content)
    if content is None or newest is None:
        return {}
    manifest = manifests.read_manifest(content.location, MAIN, newest.number, newest.version)
    side = FolderVersion(manifest, make_folder_url(content.location, newest.version.chain, MAIN))
    try:
        return {fragment.files: fragment for fragment in list_fragments(side)}
    except MalformedMessage as problem:
        raise UnknownPlacement(str(problem)) from None


def summarize_change(
    objects: Objects, manifests: ManifestReader, before: LanceTable | None, after: LanceTable | None
) -> ChangeSummary:
    """What a change does to a table. What cannot be read is not known."""
    numbers = [
        None if (newest := _find_newest_version(objects, side)) is None else newest.number
        for side in (before, after)
    ]
    versions = ChangeSummary(version_before=numbers[0], version_after=numbers[1])
    try:
        changes = compare_fragments(objects, manifests, before, after)
    except (Damaged, UnknownPlacement):
        return versions
    come, gone = changes.added.values(), changes.removed.values()
    rows_added, rows_removed = _count_rows(come), _count_rows(gone)
    for old_fragment, becomes in changes.changed:
        more = _count_deleted(old_fragment) - _count_deleted(becomes)
        rows_added = None if rows_added is None else rows_added + max(0, more)
        rows_removed = None if rows_removed is None else rows_removed + max(0, -more)
    return msgspec.structs.replace(
        versions,
        files_added=sum(len(fragment.files) for fragment in come),
        files_removed=sum(len(fragment.files) for fragment in gone),
        files_changed=sum(len(fragment.files) for fragment, _ in changes.changed),
        rows_added=rows_added,
        rows_removed=rows_removed,
        bytes_added=_count_bytes(come),
        bytes_removed=_count_bytes(gone),
    )


def _count_deleted(fragment: Fragment) -> int:
    return 0 if fragment.deletions is None else fragment.deletions.rows


def _count_rows(fragments: Iterable[Fragment]) -> int | None:
    try:
        return sum(fragment.live_rows for fragment in fragments)
    except UnknownPlacement:
        return None


def _count_bytes(fragments: Iterable[Fragment]) -> int | None:
    sizes = [
        ProtobufMessage.decode(file).get_number(_FILE_BYTES)
        for fragment in fragments
        for file in fragment.message.get_values(FILES)
    ]
    return None if any(not size for size in sizes) else sum(size or 0 for size in sizes)


def find_missing_files(
    objects: Objects, manifests: ManifestReader, places: Places, before: LanceTable | None, after: LanceTable
) -> Sequence[str]:
    """Of the files that one state has and another has not, those that are not in the table's folder."""
    try:
        changes = compare_fragments(objects, manifests, before, after)
    except (Damaged, UnknownPlacement):
        return ()  # what it names is not known, and whoever makes a version of it says so
    root = f"{after.location.rstrip('/')}/"
    fragments = [*changes.added.values(), *(fragment for _, fragment in changes.changed)]
    named = dict.fromkeys(
        file for fragment in fragments for file in (*fragment.files, fragment.deletion_file) if file
    )
    inside = [file.removeprefix(root) for file in named if file.startswith(root)]
    return places.open_place(after.location).missing(inside)
