"""Jobs that create tables, and do not hear what became of that: by what drivers do, without a Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import penstock
from penstock.errors import JobOver, KeyNotFound, OutcomeUnknown, TransactionOver, Unavailable
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, GetLanceTable
from penstock.formats.lance.lake.jobs import CommittedJob
from penstock.formats.lance.spark import table_creation, version_commit, writer
from penstock.formats.lance.spark.lance_write_options import LanceWriteOptions
from penstock.formats.lance.spark.output import LanceOutput
from penstock.formats.lance.spark.repeated_job import find_earlier_result
from penstock.lake.call import Call, CommitDescription
from penstock.lake.calls import CommitOperations, GetOutcome
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import CommitTransaction
from penstock.lake.write_jobs import SaveMode
from penstock.model.keys import Key
from penstock.model.transactions import TransactionState
from penstock.spark.requests import WriteResult
from tests.lance.tables import ids_at, rows, written
from tests.sweep.tables import LateClock

ITEMS = Key("items")
WAIT_S = 30
ORDER = LanceWriteOptions(
    mode=SaveMode.APPEND,
    overwrite_schema=False,
    vectors={},
    options={},
    create=True,
    job="ab" * 16,
    is_named=True,
    message=None,
    author=None,
    properties={},
)


@pytest.fixture
def clock() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, clock: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester", clock=clock) as opened:
        yield opened


def run(lake: Lake, branch: str, fails: BaseException | None = None) -> WriteResult | CommittedJob:
    """What a driver does for a job that creates a table; its tasks are one file. It may fail after them."""
    from lance.fragment import write_fragments

    if (known := find_earlier_result(lake, ITEMS, branch, ORDER)) is not None:
        return known
    with table_creation.declare_table(lake, ITEMS, branch, ORDER) as new:
        fragments = write_fragments(rows([1, 2, 3]), new.about.folder, mode="create")
        files = tuple(f"data/{file.path}" for one in fragments for file in one.files)
        done = LanceOutput(fragments=tuple(one.to_json() for one in fragments), rows=3, files=files)
        if fails is not None:
            raise fails
        proposal = version_commit.LanceProposal(
            key=ITEMS,
            branch=new.branch,
            job=new.job,
            said=CommitDescription(message="create"),
            output=done,
            schema=rows([]).schema,
            properties={},
        )
        committed = writer._commit_with_retries(lake, new.about, new.about.folder, proposal)
        new.commit_table(CommitDescription(message="create"))
    return committed


class Meddling:
    """A lake with something else done for the first call of a kind. Calls that it makes are let through."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self._do = lake.do
        self._instead: list[tuple[Callable[[Call[Any]], bool], Callable[[Any], Any]]] = []
        monkeypatch.setattr(lake, "do", self.do)

    def at(self, is_one: Callable[[Call[Any]], bool], happen: Callable[[Any], Any]) -> None:
        self._instead.append((is_one, happen))

    def do(self, call: Call[Any], *more: Any, **named: Any) -> Any:
        for one in self._instead:
            if one[0](call):
                self._instead.remove(one)
                return one[1](lambda: self._do(call, *more, **named))
        return self._do(call, *more, **named)


def _is_version(call: Call[Any]) -> bool:
    return isinstance(call, CommitLance) and isinstance(call.operations[0], CreateLanceVersion)


def _lost(error: BaseException) -> Callable[[Callable[[], Any]], Any]:
    """Do what is asked, and let nobody hear of it."""

    def happen(do: Callable[[], Any]) -> Any:
        do()
        raise error

    return happen


def _away(_: Callable[[], Any]) -> Any:
    raise Unavailable("the server is away")


# -- in a transaction of the caller's ----------------------------------------------------------------------


