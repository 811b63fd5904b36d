"""Progress of long work: a line on a terminal that keeps changing, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

REDRAW_S = 0.1


class Progress:
    """Called with what is being done and how much of it has been; cleared at the end."""

    def __init__(self, quiet: bool = False) -> None:
        self._stream = sys.stderr
        self._shown = False
        self._next = time.monotonic() + REDRAW_S
        self._silent = quiet or not self._stream.isatty()

    def __call__(self, what: str, count: int) -> None:
        if self._silent or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REDRAW_S
        self._shown = True
        self._stream.write(f"\r\x1b[K{what} {count:,} objects")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
