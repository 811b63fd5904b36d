"""The read-only half of the fsspec file system of tables of files."""

from __future__ import annotations

import errno
import io
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from penstock.errors import (
    ConflictError,
    Denied,
    FileNotFound,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    NotFound,
    NotManaged,
    Unauthenticated,
)
from penstock.formats.files.files import is_managed
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.paths import FilesPath, parse_path, quote_table_key
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.transactions.read_set import note_reads
from penstock.lake.views import Snapshot
from penstock.model.reads import Read

if TYPE_CHECKING:
    from penstock.formats.files.lake.table import Files

Info = dict[str, Any]

_UNNOTED: ContextVar[bool] = ContextVar("penstock_unnoted", default=False)


@contextmanager
def outside_read_set() -> Iterator[None]:
    """Reads in this block are not added to the read set of a transaction: a write needs them."""
    before = _UNNOTED.set(True)
    try:
        yield
    finally:
        _UNNOTED.reset(before)


class ReadFilesSystem(AbstractFileSystem):  # type: ignore[misc]
    """Tables of files of a lake, to be read."""

    protocol = "penstock"
    root_marker = ""
    cachable = False  # two lakes, or two times that one is opened, are never taken for each other

    def __init__(
        self,
        lake: Lake | str | os.PathLike[str] | None = None,
        ref: str | None = None,
        *,
        pinned: bool = False,
        pins: Mapping[str, tuple[str, str | None]] | None = None,
        token: str | None = None,
        author: str | None = None,
        message: str | None = None,
        **options: Any,
    ) -> None:
        """``lake`` is an open one, or where it is, that of ``PENSTOCK_LAKE`` if nothing is given.

        ``ref`` is the revision that is read and the branch that is written, the default branch if nothing is
        given. A ``pinned`` file system reads a branch at one commit, where it first saw it, until it writes
        itself or ``invalidate_cache`` is called; others look at it anew every time. A URL is pinned: who
        reads many files by one reads them as they were together. ``pins`` are what another file system has
        seen: of revisions their commits, and what led there. ``token`` is for a lake behind a server,
        ``author`` and ``message`` are for the commits.
        """
        super().__init__(**options)
        if isinstance(lake, Lake):
            self.lake = lake
        else:
            self.lake = open_lake(_make_lake_url(lake), create=False, token=token, author=author)
            weakref.finalize(self, self.lake.close)
        self.ref = self.lake.default_branch if ref is None else ref
        self._author, self._message = author, message
        self._is_pinned, self._pinning = pinned, Lock()
        self._pins = {name: Snapshot(self.lake, *seen) for name, seen in (pins or {}).items()}
        self._alone: dict[Any, int] = {}
        """How many files became a commit of their own, of each table that was written so."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which opens the lake itself, with a token of its own: none is told.

        A pinned file system is pinned there too, at the same commit of its own revision, and of any other
        that it has looked at.
        """
        if self._is_pinned:
            with suppress(NotFound):
                self._open_snapshot(self.ref)
        with self._pinning:
            pins = {name: (seen.id, seen.via) for name, seen in self._pins.items()}
        again = partial(
            type(self), pinned=self._is_pinned, pins=pins, author=self._author, message=self._message
        )
        return again, (self.lake.url, self.ref)

    @property
    def fsid(self) -> str:
        return f"penstock-{self.lake.id}-{self.ref}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped.lstrip("/") if isinstance(stripped, str) else stripped

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:  # noqa: ARG004
        return {"pinned": True}

    def invalidate_cache(self, path: str | None = None) -> None:  # noqa: ARG002
        """Look at the branches anew."""
        with self._pinning:
            self._pins.clear()

    # -- reading -------------------------------------------------------------------------------------------

    def _open_files(self, files_path: FilesPath) -> Files:
        ref = self.ref if files_path.ref is None else files_path.ref
        table = (
            self._open_snapshot(ref).table(files_path.key)
            if self._is_pinned
            else self.lake.table(files_path.key, ref)
        )
        return table.outside_read_set.files if _UNNOTED.get() else table.files

    def _open_snapshot(self, ref: str) -> Snapshot:
        if not self._is_pinned:
            return self.lake.at(ref)
        with self._pinning:
            if ref not in self._pins:
                self._pins[ref] = self.lake.at(ref)
            return self._pins[ref]

    def info(self, path: str, **_: Any) -> Info:
        path = self._strip_protocol(path)
        if not path:
            return _make_directory_info("")
        with raise_as_os_errors(path):
            place = parse_path(path)
            files = self._open_files(place)
            if not place.path:
                files.about()
                return _make_directory_info(path)
            try:
                return _make_file_info(place, files.stat(place.path))
            except FileNotFound:
                if not files.list(place.prefix, limit=1):
                    raise
        return _make_directory_info(path)

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is a file, or a folder with one. A table without files is not there either."""
        try:
            is_file = self.info(path)["type"] == "file"
            path = self._strip_protocol(path)
            if is_file or not path:
                return True
            with raise_as_os_errors(path):
                place = parse_path(path)
                return bool(place.path) or bool(self._open_files(place).list("", limit=1))
        except FileNotFoundError:
            return False

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        tables = self._list_tables() if not path else self._list_folder(path)
        return tables if detail else [info["name"] for info in tables]

    def _list_tables(self) -> list[Info]:
        with raise_as_os_errors(""):
            snapshot = self._open_snapshot(self.ref)
            if not _UNNOTED.get():
                note_reads(self.lake, snapshot.id, snapshot.via, Read(is_listing=True))
            entries = snapshot.outside_read_set.entries()
            return [
                _make_directory_info(quote_table_key(key)) for key, content in entries if is_managed(content)
            ]

    def _list_folder(self, path: str) -> list[Info]:
        with raise_as_os_errors(path):
            place = parse_path(path)
            infos = [_make_entry_info(place, entry) for entry in self._open_files(place).folder(place.prefix)]
        if not infos:
            about = self.info(path)  # a file, or an empty table, or nothing
            return [about] if about["type"] == "file" else []
        return infos

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **_: Any,
    ) -> Any:
        """All files below a path, by one listing of each table."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        try:
            below = self._list_below(path, maxdepth) if path else self._list_below_root(maxdepth)
        except FileNotFoundError:
            below = {}
        chosen = {name: below[name] for name in sorted(below) if withdirs or below[name]["type"] == "file"}
        return chosen if detail else list(chosen)

    def _list_below_root(self, maxdepth: int | None) -> dict[str, Info]:
        infos: dict[str, Info] = {}
        for table in self._list_tables():
            if maxdepth == 1:
                infos[table["name"]] = table
            else:
                infos |= self._list_below(table["name"], None if maxdepth is None else maxdepth - 1)
        return infos

    def _list_below(self, path: str, maxdepth: int | None) -> dict[str, Info]:
        """A path itself, and the files and folders below it down to a depth."""
        with raise_as_os_errors(path):
            place = parse_path(path)
            files = self._open_files(place)
            entries = files.folder(place.prefix) if maxdepth == 1 else files.list(place.prefix)
        if not entries:
            return {path: self.info(path)}
        infos = {path: _make_directory_info(path)}
        for entry in entries:
            steps = entry.path[len(place.prefix) :].rstrip("/").split("/")
            for depth in range(1, len(steps)):
                if maxdepth is None or depth <= maxdepth:
                    folder = place.replace_path(place.prefix + "/".join(steps[:depth]))
                    infos.setdefault(folder, _make_directory_info(folder))
            if maxdepth is None or len(steps) <= maxdepth:
                info = _make_entry_info(place, entry)
                infos[info["name"]] = info
        return infos

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **_: Any
    ) -> Any:
        infos = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info["size"] for name, info in infos.items()}
        return sum(sizes.values()) if total else sizes

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        with raise_as_os_errors(path):
            place = parse_path(path)
            if (start or 0) >= 0 and (end is None or end >= 0):
                length = None if end is None else max(0, end - (start or 0))
                return self._open_files(place).read(place.path, start or 0, length)
        with self._open(path) as file:  # from the end: how far that is belongs to the same file
            size = file.seek(0, io.SEEK_END)
            first, last = slice(start, end).indices(size)[:2]
            file.seek(first)
            return bytes(file.read(max(0, last - first)))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise io.UnsupportedOperation(f"files are read ('rb') or written as a whole ('wb'), not {mode!r}")
        with raise_as_os_errors(path):
            place = parse_path(path)
            file: Any = self._open_files(place).open(place.path)
        file.fs = self  # whose lake is closed when nobody has it any more
        return file

    def created(self, path: str) -> datetime:
        time: datetime = self.modified(path)
        return time

    def modified(self, path: str) -> datetime:
        time: datetime | None = self.info(path).get("modified")
        if time is None:
            raise IsADirectoryError(errno.EISDIR, "a folder has no time of its own", path)
        return time

    def ukey(self, path: str) -> str:
        """What another file at the same path does not have."""
        return sha256(self.info(path).get("address", "").encode()).hexdigest()

    def checksum(self, path: str) -> int:
        """The same number for the same bytes, where their checksum is known; else for the same file."""
        info = self.info(path)
        return int(sha256((info.get("checksum") or info.get("address", "")).encode()).hexdigest(), 16)


