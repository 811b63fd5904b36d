"""Sweep, fsck and the history horizon from the command line."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.kernel.job_attempts import JobAttempts
from penstock.model.clock import now_us
from penstock.model.nessie import IcebergTable
from tests.cli.conftest import Terminal
from tests.sweep.pool import Pool


def change_database(place: Path, statement: str) -> int:
    with closing(sqlite3.connect(place / "penstock.db")) as connection, connection:
        return connection.execute(statement).rowcount


def test_fsck_of_a_sound_lake(forked: Terminal) -> None:
    lines = forked("fsck").lines
    assert lines[0].startswith("checked 2 references, 4 commits, ")
    assert lines[1:] == ["nothing is wrong"]
    found = forked.json("fsck")
    assert sorted(found) == ["commits", "damages", "objects", "references"]
    assert found["damages"] == []


def test_fsck_says_what_is_damaged(forked: Terminal) -> None:
    head = forked.json("show")["id"]
    damage = f"UPDATE objects SET data = CAST(data || x'00' AS BLOB) WHERE id = x'{head}'"
    assert change_database(forked.place, damage) == 1
    ran = forked("fsck", status=1)
    assert "wrong" in ran.lines[-3]
    assert "backup" in ran.lines[-1]
    found = forked.json("fsck", status=1)
    assert found["damages"] != []
    assert all(sorted(one) == ["object", "what"] and one["what"] for one in found["damages"])
    assert head in {one["object"] for one in found["damages"]}


def test_fsck_finds_an_object_that_is_missing(forked: Terminal) -> None:
    assert change_database(forked.place, "DELETE FROM objects WHERE seq = 1") == 1
    assert forked.json("fsck", status=1)["damages"] != []


def test_a_sweep_counts_first_and_removes_then(forked: Terminal) -> None:
    forked.put("sales.more", "more-1", "--branch", "dev", "--key", "once")
    forked("branch", "delete", "dev")
    told = ["--nobody-writes", "--grace-s", "0", "--idempotency-days", "0", "--tombstone-days", "0"]
    would = forked("sweep", "--dry-run", *told)
    assert would.lines[0].startswith("would remove")
    assert would.lines[-1].startswith("would forget")
    before = forked.json("fsck")["objects"]
    report = forked.json("sweep", *told)
    assert sorted(report) == ["files", "objects", "tables"]
    found = report["objects"]
    assert sorted(found) == [
        "dry_run", "kept", "kept_bytes", "receipts", "removed", "removed_bytes", "tombstones", "waiting",
    ]  # fmt: skip
    assert (found["dry_run"], found["tombstones"]) == (False, 1)
    assert found["removed"] > 0
    assert found["receipts"] > 0
    assert forked.json("fsck")["damages"] == []
    assert forked.json("fsck")["objects"] < before
    assert forked("reflog", "dev", status=4).status == 4
    assert forked("sweep", *told).lines[0] == "removed  0 objects  0 bytes"


def test_what_is_young_is_not_swept(forked: Terminal) -> None:
    forked.put("sales.more", "more-1", "--branch", "dev", "--key", "once")
    forked("branch", "delete", "dev")
    found = forked.json("sweep")["objects"]
    assert found["removed"] == 0
    assert found["waiting"] > 0
    assert forked("sweep").lines[2].startswith("too young")


def test_a_sweep_tells_of_tables_of_files_and_of_jobs(forked: Terminal) -> None:
    with penstock.open(forked.place) as lake:
        pool = Pool(lake)
        pool.write("raw.events", "a")
        folder = pool.folder(days=30)
        pool.put(folder, "part-0", "part-1", days=30)
        begun = pool.begin("raw.events", own_branch=True)
        JobAttempts(lake.kernel).jobs.abort(begun.job.id, "by a test")
    would = forked("sweep", "--dry-run").lines
    assert would[-4:] == [
        "tables of files, 0 old files needed",
        "  would remove  2 files  12 bytes",
        "would drop 1 branch of a job",
        "  'penstock sweep --remove-data' removes data files.",
    ]
    assert forked("sweep").lines[-2] == "dropped 1 branch of a job"
    found = forked.json("sweep", "--remove-data")["files"]
    assert (found["data_files"], found["data_removed"], found["problem"]) == (2, True, "")
    assert found["names"] == [f"{folder}part-0", f"{folder}part-1"]
    assert not any(line.startswith("tables of files") for line in forked("sweep").lines)


def test_a_sweep_tells_of_files_that_are_missing(forked: Terminal) -> None:
    with penstock.open(forked.place) as lake:
        pool = Pool(lake)
        folder = pool.folder(days=30)
        pool.put(pool.folder(days=30), "x", days=30)
        pool.land_late("raw", folder, "lost")
    lines = forked("sweep", "--remove-data").lines
    assert lines[-2] == "of tables of files nothing more is removed:"
    assert f"{folder.rstrip('/')} lacks 1 of the files that commits reference" in lines[-1]


@pytest.mark.parametrize(
    "command",
    [
        ["sweep", "--grace-s", "-1"],
        ["sweep", "--grace-s", "nan"],
        ["sweep", "--idempotency-days", "inf"],
        ["horizon", "--max-commits", "0"],
        ["horizon", "--max-days", "soon"],
        ["horizon", "--max-days", "nan"],
        ["horizon", "--max-days", "inf"],
    ],
)
def test_limits_that_cannot_be_are_usage_errors(command: list[str], terminal: Terminal) -> None:
    assert terminal(*command, status=2).err.startswith("penstock: Invalid value for")
    assert terminal.json("horizon")["history_rules"] == []


def test_horizons_are_set_listed_and_removed(terminal: Terminal) -> None:
    assert terminal("horizon").lines == ["all history is kept"]
    assert terminal("horizon", "--max-days", "365").lines == ["*  keeps 365 days  set just now"]
    terminal("horizon", "job/*", "--max-commits", "1000", "--max-days", "1")
    terminal("horizon", "main", "--max-commits", "1")
    assert terminal("horizon").lines == [
        "*      keeps 365 days                 set just now",
        "job/*  keeps 1,000 commits and 1 day  set just now",
        "main   keeps 1 commit                 set just now",
    ]
    found = terminal.json("horizon")
    assert [(rule["pattern"], rule["max_commits"], rule["max_days"]) for rule in found["history_rules"]] == [
        ("*", None, 365.0),
        ("job/*", 1000, 1.0),
        ("main", 1, None),
    ]
    set_again = terminal.json("horizon", "*", "--max-days", "30")["history_rules"]
    assert [rule["pattern"] for rule in set_again] == ["job/*", "main", "*"], "the one set last is last"
    assert len(terminal.json("horizon", "--keep-all")["history_rules"]) == 2
    terminal("horizon", "main", "--keep-all")
    assert terminal("horizon", "job/*", "--keep-all").lines == ["all history is kept"]


def test_each_branch_has_its_own_horizon(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "lake")
    with penstock.open(terminal.place, clock=lambda: now_us() - 3 * 86_400_000_000) as lake:
        for number in range(5):
            lake.branch().put("t", IcebergTable(metadata_location=f"s3://b/{number}"))
        lake.branch("job/1").create().put("t", IcebergTable(metadata_location="s3://b/5"))
    terminal("horizon", "job/*", "--max-commits", "2")
    terminal("horizon", "main", "--max-commits", "3")
    assert "older than the history" in terminal("branch", "create", "late", "--at", "main~3", status=4).err
    terminal("sweep")
    assert len(terminal.json("log")["items"]) == 5, "a sweep heeds a rule one grace period later"
    terminal("sweep", "--nobody-writes", "--grace-s", "0")
    assert len(terminal.json("log")["items"]) == 3
    assert terminal.json("fsck")["damages"] == []


def test_a_horizon_that_says_nothing_or_too_much_is_a_usage_error(terminal: Terminal) -> None:
    assert "give --max-commits or --max-days" in terminal("horizon", "main", status=2).err
    assert "cannot be used with" in terminal("horizon", "--keep-all", "--max-days", "3", status=2).err


def test_a_horizon_needs_a_lake(tmp_path: Path) -> None:
    assert "there is no lake" in Terminal(tmp_path / "nowhere")("horizon", status=4).err
    assert not (tmp_path / "nowhere").exists()


def test_a_sweep_of_a_damaged_lake_removes_nothing(forked: Terminal) -> None:
    assert change_database(forked.place, "DELETE FROM objects WHERE seq = 1") == 1
    refused = forked("sweep", "--nobody-writes", "--grace-s", "0", status=1)
    assert "nothing was removed" in refused.err


def left_behind(terminal: Terminal) -> Path:
    """An old data file that no commit names, in a table of the lake."""
    with penstock.open(terminal.place) as lake:
        table = lake.create_table("visits", data=pa.table({"page": ["a"]}))
        table.backfill_to_version()
        left = Path(table.get_commits().location) / "part-0.parquet"
    left.write_bytes(b"x" * 2048)
    os.utime(left, (0, 0))
    return left


def test_a_sweep_counts_data_files_and_removes_them_when_asked(terminal: Terminal) -> None:
    left = left_behind(terminal)
    for option in (["--dry-run"], ["--dry-run", "--remove-data"], []):
        lines = terminal("sweep", *option).lines
        assert lines[-3:] == [
            "1 table, 1 data file needed",
            "  visits  would remove  1 data file  2.0 KiB",
            "  'penstock sweep --remove-data' removes data files.",
        ]
        assert left.exists()
    (found,) = terminal.json("sweep", "--remove-data")["tables"]
    assert sorted(found) == [
        "data_bytes", "data_files", "data_removed", "dry_run", "forked", "kept", "key", "location", "names",
        "problem", "scratch_bytes", "scratch_files", "waiting",
    ]  # fmt: skip
    assert (found["key"], found["names"], found["data_removed"]) == ("visits", ["part-0.parquet"], True)
    assert not left.exists()
    assert terminal("sweep").lines[-1] == "1 table, 1 data file needed"


def test_a_sweep_says_what_is_too_young_and_what_cannot_be_known(terminal: Terminal) -> None:
    left = left_behind(terminal)
    assert "too young" not in terminal("sweep", "--nobody-writes", "--data-grace-days", "3").out
    os.utime(left)
    assert terminal("sweep").lines[-1] == "  visits  too young  1 data file  to be removed later"
    (left.parent / "_delta_log" / f"{1:020}.json").write_bytes(b"{}\n")
    lines = terminal("sweep", "--nobody-writes", "--remove-data", "--data-grace-days", "0").lines
    assert "nothing more is removed of visits:" in lines
    assert "has version 1, but the lake knows none after 0" in lines[-2]
    assert "'penstock resync visits'" in lines[-1]
    assert left.exists()


def test_a_sweep_by_less_than_the_lake_says_needs_a_word(terminal: Terminal) -> None:
    left = left_behind(terminal)
    for less in (["--grace-s", "0"], ["--data-grace-days", "0"], ["--idempotency-days", "0"]):
        for dry in ([], ["--dry-run"]):
            refused = terminal("sweep", "--remove-data", *less, *dry, status=1)
            keys = "a repeated request be applied twice"
            assert ("writers rely on it" in refused.err) != (keys in refused.err)
            assert "--nobody-writes" in refused.err
    assert left.exists()
    terminal("sweep", "--remove-data", "--grace-s", "172800", "--data-grace-days", "30")
    terminal("sweep", "--remove-data", "--nobody-writes", "--grace-s", "0", "--data-grace-days", "0")
    assert not left.exists()


def test_the_grace_of_a_lake_is_shown_and_set(terminal: Terminal) -> None:
    terminal.put("sales.orders", "orders-1")
    assert terminal("grace").lines == ["objects     86,400 seconds", "data files  7 days"]
    found = terminal.json("grace", "--data-grace-days", "30")
    assert (found["grace_s"], found["data_grace_days"]) == (86400, 30)
    assert terminal.json("grace", "--grace-s", "7200")["data_grace_days"] == 30
    assert "must be between 4 and" in terminal("grace", "--data-grace-days", "1", status=1).err
    found = terminal.json("grace")
    assert (found["grace_s"], found["data_grace_days"]) == (7200, 30)
