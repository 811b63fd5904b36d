"""Commits that land while the files of a table are swept lose nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest

import penstock
from penstock.formats.delta.lake import clone_needs
from penstock.formats.delta.lake.retained_tables import RetainedDeltaTables
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.nessie import DeltaTable
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place
from tests.owner.orders import add
from tests.sweep.tables import abandoned, data_files, ids, only, root_of, rows

Step = Callable[[], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("orders", data=rows(1))


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have something done right before the first look at what is named, the second one, and so on."""

    def stepping(*steps: Step) -> None:
        waiting = iter(steps)

        class Stepping(RetainedDeltaTables):
            def walk_unseen_tables(self) -> Iterator[DeltaTable]:
                next(waiting, lambda: None)()
                return super().walk_unseen_tables()

        monkeypatch.setattr(clone_needs, "RetainedDeltaTables", Stepping)

    return stepping


def commit_file(table: Table, name: str) -> None:
    """Commit a file that was written long ago: later than a job may do it."""
    size = (root_of(table) / name).stat().st_size
    table.append_actions([add(name, size=size)])


@pytest.mark.parametrize("number", [0, 1], ids=["before-the-listing", "before-the-removal"])
def test_an_old_file_that_is_committed_meanwhile_stays(
    lake: Lake, table: Table, stepping: Callable[..., None], number: int
) -> None:
    (late,), (left,) = abandoned(lake, table, 2, days=30), abandoned(lake, table, 3, days=30)
    steps: list[Step] = [lambda: None, lambda: None]
    steps[number] = lambda: commit_file(table, late)
    stepping(*steps)
    assert only(lake.sweep_tables(remove_data=True)).names == (left,)
    assert ids(table) == [1, 2]


def test_a_file_that_is_committed_to_a_branch_made_meanwhile_stays(
    lake: Lake, table: Table, stepping: Callable[..., None]
) -> None:
    (late,) = abandoned(lake, table, 2, days=30)

    def step() -> None:
        lake.branch("dev").create()
        commit_file(lake.table("orders", "dev"), late)

    stepping(lambda: None, step)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 0
    assert ids(lake.table("orders", "dev")) == [1, 2]


def test_a_file_whose_branch_is_merged_and_deleted_meanwhile_stays(
    lake: Lake, table: Table, stepping: Callable[..., None]
) -> None:
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(2))
    abandoned(lake, table, days=30)

    def step() -> None:
        lake.merge("dev", "main")
        branch.delete()

    stepping(step, lambda: None)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert ids(table) == [1, 2]


def test_versions_that_are_published_after_the_log_was_read_are_known_from_their_commits(
    lake: Lake, table: Table, stepping: Callable[..., None]
) -> None:
    left = abandoned(lake, table, days=30)

    def step() -> None:
        for number in range(2, 22):
            table.append(rows(number))
        table.backfill_to_version()

    stepping(step, step)
    told = only(lake.sweep_tables(remove_data=True))
    assert set(told.names) == left
    assert len(ids(table)) == 41


def test_a_job_that_writes_and_commits_while_files_are_listed_loses_nothing(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(lake, table, days=30)
    listing = Place.entries

    def entries(place: Place, folder: str = "") -> Iterator[BucketEntry]:
        if folder:  # that of notes of forks
            yield from listing(place, folder)
            return
        table.append(rows(2))
        yield from listing(place, folder)
        table.append(rows(3))

    monkeypatch.setattr(Place, "entries", entries)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert ids(table) == [1, 2, 3]


def test_a_log_that_is_cleaned_up_meanwhile_does_no_harm(
    lake: Lake, table: Table, stepping: Callable[..., None]
) -> None:
    for number in (2, 3):
        table.overwrite(rows(number))
    table.backfill_to_version()
    lake.delta.checkpoint("orders")
    left = abandoned(lake, table, days=30)
    stepping(lambda: lake.delta.clean_log("orders"), lambda: lake.delta.clean_log("orders"))
    assert set(only(lake.sweep_tables(remove_data=True)).names) == left
    assert [ids(table, version) for version in range(3)] == [[1], [2], [3]]


def test_two_sweeps_at_once_remove_the_same_and_nothing_else(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {name for _ in range(20) for name in abandoned(lake, table, days=30)}
    both = Barrier(2, timeout=20)
    delete = Place.delete

    def together(place: Place, names: list[str]) -> None:
        both.wait()
        delete(place, names)

    monkeypatch.setattr(Place, "delete", together)
    found: list[object] = []
    threads = [
        Thread(target=lambda: found.append(only(lake.sweep_tables(remove_data=True)).data_files))
        for _ in range(2)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert found == [20, 20]
    assert not left & data_files(root_of(table))
    assert ids(table) == [1]


KILLED = """
import os
import penstock
from penstock.lake import sweep_engine
from penstock.storage.places import Place

sweep_engine.REMOVED_AT_ONCE = 2
delete, calls = Place.delete, []

def killed(place, names):
    delete(place, names)
    calls.append(names)
    if len(calls) == 2:
        os._exit(9)

Place.delete = killed
with penstock.open({url!r}) as lake:
    lake.sweep_tables(remove_data=True)
"""


def test_a_sweep_that_is_killed_is_taken_up_by_the_next(lake: Lake, table: Table) -> None:
    left = {name for _ in range(7) for name in abandoned(lake, table, days=30)}
    program = textwrap.dedent(KILLED).format(url=lake.url)
    ran = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ran.returncode == 9
    assert len(left & data_files(root_of(table))) == 3
    assert only(lake.sweep_tables(remove_data=True)).data_files == 3
    assert ids(table) == [1]
    assert lake.fsck().damages == ()