def _make_lake_url(lake: str | os.PathLike[str] | None) -> str:
    address = os.environ.get("PENSTOCK_LAKE", "") if lake is None else os.fspath(lake)
    if not address:
        raise InvalidRequest('no lake is given: use storage_options={"lake": …}, or set PENSTOCK_LAKE')
    return address


def _make_directory_info(name: str) -> Info:
    return {"name": name, "size": 0, "type": "directory"}


def _make_file_info(files_path: FilesPath, entry: FileEntry) -> Info:
    return {
        "name": files_path.replace_path(entry.path),
        "size": entry.size,
        "type": "file",
        "modified": entry.modified,
        "created": entry.modified,
        "checksum": entry.checksum,
        "address": entry.address,
    }


def _make_entry_info(files_path: FilesPath, entry: FileEntry) -> Info:
    return (
        _make_directory_info(files_path.replace_path(entry.path.rstrip("/")))
        if entry.is_folder
        else _make_file_info(files_path, entry)
    )


@contextmanager
def raise_as_os_errors(path: str, *, is_new: bool = False) -> Iterator[None]:
    """Say an error as those do who know files: as an ``OSError``, with the same message."""
    try:
        yield
    except (NotFound, NotManaged, InvalidKey, InvalidName) as error:
        raise FileNotFoundError(errno.ENOENT, error.message, path) from error
    except (Denied, Unauthenticated) as error:
        raise PermissionError(errno.EACCES, error.message, path) from error
    except InvalidRequest as error:
        raise OSError(errno.EINVAL, error.message, path) from error
    except ConflictError as error:  # what was to be new is there, or what was read is another
        raise OSError(errno.EEXIST if is_new else errno.ESTALE, error.message, path) from error
