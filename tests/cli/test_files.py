"""Tables of files on the command line."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Terminal, anywhere


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with files of two days."""
    place = tmp_path / "work"
    for name, data in {"in/day=1/a": "0123456789", "in/day=2/b": "bb", "one.csv": "day,amount\n"}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(data)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def visits(terminal: Terminal, work: Path) -> str:
    """A table with these files."""
    terminal("files", "put", "-r", "in/", "raw.visits", "-m", "first load")
    return "raw.visits"


def paths(terminal: Terminal, place: str, *more: str) -> list[str]:
    return [one["path"] for one in terminal.json("files", "ls", "-r", place, *more)["items"]]


def commits(terminal: Terminal) -> int:
    return len(terminal.json("log", "-n", "1000")["items"])


# -- looking -----------------------------------------------------------------------------------------------


@anywhere
def test_files_and_folders_are_listed(terminal: Terminal, visits: str) -> None:
    assert [line.split()[-1] for line in terminal("files", "ls", visits).lines] == ["day=1/", "day=2/"]
    assert terminal("files", "ls", f"{visits}/day=1").lines == ["10 bytes  just now  day=1/a"]
    assert terminal.json("files", "ls", f"{visits}/day=1/a")["items"][0]["size"] == 10
    assert paths(terminal, visits) == ["day=1/a", "day=2/b"]
    first = terminal.json("files", "ls", "-r", visits, "-n", "1")
    assert first["next"] == "day=1/a"
    assert paths(terminal, visits, "--after", first["next"]) == ["day=2/b"]
    assert "--after day=1/" in terminal("files", "ls", visits, "-n", "1").lines[-1]
    assert [line.split() for line in terminal("files").lines] == [["raw.visits", "2", "files", "12", "bytes"]]
    assert terminal.json("files")["items"][0]["files"] == 2
    assert terminal("tables").lines == ["raw.visits  FILES_TABLE  2 files"]


@anywhere
def test_what_is_not_there_is_said_with_a_way_on(terminal: Terminal, visits: str) -> None:
    for command in (("ls",), ("stat",), ("cat",), ("get",), ("du",), ("rm",)):
        ran = terminal("files", *command, f"{visits}/none", status=4)
        assert "'raw.visits' has no file at 'none'" in ran.err
        assert "'penstock files ls'" in ran.err
    assert "there is no 'raw.none'" in terminal("files", "ls", "raw.none", status=4).err
    assert "TABLE/PATH" in terminal("files", "cat", visits, status=2).err
    assert "--ref" in terminal("files", "ls", f"{visits}@dev", status=2).err
    assert terminal("files", "cat", f"{visits}/none", "--json", status=4).error["code"] == "file_not_found"


@anywhere
def test_a_file_is_described_and_its_bytes_written_out(terminal: Terminal, visits: str) -> None:
    told = terminal.json("files", "stat", f"{visits}/day=1/a")
    assert (told["path"], told["size"], told["checksum"][:7]) == ("day=1/a", 10, "sha256:")
    assert Path(told["address"]).read_bytes() == b"0123456789"
    assert told["address"] in terminal("files", "stat", f"{visits}/day=1/a").out
    cat = ("files", "cat", f"{visits}/day=1/a")
    assert terminal(*cat).out == "0123456789"
    for part, found in {
        "2:5": "234",
        ":3": "012",
        "7:": "789",
        "-3:": "789",
        "5:2": "",
        "8:99": "89",
    }.items():
        assert terminal(*cat, f"--range={part}").out == found
    ranged = terminal.json(*cat, "--range=2:5")
    assert (ranged["start"], base64.b64decode(ranged["base64"])) == (2, b"234")
    assert "0:100" in terminal(*cat, "--range", "2-5", status=2).err


@anywhere
def test_sizes_are_summed(terminal: Terminal, visits: str) -> None:
    assert terminal("files", "du", visits).lines == ["12 bytes  2 files  raw.visits/"]
    told = terminal.json("files", "du", visits, "--folders")["items"]
    assert [(one["path"], one["files"], one["size"]) for one in told] == [
        ("day=1/", 1, 10), ("day=2/", 1, 2), ("", 2, 12),
    ]  # fmt: skip
    assert terminal.json("files", "du", f"{visits}/day=1/a")["items"][0]["size"] == 10


# -- putting -----------------------------------------------------------------------------------------------


@anywhere
def test_a_directory_is_put_in_one_commit(terminal: Terminal, work: Path) -> None:
    told = terminal.json("files", "put", "-r", "in", "one.csv", "raw.new/up/", "-m", "all at once")
    assert told["put"] == ["up/in/day=1/a", "up/in/day=2/b", "up/one.csv"]
    assert paths(terminal, "raw.new") == told["put"]
    (commit,) = [one for one in terminal.json("log")["items"] if one["id"] == told["commit"]]
    assert (commit["message"], commits(terminal)) == ("all at once", 1)


