"""Commands on a lake behind a server, by callers who may read and write some branches only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import penstock
from penstock.cli.installation import check_installation
from penstock.errors import Denied
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.lake.copy import move_lake
from tests.cli.conftest import Serving, Terminal, serving

R = TypeVar("R")

READS = (calls.GetChanges, calls.GetCommit, calls.ListCommits, calls.ListReferences, calls.Compare)


def of_this_machine() -> dict[str, str]:
    """What the doctor says of what is installed where it is asked, whichever lake it looks at."""
    return {one.name: one.state for one in check_installation()}


class Fading:
    """A catalogue that takes writes, and can be told to answer no more questions about what they did."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self.page_max, self.has_faded = catalogue, catalogue.page_max, False

    def do(self, call: calls.Call[R], progress: Progress = show_no_progress) -> R:
        if self.has_faded and isinstance(call, READS):
            raise Denied("nobody may read this now")
        return self._catalogue.do(call, progress)

    def close(self) -> None:
        self._catalogue.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    penstock.init(tmp_path / "lake").close()
    with serving(tmp_path / "lake") as server:
        yield server


@pytest.fixture
def team(server: Serving, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Somebody who may write to ``main`` and ``dev/*``, on a lake that has another branch too."""
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("team", "write:main", "write:dev/*"))
    server.terminal.put("sales.orders", "orders-1")
    server.lake.branch("secret").create()
    server.terminal("branch", "create", "dev/x")
    server.terminal.put("sales.orders", "orders-2", "--branch", "dev/x")
    return server.terminal


def test_every_write_says_what_it_did(team: Terminal) -> None:
    assert team("put", "a", "--type", "lance").lines[1] == "  + a  LANCE_TABLE"
    assert team("delete", "a").lines[1].startswith("  - a")
    assert team("namespace", "create", "ns").lines[1] == "  + ns  NAMESPACE"
    assert team("namespace", "delete", "ns").lines[1] == "  - ns  NAMESPACE"
    assert team("merge", "dev/x").lines[0] == "dev/x → main   1 commit, 1 table"
    assert "1 table" in team("revert", "main").lines[0]
    assert team("transplant", "dev/x").lines[0] == "dev/x → main   1 commit, 1 table"
    team.put("sales.returns", "returns", "--branch", "dev/x")
    assert team("rebase", "dev/x").lines[-1].endswith("1 commit repeated")
    assert team("tag", "create", "dev/v1").lines[0].startswith("created tag dev/v1 at ")


def test_everything_that_may_be_read_is_shown(team: Terminal) -> None:
    assert [line.split()[-2:] for line in team("branch").lines] == [["put", "sales.orders"]] * 2
    team("tag", "create", "dev/v1")
    assert team("tag").lines[0].startswith("dev/v1 ")
    assert [line.strip("│ ") for line in team("log", "dev/x").lines if "●" not in line] == [
        "~ sales.orders", "+ sales.orders",
    ]  # fmt: skip
    assert team("show", "dev/x").lines[-1].startswith("  ~ sales.orders")
    assert team("diff", "main", "dev/x").lines[0] == "main → dev/x   1 difference"
    assert team("diff", "dev/x~1", "dev/x").lines[0] == "dev/x~1 → dev/x   1 difference"
    assert team("tables", "--ref", "dev/x").lines[0].startswith("sales.orders")
    looks = {one["name"]: one["state"] for one in team.json("doctor")["checks"]}
    assert looks == of_this_machine() | dict.fromkeys(["server", "clock", "default branch"], "ok")


def test_conflicts_name_the_last_change_of_both_sides(team: Terminal) -> None:
    team.put("sales.orders", "orders-3", "-m", "hourly load")
    lines = [line.split() for line in team("merge", "dev/x", status=3).lines]
    sides = [line for line in lines if line[:1] in (["main"], ["dev/x"]) and "→" not in line]
    assert [side[0] for side in sides] == ["main", "dev/x"]
    assert sides[0][2:4] == ["hourly", "load"]


def test_a_commit_is_undone_by_its_id_on_the_branch_that_it_is_on(team: Terminal) -> None:
    wrong = team.put("sales.wrong", "wrong", "--branch", "dev/x")
    assert team("revert", wrong[:8], "--on", "dev/x").lines[-1].startswith(f"reverted {wrong[:8]} as ")


def test_a_reader_of_one_branch_sees_that_one(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("etl", "write"))
    server.terminal.put("a", "a-1")
    server.terminal("branch", "create", "dev/x")
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("dashboards", "read:dev/x"))
    assert [line.split()[0] for line in server.terminal("branch").lines] == ["dev/x"]
    assert server.terminal("log", "dev/x").lines[1].strip() == "+ a"
    refused = server.terminal("put", "a", "--type", "lance", "--branch", "dev/x", status=6)
    assert (
        refused.err.splitlines()[1] == "  Ask the administrator of the server for a token that allows this."
    )
    looks = {one["name"]: one["state"] for one in server.terminal.json("doctor")["checks"]}
    seen = {"server": "ok", "clock": "ok", "default branch": "warning"}
    assert looks == of_this_machine() | seen


@pytest.mark.parametrize("how", [[], ["--json"]], ids=["for people", "for programs"])
def test_a_write_that_was_applied_is_said_so_even_if_nothing_can_be_read_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    made: list[Fading] = []

    def fading(catalogue: Catalogue) -> Catalogue:
        made.append(Fading(catalogue))
        return made[0]

    penstock.init(tmp_path / "lake").close()
    with serving(tmp_path / "lake", fading) as server:
        monkeypatch.setenv("PENSTOCK_TOKEN", server.token("etl", "write"))
        terminal = server.terminal
        terminal.put("a", "a-1")
        terminal("branch", "create", "dev")
        terminal.put("a", "a-2", "--branch", "dev")
        made[0].has_faded = True
        before = len(server.lake.reflog())
        terminal("put", "b", "--type", "lance", *how)
        terminal("delete", "b", *how)
        terminal("merge", "dev", *how)
        terminal("revert", "main", *how)
        terminal("transplant", "dev", "--default", "force", *how)
        terminal("branch", "create", "dev2", *how)
        assert len(server.lake.reflog()) - before == 5


def test_the_author_is_whom_the_writer_names_else_the_token(team: Terminal) -> None:
    assert team.json("put", "a", "--type", "lance")["author"] == "team"
    found = team.json("put", "b", "--type", "lance", "--author", "ada")
    assert (found["author"], found["committer"]) == ("ada", "team")
    team("merge", "dev/x", "--author", "ada")
    assert team.json("show")["author"] == "ada"


def test_a_sweep_behind_a_server_uses_the_servers_settings(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("root", "admin"))
    assert server.terminal.json("sweep", "--dry-run")["objects"]["dry_run"] is True
    assert server.terminal("sweep").lines[0].startswith("removed")
    refused = server.terminal("sweep", "--nobody-writes", "--grace-s", "0", status=2)
    assert "--grace-s cannot be used with a server" in refused.err


def test_a_lake_that_has_moved_is_for_who_runs_the_server(
    server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", server.token("etl", "write"))
    move_lake(str(tmp_path / "lake"), str(tmp_path / "elsewhere"))
    refused = server.terminal("put", "a", "--type", "lance", status=1)
    assert (
        refused.err.splitlines()[-1] == "  The administrator of the server must start it at the new location."
    )
    told = next(one for one in server.terminal.json("doctor")["checks"] if one["name"] == "server")
    assert (told["state"], str(tmp_path) in told["advice"]) == ("warning", False)
    here = Terminal(tmp_path / "lake")("put", "a", "--type", "lance", status=1)
    assert (
        here.err.splitlines()[-1] == "  Use the new location: --lake LOCATION, or the variable PENSTOCK_LAKE."
    )


def test_a_server_is_not_measured(team: Terminal) -> None:
    assert f"{team.url} is a server" in team("bench", status=2).err
    assert f"{team.url} is a server" in team.plain("bench", team.url, status=2).err


def test_a_refused_location_names_the_command_that_adds_a_root(team: Terminal) -> None:
    refused = team("put", "a", "--type", "lance", "location=s3://other/tables/a", status=1)
    assert refused.err.rstrip().endswith("penstock root add s3://other/tables")
