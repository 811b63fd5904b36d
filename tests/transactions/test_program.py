"""``with lake.transaction():`` as a program uses it, in this process and behind a server."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock.errors import (
    InvalidRequest,
    MergeConflict,
    OutcomeUnknown,
    ReferenceNotFound,
    TransactionNotFound,
    TransactionOver,
    Unavailable,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.transactions import transaction as module
from penstock.lake.transactions.calls import AbortTransaction, CommitTransaction, RenewTransaction
from penstock.model.nessie import IcebergTable
from penstock.model.transactions import TransactionState
from tests.queue.hooks import wait_until
from tests.remote.conftest import QUICK
from tests.remote.serving import serving

LEASE_S, OFTEN = 600.0, 6000
"""A lease that does not run out in a test, however slow the machine is, and is renewed ten times a second."""


def table(number: int) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://b/{number}", snapshot_id=number)


@pytest.fixture(params=["embedded", "remote"])
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    with penstock.open("memory:", author="ann") as own:
        own.branch().put("a.x", table(1))
        if request.param == "embedded":
            yield own
            return
        with (
            serving(own.catalogue) as server,
            Lake(RemoteCatalogue(server.url, patience=QUICK), author="ann") as remote,
        ):
            yield remote


def test_a_block_lands_as_one_commit(lake: Lake) -> None:
    before = lake.resolve()
    with lake.transaction(message="nightly", properties={"run": "7"}) as tx:
        tx.writes.put("a.y", table(2))
        tx.writes.put("a.z", table(3))
        assert tx.table("a.y").content == lake.at(tx.branch).get("a.y")
        assert lake.resolve() == before
        assert [one.id for one in lake.transactions("main")] == [tx.id]
        assert lake.transactions("dev") == []
    landed, was = lake.log(limit=2)
    assert (landed.message, landed.properties, was.id) == ("nightly", {"run": ("7",)}, before)
    assert {str(change.key) for change in lake.changes()} == {"a.y", "a.z"}
    assert [step.message for step in lake.log(landed.parents[1], limit=3)] == [
        "read a.y",
        "put a.z",
        "put a.y",
    ]
    info = tx.info
    assert (info.state, info.commit, info.who) == (TransactionState.COMMITTED, landed.id, "ann")
    assert lake.transactions() == []
    assert lake.transactions(all=True) == [info]


def test_an_exception_leaves_nothing(lake: Lake) -> None:
    before = lake.resolve()
    tx = lake.transaction()

    def block() -> None:
        with tx:
            tx.writes.put("a.y", table(2))
            raise KeyError("oops")

    with pytest.raises(KeyError):
        block()
    assert lake.resolve() == before
    assert (tx.info.state, tx.info.why) == (TransactionState.ABORTED, "KeyError: 'oops'")


def test_a_conflict_is_raised_at_the_end_of_the_block(lake: Lake) -> None:
    tx = lake.transaction()

    def block() -> None:
        with tx:
            tx.writes.put("a.x", table(2))
            lake.branch().put("a.x", table(3))

    with pytest.raises(MergeConflict, match=r"a\.x"):
        block()
    assert tx.info.state is TransactionState.ABORTED


def test_a_block_that_ended_by_itself_is_left_alone(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.writes.put("a.y", table(2))
        landed = tx.land("by hand")
    assert landed.commit is not None
    assert (lake.show().message, lake.resolve()) == ("by hand", landed.head)
    assert tx.land().commit == landed.commit
    with lake.transaction() as tx:
        tx.abort()
    assert tx.info.state is TransactionState.ABORTED


def test_nothing_written_is_no_commit(lake: Lake) -> None:
    before = lake.resolve()
    landed = lake.transaction().land()
    assert (landed.commit, landed.head, lake.resolve()) == (None, before, before)


def test_another_process_goes_on_with_it(lake: Lake) -> None:
    first = lake.transaction(id=uuid4().hex)
    first.writes.put("a.y", table(2))
    with lake.transaction(id=first.id) as tx:
        assert tx.table("a.y").content is not None
    with pytest.raises(TransactionOver, match="committed") as over:
        lake.transaction(id=first.id)
    assert over.value.details["state"] == "committed"
    assert lake.find_transaction(first.id).info.state is TransactionState.COMMITTED


def test_what_cannot_begin_is_told(lake: Lake) -> None:
    for error, how in (
        (ReferenceNotFound, {"target": "nobody"}),
        (InvalidRequest, {"policy": "chaos"}),
        (InvalidRequest, {"lease_s": 10.0**9}),
        (InvalidRequest, {"lease_s": -1.0}),
        (InvalidRequest, {"id": "x"}),
    ):
        with pytest.raises(error):
            lake.transaction(**how)
    with pytest.raises(TransactionNotFound):
        lake.find_transaction("0" * 32)
    assert lake.transactions(all=True) == []


@pytest.mark.parametrize(
    "how",
    [
        {"properties": {"run": 5}},
        {"properties": {5: "run"}},
        {"properties": [1]},
        {"message": None},
        {"lease_s": "5"},
        {"lease_s": float("nan")},
        {"lease_s": float("inf")},
        {"id": 5},
    ],
    ids=str,
)
def test_what_is_of_another_type_is_told(lake: Lake, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"must be (a string|a number|a dict of strings|finite)"):
        lake.transaction(**how)
    assert lake.transactions() == []


def test_what_is_renewed_or_committed_with_another_type_is_told(lake: Lake) -> None:
    tx = lake.transaction()
    wrong: tuple[Callable[[], object], ...] = (
        lambda: tx.renew(properties={"run": 5}),  # type: ignore[dict-item]
        lambda: tx.renew(lease_s="5"),  # type: ignore[arg-type]
        lambda: tx.land(5),  # type: ignore[arg-type]
    )
    for step in wrong:
        with pytest.raises(InvalidRequest, match=r"must be a (string|number)"):
            step()
    assert tx.renew(properties={"run": "5", "gone": None}).properties == {"run": "5"}


def test_its_commit_says_what_it_is_given_to_say(lake: Lake) -> None:
    tx = lake.transaction(properties={"run": "7", "step": "1"})
    tx.writes.put("a.y", table(2))
    tx.check("rows", True)
    tx.check("rows", True)
    commit = tx.land("done", author="bob", properties={"step": "2", "seen": ["x", "y"]}).commit
    assert commit is not None
    assert (commit.message, commit.authors) == ("done", ("bob",))
    told = {"run": ("7",), "step": ("2",), "seen": ("x", "y"), "penstock.checks": ("rows",)}
    assert commit.properties == told


def test_a_check_that_its_commit_could_not_name_is_told_at_once(lake: Lake) -> None:
    tx = lake.transaction()
    tx.writes.put("a.y", table(2))
    for name in (5, "", "x" * 257):
        with pytest.raises(InvalidRequest, match="a string of 1 to 256 characters"):
            tx.check(name, True)  # type: ignore[arg-type]
    for number in range(module.CHECKS_MAX_CHARS // 256):
        tx.check(f"{number:0256}", True)
    with pytest.raises(InvalidRequest, match="combine several checks into one"):
        tx.check("one more", True)
    commit = tx.land().commit
    assert commit is not None
    assert len(commit.properties["penstock.checks"]) == module.CHECKS_MAX_CHARS // 256


def test_a_commit_that_is_refused_before_it_is_sent_leaves_it_open_and_alive(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEATS", OFTEN)
    tx = lake.transaction(lease_s=LEASE_S)
    tx.writes.put("a.y", table(2))
    with pytest.raises(InvalidRequest, match="limit of 16384"):
        tx.land("m" * 16_300)
    assert tx.info.state is TransactionState.OPEN
    first = tx.info.expires
    wait_until(lambda: tx.info.expires != first)  # its heart goes on beating
    assert tx.land("shorter").commit is not None


class Untold(Exception):
    """An exception of a program that cannot be told."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_that_cannot_be_told_aborts_it_and_is_raised(lake: Lake) -> None:
    with pytest.raises(Untold), lake.transaction() as tx:
        raise Untold
    assert (tx.info.state, tx.info.why) == (TransactionState.ABORTED, "Untold")


