"""Queries that take too long, and programs that are interrupted while one is asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import penstock
from penstock.errors import CommitVetoed, InvalidRequest, Throttled
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.reader import TableRows
from penstock.kernel import checks
from penstock.kernel.checks import BranchProposal, Check
from penstock.kernel.settings import Settings
from penstock.lake.audits.queries import AuditQuery, read_query
from penstock.lake.audits.query_run import run_audit_query
from penstock.lake.lake import Lake
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.references import Reference
from penstock.model.transactions import TransactionState
from penstock.server.limits import Limits
from tests.audits.lakes import ids, orders
from tests.remote.serving import serving

ORDERS = Key.parse("sales.orders")
ENDLESS = (
    "with recursive r(i) as (select count(*) from sales.orders where amount = 666 "
    "union all select i + 1 from r where i between 1 and 3000000000) select * from r where i < 0"
)
"""Takes hours if there is an order of that amount, and no time otherwise."""


class Held:
    """An engine that holds the first who asks, and says no to them when it lets them go."""

    def __init__(self, lake: Lake) -> None:
        self.is_asked, self.goes_on, self.others_wait = Event(), Event(), Event()
        lake.kernel.checks.engine = self

    def require_available(self) -> None:
        return

    def find_violation(self, _proposal: BranchProposal, _expectation: Expectation) -> str | None:
        self.is_asked.set()
        assert self.goes_on.wait(30)
        return "it took too long"


@pytest.fixture
def held(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A lake in which somebody who writes order 3 is being asked about for as long as a test wants."""
    monkeypatch.setattr(checks, "LOOK_AGAIN_S", 0.02)
    lake.expect("slow", ENDLESS)
    lake.branch().create_namespace("more")  # from now on, this process knows that writers take turns
    engine = Held(lake)
    first = Thread(target=lambda: lake.table("sales.orders").append(orders(3)))
    first.start()
    assert engine.is_asked.wait(30)
    looking_at = lake.kernel.checks.list_checks_for_reference

    def seen(reference: Reference) -> list[Check]:
        engine.others_wait.set()  # nobody else looks while the first one is held
        return looking_at(reference)

    monkeypatch.setattr(lake.kernel.checks, "list_checks_for_reference", seen)
    yield engine
    engine.goes_on.set()
    first.join(30)
    assert not first.is_alive()


def with_settings(lake: Lake, settings: Settings) -> Lake:
    return penstock.open(lake.kernel.store, create=False, author="tester", settings=settings)


# -- queries that take too long ----------------------------------------------------------------------------


def test_a_query_that_takes_too_long_is_ended() -> None:
    rows = TableRows(ORDERS, orders(666).to_reader)
    with pytest.raises(InvalidRequest, match=r"it took longer than 0\.2 s"):
        run_audit_query(read_query(ENDLESS), {ORDERS: rows}, 0.2)


def test_a_query_has_only_so_much_memory() -> None:
    rows = TableRows(ORDERS, orders(1).to_reader)
    limit = "select current_setting('memory_limit') as most, current_setting('threads') as threads, * from"
    found = run_audit_query(
        AuditQuery(f"{limit} sales.orders", (ORDERS,)), {ORDERS: rows}
    )  # which nobody may ask
    assert found is not None
    number, unit = found.rows[0]["most"].strip("'").split()
    assert unit == "MiB" or float(number) <= 1
    assert int(found.rows[0]["threads"]) <= 4


def test_what_takes_too_long_to_ask_about_is_vetoed_and_the_next_writer_is_not(lake: Lake) -> None:
    with with_settings(lake, Settings(expectation_timeout_s=0.3)) as hurried:
        lake.expect("slow", ENDLESS)
        with pytest.raises(CommitVetoed, match=r"longer than 0\.3 s and was stopped: make it read less"):
            hurried.table("sales.orders").append(orders(666))
        hurried.kernel.settings = Settings()  # what ends may take its time
        hurried.table("sales.orders").append(orders(3))
        assert ids(hurried) == [1, 2, 3]


