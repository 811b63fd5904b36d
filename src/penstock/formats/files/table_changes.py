"""Carries out a write on a table of files, as the table is at the request's turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.formats.files import trees
from penstock.formats.files.files import MARKER, File, FilesLayout, FilesState
from penstock.formats.files.intents import WriteCondition, WriteIntent
from penstock.formats.files.layouts import find_difference, unite_layouts, with_partition_columns
from penstock.kernel.format import FormatRefused, PathClash
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.objects import EMPTY_ROOT

Blobs = dict[ObjectId, bytes]
NO_FILE: Final = "no file"
THERE_ALREADY: Final = "already has a file of that name"


def apply_write(objects: Objects, state: FilesState, write: WriteIntent) -> tuple[FilesState, Blobs] | None:
    """The table after a write, and the new nodes of its tree; ``None`` if nothing is to happen.

    Raises ``FormatRefused`` if the table is not as the write wants it.
    """
    if write.when is not WriteCondition.ALWAYS and state.files:
        if write.when is WriteCondition.IGNORE:
            return None
        raise FormatRefused(f"already has files: {state.files}; nothing was written")
    _check_expected(objects, state, write)
    whole = "" in write.replaced
    if whole:
        state = msgspec.structs.replace(state, root=EMPTY_ROOT, files=0, size=0)
    gone = {} if whole else _list_files_below(objects, state, write.replaced)
    changes: dict[str, File | None] = dict.fromkeys(gone)
    coming = dict(write.added) | dict(write.put)
    files = trees.find_files(objects, state.root, [*coming, *write.removed])
    _check_removed(write.removed, files, gone)
    _check_added(write.added, files, gone)
    changes |= dict.fromkeys(write.removed)
    changes |= coming
    known_files = {**gone, **files}
    remaining_files = (
        0
        if write.layout is None
        else count_remaining_files(objects, state, [path for path in known_files if path in changes])
    )
    return apply_changes(
        objects, state, changes, known_files, _choose_next_layout(state.layout, write, remaining_files)
    )


def count_remaining_files(objects: Objects, state: FilesState, touched: Collection[str]) -> int:
    """How many files a table has beside some: of those that are read, which the marker is not."""
    remaining_files = state.files - len(touched)
    has_marker = (
        remaining_files > 0
        and MARKER not in touched
        and MARKER in trees.find_files(objects, state.root, [MARKER])
    )
    return remaining_files - has_marker


def apply_changes(
    objects: Objects,
    state: FilesState,
    changes: dict[str, File | None],
    files: dict[str, File],
    layout: FilesLayout,
) -> tuple[FilesState, Blobs]:
    """The table with some paths set or removed; ``files`` are what it has at these paths now."""
    root, blobs = trees.apply_changes(objects, state.root, changes)
    touched = [file for path, file in files.items() if path in changes]
    coming = [file for file in changes.values() if file is not None]
    return (
        FilesState(
            root=root,
            files=state.files - len(touched) + len(coming),
            size=state.size - _sum_sizes(touched) + _sum_sizes(coming),
            layout=layout,
            mark=state.mark,
        ),
        blobs,
    )


def _sum_sizes(files: Iterable[File]) -> int:
    return sum(file.size for file in files)


def _list_files_below(objects: Objects, state: FilesState, prefixes: Iterable[str]) -> dict[str, File]:
    """The files below some folders."""
    files: dict[str, File] = {}
    for prefix in prefixes:
        files.update(trees.list_below(objects, state.root, prefix))
    return files


def _check_expected(objects: Objects, state: FilesState, write: WriteIntent) -> None:
    files = trees.find_files(objects, state.root, [path for path, _ in write.expected])
    clashes = [
        PathClash(path, expected_address or NO_FILE, file.address_at(path) if file is not None else NO_FILE)
        for path, expected_address in write.expected
        if (None if (file := files.get(path)) is None else file.address_at(path)) != expected_address
    ]
    if clashes:
        is_there = all(clash.expected == NO_FILE for clash in clashes)
        raise FormatRefused(
            THERE_ALREADY if is_there else "was changed by another writer since", clashes=clashes
        )


def _check_removed(removed: Iterable[str], files: dict[str, File], gone: dict[str, File]) -> None:
    missing = [path for path in removed if path not in files or path in gone]
    if missing:
        clashes = [PathClash(path, "a file", NO_FILE) for path in missing]
        raise FormatRefused("has no such file to remove", clashes=clashes)


def _check_added(added: Iterable[tuple[str, File]], files: dict[str, File], gone: dict[str, File]) -> None:
    clashes = [
        PathClash(path, NO_FILE, files[path].address_at(path))
        for path, _ in added
        if path in files and path not in gone
    ]
    if clashes:
        raise FormatRefused(THERE_ALREADY, clashes=clashes)


def _choose_next_layout(layout: FilesLayout, write: WriteIntent, remaining_files: int) -> FilesLayout:
    """How the files are to be read afterwards, beside those that are left.

    Files of two layouts under one table could not be read as one, so a job that would mix them is refused.
    """
    new_layout = write.layout
    if new_layout is None:
        return layout
    if remaining_files and (mixed := find_difference(layout, new_layout)) is not None:
        raise FormatRefused(
            f"has files {mixed.one}, but the job writes {mixed.other}; write to another table, or replace "
            "all files of this one"
        )
    if remaining_files:
        return unite_layouts(layout, new_layout)
    return new_layout if "" in write.replaced else with_partition_columns(new_layout, layout)