def test_transactions_come_in_pages(lake: Lake) -> None:
    begun = sorted(lake.transaction().id for _ in range(5))
    lake.find_transaction(begun[2]).abort()
    assert [one.id for one in lake.transactions(all=True)] == begun
    assert [one.id for one in lake.transactions(all=True, limit=3)] == begun[:3]
    assert [one.id for one in lake.transactions()] == [*begun[:2], *begun[3:]]


class Unreliable:
    """A catalogue that loses the answers to some calls."""

    def __init__(self, lake: Lake) -> None:
        self._inner, self.page_max = lake.catalogue, lake.catalogue.page_max
        self.losing: dict[type, int] = {}
        self.refusing: dict[type, int] = {}
        self.interrupting: type | None = None
        self.renewed = threading.Semaphore(0)

    def do(self, call: Call[object], progress: Progress = show_no_progress) -> object:
        if type(call) is self.interrupting:
            raise KeyboardInterrupt
        if self.refusing.get(type(call), 0):
            self.refusing[type(call)] -= 1
            raise Unavailable("nobody answers")
        answer = self._inner.do(call, progress)
        if isinstance(call, RenewTransaction):
            self.renewed.release()
        if self.losing.get(type(call), 0):
            self.losing[type(call)] -= 1
            raise OutcomeUnknown("the answer was lost", key="")
        return answer

    def close(self) -> None:
        pass


