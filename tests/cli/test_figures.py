"""Figures of the lake from the command line."""

from __future__ import annotations

import penstock
from penstock.formats.rows.arrow_types import pa
from tests.cli.conftest import Terminal, anywhere


@anywhere
def test_figures_are_shown_and_told_as_json(terminal: Terminal) -> None:
    terminal.put("sales.other", "1")
    with penstock.open(terminal.place) as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
        lake.table("sales.orders").append(pa.table({"id": [3]}))
        lake.finish_background()
    told = terminal.json("figures", "--table", "sales.orders")
    assert [count["commits"] for count in told["commits"]] == [3]
    assert told["publishing"] == []
    assert told["table"]["files"] == 2
    assert [size["version"] for size in told["table"]["growth"]] == [0, 1]
    assert "table" not in terminal.json("figures") or terminal.json("figures")["table"] is None
    lines = terminal("figures", "--table", "sales.orders").lines
    assert lines[:4] == [
        "Commits a day",
        f"  {told['commits'][0]['day']}  3",
        "Publishing",
        "  all of 1 tables are up to date",
    ]
    assert lines[4] == "sales.orders"
    assert lines[5] == f"  2 files, {told['table']['size_bytes']:,} bytes"
    assert lines[6].split() == ["below", "65,536", "bytes", "2", "files"]
    assert len(lines) == 9


def test_an_empty_lake_has_no_figures(terminal: Terminal) -> None:
    assert terminal("figures").lines[:2] == ["Commits a day", "  none yet"]
    assert "nosuch" in terminal("figures", "--table", "nosuch", status=4).err
