"""Branches, tags and reflogs from the command line."""

from __future__ import annotations

import re

from penstock.model.clock import now_us
from penstock.model.commits import EMPTY_COMMIT_ID
from tests.cli.conftest import Terminal, anywhere


@anywhere
def test_branch_alone_lists_branches_with_the_default_one_marked(forked: Terminal) -> None:
    lines = forked("branch").lines
    assert [re.sub(r"[0-9a-f]{8}", "ID", line) for line in lines] == [
        "  dev   ID  just now  add returns",
        "* main  ID  just now  hourly load",
    ]


@anywhere
def test_a_listed_branch_has_its_whole_head(forked: Terminal) -> None:
    found = forked.json("branch")
    assert found["next"] is None
    dev, main = found["items"]
    assert (dev["name"], dev["kind"]) == ("dev", "branch")
    assert (main["name"], main["kind"]) == ("main", "branch")
    assert main["head"] == forked.json("log", "-n", "1")["items"][0]["id"]
    assert main["created_us"] < dev["created_us"] < now_us()


@anywhere
def test_branches_are_listed_by_prefix_and_page(terminal: Terminal) -> None:
    for name in ("x/a", "x/b", "x/c", "y"):
        terminal("branch", "create", name)
    first = terminal.json("branch", "list", "x/", "-n", "2")
    assert [one["name"] for one in first["items"]] == ["x/a", "x/b"]
    assert first["next"] == "x/b"
    second = terminal.json("branch", "list", "x/", "-n", "2", "--after", first["next"])
    assert [one["name"] for one in second["items"]] == ["x/c"]
    assert second["next"] is None
    assert terminal("branch", "list", "x/", "-n", "2").lines[-1] == "… more with --after x/b"
    assert terminal("branch", "list", "nope").lines == ["no branches"]


@anywhere
def test_an_empty_branch_says_so(terminal: Terminal) -> None:
    assert terminal("branch").lines == ["* main  empty"]
    assert terminal.json("branch")["items"][0]["head"] == EMPTY_COMMIT_ID
    assert terminal("branch", "create", "dev").lines == ["created branch dev empty"]


@anywhere
def test_a_branch_is_created_assigned_and_deleted(forked: Terminal) -> None:
    created = forked.json("branch", "create", "old", "--at", "main~1")
    assert created["head"] == forked.json("show", "main~1")["id"]
    assigned = forked.json("branch", "assign", "old", "--to", "dev", "--if-head", "main~1")
    assert assigned["head"] == forked.json("show", "dev")["id"]
    refused = forked("branch", "assign", "old", "--to", "main", "--if-head", "main~1", status=3)
    assert "'old' is at" in refused.err
    assert "penstock reflog old" in refused.err
    deleted = forked.json("branch", "delete", "old")
    assert (deleted["name"], deleted["head"]) == ("old", assigned["head"])
    assert forked("show", "old", status=4).err.startswith("penstock: there is no branch or tag 'old'")


@anywhere
def test_creating_twice_under_one_key_is_done_once(forked: Terminal) -> None:
    once = forked.json("branch", "create", "job", "--key", "k1")
    assert forked.json("branch", "create", "job", "--key", "k1") == once
    assert "already" in forked("branch", "create", "job", "--key", "k2", status=3).err


@anywhere
def test_the_default_branch_cannot_be_deleted(terminal: Terminal) -> None:
    assert "cannot be deleted" in terminal("branch", "delete", "main", status=1).err
    assert terminal("branch").lines == ["* main  empty"]


@anywhere
def test_tags_have_the_same_commands(forked: Terminal) -> None:
    assert forked("tag").lines == ["no tags"]
    made = forked.json("tag", "create", "v1", "--at", "main~1")
    assert (made["kind"], made["name"]) == ("tag", "v1")
    assert re.fullmatch(r"v1  [0-9a-f]{8}  just now  first load", forked("tag").lines[0])
    assert forked.json("tag", "list", "v")["items"] == [made]
    assert forked.json("tag", "assign", "v1", "--to", "main")["head"] != made["head"]
    assert forked("tag", "delete", "v1").lines == [
        "deleted tag v1",
        "  What happened to it can still be read: penstock reflog v1",
    ]


@anywhere
def test_a_tag_is_no_branch(forked: Terminal) -> None:
    forked("tag", "create", "v1")
    assert "is a tag, not a branch" in forked("branch", "delete", "v1", status=1).err
    assert "'v1' is a tag" in forked("delete", "sales.orders", "--branch", "v1", status=1).err


@anywhere
def test_the_reflog_tells_every_move_also_after_the_end(forked: Terminal) -> None:
    forked("branch", "assign", "dev", "--to", "main~1")
    forked("branch", "delete", "dev")
    events = forked.json("reflog", "dev")["items"]
    assert [one["event"] for one in events] == ["delete", "assign", "commit", "commit", "create"]
    assert [one["position"] for one in events] == [5, 4, 3, 2, 1]
    assert all(len(one["before"]) == len(one["after"]) == 64 for one in events)
    assert forked.json("reflog", "--deleted") == {"items": ["dev"], "next": None}
    assert forked("reflog", "--deleted").lines == ["dev"]
    lines = forked("reflog", "dev", "-n", "2").lines
    assert lines[0].split()[:4] == ["#5", "delete", "was", "at"]
    assert lines[1].split()[1] == "assign"
    assert len(lines) == 2


@anywhere
def test_the_reflog_of_the_default_branch_needs_no_name(forked: Terminal) -> None:
    found = forked.json("reflog")
    assert {one["name"] for one in found["items"]} == {"main"}
    assert found["items"][-1]["after"] == EMPTY_COMMIT_ID
    assert "create" in forked("reflog").lines[-1]
    assert "empty → " in forked("reflog").out
    assert forked("reflog", "main", "--deleted", status=2).err.startswith(
        "penstock: --deleted cannot be used with a NAME"
    )
    assert forked("reflog", "nope", status=4).status == 4
    assert forked("reflog", "--deleted").lines == ["no deleted branches or tags"]


def test_names_that_cannot_be_are_refused(terminal: Terminal) -> None:
    for name in ("12345678", "a..b", "-", "HEAD", "ü", "a b"):
        assert terminal("branch", "create", "--", name, status=1).err.startswith("penstock: ")
    assert terminal("branch").lines == ["* main  empty"]
