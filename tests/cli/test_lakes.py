"""Which lake a command works on, and making one."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.cli.command_declaration import MAKE_NO_LAKE
from tests.cli.conftest import Terminal


def test_init_makes_a_lake_as_told(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "lake")
    made = terminal.plain(
        "init", str(terminal.place), "--warehouse", "s3://b/w", "--root", "/data", "--root", "/more",
        "--default-branch", "trunk", "--json",
    ).json  # fmt: skip
    assert made == made | {
        "url": str(terminal.place),
        "default_branch": "trunk",
        "warehouse": "s3://b/w",
        "roots": ["s3://b/w", "/data", "/more"],
    }
    assert terminal("branch").lines == ["* trunk  empty"]
    with penstock.open(terminal.place) as lake:
        assert (lake.id, lake.roots) == (made["id"], ("s3://b/w", "/data", "/more"))


def test_init_says_what_it_made(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    assert Terminal(place).plain("--lake", str(place), "init", "--root", "/data").lines == [
        f"made a lake at {place}",
        "  default branch  main",
        f"  warehouse       {place}/warehouse",
        "  root            /data",
    ]


def test_a_lake_is_made_only_once(terminal: Terminal) -> None:
    assert "already" in terminal.plain("init", str(terminal.place), status=3).err
    assert terminal("init", "--json", status=3).error["code"] == "lake_exists"
    assert "two places" in terminal("init", "elsewhere", status=2).err


def test_init_without_a_path_makes_the_current_directory_a_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path)
    assert terminal.plain("init", "--json").json["url"] == str(tmp_path)
    assert terminal.plain("branch").lines == ["* main  empty"]


def test_without_a_lake_it_is_a_usage_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = Terminal(tmp_path).plain("log", status=2)
    for way in ("--lake PATH", "PENSTOCK_LAKE", "penstock init PATH", "penstock demo"):
        assert way in refused.err
    assert Terminal(tmp_path).plain("log", "--json", status=2).error["code"] == "usage"
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_lake_and_the_author(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LAKE", str(terminal.place))
    monkeypatch.setenv("PENSTOCK_AUTHOR", "grace")
    put = terminal.plain("put", "t", "--type", "lance", "--json").json
    assert put["author"] == "grace"
    other = terminal.plain("put", "t", "--type", "lance", "--author", "ada", "--json").json
    assert (other["author"], other["parents"]) == ("ada", [put["id"]])
    penstock.init(tmp_path / "other").close()
    elsewhere = terminal.plain("--lake", str(tmp_path / "other"), "branch")
    assert elsewhere.lines == ["* main  empty"]


@pytest.mark.parametrize(
    "command",
    [
        ["put", "t", "--type", "lance"],
        ["branch", "create", "dev"],
        ["tag", "create", "v1"],
        ["namespace", "create", "sales"],
        ["root", "add", "/data"],
        ["token", "create", "etl", "--grant", "read"],
        ["expect", "add", "few", "select * from a.t", "--missing-ok"],
        ["files", "put", __file__, "raw.logs/"],
    ],
)
def test_the_first_command_that_writes_makes_the_lake_and_says_so(command: list[str], tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "new" / "lake")
    assert terminal(*command).err.endswith(f"penstock: made a new lake at {terminal.place}\n")
    assert "made a new lake" not in terminal("put", "u", "--type", "lance").err
    quiet = Terminal(tmp_path / "quiet")
    assert "made" not in quiet(*command, "--json").err


@pytest.mark.parametrize(
    "command",
    [
        ["tables"], ["log"], ["branch"], ["branch", "list"], ["tag"], ["show", "main"], ["reflog"],
        ["diff", "main", "main"], ["namespace"], ["root"], ["token"], ["jobs"], ["tx"], ["expect"],
        ["delta", "status"], ["delta", "cat", "a.t"], ["delta", "log", "a.t"], ["delta", "publish"],
        ["files", "ls", "a.f"], ["lance", "list"], ["outcome", "k"], ["delete", "a.t"],
        ["branch", "delete", "dev"], ["merge", "dev"], ["revert", "main"], ["lance", "promote"],
        ["publish", "dev"], ["tx", "show", "12345678"], ["tx", "abort", "12345678"],
        ["jobs", "abort", "12345678"],
        ["namespace", "delete", "a"], ["root", "remove", "/data"], ["token", "revoke", "1"],
    ],
)  # fmt: skip
def test_a_command_that_brings_nothing_makes_no_lake(command: list[str], tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "typo")
    refused = terminal(*command, status=4)
    assert f"there is no lake at {terminal.place}" in refused.err
    assert f"penstock init {terminal.place}" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_other_files_is_refused_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    terminal = Terminal(tmp_path)
    for command in (["tables"], ["put", "t", "--type", "lance"], ["init"], ["serve", "--dev"]):
        refused = terminal(*command, status=1).err
        assert "other files in it (notes.txt)" in refused
        assert str(tmp_path / "lake") in refused
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


NEED_MORE = {"copy", "move", "backup", "restore-backup", "upgrade", "resync"}
"""Commands that have to be told more than the lake."""
OF_A_TABLE = {"optimize": ["t"], "maintain": ["t"]}
"""Commands that have to be told a table."""


@pytest.mark.parametrize("command", sorted(set(MAKE_NO_LAKE) - NEED_MORE))
def test_care_and_servers_never_make_a_lake(command: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "nowhere")
    ran = terminal(command, *OF_A_TABLE.get(command, ()), status=1 if command == "doctor" else 4)
    assert "there is no lake at" in ran.out + ran.err
    assert f"penstock init {terminal.place}'" in ran.out + ran.err
    assert not terminal.place.exists()
    assert "becomes one" not in terminal(command, "--help").out


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("127.0.0.1:19120", "http://127.0.0.1:19120"),
        ("lakes.example:80/api/v2", "http://lakes.example:80/api/v2"),
        ("[::1]:19120", "http://[::1]:19120"),
        ("http:/127.0.0.1:19120", "http://127.0.0.1:19120"),
        ("https:lakes.example", "https://lakes.example"),
        ("htp://127.0.0.1:19120", "http://127.0.0.1:19120"),
    ],
)
def test_an_address_with_a_slip_makes_no_lake(
    place: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path)
    for arguments in (
        ["--lake", place, "log"],
        ["init", place],
        ["bench", place],
        ["serve", "--lake", place],
    ):
        assert f"Did you mean {meant}?" in terminal.plain(*arguments, status=2).err
    monkeypatch.setenv("PENSTOCK_LAKE", place)
    assert f"Did you mean {meant}?" in terminal.plain("log", status=2).err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_may_be_named_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main:1").mkdir()
    assert "made a new lake" in Terminal(tmp_path).plain("--lake", "main:1", "branch", "create", "dev").err
    assert Terminal(tmp_path).plain("--lake", "main:1", "log").lines == ["no commits yet"]


def test_a_lake_without_a_place_for_tables_says_so(tmp_path: Path) -> None:
    assert "penstock root add" in Terminal(tmp_path).plain("init", "memory:").err
    assert Terminal(tmp_path).plain("init", str(tmp_path / "lake")).err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lake", "LAKE", "--json", "--author", "ada", "branch", "create", "dev"],
        ["branch", "--lake", "LAKE", "--json", "--author", "ada", "create", "dev"],
        ["branch", "create", "--lake", "LAKE", "dev", "--json", "--author", "ada"],
        ["--author", "x", "--lake", "y", "branch", "--json", "create", "dev", "--lake=LAKE", "--author=ada"],
    ],
)  # fmt: skip
def test_shared_options_stand_before_or_after_the_command(arguments: list[str], terminal: Terminal) -> None:
    given = [argument.replace("LAKE", str(terminal.place)) for argument in arguments]
    assert terminal.plain(*given).json["name"] == "dev"
    assert terminal.json("reflog", "dev")["items"][0]["who"] == "ada"


def test_an_empty_lake_option_is_no_lake(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(terminal.place)
    assert "--lake" in terminal.plain("log", "--lake", "", status=2).err


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("FILE", 1, "a lake is a directory"),
        ("FILE/below", 1, "is a file"),
        ("ftp://bucket/lake", 1, "unknown scheme 'ftp://'"),
    ],
)
def test_a_place_where_no_lake_can_be_is_refused(
    target: str, status: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    place = target.replace("FILE", str(tmp_path / "file"))
    assert message in Terminal(tmp_path).plain("--lake", place, "log", status=status).err
