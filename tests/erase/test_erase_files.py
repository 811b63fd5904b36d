"""Deleted files of a table of files, and their paths, are gone once it is erased; all else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import EraseRefused, HistoryExpired
from penstock.lake.lake import Lake
from tests.erase.tables import MARKER, alone, where_is
from tests.sweep.tables import LateClock

KEPT = {"a.csv": b"1,ada", "day=2/b.csv": b"2,bob"}


def fill(lake: Lake, key: str = "t") -> None:
    """A table with a file that has the marker in its path and in its bytes, which is deleted then."""
    files = lake.table(key).files
    for path, data in KEPT.items():
        files.put(path, data)
    # Messages are not erased, and the usual one names the path.
    files.put(f"name={MARKER}/c.csv", MARKER.encode(), message="load")
    files.delete(f"name={MARKER}/c.csv", message="forget")


def content(lake: Lake, ref: str | None = None) -> dict[str, bytes]:
    files = lake.table("t", ref).files if ref else lake.table("t").files
    return {one.path: files.read(one.path) for one in files.list()}


@pytest.fixture
def deleted(lake: Lake) -> Lake:
    fill(lake)
    return lake


def test_the_value_is_in_no_byte_and_no_name_and_all_other_files_are(deleted: Lake, path: Path) -> None:
    before = deleted.branch().head
    deleted.close()
    assert where_is(path), "it is there before"
    with alone(path) as lake:
        planned = lake.erase("t", dry_run=True)
        assert (planned.data_files, planned.data_bytes) == (1, len(MARKER))
        erased = lake.erase("t")
        assert (erased.finished, erased.left, erased.data_files) == (True, (), 1)
        assert where_is(path) == []
        assert content(lake) == KEPT
        assert lake.fsck().damages == ()
        with pytest.raises(HistoryExpired, match="by privacy"):
            content(lake, f"{before}~1")
        with pytest.raises(HistoryExpired):
            content(lake, before)


def test_the_table_goes_on_and_is_erased_again(deleted: Lake, path: Path) -> None:
    deleted.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
    with penstock.open(path) as lake:
        lake.table("t").files.put("a.csv", MARKER.encode())
        lake.table("t").files.put("a.csv", KEPT["a.csv"])
        assert where_is(path)
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path) == []
        assert content(lake) == KEPT
        assert lake.fsck().damages == ()


def test_a_state_that_comes_again_after_an_erase_is_not_taken_for_the_erased_one(
    lake: Lake, path: Path
) -> None:
    """The trees of both are the same, so that only the mark tells them apart."""
    files = lake.table("t").files
    files.put("a.csv", b"1")
    files.put("b.csv", b"2")
    lake.close()
    with alone(path) as erasing:
        assert erasing.erase("t").finished
    with penstock.open(path) as again:
        again.table("t").files.delete("b.csv")
    with alone(path) as sweeping:
        sweeping.sweep()
        sweeping.sweep_files(remove_data=True)
        assert content(sweeping) == {"a.csv": b"1"}
        assert sweeping.fsck().damages == ()


def test_it_waits_for_the_grace_period_and_ends_after_it(tmp_path: Path) -> None:
    clock, path = LateClock(), tmp_path / "lake"
    with penstock.open(path, create=True, clock=clock) as lake:
        fill(lake)
        waiting = lake.erase("t")
        assert not waiting.finished
        assert waiting.until is not None
        clock.days = 3
        assert not lake.erase("t").finished
        clock.days = 8.1
        assert lake.erase("t").finished
        assert where_is(path) == []
        assert content(lake) == KEPT


def test_references_hold_it_and_let_go_when_told(deleted: Lake, path: Path) -> None:
    deleted.tag("v1").create()
    deleted.branch("dev").create()
    deleted.branch("own").create().table("t").files.put("own.csv", b"own")
    with pytest.raises(EraseRefused) as refused:
        deleted.erase("t", all_references=True)
    assert "'own'" in refused.value.message
    assert "'dev'" not in refused.value.message
    deleted.merge("own", "main")
    deleted.branch("own").delete()
    deleted.close()
    with alone(path) as lake:
        assert lake.erase("t", all_references=True).finished
        assert where_is(path) == []
        for name in ("v1", "dev"):
            with pytest.raises(HistoryExpired):
                content(lake, name)
        lake.rebase("dev")
        assert content(lake, "dev") == {**KEPT, "own.csv": b"own"}
        assert lake.fsck().damages == ()
