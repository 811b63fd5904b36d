"""The port between a lake and where it is: in this process, behind a server, behind a check of rights."""

from __future__ import annotations

from typing import Protocol, TypeVar

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call

R = TypeVar("R")


class Catalogue(Protocol):
    """Answers calls. May be used by many threads."""

    page_max: int | None
    """How many items a list gives at once; ``None`` if a call may ask for all of them."""

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        """Carry out a call, or raise one of ``penstock.errors``. Long ones tell how far they are."""

    def close(self) -> None:
        """Let go of what is behind it."""