def test_where_files_go_is_plain(terminal: Terminal, work: Path) -> None:
    put = ("files", "put")
    assert terminal.json(*put, "one.csv", "t")["put"] == ["one.csv"]
    assert terminal.json(*put, "one.csv", "t/folder/")["put"] == ["folder/one.csv"]
    assert terminal.json(*put, "one.csv", "t/renamed")["put"] == ["renamed"]
    assert terminal.json(*put, "-r", "in/day=1/", "t/x/")["put"] == ["x/a"]
    assert "needs a name" in terminal(*put, "-", "t/", status=2, stdin="x").err
    assert "use -r" in terminal(*put, "in", "t", status=2).err
    assert "need a folder" in terminal(*put, "one.csv", "in/day=1/a", "t/x", status=2).err
    assert "there is no file nothing" in terminal(*put, "nothing", "t", status=2).err
    assert "would have the path 'a'" in terminal(*put, "in/day=1/a", "in/day=1/a", "t", status=2).err
    assert (
        "--replace' replaces a whole folder: write the target as t/x/"
        in terminal(*put, "one.csv", "t/x", "--replace", status=2).err
    )
    terminal(*put, "-", "t/typed", stdin=b"\x00typed")
    assert terminal.json("files", "cat", "t/typed")["base64"] == base64.b64encode(b"\x00typed").decode()


