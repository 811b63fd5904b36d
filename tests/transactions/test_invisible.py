"""T3, K8: nobody else sees a transaction's branch, and a sweep keeps it while it is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import (
    CommitNotFound,
    HistoryExpired,
    InvalidRequest,
    LakeMoved,
    PenstockError,
    TransactionOver,
)
from penstock.formats.files.lake.calls import CopiedFile, WriteFiles
from penstock.kernel.checks import BranchProposal, Check
from penstock.kernel.copy import copy_store
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import find_kept_heads, sweep_objects
from penstock.lake.calls import ListReferences
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.references import Kind
from penstock.model.transactions import Policy, TransactionState
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from tests.transactions.lakes import MINUTE_US, Clock, Process

GREEDY = Settings(grace_s=0.0, idempotency_days=0.0, nobody_writes=True)


def table(number: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://b/{number}", snapshot_id=number)


@pytest.fixture
def lake() -> Iterator[Lake]:
    with penstock.open("memory:", author="ann") as lake:
        lake.branch().put("a", table(1))
        yield lake


def test_no_list_shows_it(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.writes.put("b", table(2))
        inside = lake.resolve(tx.branch)
        assert [branch.name for branch in lake.branches()] == ["main"]
        assert (lake.tags(), lake.deleted()) == ([], [])
        for kind in (Kind.TRANSACTION, Kind.ENDED_TRANSACTION):
            with pytest.raises(InvalidRequest, match="unknown kind of reference"):
                lake.do(ListReferences(kind=kind))
        with pytest.raises(CommitNotFound):
            lake.resolve(inside[:12])
    assert (lake.tags(), lake.deleted()) == ([], [])


@pytest.mark.parametrize("named", ["by its branch", "by its commit"])
def test_nobody_forks_or_merges_from_it(lake: Lake, named: str) -> None:
    lake.branch("dev").create()
    with lake.transaction() as tx:
        tx.writes.put("b", table(2))
        at = tx.branch if named == "by its branch" else lake.resolve(tx.branch)
        steps: tuple[Callable[[], object], ...] = (
            lambda: lake.branch("copy").create(at=at),
            lambda: lake.tag("copy").create(at=at),
            lambda: lake.branch("dev").assign(at),
            lambda: lake.merge(at, "dev"),
            lambda: lake.transplant([at], "dev"),
            lambda: lake.rebase("dev", at),
        )
        for number, step in enumerate(steps):
            with pytest.raises((InvalidRequest, CommitNotFound)):
                raise AssertionError(f"step {number} was done: {step()}")
        with pytest.raises(InvalidRequest, match="branch of a transaction"):
            lake.revert(tx.branch, "dev")
        assert lake.resolve("dev") == lake.resolve("main")
    assert lake.table("b").content is not None


def test_only_its_own_end_moves_its_row(lake: Lake) -> None:
    with lake.transaction() as tx:
        for step in (
            lambda: lake.branch(tx.branch).delete(),
            lambda: lake.branch(tx.branch).assign("main"),
            lambda: lake.rebase(tx.branch),
            lambda: lake.branch(tx.branch).create(),
        ):
            with pytest.raises(PenstockError) as refused:
                step()
            assert refused.value.code in ("invalid_request", "invalid_name")


def test_a_check_looks_at_what_lands_and_not_at_the_steps(lake: Lake) -> None:
    seen: list[str] = []

    def look(proposed: object) -> None:
        seen.append(repr(proposed))

    lake.add_check("all", look, "*")
    with lake.transaction() as tx:
        tx.writes.put("b", table(2))
        tx.writes.put("c", table(3))
        assert seen == []
    assert len(seen) == 1


def test_a_sweep_keeps_what_an_open_one_has_and_nothing_of_an_aborted_one(
    database: Store, clock: Clock
) -> None:
    process = Process(database, clock, GREEDY)
    process.put("main", "a", 1)
    kept, gone = process.begin(), process.begin()
    head = process.put(kept.transaction.branch, "b", 2)
    lost = process.put(gone.transaction.branch, "b", 3)
    process.transactions.abort_transaction(gone.transaction.id)
    assert head in find_kept_heads(process.kernel).live
    clock.us += MINUTE_US
    assert sweep_objects(process.kernel).removed > 0
    other = Process(database, clock, GREEDY)
    assert other.number("b", kept.transaction.branch) == 2
    assert database.fetch([lost]) == {}
    other.commit(kept)
    clock.us += MINUTE_US
    sweep_objects(other.kernel)
    assert Process(database, clock, GREEDY).number("b") == 2


def test_a_horizon_leaves_a_transaction_where_it_began(database: Store, clock: Clock) -> None:
    process = Process(database, clock, GREEDY)
    for number in range(5):
        process.put("main", "a", number)
    process.kernel.keep_history("*", 1, None)
    known = process.begin()
    for number in range(5):
        process.put(known.transaction.branch, "b", number)
    clock.us += 10 * MINUTE_US
    sweep_objects(process.kernel)
    other = Process(database, clock, GREEDY)
    other.commit(known)
    assert (other.number("a"), other.number("b")) == (4, 4)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("state", ["open", "committing"])
def test_a_horizon_takes_nothing_of_the_target_that_an_open_one_is_merged_from(
    database: Store, clock: Clock, policy: Policy, state: str
) -> None:
    process = Process(database, clock, GREEDY)
    for number in range(3):
        process.put("main", "a", number)
    process.kernel.keep_history("*", 1, None)
    known = process.begin(policy=policy)
    process.put(known.transaction.branch, "b", 5)
    if state == "committing":
        process.kernel.checks.add_check(Check("interrupts", "main", _interrupt))
        with pytest.raises(KeyboardInterrupt):
            process.commit(known)
        process.kernel.checks.remove_check("interrupts")
    for number in range(7):
        process.put("main", "c", number)
    clock.us += 10 * MINUTE_US
    before = len(list(process.kernel.walk_commits(known.transaction.base)))
    sweep_objects(process.kernel)
    other = Process(database, clock, GREEDY)
    assert len(list(other.kernel.walk_commits(known.transaction.base))) < before  # it does heed the rule
    if state == "committing":
        other.kernel.checks.add_check(Check("interrupts", "main", lambda _: None))
    assert other.commit(known).state is TransactionState.COMMITTED
    assert (other.number("b"), other.number("c")) == (5, 6)
    clock.us += 10 * MINUTE_US
    sweep_objects(other.kernel)
    assert len(list(Process(database, clock, GREEDY).kernel.walk_commits(other.head()))) == 1


def _interrupt(_: BranchProposal) -> None:
    raise KeyboardInterrupt


def test_what_a_transaction_wrote_long_ago_is_taken_up_in_it_whatever_the_horizon(clock: Clock) -> None:
    process = Process(MemoryStore(clock), clock)
    process.put("main", "a", 1)
    process.kernel.keep_history("*", 1, None)
    clock.us += 60 * 24 * 60 * MINUTE_US
    known = process.begin()
    first = process.put(known.transaction.branch, "b", 1)
    process.put(known.transaction.branch, "b", 2)
    for _ in range(40):
        clock.us += 50 * MINUTE_US
        process.transactions.renew_lease(known.transaction.id)
    process.kernel.references.require_kept(first)
    process.transactions.abort_transaction(known.transaction.id)
    with pytest.raises(HistoryExpired):
        process.kernel.references.require_kept(first)


def test_no_file_is_copied_out_of_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", author="ann") as lake:
        lake.table("f").files.put("x", b"1")
        tx, other = lake.transaction(), lake.transaction()
        tx.table("f").files.put("y", b"2")
        for at in (tx.branch, f"{tx.branch}~0", lake.resolve(tx.branch)):
            copied = (CopiedFile(path="z", source="y", at=at),)
            for branch in (None, "main", other.branch):
                with pytest.raises((InvalidRequest, CommitNotFound)):
                    lake.do(WriteFiles(key=Key("f"), branch=branch, copied=copied))
        lake.do(
            WriteFiles(
                key=Key("f"), branch=tx.branch, copied=(CopiedFile(path="z", source="y", at=tx.branch),)
            )
        )
        assert [one.path for one in lake.table("f").files.list()] == ["x"]
        tx.land()
        assert [one.path for one in lake.table("f").files.list()] == ["x", "y", "z"]


def test_a_lake_that_moves_takes_no_transaction_along(clock: Clock) -> None:
    here, there = MemoryStore(), MemoryStore()
    process = Process(here, clock)
    process.put("main", "a", 1)
    known = process.begin()
    process.put(known.transaction.branch, "b", 2)
    copy_store(process.kernel, there, source_place="memory:here", target_place="memory:there")
    for step in (
        lambda: process.put(known.transaction.branch, "b", 3),
        lambda: process.commit(known),
        process.begin,
    ):
        with pytest.raises(LakeMoved):
            step()
    moved = Process(there, clock)
    assert moved.transactions.find_transaction(known.transaction.id) is None
    assert (moved.number("a"), moved.number("b")) == (1, None)


def test_a_sweep_ends_what_was_left(clock: Clock) -> None:
    with penstock.open("memory:", author="ann", clock=clock) as lake:
        tx = lake.transaction(lease_s=60.0)
        tx.writes.put("b", table(2))
        clock.us += 2 * MINUTE_US
        assert tx.info.is_late
        with pytest.raises(TransactionOver, match="idle"):
            tx.writes.put("c", table(3))
        lake.sweep()
        assert tx.info.state is TransactionState.ABORTED
        clock.us += 8 * 24 * 60 * MINUTE_US
        lake.sweep()
        assert lake.transactions(all=True) == []
