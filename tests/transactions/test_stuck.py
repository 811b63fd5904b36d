"""A transaction that something keeps from landing has a way out, and is nobody else's problem."""

from __future__ import annotations

import io
from uuid import uuid4

import pytest

import penstock
from penstock.errors import Damaged, Denied, InvalidTable, TransactionOver
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.transactions import TransactionRecord, Transactions
from penstock.lake.lake import Lake
from penstock.model.commits import CommitMeta
from penstock.model.references import Kind, Reference, encode_reference
from penstock.model.transactions import Policy, TransactionState
from penstock.server.logs import Log, LogLevel
from penstock.server.transaction_reaper import TransactionReaper
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.journal import JournalFormat, append, lines_of
from tests.transactions.lakes import MINUTE_US, QUICK, Clock, Process

COMMITTING = TransactionState.COMMITTING
COMMITTED, ABORTED = TransactionState.COMMITTED, TransactionState.ABORTED


class Hindered(JournalFormat):
    """A format whose merges fail, for as long as something is in their way."""

    problem: Exception | None = None

    def merge(self, *asked, **how):  # type: ignore[no-untyped-def]
        if self.problem is not None:
            raise self.problem
        return super().merge(*asked, **how)


class Hindrance:
    """A process with a transaction that is kept from landing."""

    def __init__(self, store: Store, clock: Clock, problem: Exception) -> None:
        self.format = Hindered()
        self.process = Process(store, clock)
        self.process.kernel = Kernel(store, [self.format], QUICK, clock)
        self.process.transactions = Transactions(self.process.kernel)
        self.known = self.process.begin(policy=Policy.REBASE)
        self.process.kernel.commit(self.known.transaction.branch, [append("diary", "in it")])
        self.process.kernel.commit("main", [append("diary", "beside it")])
        self.format.problem = problem

    def now(self) -> TransactionRecord:
        return self.process.transactions.get_transaction(self.known.transaction.id)

    def lines(self) -> list[str]:
        return lines_of(self.process.kernel, "diary")


@pytest.mark.parametrize("problem", [Damaged("gone"), Denied("closed"), KeyError("a bug")], ids=repr)
@pytest.mark.parametrize("then", ["aborted", "mended"])
def test_what_keeps_it_from_landing_is_mended_or_it_is_aborted_after_a_while(
    database: Store, clock: Clock, problem: Exception, then: str
) -> None:
    stuck = Hindrance(database, clock, problem)
    process, id = stuck.process, stuck.known.transaction.id  # noqa: A001
    with pytest.raises(type(problem)) as raised:
        process.commit(stuck.known)
    if isinstance(raised.value, Damaged | Denied):
        assert f"penstock tx abort {id}" in raised.value.message
        assert raised.value.message.count("penstock tx commit") == 1
    clock.us += 9 * MINUTE_US
    assert process.transactions.abort_transaction(id).state is COMMITTING
    with pytest.raises(type(problem)):  # a server sends it again and again: that does not count
        process.transactions.settle_transaction(stuck.now())
    clock.us += 2 * MINUTE_US
    if then == "mended":
        stuck.format.problem = None
        assert process.commit(stuck.known).state is COMMITTED
        assert process.transactions.abort_transaction(id).state is COMMITTED
        assert stuck.lines() == ["beside it", "in it"]
        return
    ended = process.transactions.abort_transaction(id, "cannot be mended")
    assert (ended.state, ended.transaction.why) == (ABORTED, "cannot be mended")
    stuck.format.problem = None
    with pytest.raises(TransactionOver, match="cannot be mended"):
        process.commit(stuck.known)
    assert stuck.lines() == ["beside it"]
    assert fsck(process.kernel).damages == ()


def test_a_sending_that_is_still_under_way_does_not_land_after_the_abort(
    faulty: FaultyStore, clock: Clock
) -> None:
    process, other = Process(faulty, clock), Process(faulty.inner, clock)
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    ended: list[TransactionRecord] = []

    def abort_meanwhile() -> None:
        clock.us += 11 * MINUTE_US
        ended.append(other.transactions.abort_transaction(known.transaction.id, "too long"))

    faulty.at(Point.BEFORE_SWAP, abort_meanwhile, name="main")
    with pytest.raises(TransactionOver, match="too long"):
        process.commit(known)
    assert [one.state for one in ended] == [ABORTED]
    assert process.number("a") is None