def test_what_would_take_too_long_from_the_start_is_not_expected(lake: Lake) -> None:
    lake.table("sales.orders").append(orders(666))
    with with_settings(lake, Settings(expectation_timeout_s=0.3)) as hurried:
        with pytest.raises(CommitVetoed, match="it took longer"):
            hurried.expect("slow", ENDLESS)
        assert hurried.expectations() == ()


def test_a_turn_that_does_not_come_is_not_waited_for_for_ever(lake: Lake) -> None:
    lake.expect("slow", ENDLESS)
    with with_settings(lake, Settings(expectation_timeout_s=0.3)) as hurried:
        hurried.branch().create_namespace("more")  # from now on, this process knows that writers take turns
        engine = Held(hurried)
        first = Thread(target=write_and_be_refused, args=(hurried,))
        first.start()
        assert engine.is_asked.wait(30)
        with pytest.raises(Throttled, match="the checks of 'main' were busy with other commits"):
            hurried.table("sales.orders").append(orders(5))
        engine.goes_on.set()
        first.join(30)
        assert ids(hurried) == [1, 2]


def write_and_be_refused(lake: Lake) -> None:
    with pytest.raises(CommitVetoed):
        lake.table("sales.orders").append(orders(3))


def test_removing_what_takes_long_lets_those_who_wait_go_on_and_the_one_that_was_held(
    lake: Lake, held: Held
) -> None:
    second = Thread(target=lambda: lake.table("sales.orders").append(orders(4)))
    second.start()
    assert held.others_wait.wait(30)
    lake.unexpect("slow")
    second.join(30)
    assert ids(lake) == [1, 2, 4]
    held.goes_on.set()
    until(lambda: ids(lake) == [1, 2, 3, 4])


def test_a_server_that_has_no_room_lets_an_expectation_be_removed(lake: Lake, held: Held) -> None:
    with (
        serving(lake.catalogue, limits=Limits(open_requests_max=1)) as served,
        penstock.open(served.url) as client,
        penstock.open(served.url, author="ann") as writer,
    ):
        assert len(client.expectations()) == 1
        second = Thread(target=lambda: writer.branch().create_namespace("others"))
        second.start()
        assert held.others_wait.wait(30)
        assert client.unexpect("slow", "main") == ()
        second.join(30)
    assert "others" in map(str, lake.at().namespaces())


def until(is_so: Callable[[], bool]) -> None:
    waited = Event()
    for _ in range(1500):
        if is_so():
            return
        waited.wait(0.02)
    raise AssertionError("it never came to that")


# -- programs that are interrupted -------------------------------------------------------------------------


def interrupted_rows(at_end: bool) -> Callable[[], Any]:
    """Rows that have the program interrupted: while they are read, or as soon as they have been."""

    def batches() -> Iterator[Any]:
        table = orders(666)
        if not at_end:
            os.kill(os.getpid(), signal.SIGINT)
        yield from table.to_batches()
        if at_end:
            Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

    return lambda: pa.RecordBatchReader.from_batches(orders(1).schema, batches())


@pytest.mark.parametrize("at_end", [False, True], ids=["while rows are read", "while DuckDB works"])
def test_whoever_interrupts_the_program_ends_the_query(at_end: bool) -> None:
    rows = TableRows(ORDERS, interrupted_rows(at_end))
    with pytest.raises(KeyboardInterrupt):
        run_audit_query(read_query(ENDLESS), {ORDERS: rows}, 30)


def test_a_transaction_whose_program_is_interrupted_while_it_is_asked_about_is_not_aborted(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.expect("slow", ENDLESS)
    tx = lake.transaction()
    lake.table("sales.orders", tx.branch).append(orders(3))
    monkeypatch.setattr(TableRows, "to_batches", lambda _: interrupted_rows(at_end=True)())
    with pytest.raises(KeyboardInterrupt):
        tx.land()
    monkeypatch.undo()
    assert other.find_transaction(tx.id).info.state is not TransactionState.ABORTED
    other.find_transaction(tx.id).land()
    assert ids(other) == [1, 2, 3]


def test_nothing_of_a_query_stays_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InvalidRequest):
        run_audit_query(read_query(ENDLESS), {ORDERS: TableRows(ORDERS, orders(666).to_reader)}, 0.1)
    assert [*tmp_path.iterdir()] == []
