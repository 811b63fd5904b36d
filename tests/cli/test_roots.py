"""The places where tables may be, from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from tests.cli.conftest import WHERE, Terminal


def test_roots_are_added_listed_and_removed(terminal: Terminal) -> None:
    warehouse = str(terminal.place / "warehouse")
    assert terminal("root").lines == [f"{warehouse}  warehouse"]
    added = terminal("root", "add", "s3://bucket/sales/", "/data/exports")
    assert [line.split()[0] for line in added.lines] == [warehouse, "s3://bucket/sales", "/data/exports"]
    found = terminal.json("root", "list")
    assert (found["warehouse"], found["moved_roots"]) == (warehouse, [])
    assert found["roots"] == [warehouse, "s3://bucket/sales", "/data/exports"]
    assert terminal.json("root", "remove", "s3://bucket/sales")["roots"] == [warehouse, "/data/exports"]


def test_a_root_added_twice_is_there_once(terminal: Terminal) -> None:
    terminal("root", "add", "s3://bucket/sales")
    found = terminal.json("root", "add", "s3://bucket/sales", "s3://bucket/sales/")
    assert found["roots"][1:] == ["s3://bucket/sales"]


@pytest.mark.parametrize("wrong", ["s3://bucket/../x", "s3://user@bucket/x", "s3:///x", "file://elsewhere/x"])
def test_what_cannot_be_a_root_is_refused(terminal: Terminal, wrong: str) -> None:
    assert terminal("root", "add", wrong, "--json", status=1).error["code"] == "location_refused"
    assert len(terminal.json("root")["roots"]) == 1


@pytest.mark.parametrize(
    "wrong",
    ["s3://user:hush@bucket/x", "s3://bucket/x?sig=hush", "s3://u:hush?@b/x", "s3://user:hush@[bucket"],
)
def test_a_secret_in_a_location_is_not_shown(terminal: Terminal, wrong: str) -> None:
    ran = terminal("root", "add", wrong, "--json", status=1)
    assert ran.error["code"] == "location_refused"
    assert "hush" not in ran.out + ran.err


def test_what_is_no_root_or_is_the_warehouse_is_not_removed(terminal: Terminal) -> None:
    assert "not a root" in terminal("root", "remove", "s3://bucket/x", status=1).err
    assert (
        "warehouse, which cannot be removed"
        in terminal("root", "remove", str(terminal.place / "warehouse"), status=1).err
    )
    terminal("root", "add", status=2)
    terminal("root", "remove", status=2)


def test_a_root_is_mapped_listed_and_mapped_back(terminal: Terminal, tmp_path: Path) -> None:
    old, new = terminal.place / "warehouse", tmp_path / "moved"
    with penstock.open(terminal.place) as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1]}))
        lake.finish_background()
    refused = terminal("root", "map", str(old), str(new), "--json", status=1).error
    assert refused["code"] == "invalid_request"
    assert "'sales.orders' at 'main'" in refused["message"]
    shutil.move(old, new)
    assert terminal("root", "map", str(old), str(new)).lines == [f"{new}  was {old}"]
    assert terminal("root").lines == [f"{new}  warehouse", f"files below {old} are at {new}"]
    found = terminal.json("root")
    assert (found["warehouse"], found["roots"]) == (str(new), [str(new)])
    assert [(one["old"], one["new"]) for one in found["moved_roots"]] == [(str(old), str(new))]
    assert f'"{new}/' in terminal("delta", "status", "--json").out
    shutil.rmtree(new)
    back = terminal.json("root", "unmap", str(new), "--missing-ok")
    assert back["moved_roots"] == []
    assert "sales.orders" in back["missing"][0]
    assert all(one["old"] == one["new"] for one in terminal.json("root")["moved_roots"])


@pytest.mark.parametrize("terminal", WHERE[1:], indirect=True)
def test_roots_are_not_mapped_through_a_server(terminal: Terminal) -> None:
    ran = terminal("root", "map", "s3://b", "s3://c", "--json", status=2)
    assert "not a server" in ran.error["message"]
