"""The bytes of a file of a table: read from storage as they are asked for, or said to be lost there."""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Final, cast

from penstock.errors import Damaged
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.pool import find_pool, name_in_pool
from penstock.model.keys import Key
from penstock.storage.places import Places

READ_AHEAD_BYTES: Final = 1024 * 1024
"""So much is asked for at once, where a program reads less."""


class TableBytes:
    """The bytes of a table's files, in the lake's pool.

    ``Damaged`` names a file of which the storage has less than was written.
    """

    def __init__(self, places: Places, warehouse: str, key: Key) -> None:
        self._pool, self._warehouse, self._key = places.open_place(find_pool(warehouse)), warehouse, key

    def read_bytes(self, entry: FileEntry, start: int, length: int) -> bytes:
        """So many bytes of a file, which must have them."""
        data = self._pool.read_range(name_in_pool(self._warehouse, entry.address), start, length)
        if data is None or len(data) != length:
            raise self.damaged_error(entry)
        return data

    def open_file(self, entry: FileEntry) -> BinaryIO:
        """A file as a file object, which can seek, and reads what is asked for."""
        return cast("BinaryIO", io.BufferedReader(_RangeReader(self, entry), READ_AHEAD_BYTES))

    def damaged_error(self, entry: FileEntry) -> Damaged:
        """The error for a file whose bytes are missing or differ from what was written."""
        return Damaged(
            f"'{entry.path}' of '{self._key}' is missing in storage, or was changed there: {entry.address}",
            table=str(self._key),
            path=entry.path,
        )


class _RangeReader(io.RawIOBase):
    def __init__(self, files: TableBytes, entry: FileEntry) -> None:
        super().__init__()
        self._files, self._entry, self._size = files, entry, entry.size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        if whence not in start or start[whence] + offset < 0:
            raise ValueError(f"cannot seek to {offset} ({whence})")
        self._position = start[whence] + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        self._check_open()
        size = max(0, min(len(buffer), self._size - self._position))
        if not size:
            return 0
        buffer[:size] = self._files.read_bytes(self._entry, self._position, size)
        self._position += size
        return size

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
