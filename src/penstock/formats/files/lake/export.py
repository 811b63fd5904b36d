"""Exporting files of a table into a directory of this machine."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Final

from penstock.errors import Denied, InvalidRequest, PenstockError, Unavailable
from penstock.formats.files.files import check_path
from penstock.formats.files.lake.answers import FileEntry, FilesTotal
from penstock.formats.files.lake.file_bytes import TableBytes
from penstock.kernel.reachable import Progress
from penstock.storage.disk_space import NO_ROOM, storage_full_error

AT_ONCE: Final = 4
PAGE: Final = 64
PIECE_BYTES: Final = 8 * 1024 * 1024
SHA256: Final = "sha256:"
UNFINISHED: Final = ".penstock-export-"


def export_files(
    source: TableBytes, entries: Iterable[FileEntry], directory: Path, progress: Progress
) -> FilesTotal:
    """Write files below a directory, each at its path: a few at once, in the order of their paths."""
    count, size, waiting = 0, 0, iter(entries)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory = directory.resolve()
    except OSError as problem:
        raise _write_error(problem, directory) from None
    with ThreadPoolExecutor(AT_ONCE, "penstock-export") as threads:
        while page := [*islice(waiting, PAGE)]:
            for exported in threads.map(partial(_export_below, source, directory), page):
                count, size = count + 1, size + exported
                progress("exported", count)
    return FilesTotal(files=count, size=size)


def export_file(source: TableBytes, entry: FileEntry, target: Path) -> None:
    """Write a file to a path. What is there already with the same bytes stays, and nothing is overwritten."""
    try:
        if os.path.lexists(target):
            _check_same(source, entry, target)
        else:
            _create_file(source, entry, target)
    except OSError as problem:
        raise _write_error(problem, target) from None


def _export_below(source: TableBytes, directory: Path, entry: FileEntry) -> int:
    target = directory / check_path(entry.path)
    try:
        if not target.parent.resolve().is_relative_to(directory):
            raise InvalidRequest(f"{target} would be outside {directory}, because of a link")
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _write_error(problem, target) from None
    export_file(source, entry, target)
    return entry.size


def _create_file(source: TableBytes, entry: FileEntry, target: Path) -> None:
    unfinished = target.parent / f"{UNFINISHED}{token_hex(8)}"
    digest = hashlib.sha256()
    try:
        with unfinished.open("xb") as file:
            for piece in _read_pieces(source, entry):
                digest.update(piece)
                file.write(piece)
        if entry.checksum.startswith(SHA256) and entry.checksum != SHA256 + digest.hexdigest():
            raise source.damaged_error(entry)
        if not _link_if_absent(unfinished, target):
            _check_same(source, entry, target)  # somebody was faster
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _read_pieces(source: TableBytes, entry: FileEntry) -> Iterator[bytes]:
    for start in range(0, entry.size, PIECE_BYTES):
        yield source.read_bytes(entry, start, min(PIECE_BYTES, entry.size - start))


def _check_same(source: TableBytes, entry: FileEntry, target: Path) -> None:
    """``InvalidRequest`` unless a file has the bytes that it is to have."""
    if target.is_file() and not target.is_symlink() and target.stat().st_size == entry.size:
        with target.open("rb") as file:
            if all(file.read(len(piece)) == piece for piece in _read_pieces(source, entry)):
                return
    raise InvalidRequest(
        f"{target} already exists, with other content; nothing was overwritten", path=str(target)
    )


def _link_if_absent(unfinished: Path, target: Path) -> bool:
    """Link a finished file to its name; False if another file has the name."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if os.path.lexists(target):  # a file system without links
            return False
        unfinished.rename(target)
    return True


def _write_error(problem: OSError, path: Path) -> PenstockError:
    why = f"{problem.filename or path} cannot be written: {problem.strerror}"
    if isinstance(problem, PermissionError):
        return Denied(why, path=str(path))
    if isinstance(problem, FileExistsError | NotADirectoryError | IsADirectoryError):
        return InvalidRequest(f"{why}; a file has the name of a folder that is needed", path=str(path))
    if problem.errno in NO_ROOM:
        return storage_full_error(str(path), problem, path=str(path))
    return Unavailable(why, path=str(path))
