"""The line of those who wait for a process: callers take turns, and none of them has all processes."""

from __future__ import annotations

from collections import Counter, deque


class ProcessWaitingLine:
    """Who waits, who works, and whose turn it is. Its owner holds a lock around every use."""

    def __init__(self, processes_max: int) -> None:
        self._processes_max = processes_max
        self._waiting: dict[str, deque[object]] = {}
        """By caller; the one whose turn is next in front."""
        self._working: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def count_waiting(self, caller: str) -> int:
        """How many of one caller wait."""
        return len(self._waiting.get(caller, ()))

    def join_line(self, caller: str) -> object:
        """Wait behind what the caller waits for already; returns the place in the line."""
        place = object()
        self._waiting.setdefault(caller, deque()).append(place)
        return place

    def is_next(self, ticket: object) -> bool:
        """Whether the next process that is free is for this place."""
        first = next((places[0] for caller, places in self._waiting.items() if self._may_work(caller)), None)
        return first is ticket

    def note_process_given(self, caller: str) -> None:
        """What the caller waited for longest has got a process; all others come before the caller's next."""
        places = self._waiting.pop(caller)
        places.popleft()
        if places:
            self._waiting[caller] = places
        self._working[caller] += 1

    def leave_line(self, caller: str, ticket: object) -> None:
        """It does not wait any more."""
        places = self._waiting[caller]
        places.remove(ticket)
        if not places:
            del self._waiting[caller]

    def note_process_returned(self, caller: str) -> None:
        """A process has done what it did for a caller."""
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]

    def _may_work(self, caller: str) -> bool:
        """Nobody has more processes than are left for others; who has none may have the last one."""
        own = self._working[caller]
        return not own or own < self._processes_max - self._working.total()
