"""Bare object storage, or a plain directory: a lake without any database.

Of the key-value family: objects first, all at the same time, then one conditional write of the row. An
advance takes two request times, however many objects it brings. What is where:

- ``objects/<id>``: who made it, who stored it last, then the bytes. One key for each object: nothing has to
  be unpacked, repacked or recovered. Storing it again writes the same bytes with another header, so that
  its time moves and its tag changes.
- ``rows/<name>``: the row. A removed row stays as one that says so, because no deletion is conditional.
- ``kinds/<kind>/<name>!<mark>``: a mark, empty, for listing. It is written before the swap that gives the
  name this kind, and named by the row, so a mark that its row does not name means nothing. Removed rows have
  theirs below ``gone/``, where ``tidy`` finds them.
- ``sweep/``: announcements of deletions, see ``penstock.storage.announcements``.
- ``lake``: the version of this layout, and how long a sweeper waits.

A write that got no answer is sent again, the same bytes on the same condition, until there is an answer.
The row says who wrote it, so our own success is known when it is met.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from penstock.errors import (
    Damaged,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.model.clock import Clock, elapsed_s, now_us
from penstock.model.decoders import get_json_decoder, get_msgpack_decoder
from penstock.model.encoding import ObjectId
from penstock.storage.announcements import Announcements, AnnouncementView
from penstock.storage.buckets import (
    Bucket,
    BucketEntry,
    Condition,
    EntityTag,
    TaggedContent,
    UnansweredWrite,
    WriteRefused,
)
from penstock.storage.conditional_writes import check_conditions_are_kept, race_writers
from penstock.storage.local import LocalBucket
from penstock.storage.remote import SCHEMES, RemoteBucket
from penstock.storage.request_loop import RequestLoop
from penstock.stores.lake_directory import PRIVATE_DIRECTORY
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.urls import hide_secrets, parse_options, split_url

LAYOUT_VERSION: Final = 1
ANNOUNCE_WAIT_S: Final = 60.0
"""How long a sweeper waits between announcing and deleting; a single write may not take longer."""
HELD_MAX_S: Final = 8.0
"""How long a write waits for a sweep that is just deleting what is to be written."""
ANSWER_MAX_S: Final = 30.0
"""For how long a write that got no answer is sent again."""
PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 1.0
ROUNDS_MAX: Final = 20
PORTION: Final = 256
"""So many objects are written at the same time."""
REMEMBERED_MAX: Final = 1024

_DESCRIPTION: Final = "lake"
_OBJECTS, _ROWS, _KINDS, _GONE, _SWEEP, _PROBE = "objects", "rows", "kinds", "gone", "sweep", "probe"
_FOLDERS: Final = (_OBJECTS, _ROWS, _KINDS, _GONE, _SWEEP, _PROBE)
_NAME_CHARACTERS: Final = str.maketrans("-./", "()-")
"""No dots and no slashes, in the same order as before; all are safe in keys and in names of files."""
_NAME_BACK: Final = str.maketrans("()-", "-./")
_END: Final = "!"
"""Ends a name within a key; it comes before all that a name can hold, so that names keep their order."""
_HEADER_BYTES: Final = 33

Answer = TypeVar("Answer")


class _StoreDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    penstock: int
    announce_wait_s: float


class _RowBody(msgspec.Struct, frozen=True, array_like=True):
    version: int
    write: bytes
    kind: str | None
    """``None`` says that the row was removed."""
    data: bytes
    mark: str
    """The key of the mark under which it is listed."""


class _RowState(NamedTuple):
    """What is known about a row: its content, and what a swap has to compare."""

    row: Row | None
    tag: EntityTag | None
    mark: str | None


_ABSENT: Final = _RowState(None, None, None)


class ObjectStore(Store):
    """A lake in a bucket: ``s3://bucket/prefix``, ``gs://…``, ``az://…`` or ``file:///path``."""

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        clock: Clock = now_us,  # noqa: ARG002 - the storage's own times are better
        announce_wait_s: float = ANNOUNCE_WAIT_S,
        bucket: Bucket | None = None,
    ) -> None:
        self._bucket = bucket if bucket is not None else open_bucket(url)
        self.url = self._bucket.url
        self._process, self._closed = os.getpid(), False
        self._remembered: OrderedDict[str, _RowState] = OrderedDict()
        self._remembering = Lock()
        self._loop = RequestLoop()
        try:
            wait_s = self._loop.run_coroutine(self._create_or_check_lake(create, announce_wait_s))
        except BaseException:
            self.close()
            raise
        self._announcements = Announcements(self._bucket, wait_s)
        self.resolution_us = self._bucket.resolution_us

    @property
    def is_read_only(self) -> bool:
        return self._bucket.is_read_only

    # Opening

    async def _create_or_check_lake(self, create: bool, announce_wait_s: float) -> float:
        """See that there is a lake, made by whoever comes first, on storage that keeps its conditions."""
        content = await self._bucket.get(_DESCRIPTION)
        if content is None:
            if not create:
                raise LakeNotFound(
                    f"there is no lake at {self.url}; make one with: penstock init '{self.url}'", url=self.url
                )
            await self._check_empty()
            if not await check_conditions_are_kept(self._bucket):
                raise self._unsafe_error()
            description = _StoreDescription(penstock=LAYOUT_VERSION, announce_wait_s=announce_wait_s)
            content = await self._write_description(msgspec.json.encode(description))
        elif await self._is_written_over(content):
            raise self._unsafe_error()
        return self._read_description(content).announce_wait_s

    async def _write_description(self, data: bytes) -> TaggedContent:
        for pause_s in _make_backoff_pauses():
            with suppress(WriteRefused, UnansweredWrite):
                await self._bucket.put(_DESCRIPTION, data, "absent")
            content = await self._bucket.get(_DESCRIPTION)
            if content is not None:
                return content
            await asyncio.sleep(pause_s)
        raise Unavailable(f"{self.url} does not answer", url=self.url)

    def _read_description(self, content: TaggedContent) -> _StoreDescription:
        try:
            version = get_json_decoder(dict[str, Any]).decode(content.data)["penstock"]
            if version <= LAYOUT_VERSION:
                return get_json_decoder(_StoreDescription).decode(content.data)
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
            raise InvalidRequest(f"{self.url} is not empty, but contains no lake", url=self.url) from None
        raise UnsupportedFormat(
            f"{self.url} has layout version {version}; this Penstock reads versions up to {LAYOUT_VERSION}. "
            "Use a newer Penstock.",
            found=version,
            known=LAYOUT_VERSION,
        )

    async def _check_empty(self) -> None:
        async for entry in self._bucket.list(""):
            if entry.key.partition("/")[0] == _PROBE:
                continue
            if await self._bucket.get(_DESCRIPTION) is None:  # else somebody was faster
                raise InvalidRequest(
                    f"{self.url} is not empty and contains no lake; choose an empty location", url=self.url
                )
            return

    async def _is_written_over(self, content: TaggedContent) -> bool:
        """Whether a write goes through that must be refused; it would change nothing."""
        try:
            await self._bucket.put(_DESCRIPTION, content.data, "absent")
        except (WriteRefused, UnansweredWrite, Denied):  # who may only read cannot do harm
            return False
        return True

    def check(self) -> list[str]:
        """Race the storage; it is the only thing that a bucket can be found wrong about."""
        return self._run_coroutine(race_writers(self._bucket))

    def _unsafe_error(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.url} does not support conditional writes (If-None-Match, If-Match), so a lake there "
            "would lose commits. Use storage that supports them.",
            url=self.url,
        )

    def close(self) -> None:
        self._closed = True
        if os.getpid() != self._process:
            return
        self._loop.close()
        self._bucket.close()

    def _run_coroutine(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            if self._closed:
                raise InvalidRequest(f"{self.url} was closed; open the lake again")
            if os.getpid() != self._process:
                raise InvalidRequest(
                    "a lake cannot be used across a fork; open it again in the child process"
                )
        except BaseException:
            work.close()
            raise
        return self._loop.run_coroutine(work)

    # Objects

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        return self._run_coroutine(self._fetch_objects(list(dict.fromkeys(ids))))

    async def _fetch_objects(self, ids: list[ObjectId]) -> dict[ObjectId, bytes]:
        contents = await asyncio.gather(
            *(self._bucket.get(_encode_object_key(object_id)) for object_id in ids)
        )
        return {
            object_id: self._split_object(object_id, content)[1]
            for object_id, content in zip(ids, contents, strict=True)
            if content is not None
        }

    def _split_object(self, object_id: ObjectId, content: TaggedContent) -> tuple[bytes, bytes]:
        """An object's header and its bytes."""
        if len(content.data) < _HEADER_BYTES or content.data[0] != LAYOUT_VERSION:
            raise Damaged(
                f"{_encode_object_key(object_id)} in {self.url} cannot be read", object=object_id.hex()
            )
        return content.data[:_HEADER_BYTES], content.data[_HEADER_BYTES:]

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._run_coroutine(self._store_objects(objects))

    async def _store_objects(self, objects: Mapping[ObjectId, bytes]) -> None:
        if objects:
            writing = _ObjectWriting(self, objects, frozenset())
            await writing.store_objects_and_mark()

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        return self._run_coroutine(self._scan_objects(after, limit))

    async def _scan_objects(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        objects: list[StoredObject] = []
        async for entry in self._bucket.list(_OBJECTS, _encode_object_key(ObjectId(after)) if after else ""):
            object_id = _decode_object_id(entry.key)
            if object_id is not None:
                objects.append(StoredObject(object_id, entry.modified_us, entry.size - _HEADER_BYTES))
            if len(objects) == limit:
                return objects, objects[-1].id
        return objects, b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        return self._run_coroutine(
            self._delete_objects(
                {
                    _encode_object_key(stored_object.id): stored_object.referenced_us
                    for stored_object in objects
                }
            )
        )

    async def _delete_objects(self, times_us: dict[str, int]) -> int:
        seen = await self._read_heads(times_us)
        tags = {key: entry.tag for key, entry in seen.items() if entry.modified_us == times_us[key]}
        if not tags:
            return 0

        async def list_unchanged(keys: Sequence[str]) -> list[str]:
            return [key for key, entry in (await self._read_heads(keys)).items() if entry.tag == tags[key]]

        return await self._announcements.remove_keys(list(tags), list_unchanged)

    async def _read_heads(self, keys: Collection[str]) -> dict[str, BucketEntry]:
        entries = await asyncio.gather(*map(self._bucket.head, keys))
        return {key: entry for key, entry in zip(keys, entries, strict=True) if entry is not None}

    # Rows

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        if remembered is not None:
            yield _ObjectTurn(self, name, remembered, None)
        else:
            state = self._run_coroutine(self._begin_turn(name))
            yield _ObjectTurn(self, name, state.row, state)

    async def _begin_turn(self, name: str) -> _RowState:
        """Read the row, and at the same time the announcements that its swap will need."""
        state, _ = await asyncio.gather(
            self._read_state(name), self._announcements.read_view_if_older(self._view_age_s)
        )
        self._remember_state(name, state)
        return state

    @property
    def _view_age_s(self) -> float:
        return self._announcements.wait_s / 2

    def _recall_state(self, name: str) -> _RowState | None:
        with self._remembering:
            return self._remembered.get(name)

    def _remember_state(self, name: str, state: _RowState | None) -> None:
        with self._remembering:
            self._remembered.pop(name, None)
            if state is not None:
                self._remembered[name] = state
                if len(self._remembered) > REMEMBERED_MAX:
                    self._remembered.popitem(last=False)

    async def _read_state(self, name: str) -> _RowState:
        content = await self._bucket.get(_encode_row_key(name))
        return _ABSENT if content is None else self._decode_row(name, content)[1]

    def _decode_row(self, name: str, content: TaggedContent) -> tuple[bytes, _RowState]:
        """Who wrote a row, and what it is."""
        try:
            body = get_msgpack_decoder(_RowBody).decode(content.data)
        except msgspec.MsgspecError:
            raise Damaged(f"the row of '{name}' in {self.url} cannot be read", name=name) from None
        row = None if body.kind is None else Row(name, body.kind, body.data)
        return body.write, _RowState(row, content.tag, body.mark)

    def reference(self, name: str) -> Row | None:
        return self._run_coroutine(self._read_state(name)).row

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        return self._run_coroutine(self._list_rows(kind, prefix, after, limit))

    async def _list_rows(self, kind: str, prefix: str, after: str, limit: int) -> list[Row]:
        rows: list[Row] = []
        names = self._list_names(kind, prefix, after)
        while len(rows) < limit:
            # A name may have a mark without being of that kind any more, so that some more are needed.
            part = [name async for name in _take_first(names, limit - len(rows))]
            if not part:
                break
            states = await asyncio.gather(*map(self._read_state, part))
            rows += [state.row for state in states if state.row is not None and state.row.kind == kind]
        return rows

    async def _list_names(self, kind: str, prefix: str, after: str) -> AsyncIterator[str]:
        """Names that have a mark of a kind, each once."""
        folder = f"{_KINDS}/{kind}/"
        path = folder + prefix.translate(_NAME_CHARACTERS)
        beyond = f"{folder}{after.translate(_NAME_CHARACTERS)}{_END}~" if after else ""
        previous = ""
        async for entry in self._bucket.list(folder.rstrip("/"), max(beyond, path)):
            if not entry.key.startswith(path):
                if entry.key > path:
                    return
                continue
            name = _decode_marked_name(entry.key)
            if name != previous:
                previous = name
                yield name

    # Clearing up

    def tidy(self, before_us: int) -> int:
        return self._run_coroutine(self._remove_old_marks(before_us))

    async def _remove_old_marks(self, before_us: int) -> int:
        """Remove marks that no row names, and rows that were removed, if they are that old."""
        marks = [
            entry.key
            for folder in (_KINDS, _GONE)
            async for entry in self._bucket.list(folder)
            if entry.modified_us < before_us
        ]
        unnamed, expired_marks = await self._find_needless(marks)
        removed = await self._bucket.tidy(before_us)
        if not unnamed and not expired_marks:
            return removed

        async def list_still_needless(keys: Sequence[str]) -> list[str]:
            rows = await self._read_heads([key for key in keys if key in expired_marks])
            same = [key for key, entry in rows.items() if entry.tag == expired_marks[key]]
            again, _ = await self._find_needless([key for key in keys if key not in expired_marks])
            return [*same, *again]

        # Rows before their marks: a mark without a row is found again, a row without a mark is not.
        removed += await self._announcements.remove_keys([*expired_marks, *unnamed], list_still_needless)
        orphaned, _ = await self._find_needless([mark for mark in marks if mark not in unnamed])
        if orphaned:
            # Of rows that were deleted just now: nobody can name them any more.
            with suppress(UnansweredWrite):
                await self._bucket.delete(orphaned)
                removed += len(orphaned)
        return removed

    async def _find_needless(self, marks: Sequence[str]) -> tuple[list[str], dict[str, EntityTag]]:
        """Of some marks, those that their rows do not name; and the rows that say they were removed."""
        states = await asyncio.gather(*(self._read_state(_decode_marked_name(mark)) for mark in marks))
        unnamed = [mark for mark, state in zip(marks, states, strict=True) if state.mark != mark]
        expired_marks = {
            _encode_row_key(_decode_marked_name(mark)): state.tag
            for mark, state in zip(marks, states, strict=True)
            if state.mark == mark and state.row is None and state.tag is not None
        }
        return unnamed, expired_marks

    def scrub(self) -> str:
        return (
            ""
            if self.url.startswith("file:")
            else "A bucket with versioning still has the old versions of deleted objects."
        )

    def erase(self) -> None:
        self._run_coroutine(self._erase_everything())

    async def _erase_everything(self) -> None:
        for folder in _FOLDERS:
            try:
                await self._bucket.delete([entry.key async for entry in self._bucket.list(folder)])
            except UnansweredWrite as problem:
                raise Unavailable(str(problem), url=self.url) from None


class _ObjectTurn(Turn):
    """The state of a row that the caller remembers is looked up when it is swapped."""

    def __init__(self, store: ObjectStore, name: str, row: Row | None, state: _RowState | None) -> None:
        self._store, self._name, self._state = store, name, state
        self.row, self.is_certain = row, state is not None

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store, writing = self._store, _ObjectWriting(self._store, objects, frozenset(fresh))
        present = store._run_coroutine(writing.write_objects(self._name, self.row, self._state, row))
        if present:
            return AdvanceResult(False, present)
        self.written()
        return AdvanceResult(
            store._run_coroutine(writing.replace_row(self._name, self.row, self._state, row))
        )


class _ObjectWriting:
    """One call that writes: some objects, and perhaps a row. All it writes carries its id."""

    def __init__(
        self, store: ObjectStore, objects: Mapping[ObjectId, bytes], fresh: frozenset[ObjectId]
    ) -> None:
        self._store, self._bucket = store, store._bucket
        self._announcements, self._wait_s = store._announcements, store._announcements.wait_s
        self._objects, self._fresh = objects, fresh
        self._id = secrets.token_bytes(16)
        self._present: set[ObjectId] = set()
        self._mark: str | None = None
        self._new_mark: str | None = None
        self._marked_s = 0.0

    async def store_objects_and_mark(self, mark: str | None = None) -> None:
        """Write all objects, and a mark, so that no sweep under way can take them."""
        items = list(self._objects.items())
        starts = range(0, max(len(items), 1), PORTION)
        for start in starts:
            await self._store_portion(
                dict(items[start : start + PORTION]), mark if start == starts[-1] else None
            )

    async def _store_portion(self, objects: dict[ObjectId, bytes], mark: str | None) -> None:
        """Write what can be under way at the same time, and again what came too late to count."""
        for number in range(ROUNDS_MAX):
            view = await self._announcements.read_view_if_older(self._store._view_age_s)
            if number > 0 and not view.keys.isdisjoint(map(_encode_object_key, objects)):
                view = await self._announcements.wait_until_free(
                    [_encode_object_key(object_id) for object_id in objects], HELD_MAX_S
                )
            late = await self._write_once(objects, mark, view)
            if not late:
                return
            objects, mark = late, None
        raise Unavailable(
            f"{self._store.url} is too slow: writes took over {self._wait_s:g} s, {ROUNDS_MAX} times",
            url=self._store.url,
        )

    async def _write_once(
        self, objects: dict[ObjectId, bytes], mark: str | None, view: AnnouncementView
    ) -> dict[ObjectId, bytes]:
        """Write all at the same time; give those that do not count, because a sweep may not have seen it."""
        stamp = secrets.token_bytes(16)
        answered_s: dict[ObjectId, float] = {}
        work = [self._put_object(object_id, data, stamp, answered_s) for object_id, data in objects.items()]
        if mark is not None:
            self._marked_s = elapsed_s()
            work.append(self._put_until_answered(mark, b""))
        if self._announcements.latest_view(self._wait_s / 4) is None:
            # For the swap and for who comes next, while this is waiting anyway.
            work.append(self._read_ahead())
        await _run_all(work)
        good_until_s = view.taken_s + self._wait_s
        late = {object_id for object_id, time_s in answered_s.items() if time_s >= good_until_s}
        held = (
            {object_id for object_id in objects if _encode_object_key(object_id) in view.keys}
            if view.keys
            else set()
        )
        if held and not await self._announcements.were_written_before_view(
            view, set(map(_encode_object_key, held))
        ):
            late |= held
        return {object_id: objects[object_id] for object_id in late - self._present}

    async def _read_ahead(self) -> None:
        with suppress(Unavailable):
            await self._announcements.read_view_if_older(self._wait_s / 4)

    async def _put_object(
        self, object_id: ObjectId, data: bytes, stamp: bytes, answered_s: dict[ObjectId, float]
    ) -> None:
        await self._make_or_renew(object_id, data, stamp)
        answered_s[object_id] = elapsed_s()

    async def _make_or_renew(self, object_id: ObjectId, data: bytes, stamp: bytes) -> None:
        """Make an object, or mark it as just stored; note a fresh one that somebody else made."""
        key, seen = _encode_object_key(object_id), None
        for pause_s in _make_backoff_pauses():
            try:
                await self._bucket.put(key, _encode_header(self._id, stamp) + data, "absent")
                return
            except UnansweredWrite:
                await asyncio.sleep(pause_s)
                continue
            except WriteRefused:
                content = await self._bucket.get(key)
            if content is None:
                continue
            header, stored = self._store._split_object(object_id, content)
            writer_id, last_stamp = header[1:17], header[17:]
            if object_id in self._fresh and writer_id != self._id:
                self._present.add(object_id)
                return
            if last_stamp == stamp or (seen is not None and last_stamp != seen):
                return  # stored by this very call, or by another that came in between
            seen = last_stamp
            with suppress(WriteRefused, UnansweredWrite):
                await self._bucket.put(key, _encode_header(writer_id, stamp) + stored, content.tag)
                return
        raise Unavailable(f"{self._store.url} does not answer", url=self._store.url)

    async def _put_until_answered(self, key: str, data: bytes) -> None:
        for pause_s in _make_backoff_pauses():
            try:
                await self._bucket.put(key, data)
                return
            except UnansweredWrite:
                await asyncio.sleep(pause_s)
        raise Unavailable(f"{self._store.url} does not answer", url=self._store.url)

    async def write_objects(
        self, name: str, before: Row | None, state: _RowState | None, row: Row | None
    ) -> frozenset[ObjectId]:
        """Write the objects, and the mark of a row that gets another kind; say which were there already."""
        is_there = state is None or state.tag is not None
        is_marked = state is None or state.mark is not None
        if (row is not None or is_there) and not (
            is_marked and _find_row_kind(row) == _find_row_kind(before)
        ):
            self._new_mark = _encode_mark_key(_find_row_kind(row), name)
        await self.store_objects_and_mark(self._new_mark)
        if self._present:
            await self._delete_mark(self._new_mark)
        return frozenset(self._present)

    async def replace_row(
        self, name: str, before: Row | None, state: _RowState | None, row: Row | None
    ) -> bool:
        """Replace the row if it is still what it was before."""
        store = self._store
        if state is None:
            state = store._recall_state(name)
            if state is None or state.row != before:
                state = await store._read_state(name)
        if state.row != before:
            await self._delete_mark(self._new_mark)
            return False
        if row is None and state.tag is None:  # what is not there need not be removed
            return (await store._read_state(name)).row is None
        self._mark = self._new_mark or state.mark
        store._remember_state(name, None)
        tag = await self._swap_row(name, state, row)
        if tag is None:
            await self._delete_mark(self._new_mark)
            return False
        store._remember_state(name, _RowState(row, tag, self._mark))
        if self._new_mark is not None:
            await self._delete_mark(state.mark)
        return True

    def _encode_row(self, row: Row | None) -> bytes:
        assert self._mark is not None
        kind, data = (row.kind, row.data) if row is not None else (None, b"")
        return msgspec.msgpack.encode(_RowBody(LAYOUT_VERSION, self._id, kind, data, self._mark))

    async def _delete_mark(self, mark: str | None) -> None:
        """Delete a mark that no row names nor ever will; if that fails, ``tidy`` finds it."""
        if mark is not None:
            with suppress(UnansweredWrite, PenstockError):
                await self._bucket.delete([mark])

    async def _swap_row(self, name: str, state: _RowState, row: Row | None) -> EntityTag | None:
        """Replace the row and give its new tag, ``None`` if another was faster."""
        key = _encode_row_key(name)
        condition: Condition = "absent" if state.tag is None else state.tag
        in_doubt = False
        try:
            for pause_s in _make_backoff_pauses():
                view = await self._announcements.read_view_if_older(self._store._view_age_s)
                if key in view.keys:
                    view = await self._announcements.wait_until_free([key], HELD_MAX_S)
                if self._is_mark_old(view):
                    if in_doubt:
                        break
                    await self._mark_anew(name, row)
                try:
                    async with asyncio.timeout(view.taken_s + self._wait_s - elapsed_s()):
                        return await self._bucket.put(key, self._encode_row(row), condition)
                except WriteRefused:
                    return await self._look_who(name, in_doubt)
                except (UnansweredWrite, TimeoutError):
                    in_doubt = True
                await asyncio.sleep(pause_s)
        except PenstockError as problem:
            if not in_doubt:
                raise
            raise self._unknown_outcome_error(name, problem.message) from None
        except asyncio.CancelledError:
            raise self._unknown_outcome_error(name, "the lake was closed during the write") from None
        raise self._unknown_outcome_error(name, "the bucket does not answer")

    def _is_mark_old(self, view: AnnouncementView) -> bool:
        """Whether a new mark waited for its row for so long that it may be taken for one left behind.

        Sooner than that nobody can have deleted it, and who announces it later looks at the row later.
        """
        if self._new_mark is None:
            return False
        return self._new_mark in view.keys or elapsed_s() > self._marked_s + self._wait_s

    async def _mark_anew(self, name: str, row: Row | None) -> None:
        await self._delete_mark(self._new_mark)
        self._mark = self._new_mark = _encode_mark_key(row.kind if row is not None else None, name)
        self._marked_s = elapsed_s()
        await self._put_until_answered(self._new_mark, b"")

    async def _look_who(self, name: str, in_doubt: bool) -> EntityTag | None:
        """After a refusal: the row may be ours, sent before and never acknowledged."""
        content = await self._bucket.get(_encode_row_key(name))
        if content is not None and self._store._decode_row(name, content)[0] == self._id:
            return content.tag
        if in_doubt:
            raise self._unknown_outcome_error(name, "the row was replaced since")
        return None

    def _unknown_outcome_error(self, name: str, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._store.url} did not confirm whether '{name}' was replaced: {why}", name=name
        )


def open_bucket(url: str) -> Bucket:
    """The bucket or directory behind a URL."""
    parts = split_url(url)
    shown = hide_secrets(url)
    if parts.scheme == "file":
        parse_options(url)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequest(f"{shown} names a file on another host")
        return LocalBucket(unquote(parts.path), folders_mode=PRIVATE_DIRECTORY)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise InvalidRequest(f"{shown} is not a bucket; write s3://bucket/prefix, gs://… or az://…")
    if "@" in parts.netloc:
        raise InvalidRequest(f"{shown}: an address must not contain access keys; set them in the environment")
    given_options = (
        parse_options(url, "endpoint", "region") if parts.scheme == "s3" else parse_options(url, "endpoint")
    )
    return RemoteBucket(
        shown,
        parts.scheme,
        parts.netloc,
        parts.path.strip("/"),
        endpoint=given_options.get("endpoint"),
        region=given_options.get("region"),
    )


def _make_backoff_pauses() -> Iterator[float]:
    """The pauses between tries, longer and longer, until it has taken too long."""
    deadline_s = elapsed_s() + ANSWER_MAX_S
    for number in count():
        yield min(PAUSE_MIN_S * 2**number, PAUSE_MAX_S)
        if elapsed_s() > deadline_s:
            return


async def _take_first(items: AsyncIterator[Answer], limit: int) -> AsyncIterator[Answer]:
    """The next few of them; the rest can be asked for later."""
    for _ in range(limit):
        try:
            yield await anext(items)
        except StopAsyncIteration:
            return


async def _run_all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at the same time; the first error counts once everything has ended."""
    for answer in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


def _encode_header(writer_id: bytes, last_stamp: bytes) -> bytes:
    return bytes([LAYOUT_VERSION]) + writer_id + last_stamp


def _find_row_kind(row: Row | None) -> str | None:
    return row.kind if row is not None else None


def _encode_object_key(object_id: ObjectId) -> str:
    text = object_id.hex()
    return f"{_OBJECTS}/{text[:2]}/{text[2:]}"


def _decode_object_id(key: str) -> ObjectId | None:
    try:
        object_id = bytes.fromhex("".join(key.split("/")[-2:]))
    except ValueError:
        return None
    return ObjectId(object_id) if len(object_id) == 32 else None


def _encode_row_key(name: str) -> str:
    return f"{_ROWS}/{name.translate(_NAME_CHARACTERS)}"


def _encode_mark_key(kind: str | None, name: str) -> str:
    folder = _GONE if kind is None else f"{_KINDS}/{kind}"
    return f"{folder}/{name.translate(_NAME_CHARACTERS)}{_END}{secrets.token_hex(16)}"


def _decode_marked_name(key: str) -> str:
    return key.rpartition("/")[2].partition(_END)[0].translate(_NAME_BACK)
