"""Commit, abort, expiry and writes meet at every instant: one swap of the row decides."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from penstock.errors import MergeConflict, TransactionOver
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.model.references import Event
from penstock.model.transactions import TransactionState
from penstock.testing.faults import FaultyStore, Point
from tests.transactions.lakes import MINUTE_US, Clock, Process

COMMITTED, ABORTED = TransactionState.COMMITTED, TransactionState.ABORTED


@pytest.fixture
def slow(faulty: FaultyStore, clock: Clock) -> Process:
    """A process that can be stopped."""
    return Process(faulty, clock)


@pytest.fixture
def other(faulty: FaultyStore, clock: Clock) -> Process:
    """Another process on the same data, which is not."""
    return Process(faulty.inner, clock)


def while_stopped(
    faulty: FaultyStore, point: Point, name: str, slow: Callable[[], object], quick: Callable[[], object]
) -> Future[object]:
    """Do one thing while another one stands still at a point; what came of that."""
    gate = faulty.pause(point, name=name)
    with ThreadPoolExecutor(1) as workers:
        future = workers.submit(slow)
        gate.wait_until_reached()
        try:
            quick()
        finally:
            gate.open()
    return future


@pytest.mark.parametrize("end", ["abort", "expire"])
def test_a_commit_that_comes_too_late_finds_it_ended(
    faulty: FaultyStore, slow: Process, other: Process, clock: Clock, end: str
) -> None:
    known = slow.begin()
    slow.put(known.transaction.branch, "a", 1)

    def ends() -> None:
        if end == "expire":
            clock.us += 61 * MINUTE_US
            other.transactions.settle_transaction(known)
        else:
            other.transactions.abort_transaction(known.transaction.id)

    branch = known.transaction.branch
    future = while_stopped(faulty, Point.BEFORE_SWAP, branch, lambda: slow.commit(known), ends)
    with pytest.raises(TransactionOver):
        future.result()
    assert other.transactions.get_transaction(known.transaction.id).state is ABORTED
    assert other.number("a") is None


@pytest.mark.parametrize("end", ["abort", "expire", "renew"])
def test_what_is_committing_is_not_cancelled(
    faulty: FaultyStore, slow: Process, other: Process, clock: Clock, end: str
) -> None:
    known = slow.begin()
    id = known.transaction.id  # noqa: A001
    slow.put(known.transaction.branch, "a", 1)

    def tries() -> None:
        if end == "abort":
            assert other.transactions.abort_transaction(id).state is TransactionState.COMMITTING
        elif end == "renew":
            with pytest.raises(TransactionOver, match="being committed"):
                other.transactions.renew_lease(id)
        else:
            clock.us += 9 * MINUTE_US
            now = other.transactions.get_transaction(id)
            assert not other.transactions.is_abandoned(now)

    future = while_stopped(faulty, Point.BEFORE_SWAP, "main", lambda: slow.commit(known), tries)
    future.result()
    assert (other.transactions.get_transaction(id).state, other.number("a")) == (COMMITTED, 1)


@pytest.mark.parametrize("point", [Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP])
@pytest.mark.parametrize("where", ["main", "its own row"])
def test_two_who_commit_at_once_land_it_once(
    faulty: FaultyStore, slow: Process, other: Process, point: Point, where: str
) -> None:
    known = slow.begin()
    slow.put(known.transaction.branch, "a", 1)
    name = "main" if where == "main" else known.transaction.branch
    future = while_stopped(faulty, point, name, lambda: slow.commit(known), lambda: other.commit(known, "2"))
    mine, yours = future.result(), other.transactions.get_transaction(known.transaction.id)
    assert mine == yours
    assert yours.state is COMMITTED
    assert len(list(other.kernel.walk_commits(other.head()))) == 1
    assert other.number("a") == 1


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("point", [Point.BEFORE_OBJECTS, Point.BEFORE_SWAP])
def test_a_write_in_flight_when_it_ends_is_refused(
    faulty: FaultyStore, slow: Process, other: Process, end: str, point: Point
) -> None:
    known = slow.begin()
    branch = known.transaction.branch
    slow.put(branch, "a", 1)

    def ends() -> None:
        if end == "commit":
            other.commit(known)
        else:
            other.transactions.abort_transaction(known.transaction.id)

    future = while_stopped(faulty, point, branch, lambda: slow.put(branch, "b", 2), ends)
    with pytest.raises(TransactionOver):
        future.result()
    assert (other.number("a"), other.number("b")) == (1 if end == "commit" else None, None)


def test_a_write_whose_answer_was_lost_is_answered_though_it_has_landed_since(
    faulty: FaultyStore, slow: Process, other: Process
) -> None:
    known = slow.begin()
    branch = known.transaction.branch
    faulty.lose_answer(name=branch)
    put = Put(Key("a"), IcebergTable(metadata_location="s3://b/1", snapshot_id=1))
    faulty.at(Point.TURN, lambda: other.commit(known), skip=1, name=branch)
    outcome = slow.kernel.commit(branch, [put], key="mine")
    assert outcome.head == other.transactions.get_transaction(known.transaction.id).head
    assert other.number("a") == 1
    again = slow.kernel.commit(branch, [put], key="mine")
    assert (again.head, again.repeated) == (outcome.head, True)


def test_a_write_that_goes_by_a_renewed_row_lands(slow: Process, other: Process, clock: Clock) -> None:
    """The queue remembers a row whose lease has run out by now: only the stored one counts."""
    known = slow.begin()
    slow.put(known.transaction.branch, "a", 1)
    clock.us += 50 * MINUTE_US
    other.transactions.renew_lease(known.transaction.id)
    clock.us += 50 * MINUTE_US
    slow.put(known.transaction.branch, "a", 2)
    slow.commit(known)
    assert other.number("a") == 2


def test_a_refusal_holds_although_it_was_sent_twice(
    faulty: FaultyStore, slow: Process, other: Process
) -> None:
    """One sending is refused and calls the other off, which would land by now: its conflict is gone."""
    other.put("main", "a", 1)
    known = slow.begin()
    id = known.transaction.id  # noqa: A001
    slow.put(known.transaction.branch, "a", 2)

    def is_refused() -> None:
        other.put("main", "a", 3)
        with pytest.raises(MergeConflict):
            other.commit(known)
        assert other.transactions.get_transaction(id).state is ABORTED
        other.kernel.revert(other.head(), "main", CommitMeta())
        assert other.number("a") == 1

    future = while_stopped(faulty, Point.BEFORE_OBJECTS, "main", lambda: slow.commit(known), is_refused)
    with pytest.raises(TransactionOver):
        future.result()
    assert (other.transactions.get_transaction(id).state, other.number("a")) == (ABORTED, 1)
    kinds = [entry.kind for _, entry in other.kernel.references.walk_log("main")]
    assert kinds.count(Event.ABORT.value) == 1


def test_a_refused_one_that_another_has_landed_is_told_so(
    faulty: FaultyStore, slow: Process, other: Process
) -> None:
    """The sending that is refused comes second: the first has landed, and that is the answer."""
    known = slow.begin()
    slow.put(known.transaction.branch, "a", 1)

    def lands() -> None:
        other.commit(known)
        other.put("main", "a", 7)

    future = while_stopped(faulty, Point.BEFORE_OBJECTS, "main", lambda: slow.commit(known), lands)
    assert future.result() == other.transactions.get_transaction(known.transaction.id)
    assert other.number("a") == 7


def test_many_who_commit_abort_and_write_at_once_agree(process: Process) -> None:
    for number in range(8):
        known = process.begin()
        branch = known.transaction.branch
        process.put(branch, f"a{number}", 1)

        def commits(known: object = known) -> object:
            return process.commit(known)  # type: ignore[arg-type]

        def aborts(id: str = known.transaction.id) -> object:  # noqa: A002
            return process.transactions.abort_transaction(id)

        def writes(branch: str = branch, key: str = f"b{number}") -> object:
            return process.put(branch, key, 1)

        with ThreadPoolExecutor(6) as workers:
            futures = [workers.submit(one) for one in (commits, aborts, writes, commits, writes, aborts)]
        outcomes = [future.exception() for future in futures]
        assert all(one is None or isinstance(one, TransactionOver) for one in outcomes), outcomes
        ended = process.transactions.get_transaction(known.transaction.id)
        landed = process.number(f"a{number}") == 1
        assert landed is (ended.state is COMMITTED)
        if not landed:
            assert process.number(f"b{number}") is None