def test_a_table_stays_in_a_transaction_whose_driver_heard_nothing_of_its_version(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, meddling = lake.transaction(), Meddling(lake, monkeypatch)
    meddling.at(_is_version, _lost(OutcomeUnknown("the answer was lost")))
    meddling.at(lambda call: isinstance(call, GetOutcome), lambda do: do())  # before it begins
    meddling.at(lambda call: isinstance(call, GetOutcome), _away)
    with pytest.raises(OutcomeUnknown, match="it is applied once"):
        run(lake, transaction.branch)
    assert run(lake, transaction.branch).version == 1
    transaction.land()
    assert ids_at(lake.lance(), "items") == [1, 2, 3]


def test_a_table_stays_in_a_transaction_whose_driver_is_interrupted_after_its_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, original = lake.transaction(), version_commit.commit_fragments

    def commit(*given: Any) -> Any:
        original(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr(version_commit, "commit_fragments", commit)
        with pytest.raises(KeyboardInterrupt):
            run(lake, transaction.branch)
    assert run(lake, transaction.branch).version == 1
    transaction.land()
    assert ids_at(lake.lance(), "items") == [1, 2, 3]


def test_a_table_that_has_no_rows_goes_from_a_transaction_when_its_job_fails(lake: Lake) -> None:
    transaction = lake.transaction()
    with pytest.raises(RuntimeError, match="executor lost"):
        run(lake, transaction.branch, RuntimeError("executor lost"))
    with pytest.raises(KeyNotFound):
        lake.do(GetLanceTable(key=ITEMS, at=transaction.branch))
    assert run(lake, transaction.branch).version == 1
    transaction.land()
    assert ids_at(lake.lance(), "items") == [1, 2, 3]


def test_rows_that_come_while_a_table_is_taken_back_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction, meddling = lake.transaction(), Meddling(lake, monkeypatch)

    def first_a_version(do: Callable[[], Any]) -> Any:
        written(transaction.lance, "items", ids=[7])
        return do()

    meddling.at(lambda call: isinstance(call, CommitOperations), first_a_version)
    with pytest.raises(RuntimeError, match="executor lost"):
        run(lake, transaction.branch, RuntimeError("executor lost"))
    transaction.land()
    assert ids_at(lake.lance(), "items") == [7]


def test_a_job_is_not_told_to_be_done_in_a_transaction_that_has_lost_its_table(lake: Lake) -> None:
    transaction = lake.transaction()
    run(lake, transaction.branch)
    transaction.drop("items")
    with pytest.raises(JobOver, match="but the table no longer exists there"):
        run(lake, transaction.branch)


# -- landing -----------------------------------------------------------------------------------------------


def test_files_stay_for_as_long_as_somebody_else_may_land_their_transaction(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sending gets no answer, another one has a check, and the first one is sent once more."""
    checking, go = Event(), Event()

    def check(_: Any) -> bool:
        checking.set()
        return go.wait(WAIT_S)

    with penstock.open(tmp_path / "lake", author="other") as other:
        other.add_check("quality", check)
        landed: list[TransactionState] = []

        def land(transaction: str) -> None:
            landed.append(other.do(CommitTransaction(id=transaction, who="other")).info.state)

        original, sent = lake.kernel.merge, list[Thread]()

        def merge(*given: Any, **named: Any) -> Any:
            if sent:
                return original(*given, **named)
            sent.append(Thread(target=land, args=[named["key"]]))
            sent[0].start()
            assert checking.wait(WAIT_S)
            raise Unavailable("the store is away for a moment")

        monkeypatch.setattr(lake.kernel, "merge", merge)
        try:
            with pytest.raises(TransactionOver, match="by a program with the check 'quality'"):
                created(lake)
        finally:
            go.set()
            sent[0].join()
    assert landed == [TransactionState.COMMITTED]
    assert ids_at(lake.lance(), "items") == [1, 2, 3]


def created(lake: Lake) -> None:
    """What ``writing`` does around the landing of a new table, which removes its files if it is refused."""
    with table_creation.declare_table(lake, ITEMS, "main", ORDER) as new:
        written(lake.lance(new.branch), "items", ids=[1, 2, 3])
        files = tuple(f"data/{one.name}" for one in Path(new.about.folder, "data").iterdir())
        with writer._removed_if_refused(lake, new.about, LanceOutput(fragments=(), rows=3, files=files)):
            new.commit_table(CommitDescription(message="create"))


# -- attempts ----------------------------------------------------------------------------------------------


def test_a_job_that_landed_is_known_when_an_attempt_before_it_is_forgotten(
    lake: Lake, clock: LateClock
) -> None:
    with pytest.raises(RuntimeError):
        run(lake, "main", RuntimeError("executor lost"))
    clock.days = 6
    run(lake, "main")
    head = lake.resolve()
    clock.days = 7.1
    lake.sweep()
    assert run(lake, "main").version == 1
    assert lake.resolve() == head
    assert ids_at(lake.lance(), "items") == [1, 2, 3]


def test_a_job_that_landed_after_many_attempts_is_known(lake: Lake) -> None:
    for _ in range(12):
        with pytest.raises(RuntimeError):
            run(lake, "main", RuntimeError("executor lost"))
    run(lake, "main")
    head = lake.resolve()
    assert run(lake, "main").version == 1
    assert lake.resolve() == head
