"""Tables of files as a file system of fsspec, for the many programs that read and write by way of one.

Paths are ``<table>/<path in it>``, and ``<table>@<revision>/…`` for another revision than the file system's
own. URLs begin with ``penstock://``, and the lake stands beside them::

    pandas.read_csv("penstock://raw.events/day=1/a.csv", storage_options={"lake": "./lake"})

Whatever a method writes is one commit, and so is all that is written within ``with fs.transaction:``. Folders
are there while a file is in them, as in a bucket.
"""

from __future__ import annotations

import errno
import glob
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from fsspec.callbacks import DEFAULT_CALLBACK  # type: ignore[import-untyped]
from fsspec.compression import compr  # type: ignore[import-untyped]
from fsspec.transaction import Transaction  # type: ignore[import-untyped]
from fsspec.utils import infer_compression, stringify_path  # type: ignore[import-untyped]

from penstock.errors import InvalidName, ReferenceNotFound
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.calls import CopiedFile
from penstock.formats.files.lake.file_batch import (
    BatchTarget,
    BufferedFile,
    CompressedFile,
    FileBatch,
    WrittenText,
)
from penstock.formats.files.lake.paths import FilesPath, parse_path
from penstock.formats.files.lake.read_file_system import ReadFilesSystem, outside_read_set, raise_as_os_errors
from penstock.lake.calls import GetReference
from penstock.model.references import Kind

logger = logging.getLogger("penstock")

FILES_ALONE: Final = 10
"""So many files that were opened and written each become a commit before the log says how they become one."""


class SingleCommitBlock(Transaction):  # type: ignore[misc]
    """A block whose writes become one commit at its end, or nothing if it ends with an exception."""

    fs: FilesSystem | None

    def __init__(self, fs: FilesSystem, **kwargs: Any) -> None:
        super().__init__(fs, **kwargs)
        self.changes = FileBatch()

    def start(self) -> None:
        super().start()
        self.changes = FileBatch()

    def complete(self, commit: bool = True) -> None:
        system, files = self.fs, list(self.files)
        assert system is not None
        try:
            if commit:
                for file in files:
                    file.commit()
                system.commit(self.changes)
        finally:
            for file in files:
                file.discard()
            self.files.clear()
            system._intrans, system._transaction = False, None
            self.fs = None


