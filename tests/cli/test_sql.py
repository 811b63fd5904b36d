"""Queries on the command line."""

from __future__ import annotations

import pytest

import penstock
from tests.cli.conftest import Terminal, anywhere


@pytest.fixture
def filled(terminal: Terminal) -> Terminal:
    with penstock.open(terminal.place) as lake:
        lake.table("shop.items").write({"id": [1, 2], "name": ["a,\x1b[1m", None]})
    return terminal


@anywhere
def test_a_query_on_the_command_line(filled: Terminal) -> None:
    assert filled("sql", "from shop.items order by id").lines == ["id  name", "1   a,\\x1b[1m", "2"]
    ran = filled("sql", "select id, name from shop.items order by id", "--format", "csv")
    assert ran.out == 'id,name\n1,"a,\x1b[1m"\n2,\n'
    said = filled.json("sql", "select id, name from shop.items where id = 2", "--at", "main")
    assert said == {"columns": ["id", "name"], "types": ["int64", "string"], "rows": [[2, None]]}
    assert filled("sql", "-", "--format", "json", "-n", "1", stdin="select 5 as n").json["rows"] == [[5]]
    assert "… more with --limit" in filled("sql", "from range(200)").out
    assert len(filled("sql", "from range(200)", "--format", "csv").lines) == 201
    assert "Did you mean 'shop.items'?" in filled("sql", "from shop.item", status=4).err


@anywhere
def test_rows_that_differ_on_the_command_line(filled: Terminal) -> None:
    filled("branch", "create", "dev")
    with penstock.open(filled.place) as lake:
        lake.table("shop.items", "dev").overwrite({"id": [2, 3], "name": ["b\x1b[1m", "c"]})
    ran = filled("diff", "main", "dev", "--rows", "shop.items", "--on", "id")
    assert ran.lines[0] == "shop.items  main → dev   1 added, 1 removed, 1 changed"
    assert ran.lines[2:] == ["+  3   c", "-  1   a,\\x1b[1m", "<  2", ">  2   b\\x1b[1m"]
    said = filled.json("diff", "main", "dev", "--rows", "shop.items", "-n", "1")
    assert (said["added"], said["removed"], said["changed"], len(said["rows"])) == (2, 2, 0, 1)
    assert "… 3 more" in filled("diff", "main", "dev", "--rows", "shop.items", "-n", "1").out
    filled("diff", "main", "dev", "--on", "id", status=2)
    filled("diff", "main", "dev", "--rows", "shop.item", status=4)
