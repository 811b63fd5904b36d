"""A place of this machine where there is no lake yet: the first write makes one.

Whoever mistypes a path and reads is told so. Whoever writes gets a lake without having to make one first.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from threading import Lock
from typing import Final, TypeVar

from penstock.errors import InvalidRequest, LakeNotFound
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import Call
from penstock.lake.embedded import Embedded
from penstock.stores.lake_directory import find_directory

R = TypeVar("R")


class EmptyPlace:
    """A catalogue that finds or makes its lake when a call needs one. May be used by many threads."""

    page_max: int | None = None
    default_branch: Final = "main"
    """Of the lake that a first write makes."""

    def __init__(self, path: str, find: Callable[[str], Embedded], make: Callable[[str], Embedded]) -> None:
        scheme, directory = find_directory(path)
        self.url = str(directory) if scheme == "sqlite" else f"{scheme}://{directory}"
        self.warehouse = str(directory / "warehouse")
        """Of the lake that a first write makes."""
        self._place, self._find, self._make = path, find, make
        self._lock, self._is_closed = Lock(), False
        self.lake: Embedded | None = None
        """The lake, once this process has found or made it."""
        self.is_made_here = False

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        return self.open_or_make_lake(makes=call.makes_lake and call.adds_anything()).do(call, progress)

    def open_or_make_lake(self, *, makes: bool) -> Embedded:
        """The lake, which another process may have made meanwhile; else it is made, or ``LakeNotFound``."""
        with self._lock:
            if self._is_closed and self.lake is None:
                raise InvalidRequest(f"{self.url} was closed; open the lake again")
            if self.lake is None:
                try:
                    self.lake = self._find(self._place)
                except LakeNotFound:
                    if not makes:
                        raise LakeNotFound(
                            f"there is no lake at {self.url}. The first write creates one, and so does: "
                            f"penstock init {quote(self.url)}",
                            url=self.url,
                        ) from None
                    self.lake = self._make(self._place)
                    self.is_made_here = True
            return self.lake

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self.lake is not None:
                self.lake.close()
