"""The next batch is written while the swap of the one before it is in flight; nobody is answered by that."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import current_thread
from typing import Any

import pytest

from penstock.errors import Denied, OutcomeUnknown, ReferenceChanged, Unavailable
from penstock.kernel.batch import Batch, RequestOutcome, Ticket
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.memory import MemoryStore
from penstock.testing.threads import at_once
from tests.queue.hooks import (
    Arrivals,
    Caller,
    Gate,
    HookedStore,
    Once,
    gather,
    head,
    history,
    messages,
    new_kernel,
    put,
    ref_log,
    wait_until,
)


class Airport:
    """A kernel whose first swap is held in flight, with a second batch written behind it."""

    def __init__(self, outcome: Callable[[], None], *behind: Callable[[Kernel], RequestOutcome]) -> None:
        self.data = MemoryStore()
        self.store = HookedStore(self.data)
        self.kernel = new_kernel(self.store, settings=Settings(backoff_min_ms=0.01))
        put(self.kernel, "zero")
        gate, first = Gate(), Once()

        def before_swap() -> None:
            if first():
                gate.pass_through()
                outcome()

        self.store.before_swap = before_swap
        before = self.store.advances
        self.first: Caller[RequestOutcome] = Caller(lambda: put(self.kernel, "first", key="first"))
        gate.wait_until_reached()
        arrivals = Arrivals(self.kernel)
        for call in behind:
            arrivals.add(partial(call, self.kernel))
        self.behind = arrivals.callers
        if behind:
            wait_until(lambda: self.store.advances == before + 2)  # the second batch is being written
        self._gate = gate

    def go_on(self) -> None:
        self._gate.open()

    @property
    def landed(self) -> list[str]:
        return messages(Kernel(self.data))


def lands() -> None:
    """The swap in flight goes on."""


def other(kernel: Kernel) -> RequestOutcome:
    return put(kernel, "second", key="second")


def test_a_batch_is_written_while_the_one_before_it_is_swapped() -> None:
    airport = Airport(lands, other, lambda kernel: put(kernel, "third"))
    assert airport.landed == ["zero"], "nothing is visible before its swap"
    assert all(caller.is_alive() for caller in (airport.first, *airport.behind))
    airport.go_on()
    assert airport.first.result().head == history(airport.kernel)[1][0]
    for caller in airport.behind:
        caller.result()
    assert airport.landed[:3] == ["zero", "first", "second"]
    positions = [entry.position for entry in ref_log(airport.kernel)]
    assert positions == list(range(1, len(positions) + 1))


def overtaken_by_another(airport: list[Airport]) -> None:
    put(Kernel(airport[0].data), "theirs")


def test_a_lost_swap_takes_the_batch_behind_it_along() -> None:
    made: list[Airport] = []
    made.append(Airport(lambda: overtaken_by_another(made), other))
    made[0].go_on()
    made[0].first.result()
    made[0].behind[0].result()
    assert made[0].landed == ["zero", "theirs", "first", "second"], "and the order stays"


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_a_swap_that_failed_is_tried_again_before_those_behind_it(error: type[Exception]) -> None:
    def fail() -> None:
        raise error("the answer was lost")

    airport = Airport(fail, other)
    airport.go_on()
    airport.first.result()
    airport.behind[0].result()
    assert airport.landed == ["zero", "first", "second"]


def test_a_swap_whose_answer_was_lost_is_found_and_not_repeated() -> None:
    airport = Airport(lands, other)
    once = Once()

    def lose_the_answer(go: Callable[[], object]) -> object:
        advanced = go()
        if once():
            raise OutcomeUnknown("the answer was lost")
        return advanced

    # Too late for the two that are under way, so for the one after them.
    airport.store.around_advance = lose_the_answer  # type: ignore[assignment]
    third = Caller(lambda: put(airport.kernel, "third", key="third"))
    airport.go_on()
    for caller in (airport.first, *airport.behind, third):
        caller.result()
    assert sorted(airport.landed) == ["first", "second", "third", "zero"]


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, MemoryError])
def test_a_thread_that_is_stopped_in_flight_leaves_nobody_waiting(stopped_by: type[BaseException]) -> None:
    def stop() -> None:
        raise stopped_by

    airport = Airport(stop, other)
    airport.go_on()
    assert isinstance(airport.first.error, stopped_by)
    airport.behind[0].result()
    put(airport.kernel, "last")
    assert [name for name in airport.landed if name != "first"] == ["zero", "second", "last"]
    put(airport.kernel, "first", key="first")
    assert airport.landed.count("first") == 1


def test_a_swap_that_is_refused_by_the_store_is_answered_and_those_behind_it_land() -> None:
    def refuse() -> None:
        raise Denied("not allowed")

    airport = Airport(refuse, other)
    airport.go_on()
    assert isinstance(airport.first.error, Denied)
    airport.behind[0].result()
    assert airport.landed == ["zero", "second"]


def test_a_refusal_because_of_a_swap_in_flight_waits_for_it_to_land() -> None:
    airport = Airport(lands)
    seen = head(Kernel(airport.data))
    late = Caller(lambda: put(airport.kernel, "second", if_head=seen))
    wait_until(lambda: airport.kernel._find_queue("main")._leader is not None)
    assert late.is_alive()
    airport.go_on()
    airport.first.result()
    assert isinstance(late.error, ReferenceChanged)
    assert airport.landed == ["zero", "first"]


def test_a_refusal_because_of_a_swap_in_flight_that_fails_is_none() -> None:
    def refuse() -> None:
        raise Denied("not allowed")

    airport = Airport(refuse)
    seen = head(Kernel(airport.data))
    late = Caller(lambda: put(airport.kernel, "second", if_head=seen))
    wait_until(lambda: airport.kernel._find_queue("main")._leader is not None)
    airport.go_on()
    assert isinstance(airport.first.error, Denied)
    late.result()
    assert airport.landed == ["zero", "second"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_same_request_behind_itself_is_done_once(fails: bool) -> None:
    def outcome() -> None:
        if fails:
            raise Unavailable("away for a moment")

    airport = Airport(outcome, lambda kernel: put(kernel, "first", key="first"))
    airport.go_on()
    results = [airport.first.result(), airport.behind[0].result()]
    assert results[0].head == results[1].head
    assert airport.landed == ["zero", "first"]


def test_a_receipt_written_behind_a_flight_that_failed_still_finds_its_commit() -> None:
    """It was written when the log was expected to be one entry longer than it came to be."""
    made: list[Airport] = []

    def refuse() -> None:
        raise Denied("not allowed")

    made.append(Airport(refuse, other))
    made[0].go_on()
    assert isinstance(made[0].first.error, Denied)
    done = made[0].behind[0].result()
    elsewhere = Kernel(made[0].data)
    again = put(elsewhere, "second", key="second")
    assert (again.head, again.repeated) == (done.head, True)
    assert made[0].landed == ["zero", "second"]


def test_more_batches_follow_one_another() -> None:
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store)
    callers = [Caller(partial(put, kernel, f"t{number}", key=f"key-{number}")) for number in range(200)]
    heads = {caller.result().head for caller in callers}
    assert len(heads) == 200
    assert sorted(messages(kernel)) == sorted(f"t{number}" for number in range(200))


class HookedLock:
    """A lock that a test is told of before it is taken."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.before: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        self.before()
        self._inner.__enter__()

    def __exit__(self, *problem: object) -> None:
        self._inner.__exit__(*problem)


