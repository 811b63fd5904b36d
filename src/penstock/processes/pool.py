"""A pool of processes: so many, started when they are needed, each doing one piece of work at a time.

Work waits its turn in a queue that has an end. A process that has ended, was killed, has done enough, or has
kept much memory is replaced. Work that was given to one as it ended, and was not begun, is given to another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from penstock.errors import PenstockError, Throttled, TimedOut, Unavailable, WorkerLost, WorkTooLarge
from penstock.processes.child_process import ChildSettings
from penstock.processes.limits import WorkerPoolLimits
from penstock.processes.process import (
    Answer,
    FunctionFailed,
    FunctionRefused,
    MemoryExhausted,
    TaskOutput,
    WorkerProcess,
    WorkNotBegun,
)
from penstock.processes.waiting_line import ProcessWaitingLine

TASKS_MAX: Final = 1_000
"""Of one process."""
KEPT_SHARE: Final = 4
"""A process that has kept more than this part of the memory that it may have is replaced."""
LOOK_EVERY_S: Final = 0.05
"""How often a caller that waits for a process checks whether its client has gone."""

Say = Callable[[str], None]


def refuse_question(_question: bytes) -> bytes:
    """For functions that send no questions."""
    raise RuntimeError(
        "the function in the row worker asked the server something, but its caller gave "
        "no function that answers"
    )


def return_false() -> bool:
    return False


class ProcessPool:
    """Runs functions in processes. May be used by many threads; nothing is started before it is used."""

    def __init__(
        self,
        limits: WorkerPoolLimits = WorkerPoolLimits(),
        imports: Sequence[str] = (),
        say: Say | None = None,
    ) -> None:
        """``imports`` are modules that each process imports before it is given work. ``say`` is told what
        who looks after the program should know."""
        self.limits = limits
        self._start = ChildSettings(tuple(imports), limits.memory_max_bytes)
        self._say = say or (lambda _: None)
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()
        self._starting = 0
        self._line = ProcessWaitingLine(limits.count)
        self._failed_starts = 0
        self._problem: PenstockError | None = None
        self._is_closed = False
        # The system ends a process with the thread that has started it.
        self._starter = ThreadPoolExecutor(1, "penstock-processes")

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the processes that are ready or at work."""
        with self._changed:
            return tuple(sorted(process.pid for process in self._all))

    @property
    def waiting(self) -> int:
        """How many wait for a process."""
        return len(self._line)

    def start(self) -> None:
        """Begin to start a process, unless there is one: the first piece of work finds it."""
        with self._changed:
            if not self._all and not self._is_closed:
                self._start_process_if_needed(is_replaced=True)

    def await_started(self) -> None:
        """Until a process is ready, or cannot be started: work that needs it then says why."""
        with suppress(PenstockError):
            self._return_process(self._take_idle_process("", inf, return_false), "")

    def run_function(
        self,
        function: str,
        head: bytes = b"",
        body: bytes = b"",
        *,
        caller: str = "",
        answer: Answer = refuse_question,
        deadline_s: float = inf,
        is_cancelled: Callable[[], bool] = return_false,
    ) -> TaskOutput:
        """What ``module:function`` comes to, called with a ``ChildTask`` that has the head and the body.

        ``caller`` is for whom it is done: callers take turns, and nobody has more processes than are left for
        others. ``answer`` answers what the function asks, in this thread. ``deadline_s`` is when nobody waits
        any longer, as ``time.monotonic`` tells it.

        Raises what the function raised; ``WorkTooLarge`` if it took more memory or time than it may,
        ``TimedOut`` after the deadline and once it is cancelled, ``Throttled`` if too much waits already,
        ``WorkerLost`` if its process ended for another reason.
        """
        run_once = partial(self._run_once, function, head, body, caller, answer, deadline_s, is_cancelled)
        for _ in range(self.limits.count):  # all that were idle may have been killed at once
            with suppress(WorkNotBegun):
                return run_once()
        try:
            return run_once()
        except WorkNotBegun as ended:
            raise ended.error from None

    def _run_once(
        self,
        function: str,
        head: bytes,
        body: bytes,
        caller: str,
        answer: Answer,
        deadline_s: float,
        is_cancelled: Callable[[], bool],
    ) -> TaskOutput:
        """As ``run``, by the process whose turn it is; ``WorkNotBegun`` if it ended before it began."""
        process = self._take_idle_process(caller, deadline_s, is_cancelled)
        ends_s = monotonic() + self.limits.timeout_s
        watch = partial(self._watch_process, process, ends_s, deadline_s, is_cancelled)
        try:
            output = process.run_function(function, head, body, answer, watch)
        except FunctionRefused as refused:
            self._return_process(process, caller)
            raise refused.error from None
        except FunctionFailed:
            self._return_process(process, caller)
            raise
        except MemoryExhausted:
            self._replace_process(process, caller, f"needed more than {self.limits.memory_max_bytes:,} bytes")
            raise self._too_large_error() from None
        except (WorkerLost, WorkNotBegun):
            self._replace_process(process, caller, process.describe_end())
            raise
        except PenstockError as problem:
            self._replace_process(process, caller, f"was stopped: {problem.message}")
            raise
        except BaseException:
            self._replace_process(process, caller, "was stopped: answering a question of its function failed")
            raise
        self._return_process(process, caller)
        return output

    def close(self) -> None:
        """End all processes, whatever they do. Who waits for one is told that it has ended."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for process in self._all.difference(idle):
                process.kill_process()
            self._all.difference_update(idle)
            self._changed.notify_all()
        self._starter.shutdown(wait=False, cancel_futures=True)
        for process in idle:
            process.end_process()

    # -- turns ---------------------------------------------------------------------------------------------

    def _take_idle_process(
        self, caller: str, deadline_s: float, is_cancelled: Callable[[], bool]
    ) -> WorkerProcess:
        """A process that is idle, when it is the caller's turn."""
        with self._changed:
            self._require_room(caller)
            place = self._line.join_line(caller)
            failed_starts = self._failed_starts
            try:
                while not (self._line.is_next(place) and self._has_idle()):
                    if self._is_closed:
                        raise Unavailable("the server is stopping")
                    self._start_process_if_needed()
                    if is_cancelled():
                        raise TimedOut("the client no longer waits for the response")
                    if monotonic() > deadline_s:
                        raise TimedOut(self._describe_wait(place))
                    if self._failed_starts > failed_starts and self._problem is not None and not self._all:
                        raise self._problem
                    self._changed.wait(LOOK_EVERY_S)
            except BaseException:
                self._line.leave_line(caller, place)
                self._changed.notify_all()
                raise
            self._line.note_process_given(caller)
            self._changed.notify_all()
            return self._idle.pop()

    def _describe_wait(self, ticket: object) -> str:
        """What somebody waited for in vain; the lock is held."""
        if self._starting and self._line.is_next(ticket):
            return "a row worker is being started, and was not ready in time; nothing was changed, try again"
        return "no row worker was free in time; nothing was changed"

    def _require_room(self, caller: str) -> None:
        """``Throttled`` if too many wait, or more of one caller than there is room left for others."""
        waiting, own = len(self._line), self._line.count_waiting(caller)
        soon = len(self._idle) + self.limits.count - len(self._all)
        remaining = self.limits.queue_max - (waiting - soon)
        if remaining > 0 and own <= remaining:
            return
        whose = "requests" if remaining <= 0 else "requests of this caller"
        raise Throttled(
            f"{own if remaining > 0 else waiting} {whose} already wait for a row worker, as many as "
            f"{self.limits.queue_option} allows; try again shortly",
            queue_max=self.limits.queue_max,
        )

    def _has_idle(self) -> bool:
        """Whether there is a process to be taken: one that has died meanwhile is not; the lock is held."""
        while self._idle and not self._idle[-1].is_alive:
            process = self._idle.pop()
            self._say(f"row worker {process.pid} {process.describe_end()} while it was idle")
            self._all.discard(process)
            process.end_process()
        return bool(self._idle)

    def _return_process(self, process: WorkerProcess, caller: str) -> None:
        if process.tasks >= TASKS_MAX or self._has_kept_much(process):
            self._replace_process(process, caller)
            return
        with self._changed:
            if not self._is_closed:
                self._line.note_process_returned(caller)
                self._idle.append(process)
                self._changed.notify_all()
                return
        self._replace_process(process, caller)

    def _replace_process(self, process: WorkerProcess, caller: str, why: str = "") -> None:
        if why:
            self._say(f"row worker {process.pid} {why}; another one is started")
        process.kill_process()
        with self._changed:
            self._line.note_process_returned(caller)
            self._all.discard(process)
            if not self._is_closed:
                self._start_process_if_needed(is_replaced=True)
            self._changed.notify_all()
        # This may take a while, and nobody who waits for the other one has to wait for it.
        process.end_process()

    def _has_kept_much(self, process: WorkerProcess) -> bool:
        return process.used_bytes - process.idle_bytes > self.limits.memory_max_bytes // KEPT_SHARE

    def _start_process_if_needed(self, *, is_replaced: bool = False) -> None:
        """Start another process if somebody waits for one, and there may be one more; the lock is held."""
        count = len(self._line) + is_replaced
        if len(self._idle) + self._starting < count and len(self._all) + self._starting < self.limits.count:
            self._starting += 1
            self._starter.submit(self._start_process)

    def _start_process(self) -> None:
        """Start a process, in the thread that starts all of them; another one waits until it is ready."""
        try:
            process = WorkerProcess(self._start)
        except OSError as problem:
            self._note_started(None, Unavailable(f"a row worker cannot be started: {problem}"))
            return
        threading.Thread(
            target=self._await_ready, args=(process,), name="penstock-start", daemon=True
        ).start()

    def _await_ready(self, process: WorkerProcess) -> None:
        try:
            process.await_ready()
        except PenstockError as problem:
            process.end_process()
            self._note_started(None, problem)
        else:
            self._note_started(process, None)

    def _note_started(self, process: WorkerProcess | None, problem: PenstockError | None) -> None:
        with self._changed:
            self._starting -= 1
            if problem is not None:
                self._problem = problem
                self._failed_starts += 1
                self._say(problem.message)
            elif process is not None and self._is_closed:
                process.end_process()
            elif process is not None:
                self._all.add(process)
                self._idle.append(process)
            self._changed.notify_all()

    # -- limits --------------------------------------------------------------------------------------------

    def _watch_process(
        self, process: WorkerProcess, ends_s: float, deadline_s: float, is_cancelled: Callable[[], bool]
    ) -> None:
        if process.used_bytes > self.limits.memory_max_bytes:
            raise MemoryExhausted
        now_s = monotonic()
        if now_s > deadline_s:
            raise TimedOut("the work on rows took longer than the request allows and was stopped")
        if now_s > ends_s:
            raise WorkTooLarge(
                f"the work on rows took longer than {self.limits.timeout_s:g} s, this server's limit "
                f"({self.limits.timeout_option}), and was stopped: request fewer rows, or a simpler "
                "operation",
                limit=self.limits.timeout_option,
                timeout_s=self.limits.timeout_s,
            )
        if is_cancelled() or self._is_closed:
            raise TimedOut("the client no longer waits for the response")

    def _too_large_error(self) -> WorkTooLarge:
        return WorkTooLarge(
            f"the work on rows needed more than {self.limits.memory_max_bytes:,} bytes of memory, this "
            f"server's limit ({self.limits.memory_option}), and was stopped: request fewer rows or columns, "
            "or a simpler operation",
            limit=self.limits.memory_option,
            memory_max_bytes=self.limits.memory_max_bytes,
        )
