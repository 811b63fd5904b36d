"""A key that Penstock makes tells from where in the log to look for its request; it leaves no receipt."""

from functools import partial

import pytest

from penstock.errors import InvalidRequest, OutcomeUnknown
from penstock.kernel.kernel import Kernel
from penstock.kernel.request import position_in
from penstock.kernel.settings import Settings
from penstock.model.encoding import NO_COMMIT
from penstock.model.objects import Receipt, decode_object
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Advanced, Store
from penstock.testing.samples import scan_all
from penstock.testing.threads import at_once
from tests.queue.hooks import Caller, Gate, Go, HookedStore, Once, history, messages, new_kernel, put

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
        before = kernel.references.get("main").position
        put(kernel, name)
        assert position_in(history(kernel)[-1][1].key) == before


@pytest.mark.parametrize("was_applied", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_answer_that_was_lost_is_found_by_the_key_in_the_error(
    store: HookedStore, was_applied: bool, elsewhere: bool
) -> None:
    kernel = new_kernel(store)
    hasty = Kernel(store, settings=HASTY)
    first = Once()

    def lose(go: Go) -> Advanced:
        if not first():
            return go()
        if was_applied:
            go()
        raise OutcomeUnknown("the answer was lost")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown) as lost:
        put(hasty, "a")
    key = lost.value.details["key"]
    assert position_in(key) is not None
    put(kernel, "between")
    again = put(kernel if elsewhere else hasty, "a", key=key)
    assert again.repeated == was_applied
    assert sorted(messages(kernel)) == ["a", "between"]
    once_more = put(kernel, "a", key=key)
    assert (once_more.head, once_more.repeated) == (again.head, True)
    outcome = kernel.outcome("main", key)
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
    ahead = kernel._queue("main")._ahead
    assert ahead is not None
    (ticket,) = ahead.tickets
    overtaking = put(other, "a", key=ticket.request.key)
    gate.open()
    assert held.result().head == overtaking.head
    assert messages(other) == ["zero", "a"]


def test_many_repetitions_at_once_are_done_once() -> None:
    data = MemoryStore()
    kernels = [new_kernel(data) for _ in range(6)]
    put(kernels[0], "zero")
    key = f"{kernels[0].references.get('main').position}~{'0' * 32}"
    for number in range(20):
        heads = at_once(
            *(partial(put, kernel, f"t{number}", key=f"{key[:-2]}{number:02}") for kernel in kernels)
        )
        assert len({outcome.head for outcome in heads}) == 1
    assert len(messages(kernels[0])) == 21


def test_a_key_that_was_not_made_for_this_branch_is_refused() -> None:
    kernel = new_kernel(MemoryStore())
    put(kernel, "a")
    with pytest.raises(InvalidRequest, match="was not made for 'main'"):
        put(kernel, "b", key=f"999~{'0' * 32}")
    assert messages(kernel) == ["a"]


def test_a_reference_made_under_such_a_key_is_made_once() -> None:
    kernel = new_kernel(MemoryStore())
    key = f"1~{'0' * 32}"
    made = [kernel.references.create("dev", Kind.BRANCH, NO_COMMIT, key=key) for _ in range(2)]
    assert made[0] == made[1]
