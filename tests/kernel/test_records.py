"""A record: replaced, removed or kept as a function decides, within bounds, and found again after a doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import Damaged, OutcomeUnknown, RetriesExhausted, StorageFull, Unavailable
from penstock.kernel.records import (
    KeepRow,
    RecordType,
    RemoveRow,
    ReplaceRow,
    RowSubject,
    list_row_pages,
    list_rows_of_kind,
)
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import check_read_may_go_on, paced_reads
from penstock.model.encoding import hash_parts
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from penstock.testing.counting_store import CountingStore
from penstock.testing.faults import FaultyStore, Point

QUICK = Settings(tries_max=4, backoff_min_ms=0)
NUMBERS: RecordType[int] = RecordType(
    "@number/",
    lambda _: Kind.TOKEN.value,
    lambda number: str(number).encode(),
    int,
    lambda id: RowSubject(f"number '{id}'", "Look at it.", {"number": id}),  # noqa: A006
)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(), locking=False)


def add(store: FaultyStore | CountingStore, amount: int = 1, *, is_counted: bool = False) -> int:
    return NUMBERS.update_record(
        store, QUICK, "a", lambda found: ReplaceRow((found or 0) + amount, is_counted=is_counted)
    )


def keep(_: int | None) -> KeepRow[str]:
    return KeepRow("kept")


def test_a_record_is_put_replaced_kept_and_removed(store: FaultyStore) -> None:
    assert NUMBERS.find_record(store, "a") is None
    assert (add(store), add(store)) == (1, 2)
    assert NUMBERS.update_record(store, QUICK, "a", keep) == "kept"
    assert NUMBERS.find_record(store, "a") == 2
    assert NUMBERS.update_record(store, QUICK, "a", _remove) == 2
    assert NUMBERS.find_record(store, "a") is None


def test_a_change_costs_one_turn_and_one_swap_and_keeping_costs_no_swap() -> None:
    store = CountingStore(MemoryStore())
    add(store)
    assert (store.counts.requests, store.counts.swaps) == (2, 1)
    store.reset()
    NUMBERS.update_record(store, QUICK, "a", keep)
    assert (store.counts.requests, store.counts.swaps) == (1, 0)


def test_objects_are_stored_with_the_row(store: FaultyStore) -> None:
    one = hash_parts("an object")
    NUMBERS.update_record(store, QUICK, "a", lambda _: ReplaceRow(1, {one: b"bytes"}))
    assert store.fetch([one]) == {one: b"bytes"}


def test_a_swap_that_was_done_without_an_answer_is_not_done_again(store: FaultyStore) -> None:
    store.lose_answer()
    assert add(store) == 1
    assert NUMBERS.find_record(store, "a") == 1


def test_a_removal_without_an_answer_returns_what_was_removed(store: FaultyStore) -> None:
    add(store, 7)
    store.lose_answer()
    assert NUMBERS.update_record(store, QUICK, "a", _remove) == 7


def _remove(found: int | None) -> RemoveRow[int]:
    assert found is not None
    return RemoveRow(found)


def test_a_swap_that_lands_late_is_recognised_though_a_later_try_was_lost(store: FaultyStore) -> None:
    """The first swap is on its way while the second one is decided."""
    late: list[Callable[[], None]] = []

    def delay() -> None:
        late.append(lambda: _write(store, NUMBERS.encode_row("a", 1)))
        raise OutcomeUnknown("on its way")

    def arrive() -> None:
        if late:
            late.pop()()

    store.at(Point.BEFORE_SWAP, delay)
    store.at(Point.BEFORE_SWAP, arrive)
    assert add(store) == 1
    assert NUMBERS.find_record(store, "a") == 1


def _write(store: FaultyStore, row: Row) -> None:
    with store.inner.turn(row.name) as turn:
        assert turn.advance({}, row).swapped


def test_a_value_that_counts_is_put_once_more_after_a_doubt(store: FaultyStore) -> None:
    """Whether the row is one's own or another's with the same value, both are counted."""
    store.lose_answer()
    assert add(store, is_counted=True) == 2


def test_tries_are_bounded_when_others_are_always_faster(store: FaultyStore) -> None:
    store.lose_swap(times=None)
    with pytest.raises(RetriesExhausted, match="another process changed number 'a'"):
        add(store)
    assert store.passed[Point.TURN] == QUICK.tries_max
    assert NUMBERS.find_record(store, "a") is None


def test_a_store_that_stays_away_is_unavailable_and_one_without_room_is_not_tried_again(
    store: FaultyStore,
) -> None:
    store.be_unavailable()
    with pytest.raises(Unavailable):
        add(store)
    store.heal()
    turns = store.passed[Point.TURN]
    store.fail(Point.BEFORE_OBJECTS, StorageFull("full"))
    with pytest.raises(StorageFull):
        add(store)
    assert store.passed[Point.TURN] == turns + 1


@pytest.mark.parametrize("is_done", [False, True])
def test_what_stays_unknown_says_what_to_do_and_not_that_nothing_was_changed(
    store: FaultyStore, is_done: bool
) -> None:
    store.fail(Point.AFTER_SWAP if is_done else Point.BEFORE_SWAP, OutcomeUnknown("lost"))
    store.fail(Point.TURN, Unavailable("away"), skip=1, times=None)
    with pytest.raises(OutcomeUnknown) as caught:
        add(store)
    store.heal()
    assert caught.value.message.startswith("it is not known whether number 'a' was changed in ")
    assert caught.value.message.endswith("\n  Look at it.")
    assert "Nothing was changed" not in caught.value.message
    assert caught.value.details["number"] == "a"
    assert NUMBERS.find_record(store, "a") == (1 if is_done else None)


def test_what_a_decision_refuses_is_raised_at_once(store: FaultyStore) -> None:
    def refuse(_: int | None) -> ReplaceRow[int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        NUMBERS.update_record(store, QUICK, "a", refuse)
    assert store.passed[Point.TURN] == 1


def test_who_changes_a_row_is_not_stopped_on_the_way(store: FaultyStore) -> None:
    def end() -> None:
        raise TimeoutError("nobody waits any more")

    def decide_change(_: int | None) -> ReplaceRow[int]:
        check_read_may_go_on()
        return ReplaceRow(1)

    with paced_reads(end):
        assert NUMBERS.update_record(store, QUICK, "a", decide_change) == 1


@pytest.mark.parametrize("data", [b"?", b""])
def test_a_row_that_cannot_be_read_is_damaged(store: FaultyStore, data: bytes) -> None:
    with pytest.raises(Damaged, match="the row of '@number/a' cannot be read"):
        NUMBERS.decode_row(Row("@number/a", Kind.TOKEN.value, data))


def test_a_row_that_holds_another_ones_value_or_is_listed_wrongly_is_damaged() -> None:
    named = NUMBERS._replace(id=str)
    assert named.decode_row(Row("@number/7", Kind.TOKEN.value, b"7")) == 7
    with pytest.raises(Damaged, match=r"'@number/8'.* by its content it is number '7'"):
        named.decode_row(Row("@number/8", Kind.TOKEN.value, b"7"))
    with pytest.raises(
        Damaged, match="of kind job contradicts itself: by its content it is number '7', of kind token"
    ):
        named.decode_row(Row("@number/7", Kind.JOB.value, b"7"))


def test_rows_are_read_in_pages(store: FaultyStore) -> None:
    for number in range(5):
        NUMBERS.update_record(store, QUICK, str(number), lambda _: ReplaceRow(0))
    names = [row.name for row in list_rows_of_kind(store, Kind.TOKEN, page_max=2)]
    assert names == [f"@number/{number}" for number in range(5)]
    assert [len(page) for page in list_row_pages(store, Kind.TOKEN, page_max=2)] == [2, 2, 1]
    after = list_rows_of_kind(store, Kind.TOKEN, prefix="@number/", after="@number/2")
    assert [row.name for row in after] == ["@number/3", "@number/4"]
