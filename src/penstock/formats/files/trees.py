"""Trees of files: reading them, and making the next one from what is to come and to go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from penstock.formats.files.files import File, decode_file, encode_file
from penstock.kernel import tree
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId


def find_files(objects: Objects, root: ObjectId, paths: Collection[str]) -> dict[str, File]:
    """The files at those paths that have one."""
    values = tree.find_values(objects, root, [path.encode() for path in paths])
    return {path.decode(): decode_file(value) for path, value in values.items()}


def list_below(
    objects: Objects, root: ObjectId, prefix: str = "", after: str = ""
) -> Iterator[tuple[str, File]]:
    """The files below a folder in the order of their paths, after a path or from the first on."""
    start, stop = prefix.encode(), find_prefix_end(prefix.encode())
    if after:
        start = max(start, after.encode() + b"\0")
    if stop is not None and start >= stop:
        return
    for path, value in tree.scan_entries(objects, root, start, stop):
        yield path.decode(), decode_file(value)


class FileDifference(NamedTuple):
    """A path at which two trees differ."""

    path: str
    before: File | None
    after: File | None


def find_differences(
    objects: Objects, before: ObjectId, after: ObjectId, prefix: str = ""
) -> Iterator[FileDifference]:
    """Where two trees differ below a folder, in the order of paths. It costs what differs."""
    start, stop = prefix.encode(), find_prefix_end(prefix.encode())
    for path, old_value, now in tree.iterate_differences(objects, before, after, start, stop):
        yield FileDifference(path.decode(), _decode_file(old_value), _decode_file(now))


def _decode_file(value: object) -> File | None:
    return None if value is None else decode_file(value)


def apply_changes(
    objects: Objects, root: ObjectId, changes: Mapping[str, File | None]
) -> tuple[ObjectId, dict[ObjectId, bytes]]:
    """Set paths of a tree, or remove them where the file is ``None``. Returns the new root and the new
    nodes."""
    values = {path.encode(): None if file is None else encode_file(file) for path, file in changes.items()}
    return tree.apply_changes(objects, root, values)
