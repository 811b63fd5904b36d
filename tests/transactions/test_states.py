"""T1: a transaction goes open, committing, committed or aborted, and in no other order."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import pytest

from penstock.errors import (
    InvalidName,
    InvalidRequest,
    MergeConflict,
    PenstockError,
    ReferenceChanged,
    ReferenceNotFound,
    TransactionNotFound,
    TransactionOver,
)
from penstock.kernel.fsck import fsck
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind
from penstock.model.transactions import Policy, TransactionState
from penstock.stores.port import Store
from penstock.testing.journal import append
from tests.transactions.lakes import MINUTE_US, Clock, Process

OPEN, COMMITTED, ABORTED = TransactionState.OPEN, TransactionState.COMMITTED, TransactionState.ABORTED


def test_all_that_was_written_lands_as_one_commit_with_the_steps_behind_it(process: Process) -> None:
    process.put("main", "a", 1)
    known = process.begin()
    branch = known.transaction.branch
    process.put(branch, "a", 2)
    last = process.put(branch, "b", 3)
    assert (process.number("a", branch), process.number("b", branch)) == (2, 3)
    assert (process.number("a"), process.number("b")) == (1, None)
    ended = process.commit(known)
    assert ended.state is COMMITTED
    assert (process.number("a"), process.number("b")) == (2, 3)
    assert ended.transaction.commit == process.head()
    landed = process.kernel.history.read_commit(process.head())
    assert (landed.parent, landed.further_parents) == (known.transaction.base, (last,))
    assert (landed.message, landed.key) == ("landed", known.transaction.id)
    assert fsck(process.kernel).damages == ()


def test_what_lands_beside_changes_of_others_keeps_both(process: Process) -> None:
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    process.put("main", "b", 2)
    process.commit(known)
    assert (process.number("a"), process.number("b")) == (1, 2)


def test_nothing_lands_of_an_empty_one(process: Process) -> None:
    before = process.put("main", "a", 1)
    ended = process.commit(process.begin())
    assert (ended.state, ended.transaction.commit, process.head()) == (COMMITTED, NO_COMMIT, before)


def test_an_aborted_one_never_lands(process: Process) -> None:
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    ended = process.transactions.abort_transaction(known.transaction.id, "not today")
    assert (ended.state, ended.transaction.why) == (ABORTED, "not today")
    with pytest.raises(TransactionOver, match="not today"):
        process.commit(known)
    assert process.number("a") is None


@pytest.mark.parametrize("first", ["commit", "abort", "conflict", "expire"])
@pytest.mark.parametrize("then", ["commit", "abort", "renew", "write", "read", "settle"])
def test_the_first_end_is_the_only_one(process: Process, clock: Clock, first: str, then: str) -> None:
    process.put("main", "a", 1)
    known = process.begin()
    id, branch = known.transaction.id, known.transaction.branch  # noqa: A001
    process.put(branch, "a", 2)
    if first == "commit":
        process.commit(known)
    elif first == "abort":
        process.transactions.abort_transaction(id)
    elif first == "conflict":
        process.put("main", "a", 9)
        with pytest.raises(MergeConflict):
            process.commit(known)
    else:
        clock.us += 61 * MINUTE_US
        assert process.transactions.settle_transaction(known).transaction.why == "its lease ran out"
    ended, head = process.transactions.get_transaction(id), process.head()
    assert ended.state is (COMMITTED if first == "commit" else ABORTED)
    steps: dict[str, Callable[[], object]] = {
        "commit": lambda: process.commit(known),
        "abort": lambda: process.transactions.abort_transaction(id),
        "renew": lambda: process.transactions.renew_lease(id),
        "write": lambda: process.put(branch, "c", 1),
        "read": lambda: process.head(branch),
        "settle": lambda: process.transactions.settle_transaction(ended),
    }
    try:
        answer = steps[then]()
    except TransactionOver:
        assert then not in ("abort", "settle")
        assert (first, then) != ("commit", "commit")
    else:
        assert (first, then) == ("commit", "commit") or then in ("abort", "settle")
        assert answer == ended
    assert (process.transactions.get_transaction(id), process.head()) == (ended, head)


def test_one_that_has_begun_is_not_begun_again(process: Process) -> None:
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    again = process.transactions.begin_transaction(known.transaction.id, "main", policy=Policy.SNAPSHOT)
    assert again.head != known.head
    assert again.transaction == known.transaction
    with pytest.raises(InvalidRequest, match="another id"):
        process.transactions.begin_transaction(known.transaction.id, "main", policy=Policy.REBASE)
    process.kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    with pytest.raises(InvalidRequest, match="another id"):
        process.transactions.begin_transaction(known.transaction.id, "dev")


def test_what_cannot_begin(process: Process) -> None:
    process.kernel.references.create_reference("v1", Kind.TAG, NO_COMMIT)
    known = process.begin()
    id = uuid4().hex  # noqa: A001
    for target, error in (
        ("none", ReferenceNotFound),
        ("v1", InvalidRequest),
        (known.transaction.branch, InvalidRequest),
    ):
        with pytest.raises(error):
            process.transactions.begin_transaction(id, target)
    with pytest.raises(InvalidRequest, match="32 hexadecimal"):
        process.transactions.begin_transaction("x", "main")
    for lease_us in (0, -1, 3 * 24 * 60 * MINUTE_US):
        with pytest.raises(InvalidRequest, match="lease"):
            process.transactions.begin_transaction(id, "main", lease_us=lease_us)
    with pytest.raises(InvalidRequest, match="bytes"):
        process.transactions.begin_transaction(id, "main", message="x" * 7000)
    assert process.transactions.find_transaction(id) is None


def test_a_name_of_a_transaction_is_nobody_elses(process: Process) -> None:
    for name in ("tx/x", f"tx/{uuid4().hex}"):
        for kind in (Kind.BRANCH, Kind.TAG):
            with pytest.raises(InvalidName, match="reserved for transactions"):
                process.kernel.references.create_reference(name, kind, NO_COMMIT)


def test_one_that_is_not_known(process: Process) -> None:
    id = uuid4().hex  # noqa: A001
    steps = (
        lambda: process.transactions.get_transaction(id),
        lambda: process.transactions.abort_transaction(id),
        lambda: process.transactions.renew_lease(id),
        lambda: process.transactions.commit_transaction(id, CommitMeta()),
        lambda: process.head(f"tx/{id}"),
        lambda: process.kernel.commit(f"tx/{id}", [append("a", "x")]),
    )
    for step in steps:
        with pytest.raises(TransactionNotFound):
            step()


def test_a_lease_is_renewed_and_runs_out(process: Process, clock: Clock) -> None:
    known = process.begin()
    id, branch = known.transaction.id, known.transaction.branch  # noqa: A001
    for number in range(3):
        clock.us += 50 * MINUTE_US
        process.put(branch, "a", number)
        process.transactions.renew_lease(id)
    clock.us += 61 * MINUTE_US
    with pytest.raises(TransactionOver, match="idle"):
        process.put(branch, "a", 9)
    assert process.transactions.get_transaction(id).state is OPEN
    with pytest.raises(TransactionOver, match="lease"):
        process.commit(known)
    assert process.transactions.get_transaction(id).state is ABORTED
    assert process.number("a") is None


def test_no_lease_goes_beyond_what_the_lake_allows_in_all(database: Store, clock: Clock) -> None:
    process = Process(database, clock, Settings(transaction_max_days=1 / 24))
    known = process.begin()
    clock.us += 59 * MINUTE_US
    renewed = process.transactions.renew_lease(known.transaction.id).transaction
    assert renewed.expires_us == known.transaction.begun_us + 60 * MINUTE_US


def test_properties_are_set_and_taken_away(process: Process) -> None:
    known = process.begin()
    id = known.transaction.id  # noqa: A001
    process.transactions.renew_lease(id, properties={"a": "1", "b": "2"})
    renewed = process.transactions.renew_lease(id, properties={"a": None, "c": "3"})
    assert renewed.transaction.properties == {"b": "2", "c": "3"}
    with pytest.raises(InvalidRequest, match="bytes"):
        process.transactions.renew_lease(id, properties={"d": "x" * 7000})


def test_a_snapshot_refuses_what_others_changed_too(process: Process) -> None:
    process.put("main", "a", 1)
    known = process.begin()
    process.put(known.transaction.branch, "a", 2)
    process.put("main", "a", 3)
    with pytest.raises(MergeConflict) as refused:
        process.commit(known)
    assert [str(conflict.key) for conflict in refused.value.conflicts] == ["a"]
    ended = process.transactions.get_transaction(known.transaction.id)
    assert (ended.state, process.number("a")) == (ABORTED, 3)
    assert "'a'" in ended.transaction.why


@pytest.mark.parametrize("policy", Policy)
def test_a_format_is_asked_only_by_a_rebase(process: Process, policy: Policy) -> None:
    process.kernel.commit("main", [append("diary", "one")])
    known = process.begin(policy=policy)
    process.kernel.commit(known.transaction.branch, [append("diary", "two")])
    process.kernel.commit("main", [append("diary", "three")])
    if policy is Policy.REBASE:
        assert process.commit(known).state is COMMITTED
    else:
        with pytest.raises(MergeConflict, match="diary"):
            process.commit(known)


def test_a_key_that_both_deleted_is_a_conflict_of_a_snapshot(process: Process) -> None:
    process.put("main", "a", 1)
    known = process.begin()
    process.delete(known.transaction.branch, "a")
    process.delete("main", "a")
    with pytest.raises(MergeConflict):
        process.commit(known)


@pytest.mark.parametrize("how", ["deleted", "created anew", "reset"])
def test_a_target_that_is_another_one_is_refused(process: Process, how: str) -> None:
    references = process.kernel.references
    process.put("main", "a", 1)
    references.create_reference("dev", Kind.BRANCH, process.head())
    process.put("dev", "b", 1)
    known = process.begin(target="dev")
    process.put(known.transaction.branch, "c", 1)
    errors: tuple[type[PenstockError], ...] = (ReferenceChanged,)
    if how == "reset":
        references.assign_reference("dev", process.head("main"))
    else:
        references.delete_reference("dev")
        errors = (ReferenceNotFound,)
    if how == "created anew":
        references.create_reference("dev", Kind.BRANCH, known.transaction.base)
        errors = (ReferenceChanged,)
    with pytest.raises(errors):
        process.commit(known)
    assert process.transactions.get_transaction(known.transaction.id).state is ABORTED


def test_those_that_ended_are_forgotten_after_some_days(process: Process, clock: Clock) -> None:
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    ended = process.commit(known)
    process.transactions.forget_transaction(ended)
    assert process.transactions.get_transaction(known.transaction.id) == ended
    clock.us += 8 * 24 * 60 * MINUTE_US
    assert process.transactions.is_old(ended)
    process.transactions.forget_transaction(ended)
    assert process.transactions.find_transaction(known.transaction.id) is None
    assert list(process.kernel.references.list_all_references(Kind.DELETED)) == []


def test_another_one_of_an_id_is_never_taken_for_the_first(process: Process, clock: Clock) -> None:
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    ended = process.commit(known)
    clock.us += 8 * 24 * 60 * MINUTE_US
    process.transactions.forget_transaction(ended)
    again = process.transactions.begin_transaction(known.transaction.id, "main", policy=Policy.SNAPSHOT)
    process.put(again.transaction.branch, "b", 1)
    with pytest.raises(TransactionOver, match=re.escape("used before")):
        process.commit(again)
    assert process.number("b") is None
