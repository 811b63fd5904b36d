"""Transactions on the command line."""

from __future__ import annotations

from uuid import uuid4

import penstock
from penstock.kernel.transactions import Transactions
from penstock.lake.lake import Lake
from penstock.lake.transactions.transaction import Transaction
from penstock.model.nessie import IcebergTable
from tests.cli.conftest import Terminal, anywhere


def begun(lake: Lake, **how: object) -> Transaction:
    tx = lake.transaction(message="nightly", **how)  # type: ignore[arg-type]
    tx.writes.put("a", IcebergTable(metadata_location="s3://b/1"))
    return tx


@anywhere
def test_open_ones_are_listed_and_shown(terminal: Terminal) -> None:
    assert terminal("tx").lines == ["no transactions"]
    with penstock.open(terminal.url) as lake:
        tx = begun(lake)
        (line,) = terminal("tx").lines
        assert line.split()[:3] == [tx.id[:8], "open", "main"]
        assert "nightly" in line
        (told,) = terminal.json("tx", "list", "--target", "main")["items"]
        assert (told["id"], told["state"], told["branch"]) == (tx.id, "open", f"tx/{tx.id}")
        assert terminal("tx", "list", "--target", "dev").lines == ["no transactions"]
        shown = terminal("tx", "show", tx.id[:8]).out
        assert tx.id in shown
        assert "idle until" in shown
        assert terminal("branch").lines == [line for line in terminal("branch").lines if "tx/" not in line]


@anywhere
def test_one_is_committed_by_hand_as_often_as_wanted(terminal: Terminal) -> None:
    with penstock.open(terminal.url) as lake:
        tx = begun(lake)
        first = terminal.json("tx", "commit", tx.branch, "-m", "by hand")
        assert (first["info"]["state"], first["commit"]["id"]) == ("committed", lake.resolve())
        assert lake.show().message == "by hand"
        assert terminal.json("tx", "commit", tx.id[:8]) == first
        ran = terminal("tx", "abort", tx.id[:8], status=3)
        assert "cannot be aborted" in ran.err


@anywhere
def test_an_aborted_one_never_lands(terminal: Terminal) -> None:
    with penstock.open(terminal.url) as lake:
        tx = begun(lake)
        (told,) = terminal.json("tx", "abort", tx.id, "--why", "wrong input")["items"]
        assert (told["state"], told["why"]) == ("aborted", "wrong input")
        assert terminal("tx").lines == ["no transactions"]
        assert "wrong input" in terminal("tx", "list", "--all").out
        assert "wrong input" in terminal("tx", "commit", tx.id, status=3).err
        assert not lake.table("a").exists


def test_late_ones_are_aborted_together(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        late = uuid4().hex
        begun(lake)
        Transactions(lake.kernel).begin_transaction(late, "main", lease_us=1)
    assert "late" in terminal("tx").out
    assert [one["id"] for one in terminal.json("tx", "abort", "--late")["items"]] == [late]


def test_what_is_no_transaction_is_told(terminal: Terminal) -> None:
    assert "there is no transaction" in terminal("tx", "show", "12345678", status=4).err
    assert "too short" in terminal("tx", "show", "1234", status=2).err
    assert "give the ID" in terminal("tx", "abort", status=2).err


@anywhere
def test_a_conflict_says_that_it_is_aborted_for_good(terminal: Terminal) -> None:
    with penstock.open(terminal.url) as lake:
        tx = begun(lake)
        lake.branch().put("a", IcebergTable(metadata_location="s3://b/2"))
        told = terminal("tx", "commit", tx.id[:8], status=3).err
        assert "'a' was created " in told
        assert f"This aborted transaction {tx.id[:8]} for good" in told
        assert "run again what wrote in it" in told
        assert "for good" not in terminal("tx", "commit", tx.id[:8], status=3).err  # it was before


def test_both_lists_have_the_newest_first(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        for digit in "5f0":
            lake.transaction(id=digit * 32)
        for listed in (("tx",), ("tx", "list"), ("tx", "list", "--all")):
            assert [line[0] for line in terminal(*listed).lines] == ["0", "f", "5"]


def test_properties_are_told_from_what_the_transaction_says_itself(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        tx = lake.transaction(properties={"state": "committed", "run": "7"})
        lines = [line.split() for line in terminal("tx", "show", tx.id).lines]
        assert [line[1] for line in lines if line[0] == "state"] == ["open"]
        assert ["property", "run", "=", "7"] in lines
        assert ["property", "state", "=", "committed"] in lines
