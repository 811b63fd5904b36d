"""Listing tables, putting and deleting raw contents from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal, anywhere


@anywhere
def test_put_and_delete_are_commits(terminal: Terminal) -> None:
    put = terminal("put", "sales.orders", "--type", "iceberg", "metadata_location=s3://b/1", "-m", "load")
    commit = terminal.json("show")
    assert put.lines == [
        f"committed {commit['id'][:8]} to main",
        "  + sales         NAMESPACE",
        "  + sales.orders  ICEBERG_TABLE s3://b/1",
    ]
    assert commit["message"] == "load"
    gone = terminal.json("delete", "sales.orders")
    assert gone["message"] == "drop sales.orders"
    assert [(one["key"], one["after"]) for one in gone["changes"]] == [("sales.orders", None)]
    assert gone["references"] == ["main"]


@anywhere
def test_put_replaces_and_keeps_the_id(terminal: Terminal) -> None:
    terminal.put("t", "1")
    first = terminal.json("show", "main", "t")["content"]
    terminal.put("t", "2")
    second = terminal.json("show", "main", "t")["content"]
    assert first["id"] == second["id"]
    assert second["metadata_location"] == "s3://b/2.json"


@anywhere
def test_a_content_can_be_given_as_json_in_three_ways(terminal: Terminal, tmp_path: Path) -> None:
    content = json.dumps({"type": "UDF", "sql_text": "x + 1"})
    file = tmp_path / "content.json"
    file.write_text(content)
    terminal("put", "a", "--content", content)
    terminal("put", "b", "--content", f"@{file}")
    terminal("put", "c", "--content", "-", stdin=content)
    found = terminal.json("tables")["items"]
    assert [(one["key"], one["content"]["sql_text"]) for one in found] == [
        ("a", "x + 1"),
        ("b", "x + 1"),
        ("c", "x + 1"),
    ]


@anywhere
def test_what_show_prints_can_be_put_again(terminal: Terminal) -> None:
    terminal.put("t", "1")
    content = terminal.json("show", "main", "t")["content"]
    terminal.put("t", "2")
    terminal("put", "t", "--content", json.dumps(content))
    assert terminal.json("show", "main", "t")["content"] == content


@anywhere
def test_a_type_that_nobody_knows_is_kept(terminal: Terminal) -> None:
    terminal("put", "t", "--type", "HUDI", "payload=aGVsbG8=")
    assert terminal.json("show", "main", "t")["content"]["payload"] == "aGVsbG8="
    assert terminal("tables").lines == ["t  HUDI"]


@anywhere
@pytest.mark.parametrize("command", ["put", "delete"])
def test_a_base_that_is_out_of_date_is_a_conflict(command: str, forked: Terminal) -> None:
    content = ["--type", "iceberg", "metadata_location=s3://b/x"] if command == "put" else []
    before = forked.json("show")["id"]
    refused = forked(command, "sales.orders", *content, "--base", "main~1", status=3)
    assert "'sales.orders' changed meanwhile" in refused.err
    assert "penstock log --table sales.orders" in refused.err
    error = forked(command, "sales.orders", *content, "--base", "main~1", "--json", status=3).error
    assert error["code"] == "commit_conflict"
    (conflict,) = error["details"]["conflicts"]
    assert sorted(conflict) == ["expected", "found", "found_version", "key", "kind", "path", "why"]
    assert (conflict["kind"], conflict["key"]) == ("VALUE_DIFFERS", "sales.orders")
    assert forked.json("show")["id"] == before
    forked(command, "sales.orders", *content, "--base", "main")


@anywhere
def test_a_put_goes_to_the_branch_it_is_meant_for(forked: Terminal) -> None:
    forked.put("on_dev", "1", "--branch", "dev")
    assert forked.json("tables", "on_dev", "--ref", "dev")["items"] != []
    assert forked.json("tables", "on_dev", "--at", "dev")["items"] != []
    assert forked.json("tables", "on_dev")["items"] == []


@anywhere
def test_the_same_put_under_one_key_is_done_once(terminal: Terminal) -> None:
    first = terminal.put("t", "1", "--key", "load-1")
    terminal.put("t", "2")
    assert terminal.put("t", "1", "--idempotency-key", "load-1") == first
    other = terminal("put", "t", "--type", "lance", "--key", "load-1", "--json", status=1).error
    assert other["code"] == "idempotency_key_reused"


@anywhere
def test_tables_are_listed_in_order_without_namespaces(forked: Terminal) -> None:
    forked("put", "search.vectors", "--type", "lance")
    assert forked("tables").lines == [
        "sales.orders    ICEBERG_TABLE  s3://b/orders-2.json",
        "search.vectors  LANCE_TABLE",
    ]
    found = forked.json("tables", "sales", "--ref", "dev")
    assert sorted(found) == ["items", "next"]
    assert [one["key"] for one in found["items"]] == ["sales.orders", "sales.returns"]
    assert forked("tables", "nope").lines == ["no tables below nope"]


@anywhere
def test_tables_are_listed_by_page(terminal: Terminal) -> None:
    for name in ("a", "b", 'c."2026.11"'):
        terminal("put", name, "--type", "lance")
    first = terminal.json("tables", "-n", "2")
    assert [one["key"] for one in first["items"]] == ["a", "b"]
    second = terminal.json("tables", "-n", "2", "--after", first["next"])
    assert [one["key"] for one in second["items"]] == ['c."2026.11"']
    assert second["next"] is None
    assert terminal("tables", "-n", "1").lines[-1] == "… more with --after a"


@anywhere
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["t"], 2, "either --type with fields, or --content"),
        (["t", "--type", "lance", "--content", "{}"], 2, "either --type with fields, or --content"),
        (["t", "--content", "{}", "a=b"], 2, "--content cannot be used with fields, such as 'a=b'"),
        (["t", "--content", "{}"], 1, 'has no "type"'),
        (["t", "--content", ""], 1, "not JSON"),
        (["t", "--content", "@nowhere/at.all"], 1, "nowhere/at.all: No such file"),
        (["a..b", "--type", "lance"], 1, "empty element"),
        (["", "--type", "lance"], 1, "empty element"),
        (["a\x07b", "--type", "lance"], 1, "control character"),
        (['"a', "--type", "lance"], 1, "not closed"),
        ([".".join("a" * 21), "--type", "lance"], 1, "at most 20 elements"),
        (["a" * 501, "--type", "lance"], 1, "at most 500 characters"),
        (["t", "--type", "lance", "--branch", "nope"], 4, "there is no branch or tag 'nope'"),
        (["t", "--type", "lance", "--base", "nope"], 4, "no branch or tag 'nope'"),
        (["t", "--type", "lance", "location=/etc"], 1, "outside the lake's roots"),
        (["t", "--type", "lance", "-m", "x" * 20_000], 1, "at most 16384 characters"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    arguments: list[str], status: int, message: str, terminal: Terminal
) -> None:
    refused = terminal("put", *arguments, status=status)
    assert message in refused.err
    assert refused.out == ""
    assert terminal("log").lines == ["no commits yet"]


@anywhere
def test_deleting_what_is_not_there_is_refused(terminal: Terminal) -> None:
    assert "'nope' does not exist" in terminal("delete", "nope", status=3).err


def test_content_that_is_too_large_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    file.write_text(json.dumps({"type": "UDF", "sql_text": "x" * (17 * 1024 * 1024)}))
    assert "at most 16777216 bytes" in terminal("put", "t", "--content", f"@{file}", status=1).err
    file.write_bytes(b" " * (65 * 1024 * 1024))
    assert "at most 67108864 bytes" in terminal("put", "t", "--content", f"@{file}", status=1).err
    assert terminal("log").lines == ["no commits yet"]


@anywhere
def test_bytes_that_are_no_text_are_refused(terminal: Terminal) -> None:
    assert "not JSON" in terminal("put", "t", "--content", "-", stdin=b"\xff\xfe", status=1).err
