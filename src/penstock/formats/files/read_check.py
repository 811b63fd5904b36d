"""Checks whether files that a transaction has read are unchanged in the table.

Trees of files are kernel objects, so that this needs no storage and costs what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from penstock.formats.files import trees
from penstock.formats.files.files import MARKER, File, FilesState
from penstock.kernel.format import READ_AND_CHANGED, FormatRefused, PathClash
from penstock.kernel.objects import Objects

TOLD_MAX: Final = 10
"""So many paths are named that became different."""
LAYOUT: Final = "the layout of its files was changed since"


def check_seen(objects: Objects, old_state: FilesState, now: FilesState, parts: Sequence[str] | None) -> None:
    """``FormatRefused`` if files that were seen in an older state of a table are others now.

    A part is the path of a file or folder. How files are to be read counts for all that is more than a
    single file. What jobs leave to tell that they are done does not count, unless it was looked for by name.
    """
    clashes: dict[str, PathClash] = {}
    for part in ("",) if parts is None else parts:
        for path, before, after in islice(_find_differences(objects, old_state, now, part), TOLD_MAX):
            clashes[path] = PathClash(path, _describe_file(path, before), _describe_file(path, after))
    if clashes:
        raise FormatRefused(READ_AND_CHANGED, clashes=[clashes[path] for path in sorted(clashes)][:TOLD_MAX])
    if old_state.layout != now.layout and (
        parts is None or any(_is_folder(objects, old_state, part) for part in parts)
    ):
        raise FormatRefused(f"{READ_AND_CHANGED}: {LAYOUT}")


def _is_folder(objects: Objects, state: FilesState, path: str) -> bool:
    return path.endswith("/") or any(True for _ in trees.list_below(objects, state.root, f"{path}/"))


def _find_differences(
    objects: Objects, old_state: FilesState, now: FilesState, path: str
) -> Iterator[trees.FileDifference]:
    """Where two states of a table differ at a path or below it; everywhere, for none."""
    folder = path if not path or path.endswith("/") else f"{path}/"
    for difference in trees.find_differences(objects, old_state.root, now.root, path):
        is_marker = difference.path != path and difference.path.rpartition("/")[2] == MARKER
        if (
            (difference.path == path or difference.path.startswith(folder))
            and not is_marker
            and not _is_same(difference)
        ):
            yield difference


def _is_same(file_difference: trees.FileDifference) -> bool:
    return (
        file_difference.before is not None
        and file_difference.after is not None
        and file_difference.before.is_same_as(file_difference.after)
    )


def _describe_file(path: str, file: File | None) -> str:
    return "no file" if file is None else f"{file.address_at(path)}, {file.size} bytes"
