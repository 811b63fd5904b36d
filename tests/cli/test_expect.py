"""What a branch expects, and publishing a branch, on the command line."""

from __future__ import annotations

import penstock
from penstock.formats.rows.arrow_types import pa
from tests.cli.conftest import Terminal, anywhere

POSITIVE = "select * from sales.orders where amount < 0"


def prepare(terminal: Terminal) -> None:
    """A table of orders, and a branch on which one is bad."""
    with penstock.open(terminal.url) as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1], "amount": [1.0]}))
        lake.branch("dev").create()
        lake.table("sales.orders", "dev").append(pa.table({"id": [2], "amount": [-2.0]}))


def test_expectations_are_added_listed_and_removed(terminal: Terminal) -> None:
    prepare(terminal)
    assert terminal("expect").lines == ["main has no expectations"]
    assert terminal("expect", "add", "positive", POSITIVE).lines == [f"positive  {POSITIVE}"]
    told = terminal.json("expect", "list", "--branch", "main")
    assert [(one["name"], one["tables"]) for one in told["items"]] == [("positive", ["sales.orders"])]
    waits = terminal("expect", "add", "later", "select * from sales.later, sales.orders", "--missing-ok")
    assert "it is not checked until there is sales.later" in waits.err
    refused = terminal("merge", "dev", status=3)
    assert "check 'positive' rejected the change to 'main'" in refused.err
    assert "it finds 1 row, such as id = 2, amount = -2.0" in refused.err
    assert "Traceback" not in refused.err
    assert (
        "does not meet the expectation 'positive'"
        in terminal("expect", "add", "positive", POSITIVE, "--branch", "dev", status=3).err
    )
    assert terminal("expect", "remove", "later").lines == [f"positive  {POSITIVE}"]
    assert "has no expectation 'later'" in terminal("expect", "remove", "later", status=1).err
    assert "invalid query" in terminal("expect", "add", "bad", "selec", status=1).err
    assert terminal("expect", "remove", "positive").lines == ["main has no expectations"]
    terminal("merge", "dev")


@anywhere
def test_a_branch_is_published_if_all_holds(terminal: Terminal) -> None:
    prepare(terminal)
    few = "few=select count(*) as n from sales.orders having n > 1"
    refused = terminal("publish", "dev", "--expect", f"positive={POSITIVE}", "--expect", few, status=1).err
    assert "'dev' was not published into 'main' and stays as it is" in refused
    assert "check 'positive': it finds 1 row, such as id = 2, amount = -2.0" in refused
    assert "check 'few': it finds 1 row, such as n = 2" in refused
    lines = terminal("publish", "dev", "--expect", "one=select * from sales.orders where id > 2").lines
    assert lines[0].startswith("1 check holds on dev at ")
    assert lines[1].startswith("published dev into main as ")
    assert terminal("publish", "dev").lines == ["main has everything of dev already"]
    told = terminal.json("publish", "dev", "--into", "main", "--expect", "one=from sales.orders where id > 2")
    assert (told["branch"], told["into"], told["merged"]["commits"], told["checks"]) == (
        "dev",
        "main",
        [],
        ["one"],
    )
    assert "and is dropped" in terminal("publish", "dev", "--drop", "--expect", few, status=1).err
    assert len(terminal("branch").lines) == 1


@anywhere
def test_an_expectation_is_given_with_its_name_once(terminal: Terminal) -> None:
    for wrong in (["select 1"], ["=select 1"], ["name="], ["a=select 1", "a=select 2"]):
        given = [text for one in wrong for text in ("--expect", one)]
        assert terminal("publish", "dev", *given, status=2).err
