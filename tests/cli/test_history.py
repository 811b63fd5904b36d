"""The log, commits, tables at commits, and differences from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.model.nessie import IcebergTable
from tests.cli.conftest import Terminal, anywhere

COMMIT_FIELDS = {
    "id", "parents", "time", "author", "authors", "committer", "signed_off_by", "message", "properties",
    "generation", "key", "depth", "author_time", "is_merge",
}  # fmt: skip


def blurred(lines: list[str]) -> list[str]:
    """The lines with every commit id replaced, which no two runs have in common."""
    return [re.sub(r"\b[0-9a-f]{8}\b", "IDIDIDID", line) for line in lines]


@anywhere
def test_the_log_draws_what_was_merged_and_tells_what_changed(forked: Terminal) -> None:
    forked("merge", "dev", "--take", "dev=sales.orders", "--author", "ada")
    assert blurred(forked("log").lines) == [
        "●─╮  IDIDIDID  main  merge dev into main  ada  just now",
        "│ ●  IDIDIDID  dev   add returns          ada  just now",
        "│ │            + sales.returns",
        "│ ●  IDIDIDID        mend orders          ada  just now",
        "│ │            ~ sales.orders",
        "● │  IDIDIDID        hourly load          etl  just now",
        "│ │            ~ sales.orders",
        "●─╯  IDIDIDID        first load           etl  just now",
        "               + sales.orders",
    ]


@anywhere
def test_the_branchs_own_line_tells_what_a_merge_brought(forked: Terminal) -> None:
    forked("merge", "dev", "--take", "dev=sales.orders", "--author", "ada")
    assert blurred(forked("log", "--first-parent").lines)[:3] == [
        "●  IDIDIDID  main  merge dev into main  ada  just now",
        "│            ~ sales.orders   + sales.returns",
        "●  IDIDIDID        hourly load          etl  just now",
    ]
    assert forked("log", "--all").out == forked("log").out


@anywhere
def test_a_page_that_ends_at_a_merge_tells_what_it_brought(forked: Terminal) -> None:
    forked("merge", "dev", "--take", "dev=sales.orders", "--author", "ada")
    lines = blurred(forked("log", "-n", "1").lines)
    assert lines == [
        "●─╮  IDIDIDID  main  merge dev into main  ada  just now",
        "│ │            ~ sales.orders   + sales.returns",
        "… more with --after IDIDIDID",
    ]


@anywhere
def test_a_log_in_json_has_whole_ids_and_contents(forked: Terminal) -> None:
    found = forked.json("log", "main")
    assert sorted(found) == ["items", "next"]
    newest, oldest = found["items"]
    assert set(newest) == COMMIT_FIELDS | {"references", "changes"}
    assert newest["parents"] == [oldest["id"]]
    assert newest["references"] == ["main"]
    assert newest["author"] == "etl"
    (change,) = newest["changes"]
    assert change["key"] == "sales.orders"
    assert change["before"]["metadata_location"] == "s3://b/orders-1.json"
    assert change["after"]["metadata_location"] == "s3://b/orders-2.json"
    assert change["after"]["type"] == "ICEBERG_TABLE"
    assert [(one["key"], one["before"]) for one in oldest["changes"]] == [
        ("sales", None),
        ("sales.orders", None),
    ]


@anywhere
def test_pages_of_a_log_follow_each_other(forked: Terminal) -> None:
    whole = [one["id"] for one in forked.json("log", "dev")["items"]]
    pages, after = [], None
    while True:
        page = forked.json("log", "dev", "-n", "1", *(["--after", after] if after else []))
        pages += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert pages == whole
    assert forked.json("log", "dev", "--after", whole[0][:8])["items"][0]["id"] == whole[1]


@anywhere
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--table", "sales.returns"], ["add returns"]),
        (["--table", "sales"], ["add returns", "mend orders", "first load"]),
        (["--author", "etl"], ["first load"]),
        (["--grep", "ORDERS"], ["mend orders"]),
        (["--since", "2000-01-01", "--until", "2001-01-01"], []),
        (["--since", "1h"], ["add returns", "mend orders", "first load"]),
        (["--until", "1h"], []),
        (["--author", "ada", "--grep", "returns"], ["add returns"]),
    ],
)
def test_filters_of_the_log(arguments: list[str], messages: list[str], forked: Terminal) -> None:
    assert [one["message"] for one in forked.json("log", "dev", *arguments)["items"]] == messages


@anywhere
def test_what_a_filter_chose_has_dots_but_no_lines(forked: Terminal) -> None:
    lines = blurred(forked("log", "dev", "--table", "sales.orders").lines)
    assert lines == [
        "●  IDIDIDID  mend orders  ada  just now",
        "             ~ sales.orders",
        "●  IDIDIDID  first load   etl  just now",
        "             + sales.orders",
    ]
    assert forked("log", "--grep", "nothing of the kind").lines == ["no commits match"]


@anywhere
def test_an_empty_lake_has_an_empty_log(terminal: Terminal) -> None:
    assert terminal("log").lines == ["no commits yet"]
    assert terminal.json("log") == {"items": [], "next": None}
    assert "has no commits yet" in terminal("show", status=1).err


@anywhere
def test_a_commit_that_changed_only_namespaces_tells_these(terminal: Terminal) -> None:
    terminal("namespace", "create", "a.b", "-m", "places")
    assert terminal("log").lines[1].strip() == "+ a   + a.b"


@anywhere
def test_messages_cannot_command_the_terminal(terminal: Terminal) -> None:
    terminal.put("t", "1", "-m", "clear \x1b[2J screen\nsecond line", "--author", "e\x1bvil")
    assert "\x1b" not in terminal("log").out + terminal("show").out
    assert "clear \\x1b[2J screen" in terminal("log").out
    assert "second line" not in terminal("log").out
    assert "    second line" in terminal("show").lines
    assert terminal.json("show")["message"] == "clear \x1b[2J screen\nsecond line"


@anywhere
def test_show_tells_all_about_a_commit(forked: Terminal) -> None:
    forked("tag", "create", "v1")
    lines = forked("show").lines
    commit = forked.json("show")
    assert lines[0] == f"commit {commit['id']}"
    assert lines[1:3] == ["  at       main, v1", "  author   etl"]
    assert lines[3] == f"  time     {commit['time']} (just now)"
    assert lines[4] == f"  parents  {commit['parents'][0][:8]}"
    assert lines[6:] == [
        "",
        "    hourly load",
        "",
        "  ~ sales.orders  metadata_location …/orders-1.json → …/orders-2.json",
    ]


@anywhere
def test_the_time_that_show_tells_finds_the_commit_again(forked: Terminal) -> None:
    commit = forked.json("show", "main~1")
    assert forked.json("show", f"main*{commit['time']}")["id"] == commit["id"]


@anywhere
def test_show_tells_what_a_table_is_at_a_commit(forked: Terminal) -> None:
    before = forked.json("show", "main~1", "sales.orders")
    after = forked.json("show", "main", "sales.orders")
    assert sorted(before) == ["content", "key"]
    assert before["content"]["metadata_location"] == "s3://b/orders-1.json"
    assert after["content"]["metadata_location"] == "s3://b/orders-2.json"
    assert before["content"]["id"] == after["content"]["id"]
    assert forked.json("show", "--table", "sales.orders") == after
    assert forked("show", "main", "sales.orders").lines == [
        f"sales.orders at main ({forked.json('show')['id'][:8]})",
        "  type               ICEBERG_TABLE",
        f"  id                 {after['content']['id']}",
        "  metadata_location  s3://b/orders-2.json",
    ]


def test_show_refuses_what_is_not_there(forked: Terminal) -> None:
    assert "there is no 'sales.nope' at 'main'" in forked("show", "main", "sales.nope", status=4).err
    assert forked("show", "0" * 64, status=4).err.startswith("penstock: there is no commit 000")
    assert "penstock show main sales.orders" in forked("show", "sales.orders", status=4).err
    assert forked("show", "main", "a", "--table", "b", status=2).err.startswith("penstock: two tables")
    assert "not '~N'" in forked("show", "main~x", status=1).err


@anywhere
def test_show_on_an_empty_lake_finds_no_table(terminal: Terminal) -> None:
    assert "there is no 'sales.orders' at 'main'" in terminal("show", "main", "sales.orders", status=4).err


@anywhere
def test_diff_tells_what_is_added_removed_and_changed(forked: Terminal) -> None:
    assert forked("diff", "main", "dev").lines == [
        "main → dev   2 differences",
        "  ~ sales.orders   metadata_location …/orders-2.json → …/orders-dev.json",
        "  + sales.returns  ICEBERG_TABLE s3://b/returns-1.json",
    ]
    found = forked.json("diff", "dev", "main", "--prefix", "sales.returns")
    assert [(one["key"], one["after"]) for one in found["items"]] == [("sales.returns", None)]
    assert forked("diff", "main", "main").lines == ["main → main   no difference"]


def test_a_log_ends_at_the_history_horizon(terminal: Terminal) -> None:
    for version in range(5):
        terminal.put("t", str(version), "-m", f"load {version}")
    terminal("horizon", "--max-commits", "2")
    terminal("sweep", "--nobody-writes", "--grace-s", "0", "--idempotency-days", "0")
    found = terminal.json("log")
    assert [one["message"] for one in found["items"]] == ["load 4", "load 3"]
    assert found["items"][-1]["changes"] is None
    assert len(terminal("log").lines) == 3
    assert "What it changed is no longer known" in terminal("show", "main~1").out
    assert "older than the history" in terminal("show", "main~2", status=4).err


def test_many_names_at_one_commit_are_shortened(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.branch().put("t", IcebergTable(metadata_location="s3://x"))
        for number in range(6):
            lake.tag(f"t{number}").create()
    line = Terminal(tmp_path / "lake")("log").lines[0]
    assert "main, t0, t1 +4" in line


def test_commits_that_only_note_reads_are_shown_if_they_are_wanted(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.branch().put("a", IcebergTable(metadata_location="s3://b/1"))
        lake.tag("v1").create()
        with lake.transaction(message="nightly", isolation="serializable") as tx:
            assert tx.table("a").content is not None
            tx.writes.put("b", IcebergTable(metadata_location="s3://b/2"))
    terminal = Terminal(tmp_path / "lake")
    assert not any("read a" in line for line in terminal("log").lines)
    assert any("read a" in line for line in terminal("log", "--reads").lines)
    assert any(one["message"] == "read a" for one in terminal.json("log")["items"])
    drawn = [line for line in terminal("log").lines if "●" in line]
    assert len(drawn) == 3
