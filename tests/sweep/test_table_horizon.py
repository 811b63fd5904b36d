"""What a table needs is told by the commits that are kept, whatever else a process has in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import Damaged
from penstock.kernel.expired import ExpiredCommits
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.retained_history import RetainedHistory
from penstock.model.nessie import IcebergTable
from tests.sweep.tables import LateClock, abandoned, ids, only, rows

NONE = Settings(grace_s=0, nobody_writes=True)
Opening = Callable[..., Lake]
"""Opens the lake anew, as another process does."""


@pytest.fixture
def opening(tmp_path: Path) -> Iterator[Opening]:
    opened: list[Lake] = []

    def opening(settings: Settings | None = NONE, days: float = 8) -> Lake:
        lake = penstock.open(tmp_path / "lake", author="tester", settings=settings, clock=LateClock(days))
        opened.append(lake)
        return lake

    yield opening
    for one in opened:
        one.close()


@pytest.fixture(autouse=True)
def history(opening: Opening) -> None:
    """A table whose last commit is long ago, as commits are counted."""
    lake = opening(days=0)
    lake.create_table("orders", data=rows(1)).append(rows(2))
    lake.table("orders").backfill_to_version()
    abandoned(lake, lake.table("orders"))
    for number in range(20):
        lake.branch().put("other", IcebergTable(metadata_location=f"s3://bucket/{number}"))


@pytest.mark.parametrize("who", ["itself", "another"])
def test_a_process_with_expired_commits_in_memory_looks_after_tables(opening: Opening, who: str) -> None:
    lake, another = opening(), opening()
    assert len(lake.log(limit=None)) > 20
    another.keep_history(max_commits=3)
    (lake if who == "itself" else another).sweep()
    assert another.fsck().damages == ()
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert lake.delta.clean_log("orders").names == ()
    assert ids(lake.table("orders")) == [1, 2]


def test_what_only_memory_has_of_expired_commits_does_not_keep_files(opening: Opening) -> None:
    before = opening(days=0).table("orders")
    for number in (3, 5):
        before.overwrite(rows(number))
    before.backfill_to_version()
    lake = opening(days=400)
    table = lake.table("orders")
    lake.delta.checkpoint("orders")
    table.append(rows(4))
    lake.log(limit=None)
    lake.keep_history(max_commits=1)
    lake.sweep()
    assert len(lake.delta.clean_log("orders").names) > 0
    assert only(lake.sweep_tables(remove_data=True)).data_files == 3
    assert ids(table) == [4, 5]


def test_history_that_expires_while_it_is_walked_is_no_damage(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, another = opening(), opening()
    swept = 0

    def expiring(kept: RetainedHistory[Any]) -> ExpiredCommits:
        nonlocal swept
        found = expired(kept)
        if not swept:
            another.keep_history(max_commits=3)
            swept = another.sweep().removed
        return found

    expired = RetainedHistory._read_expired_commits
    monkeypatch.setattr(RetainedHistory, "_read_expired_commits", expiring)
    assert only(lake.sweep_tables(remove_data=True)).data_files == 1
    assert swept > 0
    assert ids(lake.table("orders")) == [1, 2]


@pytest.mark.parametrize("is_expired", [False, True], ids=["without a horizon", "with a horizon"])
def test_a_commit_that_is_missing_and_has_not_expired_is_damage(
    opening: Opening, tmp_path: Path, is_expired: bool
) -> None:
    lake = opening()
    if is_expired:
        lake.keep_history(max_commits=10)
        lake.sweep()
    victim = lake.resolve("main~5")
    database = sqlite3.connect(tmp_path / "lake" / "penstock.db")
    assert database.execute("DELETE FROM objects WHERE id = ?", (bytes.fromhex(victim),)).rowcount == 1
    database.commit()
    database.close()
    again = opening()
    for look in (lambda: again.sweep_tables(remove_data=True), lambda: again.delta.clean_log("orders")):
        with pytest.raises(Damaged, match=victim):
            look()


def test_what_a_sweep_with_a_shorter_grace_period_took_is_no_damage(opening: Opening) -> None:
    """A branch that was deleted an hour ago is kept for a day, unless somebody else keeps it for less."""
    lake = opening(settings=None)
    branch = lake.branch("dev").create()
    branch.table("orders").append(rows(3))
    branch.put("other", IcebergTable(metadata_location="s3://bucket/dev"))
    lake.log("dev", limit=None)
    branch.delete()
    assert only(lake.sweep_tables(dry_run=True)).kept == 3
    opening().sweep()
    for one in (lake, opening(settings=None)):
        assert only(one.sweep_tables(dry_run=True)).kept == 2
        assert one.delta.clean_log("orders", dry_run=True).dry_run
