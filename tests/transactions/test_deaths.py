"""A process dies at any step of a commit: whoever comes next finds all of it or nothing, and finishes it."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.errors import MergeConflict, OutcomeUnknown, TransactionOver
from penstock.kernel.fsck import fsck
from penstock.kernel.settings import Settings
from penstock.model.transactions import TransactionState
from penstock.testing.faults import FaultyStore, Point
from tests.transactions.lakes import MINUTE_US, Clock, Process

POINTS: Final = (Point.TURN, Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP)
STEPS: Final = [("own", 0), ("main", 0), ("own", 1)]
"""The swaps of a commit: the row says committing, the target lands it, the row says committed."""


class Died(BaseException):
    """The process is gone."""


def dies(faulty: FaultyStore, clock: Clock, point: Point, step: tuple[str, int], *, conflict: bool) -> str:
    """A transaction whose process dies while it commits; its id."""
    process = Process(faulty, clock)
    process.put("main", "a", 1)
    known = process.begin()
    process.put(known.transaction.branch, "a", 2)
    process.put(known.transaction.branch, "b", 2)
    if conflict:
        process.put("main", "a", 3)
    where, skip = step
    faulty.fail(point, Died(), name="main" if where == "main" else known.transaction.branch, skip=skip)
    with pytest.raises(Died):
        process.commit(known)
    faulty.heal()
    return known.transaction.id


def state_of(process: Process) -> tuple[int | None, int | None]:
    return process.number("a"), process.number("b")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("then", ["again", "settled", "expired"])
def test_a_commit_that_died_is_all_or_nothing(
    faulty: FaultyStore, clock: Clock, point: Point, step: tuple[str, int], then: str
) -> None:
    id = dies(faulty, clock, point, step, conflict=False)  # noqa: A001
    other = Process(faulty.inner, clock)
    assert state_of(other) in ((1, None), (2, 2))
    left = other.transactions.get_transaction(id)
    if then == "again":
        ended = other.commit(left)
        assert ended.state is TransactionState.COMMITTED
    else:
        clock.us += (11 if then == "settled" else 61) * MINUTE_US
        ended = other.transactions.settle_transaction(left) if other.transactions.is_abandoned(left) else left
    is_open = left.state is TransactionState.OPEN
    if then == "expired" and is_open:
        assert (ended.state, state_of(other)) == (TransactionState.ABORTED, (1, None))
    elif then == "settled" and is_open:
        assert ended.state is TransactionState.OPEN  # its lease goes on: somebody may take it up
    else:
        assert (ended.state, state_of(other)) == (TransactionState.COMMITTED, (2, 2))
        assert ended.transaction.commit == other.head()
        assert len(list(other.kernel.walk_commits(other.head()))) == 2
    assert fsck(other.kernel).damages == ()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", [STEPS[0], STEPS[2]])
def test_a_refusal_that_died_is_refused_again(
    faulty: FaultyStore, clock: Clock, point: Point, step: tuple[str, int]
) -> None:
    id = dies(faulty, clock, point, step, conflict=True)  # noqa: A001
    other = Process(faulty.inner, clock)
    assert state_of(other) == (3, None)
    with pytest.raises((MergeConflict, TransactionOver)):
        other.commit(other.transactions.get_transaction(id))
    assert other.transactions.get_transaction(id).state is TransactionState.ABORTED
    assert state_of(other) == (3, None)


@pytest.mark.parametrize("point", POINTS)
def test_a_beginning_that_died_is_begun_once(faulty: FaultyStore, clock: Clock, point: Point) -> None:
    process, id = Process(faulty, clock), "ab" * 16  # noqa: A001
    faulty.fail(point, Died(), name=f"tx/{id}")
    with pytest.raises(Died):
        process.transactions.begin_transaction(id, "main")
    faulty.heal()
    known = Process(faulty.inner, clock).transactions.begin_transaction(id, "main")
    assert known.state is TransactionState.OPEN
    assert len(list(process.transactions.list_open_transactions())) == 1


@pytest.mark.parametrize("step", STEPS)
def test_an_answer_that_was_lost_is_found_out(
    faulty: FaultyStore, clock: Clock, step: tuple[str, int]
) -> None:
    process = Process(faulty, clock)
    known = process.begin()
    process.put(known.transaction.branch, "a", 2)
    where, skip = step
    faulty.lose_answer(name="main" if where == "main" else known.transaction.branch, skip=skip)
    ended = process.commit(known)
    assert (ended.state, ended.transaction.sends) == (TransactionState.COMMITTED, 1)
    assert len(list(process.kernel.walk_commits(process.head()))) == 1


def test_a_store_that_stays_away_leaves_it_committing_and_anybody_finishes_it(
    faulty: FaultyStore, clock: Clock
) -> None:
    process = Process(faulty, clock, Settings(write_timeout_s=0.05, backoff_max_ms=1.0))
    known = process.begin()
    process.put(known.transaction.branch, "a", 2)
    faulty.lose_answer(name="main", times=None)
    faulty.fail(Point.TURN, OutcomeUnknown("nobody answers"), name="main", times=None, skip=1)
    with pytest.raises(OutcomeUnknown):
        process.commit(known)
    faulty.heal()
    other = Process(faulty.inner, clock)
    left = other.transactions.get_transaction(known.transaction.id)
    assert left.state is TransactionState.COMMITTING
    assert (
        other.transactions.look_up_end(left).state is TransactionState.COMMITTED
    )  # by the log of its target
    assert other.commit(left).transaction.commit == other.head()
    assert other.number("a") == 2
