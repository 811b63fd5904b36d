"""What a check was to look at does not land without it, whoever finishes what its program began."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock.errors import CommitVetoed, TransactionOver
from penstock.kernel.checks import BranchProposal, Check
from penstock.kernel.transactions import TransactionRecord
from penstock.model.transactions import TransactionState
from penstock.testing.faults import FaultyStore, Point
from tests.transactions.lakes import MINUTE_US, Clock, Process


class Died(BaseException):
    """The process is gone."""


def dies(_: BranchProposal) -> None:
    raise Died


def left(process: Process, *names: str) -> TransactionRecord:
    """A transaction whose process dies while the last of some checks looks at what would land."""
    for name in names:
        process.kernel.checks.add_check(Check(name, "main", dies if name == names[-1] else lambda _: None))
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    with pytest.raises(Died):
        process.commit(known)
    return process.transactions.get_transaction(known.transaction.id)


@pytest.mark.parametrize("how", ["settle", "commit"])
@pytest.mark.parametrize("others", [[], ["size"], ["another", "size"]])
def test_who_lacks_a_check_leaves_it_committing_and_says_what_to_do(
    process: Process, clock: Clock, how: str, others: list[str]
) -> None:
    known = left(process, "quality", "size")
    other = Process(process.kernel.store, clock)
    for name in others:
        other.kernel.checks.add_check(Check(name, "main", lambda _: None))
    clock.us += 11 * MINUTE_US
    with pytest.raises(TransactionOver, match=r"'quality'(.|\n)*penstock tx abort") as refused:
        other.commit(known) if how == "commit" else other.transactions.settle_transaction(known)
    assert refused.value.details["state"] == "committing"
    assert other.transactions.get_transaction(known.transaction.id) == known
    assert other.number("a") is None
    assert other.transactions.abort_transaction(known.transaction.id).state is TransactionState.ABORTED


@pytest.mark.parametrize("verdict", [True, False])
def test_who_has_the_checks_finishes_it_as_they_decide(process: Process, clock: Clock, verdict: bool) -> None:
    known = left(process, "quality")
    other = Process(process.kernel.store, clock)
    other.kernel.checks.add_check(Check("quality", "*", lambda _: verdict))
    if verdict:
        assert other.commit(known).state is TransactionState.COMMITTED
    else:
        with pytest.raises(CommitVetoed):
            other.commit(known)
        assert other.transactions.get_transaction(known.transaction.id).state is TransactionState.ABORTED
    assert other.number("a") == (1 if verdict else None)


def test_a_check_that_another_sender_adds_is_needed_from_then_on(process: Process, clock: Clock) -> None:
    known = left(process, "quality")
    second = Process(process.kernel.store, clock)
    second.kernel.checks.add_check(Check("quality", "main", lambda _: None))
    second.kernel.checks.add_check(Check("size", "main", dies))
    with pytest.raises(Died):
        second.commit(known)
    third = Process(process.kernel.store, clock)
    third.kernel.checks.add_check(Check("quality", "main", lambda _: None))
    with pytest.raises(TransactionOver, match="'size'"):
        third.commit(known)


def test_one_that_has_landed_is_told_to_who_lacks_its_checks(faulty: FaultyStore, clock: Clock) -> None:
    process = Process(faulty, clock)
    process.kernel.checks.add_check(Check("quality", "main", lambda _: None))
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    faulty.fail(Point.BEFORE_SWAP, Died(), name=known.transaction.branch, skip=1)
    with pytest.raises(Died):
        process.commit(known)
    faulty.heal()
    other = Process(faulty.inner, clock)
    ended = other.commit(other.transactions.get_transaction(known.transaction.id))
    assert (ended.state, ended.transaction.commit) == (TransactionState.COMMITTED, other.head())


def test_a_check_of_another_branch_is_not_asked_for(process: Process, clock: Clock) -> None:
    process.kernel.checks.add_check(Check("of releases", "release/*", lambda _: None))
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    assert process.commit(known).transaction.checks == ()
    assert process.transactions.begin_transaction(uuid4().hex, "main").transaction.checks == ()
