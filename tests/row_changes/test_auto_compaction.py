"""Tables whose writers put small files together by themselves: when, where, and what a failure of it does."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.errors import Unavailable
from penstock.formats.delta.lake import auto_compaction, bin_rewrites, file_upkeep
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.properties import AUTO_COMPACT
from penstock.lake.lake import Lake
from penstock.lake.table import Table


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files are few here, so that a table has many soon."""
    monkeypatch.setattr(file_upkeep, "AUTO_FILES_MIN", 8)


def make(lake: Lake, value: str = "true") -> Table:
    return lake.delta.create("t", data={"id": [0]}, properties={AUTO_COMPACT: value})


def count_files(table: Table) -> int:
    return len(list(table.snapshot().files()))


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def fill(table: Table, first: int, last: int) -> None:
    for number in range(first, last + 1):
        table.append({"id": [number]})


@pytest.mark.parametrize("value", ["true", "auto"])
def test_the_writer_that_made_many_small_files_puts_them_together(lake: Lake, value: str) -> None:
    table = make(lake, value)
    fill(table, 1, 9)
    assert (table.version, count_files(table)) == (9, 10)
    table.append({"id": [10]})  # which is version 10
    assert (table.version, count_files(table)) == (11, 1)
    past = table.history(1)[0]
    assert (past.operation, past.parameters["auto"]) == ("OPTIMIZE", "true")
    assert table.log(limit=1)[0].message == "compact t"
    fill(table, 11, 15)
    assert ids(table) == list(range(16))


def test_a_row_change_does_it_too(lake: Lake) -> None:
    table = make(lake)
    fill(table, 1, 9)
    assert table.delete("id = 4").deleted == 1
    assert (table.version, count_files(table)) == (11, 1)
    assert ids(table) == [number for number in range(10) if number != 4]


@pytest.mark.parametrize("value", ["false", "never"])
def test_tables_that_do_not_ask_stay_as_they_are(lake: Lake, value: str) -> None:
    table = make(lake, value)
    fill(table, 1, 11)
    assert (table.version, count_files(table)) == (11, 12)


def test_few_files_stay_as_they_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_upkeep, "AUTO_FILES_MIN", 50)
    table = make(lake)
    fill(table, 1, 11)
    assert (table.version, count_files(table)) == (11, 12)


def test_files_of_another_branch_stay_so_that_it_merges(lake: Lake) -> None:
    table = make(lake)
    lake.branch("dev").create()
    dev = lake.table("t", "dev")
    fill(dev, 1, 12)
    assert count_files(dev) == 13
    assert table.delete("id = 0").deleted == 1
    lake.merge("dev")
    assert ids(table) == list(range(1, 13))


def test_a_failure_of_it_leaves_the_commit_as_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(lake)
    fill(table, 1, 9)

    def fail(*_: Any) -> Any:
        raise Unavailable("the storage is away")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "penstock"):
        patch.setattr(bin_rewrites, "ARROW", bin_rewrites.ARROW._replace(rewrite=fail))
        table.append({"id": [10]})
    assert (
        "the automatic compaction of 't' failed; its small files stay as they are: the storage is away"
        in caplog.text
    )
    assert (table.version, count_files(table)) == (10, 11)
    fill(table, 11, 20)
    assert count_files(table) == 1
    assert ids(table) == list(range(21))


def test_a_conflict_is_left_to_the_next(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)
    fill(table, 1, 9)
    commit, tries = DeltaJob.commit_actions, list[str]()

    def wrapped(self: DeltaJob, actions: Any, **how: Any) -> Any:
        if how["operation"] == "OPTIMIZE":
            tries.append("optimize")
            assert table.delete("id = 4").deleted == 1
        return commit(self, actions, **how)

    monkeypatch.setattr(DeltaJob, "commit_actions", wrapped)
    table.append({"id": [10]})
    assert tries == ["optimize"]
    assert ids(table) == [number for number in range(11) if number != 4]


def test_many_writers_lose_nothing(lake: Lake) -> None:
    table = make(lake)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda number: table.append({"id": [number]}), range(1, 61)))
    assert ids(table) == list(range(61))
    assert any(past.operation == "OPTIMIZE" for past in table.history(100))
    assert count_files(table) < 60
    assert auto_compaction.LOOK_EVERY == 10
