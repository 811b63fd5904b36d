"""An older Lance on a lake, beside the newest one: each opens, writes and merges what the other one wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import CreateNamespaceRequest

import penstock
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.server.access import OpenGate
from tests.interop import installed, older_lance_program
from tests.server.running import local
from tests.servers.process import Missing

PROGRAM = Path(older_lance_program.__file__)


class Clients:
    """Has steps done by the older Lance, and by the newest one."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory

    def older(self, branch: str, *steps: list[Any]) -> list[Any]:
        """What each step found, at a branch."""
        try:
            python = installed.python_environment("lance") / "python"
        except Missing as missing:
            pytest.skip(str(missing))
        told = json.dumps([[name, self._at(name, branch), *arguments] for name, *arguments in steps])
        ended = installed.run([python, PROGRAM], {}, self._directory, told)
        assert ended.returncode == 0, ended.stderr[-3000:]
        version, found = json.loads(ended.stdout)
        assert int(version.partition(".")[0]) < 14
        return list(found)

    def newest(self, branch: str, *steps: list[Any]) -> list[Any]:
        programs = older_lance_program.STEPS
        return [programs[name](self._at(name, branch), *arguments) for name, *arguments in steps]

    def _at(self, name: str, branch: str) -> str:
        is_url = name != "look_directly"
        return f"{self._url}/lance/branch/{branch}" if is_url else branch


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="ada") as lake:
        lake.lance().create_namespace(CreateNamespaceRequest(id=["ws"]))
        yield lake


@pytest.fixture
def clients(lake: Lake, tmp_path: Path) -> Iterator[Clients]:
    with local(lake.catalogue, [LANCE], gate=OpenGate(any_location=True)) as server:
        yield Clients(server.url, tmp_path)


@pytest.mark.parametrize("first", ["older", "newest"])
def test_both_open_write_and_merge_what_the_other_one_wrote(lake: Lake, clients: Clients, first: str) -> None:
    begin, go_on = (clients.older, clients.newest)[:: 1 if first == "older" else -1]
    begin("main", ["create", [1, 2, 3, 4]], ["index"])
    lake.branch("dev").create()
    whole = [[1, 2, 3, 4], [4], [4]]
    assert go_on("dev", ["look"], ["append", [10]]) == [whole, None]
    begin("main", ["append", [20]])
    lake.merge("dev", "main")
    merged = [[1, 2, 3, 4, 10, 20], [20], [20]]
    assert clients.older("main", ["look"]) == clients.newest("main", ["look"]) == [merged]
    begin("dev", ["delete", "id = 2"], ["look"])
    go_on("main", ["append", [30]])
    lake.merge("dev", "main")
    again = [[1, 3, 4, 10, 20, 30], [30], [30]]
    content = lake.table("ws.items").content
    assert isinstance(content, LanceTable)
    lake.finish_background()
    for one in (clients.older, clients.newest):
        assert one("main", ["look"]) == [again]
        assert one(content.location, ["look_directly"]) == [again]


def test_its_clean_up_leaves_what_the_lake_needs(lake: Lake, clients: Clients) -> None:
    clients.older("main", ["create", [1, 2]], ["index"])
    lake.branch("dev").create()
    lake.tag("v1").create()
    clients.newest("main", ["append", [3]], ["delete", "id < 3"], ["append", [4, 5]])
    before = {commit.id: rows_at(lake, commit.id) for commit in lake.log(limit=4)}
    clients.older("main", ["clean_up"])
    assert clients.older("dev", ["look"]) == clients.newest("dev", ["look"]) == [[[1, 2], [2], [2]]]
    assert rows_at(lake, "v1") == [1, 2]
    assert {commit: rows_at(lake, commit) for commit in before} == before
    assert lake.fsck().damages == ()


def rows_at(lake: Lake, at: str) -> list[int]:
    return sorted(lake.at(at).table("ws.items").to_arrow()["id"].to_pylist())
