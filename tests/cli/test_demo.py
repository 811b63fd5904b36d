"""The demonstration works, and what it says to try works as printed."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.formats.delta.cli.demo import append_to_both, create_tables
from tests.cli.conftest import Terminal


def test_the_demo_tells_its_story_and_leaves_a_sound_lake(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "a demo")
    told = terminal.plain("demo", "--no-spark", str(terminal.place))
    assert told.err == ""
    for part in ("FILES_TABLE", "conflict", "To take one side", "merged as", "●─╮", "reverted", "catalogue"):
        assert part in told.out
    for part in ("shop.payments  v0 → v1  1 file added  clean", "shop.payments: version 1, 3 rows"):
        assert part in told.out
    commands = [line.strip() for line in told.lines if line.startswith("  penstock --lake")]
    assert len(commands) == 3
    for command in commands:
        program, *arguments = shlex.split(command)
        assert (program, terminal.plain(*arguments).err) == ("penstock", "")
    assert terminal.json("fsck")["damages"] == []


def test_every_command_that_the_demo_shows_is_one(tmp_path: Path) -> None:
    told = Terminal(tmp_path).plain("demo", "--no-spark", str(tmp_path / "demo"))
    shown = [shlex.split(line)[2:] for line in told.lines if line.startswith("$ penstock ")]
    replayed = Terminal(tmp_path / "replayed")
    # What is told in Python comes first here.
    replayed.put("sales.orders", "1")
    with penstock.open(replayed.place) as lake:
        create_tables(lake, pa)
        append_to_both(lake, pa)
    for command in shown:
        replayed(*command, status=3 if "--dry-run" in command else 0)
    assert len(shown) >= 10


def test_the_demo_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "is not empty" in Terminal(tmp_path).plain("demo", "--no-spark", str(tmp_path), status=1).err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert Terminal(tmp_path).plain("demo", "--no-spark", str(tmp_path / "mine"), status=2).status == 2


def test_without_a_directory_it_names_the_one_that_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = Terminal(tmp_path).plain("demo", "--no-spark")
    (place,) = tmp_path.iterdir()
    assert f"The lake is in {place}. Three things to try on it:" in told.lines
    assert (place / "penstock.db").exists()


def test_without_the_delta_extra_the_demo_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    terminal = Terminal(tmp_path / "demo")
    told = terminal.plain("demo", "--no-spark", str(terminal.place))
    assert "pip install 'penstock[delta]'" in told.out
    assert "delta cat" not in told.out
    assert terminal.json("fsck")["damages"] == []


def test_the_demo_in_json_only_says_where_the_lake_is(tmp_path: Path) -> None:
    found = Terminal(tmp_path).plain("demo", "--no-spark", str(tmp_path / "demo"), "--json").json
    assert sorted(found) == ["commands", "lake"]
    assert found["lake"] == str(tmp_path / "demo")
    assert len(found["commands"]) == 3
