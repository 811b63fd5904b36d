"""RocksDB, embedded: one directory, one process, many threads.

Of the key-value family: one atomic batch carries an advance's objects and its row. Writers share a sync of
the write-ahead log: a batch is written under a short lock, and made durable after it, together with all that
other threads wrote meanwhile. What is written and not yet durable is shown to nobody: reading such a row
waits for the sync. So what was acknowledged, and what was read, survives a power cut.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from threading import Condition, Lock
from typing import Any, Final, cast

import rocksdict

from penstock.errors import Damaged, Denied, InvalidRequest, OutcomeUnknown, PenstockError, Unavailable
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.storage.disk_space import NO_ROOM, has_room, storage_full_error
from penstock.stores.lake_directory import PRIVATE_DIRECTORY
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.rocksdb_directory import DATA_DIRECTORY, claim_directory

BLOOM_BITS: Final = 10
WAL_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of the write-ahead log: what opening may have to read again after a crash."""
LOG_FILES_MAX: Final = 5
FAMILIES: Final = ("objects", "times", "rows", "kinds")
"""Objects by id; when each was last stored, and its size, by id; rows by name; their names by kind."""

_TIME = Struct(">QI")
_LAST = b"\xff" * 33
"""Behind every id and name."""

_ANEW: Final = "then open the lake again"
"""Where RocksDB met a disk without room, it writes nothing more until it is opened anew."""


