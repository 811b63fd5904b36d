"""Restore from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from tests.cli.conftest import Terminal, anywhere


@pytest.fixture
def loaded(terminal: Terminal) -> Terminal:
    """A lake with a good night, which is tagged, and a bad one after it."""
    with penstock.open(terminal.place) as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
        lake.create_table("sales.returns", data=pa.table({"id": [1]}))
        lake.table("raw.days").files.put("day=1/a.csv", b"1")
        lake.tag("good").create()
        lake.table("sales.orders").append(pa.table({"id": [3, 3, 3]}))
        lake.table("raw.days").files.put("day=2/b.csv", b"2")
        lake.create_table("sales.mistake", data=pa.table({"id": [7]}))
        lake.branch().drop("sales.returns")
    return terminal


def ids(terminal: Terminal, key: str = "sales.orders") -> list[int]:
    with penstock.open(terminal.place) as lake:
        return sorted(lake.table(key).to_arrow()["id"].to_pylist())


@anywhere
def test_a_dry_run_shows_what_would_change_and_changes_nothing(loaded: Terminal) -> None:
    before = loaded.json("branch")
    lines = loaded("restore", "--all", "--to", "good", "--dry-run").lines
    shown = [re.sub(r" {2,}", "  ", re.sub(r"/\S+", "PLACE", line.strip())) for line in lines]
    assert shown == [
        "restore everything on main to good  4 tables",
        "~ raw.days  2 files → 1 file  1 file removed  restored",
        "- sales.mistake  DELTA_LAKE_TABLE v0 PLACE  1 file removed, 1 row removed  dropped: created since",
        "~ sales.orders  v1 → v2  1 file removed, 3 rows removed  restored",
        "+ sales.returns  DELTA_LAKE_TABLE v0 PLACE  1 file added, 1 row added  comes back",
    ]
    assert loaded.json("branch") == before
    found = loaded.json("restore", "--all", "--to", "good", "--dry-run")
    told = {one["key"]: one for one in found["keys"]}
    assert {key: (one["before"] is None, one["after"] is None) for key, one in told.items()} == {
        "raw.days": (False, False),
        "sales.mistake": (False, True),
        "sales.orders": (False, False),
        "sales.returns": (True, False),
    }
    assert told["sales.orders"]["change"] == {
        "version_before": 1,
        "version_after": 2,
        "files_added": 0,
        "files_removed": 1,
        "files_changed": 0,
        "rows_added": 0,
        "rows_removed": 3,
        "bytes_added": 0,
        "bytes_removed": told["sales.orders"]["change"]["bytes_removed"],
    }
    assert told["raw.days"]["change"]["rows_removed"] is None
    assert loaded.json("branch") == before


@anywhere
def test_everything_or_a_namespace_or_a_table_is_restored(loaded: Terminal) -> None:
    ran = loaded("restore", "sales.orders", "--to", "good", "-m", "back")
    head = loaded.json("show")
    assert ran.lines[-1] == f"restored to good as {head['id'][:8]}"
    assert re.fullmatch(r"  ~ sales\.orders  v1 → v2 +1 file removed  restored", ran.lines[1])
    assert head["message"] == "back"
    assert ids(loaded) == [1, 2]
    assert loaded("restore", "sales.orders", "--to", "good").lines == ["main is as it was at good already"]
    loaded("restore", "--namespace", "sales", "--to", "good", "--leave", "sales.mistake")
    assert [one["key"] for one in loaded.json("tables")["items"]] == [
        "raw.days",
        "sales.mistake",
        "sales.orders",
        "sales.returns",
    ]
    loaded("restore", "--all", "--to", "good")
    assert [one["key"] for one in loaded.json("tables")["items"]] == [
        "raw.days",
        "sales.orders",
        "sales.returns",
    ]


@anywhere
def test_a_version_is_a_number_unless_a_tag_is_called_that(loaded: Terminal) -> None:
    loaded("restore", "sales.orders", "--to", "0")
    assert ids(loaded) == [1, 2]
    loaded("restore", "sales.orders", "--to", "v1")
    assert ids(loaded) == [1, 2, 3, 3, 3]
    loaded("tag", "create", "v1", "--at", "good")
    loaded("restore", "sales.orders", "--to", "v1")
    assert ids(loaded) == [1, 2]
    assert "needs exactly one KEY" in loaded("restore", "--all", "--to", "1", status=2).err
    assert "no version 99" in loaded("restore", "sales.orders", "--to", "99", status=4).err


@anywhere
def test_a_time_is_one_of_the_branch(loaded: Terminal) -> None:
    time = loaded.json("show", "good")["time"]
    loaded("restore", "sales.orders", "--to", time)
    assert ids(loaded) == [1, 2]
    assert "The oldest state" in loaded("restore", "--all", "--to", "2001-01-01", status=4).err
    assert "not a date or time" in loaded("restore", "--all", "--to", "2001-99-01", status=2).err


def test_what_to_restore_is_said_once(loaded: Terminal) -> None:
    for args in ([], ["--all", "sales.orders"], ["--all", "--namespace", "sales"]):
        assert "or --namespace, or --all" in loaded("restore", *args, "--to", "good", status=2).err
    assert "Missing option '--to'" in loaded("restore", "--all", status=2).err


def test_what_stands_against_a_restore_is_shown_with_the_way_out(loaded: Terminal) -> None:
    with penstock.open(loaded.place) as lake:
        lake.table("sales.orders").overwrite(pa.table({"id": [9]}))
        lake.finish_background()
        place = Path(lake.table("sales.orders").location)
        first = min(place.glob("*.parquet"), key=lambda one: one.stat().st_mtime_ns)
        first.unlink()
    lines = loaded("restore", "--all", "--to", "good", status=3).lines
    assert any("are gone from storage" in line for line in lines)
    (way,) = (line for line in lines if "To restore the others" in line)
    (option,) = re.findall(r"--leave (\S+)\.", way)
    loaded("restore", "--all", "--to", "good", "--leave", option)
    assert ids(loaded) == [9]
