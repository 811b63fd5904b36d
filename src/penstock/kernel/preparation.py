"""The order in which requests to one branch are prepared once more.

Requests to one table that are prepared at the same time refuse each other: one lands, and all others have
worked in vain. One after the other, each lands. So a request that was refused waits in line, first come,
first served. If the first in line is refused again, because requests that never waited land before it,
further requests that need preparation join the line before their first one: the first in line can then lose
only to those that were being prepared already.
"""

from __future__ import annotations

from collections import deque
from threading import Condition
from time import monotonic


class PreparationLine:
    """The requests to one branch that wait to be prepared, in one process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._line: deque[PreparationTurn] = deque()

    def turn(self) -> PreparationTurn:
        """The turn of one request, which leaves the line at the end of a ``with``."""
        return PreparationTurn(self)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_contended(self) -> bool:
        """Whether the first in line was refused although it had the turn."""
        try:
            return self._line[0].refusals > 0
        except IndexError:
            return False

    def wait(self, turn: PreparationTurn, stalled_s: float, ends_s: float) -> None:
        """Until the turn is the first in line; at most ``stalled_s`` for each that is first before it."""
        with self._changed:
            if turn not in self._line:
                self._line.append(turn)
            first, since_s = self._line[0], monotonic()
            while self._line[0] is not turn:
                if self._line[0] is not first:
                    first, since_s = self._line[0], monotonic()
                left_s = min(ends_s, since_s + stalled_s) - monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def leave(self, turn: PreparationTurn) -> None:
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
                self._changed.notify_all()


class PreparationTurn:
    """The place of one request in the line, once it has one. Used by the request's own thread."""

    def __init__(self, line: PreparationLine) -> None:
        self._line = line
        self._ends_s: float | None = None
        """When it waits no longer, whoever is first; set when it joins the line."""
        self.refusals = 0
        """How often it was refused since it joined the line."""

    def __enter__(self) -> PreparationTurn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends_s is not None:
            self._line.leave(self)

    def wait(self, stalled_s: float, wait_max_s: float) -> float:
        """Join the line, and wait to be first in it. Returns how many seconds that took.

        A request that waits for longer than ``stalled_s`` while the first in line stays the same, whose
        storage may be slow, goes on without being first, and keeps its place. All its waits together take at
        most ``wait_max_s``.
        """
        began_s = monotonic()
        if self._ends_s is None:
            self._ends_s = began_s + wait_max_s
        self._line.wait(self, stalled_s, self._ends_s)
        return monotonic() - began_s

    def refuse(self) -> None:
        """The request was prepared in vain."""
        if self._ends_s is not None:
            self.refusals += 1
