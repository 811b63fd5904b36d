"""What the parts of a lake need of it: to make calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.answers import About
from penstock.lake.call import Call

R = TypeVar("R")
T = TypeVar("T")


class CallMaker(ABC):
    """Makes calls in the name of an author. ``Lake`` is the only one; its parts see no more of it."""

    author: str

    @abstractmethod
    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        """Run a call."""

    @abstractmethod
    def pages(self, call: Call[tuple[T, ...]], limit: int | None, next_page: Callable[[T], Any]) -> list[T]:
        """The items of a list, up to a limit or all; ``next_page`` says how to go on after the last one."""

    @property
    @abstractmethod
    def page_max(self) -> int | None:
        """How many items a list gives at once; ``None`` if a call may ask for all of them."""

    @property
    @abstractmethod
    def about(self) -> About:
        """The present description of the lake."""

    @abstractmethod
    def _or_default(self, name: str | None) -> str:
        """The branch that is meant: the default one, if none is named."""
