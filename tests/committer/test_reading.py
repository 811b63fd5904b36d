"""What readers see while jobs land: all of one or all of another."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.testing.threads import at_once

PARTITIONS = 40
OVERWRITES = 12


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Lake:
    """The same lake, as another process sees it."""
    return penstock.open(tmp_path / "lake", create=False)


def test_property_2_a_reader_sees_one_overwrite_of_many_partitions_and_never_two(
    lake: Lake, other: Lake
) -> None:
    """Each has other partitions than the one before, so that what goes and what comes are one step."""
    is_over, seen = Event(), set[int]()

    def overwrite() -> None:
        try:
            for number in range(OVERWRITES):
                files = {f"p={number + part}/{number}": f"{number}" for part in range(PARTITIONS)}
                lake.table("raw.events").files.write(files, replace=[""])
        finally:
            is_over.set()

    def look() -> None:
        is_last = False
        while not is_last:
            is_last = is_over.is_set()
            table = other.table("raw.events")
            found = [one.path for one in table.files.list()] if table.exists else []
            if not found:
                assert not seen
                continue
            (number,) = {int(path.rpartition("/")[2]) for path in found}
            assert len(found) == PARTITIONS
            assert number >= max(seen, default=0)
            seen.add(number)

    with other:
        at_once(overwrite, look)
    assert max(seen) == OVERWRITES - 1


def test_property_4_whoever_sees_the_marker_sees_the_data(lake: Lake, other: Lake) -> None:
    """It comes with the files that it is about, and goes with them."""
    is_over = Event()

    def write() -> None:
        try:
            for number in range(OVERWRITES):
                marked = {f"{number}-{part}": b"1" for part in range(5)} | {"_SUCCESS": f"{number}"}
                lake.table("raw.events").files.write(marked, replace=[""])
                lake.table("raw.events").files.write({"unmarked": b"1"}, replace=[""])
        finally:
            is_over.set()

    def look() -> None:
        while not is_over.is_set():
            now = other.at()
            if not now.table("raw.events").exists:
                continue
            files = now.table("raw.events").files
            found = [one.path for one in files.list()]
            if "_SUCCESS" in found:
                number = files.read("_SUCCESS").decode()
                assert found == sorted([*(f"{number}-{part}" for part in range(5)), "_SUCCESS"])
            else:
                assert found == ["unmarked"]

    with other:
        at_once(write, look)


def test_property_54_paths_may_be_long_and_odd_and_none_leads_out_of_its_table(lake: Lake) -> None:
    files = lake.table("raw.odd").files
    long = "/".join(["ü" * 40] * 12)
    odd = {f"{long}/{'k' * 50}", "a b/50%/x=y/..hidden", "_under/.dot", "%2E%2E/x"}
    assert max(len(path.encode()) for path in odd) > 1000
    files.write({path: path.encode() for path in odd})
    assert {one.path: files.read(one.path) for one in files.walk()} == {path: path.encode() for path in odd}
    before = lake.branch().head
    for path in ("../out", "a/../../out", "a/", "/a", "a//b", "./a", "tab\tbed", "", "k" * 1025):
        with pytest.raises(penstock.errors.InvalidRequest):
            files.put(path, b"1")
    assert lake.branch().head == before
    assert files.total().files == len(odd)