def test_an_abort_finds_that_it_has_landed(faulty: FaultyStore, clock: Clock) -> None:
    process = Process(faulty, clock)
    known = process.begin()
    process.put(known.transaction.branch, "a", 1)
    faulty.fail(Point.BEFORE_SWAP, KeyboardInterrupt(), name=known.transaction.branch, skip=1)
    with pytest.raises(KeyboardInterrupt):
        process.commit(known)
    faulty.heal()
    clock.us += 11 * MINUTE_US
    ended = process.transactions.abort_transaction(known.transaction.id)
    assert (ended.state, ended.transaction.commit) == (COMMITTED, process.head())


def test_a_table_that_cannot_be_merged_ends_it(database: Store, clock: Clock) -> None:
    stuck = Hindrance(database, clock, InvalidTable("its log makes no sense"))
    with pytest.raises(InvalidTable):
        stuck.process.commit(stuck.known)
    assert stuck.now().transaction.why == "its log makes no sense"
    stuck.format.problem = None
    with pytest.raises(TransactionOver):
        stuck.process.commit(stuck.known)
    assert stuck.lines() == ["beside it"]


# -- bystanders --------------------------------------------------------------------------------------------


def hindered_lake(clock: Clock, problem: Exception) -> tuple[Lake, str, str]:
    """A lake with a transaction that cannot land and, behind it, one whose lease ran out; their ids."""
    found = Hindered()
    lake = penstock.open("memory:", author="ann", clock=clock, formats=[found])
    transactions = Transactions(lake.kernel)
    # Chance decides where it is looked for such as these: from an id on that is surely before theirs.
    bad = transactions.begin_transaction("f" * 31 + "0", "main", policy=Policy.REBASE).transaction
    late = transactions.begin_transaction("f" * 32, "main", lease_us=MINUTE_US).transaction
    lake.kernel.commit(bad.branch, [append("diary", "in it")])
    lake.kernel.commit("main", [append("diary", "beside it")])
    found.problem = problem
    with pytest.raises(type(problem)):
        transactions.commit_transaction(bad.id, CommitMeta())
    clock.us += 11 * MINUTE_US
    return lake, bad.id, late.id


@pytest.mark.parametrize("problem", [Denied("closed"), KeyError("a bug")], ids=repr)
@pytest.mark.parametrize("who", ["begins", "sweeps", "serves"])
def test_one_that_cannot_land_keeps_nobody_from_anything(clock: Clock, problem: Exception, who: str) -> None:
    lake, bad, late = hindered_lake(clock, problem)
    with lake:
        if who == "begins":
            lake.transaction(id="a" * 32)
        elif who == "sweeps":
            lake.sweep()
        else:
            said = Log(io.BytesIO(), LogLevel.INFO, True, 0)
            assert TransactionReaper(lake.catalogue, said).end_abandoned_transactions() == 1  # type: ignore[arg-type]
        assert lake.find_transaction(bad).info.state is COMMITTING
        assert lake.find_transaction(late).info.state is ABORTED


def test_a_row_that_cannot_be_read_keeps_nobody_from_ending_the_others(clock: Clock) -> None:
    store = MemoryStore(clock)
    process = Process(store, clock)
    known = process.begin()
    damaged = Reference(
        kind=Kind.TRANSACTION,
        name=f"tx/{'0' * 32}",
        head=process.head(),
        incarnation=uuid4().bytes,
        log=known.reference.log,
        position=0,
        created_us=clock(),
        note=b"\xc1",
    )
    with store.turn(damaged.name) as turn:
        row = Row(damaged.name, damaged.kind.value, encode_reference(damaged))
        assert turn.advance({}, row).swapped
    with pytest.raises(Damaged):
        list(process.transactions.list_open_transactions())
    found = list(process.transactions.list_open_transactions(skips_damaged=True))
    assert [one.transaction.id for one in found] == [known.transaction.id]


def test_the_thread_of_a_server_outlives_whatever_happens(clock: Clock) -> None:
    with penstock.open("memory:", author="ann", clock=clock) as lake:
        said = Log(io.BytesIO(), LogLevel.INFO, True, 0)
        looks: list[int] = []

        class Failing(TransactionReaper):
            def end_abandoned_transactions(self) -> int:
                looks.append(1)
                if len(looks) == 3:
                    self._stopped.set()
                raise KeyError("a bug")

        settling = Failing(lake.catalogue, said, 0.001)  # type: ignore[arg-type]
        settling.start()
        settling._thread.join(20)
        assert len(looks) == 3
