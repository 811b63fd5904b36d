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
    FilesState,
    Layout,
    check_path,
    day_of,
    decode_file,
    is_managed,
    slice_of,
    state_of,
)
from penstock.formats.files.intents import NAME, WriteIntent, check, encode_write
from penstock.formats.files.lake import calls as files_calls
from penstock.formats.files.lake.answers import FileEntry, FilesAbout, FilesTotal, FilesWritten, TableLayout
from penstock.formats.files.lake.calls import ListOfFiles, NewFile, hash_of_files
from penstock.formats.files.lake.jobs import JobAnswers, describe_written
from penstock.formats.files.lake.pool import pool_of, require_fence
from penstock.kernel import tree
from penstock.kernel.settings import DAY_US
from penstock.kernel.state import prefix_end
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.asked import asked
from penstock.lake.call import Call
from penstock.lake.embedded import Embedded
from penstock.lake.handling import commit_meta, first, inside
from penstock.model.decoders import msgpack_decoder
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.model.references import Kind

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded
    from penstock.storage.places import Places

LIST_MAX_BYTES: Final = 512 * 1024 * 1024
"""Of a file that names new files: some millions of them."""
TIME_MAX_US: Final = 250_000_000_000_000_000
"""What Python can show as a date: some time before the year 9900."""
SIZE_MAX_BYTES: Final = 2**50
_LISTED: Final = msgpack_decoder(tuple[NewFile, ...])


