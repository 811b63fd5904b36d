"""Leases: one holder at a time, handed over when it ends or dies, without comparing clocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from penstock.errors import Damaged, OutcomeUnknown, Unavailable
from penstock.kernel.copy import copy_store
from penstock.kernel.fsck import fsck
from penstock.kernel.leases import KIND, PREFIX, WATCHED_S, Lease, Leases
from penstock.kernel.sweep import sweep_objects
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from penstock.testing.faults import FaultyStore, Point
from tests.queue.hooks import new_kernel

GOOD_S, MARGIN_S = 60.0, 15.0
USABLE_S = GOOD_S - MARGIN_S


class Watch:
    """A clock that a test sets."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(), locking=False)


def process(store: FaultyStore, watch: Watch) -> Leases:
    return Leases(store, good_s=GOOD_S, margin_s=MARGIN_S, elapsed_s=watch)


def test_what_one_holds_another_does_not_get_until_it_is_released(store: FaultyStore) -> None:
    here, there = process(store, Watch()), process(store, Watch(1000.0))
    lease = here.take_lease("table")
    assert lease is not None
    assert lease.renew_if_due()
    assert there.take_lease("table") is None
    assert here.take_lease("table") is None
    other = there.take_lease("other table")
    assert other is not None
    lease.release()
    assert not lease.renew_if_due()
    assert there.take_lease("table") is not None


def test_of_many_who_want_a_lease_one_gets_it(store: FaultyStore) -> None:
    start = Barrier(8)
    leases = [process(store, Watch()) for _ in range(8)]

    def take(one: Leases) -> bool:
        start.wait()
        return one.take_lease("table") is not None

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, leases)) == 1


def test_a_lease_whose_holder_died_is_taken_when_it_was_watched_for_long_enough(store: FaultyStore) -> None:
    dead, watch = process(store, Watch()), Watch(5.0)
    assert dead.take_lease("table") is not None
    heir = process(store, watch)
    assert heir.take_lease("table") is None
    watch.now_s += GOOD_S - 0.1
    assert heir.take_lease("table") is None
    watch.now_s += 0.2
    assert heir.take_lease("table") is not None


