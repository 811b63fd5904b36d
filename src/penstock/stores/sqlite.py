"""SQLite, the embedded default: one file, no server, many threads and processes.

Of the transactional family: one ``BEGIN IMMEDIATE`` takes the write lock before a batch is applied, so a
swap is never lost. Write-ahead log with ``synchronous=FULL``: what was acknowledged survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

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
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.storage.disk_space import NO_ROOM, has_room, storage_full_error
from penstock.stores.lake_directory import PRIVATE_FILE
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.sqlite_reader import ReadOnlyFile, is_read_only

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x50454E53  # "PENS"
BUSY_TIMEOUT_S: Final = 5.0
LOOK_EVERY_S: Final = 1.0
"""How often a reader looks whether the file is still there; a writer always does."""
CHECKPOINT_PAGES: Final = 8000
PARAMETERS_MAX: Final = 500

# Rows are appended in the order of `seq`; only the index on `id` is written at random places. A table
# ordered by `id` itself took three times as long per batch, because every object dirtied a page of its own.
_SCHEMA = """
CREATE TABLE objects (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    referenced_us INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE refs (name TEXT PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX refs_by_kind ON refs (kind, name);
"""

ROWS_MAX: Final = 256
_INSERT = {
    rows: "INSERT INTO objects (id, referenced_us, data) VALUES "
    + ", ".join(["(?, ?, ?)"] * rows)
    + " ON CONFLICT (id) DO UPDATE SET referenced_us = excluded.referenced_us"
    for rows in (1, 4, 16, 64, ROWS_MAX)
}


def _identify_file(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; ``None`` if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


class SqliteStore(Store):
    """A lake in one SQLite file."""

    batch_max_bytes = 16 * 1024 * 1024
    # Ids are all over their index: a batch of 4 MB writes most of its pages, and so does the next one.

    def __init__(
        self, path: str | Path, *, create: bool = True, synchronous: str = "FULL", clock: Clock = now_us
    ) -> None:
        self._path = Path(path).absolute()
        self.url = f"sqlite://{self._path}"
        self._clock = clock
        self._synchronous = synchronous
        self._process = os.getpid()
        self._closed = False
        self._write_lock = Lock()
        self._readers: list[sqlite3.Connection] = []
        if not self._path.exists():
            if not create:
                raise self._not_found_error()
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # SQLite gives what it makes beside it the same mode.
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
            except OSError as problem:
                if problem.errno in NO_ROOM:
                    raise storage_full_error(str(self._path.parent), problem) from None
                raise Denied(f"cannot create {problem.filename}: {problem.strerror}") from None
        elif not os.access(self._path, os.R_OK):
            raise Denied(
                f"the lake at {self._path.parent} cannot be opened: this process has no permission to read "
                "it",
                path=str(self._path),
            )
        self._file = _identify_file(self._path)
        self._looked_s = time.monotonic()
        self._frozen = ReadOnlyFile(self._path, BUSY_TIMEOUT_S) if self._is_writable_by_others() else None
        with self._explain_errors():
            if self._frozen is not None:
                self._require_schema(self._frozen.run_read(self._check_version))
                return
            self._writer = self._open_connection()
            try:
                self._file = _identify_file(self._path)
                self._create_schema(create)
            except BaseException:
                self._writer.close()
                raise

    @property
    def is_read_only(self) -> bool:
        return self._frozen is not None

    @property
    def has_room(self) -> bool:
        return has_room(self._path.parent)

    def require_writable(self) -> None:
        if self._frozen is not None:
            raise Denied(
                f"the lake at {self._path.parent} is read-only: this process has no permission to write to "
                f"{self._path.name} or its directory. Nothing was changed.",
                path=str(self._path),
            )

    def _is_writable_by_others(self) -> bool:
        """Whether there is a database, and it is for others to write to."""
        return self._file is not None and is_read_only(self._path)

    def _not_found_error(self) -> LakeNotFound:
        return LakeNotFound(f"there is no lake at {self._path.parent}", path=str(self._path))

    def _open_connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            connection.execute("PRAGMA cache_size=-32768")
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_schema(self, create: bool) -> None:
        """Create the schema, once, whoever comes first; refuse what is not ours or too new."""
        version = self._check_version(self._writer)
        if not create:
            self._require_schema(version)
        self._use_write_ahead_log()
        if version == 0:
            with self._write_lock, self._begin_transaction() as connection:
                if self._check_version(connection) == 0:
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                connection.execute("COMMIT")

    def _require_schema(self, version: int) -> None:
        if version == 0:  # nothing was written to it yet
            raise self._not_found_error()

    def _use_write_ahead_log(self) -> None:
        """Another process that is just making the lake may be in the way, and SQLite does not wait here."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while self._run_pragma("journal_mode") != "wal":
            try:
                self._run_pragma("journal_mode=WAL")
            except sqlite3.OperationalError as problem:
                if _get_error_code(problem) == sqlite3.SQLITE_FULL or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _run_pragma(self, text: str) -> Any:
        return _run_pragma(self._writer, text)

    def _check_version(self, connection: sqlite3.Connection) -> int:
        """The schema's version, 0 of a new file; another program's database is left as it is."""
        version: int = _run_pragma(connection, "user_version")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (version or tables) and _run_pragma(connection, "application_id") != APPLICATION_ID:
            raise InvalidRequest(f"{self._path} is a SQLite database, but not a lake")
        if version > SCHEMA_VERSION:
            raise UnsupportedFormat(
                f"{self._path} has schema version {version}; this Penstock reads versions up to "
                f"{SCHEMA_VERSION}. Use a newer Penstock.",
                found=version,
                known=SCHEMA_VERSION,
            )
        return version

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as problem:
            raise self._explain_sqlite_error(problem) from problem
        except UnicodeDecodeError as problem:  # SQLite's own message, made of a damaged schema
            raise self._damaged_error(str(problem)) from problem

    def _damaged_error(self, subject: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {subject}", path=str(self._path))

    def _explain_sqlite_error(self, problem: sqlite3.Error) -> PenstockError:
        code = _get_error_code(problem)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(
                f"{self._path} was in use by another process for more than {BUSY_TIMEOUT_S:g} s"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged_error(str(problem))
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return Denied(f"the lake's database {self._path} cannot be written: {problem}")
        # SQLite makes files beside its own. If it cannot, it does not say that there is no room for them.
        is_about_files = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
        if code == sqlite3.SQLITE_FULL or (is_about_files and not has_room(self._path.parent)):
            return storage_full_error(str(self._path), str(problem), path=str(self._path))
        return Unavailable(f"the lake's database {self._path} cannot be used: {problem}")

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"{self._path} was closed; open the lake again")
        if os.getpid() != self._process:
            raise InvalidRequest("a lake cannot be used across a fork; open it again in the child process")

    def _check_there(self) -> None:
        """Refuse to go on with a file that was removed, or replaced, while it was open.

        SQLite would: commits would be acknowledged that are gone when the last process ends.
        """
        self._looked_s = time.monotonic()
        if self._file is None or _identify_file(self._path) != self._file:
            raise Unavailable(
                f"{self._path} was removed or replaced while it was open; put it back. If what is "
                "there now was put there on purpose, open the lake again: it then has the content of "
                "that file."
            )

    def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What ``work`` reads. It may be asked again, if this process may only read."""
        self._check_open()
        if time.monotonic() - self._looked_s > LOOK_EVERY_S:
            self._check_there()
        with self._explain_errors():
            if self._frozen is not None:
                return self._frozen.run_read(work)
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._open_connection()
            try:
                return work(connection)
            finally:
                if self._closed:
                    connection.close()
                else:
                    self._readers.append(connection)

    @contextmanager
    def _begin_transaction(self) -> Iterator[sqlite3.Connection]:
        """The write lock, over threads and processes. Leaving without a commit is a rollback."""
        self._check_open()
        self._check_there()
        self.require_writable()
        with self._explain_errors():
            self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
        finally:
            if self._writer.in_transaction:
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        wanted_ids = list(ids)

        def read_objects(connection: sqlite3.Connection) -> dict[ObjectId, bytes]:
            data_by_id: dict[ObjectId, bytes] = {}
            for start in range(0, len(wanted_ids), PARAMETERS_MAX):
                part = wanted_ids[start : start + PARAMETERS_MAX]
                marks = ",".join("?" * len(part))
                data_by_id.update(
                    connection.execute(f"SELECT id, data FROM objects WHERE id IN ({marks})", part)
                )
            return data_by_id

        data_by_id = self._run_read(read_objects)
        self._require_bytes(data_by_id)
        return data_by_id

    def _require_bytes(self, data_by_id: Mapping[ObjectId, bytes]) -> None:
        if not all(type(object_id) is type(data) is bytes for object_id, data in data_by_id.items()):
            raise self._damaged_error("the row of an object has no bytes")

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        with self._write_lock, self._begin_transaction() as connection, self._explain_errors():
            self._insert_objects(connection, objects)
            connection.execute("COMMIT")

    def _insert_objects(self, connection: sqlite3.Connection, objects: Mapping[ObjectId, bytes]) -> None:
        """Insert many rows a statement: every statement lets go of Python's global lock, and other threads
        that take it then hold up the whole batch. In the order of their ids, in which the index has them."""
        now, items = self._clock(), sorted(objects.items())
        position, width = 0, ROWS_MAX
        while position < len(items):
            while position + width > len(items):
                width //= 4
            part = items[position : position + width]
            connection.execute(
                _INSERT[width], [field for object_id, data in part for field in (object_id, now, data)]
            )
            position += width

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:  # noqa: ARG002 - it locks
        with self._write_lock, self._begin_transaction() as connection:
            with self._explain_errors():
                row = _read_row(connection, name)
            yield _SqliteTurn(self, connection, name, row)

    def reference(self, name: str) -> Row | None:
        return self._run_read(lambda connection: _read_row(connection, name))

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        # One lower bound: of two, SQLite would look up one and read through what lies before the other.
        beyond = ">" if after >= prefix else ">="
        rows = self._run_read(
            lambda connection: connection.execute(
                f"SELECT name, kind, data FROM refs WHERE kind = ? AND name {beyond} ? AND name < ? "
                "ORDER BY name LIMIT ?",
                (kind, max(after, prefix), prefix + "\U0010ffff", limit),
            ).fetchall()
        )
        return [Row(*row) for row in rows]

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        start = int.from_bytes(after, "big")
        rows = self._run_read(
            lambda connection: connection.execute(
                "SELECT seq, id, referenced_us, length(data) FROM objects WHERE seq > ? ORDER BY seq LIMIT ?",
                (start, limit),
            ).fetchall()
        )
        if not all(type(row[2]) is int and type(row[3]) is int for row in rows):
            raise self._damaged_error("the row of an object differs from what was written")
        token = rows[-1][0].to_bytes(8, "big") if len(rows) == limit else b""
        return [StoredObject(*row[1:]) for row in rows], token

    def scan_data(
        self, after: bytes, limit: int, max_bytes: int
    ) -> tuple[dict[ObjectId, bytes], list[StoredObject], bytes]:
        """All of them with their bytes: in the order of `seq` they lie side by side, and need no index."""

        def read_objects(connection: sqlite3.Connection) -> tuple[dict[ObjectId, bytes], int]:
            data_by_id: dict[ObjectId, bytes] = {}
            size, last = 0, 0
            rows = connection.execute(
                "SELECT seq, id, data FROM objects WHERE seq > ? ORDER BY seq LIMIT ?",
                (int.from_bytes(after, "big"), limit),
            )
            for seq, object_id, data in rows:
                data_by_id[object_id] = data
                size += len(data) if type(data) is bytes else 0
                if size >= max_bytes or len(data_by_id) == limit:
                    last = seq
                    break
            rows.close()
            return data_by_id, last

        data_by_id, last = self._run_read(read_objects)
        self._require_bytes(data_by_id)
        return data_by_id, [], last.to_bytes(8, "big") if last else b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        with self._write_lock, self._begin_transaction() as connection, self._explain_errors():
            cursor = connection.executemany(
                "DELETE FROM objects WHERE id = ? AND referenced_us = ?",
                [(stored_object.id, stored_object.referenced_us) for stored_object in objects],
            )
            connection.execute("COMMIT")
            return max(cursor.rowcount, 0)

    def scrub(self) -> str:
        """Write the whole database anew: free pages hold what was deleted, and so does its log."""
        with self._write_lock, self._explain_errors():
            self._check_open()
            self._check_there()
            self.require_writable()
            self._writer.execute("VACUUM")
            is_busy, *_ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise Unavailable(
                f"{self._path} is being read by another process, so SQLite's write-ahead log could not "
                "be emptied"
            )
        return ""

    def erase(self) -> None:
        with self._write_lock, self._begin_transaction() as connection, self._explain_errors():
            connection.execute("DELETE FROM objects")
            connection.execute("DELETE FROM refs")
            connection.execute("COMMIT")

    def check(self) -> list[str]:
        problems = self._run_read(
            lambda connection: [str(text) for (text,) in connection.execute("PRAGMA quick_check(20)")]
        )
        return [] if problems == ["ok"] else problems

    def close(self) -> None:
        self._closed = True
        if self._frozen is not None:
            self._frozen.close()
            return
        with self._write_lock, suppress(sqlite3.Error):
            while self._readers:
                self._readers.pop().close()
            self._writer.close()


class _SqliteTurn(Turn):
    def __init__(
        self, store: SqliteStore, connection: sqlite3.Connection, name: str, row: Row | None
    ) -> None:
        self._store, self._connection, self._name, self.row = store, connection, name, row

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        connection = self._connection
        with self._store._explain_errors():
            present = self._find_present(list(fresh))
            if present:
                return AdvanceResult(False, present)
            self._store._insert_objects(connection, objects)
            if row is None:
                connection.execute("DELETE FROM refs WHERE name = ?", (self._name,))
            else:
                connection.execute(
                    "INSERT INTO refs (name, kind, data) VALUES (?, ?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, data = excluded.data",
                    row,
                )
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as problem:
            if _get_error_code(problem) == sqlite3.SQLITE_FULL:
                # What commits is the last thing that SQLite writes, and there was no room for that.
                raise self._store._explain_sqlite_error(problem) from problem
            raise OutcomeUnknown(f"{self._store._path} failed while committing: {problem}") from problem
        return AdvanceResult(True)

    def _find_present(self, ids: list[ObjectId]) -> frozenset[ObjectId]:
        present_ids: set[ObjectId] = set()
        for start in range(0, len(ids), PARAMETERS_MAX):
            part = ids[start : start + PARAMETERS_MAX]
            marks = ",".join("?" * len(part))
            present_ids.update(
                object_id
                for (object_id,) in self._connection.execute(
                    f"SELECT id FROM objects WHERE id IN ({marks})", part
                )
            )
        return frozenset(present_ids)


def _get_error_code(problem: sqlite3.Error) -> int:
    """What SQLite calls a problem, without what it says in addition."""
    code: int = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _run_pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchone()[0]


def _read_row(connection: sqlite3.Connection, name: str) -> Row | None:
    row = connection.execute("SELECT name, kind, data FROM refs WHERE name = ?", (name,)).fetchone()
    return Row(*row) if row else None
