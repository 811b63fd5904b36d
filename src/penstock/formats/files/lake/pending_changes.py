"""Changes to files of a table: bytes go into the pool first, then one call makes them part of the table.

A process that dies in between leaves unreferenced files, which a sweep removes. So does a call whose outcome
is unknown. If the call is refused, the files are removed here.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast
from uuid import uuid4

import msgspec

from penstock.errors import (
    CommitConflict,
    Denied,
    FileNotFound,
    InvalidRequest,
    KeyNotFound,
    OutcomeUnknown,
    PenstockError,
    Unauthenticated,
    Unavailable,
)
from penstock.formats.files.files import check_path, make_fence, make_folder_name
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake.answers import FileEntry, FilesWritten, TableLayout
from penstock.formats.files.lake.calls import (
    CopiedFile,
    GetFiles,
    ListOfFiles,
    NewFile,
    WriteFiles,
    hash_of_files,
)
from penstock.formats.files.lake.pool import find_pool, make_names
from penstock.lake.call import AFTER_DOUBT, CommitDescription
from penstock.lake.job_files import JobStart, is_refusal, remove_files

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key
    from penstock.storage.places import Place

Data: TypeAlias = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO
"""What a file is made of: bytes, a text, a local file, or a binary file object that is read to its end."""

PIECE_BYTES: Final = 8 * 1024 * 1024
"""So much of a local file is in memory at once, or a few times that while it is on its way to a bucket."""
AT_ONCE: Final = 8
"""How many files are written at the same time."""
_COMMIT: Final = re.compile(r"[0-9a-f]{64}")
SENT_MAX: Final = 2_000
"""More new files are named by a file in the pool, and only its name is sent."""


class PendingFileChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of the files of a table."""

    puts: Mapping[str, Any] = {}
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    copied: tuple[CopiedFile, ...] = ()
    absent: tuple[str, ...] = ()
    matching: tuple[FileEntry, ...] = ()
    when: WriteCondition = WriteCondition.ALWAYS
    layout: TableLayout | None = None
    """How the files are to be read from now on; a table that has none yet is created for that too."""

    @property
    def summary(self) -> str:
        """The changes in words: ``put 2 files, delete 1 file``."""
        parts = (
            ("put", len(self.puts)),
            ("copy", len(self.copied)),
            ("delete", len(self.removed)),
        )
        return ", ".join(
            [f"{what} {count} file{'s' if count > 1 else ''}" for what, count in parts if count]
            + [f"replace {folder or 'all files'}" for folder in self.replaced]
        )

    @property
    def expected_addresses(self) -> dict[str, str | None]:
        return {entry.path: entry.address for entry in self.matching} | dict.fromkeys(self.absent)


def commit_pending_changes(
    table: Table, changes: PendingFileChanges, description: CommitDescription, idempotency_key: str | None
) -> FilesWritten:
    """Carry out changes in one commit.

    ``FileNotFound`` or ``KeyNotFound`` if what is to be removed is not there, ``CommitConflict`` if anything
    else is not as it is expected to be.
    """
    branch = _require_branch(table)
    if not (changes.puts or changes.removed or changes.replaced or changes.copied or changes.layout):
        raise InvalidRequest(f"there is nothing to change in '{table.key}'")
    table.lake.begin_write(makes_lake=bool(changes.puts or changes.copied or changes.layout))
    with _FileUpload(table.lake, branch, table.key) as upload:
        put = upload.upload_files(changes.puts)
        call = WriteFiles(
            key=table.key,
            branch=branch,
            folder=upload.folder if changes.puts else "",
            put=put,
            copied=changes.copied,
            removed=changes.removed,
            replaced=changes.replaced,
            expected=changes.expected_addresses,
            when=changes.when,
            layout=changes.layout,
            create=bool(changes.puts or changes.copied or changes.layout),
            said=description,
            idempotency_key=idempotency_key,
            who=table.lake.author,
        )
        upload.check_in_time()
        try:
            return table.lake.do(call)
        except CommitConflict as conflict:
            raise _explain_conflict(table, changes, conflict) from None