class FilesSystem(ReadFilesSystem):
    """The tables of files of a lake.

    Errors are those of Python's own files: ``FileNotFoundError`` for what is not there, ``PermissionError``
    for what may not be written, ``FileExistsError`` for what should not have been there.
    """

    transaction_type = SingleCommitBlock

    def open(
        self, path: str, mode: str = "rb", *args: Any, compression: str | None = None, **kwargs: Any
    ) -> Any:
        if mode[:1] in ("w", "x") and "b" not in mode:
            how = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
            below = self.open(path, f"{mode[0]}b", *args, compression=compression, **kwargs)
            return WrittenText(below, **how)
        if compression is None or mode not in ("wb", "xb"):
            return super().open(path, mode, *args, compression=compression, **kwargs)
        chosen = infer_compression(self._strip_protocol(path)) if compression == "infer" else compression
        file = super().open(path, mode, *args, **kwargs)
        return file if chosen is None else CompressedFile(file, compr[chosen](file, mode="w"))

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode not in ("wb", "xb"):
            return super()._open(path, mode, **kwargs)
        place = self._parse_path(path)
        target = self._find_target(place)
        changes = self.transaction.changes if self._intrans else None

        def put_file(data: BinaryIO) -> None:
            with self._open_commit_block(changes) as mine:
                mine.put_file(target, place.path, data, is_new=mode == "xb")
            if changes is None:
                self._count_alone(target)

        return BufferedFile(place, mode, put_file)

    def _count_alone(self, target: BatchTarget) -> None:
        """Count a file that became a commit of its own; with the tenth of a table it is said once what that
        means."""
        with self._pinning:
            self._alone[target] = count = self._alone.get(target, 0) + 1
        if count == FILES_ALONE:
            logger.warning(
                "%d files were written to '%s' one by one: each is a separate commit, and readers see "
                "some before the others; write them within 'with fs.transaction:' to make one commit",
                count,
                target.key,
            )

    def _parse_path(self, path: str) -> FilesPath:
        with raise_as_os_errors(path):
            return parse_path(self._strip_protocol(path))

    def commit(self, changes: FileBatch) -> None:
        """Carry out what was gathered, in one commit, and let go of the files that were written for it."""
        try:
            if changes.target is not None and changes:
                key, branch = changes.target
                with raise_as_os_errors(str(key), is_new=bool(changes.new)):
                    self.lake.table(key, branch).files.write(
                        changes.puts,
                        remove=tuple(changes.removed),
                        replace=tuple(changes.replaced),
                        copy=tuple(changes.copies.values()),
                        absent=tuple(changes.new),
                        matching=tuple(changes.moved.values()),
                        message=self._message,
                        author=self._author,
                    )
        finally:
            for data in changes.puts.values():
                if isinstance(data, io.IOBase):
                    data.close()
            self.invalidate_cache()

    @contextmanager
    def _open_commit_block(self, file_batch: FileBatch | None) -> Iterator[FileBatch]:
        """What a method's changes go to: those of its caller, of the transaction, or a commit of its own."""
        if file_batch is not None:
            yield file_batch
        elif self._intrans:
            yield self.transaction.changes
        else:
            changes = FileBatch()
            yield changes
            self.commit(changes)

    def _find_target(self, files_path: FilesPath, changes: FileBatch | None = None) -> BatchTarget:
        """The table and branch of a path that is written; ``PermissionError`` where nothing can be."""
        target = BatchTarget(files_path.key, self.ref if files_path.ref is None else files_path.ref)
        if changes is not None and changes.target == target:
            return target  # it was asked for the first of its files
        with raise_as_os_errors(files_path.replace_path(files_path.path)):
            self.lake.begin_write()
            try:
                kind = self.lake.do(GetReference(name=target.branch)).kind
                if kind in (Kind.BRANCH, Kind.TRANSACTION):
                    return target
            except (ReferenceNotFound, InvalidName):
                pass
        raise PermissionError(
            errno.EROFS,
            f"'{target.branch}' is not a branch, and only branches can be written to",
            files_path.replace_path(files_path.path),
        )

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        changes: FileBatch | None = None,
        **_: Any,
    ) -> None:
        source, place = Path(stringify_path(lpath)), self._parse_path(rpath)
        if source.is_dir():
            return  # folders come with their files
        callback.set_size(source.stat().st_size)
        with self._open_commit_block(changes) as mine:
            mine.put_file(self._find_target(place, mine), place.path, source, is_new=mode == "create")

    def put(
        self, lpath: Any, rpath: Any, *args: Any, changes: FileBatch | None = None, **kwargs: Any
    ) -> None:
        with self._open_commit_block(changes) as mine, outside_read_set():
            super().put(lpath, rpath, *args, changes=mine, **kwargs)

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", changes: FileBatch | None = None, **_: Any
    ) -> None:
        place = self._parse_path(path)
        with self._open_commit_block(changes) as mine:
            mine.put_file(self._find_target(place, mine), place.path, bytes(value), is_new=mode == "create")

    def pipe(
        self,
        path: str | Mapping[str, bytes],
        value: bytes | None = None,
        changes: FileBatch | None = None,
        **kwargs: Any,
    ) -> None:
        with self._open_commit_block(changes) as mine:
            super().pipe(path, value, changes=mine, **kwargs)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")

    def cp_file(
        self, path1: str, path2: str, changes: FileBatch | None = None, known: Any = None, **_: Any
    ) -> None:
        """Let a file be at another path too, without a copy of its bytes."""
        path1 = self._strip_protocol(path1)
        about = known[path1] if known and path1 in known else self.info(path1)
        if about["type"] == "directory":
            return  # folders come with their files
        source, place = self._parse_path(path1), self._parse_path(path2)
        target, at = self._find_target(place, changes), self.ref if source.ref is None else source.ref
        is_same = (source.key, at) == target
        copied = CopiedFile(
            path=place.path,
            source=source.path,
            key=None if source.key == target.key else source.key,
            at=None if is_same else at,
        )
        with self._open_commit_block(changes) as mine:
            mine.copy_file(target, copied, FileEntry(path=source.path, address=about["address"]))

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        changes: FileBatch | None = None,
        **_: Any,
    ) -> None:
        infos = self.find(path1, withdirs=True, detail=True) if recursive and isinstance(path1, str) else None
        with self._open_commit_block(changes) as mine:
            super().copy(path1, path2, recursive, maxdepth, on_error, changes=mine, known=infos)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        changes: FileBatch | None = None,
        **_: Any,
    ) -> None:
        """Let files be at other paths of the same table, in one commit. What comes meanwhile stays."""
        moved = FileBatch()
        self.copy(path1, path2, recursive, maxdepth, "raise", changes=moved)
        if not moved:
            raise IsADirectoryError(errno.EISDIR, "the path is a folder: use recursive=True", str(path1))
        with self._open_commit_block(changes) as mine:
            for copied in moved.copies.values():
                assert moved.target is not None
                if copied.key is not None or copied.at is not None:
                    raise OSError(
                        errno.EXDEV, f"'{path1}' belongs to another table or branch: copy it, then remove it"
                    )
                entry = moved.sources[copied.source]
                if copied.source not in moved.copies:
                    mine.remove_file(moved.target, copied.source, entry)
                mine.copy_file(moved.target, copied, entry)

    def rm(
        self,
        path: str | Sequence[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        changes: FileBatch | None = None,
    ) -> None:
        """Let files go, and folders with all that is in them when it is done. A table stays, empty."""
        given_paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        whole = recursive and maxdepth is None
        names = (
            given_paths if whole else self.expand_path(given_paths, recursive=recursive, maxdepth=maxdepth)
        )
        with self._open_commit_block(changes) as mine:
            for name in names:
                for match in self._expand_paths(self._strip_protocol(name)) if whole else [name]:
                    self._rm_one(match, whole, mine)

    def _expand_paths(self, path: str) -> list[str]:
        matches: list[str] = self.glob(path) if glob.has_magic(path) and not self.exists(path) else [path]
        return matches

    def _rm_one(self, path: str, whole: bool, changes: FileBatch) -> None:
        with outside_read_set():
            place, about = self._parse_path(path), self.info(path)
        if about["type"] == "file":
            changes.remove_file(self._find_target(place, changes), place.path)
        elif whole:
            changes.remove_folder(self._find_target(place, changes), place.prefix)
        else:
            raise IsADirectoryError(errno.EISDIR, "the path is a folder: use recursive=True", path)

    def rm_file(self, path: str) -> None:
        self.rm(path)

    def _rm(self, path: str) -> None:
        self.rm(path)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Nothing: a folder comes with its first file."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: a folder comes with its first file."""

    def rmdir(self, path: str) -> None:
        """Nothing but ``OSError`` for a folder with files: one without is not there."""
        if self.ls(path):
            raise OSError(errno.ENOTEMPTY, "the folder has files", path)