class RocksdbStore(Store):
    """A lake in one directory, which belongs to one process as long as it is open."""

    def __init__(self, path: str | Path, *, create: bool = True, clock: Clock = now_us) -> None:
        self._path = Path(str(path).removeprefix("rocksdb://")).absolute()
        self.url = f"rocksdb://{self._path}"
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._users = 0
        self._unused = Condition(Lock())
        self._lock = Lock()
        """Held for a batch: to compare, and to write without syncing."""
        self._synced, self._is_syncing = Condition(Lock()), False
        self._written = self._durable = 0
        """The numbers of the last batch that was written, and of the last that is durable."""
        self._pending: dict[str, int] = {}
        """Rows that may not be durable yet, and the batch that makes them so."""
        self._sync_problem: PenstockError | None = None
        try:
            claim_directory(self._path, create)
            (self._path / DATA_DIRECTORY).mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        except OSError as problem:
            if problem.errno in NO_ROOM:
                raise storage_full_error(str(self._path), problem) from None
            raise Denied(f"{self._path} cannot be used: {problem.strerror}") from None
        data = self._path / DATA_DIRECTORY
        if data.exists() and not os.access(data, os.W_OK):
            raise Denied(
                f"{self._path} cannot be opened read-only: RocksDB keeps a lock and a log there. Copy the "
                "directory, while no process writes to it, to a location where this process may write.",
                path=str(self._path),
            )
        with self._use_database():
            self._db = rocksdict.Rdict(str(self._path / DATA_DIRECTORY), *_make_options())
            self._objects, self._times, self._rows, self._kinds = self._families = [
                self._db.get_column_family(name) for name in FAMILIES
            ]
            self._handles = {name: self._db.get_column_family_handle(name) for name in FAMILIES}
        _release_after_fork(self)

    @contextmanager
    def _use_database(self) -> Iterator[None]:
        """Use the database, which is not closed meanwhile, and turn its errors into ours."""
        if os.getpid() != self._process:
            raise InvalidRequest("a lake cannot be used across a fork; open it again in the child process")
        with self._unused:
            if self._closed:
                raise InvalidRequest(f"{self._path} was closed; open the lake again")
            self._users += 1
        try:
            yield
        except Exception as problem:
            if type(problem) is not Exception:  # which is what all of the library's errors are
                raise
            raise self._explain_database_error(problem) from problem
        finally:
            with self._unused:
                self._users -= 1
                self._unused.notify_all()

    def _explain_database_error(self, problem: Exception) -> PenstockError:
        text = str(problem)
        if "lock hold by current process" in text:
            return InvalidRequest(f"{self._path} is already open in this process; use that lake, or close it")
        if "While lock file" in text:
            return Unavailable(
                f"{self._path} is in use by another process, but a lake in RocksDB can be open in one "
                "process only. Close it there; for several processes, copy the lake to a store that they "
                "can share."
            )
        if text.startswith("Corruption"):
            return Damaged(f"{self._path} is damaged: {text}", path=str(self._path))
        if "Permission denied" in text:
            return Denied(f"{self._path} cannot be used: {text}")
        if not has_room(self._path):
            return storage_full_error(str(self._path), text, _ANEW, path=str(self._path))
        return Unavailable(f"{self._path} cannot be used: {text}")

    @property
    def has_room(self) -> bool:
        return has_room(self._path)

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        with self._use_database():
            return _find_data(self._objects, ids)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        with self._use_database():
            batch = _Batch(self._handles)
            with self._lock:
                self._add_objects(batch, objects, _find_data(self._times, objects))
                number = self._write_batch(batch)
            self._sync_batch(number)

    def _add_objects(
        self, batch: _Batch, objects: Mapping[ObjectId, bytes], known_times: Mapping[ObjectId, bytes]
    ) -> None:
        """Add what is new, and a new time for what is stored already, since its time in ``known_times``."""
        now = self._clock()
        for object_id, data in objects.items():
            if object_id in known_times:
                size = _TIME.unpack(known_times[object_id])[1]
            else:
                size = len(data)
                batch.put("objects", object_id, data)
            batch.put("times", object_id, _TIME.pack(now, size))

    def _write_batch(self, batch: _Batch) -> int:
        """Write a batch, visible at once and not yet durable; its number. The lock is held."""
        # The library syncs with Python's global lock held, which would stop all threads for as long as the
        # disk takes. So nothing is synced here; syncing the log by itself lets go of that lock.
        self._db.write(batch.inner)
        self._written += 1
        return self._written

    def _sync_batch(self, number: int) -> None:
        """Return once a batch is durable. One thread syncs at a time, for all that was written by then."""
        with self._synced:
            self._synced.wait_for(lambda: self._durable >= number or not self._is_syncing)
            if self._durable >= number:
                return
            if self._sync_problem is not None:
                # A disk that failed to sync once may forget what it took, and say that the next sync worked.
                raise self._sync_problem
            self._is_syncing, written = True, self._written
        is_done = False
        try:
            self._db.flush_wal(True)
            is_done = True
        except Exception as problem:
            self._sync_problem = self._unsynced_error(problem)
            raise
        finally:
            with self._synced:
                self._is_syncing = False
                if is_done:
                    self._durable = written
                self._synced.notify_all()

    def _unsynced_error(self, problem: Exception) -> PenstockError:
        """Why nothing more can be written, after what was written could not be made durable."""
        if not has_room(self._path):
            return storage_full_error(str(self._path), f"it could not be synced ({problem})", _ANEW)
        return Unavailable(f"{self._path} could not be synced: {problem}. Open the lake again.")

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:  # noqa: ARG002 - reads are cheap
        yield _RocksdbTurn(self, name, self.reference(name))

    def reference(self, name: str) -> Row | None:
        with self._use_database():
            row = self._read_row(name)
            number = self._pending.get(name)
            if number is not None:
                self._sync_batch(number)
            return row

    def _read_row(self, name: str) -> Row | None:
        stored = self._rows.get(name.encode())
        if stored is None:
            return None
        kind, _, data = stored.partition(b"\0")
        return Row(name, kind.decode(), data)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        rows: list[Row] = []
        start, within = _encode_kind_key(kind, max(after, prefix)), _encode_kind_key(kind, prefix)
        with self._use_database():
            for key in cast("Iterator[bytes]", self._kinds.keys(from_key=start)):
                if len(rows) == limit or not key.startswith(within):
                    break
                name = key[len(kind) + 1 :].decode()
                # The listing is of one moment, the row of a later one: it may be gone by now.
                row = self.reference(name) if name > after else None
                if row is not None and row.kind == kind:
                    rows.append(row)
        return rows

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        objects: list[StoredObject] = []
        with self._use_database():
            for object_id, time in cast("Iterator[tuple[bytes, bytes]]", self._times.items(from_key=after)):
                if object_id == after:
                    continue
                if len(time) != _TIME.size:
                    raise Damaged(f"{self._path} is damaged: object {object_id.hex()} has no time")
                objects.append(StoredObject(object_id, *_TIME.unpack(time)))
                if len(objects) == limit:
                    return objects, object_id
        return objects, b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        with self._use_database():
            batch = _Batch(self._handles)
            with self._lock:
                times = _find_data(self._times, {stored_object.id for stored_object in objects})
                doomed = {
                    stored_object.id
                    for stored_object in objects
                    if _time_us(times.get(stored_object.id)) == stored_object.referenced_us
                }
                for object_id in doomed:
                    batch.delete("objects", object_id)
                    batch.delete("times", object_id)
                number = self._write_batch(batch)
            self._sync_batch(number)
            return len(doomed)

    def scrub(self) -> str:
        """Have all files written anew that hold what was deleted."""
        with self._use_database():
            self._db.flush()
            for family in self._families:
                family.flush()
                family.compact_range(None, None)
        return ""

    def erase(self) -> None:
        with self._use_database():
            batch = _Batch(self._handles)
            for family in FAMILIES:
                batch.delete_all(family)
            with self._lock:
                number = self._write_batch(batch)
            self._sync_batch(number)

    def check(self) -> list[str]:
        with self._use_database():
            errors = self._db.property_int_value("rocksdb.background-errors")
        return [f"RocksDB has reported {errors} background errors since it was opened"] if errors else []

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self._unused:
            self._closed = True
            self._unused.wait_for(lambda: not self._users)
            self._handles.clear()
            for database in (*self._families, self._db):
                # Closing flushes, and what cannot be flushed is in the log: the next to open finds it there.
                with suppress(Exception):
                    database.close()


