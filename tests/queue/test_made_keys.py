"""A key that Penstock makes tells from where in the log to look for its request; it leaves no receipt."""

from functools import partial

import pytest

from penstock.errors import IdempotencyKeyReused, InvalidRequest, OutcomeUnknown
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.kernel import Kernel
from penstock.kernel.request import GeneratedKey
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.objects import Receipt, decode_object
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult, Store
from penstock.testing.samples import scan_all
from penstock.testing.threads import at_once
from tests.queue.hooks import (
    Caller,
    Gate,
    Go,
    HookedStore,
    Once,
    SetClock,
    history,
    messages,
    new_kernel,
    put,
    table,
)

HASTY = Settings(tries_max=1)


def receipts(store: Store) -> int:
    ids = [one.id for one in scan_all(store)]
    return sum(isinstance(decode_object(data), Receipt) for data in store.fetch(ids).values())


def test_only_keys_that_callers_give_leave_receipts(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "a")
    put(kernel, "b")
    assert receipts(store.inner) == 0
    put(kernel, "c", key="given")
    assert receipts(store.inner) == 1


def test_a_made_key_names_the_position_before_its_request(store: HookedStore) -> None:
    kernel = new_kernel(store)
    for name in "abc":
        before = kernel.references.get_reference("main").position
        put(kernel, name)
        made = GeneratedKey.parse_key(history(kernel)[-1][1].key)
        assert made is not None
        assert made.position == before


@pytest.mark.parametrize("was_applied", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_answer_that_was_lost_is_found_by_the_key_in_the_error(
    store: HookedStore, was_applied: bool, elsewhere: bool
) -> None:
    kernel = new_kernel(store)
    hasty = Kernel(store, settings=HASTY)
    first = Once()

    def lose(go: Go) -> AdvanceResult:
        if not first():
            return go()
        if was_applied:
            go()
        raise OutcomeUnknown("the answer was lost")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown) as lost:
        put(hasty, "a")
    key = lost.value.details["key"]
    assert GeneratedKey.parse_key(key) is not None
    put(kernel, "between")
    again = put(kernel if elsewhere else hasty, "a", key=key)
    assert again.repeated == was_applied
    assert sorted(messages(kernel)) == ["a", "between"]
    once_more = put(kernel, "a", key=key)
    assert (once_more.head, once_more.repeated) == (again.head, True)
    outcome = kernel.find_outcome("main", key)
    assert outcome is not None
    assert outcome.head == again.head


def test_a_request_and_its_repetition_at_the_same_time_are_done_once() -> None:
    """The first is held before its swap, its repetition elsewhere overtakes it."""
    data = MemoryStore()
    mine = HookedStore(data)
    kernel, other = new_kernel(mine), Kernel(data)
    put(kernel, "zero")
    gate, first = Gate(), Once()
    mine.before_swap = lambda: gate.pass_through() if first() else None
    held = Caller(lambda: put(kernel, "a"))
    gate.wait_until_reached()
    ahead = kernel._find_queue("main")._ahead
    assert ahead is not None
    (ticket,) = ahead.tickets
    overtaking = put(other, "a", key=ticket.request.key)
    gate.open()
    assert held.result().head == overtaking.head
    assert messages(other) == ["zero", "a"]


def test_many_repetitions_at_once_are_done_once() -> None:
    """Of a request that came to nothing at first."""
    data = MemoryStore()
    hooked = HookedStore(data)
    kernels = [new_kernel(data) for _ in range(6)]
    put(kernels[0], "zero")
    for number in range(20):
        key = _key_of_nothing(Kernel(hooked, settings=HASTY), hooked, f"t{number}")
        heads = at_once(*(partial(put, kernel, f"t{number}", key=key) for kernel in kernels))
        assert len({outcome.head for outcome in heads}) == 1
    assert len(messages(kernels[0])) == 21


def _key_of_nothing(kernel: Kernel, store: HookedStore, name: str) -> str:
    """The key of a request that the store never applied."""

    def lose(_: Go) -> AdvanceResult:
        raise OutcomeUnknown("the answer was lost")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown) as lost:
        put(kernel, name)
    store.around_advance = lambda go: go()
    return str(lost.value.details["key"])


def _busy_hours(kernel: Kernel, clock: SetClock) -> None:
    for number in range(16):
        put(kernel, f"early {number}")
    clock.go_on(3600)
    for number in range(100):
        put(kernel, f"late {number}")


def test_a_key_made_by_a_process_that_was_idle_finds_its_request() -> None:
    """Its row is an hour old: that swap is lost, the next one lands, and its answer is lost."""
    clock, data = SetClock(), MemoryStore()
    hooked = HookedStore(data)
    busy = new_kernel(data, clock)
    idle = Kernel(hooked, clock=clock, settings=Settings(tries_max=2, backoff_min_ms=0.01))
    put(idle, "zero")
    _busy_hours(busy, clock)
    tries = iter(range(10))

    def lose_second(go: Go) -> AdvanceResult:
        advanced = go()
        if next(tries) == 1:
            raise OutcomeUnknown("the answer was lost")
        return advanced

    hooked.around_advance = lose_second
    with pytest.raises(OutcomeUnknown) as lost:
        put(idle, "mine")
    assert messages(busy).count("mine") == 1
    assert put(busy, "mine", key=lost.value.details["key"]).repeated
    assert messages(busy).count("mine") == 1


def test_a_repetition_that_landed_late_is_found_by_the_next() -> None:
    clock, data = SetClock(), MemoryStore()
    hooked = HookedStore(data)
    busy = new_kernel(data, clock)
    key = _key_of_nothing(Kernel(hooked, clock=clock, settings=HASTY), hooked, "mine")
    _busy_hours(busy, clock)
    first, second = put(busy, "mine", key=key), put(busy, "mine", key=key)
    assert (first.head, second.repeated) == (second.head, True)
    assert messages(busy).count("mine") == 1


def test_another_request_under_a_made_key_is_refused() -> None:
    kernel = new_kernel(MemoryStore())
    put(kernel, "a")
    with pytest.raises(IdempotencyKeyReused):
        put(kernel, "b", key=history(kernel)[-1][1].key)


def test_a_branch_that_was_made_anew_knows_nothing_of_the_old_ones_keys() -> None:
    kernel = new_kernel(MemoryStore())
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)

    def commit(key: str | None = None) -> RequestOutcome:
        return kernel.commit("dev", [Put(Key("x"), table())], CommitMeta(message="x"), key=key)

    commit()
    key = history(kernel, "dev")[-1][1].key
    kernel.references.delete_reference("dev")
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    done = commit(key)
    assert done.head in [one for one, _ in history(kernel, "dev")]
    assert (commit(key).head, commit(key).repeated) == (done.head, True)


SOME_KEY = f"9999~1~{'0' * 16}~{'0' * 16}"


def test_a_key_that_was_not_made_for_this_branch_is_refused() -> None:
    kernel = new_kernel(MemoryStore())
    put(kernel, "a")
    with pytest.raises(InvalidRequest, match="was made for a later state of 'main'"):
        put(kernel, "b", key=SOME_KEY)
    assert messages(kernel) == ["a"]


def test_a_reference_made_under_such_a_key_is_made_once() -> None:
    kernel = new_kernel(MemoryStore())
    made = [kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT, key=SOME_KEY) for _ in range(2)]
    assert made[0] == made[1]