class FilesAnswers:
    """Answers every call of ``calls``."""

    def __init__(self, lake: Embedded, places: Callable[[], Places]) -> None:
        self._lake, self._kernel, self._places = lake, lake.kernel, places
        self._jobs = JobAnswers(lake)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            files_calls.WriteFiles: self._write,
            files_calls.ListFiles: self._list,
            files_calls.GetFiles: self._get,
            files_calls.SumFiles: self._sum,
            files_calls.GetFilesTable: self._about,
            **self._jobs.ways,
        }

    # -- reading -------------------------------------------------------------------------------------------

    def _table(self, at: str | None, key: Key, via: str | None = None) -> tuple[FilesTable, FilesState]:
        content = self._lake.content_at(self._lake.commit_of(at), key)
        if content is None:
            where = via if via is not None else self._lake.or_default(at)
            raise KeyNotFound(f"there is no '{key}' at '{where}'", key=str(key), ref=where)
        if not isinstance(content, FilesTable) or not is_managed(content):
            raise NotManaged(
                f"'{key}' is no table whose files the lake keeps, but a {content.type}", table=str(key)
            )
        if at not in (None, self._kernel.formats.default_branch) and content.id is not None:
            horizon = find_horizon(self._kernel.store, content.id)
            managing = self._kernel.formats.managing(content)
            if horizon is not None and managing is not None and not horizon.retained(managing, content):
                raise horizon.expired()
        return content, state_of(content)

    def _list(self, call: files_calls.ListFiles) -> tuple[FileEntry, ...]:
        _, state = self._table(call.at, call.key, call.via)
        find = self._folded if call.folders else self._entries
        return tuple(first(find(state, _utf8(call.prefix), _utf8(call.after)), call.limit))

    def _entries(self, state: FilesState, prefix: bytes, after: bytes) -> Iterator[FileEntry]:
        pool = pool_of(self._lake.warehouse)
        start, stop = max(prefix, after + b"\0" if after else b""), prefix_end(prefix)
        if stop is None or start < stop:
            for path, value in tree.scan(self._kernel.objects, state.root, start, stop):
                yield FileEntry.of(pool, path.decode(), decode_file(value))

    def _folded(self, state: FilesState, prefix: bytes, after: bytes) -> Iterator[FileEntry]:
        """Files, and folders as one entry each, right below a prefix. A folder costs one look into the tree,
        however much is in it."""
        pool, stop = pool_of(self._lake.warehouse), prefix_end(prefix)
        start: bytes | None = max(prefix, _beyond(after))
        while start is not None and (stop is None or start < stop):
            scanned, start = tree.scan(self._kernel.objects, state.root, start, stop), None
            for path, value in scanned:
                name, slash, _ = path[len(prefix) :].partition(b"/")
                if slash:
                    folder = prefix + name + slash
                    yield FileEntry(path=folder.decode())
                    start = _beyond(folder)
                    break
                yield FileEntry.of(pool, path.decode(), decode_file(value))

    def _get(self, call: files_calls.GetFiles) -> tuple[FileEntry, ...]:
        _, state = self._table(call.at, call.key, call.via)
        for path in call.file:
            _utf8(path)
        found = trees.find(self._kernel.objects, state.root, dict.fromkeys(call.file))
        pool = pool_of(self._lake.warehouse)
        paths = (path for path in dict.fromkeys(call.file) if path in found)
        return tuple(FileEntry.of(pool, path, found[path]) for path in paths)

    def _sum(self, call: files_calls.SumFiles) -> FilesTotal:
        _, state = self._table(call.at, call.key, call.via)
        if not call.prefix:
            return FilesTotal(files=state.files, size=state.size)
        _utf8(call.prefix)
        files, size = 0, 0
        for _, file in trees.below(self._kernel.objects, state.root, call.prefix):
            files, size = files + 1, size + file.size
        return FilesTotal(files=files, size=size)

    def _about(self, call: files_calls.GetFilesTable) -> FilesAbout:
        content, state = self._table(call.at, call.key, call.via)
        assert content.id is not None
        return FilesAbout(
            key=call.key,
            id=content.id,
            files=state.files,
            size=state.size,
            root=state.root.hex(),
            layout=TableLayout(**msgspec.structs.asdict(state.layout)),
        )

    # -- writing -------------------------------------------------------------------------------------------

    def _write(self, call: files_calls.WriteFiles) -> FilesWritten:
        if call.job is not None:
            self._jobs.check_write(call)
        change = Change(call.key, NAME, encode_write(check(self._intent(call))))
        meta = commit_meta(call.said, call.who, f"write {call.key}")
        if call.job is not None:
            return self._jobs.write(call, change, meta)
        outcome = self._kernel.commit(
            self._lake.or_default(call.branch),
            [change],
            meta,
            create_namespaces=call.create,
            key=call.idempotency_key,
            asked=partial(asked, call),
        )
        return describe_written(self._lake, outcome)

    def _intent(self, call: files_calls.WriteFiles) -> WriteIntent:
        pool_of(self._lake.warehouse)  # there is no table of files where there is no place for files
        self._check_folder(call)
        added, put = self._listed(call, call.added), self._listed(call, call.put)
        copied = dict(self._copied(call))
        expected = {path: self._expected(path, one) for path, one in call.expected.items()}
        for one in call.copied:
            if one.source in call.removed and (one.key, one.at) == (None, None):
                expected.setdefault(one.source, copied[one.path].address)  # what moves is what was there
        layout, now_us = call.layout, self._kernel.clock()
        return WriteIntent(
            replaced=call.replaced,
            removed=call.removed,
            added=tuple((one.path, _file(call.folder, one, now_us)) for one in added),
            put=(*((one.path, _file(call.folder, one, now_us)) for one in put), *copied.items()),
            when=call.when,
            expected=tuple(expected.items()),
            layout=None if layout is None else Layout(**msgspec.structs.asdict(layout)),
            creates=call.create,
        )

    def _check_folder(self, call: files_calls.WriteFiles) -> None:
        """``InvalidRequest`` for a folder that no writer of this lake was given."""
        folder = call.folder
        if not folder:
            if call.added or call.put:
                raise InvalidRequest(f"new files of '{call.key}' are in a folder, and none is given")
            return
        day, _, attempt = folder.removesuffix("/").partition("/")
        if not folder.endswith("/") or not _is_date(day[:8]) or day != slice_of(self._lake.id, day[:8]):
            raise InvalidRequest(f"{folder!r} is no folder of this lake's pool")
        require_fence(attempt, self._lake.or_default(call.branch), call.key, "folder of an attempt")
        if call.job is None:
            self._check_age(call, day[:8])

    def _check_age(self, call: files_calls.WriteFiles, day: str) -> None:
        """``InvalidRequest`` for files that a sweep may soon take for leftovers, or would not look at.

        A job has a time of its own.
        """
        now_us, grace_us = self._kernel.clock(), self._kernel.graces.of_the_past().data_us
        if day < day_of(now_us - grace_us // 2 - DAY_US):  # of that day, it may have been any time
            raise InvalidRequest(
                f"files of '{call.key}' that were written on {day} have waited for their commit so long that"
                " they may be swept any time; write them again"
            )
        if day > day_of(now_us + DAY_US):
            raise InvalidRequest(f"files of '{call.key}' cannot have been written on {day}; mind the clock")

    def _expected(self, path: str, address: str | None) -> str | None:
        pool = pool_of(self._lake.warehouse)
        if address is not None and not address.startswith(pool):
            raise InvalidRequest(f"'{path}' is expected at {address}, which is not in the lake's pool")
        return None if address is None else address.removeprefix(pool)

    def _listed(
        self, call: files_calls.WriteFiles, told: tuple[NewFile, ...] | ListOfFiles
    ) -> tuple[NewFile, ...]:
        """New files; ``InvalidRequest`` if a list of them is not there, or not the one that was meant."""
        if not isinstance(told, ListOfFiles):
            return told
        check_path(told.name)
        if not 0 < told.size <= LIST_MAX_BYTES:
            raise InvalidRequest(f"{told.name!r}, of {told.size} bytes, cannot be a list of files")
        place = self._places().at(pool_of(self._lake.warehouse))
        data = place.read_range(call.folder + told.name, 0, told.size + 1)
        if data is None or len(data) != told.size or hashlib.sha256(data).digest() != told.sha256:
            raise InvalidRequest(f"the list of files of '{call.key}' is not there, or is another one")
        try:
            found = _LISTED.decode(data)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(f"the list of files of '{call.key}' cannot be read: {problem}") from None
        if told.files is not None and told.files != hash_of_files(found):
            raise InvalidRequest(f"the list of files of '{call.key}' names other files than the request")
        return found

    def _copied(self, call: files_calls.WriteFiles) -> Iterator[tuple[str, File]]:
        """Files that are to be at other paths too, as they are where they are now."""
        states: dict[tuple[Key, str | None], FilesState] = {}
        paths: set[str] = set()
        for one in call.copied:
            if one.path in paths:
                raise InvalidRequest(f"'{one.path}' is written twice by one request")
            paths.add(one.path)
            key = call.key if one.key is None else one.key
            at = call.branch if one.at is None else one.at
            if (key, at) not in states:
                commit = self._kept_commit(at, self._lake.or_default(call.branch))
                states[key, at] = self._table(commit.hex(), key, self._lake.or_default(at))[1]
            source = {_utf8(one.source).decode()}
            found = trees.find(self._kernel.objects, states[key, at].root, source).get(one.source)
            if found is None:
                raise FileNotFound(f"'{key}' has no file at '{one.source}'", table=str(key), path=one.source)
            yield one.path, msgspec.structs.replace(found, address=found.at(one.source))

    def _kept_commit(self, revision: str | None, branch: str) -> ObjectId:
        """The commit that a revision names, if a sweep surely leaves its files alone, and it is for the
        writers of a branch.

        One that no reference leads to, or that has expired, may still be there, and its files are gone. What
        was written in a transaction may yet never land, so only that takes it.
        """
        commit, reference = self._kernel.resolve(self._lake.or_default(revision))
        if reference is not None and reference.kind is Kind.TRANSACTION and reference.name != branch:
            raise inside(reference.name)
        references = self._kernel.references
        (references.require_reachable if reference is None else references.require_kept)(commit)
        return commit


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{text!r} is no path: it is not UTF-8") from None


def _is_date(day: str) -> bool:
    try:
        return datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).strftime("%Y%m%d") == day
    except ValueError:
        return False


def _beyond(after: bytes) -> bytes:
    """Where a list goes on: after a path, or after all that is in a folder."""
    if not after:
        return b""
    return after[:-1] + b"0" if after.endswith(b"/") else after + b"\0"  # 0 comes right after the slash


def _file(folder: str, new: NewFile, now_us: int) -> File:
    """What is stored of a new file: of its address only the folder, where it lies there at its own path."""
    if not 0 <= new.modified_us <= TIME_MAX_US or not 0 <= new.size <= SIZE_MAX_BYTES:
        raise InvalidRequest(f"what is said of '{new.path}' cannot be: {new}")
    name = new.name or new.path
    address = folder + name
    if address.endswith(f"/{new.path}"):
        address = address.removesuffix(new.path)
    return File(address, new.size, new.modified_us or now_us, new.checksum)
