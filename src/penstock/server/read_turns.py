"""Turns: requests that compute for long do so a few at a time, and their callers take turns.

Threads of Python share one interpreter lock. A hundred searches at once would leave everybody else, the event
loop among them, a hundredth of the time. So a read may compute for a moment as it likes; from then on it
needs a turn, of which there are few, and gives it up after a slice of time to the next caller who waits for
one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from threading import Event, Lock
from time import monotonic, thread_time
from typing import Final

from penstock.errors import TimedOut
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import HTTP_STOPPED_READS, HTTP_TURN_WAIT_SECONDS

FREE_S: Final = 0.005
"""How long a read may compute without a turn. Most are done by then."""
SLICE_S: Final = 0.01
"""How long a turn lasts while others wait for one."""
UNUSED_MAX_S: Final = 0.5
"""A turn whose holder has not taken a step for so long, as it waits for a store, is given to another one."""
STEPS: Final = 16
"""Every so many steps a read looks at the clock."""


class ReadAbandoned(Exception):
    """Nobody waits for a read any more: its client has gone."""


class ReadTurns:
    """So many turns, which threads of several callers wait for.

    Callers are served one after the other, however many requests each of them has.
    """

    def __init__(self, count_max: int, meter: Meter = SILENT) -> None:
        self._free, self._meter = count_max, meter
        self.when_used: Callable[[bool], None] = lambda _: None
        """Told when the first turn is taken, and when the last one is given back."""
        self._lock = Lock()
        self._holders: set[ReadPace] = set()
        self._waiting: dict[str, deque[ReadPace]] = {}
        """By caller, the one whose turn is next in front."""

    @property
    def are_awaited(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def wait_for_turn(self, pace: ReadPace) -> None:
        """Wait for a turn, until the deadline of the read or the end of its connection."""
        with self._lock:
            called = pace.expect_call()
            self._waiting.setdefault(pace.caller, deque()).append(pace)
            self._call_next_read()
        self._wait_until_called(pace, called)

    def pass_turn_on(self, pace: ReadPace) -> None:
        """Let the next caller have a turn, and wait for another one before later requests of the same caller:
        of these, one is answered after the other, rather than all of them too late."""
        with self._lock:
            if not self._end_turn(pace):
                return
            called = pace.expect_call()
            queue = self._waiting.pop(pace.caller, deque())
            queue.appendleft(pace)
            self._waiting[pace.caller] = queue  # behind all other callers
            self._call_next_read()
        self._wait_until_called(pace, called)

    def _wait_until_called(self, pace: ReadPace, called: Event) -> None:
        if called.is_set():
            return
        began_s = monotonic()
        # Who was called goes on, also if the turn was taken back since: the next look asks for another one.
        while not pace.is_over:
            left_s = min(pace.deadline_s - monotonic(), UNUSED_MAX_S)
            if called.wait(max(left_s, 0.0)):
                break
            self._take_back()
        with self._lock:
            self._forget_read(pace)
        self._meter.observe(HTTP_TURN_WAIT_SECONDS, monotonic() - began_s)

    def return_turn(self, pace: ReadPace) -> None:
        """End a turn, and begin that of the next one in line."""
        with self._lock:
            if self._end_turn(pace):
                self._call_next_read()

    def _take_back(self) -> None:
        """End the turns of those who do not use them."""
        with self._lock:
            before_s = monotonic() - UNUSED_MAX_S
            for pace in [holder for holder in self._holders if holder.stepped_s < before_s]:
                self._end_turn(pace)
            self._call_next_read()

    def _end_turn(self, pace: ReadPace) -> bool:
        if pace not in self._holders:
            return False
        self._holders.discard(pace)
        pace.has_turn = False
        self._free += 1
        if not self._holders:
            self.when_used(False)
        return True

    def _call_next_read(self) -> None:
        while self._free and self._waiting:
            caller = next(iter(self._waiting))
            queue = self._waiting.pop(caller)
            pace = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            self._free -= 1
            self._give_turn(pace)
            pace.wake_reader()

    def _give_turn(self, pace: ReadPace) -> None:
        pace.has_turn, pace.stepped_s = True, monotonic()
        pace.turn_began_s = pace.stepped_s
        if not self._holders:
            self.when_used(True)
        self._holders.add(pace)

    def _forget_read(self, pace: ReadPace) -> None:
        queue = self._waiting.get(pace.caller)
        if queue is not None and pace in queue:
            queue.remove(pace)
            if not queue:
                del self._waiting[pace.caller]


class ReadPace:
    """What one read does at each of its steps. One thread takes the steps; any may abandon the read."""

    def __init__(
        self,
        turns: ReadTurns,
        caller: str,
        deadline_s: float = inf,
        meter: Meter = SILENT,
        computed_s: Callable[[], float] = thread_time,
    ) -> None:
        self.caller, self.deadline_s = caller, deadline_s
        self.has_turn = self.is_abandoned = False
        self.called: Event | None = None
        """Set when its turn has come, or nobody waits for it any more. Few reads ever wait for a turn."""
        self.stepped_s = self.turn_began_s = 0.0
        self.steps = 0
        self._turns, self._meter, self._computed_s = turns, meter, computed_s
        self._free_until_s = inf

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the read any more."""
        return self.is_abandoned or monotonic() > self.deadline_s

    def begin_read(self) -> None:
        """The thread that calls this is the one that reads."""
        self._free_until_s = self._computed_s() + FREE_S

    def yield_if_awaited(self) -> None:
        """Go on if somebody waits for the read and it is its turn; wait for that if need be."""
        self.steps += 1
        if self.steps % STEPS == 0:
            self.yield_and_check_time()

    def yield_and_check_time(self) -> None:
        """As a step, with a look at the clock in any case."""
        self._require_wanted()
        if self.has_turn:
            self.stepped_s = monotonic()
            if self._turns.are_awaited and self.stepped_s - self.turn_began_s > SLICE_S:
                self._turns.pass_turn_on(self)
                self._require_wanted()
        elif self._computed_s() > self._free_until_s:
            self._turns.wait_for_turn(self)
            self._require_wanted()

    def abandon_read(self) -> None:
        """End the read at its next step: its client has gone."""
        self.is_abandoned = True
        self.wake_reader()

    def expect_call(self) -> Event:
        """What is set by the next call. Whoever waits for it has to look then whether the read is abandoned:
        that may have been before."""
        called = self.called
        if called is None:
            called = self.called = Event()
        called.clear()
        return called

    def wake_reader(self) -> None:
        """Wake up the thread that waits for a turn, if it does."""
        called = self.called
        if called is not None:
            called.set()

    def end_read(self) -> None:
        """The read has ended."""
        if self.has_turn:
            self._turns.return_turn(self)

    def _require_wanted(self) -> None:
        if self.is_abandoned:
            self._meter.count(HTTP_STOPPED_READS, reason="client_gone")
            raise ReadAbandoned
        if monotonic() > self.deadline_s:
            self._meter.count(HTTP_STOPPED_READS, reason="deadline")
            raise TimedOut(
                "the request took longer than this server allows, and was stopped; nothing was changed"
            )
