"""A file in storage as a file object, which reads what is asked for."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

from penstock.errors import PenstockError
from penstock.storage.places import Place

READ_AHEAD_BYTES: Final = 1024 * 1024
"""So much is asked for at once, where a program reads less."""


def opened(place: Place, name: str, size: int, lost: Callable[[], PenstockError]) -> BinaryIO:
    """A file of a known size; ``lost`` is raised where the storage has less of it."""
    return cast("BinaryIO", io.BufferedReader(_Ranges(place, name, size, lost), READ_AHEAD_BYTES))


class _Ranges(io.RawIOBase):
    def __init__(self, place: Place, name: str, size: int, lost: Callable[[], PenstockError]) -> None:
        super().__init__()
        self._place, self._name, self._size, self._lost = place, name, size, lost
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
        wanted = max(0, min(len(buffer), self._size - self._position))
        if not wanted:
            return 0
        found = self._place.read_range(self._name, self._position, wanted)
        if found is None or len(found) != wanted:
            raise self._lost()
        buffer[:wanted] = found
        self._position += wanted
        return wanted

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