def test_who_is_answered_while_others_are_dismissed_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader behind dismisses the answered just when the one in flight answers its own."""
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store)
    put(kernel, "zero")
    queue = kernel._find_queue("main")
    lock = HookedLock(queue._lock)
    monkeypatch.setattr(queue, "_lock", lock)
    swap, first = Gate(), Once()
    store.before_swap = lambda: swap.pass_through() if first() else None
    leader, beside = gather(kernel, store, lambda: put(kernel, "a"), lambda: put(kernel, "t"))
    swap.wait_until_reached()
    before = store.advances
    behind = Caller(lambda: put(kernel, "b"))
    wait_until(lambda: store.advances == before + 1)
    answering, dismissing, answered = Gate(), Gate(), Gate()
    answer = Batch._answer_requests

    def slowly(batch: Batch) -> None:
        if current_thread() is leader:
            answering.pass_through()
        answer(batch)
        if current_thread() is leader:
            answered.pass_through()

    monkeypatch.setattr(Batch, "_answer_requests", slowly)

    def hold() -> None:
        if current_thread() is behind and sys._getframe(2).f_code.co_name == "_run_batch":
            dismissing.pass_through()

    lock.before = hold
    swap.open()
    answering.wait_until_reached()
    dismissing.wait_until_reached()
    answering.open()
    answered.wait_until_reached()
    dismissing.open()
    behind.result()
    answered.open()
    leader.result()
    beside.result()


def _interrupt_next_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Ticket.wait

    def interrupted(ticket: Ticket) -> None:
        monkeypatch.setattr(Ticket, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ticket, "wait", interrupted)


def test_a_request_behind_its_own_interrupted_self_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it waited, then sent again under the same key: it leads a batch it is not part of."""
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store)
    put(kernel, "zero")
    queue = kernel._find_queue("main")
    gate, first = Gate(), Once()
    store.before_turn = lambda _: gate.pass_through() if first() else None
    leader = Caller(lambda: put(kernel, "leader"))
    gate.wait_until_reached()
    _interrupt_next_wait(monkeypatch)
    stopped = Caller(lambda: put(kernel, "x", key="x"))
    assert isinstance(stopped.error, KeyboardInterrupt)
    again = Caller(lambda: put(kernel, "x", key="x"))
    wait_until(lambda: len(queue._waiting) == 3)
    gate.open()
    leader.result()
    again.result()
    assert messages(kernel).count("x") == 1


