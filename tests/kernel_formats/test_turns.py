"""A turn does no work outside the store. What is slow or may fail happens before it or after it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Barrier, BrokenBarrierError, Event, Thread, current_thread
from time import sleep

import pytest

import penstock
from penstock import IcebergTable, Key, Lake, Put, Settings
from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    RetriesExhausted,
)
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.lake.embedded import Embedded
from penstock.model.clock import Clock, now_us
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing import CountingStore, FaultyStore, Point
from penstock.testing.drill import TickingClock, new_lake
from penstock.testing.journal import JournalFormat, LandedJournal, append, journal_at, lines_of, replace
from penstock.testing.threads import at_once


def test_k4_a_change_is_prepared_outside_of_the_queue(lake: Lake, journals: JournalFormat) -> None:
    """While one change is being prepared, slowly, others land: a slow bucket stalls nobody."""
    lake.commit([append("diary", "one")])
    arrived, go = Event(), Event()

    def hold() -> None:
        arrived.set()
        assert go.wait(30)

    journals.during_prepare = hold
    slow = Thread(target=lambda: lake.commit([append("diary", "slow")]))
    slow.start()
    assert arrived.wait(30)
    journals.during_prepare = lambda: None
    for number in range(3):
        lake.commit([append("diary", f"quick {number}")])
        lake.branch().put(f"plain{number}", IcebergTable(metadata_location="1"))
    go.set()
    slow.join(30)
    assert lines_of(lake.kernel, "diary") == ["one", "quick 0", "quick 1", "quick 2", "slow"]


def test_k4_landing_is_told_outside_of_the_queue(lake: Lake, journals: JournalFormat) -> None:
    """While what has landed is being published, slowly, it is visible and others land."""
    arrived, go = Event(), Event()

    def hold() -> None:
        arrived.set()
        assert go.wait(30)

    journals.during_landed = hold
    slow = Thread(target=lambda: lake.commit([append("diary", "one")]))
    slow.start()
    assert arrived.wait(30)
    assert lines_of(lake.kernel, "diary") == ["one"]
    journals.during_landed = lambda: None
    lake.commit([append("diary", "two")])
    go.set()
    slow.join(30)
    assert lines_of(lake.kernel, "diary") == ["one", "two"]


def test_k4_a_lost_swap_applies_again_but_prepares_once(journals: JournalFormat) -> None:
    store = FaultyStore(MemoryStore())
    lake = _lake_on(store, journals)
    lake.commit([append("diary", "one")])
    before = journals.calls.copy()
    store.lose_swap(times=3)
    lake.commit([append("diary", "two")])
    assert journals.calls["prepare"] - before["prepare"] == 1
    assert journals.calls["apply"] - before["apply"] == 4
    assert journals.calls["landed"] - before["landed"] == 1
    assert lines_of(lake.kernel, "diary") == ["one", "two"]


def test_k4_bytes_that_the_kernel_carries_are_stored_with_the_commit_and_kept_by_the_sweep(
    journals: JournalFormat,
) -> None:
    """By the very advance that moves the branch, and not before it: at the turn nothing else is stored."""
    clock = TickingClock()
    store = CountingStore(MemoryStore(clock))
    lake = _lake_on(store, journals, clock, Settings(grace_s=10, nobody_writes=True))
    store.reset()
    lake.commit([append("diary", "carried")])
    assert (store.counts.swaps, store.counts.swaps_lost) == (1, 0)
    (held,) = [one for one in _held(lake) if lake.kernel.objects.get(one).data == b"1\tcarried"]
    assert held in store.fetch([held])
    clock.pass_hours(1)
    lake.sweep()
    clock.pass_hours(1)
    lake.sweep()
    assert held in store.fetch([held])
    assert lake.fsck().damages == ()


def test_k4_bytes_that_no_line_names_any_more_are_swept_with_the_history_that_did(
    journals: JournalFormat,
) -> None:
    clock = TickingClock()
    store = MemoryStore(clock)
    lake = _lake_on(store, journals, clock, Settings(grace_s=10, nobody_writes=True))
    lake.keep_history(max_commits=1)
    lake.commit([append("diary", "old")])
    (held,) = _held(lake)
    plain = [Put(Key(f"plain{number}"), IcebergTable(metadata_location="1")) for number in range(600)]
    lake.commit([replace("diary", "new"), *plain])  # so many that they are folded into the tree
    clock.pass_hours(1)
    lake.sweep()
    assert store.fetch([held]) == {}
    assert lines_of(lake.kernel, "diary") == ["new"]
    assert lake.fsck().damages == ()


def test_k4_a_failure_to_publish_does_not_fail_the_commit(lake: Lake, journals: JournalFormat) -> None:
    def fail() -> None:
        raise OSError("the bucket is away")

    journals.during_landed = fail
    commit = lake.commit([append("diary", "one")])
    assert lake.branch().head == commit.id
    assert journals.calls["landed"] == 1
    journals.during_landed = lambda: None
    lake.commit([append("diary", "two")])
    assert lines_of(lake.kernel, "diary") == ["one", "two"]


def test_k4_what_is_published_is_what_landed(lake: Lake, journals: JournalFormat) -> None:
    first = lake.commit([append("diary", "one")])
    second = lake.commit([append("diary", "two"), append("log", "a")])
    assert journals.published == [
        LandedJournal(Key("diary"), first.object_id, 1),
        LandedJournal(Key("diary"), second.object_id, 2),
        LandedJournal(Key("log"), second.object_id, 1),
    ]


def test_k4_what_is_published_after_a_lost_answer_is_what_landed(journals: JournalFormat) -> None:
    store = FaultyStore(MemoryStore())
    lake = _lake_on(store, journals)
    lake.commit([append("diary", "one")])
    store.lose_answer()
    commit = lake.commit([append("diary", "two")])
    assert lines_of(lake.kernel, "diary") == ["one", "two"]
    assert journals.published[-1] == LandedJournal(Key("diary"), commit.object_id, 2)
    assert len(journals.published) == 2


def test_k4_a_change_that_cannot_be_is_refused_before_it_queues(lake: Lake, journals: JournalFormat) -> None:
    journals.refused_texts = {"bad", "worse"}
    lake.commit([append("diary", "good")])
    head, applied = lake.branch().head, journals.calls["apply"]
    with pytest.raises(CommitConflict) as refused:
        lake.commit([append("diary", "bad"), append("log", "worse"), append("third", "good")])
    assert [(one.key, one.why) for one in refused.value.conflicts] == [
        (Key("diary"), "cannot append the line 'bad'"),
        (Key("log"), "cannot append the line 'worse'"),
    ]
    assert (lake.branch().head, journals.calls["apply"]) == (head, applied)


def test_k4_a_change_refused_at_its_turn_costs_the_others_nothing(
    lake: Lake, journals: JournalFormat
) -> None:
    journals.refused_late = {"line 3"}
    lake.commit([append("diary", "first")])

    def write(number: int) -> bool:
        try:
            lake.commit([append("diary", f"line {number}")])
        except CommitConflict:
            return False
        return True

    landed = at_once(*(partial(write, number) for number in range(8)))
    assert [number for number, done in enumerate(landed) if not done] == [3]
    assert sorted(lines_of(lake.kernel, "diary")) == sorted(
        ["first", *(f"line {number}" for number in range(8) if number != 3)]
    )


def test_k4_a_refused_change_lets_nothing_of_its_request_land(lake: Lake, journals: JournalFormat) -> None:
    journals.refused_late = {"bad"}
    head = lake.branch().head
    with pytest.raises(CommitConflict):
        lake.commit(
            [
                append("log", "good"),
                append("diary", "bad"),
                Put(Key("a"), IcebergTable(metadata_location="1")),
            ]
        )
    assert lake.branch().head == head
    assert journals.published == []


def test_k4_a_change_that_must_be_prepared_again_goes_round(lake: Lake, journals: JournalFormat) -> None:
    lake.commit([append("diary", "one")])
    before = journals.calls.copy()
    journals.again = 2
    lake.commit([append("diary", "two")])
    assert journals.calls["prepare"] - before["prepare"] == 3
    assert journals.calls["apply"] - before["apply"] == 3
    assert lines_of(lake.kernel, "diary") == ["one", "two"]


def test_k4_a_change_that_must_be_prepared_for_ever_gives_up_in_bounds(journals: JournalFormat) -> None:
    lake = _lake_on(MemoryStore(), journals, settings=Settings(tries_max=5, backoff_min_ms=0.01))
    head = lake.branch().head
    journals.again = 1000
    with pytest.raises(RetriesExhausted) as given_up:
        lake.commit([append("diary", "never")])
    assert given_up.value.details["tries"] == 5
    assert lake.branch().head == head


def test_k4_changes_that_must_be_prepared_again_are_prepared_one_after_the_other(
    journals: JournalFormat,
) -> None:
    """Side by side only one of them would land in each round, and the last one give up."""
    lake = _lake_on(MemoryStore(), journals)
    lake.commit([append("diary", "first")])
    journals.reads_storage = True
    together = Barrier(8)

    def prepare_slowly() -> None:
        _wait_once(together)
        sleep(0.02)  # long enough for the others to come meanwhile

    journals.during_prepare = prepare_slowly
    before = journals.calls["prepare"]
    at_once(*(partial(lake.commit, [append("diary", f"line {number}")]) for number in range(8)))
    assert sorted(lines_of(lake.kernel, "diary")) == ["first", *(f"line {number}" for number in range(8))]
    assert journals.calls["prepare"] - before == 8 + 7


def test_k4_a_change_that_was_refused_lands_however_many_others_come_after_it(
    journals: JournalFormat,
) -> None:
    """Whenever it is being prepared, another request comes. Only those that begin before it has been refused
    with the turn land before it: further ones wait for it."""
    lake = _lake_on(MemoryStore(), journals, settings=Settings(tries_max=6, backoff_min_ms=0.01))
    lake.commit([append("diary", "first")])
    journals.reads_storage = True
    line = lake.kernel._find_queue("main").preparations
    patient, others = current_thread(), list[Thread]()

    def come(text: str) -> None:
        lake.commit([append("diary", text)])

    def have_another_come() -> None:
        if current_thread() is not patient:
            return
        waiting = len(line)
        others.append(Thread(target=come, args=(f"other {len(others)}",)))
        others[-1].start()
        while others[-1].is_alive() and len(line) <= waiting:
            sleep(0.001)  # until it has landed, or waits in line

    journals.during_prepare = have_another_come
    lake.commit([append("diary", "patient")])
    for other in others:
        other.join(30)
    assert lines_of(lake.kernel, "diary") == ["first", "other 0", "other 1", "patient", "other 2"]


def test_k4_changes_that_wait_to_be_prepared_again_land_in_the_order_in_which_they_came(
    journals: JournalFormat,
) -> None:
    lake = _lake_on(MemoryStore(), journals)
    line = lake.kernel._find_queue("main").preparations
    gate = line.take_turn()
    with gate:
        gate.wait(30, 30)
        threads = list[Thread]()
        for number in range(5):
            journals.again = 1
            operations = [append("diary", f"line {number}")]
            threads.append(Thread(target=lake.commit, args=(operations,)))
            threads[-1].start()
            while len(line) < number + 2:
                sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert lines_of(lake.kernel, "diary") == [f"line {number}" for number in range(5)]


def test_k4_a_change_does_not_wait_for_another_that_is_prepared_again_slowly(journals: JournalFormat) -> None:
    lake = _lake_on(MemoryStore(), journals, settings=Settings(write_timeout_s=2))
    arrived, go = Event(), Event()
    texts = iter(["slow", "slow again", "other", "other again"])

    def hold() -> None:
        if next(texts) == "slow again":
            arrived.set()
            assert go.wait(30)

    journals.again, journals.during_prepare = 1, hold
    slow = Thread(target=lambda: lake.commit([append("diary", "slow")]))
    slow.start()
    assert arrived.wait(30)
    journals.again = 1
    lake.commit([append("diary", "other")])
    assert lines_of(lake.kernel, "diary") == ["other"]
    go.set()
    slow.join(30)
    assert lines_of(lake.kernel, "diary") == ["other", "slow"]


def test_k4_another_in_the_batch_lands_while_one_goes_round(lake: Lake, journals: JournalFormat) -> None:
    journals.again = 1
    at_once(*(partial(lake.commit, [append("diary", f"line {number}")]) for number in range(6)))
    assert sorted(lines_of(lake.kernel, "diary")) == [f"line {number}" for number in range(6)]
    assert journals.again == 0


def test_k4_a_format_that_breaks_at_its_turn_fails_its_own_request_only(
    lake: Lake, journals: JournalFormat
) -> None:
    lake.commit([append("diary", "one")])

    def explode() -> None:
        raise ZeroDivisionError("a mistake in the format")

    journals.during_apply = explode
    with pytest.raises(ZeroDivisionError):
        lake.commit([append("diary", "two")])
    journals.during_apply = lambda: None
    lake.commit([append("diary", "three")])
    assert lines_of(lake.kernel, "diary") == ["one", "three"]


def test_k4_a_change_by_a_format_that_nobody_knows_is_refused() -> None:
    lake = penstock.open("memory:")
    with pytest.raises(InvalidRequest, match="journal"):
        lake.commit([append("diary", "one")])
    assert lake.log() == []


@pytest.mark.parametrize("point", [Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP])
def test_k4_a_change_whose_answer_is_unknown_is_settled_by_its_key(
    point: Point, journals: JournalFormat
) -> None:
    store = FaultyStore(MemoryStore())
    lake = _lake_on(store, journals, settings=Settings(tries_max=1))
    lake.commit([append("diary", "one")])
    store.fail(point, penstock.errors.OutcomeUnknown("no answer"))
    with pytest.raises(penstock.errors.OutcomeUnknown):
        lake.commit([append("diary", "two")], idempotency_key="k")
    done = lake.commit([append("diary", "two")], idempotency_key="k")
    assert done.id == lake.branch().head
    assert lines_of(lake.kernel, "diary") == ["one", "two"]
    assert lake.fsck().damages == ()


def _held(lake: Lake) -> tuple[bytes, ...]:
    content = journal_at(lake.kernel, "diary")
    return content.objects if content is not None else ()


def _wait_once(barrier: Barrier) -> None:
    """Wait for the others, the first time that all are here; whoever comes later goes on."""
    with suppress(BrokenBarrierError):
        if barrier.wait(30) == 0:
            barrier.abort()


def _lake_on(
    store: Store,
    journals: JournalFormat,
    clock: Clock = now_us,
    settings: Settings | None = None,
) -> Lake:
    new_lake(store)
    return Lake(
        Embedded(Kernel(store, [journals], settings, clock), read_description(store), open_lake=Lake),
        "tester",
    )
