"""``lake.run``: a function in a transaction, again where others kept it from landing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from penstock.errors import (
    CommitConflict,
    CommitVetoed,
    InvalidRequest,
    MergeConflict,
    OutcomeUnknown,
    PenstockError,
    TransactionOver,
    Unavailable,
)
from penstock.lake.lake import Lake
from penstock.lake.transactions import runner
from penstock.lake.transactions.transaction import Transaction
from tests.transactions.pipelines import ids, opened, rows


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(runner, "WAIT_MIN_S", 0.001)
    with opened("embedded", tmp_path / "lake") as found:
        yield found


def test_it_tells_what_came_of_it(lake: Lake) -> None:
    ran = lake.run(lambda tx: tx.write(rows(1), "t").version, message="by a function", properties={"x": "1"})
    assert (ran.value, ran.commit, ran.tries) == (0, lake.show(), 1)
    assert (lake.show().message, lake.show().properties) == ("by a function", {"x": ("1",)})
    assert lake.run(lambda tx: ids(lake, "t", tx.branch)) == ([1], None, 1)
    assert lake.run(lambda tx: tx.abort().state.value) == ("aborted", None, 1)


def test_each_try_sees_what_others_did_meanwhile(lake: Lake) -> None:
    """Counters that many threads raise at once: none of them is lost, however often it takes."""
    lake.table("count").write(rows(0))
    start = Barrier(4)

    def raised(tx: Transaction) -> int:
        (now,) = ids(lake, "count", tx.branch)
        tx.write(rows(now + 1), "count", mode="overwrite")
        return now + 1

    def run() -> int:
        start.wait(30)
        return lake.run(raised, retries=50).value

    with ThreadPoolExecutor(4) as threads:
        found = sorted(one.result(120) for one in [threads.submit(run) for _ in range(4)])
    assert (found, ids(lake, "count")) == ([1, 2, 3, 4], [4])


def test_it_gives_up_and_tells_how_often_it_tried(lake: Lake) -> None:
    lake.table("t").write(rows(0))

    def always_late(tx: Transaction) -> None:
        ids(lake, "t", tx.branch)
        tx.write(rows(1), "t", mode="overwrite")
        lake.table("t").append(rows(2))

    with pytest.raises(MergeConflict, match="It was tried 3 times") as refused:
        lake.run(always_late, retries=2)
    assert refused.value.details["tries"] == 3
    assert refused.value.conflicts
    assert ids(lake, "t") == [0, 2, 2, 2]
    assert lake.transactions() == []


@pytest.mark.parametrize(
    ("problem", "tries"),
    [
        (Unavailable("the store is away"), 3),
        (OutcomeUnknown("nobody knows"), 1),
        (CommitVetoed("a check said no"), 1),
        (TransactionOver("somebody aborted it"), 1),
        (InvalidRequest("that cannot be"), 1),
        (ValueError("of the program"), 1),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else str(one),
)
def test_only_what_may_be_otherwise_next_time_is_tried_again(
    lake: Lake, problem: Exception, tries: int
) -> None:
    begun: list[str] = []

    def fails(tx: Transaction) -> None:
        begun.append(tx.id)
        raise problem

    with pytest.raises(type(problem)) as raised:
        lake.run(fails, retries=2)
    assert len(begun) == len(set(begun)) == tries
    if isinstance(raised.value, PenstockError) and tries > 1:
        assert raised.value.details["tries"] == tries
    assert lake.transactions() == []


def test_what_has_landed_is_not_tried_again(lake: Lake) -> None:
    lake.table("t").write(rows(0))

    def lands(tx: Transaction) -> None:
        tx.write(rows(1), "t")
        tx.land()
        raise MergeConflict([])

    def landed_by_others(tx: Transaction) -> None:
        tx.write(rows(2), "t")
        lake.find_transaction(tx.id).land()
        raise Unavailable("the store is away")

    for function, problem in ((lands, MergeConflict), (landed_by_others, Unavailable)):
        with pytest.raises(problem):
            lake.run(function, retries=2)
    assert ids(lake, "t") == [0, 1, 2]


def test_a_conflict_that_nobody_causes_is_not_tried_for_ever(lake: Lake) -> None:
    lake.table("t").write(rows(0))
    begun: list[str] = []

    def exists(tx: Transaction) -> None:
        begun.append(tx.base)
        tx.write(rows(1), "t", mode="error")

    with pytest.raises(CommitConflict, match="already exists"):
        lake.run(exists, retries=10)
    assert begun == [lake.show().id] * 2


async def awaits(tx: Transaction) -> None:
    tx.write(rows(1), "t")


def yields(tx: Transaction) -> Iterator[int]:
    tx.write(rows(1), "t")
    yield 1


class Awaits:
    async def __call__(self, tx: Transaction) -> None:
        await awaits(tx)


@pytest.mark.parametrize("function", [awaits, yields, Awaits(), partial(awaits), None], ids=range(5))
def test_what_is_not_run_to_its_end_by_a_call_is_refused(lake: Lake, function: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"run in a transaction|lake\.run needs a function"):
        lake.run(function)
    assert lake.transactions(all=True) == []


def test_what_cannot_be_run_is_told(lake: Lake) -> None:
    for how in ({"retries": -1}, {"retries": True}, {"id": "0" * 32}, {"isolation": "chaos"}):
        with pytest.raises(InvalidRequest):
            lake.run(lambda _: None, **how)
