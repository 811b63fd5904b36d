"""Progress of long work in a notebook: a line below the cell that keeps changing, and goes at the end.

A cell that is soon done shows nothing. Outside of notebooks nothing is shown: a program says itself whom it
tells, by the argument ``progress``. What goes wrong with showing does not concern the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from inspect import signature
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from penstock.model import html

P = ParamSpec("P")
R = TypeVar("R")

SHOWN_AFTER_S: Final = 0.5
REDRAW_S: Final = 0.2


def is_in_notebook() -> bool:
    """Whether this program is the kernel of a notebook, which shows HTML."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """Told what is being done, how much of it has been, and of how much, if that is known."""

    def __init__(self) -> None:
        self._next_s = monotonic() + SHOWN_AFTER_S
        self._handle: Any = None
        self._lock = Lock()

    def __call__(self, subject: str, count: int, total: int = 0) -> None:
        with self._lock:
            if monotonic() < self._next_s:
                return
            self._next_s = monotonic() + REDRAW_S
            share = f" {min(count / total, 1.0):.0%} of {total:,}" if total else f" {count:,}"
            self._show_bar(
                html.show_block(html.show_progress_bar(subject, share, count, total)), f"{subject}{share}"
            )

    def _show_bar(self, shown: str, text: str) -> None:
        display: Any = import_module("IPython.display").display
        data = {"text/html": shown, "text/plain": text}
        with suppress(Exception):
            if self._handle is None:
                self._handle = display(data, raw=True, display_id=True)
            else:
                self._handle.update(data, raw=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._handle is not None:
                self._show_bar("", "")


def show_progress(work: Callable[P, R]) -> Callable[P, R]:
    """Let long work show how far it is where it is called in a notebook without the argument ``progress``."""

    @wraps(work)
    def run_with_progress(*args: P.args, **kwargs: P.kwargs) -> R:
        if not is_in_notebook() or "progress" in signature(work).bind_partial(*args, **kwargs).arguments:
            return work(*args, **kwargs)
        with NotebookBar() as bar:
            chosen: dict[str, Any] = {**kwargs, "progress": bar}
            return work(*args, **chosen)

    return run_with_progress


@contextmanager
def show_bytes(subject: str) -> Iterator[Callable[[int, int], None]]:
    """The same for work that tells how many bytes are done, and of how many."""
    if not is_in_notebook():
        yield lambda _done, _all: None
        return
    with NotebookBar() as bar:
        yield lambda done, all_bytes: bar(subject, done, all_bytes)
