"""Repetitions where the world changed in between: another incarnation, another clock, another user."""

import pytest

import penstock
from penstock.errors import ReferenceNotFound
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import Go, HookedStore, Once, SetClock, new_lake, table

HOUR_S = 3600


def test_a_try_lost_to_a_branch_created_anew_lands_once() -> None:
    """Its receipt was stored for the branch that is gone; the new one needs a receipt of its own."""
    shared = MemoryStore()
    store = HookedStore(shared)
    lake, other = new_lake(store), new_lake(shared)
    lake.branch("dev").create()
    first = Once()

    def recreate(go: Go) -> AdvanceResult:
        if first():
            other.branch("dev").delete()
            other.branch("dev").create(at="main")
        return go()

    store.around_advance = recreate
    made = lake.branch("dev").put("t", table(), idempotency_key="k")
    again = lake.branch("dev").put("t", table(), idempotency_key="k")
    assert made == again == lake.outcome("k", "dev")
    assert len(lake.log("dev")) == 1


def test_a_clock_that_is_an_hour_behind_the_log_does_not_make_a_request_land_twice() -> None:
    shared, ahead = MemoryStore(), SetClock()
    ahead.go_on(HOUR_S)
    store = HookedStore(shared)
    lake, other = new_lake(store, SetClock()), new_lake(shared, ahead)
    other.branch().put("busy", table())
    lost = 0

    def be_slower(go: Go) -> AdvanceResult:
        nonlocal lost
        lost += 1
        if lost <= 20:
            other.branch().put("busy", table(str(lost)))
        return go()

    store.around_advance = be_slower
    made = lake.branch().put("t", table(), idempotency_key="k")
    assert lost == 21
    assert lake.branch().put("t", table(), idempotency_key="k") == made


def test_a_repetition_by_somebody_else_is_the_same_request() -> None:
    store = MemoryStore()
    made = penstock.open(store, author="one").branch().put("t", table(), idempotency_key="k")
    again = penstock.open(store, author="other").branch().put("t", table(), idempotency_key="k")
    assert (again.id, again.author) == (made.id, "one")


def test_a_merge_is_answered_again_when_its_source_is_gone() -> None:
    lake = penstock.open("memory:")
    lake.branch("dev").create().put("t", table())
    made = lake.merge("dev", "main", idempotency_key="k")
    lake.branch("dev").delete()
    again = lake.merge("dev", "main", idempotency_key="k")
    assert (again.commits, again.head, again.applied) == (made.commits, made.head, True)
    with pytest.raises(ReferenceNotFound):
        lake.merge("dev", "main", idempotency_key="another")
