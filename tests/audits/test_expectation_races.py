"""An expectation that comes, goes or is broken at any point between somebody's look and their swap."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from penstock.errors import CommitVetoed
from penstock.lake.lake import Lake
from penstock.testing.faults import FaultyStore, Point
from tests.audits.lakes import POSITIVE, Counting, ids, orders

SMALL = "select * from sales.orders where id > 100"
POINTS = [Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP]
"""Before a row is read for the swap, and after it."""


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_what_is_expected_while_a_commit_is_on_its_way_is_asked_of_it(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    faulty.at(point, lambda: other.expect("positive amounts", POSITIVE), name="main")
    with pytest.raises(CommitVetoed, match="positive amounts"):
        stopped.table("sales.orders").append(orders(-1))
    assert ids(other) == [1, 2]
    assert len(other.expectations()) == 1


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_commit_that_was_asked_about_is_asked_about_what_came_meanwhile(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    other.expect("small", SMALL)
    stopped.table("sales.orders").append(orders(3))
    faulty.at(point, lambda: other.expect("positive amounts", POSITIVE), name="main")
    engine = Counting(stopped)
    with pytest.raises(CommitVetoed, match="positive amounts"):
        stopped.table("sales.orders").append(orders(-1))
    assert engine.asked == ["small", "small", "positive amounts"]
    assert ids(other) == [1, 2, 3]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_commit_is_asked_about_together_with_what_landed_meanwhile(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    other.expect("at most four", "select count(*) as n from sales.orders having n > 4")
    stopped.table("sales.orders").append(orders(3))
    faulty.at(point, lambda: other.table("sales.orders").append(orders(4)), name="main")
    with pytest.raises(CommitVetoed, match="n = 5"):
        stopped.table("sales.orders").append(orders(5))
    assert ids(other) == [1, 2, 3, 4]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_what_is_not_expected_any_more_does_not_stop_a_commit(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    other.expect("small", SMALL)
    faulty.at(point, lambda: other.unexpect("small"), name="main")
    stopped.table("sales.orders").append(orders(3))
    stopped.table("sales.orders").append(orders(101))
    assert ids(other) == [1, 2, 3, 101]


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("how", ["assign", "rebase"])
def test_what_is_expected_while_a_branch_is_being_moved_is_asked_of_that(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point, how: str
) -> None:
    release = stopped.branch("release").create()
    release.create_namespace("own")
    stopped.table("sales.orders").append(orders(-1))
    before = release.head
    faulty.at(point, lambda: other.expect("positive amounts", POSITIVE, "release"), name="release")
    with pytest.raises(CommitVetoed):
        release.assign("main") if how == "assign" else stopped.rebase("release")
    assert release.head == before


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_what_is_expected_while_a_transaction_lands_is_asked_of_it(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    tx = stopped.transaction()
    stopped.table("sales.orders", tx.branch).append(orders(-1))
    faulty.at(point, lambda: other.expect("positive amounts", POSITIVE), name="main")
    with pytest.raises(CommitVetoed):
        tx.land()
    assert ids(other) == [1, 2]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_what_is_broken_while_it_is_being_added_is_not_expected(
    stopped: Lake, faulty: FaultyStore, other: Lake, point: Point
) -> None:
    faulty.at(point, lambda: other.table("sales.orders").append(orders(-1)), name="main")
    with pytest.raises(CommitVetoed, match="'main' does not meet the expectation 'positive amounts'"):
        stopped.expect("positive amounts", POSITIVE)
    assert other.expectations() == ()


def test_changes_of_other_tables_do_not_matter_while_it_is_being_added(
    stopped: Lake, faulty: FaultyStore, other: Lake
) -> None:
    engine = Counting(stopped)
    faulty.at(Point.BEFORE_SWAP, lambda: other.branch().create_namespace("more"), name="main")
    stopped.expect("positive amounts", POSITIVE)
    assert engine.asked == ["positive amounts"]
    assert len(other.expectations()) == 1


def test_lost_answers_to_adding_and_removing_it_are_resolved(
    stopped: Lake, faulty: FaultyStore, other: Lake
) -> None:
    faulty.lose_answer(name="main")
    assert len(stopped.expect("positive amounts", POSITIVE)) == 1
    assert len(other.expectations()) == 1
    faulty.lose_answer(name="main")
    assert stopped.unexpect("positive amounts") == ()
    assert other.expectations() == ()


def test_two_who_add_at_once_are_both_heard(lake: Lake, other: Lake) -> None:
    barrier = Barrier(2)

    def add(process: Lake, name: str, sql: str) -> Callable[[], None]:
        def work() -> None:
            barrier.wait(60)
            process.expect(name, sql)

        return work

    works = [add(lake, "positive amounts", POSITIVE), add(other, "small", SMALL)]
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(one.name for one in lake.expectations()) == ["positive amounts", "small"]


def test_many_writers_of_a_branch_that_expects_something_all_land_or_are_told(
    lake: Lake, other: Lake
) -> None:
    """Between processes that know nothing of each other, and within each."""
    lake.expect("positive amounts", POSITIVE)
    refused: list[int] = []
    barrier = Barrier(4)

    def write(process: Lake, first: int) -> None:
        barrier.wait(60)
        for number in (first, -first):
            try:
                process.table("sales.orders").append(orders(number))
            except CommitVetoed:
                refused.append(number)

    threads = [
        Thread(target=write, args=(process, number))
        for process, number in ((lake, 10), (lake, 20), (other, 30), (other, 40))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ids(lake) == [1, 2, 10, 20, 30, 40]
    assert sorted(refused) == [-40, -30, -20, -10]


def test_a_branch_that_is_made_anew_while_it_is_being_added_is_asked_itself(
    stopped: Lake, faulty: FaultyStore, other: Lake
) -> None:
    stopped.branch("dev").create()

    def again() -> None:
        other.branch("dev").delete()
        other.branch("dev").create()
        other.table("sales.orders", "dev").append(orders(-1))

    faulty.at(Point.TURN, again, name="dev")
    with pytest.raises(CommitVetoed):
        stopped.expect("positive amounts", POSITIVE, "dev")
    assert other.expectations("dev") == ()
