"""Progress of long work: a line on a terminal that keeps changing, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from types import TracebackType
from typing import Self

REDRAW_S = 0.1
BAR_CHARS = 30


class Progress:
    """Called with what is being done and how much of it has been; cleared at the end."""

    def __init__(self, quiet: bool = False) -> None:
        self._stream = sys.stderr
        self._shown = False
        self._next = time.monotonic() + REDRAW_S
        self._silent = quiet or not self._stream.isatty()

    def __call__(self, subject: str, count: int) -> None:
        self._draw_line(f"{subject} {count:,} objects")

    def _draw_line(self, line: str) -> None:
        if self._silent or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REDRAW_S
        self._shown = True
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class ProgressBar(Progress):
    """Also told how much there is in all: draws a bar, where that is known."""

    def __call__(self, subject: str, count: int, total: int = 0) -> None:
        if not total:
            self._draw_line(f"{subject} {count:,}")
            return
        share = min(count / total, 1.0)
        filled = int(share * BAR_CHARS)
        self._draw_line(f"{subject} {'█' * filled}{'░' * (BAR_CHARS - filled)} {share:4.0%} of {total:,}")


class WaitingLine(Progress):
    """Something that takes a while and cannot tell how far it is: counts the seconds."""

    def __init__(self, subject: str, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._what, self._ended = subject, Event()
        self._ticking = Thread(target=self._draw_elapsed_time, name="penstock-waiting", daemon=True)

    def __enter__(self) -> Self:
        if not self._silent:
            self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticking.is_alive():
            self._ticking.join()
        super().__exit__(kind, error, trace)

    def _draw_elapsed_time(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(REDRAW_S):
            self._draw_line(f"{self._what} … {time.monotonic() - began:.0f} s")