def _require_branch(table: Table) -> str:
    """The branch that a table is written on; ``InvalidRequest`` if it is seen at a commit, which stays."""
    if table.via is not None or _COMMIT.fullmatch(table.ref):
        raise InvalidRequest(
            f"'{table.key}' is opened at commit {table.ref[:8]}, which cannot be changed; change its "
            "files on a branch, as in lake.table(…).files"
        )
    return table.ref


def _explain_conflict(table: Table, changes: PendingFileChanges, conflict: CommitConflict) -> PenstockError:
    """A conflict, or the simpler thing that it comes from: there is nothing that could be removed."""
    penstock_error: PenstockError = conflict
    removed = {conflict.path for conflict in conflict.conflicts} & set(changes.removed)
    if changes.puts or changes.copied:
        return conflict
    try:
        entries = table.lake.do(GetFiles(key=table.key, at=table.ref, file=tuple(removed)))
    except KeyNotFound as missing:
        penstock_error = missing
    except PenstockError:
        return conflict
    else:
        gone = sorted(removed - {entry.path for entry in entries})
        if gone:
            penstock_error = FileNotFound(
                f"'{table.key}' has no file at '{gone[0]}' ({table.ref}); nothing was changed",
                table=str(table.key),
                path=gone[0],
            )
    penstock_error.details |= {
        name: value for name, value in conflict.details.items() if name not in penstock_error.details
    }
    return penstock_error


def _is_denied_early(error: BaseException) -> bool:
    """Whether a request was denied for missing rights, before its content was read.

    Storage may deny access too, at any step; such an error does not count.
    """
    is_of_rights = isinstance(error, Unauthenticated) or (
        isinstance(error, Denied) and "may_not" in error.details
    )
    return isinstance(error, PenstockError) and is_of_rights and AFTER_DOUBT not in error.details