@pytest.fixture
def unreliable() -> Iterator[tuple[Lake, Unreliable]]:
    with penstock.open("memory:", author="ann") as own:
        catalogue = Unreliable(own)
        yield Lake(catalogue, author="ann"), catalogue  # type: ignore[arg-type]


def test_an_end_whose_answer_is_lost_is_found_out(unreliable: tuple[Lake, Unreliable]) -> None:
    lake, catalogue = unreliable
    catalogue.losing[CommitTransaction], catalogue.refusing[CommitTransaction] = 2, 1
    with lake.transaction() as tx:
        tx.writes.put("a.y", table(2))
    assert tx.info.state is TransactionState.COMMITTED
    assert len(lake.log()) == 1


def test_an_end_that_stays_unknown_says_how_to_find_out(
    unreliable: tuple[Lake, Unreliable], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, catalogue = unreliable
    monkeypatch.setattr(module, "COMMIT_WAIT_S", 0.2)
    catalogue.losing[CommitTransaction] = 1000
    tx = lake.transaction()
    tx.writes.put("a.y", table(2))
    with pytest.raises(OutcomeUnknown, match=f"penstock tx commit {tx.id}"):
        tx.land()
    catalogue.losing.clear()
    assert lake.find_transaction(tx.id).land().head == lake.resolve()


def test_the_exception_of_a_block_is_raised_though_it_cannot_be_aborted(
    unreliable: tuple[Lake, Unreliable],
) -> None:
    lake, catalogue = unreliable
    catalogue.refusing[AbortTransaction] = 1000
    with pytest.raises(KeyError), lake.transaction() as tx:
        raise KeyError("oops")
    assert tx.info.state is TransactionState.OPEN  # its lease ends it


def test_a_block_that_is_interrupted_while_it_lands_is_aborted(unreliable: tuple[Lake, Unreliable]) -> None:
    lake, catalogue = unreliable
    catalogue.interrupting = CommitTransaction
    with pytest.raises(KeyboardInterrupt), lake.transaction() as tx:
        tx.writes.put("a.y", table(2))
    assert (tx.info.state, tx.info.why) == (TransactionState.ABORTED, "KeyboardInterrupt: ")
    assert lake.log() == []


def test_a_lease_is_renewed_while_a_program_holds_it(
    unreliable: tuple[Lake, Unreliable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEATS", OFTEN)
    lake, catalogue = unreliable
    with lake.transaction(lease_s=LEASE_S) as tx:
        expires = tx.info.expires
        for _ in range(2):
            assert catalogue.renewed.acquire(timeout=60)
        renewed = tx.info.expires
        assert expires is not None
        assert renewed is not None
        assert renewed > expires


def test_a_program_that_lets_go_renews_no_more(unreliable: tuple[Lake, Unreliable]) -> None:
    lake, _ = unreliable
    tx = lake.transaction(lease_s=3600.0)
    name = f"penstock-tx-{tx.id[:8]}"
    assert name in {thread.name for thread in threading.enumerate()}
    del tx
    gc.collect()
    wait_until(lambda: name not in {thread.name for thread in threading.enumerate()})