class _RocksdbTurn(Turn):
    def __init__(self, store: RocksdbStore, name: str, row: Row | None) -> None:
        self._store, self._name, self.row = store, name, row

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store = self._store
        with store._use_database():
            batch = _Batch(store._handles)
            with store._lock:
                known_times = _find_data(store._times, {*objects, *fresh})
                present = frozenset(object_id for object_id in fresh if object_id in known_times)
                is_lost = bool(present) or store._read_row(self._name) != self.row
                if is_lost:
                    number = store._written
                else:
                    store._add_objects(batch, objects, known_times)
                    self._replace_row(batch, row)
                    number = self._write_swap(batch)
            if is_lost:
                store._sync_batch(number)
                return AdvanceResult(False, present)
            try:
                store._sync_batch(number)
            except Exception as problem:
                raise OutcomeUnknown(f"{store._path} failed while committing: {problem}") from problem
            self._forget_pending(number)
            return AdvanceResult(True)

    def _write_swap(self, batch: _Batch) -> int:
        # Pending before it is written: nobody can see the row and not see that it may not be durable.
        self._store._pending[self._name] = self._store._written + 1
        try:
            return self._store._write_batch(batch)
        except Exception as problem:
            raise OutcomeUnknown(f"{self._store._path} failed while committing: {problem}") from problem

    def _forget_pending(self, number: int) -> None:
        with self._store._lock:
            if self._store._pending.get(self._name) == number:
                del self._store._pending[self._name]

    def _replace_row(self, batch: _Batch, row: Row | None) -> None:
        key = self._name.encode()
        if self.row is not None:
            batch.delete("kinds", _encode_kind_key(self.row.kind, self._name))
        if row is None:
            batch.delete("rows", key)
        else:
            batch.put("rows", key, row.kind.encode() + b"\0" + row.data)
            batch.put("kinds", _encode_kind_key(row.kind, self._name), b"")


class _Batch:
    """Changes to several families that happen together or not at all."""

    def __init__(self, families: Mapping[str, rocksdict.ColumnFamily]) -> None:
        self.inner = rocksdict.WriteBatch(raw_mode=True)
        self._families = families

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.inner.put(key, value, self._families[family])

    def delete(self, family: str, key: bytes) -> None:
        self.inner.delete(key, self._families[family])

    def delete_all(self, family: str) -> None:
        self.inner.delete_range(b"", _LAST, self._families[family])


def _find_data(family: rocksdict.Rdict, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
    wanted_ids: list[Any] = list(ids)
    values = family.get(wanted_ids) if wanted_ids else []
    return {
        object_id: value
        for object_id, value in zip(wanted_ids, values or (), strict=True)
        if value is not None
    }


def _encode_kind_key(kind: str, name: str) -> bytes:
    return f"{kind}\0{name}".encode()


def _time_us(time: bytes | None) -> int | None:
    return None if time is None else int(_TIME.unpack(time)[0])


def _make_options() -> tuple[rocksdict.Options, dict[str, rocksdict.Options]]:
    """Of the database, and of each family."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_total_wal_size(WAL_MAX_BYTES)
    options.set_keep_log_file_num(LOG_FILES_MAX)
    table = rocksdict.BlockBasedOptions()
    # Most objects that are written are new, and a filter says so without a read.
    table.set_bloom_filter(BLOOM_BITS, False)
    family = rocksdict.Options(raw_mode=True)
    family.set_block_based_table_factory(table)
    family.set_compression_type(rocksdict.DBCompressionType.lz4())
    return options, dict.fromkeys(FAMILIES, family)


def _release_after_fork(store: RocksdbStore) -> None:
    """Keep a child process from freeing the database that it inherits.

    Freeing waits for RocksDB's threads, which a fork does not take along: the child would never end.
    """
    inherited = weakref.ref(store)

    def keep_databases() -> None:
        store = inherited()
        if store is not None:
            for database in (*store._families, store._db):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))

    os.register_at_fork(after_in_child=keep_databases)
