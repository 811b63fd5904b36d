"""What somebody at a terminal is shown of a check, and of a transaction, that others have named."""

from __future__ import annotations

from pathlib import Path

import penstock
from tests.audits.lakes import orders
from tests.cli.conftest import Terminal


def test_no_error_has_a_terminal_obey_what_somebody_else_wrote(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.transaction(id="c" * 32).abort("changed my\nmind \x1b[31m")
        lake.create_table("sales.orders", data=orders(1))
    terminal = Terminal(tmp_path / "lake")
    told = terminal("tx", "commit", "cccccccc", status=3).err
    assert "\x1b" not in told
    assert "mind \\x1b[31m" in told


def test_it_is_told_that_a_query_names_a_table_by_another_case(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.create_table("sales.orders", data=orders(1))
    add = ("expect", "add", "positive", "select * from Sales.Orders where id < 0")
    refused = Terminal(tmp_path / "lake")(*add, status=4).err
    assert "there is no 'Sales.Orders' on 'main'" in refused
    assert "--missing-ok" in refused
    added = Terminal(tmp_path / "lake")(*add, "--missing-ok")
    assert "it is not checked until there is Sales.Orders, by exactly that name" in added.err
