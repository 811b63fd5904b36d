"""Reading a SQLite file that this process may not write to: on read-only media, or with read rights only.

While a writer has the file open, SQLite's own log and index lie beside it, and readers share them: commits
are seen at once. When the last writer has gone they are removed, and who may not write cannot make them.
Then the file itself holds everything, and is read as it is. A writer may come back meanwhile, so a
look at the file before and after each read tells whether it stayed as it was; otherwise it is read again.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

from penstock.errors import Unavailable

T = TypeVar("T")

TRIES_MAX: Final = 100
SETTLED_NS: Final = 50_000_000
"""How old a change must be so that a later one has another time: clocks of file systems are coarse."""


class _ReadState(NamedTuple):
    """What tells one state of the file from another."""

    device: int
    inode: int
    size: int
    modified_ns: int
    is_shared: bool
    """Whether a writer's log and index lie beside it."""


class ReadOnlyFile:
    """The connections that read one file. May be used by many threads."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._idle: list[tuple[_ReadState | None, sqlite3.Connection]] = []
        """Connections, and of those that read the file as it is, the state that they have read."""
        self._is_closed = False

    def run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What ``work`` reads, all of it from one state of the file."""
        for _ in range(TRIES_MAX):
            state = self._read_file_state()
            connection = self._open_connection(state)
            try:
                result = work(connection)
            except sqlite3.Error:
                connection.close()
                if self._read_file_state() == state:
                    raise
                continue  # a writer came or went meanwhile
            except BaseException:
                connection.close()
                raise
            if state.is_shared or self._read_file_state() == state:
                self._cache_connection(state, connection)
                return result
            connection.close()
        raise Unavailable(
            f"{self._path} was changed during every try to read it; try again when there are fewer writes"
        )

    def _read_file_state(self) -> _ReadState:
        """The file as it is. One that was changed just now may change again without another time."""
        stat = self._path.stat()
        for _ in range(TRIES_MAX):
            if self._has_log() or abs(time.time_ns() - stat.st_mtime_ns) > SETTLED_NS:
                break
            time.sleep(SETTLED_NS / 1e9)
            stat = self._path.stat()
        return _ReadState(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, self._has_log())

    def _has_log(self) -> bool:
        log, index = (self._path.with_name(f"{self._path.name}-{part}") for part in ("wal", "shm"))
        try:
            return index.exists() or log.stat().st_size > 0
        except OSError:
            return False

    def _open_connection(self, state: _ReadState) -> sqlite3.Connection:
        wanted_state = None if state.is_shared else state
        while self._idle:
            known_state, connection = self._idle.pop()
            if known_state == wanted_state:
                return connection
            connection.close()
        how = "mode=ro" if state.is_shared else "mode=ro&immutable=1"
        uri = f"file:{quote(os.fspath(self._path))}?{how}"
        return sqlite3.connect(
            uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )

    def _cache_connection(self, state: _ReadState, connection: sqlite3.Connection) -> None:
        self._idle.append((None if state.is_shared else state, connection))
        if self._is_closed:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop()[1].close()


def is_read_only(path: Path) -> bool:
    """Whether this process may not write to a file, or may not make SQLite's log beside it."""
    return not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
