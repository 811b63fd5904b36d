"""Exporting files of a table into a directory of this machine."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Final

from penstock.errors import Denied, InvalidRequest, PenstockError, Unavailable
from penstock.formats.files.files import check_path
from penstock.kernel.reachable import Progress
from penstock.lake.files_answers import FileEntry, FilesTotal
from penstock.storage.places import Place

AT_ONCE: Final = 4
PAGE: Final = 64
PIECE_BYTES: Final = 8 * 1024 * 1024
SHA256: Final = "sha256:"
UNFINISHED: Final = ".penstock-export-"


class Export:
    """One export: a few files at once, in the order of their paths."""

    def __init__(
        self,
        place: Place,
        directory: str,
        name_of: Callable[[FileEntry], str],
        lost: Callable[[FileEntry], PenstockError],
        progress: Progress,
    ) -> None:
        """``name_of`` tells where in the place a file is; ``lost`` is raised if it is not."""
        self._place, self._directory = place, Path(directory)
        self._name_of, self._lost, self._progress = name_of, lost, progress

    def run(self, entries: Iterable[FileEntry]) -> FilesTotal:
        count, size, waiting = 0, 0, iter(entries)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._directory = self._directory.resolve()
        except OSError as problem:
            raise _explained(problem, self._directory) from None
        with ThreadPoolExecutor(AT_ONCE, "penstock-export") as threads:
            while page := [*islice(waiting, PAGE)]:
                for one in threads.map(self._write, page):
                    count, size = count + 1, size + one
                    self._progress("exported", count)
        return FilesTotal(files=count, size=size)

    def _write(self, entry: FileEntry) -> int:
        target = self._directory / check_path(entry.path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(self._directory):
                raise InvalidRequest(f"{target} would lie outside of {self._directory}, behind a link")
            if os.path.lexists(target):
                self._check_same(entry, target)
            else:
                self._create(entry, target)
        except OSError as problem:
            raise _explained(problem, target) from None
        return entry.size

    def _create(self, entry: FileEntry, target: Path) -> None:
        unfinished = target.parent / f"{UNFINISHED}{token_hex(8)}"
        digest = hashlib.sha256()
        try:
            with unfinished.open("xb") as file:
                for piece in self._pieces(entry):
                    digest.update(piece)
                    file.write(piece)
            if entry.checksum.startswith(SHA256) and entry.checksum != SHA256 + digest.hexdigest():
                raise self._lost(entry)
            if not _linked(unfinished, target):
                self._check_same(entry, target)  # somebody was faster
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()

    def _pieces(self, entry: FileEntry) -> Iterator[bytes]:
        name = self._name_of(entry)
        for start in range(0, entry.size, PIECE_BYTES):
            wanted = min(PIECE_BYTES, entry.size - start)
            piece = self._place.read_range(name, start, wanted)
            if piece is None or len(piece) != wanted:
                raise self._lost(entry)
            yield piece

    def _check_same(self, entry: FileEntry, target: Path) -> None:
        """``InvalidRequest`` unless a file has the bytes that it is to have."""
        if target.is_file() and not target.is_symlink() and target.stat().st_size == entry.size:
            with target.open("rb") as file:
                if all(file.read(len(piece)) == piece for piece in self._pieces(entry)):
                    return
        raise InvalidRequest(
            f"{target} is there already, and is something else; nothing is overwritten", path=str(target)
        )


def _linked(unfinished: Path, target: Path) -> bool:
    """Give a whole file its name, if nothing has it."""
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


def _explained(problem: OSError, path: Path) -> PenstockError:
    why = f"{problem.filename or path} cannot be written: {problem.strerror}"
    if isinstance(problem, PermissionError):
        return Denied(why, path=str(path))
    if isinstance(problem, FileExistsError | NotADirectoryError | IsADirectoryError):
        return InvalidRequest(f"{why}; another file has the name of a folder that is needed", path=str(path))
    return Unavailable(why, path=str(path))
