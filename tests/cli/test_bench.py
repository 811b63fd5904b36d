"""Measuring a store from the command line."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import penstock
from penstock.model.references import Kind
from tests.cli.conftest import Terminal

QUICK = ["--seconds", "0.01", "--writers", "2"]
FIELDS = [
    "calls_per_commit", "commits", "commits_per_s", "commits_per_swap", "lost_swaps", "p50_ms", "p99_ms",
    "shape", "swaps", "times_naive", "way", "writers",
]  # fmt: skip


def test_a_table_for_people(terminal: Terminal) -> None:
    told = ["--seconds", "0.2", "--writers", "1,2", "--shapes", "one-branch"]
    lines = terminal.plain("bench", "memory:", *told).lines
    assert lines[:3] == [
        "measured at memory:, for 0.2 s each after the writers warmed up",
        "",
        "one-branch: all on one branch, each writer its own table",
    ]
    assert lines[3].split()[:4] == ["writers", "way", "commits/s", "p50"]
    assert len({len(line) for line in lines[4:8:2]}) == 1, "figures end at the same place"
    assert lines[4].split()[:3] == ["1", "group", "commit"]
    assert lines[5].split()[0] == "naive"
    assert lines[6].split()[0] == "2"
    assert lines[4].endswith("x")
    assert len(lines) == 8


def test_each_shape_has_a_table_and_says_what_it_means(terminal: Terminal) -> None:
    lines = terminal.plain("bench", "memory:", *QUICK).lines
    titles = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert [title.partition(": all on one")[0].partition(": spread")[0] for title in titles] == [
        "one-branch", "many-branches", "one-table",
    ]  # fmt: skip


def test_an_object_for_programs(terminal: Terminal) -> None:
    ran = terminal.plain("bench", "memory:", *QUICK, "--json")
    found = ran.json
    assert sorted(found) == ["measurements", "removed", "seconds", "url"]
    assert (found["url"], found["seconds"], found["removed"], ran.err) == ("memory:", 0.01, 0, "")
    assert [sorted(one) for one in found["measurements"]] == [FIELDS] * 6
    assert [(one["shape"], one["writers"], one["way"]) for one in found["measurements"]] == [
        (shape, 2, way)
        for shape in ("one-branch", "many-branches", "one-table")
        for way in ("group commit", "naive")
    ]
    assert all(one["times_naive"] is None for one in found["measurements"] if one["way"] == "naive")


def test_what_is_not_asked_for_is_not_measured(terminal: Terminal) -> None:
    told = ["--shapes", "one-table,one-branch,one-table", "--no-naive", *QUICK]
    found = terminal.plain("bench", "memory:", *told, "--json").json["measurements"]
    assert [(one["shape"], one["way"]) for one in found] == [
        ("one-table", "group commit"),
        ("one-branch", "group commit"),
    ]
    assert "times naive" not in terminal.plain("bench", "memory:", *told).out


def test_a_new_directory_is_gone_afterwards(terminal: Terminal, tmp_path: Path) -> None:
    terminal.plain("bench", str(tmp_path / "new"), *QUICK)
    assert not (tmp_path / "new").exists()


def test_a_database_is_empty_afterwards_and_its_password_is_told_nobody(
    terminal: Terminal, postgres_url: str
) -> None:
    password = urlsplit(postgres_url).password
    assert password
    ran = terminal.plain("bench", postgres_url, *QUICK)
    assert ran.lines[0].startswith("measured at postgresql://")
    assert password not in ran.out + ran.err
    again = terminal.plain("bench", postgres_url, *QUICK, "--json")
    assert len(again.json["measurements"]) == 6
    assert password not in again.out
    refused = terminal.plain("bench", postgres_url, "--clean", status=4)
    assert "there is no lake" in refused.err
    assert password not in refused.err


def test_a_lake_is_only_measured_in_when_told(forked: Terminal) -> None:
    before = forked.json("branch"), forked.json("fsck")["references"]
    assert "--in-lake" in forked("bench", *QUICK, status=1).err
    ran = forked("bench", "--in-lake", *QUICK)
    assert "penstock sweep" in ran.err
    assert (forked.json("branch"), forked.json("fsck")["references"]) == before
    assert forked.json("fsck")["damages"] == []


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "there is no lake" in Terminal(tmp_path / "nowhere")("bench", "--in-lake", status=4).err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--seconds", "3601"],
        ["--writers", "0"],
        ["--writers", "1,many"],
        ["--writers", ""],
        ["--writers", "1001"],
        ["--shapes", "two-branches"],
        ["--shapes", ""],
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(wrong: list[str], terminal: Terminal) -> None:
    assert terminal.plain("bench", "memory:", *wrong, status=2).err.startswith("penstock: Invalid value for")


def test_what_a_killed_one_left_is_removed(forked: Terminal) -> None:
    with penstock.open(forked.place) as lake:
        head = lake.kernel.references.get_reference("main").head
        lake.kernel.references.create_reference("bench/a/00", Kind.BRANCH, head, note=b"penstock bench")
        lake.branch("bench/mine").create()
    assert forked("bench", "--clean").lines[0].startswith("removed 1 branch of an earlier bench from ")
    assert forked.json("bench", "--clean")["removed"] == 0
    names = [one["name"] for one in forked.json("branch")["items"]]
    assert names == ["bench/mine", "dev", "main"]


def test_interrupted_it_shows_how_far_it_was_and_removes_everything(forked: Terminal) -> None:
    before = forked.json("branch")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock.cli.main", "--lake", str(forked.place), "bench", "--in-lake"]
    process = subprocess.Popen([*command, "--writers", "4"], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"s left" not in shown:
        shown += os.read(ours, 1000)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    os.close(ours)
    assert b"1 of 6: one-branch, 4 writers, group commit; 36 s left" in shown
    assert forked.json("branch") == before
