"""``penstock resync``: what it prints, and what ``doctor`` and ``delta status`` say before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from tests.cli.conftest import Terminal
from tests.lake.restored import FORMATS, restore_lake, write


@pytest.fixture
def older(terminal: Terminal, tmp_path: Path) -> Terminal:
    """A terminal at a lake that is older than its Delta and its Lance table."""

    def add(number: int) -> object:
        def both(lake: Lake) -> None:
            for kind in FORMATS:
                write(lake, kind, number)

        return both

    restore_lake(tmp_path / "lake", add(1), add(2))  # type: ignore[arg-type]
    return terminal


def test_tables_that_are_ahead_are_told_resynced_and_told_to_be_in_sync(older: Terminal) -> None:
    told = older("doctor", status=1).out
    assert "2 tables have versions that the lake does not know" in told
    assert "penstock resync --all" in told
    assert "out of sync" in older("delta", "status").out
    assert "out of sync" in older("fsck", status=1).out
    assert "would resync a.t, from version 0 to version 1" in older("resync", "--all", "--dry-run").out
    assert "resynced a.t, from version 0 to version 1" in older("resync", "a.t").out
    found = json.loads(older("resync", "--all", "--json").out)
    assert [(one["key"], one["known"], one["version"]) for one in found["tables"]] == [("a.v", 1, 2)]
    assert found["in_sync"] == 1
    assert "2 tables in sync" in older("resync", "--all").out
    assert "nothing is wrong" in older("fsck").out


def test_a_resync_says_which_tables_or_all(older: Terminal) -> None:
    assert "give the tables to resync, or --all" in older("resync", status=2).err
    assert "give the tables to resync, or --all" in older("resync", "a.t", "--all", status=2).err


def test_a_table_that_is_not_there_is_told(older: Terminal) -> None:
    assert "there is no 'a.x'" in older("resync", "a.x", status=4).err
