"""Backups from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock
from penstock.kernel.description import FORMAT_VERSION
from tests.cli.conftest import Terminal


def test_backups_are_made_listed_verified_and_removed(forked: Terminal, tmp_path: Path) -> None:
    target = str(tmp_path / "nightly.backup")
    lines = forked("backup", target).lines
    assert lines[0].endswith(f"at {target}")
    assert lines[1] == "  has     2 references"
    assert lines[3:] == [
        "checked: nothing is wrong",
        "The lake keeps the files of tables that the backup needs; 'penstock backups' lists what is kept.",
    ]
    first = lines[0].split()[2]
    forked.put("t", "t-1")
    made = forked.json("backup", target)
    assert made == {
        "id": made["id"],
        "target": target,
        "created": made["created"],
        "references": 2,
        "objects": made["objects"],
        "size_bytes": made["size_bytes"],
        "is_whole": False,
        "is_verified": False,
        "is_registered": True,
        "completed": [],
        "expired": [],
        "data": None,
    }
    listed = forked.json("backups")["items"]
    assert [(one["id"], one["keeps_files"], one["is_complete"]) for one in listed] == [
        (first, True, True),
        (made["id"], True, True),
    ]
    assert [line.split()[0] for line in forked("backups").lines] == [first, made["id"]]
    there = forked.plain("backups", "list", target, "--json").json["items"]
    assert [one["id"] for one in there] == [first, made["id"]]
    assert len(forked.plain("backups", "list", target).lines) == 2
    assert forked.plain("backups", "verify", target, first).lines[-1] == "nothing is wrong"
    assert forked.plain("backups", "verify", target, "--json").json["damages"] == []
    assert forked("backups", "expire", target, first).lines == [f"removed backup {first}"]
    assert forked.json("backups", "expire", target, "--keep-last", "3")["items"] == []
    assert forked("backups", "forget", "--all").lines == [f"forgot backup {made['id']}"]
    assert forked("backups").lines == ["the lake knows of no backup"]
    verified = forked("backup", target, "--verify", "--keep-last", "1").lines
    assert "checked: nothing is wrong" in verified
    assert f"removed backup {made['id']}" in verified


def test_a_backup_that_is_not_registered_says_that_nothing_is_kept(forked: Terminal, tmp_path: Path) -> None:
    lines = forked("backup", str(tmp_path / "there"), "--no-register").lines
    assert lines[-1].startswith("It is not registered: the lake keeps no files")
    assert forked("backups").lines == ["the lake knows of no backup"]


def test_a_backup_is_restored_and_takes_the_place_of_the_lake(forked: Terminal, tmp_path: Path) -> None:
    target, again = str(tmp_path / "nightly.backup"), tmp_path / "again"
    forked("backup", target)
    found = forked.plain("restore-backup", target, str(again), "--json").json
    assert (found["owns_tables"], found["missing"], found["copied"]["references"]) == (False, [], 2)
    assert Terminal(again)("log").lines == forked("log").lines
    lines = forked.plain("restore-backup", target, str(again), "--own").lines
    assert lines[-1] == f"It takes the place of the lake that was at {forked.place}, and owns its tables."
    assert "has moved to" in forked("put", "t", "--type", "lance", status=1).err
    Terminal(again).put("t", "t-1")
    with penstock.open(again) as lake, penstock.open(forked.place) as old:
        assert lake.id == old.id


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["backup"], 2, "TARGET"),
        (["backup", "LAKE"], 3, "choose a location for backups only"),
        (["backup", "there", "--keep-last", "0"], 2, "keep-last"),
        (["backups", "list", "nowhere"], 4, "there is no backup at nowhere"),
        (["backups", "list", "LAKE"], 1, "is a lake, not a location of backups"),
        (["backups", "expire", "nowhere"], 2, "give the backups to remove"),
        (["backups", "forget"], 2, "give the IDs of backups"),
        (["backups", "forget", "x"], 1, "there is no backup 'x'; there are none"),
        (["restore-backup", "nowhere", "there"], 2, "not --lake"),
    ],
)
def test_what_cannot_be_is_refused(
    forked: Terminal, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, message: str
) -> None:
    monkeypatch.chdir(forked.place.parent)
    given = [argument.replace("LAKE", str(forked.place)) for argument in arguments]
    assert message in forked(*given, status=status).err


def test_behind_a_server_backups_say_where_they_are_made(forked: Terminal, tmp_path: Path) -> None:
    behind = Terminal(forked.place, "http://127.0.0.1:1")
    for command in (["backup", str(tmp_path / "there")], ["backups"], ["backups", "forget", "--all"]):
        assert "not a server: give --lake" in behind(*command, status=2).err
    assert not (tmp_path / "there").exists()


def test_a_lake_behind_a_server_is_copied_and_moved_beside_its_database(
    forked: Terminal, tmp_path: Path
) -> None:
    server, there = "http://127.0.0.1:1", str(tmp_path / "there")
    for command in (["copy", server, there], ["move", server, there, "--yes"], ["move", server, "--cancel"]):
        assert "run this where the database can be reached" in forked.plain(*command, status=1).err
    for command in (["copy", str(forked.place), server], ["move", str(forked.place), server, "--yes"]):
        assert "cannot create a lake" in forked.plain(*command, status=1).err
    assert not (tmp_path / "there").exists()
    forked("branch", "create", "still-takes-writes")


def test_an_upgrade_asks_for_a_backup_or_says_that_none_is_made(forked: Terminal, tmp_path: Path) -> None:
    assert "give --backup TARGET" in forked("upgrade", status=2).err
    lines = forked("upgrade", "--backup", str(tmp_path / "before.backup")).lines
    assert lines[0].startswith("made backup ")
    assert lines[1] == f"the lake has format version {FORMAT_VERSION} now, and had 1"
    found = forked.json("upgrade", "--no-backup")
    assert found == {"before": FORMAT_VERSION, "after": FORMAT_VERSION, "backup": ""}
    behind = Terminal(forked.place, "http://127.0.0.1:1")
    assert "not a server" in behind("upgrade", "--no-backup", status=2).err


def test_a_backup_is_restored_with_its_files_at_another_place(terminal: Terminal, tmp_path: Path) -> None:
    old, new, again = terminal.place / "warehouse", tmp_path / "moved", tmp_path / "again"
    terminal("delta", "create", "sales.orders", "id:long")
    terminal("backup", str(tmp_path / "nightly"), "--data")
    shutil.rmtree(terminal.place)
    ran = terminal.plain(
        *("restore-backup", str(tmp_path / "nightly"), str(again), "--source-is-gone"),
        *("--map", f"{old}={new}"),
    )
    assert f"files below {old} are at {new}" in ran.lines
    with penstock.open(again) as lake:
        assert lake.table("sales.orders").location.startswith(f"{new}/")
        assert lake.table("sales.orders").snapshot().to_arrow().num_rows == 0
    wrong = terminal.plain("restore-backup", str(tmp_path / "nightly"), str(again), "--map", "/a", status=2)
    assert "--map must be OLD=NEW" in wrong.err