def test_what_cannot_be_put_whole_is_not_put(
    terminal: Terminal, visits: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, before = ("files", "put", "-r", "in/", visits, "--replace"), commits(terminal)
    os.mkfifo("in/pipe")
    for source in (put, ("files", "put", "in/pipe", f"{visits}/x")):
        assert "in/pipe is not a regular file" in terminal(*source, status=1).err
    Path("in/pipe").unlink()
    Path("in/linked").symlink_to(work / "in" / "day=1")
    assert "in/linked is a link to a directory" in terminal(*put, status=1).err
    Path("in/linked").unlink()
    scan = os.scandir

    def deny(path: str | Path) -> Any:
        if str(path).endswith("day=2"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", deny)  # whoever runs this may be allowed everything
    assert "in/day=2 cannot be read: Permission denied" in terminal(*put, status=1).err
    assert (paths(terminal, visits), commits(terminal)) == (["day=1/a", "day=2/b"], before)


def test_a_file_does_not_take_the_name_of_a_folder(terminal: Terminal, visits: str) -> None:
    assert f"write {visits}/day=1/ to" in terminal("files", "put", "one.csv", f"{visits}/day=1", status=2).err
    terminal("files", "put", "one.csv", f"{visits}/day=")
    assert paths(terminal, visits) == ["day=", "day=1/a", "day=2/b"]


@anywhere
def test_a_folder_is_replaced_in_the_same_commit(terminal: Terminal, visits: str) -> None:
    before = commits(terminal)
    ran = terminal("files", "put", "one.csv", f"{visits}/day=1/", "--replace")
    assert [line.strip() for line in ran.lines[1:]] == ["- day=1/", "+ day=1/one.csv"]
    assert (paths(terminal, visits), commits(terminal)) == (["day=1/one.csv", "day=2/b"], before + 1)


@anywhere
def test_a_dry_run_changes_nothing(terminal: Terminal, visits: str) -> None:
    before = commits(terminal)
    put = terminal.json("files", "put", "one.csv", visits, "--dry-run")
    assert (put["put"], put["commit"], put["dry_run"]) == (["one.csv"], None, True)
    ran = terminal("files", "rm", "-r", f"{visits}/day=1/", f"{visits}/day=2/b", "--dry-run")
    assert ran.lines == ["dry run: nothing was changed", "  - day=2/b", "  - day=1/a"]
    assert (paths(terminal, visits), commits(terminal)) == (["day=1/a", "day=2/b"], before)


def test_a_put_under_a_key_is_done_once(terminal: Terminal, work: Path) -> None:
    again = ("files", "put", "one.csv", "raw.once/x", "--key", "monday")
    assert terminal.json(*again)["commit"] == terminal.json(*again)["commit"]
    assert commits(terminal) == 1


def test_branches_have_files_of_their_own(terminal: Terminal, visits: str) -> None:
    terminal("branch", "create", "dev")
    terminal("files", "rm", f"{visits}/day=1/a", "--branch", "dev")
    assert paths(terminal, visits, "--ref", "dev") == ["day=2/b"]
    assert paths(terminal, visits, "--ref", "dev~1") == paths(terminal, visits) == ["day=1/a", "day=2/b"]
    assert "~ raw.visits  2 files → 1 file" in terminal("diff", "main", "dev").out
    terminal("merge", "dev", "--into", "main")
    assert paths(terminal, visits) == ["day=2/b"]
    terminal("files", "put", "one.csv", visits, "--branch", "none", status=4)


# -- copying, moving, removing -----------------------------------------------------------------------------


@anywhere
def test_files_are_copied_and_moved_without_their_bytes(terminal: Terminal, visits: str) -> None:
    address = terminal.json("files", "stat", f"{visits}/day=1/a")["address"]
    terminal("files", "cp", f"{visits}/day=1/a", f"{visits}/copy")
    terminal("files", "cp", "-r", f"{visits}/day=1/", "raw.other/kept/")
    assert paths(terminal, "raw.other") == ["kept/a"]
    terminal("files", "mv", f"{visits}/copy", f"{visits}/moved/")
    before = commits(terminal)
    terminal("files", "mv", "-r", f"{visits}/day=1/", f"{visits}/day=9/")
    assert paths(terminal, visits) == ["day=2/b", "day=9/a", "moved/copy"]
    for place in (f"{visits}/day=9/a", f"{visits}/moved/copy", "raw.other/kept/a"):
        assert terminal.json("files", "stat", place)["address"] == address
    assert commits(terminal) == before + 1
    assert "use -r" in terminal("files", "cp", f"{visits}/day=2", "raw.other/", status=2).err
    assert "in one commit" in terminal("files", "mv", f"{visits}/day=2/b", "raw.other/b", status=2).err


def test_a_file_comes_back_from_an_earlier_commit(terminal: Terminal, visits: str) -> None:
    terminal("files", "rm", f"{visits}/day=1/a")
    terminal("files", "cp", "--from", "main~1", f"{visits}/day=1/a", f"{visits}/day=1/a")
    assert terminal("files", "cat", f"{visits}/day=1/a").out == "0123456789"


@anywhere
def test_files_and_folders_are_removed_in_one_commit(terminal: Terminal, visits: str) -> None:
    before = commits(terminal)
    assert "use -r" in terminal("files", "rm", f"{visits}/day=1/", status=2).err
    assert "use -r" in terminal("files", "rm", visits, status=2).err
    terminal("files", "rm", f"{visits}/day=1/a", f"{visits}/none", status=4)
    assert commits(terminal) == before
    terminal("files", "rm", "-r", f"{visits}/day=1/", f"{visits}/day=1/a", f"{visits}/day=2/b")
    assert (paths(terminal, visits), commits(terminal)) == ([], before + 1)
    assert terminal("files", "ls", visits).lines == ["no files"]


# -- to this machine ---------------------------------------------------------------------------------------


@anywhere
def test_files_are_got_and_exported(terminal: Terminal, visits: str, work: Path) -> None:
    terminal("files", "get", f"{visits}/day=1/a")
    terminal("files", "get", f"{visits}/day=1/a", "renamed")
    assert Path("a").read_text() == Path("renamed").read_text() == "0123456789"
    assert "nothing was overwritten" in terminal("files", "get", f"{visits}/day=2/b", "renamed", status=1).err
    assert Path("renamed").read_text() == "0123456789"
    assert "no directory none" in terminal("files", "get", f"{visits}/day=2/b", "none/b", status=1).err
    assert "use -r" in terminal("files", "get", f"{visits}/day=1/", "folder", status=2).err
    told = terminal.json("files", "get", "-r", f"{visits}/day=1/", "folder")
    assert (told["files"], told["size"], Path("folder/day=1/a").read_text()) == (1, 10, "0123456789")
    terminal("files", "rm", f"{visits}/day=2/b")
    terminal("files", "export", visits, "whole", "--ref", "main~1")
    assert sorted(one.name for one in Path("whole").rglob("*") if one.is_file()) == ["a", "b"]


@anywhere
def test_nothing_is_not_exported(terminal: Terminal, visits: str, work: Path) -> None:
    for command in (
        ("export", f"{visits}/none"),
        ("export", f"{visits}/day=/"),
        ("get", "-r", f"{visits}/none/"),
    ):
        ran = terminal("files", *command, "out", status=4)
        assert "'raw.visits' has no file at" in ran.err
    assert "'penstock files get'" in terminal("files", "export", f"{visits}/day=1/a", "out", status=2).err
    assert not Path("out").exists()


@anywhere
def test_bytes_that_are_not_those_that_were_put_are_not_got(terminal: Terminal, visits: str) -> None:
    address = Path(terminal.json("files", "stat", f"{visits}/day=1/a")["address"])
    address.write_bytes(b"9876543210")
    ran = terminal("files", "get", f"{visits}/day=1/a", "copy", status=1)
    assert "is missing in storage, or was changed there" in ran.err
    assert not [one for one in Path().iterdir() if one.name.startswith(("copy", ".penstock"))]


def test_places_are_completed(terminal: Terminal, visits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "bash_complete")
    monkeypatch.setenv("PENSTOCK_LAKE", terminal.url)
    for start, offered in {"raw": "raw.visits/", f"{visits}/day=": f"{visits}/day=1/"}.items():
        monkeypatch.setenv("COMP_WORDS", f"penstock files ls {start}")
        monkeypatch.setenv("COMP_CWORD", "3")
        assert offered in terminal.plain().out
