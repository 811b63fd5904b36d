"""Threads that are stopped in the middle: nobody else hangs, and nobody is told what is not known."""

import linecache
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import pytest

from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.kernel import batch as batch_module
from penstock.kernel import queue as queue_module
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.kernel import Kernel
from penstock.kernel.request import Request, RequestTerms
from penstock.kernel.settings import Settings
from penstock.model.references import Event, Reference
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import (
    WAIT_S,
    Arrivals,
    Caller,
    Gate,
    Go,
    HookedStore,
    Once,
    gather,
    history,
    messages,
    new_kernel,
    put,
    wait_until,
)


class Interrupted(BaseException):
    """Stands for whatever stops a thread."""


class Odd(Request):
    """A request that fails in a way nobody expects, the first time that it is applied."""

    event = Event.COMMIT

    def __init__(self, problem: BaseException) -> None:
        super().__init__("nobody", RequestTerms(key="odd"))
        self._problem, self._first = problem, Once()

    @property
    def fingerprint(self) -> bytes:
        return b"odd"

    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        if self._first():
            raise self._problem
        return []


def test_an_unexpected_error_of_one_request_does_not_hurt_the_others(store: HookedStore) -> None:
    kernel = new_kernel(store)
    problem = ZeroDivisionError("a bug")
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a"),
        lambda: kernel.submit_request("main", Odd(problem)),
        lambda: put(kernel, "b"),
    )
    callers[0].result()
    assert callers[1].error is problem
    callers[2].result()
    assert messages(kernel) == ["a", "b"]


@pytest.mark.parametrize("was_applied", [False, True])
@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, SystemExit, Interrupted, MemoryError])
def test_a_leader_that_is_stopped_leaves_nobody_waiting(
    store: HookedStore, was_applied: bool, stopped_by: type[BaseException]
) -> None:
    kernel = new_kernel(store)
    first = Once()

    def stop(go: Go) -> AdvanceResult:
        if not first():
            return go()
        if was_applied:
            go()
        raise stopped_by("in the middle of a swap")

    store.around_advance = stop
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", key="key-a"),
        lambda: put(kernel, "b", key="key-b"),
        lambda: put(kernel, "c", key="key-c"),
    )
    assert isinstance(callers[0].error, stopped_by)
    _check_served_or_told(kernel, {"key-b": callers[1], "key-c": callers[2]})
    if was_applied:
        assert messages(kernel) == ["a", "b", "c"]
    for name in "abc":
        put(kernel, name, key=f"key-{name}")
    assert sorted(messages(kernel)) == ["a", "b", "c"]


def _check_served_or_told(kernel: Kernel, callers: dict[str, Caller[RequestOutcome]]) -> None:
    """Those who stood beside a stopped leader got the truth, or know how to ask for it."""
    for key, caller in callers.items():
        if caller.error is None:
            assert caller.result().head in [one for one, _ in history(kernel)]
        else:
            assert isinstance(caller.error, OutcomeUnknown)
            assert caller.error.details["key"] == key


def test_those_behind_a_stopped_leader_are_served(store: HookedStore) -> None:
    kernel = new_kernel(store)
    gate, first = Gate(), Once()

    def stop(go: Go) -> AdvanceResult:
        if first():
            gate.pass_through()
            raise KeyboardInterrupt
        return go()

    store.around_advance = stop
    leader = Caller(lambda: put(kernel, "stopped"))
    gate.wait_until_reached()
    arrivals = Arrivals(kernel)
    for name in "ab":
        arrivals.add(partial(put, kernel, name))
    gate.open()
    assert isinstance(leader.error, KeyboardInterrupt)
    for caller in arrivals.callers:
        caller.result()
    assert [name for name in messages(kernel) if name != "stopped"] == ["a", "b"]


def test_a_request_that_stops_the_leader_while_being_applied_leaves_nobody_waiting(
    store: HookedStore,
) -> None:
    kernel = new_kernel(store)
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", key="key-a"),
        lambda: kernel.submit_request("main", Odd(KeyboardInterrupt())),
        lambda: put(kernel, "b", key="key-b"),
    )
    assert isinstance(callers[0].error, KeyboardInterrupt)
    assert callers[1].error is None or isinstance(callers[1].error, OutcomeUnknown)
    _check_served_or_told(kernel, {"key-b": callers[2]})
    for name in "ab":
        put(kernel, name, key=f"key-{name}")
    assert sorted(messages(kernel)) == ["a", "b"]


@pytest.mark.parametrize("others", [[], ["after"], ["after", "later"]])
def test_a_waiting_thread_that_is_interrupted_does_not_stall_the_queue(
    store: HookedStore, others: list[str]
) -> None:
    """The interrupted one is first in line, and would have led next."""
    kernel = new_kernel(store)
    gate, first = Gate(), Once()

    def hold_first(go: Go) -> AdvanceResult:
        if first():
            gate.pass_through()
        return go()

    store.around_advance = hold_first
    leader = Caller(lambda: put(kernel, "leader"))
    gate.wait_until_reached()
    arrivals = Arrivals(kernel)
    is_interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise Interrupted

    def interrupt_me() -> None:
        arrivals.expect_first()
        for name in others:
            arrivals.add(partial(put, kernel, name))
        # A signal that comes just before a thread begins to wait does not wake it: the next one does.
        while not is_interrupted.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        helper = Caller(interrupt_me)
        with pytest.raises(Interrupted):
            put(kernel, "interrupted", key="interrupted")
    finally:
        signal.signal(signal.SIGUSR1, before)
    helper.result()
    gate.open()
    leader.result()
    for caller in arrivals.callers:
        caller.result()
    Caller(lambda: put(kernel, "last")).result()
    landed = messages(kernel)
    assert [name for name in landed if name != "interrupted"] == ["leader", *others, "last"]

    put(kernel, "interrupted", key="interrupted")
    assert messages(kernel).count("interrupted") == 1


