"""The demonstration with Spark: its tables land at one instant, and others read them."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.conftest import Terminal


def test_the_demo_builds_tables_with_spark_and_others_read_them(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "demo")
    told = terminal.plain("demo", str(terminal.place))
    before, _, after = told.out.partition("One merge, and all of it is on main")
    nobody = before.partition("A reader of main sees nothing of it")[2].partition("$ penstock diff")[0]
    assert "sales.customers" in nobody
    assert "sales.orders" not in nobody
    assert "●─╮" in after
    assert [line for line in told.lines if line.startswith("sales.") and ": version " in line] == [
        "sales.orders: version 0, 19,979 rows",
        "sales.customers: version 0, 500 rows",
        "sales.by_day: version 0, 7 rows",
    ]
    commands = [line.strip() for line in told.lines if line.startswith("  penstock --lake")]
    assert len(commands) == 3
    for command in commands:
        assert terminal.plain(*shlex.split(command)[1:]).err == ""
    assert terminal.json("fsck")["sound"] is True
