"""Retries: bounded in number and in time, with waits that grow and are random."""

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from penstock.errors import OutcomeUnknown, RetriesExhausted, StorageFull, TryAgainError, Unavailable
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import WriteRetries
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import (
    Go,
    HookedStore,
    Once,
    everything,
    gather,
    head,
    messages,
    new_kernel,
    put,
    table,
)


class Time:
    """Time that passes only by waiting for it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waits_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


def _exhaust(settings: Settings, uniform: Callable[[float, float], float]) -> tuple[Time, WriteRetries]:
    time = Time()
    tries = WriteRetries(settings, time.sleep, time.monotonic, uniform)

    def go_on_for_ever() -> None:
        while True:
            tries.wait_for_next_try("it moved")

    with pytest.raises(RetriesExhausted):
        go_on_for_ever()
    return time, tries


def test_time_that_a_write_waits_for_others_to_land_is_added_to_its_own() -> None:
    time = Time()
    settings = Settings(write_timeout_s=10.0, backoff_min_ms=0)
    tries = WriteRetries(settings, time.sleep, time.monotonic)
    time.now_s += 60
    tries.extend_time(60)
    tries.wait_for_next_try("it moved")
    assert tries.left_s == 10
    time.now_s += 10.1
    with pytest.raises(RetriesExhausted, match=r"within 10 s"):
        tries.wait_for_next_try("it moved")


def _longest(_: float, high: float) -> float:
    """No chance involved: each wait is as long as it may be."""
    return high


def test_waits_double_up_to_the_longest() -> None:
    settings = Settings(tries_max=12, write_timeout_s=1000, backoff_min_ms=2, backoff_max_ms=100)
    time, _ = _exhaust(settings, _longest)
    assert time.waits_s == sorted(time.waits_s)
    assert all(
        later == pytest.approx(min(2 * earlier, 0.1))
        for earlier, later in zip(time.waits_s, time.waits_s[1:], strict=False)
    )
    assert time.waits_s[-1] == pytest.approx(0.1)


def test_the_first_wait_is_at_most_the_shortest() -> None:
    settings = Settings(tries_max=3, write_timeout_s=1000, backoff_min_ms=2, backoff_max_ms=100)
    time, _ = _exhaust(settings, _longest)
    assert time.waits_s[0] == pytest.approx(0.002)


def test_a_random_part_of_the_wait_is_waited() -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return (low + high) / 2

    settings = Settings(tries_max=10, write_timeout_s=1000, backoff_min_ms=4, backoff_max_ms=50)
    time, _ = _exhaust(settings, uniform)
    assert {low for low, _ in asked} == {0}
    assert max(high for _, high in asked) == pytest.approx(0.05)
    assert time.waits_s == [pytest.approx(high / 2) for _, high in asked[: len(time.waits_s)]]


def test_tries_end_with_their_number() -> None:
    _, tries = _exhaust(Settings(tries_max=7, write_timeout_s=1000, backoff_max_ms=1), _longest)
    assert tries.count == 7


def test_tries_end_with_their_time_and_never_wait_past_it() -> None:
    settings = Settings(tries_max=10_000, write_timeout_s=2, backoff_min_ms=100, backoff_max_ms=300)
    time, tries = _exhaust(settings, _longest)
    assert 1002 - 0.3 <= time.now_s <= 1002
    assert tries.count == len(time.waits_s) + 1


def test_very_many_tries_are_possible() -> None:
    settings = Settings(tries_max=5000, write_timeout_s=1000, backoff_min_ms=0.5, backoff_max_ms=1)
    _, tries = _exhaust(settings, _longest)
    assert tries.count == 5000


def _always_loses(shared: MemoryStore) -> HookedStore:
    theirs, numbers = new_kernel(shared), count()
    store = HookedStore(shared)

    def overtake(go: Go) -> AdvanceResult:
        theirs.commit("main", [Put(Key(f"t{next(numbers)}"), table())], CommitMeta(message="theirs"))
        return go()

    store.around_advance = overtake
    return store


def test_a_branch_that_always_moves_first_exhausts_the_tries(shared: MemoryStore) -> None:
    store = _always_loses(shared)
    kernel = new_kernel(store, settings=Settings(tries_max=5, backoff_min_ms=0))
    with pytest.raises(RetriesExhausted) as caught:
        put(kernel, "mine", key="k")
    assert store.advances == 5
    assert caught.value.details["tries"] == 5
    text = str(caught.value)
    assert "gave up after 5 tries" in text
    assert "another process moved 'main'" in text
    assert "Nothing was changed" in text
    assert "write_timeout_s" in text
    assert set(messages(kernel)) == {"theirs"}
    assert kernel.find_outcome("main", "k") is None


def test_a_branch_that_always_moves_first_exhausts_the_time(shared: MemoryStore) -> None:
    store = _always_loses(shared)
    settings = Settings(tries_max=1_000_000, write_timeout_s=0.05, backoff_min_ms=1, backoff_max_ms=2)
    kernel = new_kernel(store, settings=settings)
    with pytest.raises(RetriesExhausted, match=r"within 0\.05 s"):
        put(kernel, "mine")
    assert set(messages(kernel)) == {"theirs"}


def test_everyone_in_a_batch_that_is_exhausted_gets_an_error_of_their_own(shared: MemoryStore) -> None:
    store = _always_loses(shared)
    kernel = new_kernel(store, settings=Settings(tries_max=3, backoff_min_ms=0))
    callers = gather(kernel, store, *(partial(put, kernel, f"mine{number}") for number in range(4)))
    errors = [caller.error for caller in callers]
    assert {type(error) for error in errors} == {RetriesExhausted}
    assert len({id(error) for error in errors}) == 4


def test_a_request_that_was_exhausted_can_be_repeated_under_its_key(shared: MemoryStore) -> None:
    store = _always_loses(shared)
    kernel = new_kernel(store, settings=Settings(tries_max=3, backoff_min_ms=0))
    with pytest.raises(RetriesExhausted):
        put(kernel, "mine", key="k")
    store.around_advance = lambda go: go()
    assert not put(kernel, "mine", key="k").repeated
    assert put(kernel, "mine", key="k").repeated
    assert messages(kernel).count("mine") == 1


def test_a_reference_that_always_moves_first_exhausts_the_tries(shared: MemoryStore) -> None:
    store = _always_loses(shared)
    kernel = new_kernel(store, settings=Settings(tries_max=5, backoff_min_ms=0))
    at = head(kernel)
    with pytest.raises(RetriesExhausted, match="another process moved 'main'"):
        kernel.references.assign_reference("main", at)
    assert store.advances == 5


def _away(*_: object) -> None:
    raise Unavailable("the store is away")


@pytest.mark.parametrize("what", ["commit", "create"])
def test_a_store_that_stays_away_is_unavailable(store: HookedStore, what: str) -> None:
    kernel = new_kernel(store, settings=Settings(tries_max=4, backoff_min_ms=0))
    at, before = head(kernel), everything(store)
    turns = []

    def away(name: str) -> None:
        turns.append(name)
        _away()

    store.before_turn = away
    write: Callable[[], object] = partial(put, kernel, "a")
    if what == "create":
        write = partial(kernel.references.create_reference, "dev", Kind.BRANCH, at)
    with pytest.raises(TryAgainError, match="the store is away") as caught:
        write()
    assert len(turns) == 4
    assert everything(store) == before
    assert isinstance(caught.value, Unavailable), "nobody else moved anything: it is the store that is away"


@pytest.mark.parametrize("what", ["turn", "advance"])
def test_a_store_that_comes_back_in_time_is_not_noticed(store: HookedStore, what: str) -> None:
    kernel = new_kernel(store, settings=Settings(tries_max=4, backoff_min_ms=0))
    first = Once(3)
    if what == "turn":
        store.before_turn = lambda _: _away() if first() else None
    else:

        def refuse(go: Go) -> AdvanceResult:
            if first():
                _away()
            return go()

        store.around_advance = refuse
    put(kernel, "a")
    put(kernel, "b")
    assert messages(kernel) == ["a", "b"]


@pytest.mark.parametrize("what", ["commit", "create"])
def test_a_store_without_room_is_not_tried_again(store: HookedStore, what: str) -> None:
    kernel = new_kernel(store, settings=Settings(tries_max=4, backoff_min_ms=0))
    at, before = head(kernel), everything(store)

    def full(_: Go) -> AdvanceResult:
        raise StorageFull("the disk is full")

    store.around_advance = full
    tried = store.advances
    with pytest.raises(StorageFull):
        _ = (
            put(kernel, "a")
            if what == "commit"
            else kernel.references.create_reference("dev", Kind.BRANCH, at)
        )
    assert store.advances - tried <= 1
    store.around_advance = lambda go: go()
    assert everything(store) == before


def test_a_branch_that_moves_after_a_doubt_does_not_say_that_nothing_was_changed(store: HookedStore) -> None:
    kernel = new_kernel(store, settings=Settings(tries_max=3, backoff_min_ms=0))

    def lose(_: Go) -> AdvanceResult:
        raise OutcomeUnknown("the connection broke")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown, match="the connection broke") as caught:
        put(kernel, "a", key="k")
    assert "Nothing was changed" not in str(caught.value)
    assert "did not answer" not in str(caught.value)