class Stopping:
    """Stops the thread that it traces just before the ``number``-th line that it runs of some functions."""

    def __init__(self, number: int, codes: set[Any]) -> None:
        self._left, self._codes = number, codes
        self.stopped_at: tuple[str, int] | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code not in self._codes:
            return None
        # A thread is not stopped on its way out of a `with`, where a tracer, but no signal, comes in.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not text.startswith("with "):
            self._left -= 1
            if self._left == 0:
                self.stopped_at = (frame.f_code.co_qualname, frame.f_lineno)
                raise Interrupted
        return self


def _stop_leader(
    number: int, codes: set[Any]
) -> tuple[Stopping, Caller[RequestOutcome], Caller[RequestOutcome], Kernel]:
    """A leader that is stopped before the ``number``-th line that it runs, and another in its batch."""
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store)
    stopping = Stopping(number, codes)
    gate, first = Gate(), Once()
    store.before_turn = lambda _: gate.pass_through() if first() else None

    def traced() -> RequestOutcome:
        sys.settrace(stopping)
        try:
            return put(kernel, "leader", key="leader")
        finally:
            sys.settrace(None)

    opener = Caller(lambda: put(kernel, "opener"))
    gate.wait_until_reached()
    arrivals = Arrivals(kernel)
    arrivals.add(traced)
    arrivals.add(lambda: put(kernel, "other", key="other"))
    gate.open()
    opener.result()
    leader, other = arrivals.callers
    return stopping, leader, other, kernel


Stop: TypeAlias = Callable[
    [int, set[Any]], tuple[Stopping, Caller[RequestOutcome], Caller[RequestOutcome], Kernel]
]


def _stop_everywhere(codes: set[Any], least: int, stop: Stop = _stop_leader) -> None:
    """Stop a leader before each line in turn; nobody else hangs, and nothing lands twice or is lost."""
    number, stopped = 1, True
    while stopped:
        stopping, leader, other, kernel = stop(number, codes)
        left_by = leader.error
        stopped = stopping.stopped_at is not None
        where = f"stopped at {stopping.stopped_at}"
        if stopped:
            assert isinstance(left_by, Interrupted), where
            assert other.error is None or isinstance(other.error, PenstockError), where
        assert Caller(partial(put, kernel, "later")).error is None, where
        for name in ("leader", "other"):
            put(kernel, name, key=name)
        assert sorted(messages(kernel)) == ["later", "leader", "opener", "other"], where
        number += 1
    assert number > least


def test_a_leader_stopped_at_any_line_of_its_batch_leaves_nobody_waiting() -> None:
    methods = [one for one in vars(batch_module.Batch).values() if hasattr(one, "__code__")]
    _stop_everywhere({method.__code__ for method in methods}, least=50)


def test_a_thread_stopped_at_any_line_around_its_batch_leaves_nobody_waiting() -> None:
    methods = [one for one in vars(queue_module.BranchQueue).values() if hasattr(one, "__code__")]
    _stop_everywhere({method.__code__ for method in methods}, least=15)


def _stop_in_flight(
    number: int, codes: set[Any]
) -> tuple[Stopping, Caller[RequestOutcome], Caller[RequestOutcome], Kernel]:
    """A leader that is stopped before a line, and whose swap fails while a batch is written behind it."""
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store, settings=Settings(backoff_min_ms=0.01))
    put(kernel, "opener")
    stopping, first = Stopping(number, codes), Once()
    behind: list[Caller[RequestOutcome]] = []

    def send_behind() -> None:
        behind.append(Caller(lambda: put(kernel, "other", key="other")))

    def fail_first() -> None:
        if first():
            before = store.advances
            send_behind()
            wait_until(lambda: store.advances > before)
            raise Unavailable("away for a moment")

    def traced() -> RequestOutcome:
        sys.settrace(stopping)
        try:
            return put(kernel, "leader", key="leader")
        finally:
            sys.settrace(None)

    store.before_swap = fail_first
    leader = Caller(traced)
    leader.join(WAIT_S)
    if not behind:
        first()
        send_behind()
    return stopping, leader, behind[0], kernel


@pytest.mark.parametrize("of", ["batch", "queue"])
def test_a_leader_stopped_at_any_line_of_a_flight_that_fails_leaves_nobody_waiting(of: str) -> None:
    kind = batch_module.Batch if of == "batch" else queue_module.BranchQueue
    codes = {one.__code__ for one in vars(kind).values() if hasattr(one, "__code__")}
    _stop_everywhere(codes, least=30, stop=_stop_in_flight)
