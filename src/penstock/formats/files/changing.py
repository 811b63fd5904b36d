"""Changing a table of files: what a write makes of the table as it is when its turn comes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.formats.files import trees
from penstock.formats.files.files import MARKER, File, FilesState, Layout
from penstock.formats.files.intents import When, WriteIntent
from penstock.formats.files.layouts import mixes, united, with_partition_columns
from penstock.kernel.format import PathClash, Refused
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.objects import EMPTY_ROOT

Blobs = dict[ObjectId, bytes]
NO_FILE: Final = "no file"
THERE_ALREADY: Final = "has a file of that name already"


def carry_out(objects: Objects, state: FilesState, write: WriteIntent) -> tuple[FilesState, Blobs] | None:
    """The table after a write, and the new nodes of its tree; ``None`` if nothing is to happen.

    Raises ``Refused`` if the table is not as the write wants it.
    """
    if write.when is not When.ALWAYS and state.files:
        if write.when is When.IGNORE:
            return None
        raise Refused(f"has files already: {state.files}; nothing was written")
    _check_expected(objects, state, write)
    whole = "" in write.replaced
    if whole:
        state = msgspec.structs.replace(state, root=EMPTY_ROOT, files=0, size=0)
    gone = {} if whole else _replaced(objects, state, write.replaced)
    changes: dict[str, File | None] = dict.fromkeys(gone)
    coming = dict(write.added) | dict(write.put)
    there = trees.find(objects, state.root, [*coming, *write.removed])
    _check_removed(write.removed, there, gone)
    _check_added(write.added, there, gone)
    changes |= dict.fromkeys(write.removed)
    changes |= coming
    known = {**gone, **there}
    left = 0 if write.layout is None else files_left(objects, state, [one for one in known if one in changes])
    return after(objects, state, changes, known, _layout(state.layout, write, left))


def files_left(objects: Objects, state: FilesState, touched: Collection[str]) -> int:
    """How many files a table has beside some: of those that are read, which the marker is not."""
    left = state.files - len(touched)
    has_marker = left > 0 and MARKER not in touched and MARKER in trees.find(objects, state.root, [MARKER])
    return left - has_marker


def after(
    objects: Objects,
    state: FilesState,
    changes: dict[str, File | None],
    there: dict[str, File],
    layout: Layout,
) -> tuple[FilesState, Blobs]:
    """The table with some paths set or removed; ``there`` is what it has at these paths now."""
    root, blobs = trees.changed(objects, state.root, changes)
    touched = [file for path, file in there.items() if path in changes]
    coming = [file for file in changes.values() if file is not None]
    return (
        FilesState(
            root=root,
            files=state.files - len(touched) + len(coming),
            size=state.size - _size(touched) + _size(coming),
            layout=layout,
            mark=state.mark,
        ),
        blobs,
    )


def _size(files: Iterable[File]) -> int:
    return sum(file.size for file in files)


def _replaced(objects: Objects, state: FilesState, prefixes: Iterable[str]) -> dict[str, File]:
    """The files below some folders."""
    found: dict[str, File] = {}
    for prefix in prefixes:
        found.update(trees.below(objects, state.root, prefix))
    return found


def _check_expected(objects: Objects, state: FilesState, write: WriteIntent) -> None:
    found = trees.find(objects, state.root, [path for path, _ in write.expected])
    clashes = [
        PathClash(path, wanted or NO_FILE, there.at(path) if there is not None else NO_FILE)
        for path, wanted in write.expected
        if (None if (there := found.get(path)) is None else there.at(path)) != wanted
    ]
    if clashes:
        is_there = all(one.expected == NO_FILE for one in clashes)
        raise Refused(THERE_ALREADY if is_there else "has changed meanwhile", clashes=clashes)


def _check_removed(removed: Iterable[str], there: dict[str, File], gone: dict[str, File]) -> None:
    missing = [path for path in removed if path not in there or path in gone]
    if missing:
        clashes = [PathClash(path, "a file", NO_FILE) for path in missing]
        raise Refused("has nothing to remove", clashes=clashes)


def _check_added(added: Iterable[tuple[str, File]], there: dict[str, File], gone: dict[str, File]) -> None:
    clashes = [
        PathClash(path, NO_FILE, there[path].at(path))
        for path, _ in added
        if path in there and path not in gone
    ]
    if clashes:
        raise Refused(THERE_ALREADY, clashes=clashes)


def _layout(known: Layout, write: WriteIntent, left: int) -> Layout:
    """How the files are to be read afterwards, beside those that are left.

    Files of two layouts under one table could not be read as one, so a job that would mix them is refused.
    """
    wanted = write.layout
    if wanted is None:
        return known
    if left and (mixed := mixes(known, wanted)) is not None:
        raise Refused(
            f"holds files {mixed.one}, and the job writes {mixed.other}; write to another table, or replace"
            " all files of this one"
        )
    if left:
        return united(known, wanted)
    return wanted if "" in write.replaced else with_partition_columns(wanted, known)
