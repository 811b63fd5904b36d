"""Namespaces from the command line."""

from __future__ import annotations

from tests.cli.conftest import Terminal, anywhere


@anywhere
def test_namespaces_are_created_listed_and_deleted(terminal: Terminal) -> None:
    made = terminal.json("namespace", "create", "a.b", "--property", "owner=ada", "--property", "x=y=z")
    assert [(one["key"], one["after"]["type"]) for one in made["changes"]] == [
        ("a", "NAMESPACE"),
        ("a.b", "NAMESPACE"),
    ]
    assert made["message"] == "create namespace a.b"
    assert terminal("namespace").lines == ["a", "a.b  owner=ada, x=y=z"]
    assert terminal.json("namespace")["items"][1]["content"]["properties"] == {"owner": "ada", "x": "y=z"}
    gone = terminal.json("namespace", "delete", "a.b", "-m", "empty")
    assert (gone["message"], [one["key"] for one in gone["changes"]]) == ("empty", ["a.b"])
    assert terminal("namespace", "list", "a", "--ref", "main~1").lines == ["a", "a.b  owner=ada, x=y=z"]
    assert terminal("namespace", "list", "b").lines == ["no namespaces below b"]


@anywhere
def test_a_namespace_that_exists_is_not_created_again(terminal: Terminal) -> None:
    terminal("namespace", "create", "a", "--property", "owner=ada", "--key", "k")
    head = terminal.json("show")["id"]
    assert "'a'" in terminal("namespace", "create", "a", status=3).err
    assert terminal.json("namespace", "create", "a", "--property", "owner=ada", "--key", "k")["id"] == head
    assert terminal.json("show")["id"] == head


@anywhere
def test_only_empty_namespaces_are_deleted(forked: Terminal) -> None:
    refused = forked("namespace", "delete", "sales", status=3)
    assert "not empty" in refused.err
    assert "penstock tables sales" in refused.err


@anywhere
def test_a_table_is_no_namespace(forked: Terminal) -> None:
    assert "use 'penstock delete sales.orders'" in forked("namespace", "delete", "sales.orders", status=1).err
    assert forked("namespace", "delete", "nope", status=4).status == 4
    assert "--property" in forked("namespace", "create", "x", "--property", "owner", status=2).err