def test_of_many_leases_that_others_hold_so_many_are_watched(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.kernel.leases.WATCHED_MAX", 3)
    dead, watch = process(store, Watch()), Watch(5.0)
    tables = [f"table {number}" for number in range(10)]
    for table in tables:
        assert dead.take_lease(table) is not None
    heir = process(store, watch)
    taken: list[str] = []
    for _ in range(5):  # those that are watched are taken, and make room for others
        for table in [one for one in tables if one not in taken]:
            if heir.take_lease(table) is not None:
                taken.append(table)
            assert len(heir._watched) <= 3
        watch.now_s += GOOD_S + 0.1
    assert taken == tables


def test_a_lease_that_nobody_wants_any_more_is_not_watched_for_ever(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.kernel.leases.WATCHED_MAX", 3)
    other, watch = process(store, Watch()), Watch(5.0)
    heir = process(store, watch)
    for number in range(10):
        lease = other.take_lease(f"table {number}")
        assert lease is not None
        assert heir.take_lease(f"table {number}") is None
        lease.release()
        watch.now_s += WATCHED_S / 2
    assert [*heir._watched] == ["table 8", "table 9"]


def test_a_holder_that_took_a_lease_twice_has_it_until_one_of_the_two_releases_it_in_any_case(
    store: FaultyStore,
) -> None:
    here, there = process(store, Watch()), process(store, Watch())
    first, second = here.take_lease("table", b"mine"), there.take_lease("table", b"mine")
    assert first is not None
    assert second is not None
    first.release(if_taken_once=True)
    assert there.take_lease("table", b"other") is None, "the second one needs it"
    second.release(if_taken_once=True)
    assert there.take_lease("table", b"other") is None, "the first one may need it"
    third = here.take_lease("table", b"mine")
    assert third is not None
    third.release()
    other = there.take_lease("table", b"other")
    assert other is not None
    other.release(if_taken_once=True)
    assert here.take_lease("table", b"mine") is not None


def test_a_holder_whose_answer_was_lost_does_not_take_the_row_of_its_second_request_for_its_own(
    store: FaultyStore,
) -> None:
    """The first one's row does not come about, which it is not told; the second one's does meanwhile."""
    here, there = process(store, Watch()), process(store, Watch())
    taken: list[Lease | None] = []

    def overtaken() -> None:
        taken.append(there.take_lease("table", b"mine"))
        raise OutcomeUnknown("lost")

    store.at(Point.BEFORE_SWAP, overtaken, times=1)
    first = here.take_lease("table", b"mine")
    assert first is not None
    assert taken != [None]
    first.release(if_taken_once=True)
    assert here.take_lease("table", b"other") is None, "the second one needs it"


def test_a_lease_that_is_renewed_is_not_taken(store: FaultyStore) -> None:
    here, there = Watch(), Watch()
    holder, waiting = process(store, here), process(store, there)
    lease = holder.take_lease("table")
    assert lease is not None
    for _ in range(10):
        assert waiting.take_lease("table") is None
        here.now_s += USABLE_S * 0.6
        assert lease.renew_if_due()
        there.now_s += GOOD_S * 0.9


def test_a_holder_that_was_away_for_too_long_stops_before_another_begins(store: FaultyStore) -> None:
    here, there = Watch(), Watch()
    holder, heir = process(store, here), process(store, there)
    lease = holder.take_lease("table")
    assert lease is not None
    assert heir.take_lease("table") is None
    here.now_s = there.now_s = USABLE_S + 0.1
    store.be_unavailable()
    assert not lease.renew_if_due(), "it may have been renewed by nobody, and what it sends may arrive late"
    store.heal()
    assert heir.take_lease("table") is None
    here.now_s = there.now_s = GOOD_S + 0.1
    taken = heir.take_lease("table")
    assert taken is not None
    assert not lease.renew_if_due(), "another has it"
    lease.release()
    assert taken.renew_if_due(), "what was lost cannot be released"
    assert holder.take_lease("table") is None


def test_a_holder_goes_on_while_the_store_is_away_as_long_as_the_lease_is_good(store: FaultyStore) -> None:
    watch = Watch()
    lease = process(store, watch).take_lease("table")
    assert lease is not None
    store.be_unavailable()
    watch.now_s = USABLE_S - 0.1
    assert lease.renew_if_due()
    watch.now_s = USABLE_S + 0.1
    assert not lease.renew_if_due()
    store.heal()
    assert lease.renew_if_due(), "nobody else took it, and it is renewed now"


def test_a_renewal_whose_answer_was_lost_counts_only_when_it_was_seen(store: FaultyStore) -> None:
    watch = Watch()
    lease = process(store, watch).take_lease("table")
    assert lease is not None
    watch.now_s = USABLE_S - 0.1
    store.lose_answer()
    store.fail(Point.TURN, Unavailable("away"), skip=1, times=2)
    assert lease.renew_if_due()
    watch.now_s = USABLE_S + 0.1
    store.be_unavailable()
    assert not lease.renew_if_due()
    store.heal()
    assert lease.renew_if_due(), "the row is still the holder's own"


def test_a_lease_that_was_taken_without_an_answer_ends_by_itself(store: FaultyStore) -> None:
    watch = Watch()
    leases = process(store, watch)
    store.lose_answer()
    store.fail(Point.TURN, Unavailable("away"), skip=1, times=2)
    with pytest.raises(OutcomeUnknown):
        leases.take_lease("table")
    assert leases.take_lease("table") is None
    watch.now_s = GOOD_S + 0.1
    assert leases.take_lease("table") is not None


def test_a_swap_that_another_won_takes_no_lease(store: FaultyStore) -> None:
    leases, rival = process(store, Watch()), process(store, Watch())
    store.at(Point.BEFORE_SWAP, lambda: rival.take_lease("table"))
    assert leases.take_lease("table") is None
    store.lose_swap(times=None)
    assert leases.take_lease("other table") is None, "others are always faster"
    store.heal()
    store.be_unavailable()
    with pytest.raises(Unavailable):
        leases.take_lease("other table")
    store.heal()
    assert leases.take_lease("other table") is not None


def test_a_row_that_is_no_lease_is_called_damaged(store: FaultyStore) -> None:
    watch = Watch()
    leases = process(store, watch)
    with store.turn(PREFIX + "table") as turn:
        assert turn.advance({}, Row(PREFIX + "table", KIND, b"?")).swapped
    with pytest.raises(Damaged, match="@lease/table"):
        leases.take_lease("table")


def test_the_sweep_and_the_check_pass_by_leases_and_a_copy_leaves_them_behind() -> None:
    store, target = MemoryStore(), MemoryStore()
    kernel = new_kernel(store)
    leases = Leases(store)
    lease = leases.take_lease("table")
    assert lease is not None
    sweep_objects(kernel)
    assert not fsck(kernel).damages
    copy_store(kernel, target, source_place="here", target_place="there")
    assert target.reference(PREFIX + "table") is None
    assert lease.renew_if_due()
    assert Leases(target).take_lease("table") is not None
