"""Lance tables on the command line."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace import CreateTableTagRequest

import penstock
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.state import LanceVersionReader, decode_state
from tests.cli.conftest import Terminal, anywhere


@pytest.fixture
def items(terminal: Terminal) -> str:
    """A table of two versions, with one of Lance's own tags."""
    with penstock.open(terminal.place, author="tester") as lake:
        for number in range(2):
            lance.write_dataset(
                pa.table({"id": [number]}),
                namespace_client=lake.lance(),
                table_id=["items"],
                mode="append" if number else "create",
            )
        lake.lance().create_table_tag(CreateTableTagRequest(id=["items"], tag="first", version=1))
    return "items"


@anywhere
def test_tables_and_their_versions_are_listed(terminal: Terminal, items: str) -> None:
    assert terminal("lance").lines[0].split()[:2] == [items, "v2"]
    assert terminal("lance", "list").lines == terminal("lance").lines
    (one,) = terminal.json("lance", "list")["items"]
    assert (one["key"], one["version"], one["is_private"]) == (items, 2, False)
    versions = terminal.json("lance", "versions", items)
    assert [(one["version"], one["operation"]) for one in versions["items"]] == [
        (2, "append"),
        (1, "overwrite"),
    ]
    first = terminal.json("lance", "versions", items, "-n", "1")
    assert first["next"] == "2"
    assert terminal("lance", "versions", items, "-n", "1").lines[-1].split() == [
        "more",
        "with",
        "--below",
        "2",
    ]
    below = terminal.json("lance", "versions", items, "--below", "2")
    assert [one["version"] for one in below["items"]] == [1]


@anywhere
def test_a_table_is_shown_with_what_lance_has_inside_of_it(terminal: Terminal, items: str) -> None:
    shown = terminal.json("lance", "show", items)
    assert [(one["name"], one["version"]) for one in shown["tags"]] == [("first", 1)]
    assert "tag first" in terminal("lance", "show", items).out
    terminal("lance", "show", "nothing", status=4)


def test_history_tells_the_versions_of_tables(terminal: Terminal, items: str) -> None:
    log = terminal("log").out
    assert "+ items" in log
    assert "~ items (v2)" in log
    assert "declared → v1" in terminal("diff", "main~3", "main~2").out
    assert "branches, tags, properties or older versions changed" in terminal("diff", "main~1", "main").out
    assert ["version", "2"] in [line.split() for line in terminal("show", "main", "items").lines]
    assert terminal("tables").lines[0].split()[:3] == ["items", "LANCE_TABLE", "v2"]


def test_versions_are_promoted_by_hand(terminal: Terminal, items: str) -> None:
    location = Path(terminal.json("lance", "show", items)["location"])
    newest = location / "_versions" / "18446744073709551613.manifest"
    with penstock.open(terminal.place, catch_up=False) as lake:
        content = lake.table(items).content
        assert isinstance(content, LanceTable)
        found = LanceVersionReader(lake.kernel.objects, decode_state(content)).find_newest()
    assert found is not None
    newest.rename(location / found[1].staged)  # as if nobody had come to promote it
    assert terminal("lance", "promote", items).lines[0].split()[:2] == ["items", "v2"]
    assert newest.exists()
    assert [one["key"] for one in terminal.json("lance", "promote")["items"]] == ["items"]


def test_an_import_can_be_tried_first_and_an_export_leads_out_again(terminal: Terminal) -> None:
    root = terminal.place / "warehouse" / "old"
    lance.write_dataset(pa.table({"id": [1]}), str(root / "a.lance"))
    tried = terminal("lance", "import", str(root), "--into", "search", "--dry-run")
    assert tried.lines[0] == f"would import 1 table from {root}"
    assert terminal("lance").lines[0].startswith("no Lance tables")
    done = terminal.json("lance", "import", str(root), "--into", "search", "-m", "ours now")
    assert [one["key"] for one in done["tables"]] == ["search.a"]
    assert terminal.json("log", "-n", "1")["items"][0]["message"] == "ours now"
    assert (
        "this key is already in use"
        in terminal("lance", "import", str(root), "--into", "search", status=1).err
    )
    out = terminal.json("lance", "export", str(terminal.place / "warehouse"))
    assert [one["key"] for one in out["tables"]] == ["search.a"]
    assert "1 of them unchanged" in terminal("lance", "export", str(terminal.place / "warehouse")).out
    assert "which is outside" in terminal("lance", "export", str(terminal.place / "other"), status=1).err


def test_versions_from_before_the_lake_are_said_to_be_imported(terminal: Terminal) -> None:
    root = terminal.place / "warehouse" / "old"
    lance.write_dataset(pa.table({"id": [1]}), str(root / "a.lance"))
    terminal("lance", "import", str(root))
    with penstock.open(terminal.place) as lake:
        lake.table("a").append({"id": [2]})
    found = terminal.json("lance", "versions", "a")["items"]
    assert [one["operation"] for one in found] == ["append", "imported"]
    assert terminal("lance", "versions", "a").lines[1].split()[:2] == ["v1", "imported"]


def test_an_import_from_where_no_tables_are_fails(terminal: Terminal) -> None:
    place = terminal.place / "warehouse" / "letters" / "old"
    place.mkdir(parents=True)
    (place / "a.txt").write_text("dear")
    assert "no Lance table at" in terminal("lance", "import", str(place.parent), status=1).err


@pytest.fixture
def apart(terminal: Terminal) -> None:
    """A table of which both branches have changed the same rows, and so have version 6 each."""
    with penstock.open(terminal.place, author="tester") as lake:
        for number in range(5):
            lance.write_dataset(
                pa.table({"id": [number, 100 + number]}),
                namespace_client=lake.lance(),
                table_id=["items"],
                mode="append" if number else "create",
            )
        lake.branch("dev").create()
        lance.dataset(namespace_client=lake.lance("dev"), table_id=["items"]).delete("id < 100")
        lance.dataset(namespace_client=lake.lance(), table_id=["items"]).update({"id": "id + 10"}, "id < 100")


def test_versions_of_one_number_on_two_branches_are_not_said_to_be_the_same(
    terminal: Terminal, apart: None
) -> None:
    assert "v6 → v6 on another branch history" in terminal("diff", "main", "dev").out


def test_a_conflict_is_told_once_for_a_table_with_ways_out_that_work(terminal: Terminal, apart: None) -> None:
    ran = terminal("merge", "dev", "--into", "main", status=3)
    assert ran.out.count("the same rows") == 1
    assert "and 2 more" in ran.out
    assert "--ours" not in ran.out
    assert "--take main=items or --take dev=items" in ran.out
    terminal("merge", "dev", "--into", "main", "--take", "dev=items")
    with penstock.open(terminal.place) as lake:
        assert lake.table("items").to_arrow()["id"].to_pylist() == [100, 101, 102, 103, 104]


def test_the_doctor_says_which_lance_is_installed(terminal: Terminal, items: str) -> None:
    found = {one["name"]: one for one in terminal.json("doctor")["checks"]}
    assert found["extra lance"]["state"] == "ok"
    assert f"pylance {version('pylance')}" in found["extra lance"]["finding"]


def test_the_list_of_commands_does_not_load_lance() -> None:

    program = "import sys, penstock.formats.lance.cli.commands; sys.exit('lance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