class _FileUpload:
    """Files on their way into a folder of the pool that nobody else uses."""

    def __init__(self, lake: Lake, branch: str, key: Key) -> None:
        self._lake, self._began = lake, JobStart.at_lake_time(lake)
        self.folder = make_folder_name(lake.id, make_fence(branch, key), time.time_ns() // 1000)
        self._place = lake.places.open_place(find_pool(lake.warehouse))
        self._names: list[str] = []
        self._is_sent = False

    def __enter__(self) -> _FileUpload:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and (not self._is_sent or is_refusal(error) or _is_denied_early(error)):
            remove_files(self._place, self._names)

    def check_in_time(self) -> None:
        """``InvalidRequest`` if a sweep may soon take the files for leftovers. From here on, the commit is
        on its way."""
        self._began.check_in_time()
        self._is_sent = True

    def upload_files(self, puts: Mapping[str, Data]) -> tuple[NewFile, ...] | ListOfFiles:
        """Write files, each durable when this returns."""
        for path in puts:
            check_path(path)
        names = make_names(puts)
        if len(puts) == 1:
            new = tuple(self._put_file(path, names[path], data) for path, data in puts.items())
        else:
            with ThreadPoolExecutor(AT_ONCE, "penstock-put") as threads:
                waiting = [
                    threads.submit(self._put_file, path, names[path], data) for path, data in puts.items()
                ]
                try:
                    new = tuple(future.result() for future in waiting)
                except BaseException:
                    for future in waiting:
                        future.cancel()
                    raise
        return new if len(new) <= SENT_MAX else self._write_file_list(new)

    def _put_file(self, path: str, name: str, data: Data) -> NewFile:
        self._names.append(self.folder + name)
        with _UploadSource(path, data) as source:
            small = source.read_if_small()
            if small is not None:
                self._write_to_storage(name, source, lambda: self._place.put(self.folder + name, small))
            else:
                self._write_to_storage(
                    name, source, lambda: self._place.put_pieces(self.folder + name, source.read_pieces())
                )
        return NewFile(
            path=path,
            name="" if name == path else name,
            size=source.size,
            checksum=f"sha256:{source.digest.hexdigest()}",
        )

    def _write_to_storage(self, name: str, source: _UploadSource, write: Any) -> None:
        try:
            write()
        except OutcomeUnknown as problem:
            if self._place.size(self.folder + name) != source.size:
                raise Unavailable(f"{problem.message}; nothing was committed", part="storage") from None
        except Exception:
            if source.problem is not None:  # storage only saw that no more bytes came
                raise source.problem from None
            raise

    def _write_file_list(self, new: tuple[NewFile, ...]) -> ListOfFiles:
        file_list = write_file_list(self._place, self.folder, new)
        self._names.append(self.folder + file_list.name)
        return file_list


def write_file_list(pool: Place, folder: str, new: tuple[NewFile, ...]) -> ListOfFiles:
    """Write the list of new files beside them, in their writer's folder."""
    data = msgspec.msgpack.encode(new)
    name = f"{uuid4().hex}.list"
    pool.put(folder + name, data)
    return ListOfFiles(
        name=name, size=len(data), sha256=hashlib.sha256(data).digest(), files=hash_of_files(new)
    )


class _UploadSource:
    """Where the bytes of a new file come from; their size and hash are known once they were read."""

    def __init__(self, path: str, data: Data) -> None:
        self._path, self._data = path, data
        self._file: BinaryIO | None = None
        self._owned = ExitStack()
        self.size, self.digest = 0, hashlib.sha256()
        self.problem: PenstockError | None = None
        """Why it could not be read."""

    def __enter__(self) -> _UploadSource:
        data = self._data
        if isinstance(data, os.PathLike):
            try:
                self._file = self._owned.enter_context(Path(data).open("rb"))
            except OSError as problem:
                raise self._unreadable_error(problem) from None
        elif not isinstance(data, bytes | bytearray | memoryview | str):
            if not callable(getattr(data, "read", None)):
                raise InvalidRequest(
                    f"'{self._path}' cannot be written from {type(data).__name__}: pass bytes, a string, "
                    "the Path of a file, or a binary file object"
                )
            self._file = data
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def read_if_small(self) -> bytes | None:
        """All bytes, if they are few; nothing is lost of them if they are not."""
        if self._file is not None:
            self._data = self._read_bytes(PIECE_BYTES)
            if len(self._data) == PIECE_BYTES:
                return None
            return self._count_piece(self._data)
        data = self._data
        try:
            return self._count_piece(data.encode() if isinstance(data, str) else bytes(cast("bytes", data)))
        except UnicodeEncodeError:
            raise InvalidRequest(
                f"'{self._path}' cannot be written from a string that is not valid UTF-8; pass bytes"
            ) from None

    def read_pieces(self) -> Iterator[bytes]:
        """The bytes one piece after the other: first the one that ``read_if_small`` has read."""
        piece = cast("bytes", self._data)
        while piece:
            yield self._count_piece(piece)
            try:
                piece = self._read_bytes(PIECE_BYTES)
            except PenstockError as problem:
                self.problem = problem
                raise

    def _read_bytes(self, size: int) -> bytes:
        """So many bytes, fewer only at the end."""
        assert self._file is not None
        buffer = bytearray()
        while len(buffer) < size:
            try:
                piece: Any = self._file.read(size - len(buffer))
            except (OSError, ValueError) as problem:
                raise self._unreadable_error(problem) from None
            if isinstance(piece, str):
                raise InvalidRequest(
                    f"'{self._path}' cannot be written from a file in text mode; open it with mode 'rb'"
                )
            if not piece:
                break
            buffer += piece
        return bytes(buffer)

    def _count_piece(self, piece: bytes) -> bytes:
        self.size += len(piece)
        self.digest.update(piece)
        return piece

    def _unreadable_error(self, problem: OSError | ValueError) -> InvalidRequest:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        name = self._data if isinstance(self._data, os.PathLike) else "the given file object"
        return InvalidRequest(f"'{self._path}' was not written: its source, {name}, cannot be read: {why}")
