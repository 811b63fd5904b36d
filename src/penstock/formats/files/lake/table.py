"""Files of a table, for programs: list, read and change them at a path, as the table is at a reference.

What a table has is asked where the lake is. Bytes are read and written from here, with this process's own
access to the storage, whether the lake is in this process or behind a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from penstock.errors import FileNotFound, InvalidRequest
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo, FilesTotal, FilesWritten
from penstock.formats.files.lake.calls import CopiedFile, GetFiles, GetFilesTable, ListFiles, SumFiles
from penstock.formats.files.lake.export import export_file, export_files
from penstock.formats.files.lake.file_bytes import TableBytes
from penstock.formats.files.lake.paths import normalise_folder
from penstock.formats.files.lake.pending_changes import Data, PendingFileChanges, commit_pending_changes
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import PAGE_MAX, describe_commit
from penstock.lake.calls import Resolve
from penstock.lake.transactions.read_set import note_reads
from penstock.model.keys import Key
from penstock.model.reads import PARTS_MAX, Read

if TYPE_CHECKING:
    from penstock.lake.table import Table

Entries: TypeAlias = list[FileEntry]
Addresses: TypeAlias = list[str]


class Files:
    """The files of a table at a reference.

    On a branch they can be changed: every change is a commit of its own, and the first one makes the table.
    A change that does not fit the table as it is at its turn is refused with ``CommitConflict``, which names
    the paths; nothing is changed then.

    Where a folder is named, the slash at its end may be left out, and nothing stands for the whole table.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._lake, self._key = table, table.lake, table.key

    def __repr__(self) -> str:
        return f"<Files of {self._table!r}>"

    # -- what there is -------------------------------------------------------------------------------------

    def list(self, folder: str = "", *, limit: int | None = None) -> Entries:
        """Files in a folder and in those below it, in the order of their paths' UTF-8 bytes."""
        return [*self._list_entries(folder, limit, folders=False)]

    def folder(self, folder: str = "") -> Entries:
        """Files and folders right below a folder."""
        return [*self._list_entries(folder, None, folders=True)]

    def walk(self, folder: str = "") -> Iterator[FileEntry]:
        """As ``list``, page by page: all of one commit, whatever happens meanwhile."""
        return self._list_entries(folder, None, folders=False)

    def stat(self, path: str) -> FileEntry:
        """A file; ``FileNotFound`` if there is none."""
        entry = self._find_entry(path)
        if entry is None:
            raise self._file_not_found(path)
        return entry

    def exists(self, path: str) -> bool:
        """Whether there is a file, in a table that must be there."""
        return self._find_entry(path) is not None

    def total(self, folder: str = "") -> FilesTotal:
        """Count the files in a folder and below it, and their total size."""
        self._table.note_read(normalise_folder(folder))
        return self._lake.do(
            SumFiles(key=self._key, at=self._table.ref, via=self._table.via, prefix=normalise_folder(folder))
        )

    def about(self) -> FilesTableInfo:
        """The table as a whole: how much it has, and how it is to be read."""
        self._table.note_read()
        return self._lake.do(GetFilesTable(key=self._key, at=self._table.ref, via=self._table.via))

    def urls(self, folder: str = "") -> Addresses:
        """Where the bytes of files are, for engines: the whole path or URL of each. They stay the same for as
        long as a commit that has them is kept."""
        return [entry.address for entry in self.walk(folder)]

    def _file_not_found(self, path: str) -> FileNotFound:
        return FileNotFound(
            f"'{self._key}' has no file at '{path}' ({self._table.ref})", table=str(self._key), path=path
        )

    def _find_entry(self, path: str) -> FileEntry | None:
        self._table.note_read(path)
        call = GetFiles(key=self._key, at=self._table.ref, via=self._table.via, file=(path,))
        entries = self._lake.do(call)
        return entries[0] if entries else None

    def _list_entries(self, folder: str, limit: int | None, *, folders: bool) -> Iterator[FileEntry]:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit must be 0 or greater, got {limit}")
        self._table.note_read(normalise_folder(folder))
        at, via, after = self._table.ref, self._table.via, ""
        most = self._lake.page_max or PAGE_MAX
        if via is None and (limit is None or limit > most):  # several pages, of one commit
            resolved = self._lake.do(Resolve(revision=at))
            at, via = resolved.commit, resolved.name
        while limit is None or limit > 0:
            page_limit = most if limit is None else min(limit, most)
            page = self._lake.do(
                ListFiles(
                    key=self._key,
                    at=at,
                    via=via,
                    prefix=normalise_folder(folder),
                    folders=folders,
                    after=after,
                    limit=page_limit,
                )
            )
            yield from page
            if len(page) < page_limit:
                return
            after, limit = page[-1].path, None if limit is None else limit - len(page)

    # -- bytes ---------------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read bytes of a file from an offset: all, or at most a number."""
        if start < 0 or (length is not None and length < 0):
            raise InvalidRequest(f"invalid range of '{path}': start {start}, length {length}")
        entry = self.stat(path)
        size = max(0, entry.size - start if length is None else min(length, entry.size - start))
        return self._bytes.read_bytes(entry, start, size)

    def open(self, path: str) -> BinaryIO:
        """A file as a file object for reading, which can seek. It reads from storage what is asked for, and
        stays the same file whatever becomes of the table."""
        return self._bytes.open_file(self.stat(path))

    def export(
        self, directory: str | os.PathLike[str], folder: str = "", progress: Progress = show_no_progress
    ) -> FilesTotal:
        """Write the files of a folder, or all, into a directory, each at its path, all of one commit.

        A file appears whole or not at all, and nothing is overwritten: ``InvalidRequest`` names what is in
        the way. What is there already with the same bytes stays, so that an export can be repeated. Says how
        much the files are that are there then. ``FileNotFound`` if there is no such folder.
        """
        entries = self.walk(folder)
        if folder:
            first = next(entries, None)
            if first is None:
                raise self._file_not_found(folder)
            entries = chain([first], entries)
        return export_files(self._bytes, entries, Path(directory), progress)

    def export_file(self, path: str, target: str | os.PathLike[str]) -> FileEntry:
        """Write a file to a path of this machine, by the rules of ``export``; its directory must be there."""
        entry = self.stat(path)
        export_file(self._bytes, entry, Path(target))
        return entry

    @property
    def _bytes(self) -> TableBytes:
        return TableBytes(self._lake.places, self._lake.warehouse, self._key)

    # -- changing ------------------------------------------------------------------------------------------

    def put(
        self,
        path: str,
        data: Data,
        *,
        if_absent: bool = False,
        if_match: FileEntry | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Write a file to a path, replacing an existing one.

        ``data`` are bytes, a text (as UTF-8), a local file as a ``Path``, or a binary file object, which is
        read to its end. With ``if_absent`` there must be no file yet, with ``if_match`` it must be the one
        that was read.
        """
        if if_absent and if_match is not None:
            raise InvalidRequest(f"if_absent and if_match exclude each other for '{path}'; give one of them")
        if if_match is not None and if_match.path != path:
            raise InvalidRequest(f"if_match is an entry of '{if_match.path}', not of '{path}'")
        changes = PendingFileChanges(
            puts={path: data},
            absent=(path,) if if_absent else (),
            matching=() if if_match is None else (if_match,),
        )
        text = message if message is not None else f"put {path} into {self._key}"
        self._note_conditions(changes)
        return commit_pending_changes(self._table, changes, describe_commit(text, author), idempotency_key)

    def write(
        self,
        puts: Mapping[str, Data] | None = None,
        *,
        remove: Sequence[str] = (),
        replace: Sequence[str] = (),
        copy: Sequence[CopiedFile] = (),
        absent: Sequence[str] = (),
        matching: Sequence[FileEntry] = (),
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Many changes in one commit, all or none.

        First the files in the folders ``replace`` go, then those at ``remove``, which must be there;
        then ``puts`` and ``copy`` come. Nothing may be at the paths ``absent`` before, and at those of
        ``matching`` just these files.
        """
        for name, paths in (("remove", remove), ("replace", replace), ("copy", copy), ("absent", absent)):
            if isinstance(paths, str | bytes):
                raise InvalidRequest(f"{name} must be a list, as in {name}=[{paths!r}], got a string")
        changes = PendingFileChanges(
            puts=puts or {},
            removed=tuple(dict.fromkeys(remove)),
            replaced=tuple(map(normalise_folder, replace)),
            copied=tuple(copy),
            absent=tuple(absent),
            matching=tuple(matching),
        )
        text = message if message is not None else f"{changes.summary} in {self._key}"
        self._note_conditions(changes)
        return commit_pending_changes(self._table, changes, describe_commit(text, author), idempotency_key)

    def _note_conditions(self, changes: PendingFileChanges) -> None:
        """In a transaction, what a change rests on has to hold still where that lands, as if it was read."""
        if not self._table.is_noted:
            return
        here = self._table.ref
        looked: dict[tuple[str, Key], set[str]] = {(here, self._key): {*changes.expected_addresses}}
        for copy in changes.copied:
            looked.setdefault((copy.at or here, copy.key or self._key), set()).add(copy.source)
        for (ref, key), paths in looked.items():
            reads = [Read(key=key, part=path) for path in sorted(paths)]
            note_reads(self._lake, ref, None, *(reads if len(reads) <= PARTS_MAX else [Read(key=key)]))

    def delete(
        self,
        *paths: str,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Remove files; ``FileNotFound`` if one of them is not there, and then none goes."""
        return self.write(remove=paths, message=message, author=author, idempotency_key=idempotency_key)

    def delete_folder(
        self,
        folder: str,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Remove all files that are in a folder when the commit has its turn; it may have none."""
        if not folder.strip("/"):  # nothing must not come to mean everything
            raise InvalidRequest('no folder is given; for the whole table, use write(replace=[""])')
        folder = normalise_folder(folder)
        return self.write(
            replace=(folder,),
            message=message if message is not None else f"delete {folder} of {self._key}",
            author=author,
            idempotency_key=idempotency_key,
        )

    def copy(
        self,
        source: str,
        path: str,
        *,
        key: str | Key | None = None,
        at: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Copy a file to another path: from this table or the one with ``key``, on this branch or ``at``
        another revision. No bytes are copied."""
        copy = CopiedFile(path=path, source=source, key=None if key is None else Key.parse(key), at=at)
        whence = f"{copy.key}/{source}" if copy.key is not None else source
        return self.write(
            copy=(copy,),
            message=message if message is not None else f"copy {whence} to {path} in {self._key}",
            author=author,
            idempotency_key=idempotency_key,
        )

    def move(
        self,
        source: str,
        path: str,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> FilesWritten:
        """Move a file to another path, replacing an existing one. No bytes are copied."""
        if source == path:
            raise InvalidRequest(f"'{path}' cannot be moved to itself")
        return self.write(
            copy=(CopiedFile(path=path, source=source),),
            remove=(source,),
            message=message if message is not None else f"move {source} to {path} in {self._key}",
            author=author,
            idempotency_key=idempotency_key,
        )
