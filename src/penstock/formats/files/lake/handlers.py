"""Answering calls about tables of files from a kernel in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import FileNotFound, InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.files import trees
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import (
    File,
    FilesLayout,
    FilesState,
    check_path,
    decode_file,
    decode_state,
    find_slice,
    format_day,
    is_managed,
)
from penstock.formats.files.intents import NAME, WriteIntent, check_write_intent, encode_write
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.files.lake.answers import (
    FileEntry,
    FilesTableInfo,
    FilesTotal,
    FilesWritten,
    TableLayout,
)
from penstock.formats.files.lake.calls import ListOfFiles, NewFile, hash_of_files
from penstock.formats.files.lake.jobs import JobHandlers, describe_written
from penstock.formats.files.lake.pool import find_pool, require_fence
from penstock.kernel import tree
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.settings import DAY_US
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.call import Call, commit_meta, request_digest, take_first
from penstock.lake.embedded import Embedded
from penstock.model.decoders import get_msgpack_decoder
from penstock.model.keys import Key
from penstock.model.operations import Change

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded
    from penstock.storage.places import Places

LIST_MAX_BYTES: Final = 512 * 1024 * 1024
"""Of a file that names new files: some millions of them."""
TIME_MAX_US: Final = 250_000_000_000_000_000
"""What Python can show as a date: some time before the year 9900."""
SIZE_MAX_BYTES: Final = 2**50
_LISTED: Final = get_msgpack_decoder(tuple[NewFile, ...])


class FilesHandlers:
    """Answers every call of ``calls``."""

    def __init__(self, lake: Embedded, places: Callable[[], Places]) -> None:
        self._lake, self._kernel, self._places = lake, lake.kernel, places
        self._jobs = JobHandlers(lake)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            files_calls.WriteFiles: self._write_files,
            files_calls.ListFiles: self._list_files,
            files_calls.GetFiles: self._get_files,
            files_calls.SumFiles: self._sum_files,
            files_calls.GetFilesTable: self._describe_table,
            **self._jobs.ways,
        }

    # -- reading -------------------------------------------------------------------------------------------

    def _read_table(self, at: str | None, key: Key, via: str | None = None) -> tuple[FilesTable, FilesState]:
        content = self._lake.read_content_at(self._lake.resolve_commit(at), key)
        if content is None:
            where = via if via is not None else self._lake.get_branch_or_default(at)
            raise KeyNotFound(f"there is no '{key}' at '{where}'", key=str(key), ref=where)
        if not isinstance(content, FilesTable) or not is_managed(content):
            raise NotManaged(f"'{key}' is {content.type_in_words}, not a table of files", table=str(key))
        if at not in (None, self._kernel.formats.default_branch) and content.id is not None:
            horizon = find_horizon(self._kernel.store, content.id)
            managing = self._kernel.formats.find_managing_format(content)
            if horizon is not None and managing is not None and not horizon.drop_erased(managing, content):
                raise horizon.expired_error()
        return content, decode_state(content)

    def _list_files(self, call: files_calls.ListFiles) -> tuple[FileEntry, ...]:
        _, state = self._read_table(call.at, call.key, call.via)
        find = self._list_folder if call.folders else self._list_entries
        return tuple(take_first(find(state, _encode_path(call.prefix), _encode_path(call.after)), call.limit))

    def _list_entries(self, state: FilesState, prefix: bytes, after: bytes) -> Iterator[FileEntry]:
        pool = find_pool(self._lake.warehouse)
        start, stop = max(prefix, after + b"\0" if after else b""), find_prefix_end(prefix)
        if stop is None or start < stop:
            for path, value in tree.scan_entries(self._kernel.objects, state.root, start, stop):
                yield FileEntry.from_file(pool, path.decode(), decode_file(value))

    def _list_folder(self, state: FilesState, prefix: bytes, after: bytes) -> Iterator[FileEntry]:
        """List a folder: its files, and each of its folders as one entry. A folder costs one look into the
        tree, however much is in it."""
        pool, stop = find_pool(self._lake.warehouse), find_prefix_end(prefix)
        start: bytes | None = max(prefix, _list_start(after))
        while start is not None and (stop is None or start < stop):
            scanned, start = tree.scan_entries(self._kernel.objects, state.root, start, stop), None
            for path, value in scanned:
                name, slash, _ = path[len(prefix) :].partition(b"/")
                if slash:
                    folder = prefix + name + slash
                    yield FileEntry(path=folder.decode())
                    start = _list_start(folder)
                    break
                yield FileEntry.from_file(pool, path.decode(), decode_file(value))

    def _get_files(self, call: files_calls.GetFiles) -> tuple[FileEntry, ...]:
        _, state = self._read_table(call.at, call.key, call.via)
        for path in call.file:
            _encode_path(path)
        files = trees.find_files(self._kernel.objects, state.root, dict.fromkeys(call.file))
        pool = find_pool(self._lake.warehouse)
        paths = (path for path in dict.fromkeys(call.file) if path in files)
        return tuple(FileEntry.from_file(pool, path, files[path]) for path in paths)

    def _sum_files(self, call: files_calls.SumFiles) -> FilesTotal:
        _, state = self._read_table(call.at, call.key, call.via)
        if not call.prefix:
            return FilesTotal(files=state.files, size=state.size)
        _encode_path(call.prefix)
        files, size = 0, 0
        for _, file in trees.list_below(self._kernel.objects, state.root, call.prefix):
            files, size = files + 1, size + file.size
        return FilesTotal(files=files, size=size)

    def _describe_table(self, call: files_calls.GetFilesTable) -> FilesTableInfo:
        content, state = self._read_table(call.at, call.key, call.via)
        assert content.id is not None
        return FilesTableInfo(
            key=call.key,
            id=content.id,
            files=state.files,
            size=state.size,
            root=state.root.hex(),
            layout=TableLayout(**msgspec.structs.asdict(state.layout)),
        )

    # -- writing -------------------------------------------------------------------------------------------

    def _write_files(self, call: files_calls.WriteFiles) -> FilesWritten:
        if call.job is not None:
            self._jobs.check_write(call)
        change = Change(call.key, NAME, encode_write(check_write_intent(self._make_intent(call))))
        meta = commit_meta(call.said, call.who, f"write {call.key}")
        if call.job is not None:
            return self._jobs.commit_job(call, change, meta)
        outcome = self._kernel.commit(
            self._lake.get_branch_or_default(call.branch),
            [change],
            meta,
            create_namespaces=call.create,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        return describe_written(self._lake, outcome)

    def _make_intent(self, call: files_calls.WriteFiles) -> WriteIntent:
        find_pool(self._lake.warehouse)  # there is no table of files where there is no place for files
        self._check_folder(call)
        added, put = self._read_file_list(call, call.added), self._read_file_list(call, call.put)
        copied = dict(self._resolve_copied_files(call))
        expected = {path: self._find_expected_name(path, address) for path, address in call.expected.items()}
        for copy in call.copied:
            if copy.source in call.removed and (copy.key, copy.at) == (None, None):
                expected.setdefault(copy.source, copied[copy.path].address)  # what moves is what was there
        layout, now_us = call.layout, self._kernel.clock()
        return WriteIntent(
            replaced=call.replaced,
            removed=call.removed,
            added=tuple((file.path, _make_file(call.folder, file, now_us)) for file in added),
            put=(*((file.path, _make_file(call.folder, file, now_us)) for file in put), *copied.items()),
            when=call.when,
            expected=tuple(expected.items()),
            layout=None if layout is None else FilesLayout(**msgspec.structs.asdict(layout)),
            creates=call.create,
        )

    def _check_folder(self, call: files_calls.WriteFiles) -> None:
        """``InvalidRequest`` for a folder that no writer of this lake was given."""
        folder = call.folder
        if not folder:
            if call.added or call.put:
                raise InvalidRequest(f"the folder of the new files of '{call.key}' is missing in the request")
            return
        day, _, attempt = folder.removesuffix("/").partition("/")
        if not folder.endswith("/") or not _is_date(day[:8]) or day != find_slice(self._lake.id, day[:8]):
            raise InvalidRequest(
                f"{folder!r} is not a folder that this lake assigned to a writer; "
                "begin the write anew, and commit with the folder that it gets"
            )
        require_fence(
            attempt, self._lake.get_branch_or_default(call.branch), call.key, "folder of an attempt"
        )
        if call.job is None:
            self._check_age(call, day[:8])

    def _check_age(self, call: files_calls.WriteFiles, day: str) -> None:
        """``InvalidRequest`` for files that a sweep may soon take for leftovers, or would not look at.

        A job has a time of its own.
        """
        now_us, grace_us = self._kernel.clock(), self._kernel.graces.find_past_grace().data_us
        if day < format_day(now_us - grace_us // 2 - DAY_US):  # of that day, it may have been any time
            raise InvalidRequest(
                f"files of '{call.key}' that were written on {day} are too old to be committed, because a "
                "sweep may remove them at any time; write them again"
            )
        if day > format_day(now_us + DAY_US):
            raise InvalidRequest(
                f"files of '{call.key}' cannot have been written on {day}; check the clock of this machine"
            )

    def _find_expected_name(self, path: str, address: str | None) -> str | None:
        pool = find_pool(self._lake.warehouse)
        if address is not None and not address.startswith(pool):
            raise InvalidRequest(
                f"'{path}' is expected at {address}, which is not in the lake's file storage"
            )
        return None if address is None else address.removeprefix(pool)

    def _read_file_list(
        self, call: files_calls.WriteFiles, files: tuple[NewFile, ...] | ListOfFiles
    ) -> tuple[NewFile, ...]:
        """The new files of a write, read from a list in the pool if the call names one.

        ``InvalidRequest`` if the list does not exist or has other bytes than the call says."""
        if not isinstance(files, ListOfFiles):
            return files
        check_path(files.name)
        if not 0 < files.size <= LIST_MAX_BYTES:
            raise InvalidRequest(
                f"the list of files {files.name!r} must have 1 to {LIST_MAX_BYTES} bytes, got {files.size}"
            )
        place = self._places().open_place(find_pool(self._lake.warehouse))
        data = place.read_range(call.folder + files.name, 0, files.size + 1)
        if data is None or len(data) != files.size or hashlib.sha256(data).digest() != files.sha256:
            raise InvalidRequest(
                f"the list of new files that came with the write to '{call.key}' is missing, or has changed"
            )
        try:
            listed_files = _LISTED.decode(data)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"the list of new files for '{call.key}' that came with the write cannot be read: {problem}"
            ) from None
        if files.files is not None and files.files != hash_of_files(listed_files):
            raise InvalidRequest(
                f"the list of new files that came with the write to '{call.key}' names other files than it"
            )
        return listed_files

    def _resolve_copied_files(self, call: files_calls.WriteFiles) -> Iterator[tuple[str, File]]:
        """Resolve the files to be copied: each new path with the file that is at the source path now."""
        states: dict[tuple[Key, str | None], FilesState] = {}
        paths: set[str] = set()
        for copy in call.copied:
            if copy.path in paths:
                raise InvalidRequest(f"'{copy.path}' is written twice by one request")
            paths.add(copy.path)
            key = call.key if copy.key is None else copy.key
            at = call.branch if copy.at is None else copy.at
            if (key, at) not in states:
                commit = self._lake.resolve_kept_commit(at, self._lake.get_branch_or_default(call.branch))
                states[key, at] = self._read_table(commit.hex(), key, self._lake.get_branch_or_default(at))[1]
            source = {_encode_path(copy.source).decode()}
            file = trees.find_files(self._kernel.objects, states[key, at].root, source).get(copy.source)
            if file is None:
                raise FileNotFound(
                    f"'{key}' has no file at '{copy.source}'", table=str(key), path=copy.source
                )
            yield copy.path, msgspec.structs.replace(file, address=file.address_at(copy.source))


def _encode_path(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the path {text!r} is not valid UTF-8") from None


def _is_date(day: str) -> bool:
    try:
        return datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).strftime("%Y%m%d") == day
    except ValueError:
        return False


def _list_start(after: bytes) -> bytes:
    """The key at which a list continues: after a path, or after everything in a folder."""
    if not after:
        return b""
    return after[:-1] + b"0" if after.endswith(b"/") else after + b"\0"  # 0 comes right after the slash


def _make_file(folder: str, new: NewFile, now_us: int) -> File:
    """What is stored of a new file: of its address only the folder, where it lies there at its own path."""
    if not 0 <= new.modified_us <= TIME_MAX_US or not 0 <= new.size <= SIZE_MAX_BYTES:
        raise InvalidRequest(f"invalid size or checksum of '{new.path}': {new}")
    name = new.name or new.path
    address = folder + name
    if address.endswith(f"/{new.path}"):
        address = address.removesuffix(new.path)
    return File(address, new.size, new.modified_us or now_us, new.checksum)