def test_a_thread_that_is_stopped_on_its_way_back_leaves_no_row_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HookedStore(MemoryStore())
    kernel = new_kernel(store, settings=Settings(backoff_min_ms=0.01))
    put(kernel, "zero")
    queue = kernel._find_queue("main")
    gate, first = Gate(), Once()

    def before_swap() -> None:
        if first():
            gate.pass_through()
            raise Unavailable("away for a moment")

    store.before_swap = before_swap
    ahead = Caller(lambda: put(kernel, "first", key="first"))
    gate.wait_until_reached()
    held, once = Gate(), Once()
    next_batch = queue._take_next_batch

    def hold() -> list[Ticket]:
        if once():
            held.pass_through()
        return next_batch()

    monkeypatch.setattr(queue, "_take_next_batch", hold)
    behind = Caller(lambda: put(kernel, "second", key="second"))
    held.wait_until_reached()
    _interrupt_next_wait(monkeypatch)
    gate.open()
    assert isinstance(ahead.error, KeyboardInterrupt)
    held.open()
    behind.result()
    elsewhere = Kernel(store.inner)
    assert put(elsewhere, "second", key="second").repeated
    assert messages(elsewhere).count("second") == 1


def test_a_crowd_that_never_rests_is_served_to_the_last() -> None:
    """Batches overlap all the while, and some requests are refused."""
    kernel = new_kernel(MemoryStore())

    def work(number: int) -> int:
        landed = 0
        for turn in range(40):
            with suppress(ReferenceChanged):
                expected = head(kernel) if turn % 8 == 0 else None
                put(kernel, f"t{number}-{turn}", if_head=expected)
                landed += 1
        return landed

    landed = at_once(*(partial(work, number) for number in range(32)))
    assert len(messages(kernel)) == sum(landed)


def test_who_stood_beside_a_stopped_leader_is_told_of_the_doubt_if_the_store_stays_away(
    store: HookedStore,
) -> None:
    """The try that was stopped may have landed, though none of those after it reached the store."""
    kernel = new_kernel(store, settings=Settings(tries_max=2, backoff_min_ms=0.01))
    is_away = False

    def stop(_: object) -> Any:
        nonlocal is_away
        is_away = True
        raise KeyboardInterrupt

    def before_turn(_: str) -> None:
        if is_away:
            raise Unavailable("away")

    store.around_advance, store.before_turn = stop, before_turn
    leader, beside = gather(kernel, store, lambda: put(kernel, "a"), lambda: put(kernel, "t"))
    assert isinstance(leader.error, KeyboardInterrupt)
    assert isinstance(beside.error, OutcomeUnknown)
