"""Writers of Lance tables that meet: in the namespace, in batches, in transactions, without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict, OutcomeUnknown
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.transactions import TransactionState
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore
from penstock.testing.threads import at_once
from tests.lance.collecting import Collecting
from tests.lance.processes import finish, started
from tests.lance.racing_worker import KEYS, WAYS, Task, schema, table_of

lance = pytest.importorskip("lance")
lance_namespace = pytest.importorskip("lance_namespace")

WORKER = "tests.lance.racing_worker"
PROCESSES = 3
ROWS = pa.table({"k": pa.array([1], pa.int64())})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(place: Path) -> Iterator[Lake]:
    with penstock.open(place) as opened:
        opened.branch().create_namespace("race")
        yield opened


def make(lake: Lake, name: str = "items", data: pa.Table = ROWS) -> list[str]:
    table = table_of(name)
    lance.write_dataset(data, namespace_client=lake.lance(), table_id=table)
    return table


def opened(lake: Lake, table: list[str], ref: str | None = None) -> Any:
    return lance.dataset(namespace_client=lake.lance(ref), table_id=table)


def keys(lake: Lake, table: list[str]) -> list[int]:
    return sorted(opened(lake, table).to_table(["k"])["k"].to_pylist())


# -- processes through the namespace -----------------------------------------------------------------------


def race(lake: Lake, place: Path, rounds: int) -> None:
    """Processes append, merge by a column that says that it is the key, and merge by any in transactions."""
    for way in WAYS:
        columns = schema(is_annotated=way == "merge")
        make(lake, way, pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())}, columns))
    tasks = [Task(lake=str(place), name=f"p{number}", rounds=rounds) for number in range(PROCESSES)]
    with started(WORKER, tasks) as workers:
        for worker in workers:
            finish(worker)
    appended = opened(lake, table_of("append"))
    values = sorted(appended.to_table(["v"])["v"].to_pylist())
    assert values == sorted(f"p{p}-{n}" for p in range(PROCESSES) for n in range(rounds)), "appends all land"
    assert appended.version == 1 + PROCESSES * rounds
    for way in ("merge", "transaction"):
        assert keys(lake, table_of(way)) == list(range(KEYS * rounds)), "no key is there twice"
    for way in WAYS:
        found = opened(lake, table_of(way))
        direct = lance.dataset(lake.lance().describe_table({"id": table_of(way)}).location)
        assert (direct.version, direct.to_table()) == (found.version, found.to_table())


@pytest.mark.verify
def test_processes_that_race_lose_no_append_and_double_no_key(lake: Lake, place: Path) -> None:
    race(lake, place, 4)


@pytest.mark.reliability
def test_processes_that_race_for_long_lose_no_append_and_double_no_key(lake: Lake, place: Path) -> None:
    race(lake, place, 60)


# -- transactions that meet other writers ------------------------------------------------------------------


def merge(lake: Lake, table: list[str], ref: str | None = None, key: int = 7) -> None:
    opened(lake, table, ref).merge_insert(
        "k"
    ).when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"k": pa.array([key], pa.int64())})
    )


def append(lake: Lake, table: list[str], ref: str | None = None, key: int = 7) -> None:
    data = pa.table({"k": pa.array([key], pa.int64())})
    lance.write_dataset(data, namespace_client=lake.lance(ref), table_id=table, mode="append")


def update(lake: Lake, table: list[str], ref: str | None = None) -> None:
    opened(lake, table, ref).update({"k": "k + 100"}, where="k = 1")


def delete(lake: Lake, table: list[str], ref: str | None = None) -> None:
    opened(lake, table, ref).delete("k = 1")


@pytest.mark.parametrize(
    ("change", "other", "together"),
    [(update, append, [2, 7, 101]), (update, merge, [2, 7, 101]), (merge, delete, [2, 7])],
)
def test_changes_of_other_rows_come_together_in_a_transaction_that_may_rebase(
    lake: Lake, change: Any, other: Any, together: list[int]
) -> None:
    table = make(lake, data=pa.table({"k": pa.array([1, 2], pa.int64())}))
    with lake.transaction(policy="rebase") as transaction:
        change(lake, table, transaction.branch)
        other(lake, table)
    assert keys(lake, table) == together


@pytest.mark.parametrize(
    ("policy", "change", "other"),
    [
        ("rebase", merge, append),
        ("rebase", merge, merge),
        ("rebase", update, update),
        ("rebase", update, delete),
        *(("snapshot", change, other) for change in (merge, update) for other in (append, merge, delete)),
    ],
)
def test_a_merge_in_a_transaction_is_never_put_on_top_of_what_it_did_not_read(
    lake: Lake, policy: str, change: Any, other: Any
) -> None:
    table = make(lake, data=pa.table({"k": pa.array([1, 2], pa.int64())}))
    transaction = lake.transaction(policy=policy)
    change(lake, table, transaction.branch)
    other(lake, table)
    before, head = keys(lake, table), lake.branch().head
    with pytest.raises(CommitConflict):
        transaction.land()
    assert transaction.info.state == TransactionState.ABORTED
    assert (keys(lake, table), lake.branch().head) == (before, head)


def test_a_transaction_that_may_rebase_puts_its_rows_beside_those_of_others(lake: Lake) -> None:
    table = make(lake)
    with lake.transaction(policy="rebase") as transaction:
        append(lake, table, transaction.branch, 2)
        append(lake, table, None, 3)
        assert keys(lake, table) == [1, 3]
    assert keys(lake, table) == [1, 2, 3]


def test_a_transaction_that_may_not_rebase_is_refused_even_for_rows_beside_those_of_others(
    lake: Lake,
) -> None:
    table = make(lake)
    transaction = lake.transaction(policy="snapshot")
    append(lake, table, transaction.branch, 2)
    append(lake, table, None, 3)
    with pytest.raises(CommitConflict):
        transaction.land()
    assert keys(lake, table) == [1, 3]


# -- batches that overlap ----------------------------------------------------------------------------------


def staged(lake: Lake, tables: tuple[list[str], ...], key: int) -> Any:
    """A batch that appends a row to some tables, as a request that nobody has sent yet."""
    collecting = Collecting(lake.lance())
    for table in tables:
        data = pa.table({"k": pa.array([key], pa.int64())})
        lance.write_dataset(data, namespace_client=collecting, table_id=table, mode="append")
    return collecting.request()


def send(lake: Lake, request: Any) -> bool:
    """Whether a batch landed."""
    try:
        lake.lance().batch_commit_tables(request)
    except lance_namespace.ConcurrentModificationError:
        return False
    return True


def test_of_batches_that_overlap_exactly_one_has_each_version(lake: Lake) -> None:
    tables = [make(lake, name) for name in ("a", "b", "c")]
    pairs = list(combinations(range(3), 2))
    for number in range(4):
        requests = [
            staged(lake, (tables[one], tables[other]), 10 * number + key)
            for key, (one, other) in enumerate(pairs)
        ]
        before = [keys(lake, table) for table in tables]
        won = at_once(*(lambda request=request: send(lake, request) for request in requests))
        assert won.count(True) == 1, "any two of them share a table"
        winner = won.index(True)
        new = 10 * number + winner
        expected = [
            sorted([*old, new]) if index in pairs[winner] else old for index, old in enumerate(before)
        ]
        assert [keys(lake, table) for table in tables] == expected


def test_batches_that_share_nothing_all_land(lake: Lake) -> None:
    tables = [make(lake, name) for name in ("a", "b", "c", "d")]
    requests = [staged(lake, (tables[0], tables[1]), 5), staged(lake, (tables[2], tables[3]), 6)]
    assert at_once(*(lambda request=request: send(lake, request) for request in requests)) == [True, True]
    assert [keys(lake, table) for table in tables] == [[1, 5], [1, 5], [1, 6], [1, 6]]


def test_a_batch_that_is_sent_by_many_at_once_lands_once_and_all_have_the_same_answer(lake: Lake) -> None:
    tables = (make(lake, "a"), make(lake, "b"))
    request = staged(lake, tables, 5)
    answers = at_once(*(lambda: lake.lance().batch_commit_tables(request) for _ in range(4)))
    assert len({answer.model_dump_json() for answer in answers}) == 1
    assert [keys(lake, table) for table in tables] == [[1, 5], [1, 5]]


# -- answers that are lost ---------------------------------------------------------------------------------

HASTY = Settings(tries_max=1)
"""Gives up at once, so that a lost answer reaches the caller."""


@contextmanager
def unreliable(place: Path, settings: Settings | None) -> Iterator[tuple[Lake, FaultyStore]]:
    with penstock.open(place) as first:
        first.branch().create_namespace("race")
    store = FaultyStore(SqliteStore(str(place / DATABASE_FILE)))
    with penstock.open(store, settings=settings) as opened:
        yield opened, store


@pytest.fixture
def hasty(place: Path) -> Iterator[tuple[Lake, FaultyStore]]:
    with unreliable(place, HASTY) as found:
        yield found


@pytest.fixture
def patient(place: Path) -> Iterator[tuple[Lake, FaultyStore]]:
    with unreliable(place, None) as found:
        yield found


def test_a_batch_whose_answer_was_lost_is_sent_again_and_lands_once(
    hasty: tuple[Lake, FaultyStore],
) -> None:
    lake, store = hasty
    tables = (make(lake, "a"), make(lake, "b"))
    request = staged(lake, tables, 5)
    store.lose_answer(name=lake.default_branch)
    with suppress(lance_namespace.ServiceUnavailableError):
        lake.lance().batch_commit_tables(request)
    head = lake.branch().head
    first = lake.lance().batch_commit_tables(request)
    assert lake.lance().batch_commit_tables(request) == first
    assert lake.branch().head == head
    assert [keys(lake, table) for table in tables] == [[1, 5], [1, 5]]
    answers = [one.model_dump()["create_table_version"]["version"] for one in first.results]
    assert [one["version"] for one in answers] == [2, 2]


def test_an_append_whose_answer_was_lost_has_landed_once(hasty: tuple[Lake, FaultyStore]) -> None:
    """Lance asks what became of a version when it hears nothing."""
    lake, store = hasty
    table = make(lake)
    store.lose_answer(name=lake.default_branch)
    append(lake, table, None, 5)
    assert keys(lake, table) == [1, 5]
    assert opened(lake, table).version == 2


def test_an_append_whose_swap_was_lost_lands_all_the_same(patient: tuple[Lake, FaultyStore]) -> None:
    lake, store = patient
    table = make(lake)
    store.lose_swap(name=lake.default_branch)
    append(lake, table, None, 5)
    assert keys(lake, table) == [1, 5]


def test_a_transaction_whose_landing_was_not_answered_has_landed_once(
    hasty: tuple[Lake, FaultyStore],
) -> None:
    lake, store = hasty
    tables = (make(lake, "a"), make(lake, "b"))
    transaction = lake.transaction(policy="snapshot")
    for table in tables:
        append(lake, table, transaction.branch, 5)
    store.lose_answer(name=lake.default_branch)
    try:
        transaction.land()
    except OutcomeUnknown:
        transaction.land()
    head = lake.branch().head
    assert transaction.land().head == head
    assert [keys(lake, table) for table in tables] == [[1, 5], [1, 5]]
    assert transaction.info.state == TransactionState.COMMITTED
