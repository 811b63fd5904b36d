"""The command line, run in this process on real lakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli import environment
from penstock.cli.rendering.screen import Screen
from penstock.cli.root import penstock as root
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.server.access import TokenGate
from penstock.server.native import NATIVE
from tests.disks import disks_are_not_waited_for
from tests.server.running import local

__all__ = ["disks_are_not_waited_for"]

WHERE = ("here", "behind a server")
anywhere = pytest.mark.parametrize("terminal", WHERE, indirect=True)
"""For tests of what is the same on a lake of one's own and on one behind a server, with a token that is bound
to references. Its pattern matches all their names, but it is none for all references, so that a commit can be
read only by way of one of them."""
BOUND = ("write:[a-z]*", "restore:[a-z]*")


class Ran:
    """What a command printed and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    """Runs commands on one lake, as somebody at a terminal would."""

    def __init__(self, place: Path, url: str = "") -> None:
        self.place, self.url = place, url or str(place)

    def __call__(self, *args: str, status: int = 0, stdin: str | bytes | None = None) -> Ran:
        """Run a command on the lake; it must end with a given exit status and without a traceback."""
        return self.plain("--lake", self.url, *args, status=status, stdin=stdin)

    def plain(self, *args: str, status: int = 0, stdin: str | bytes | None = None) -> Ran:
        """Run a command that is not told which lake."""
        result = CliRunner().invoke(root, args, input=stdin)
        ran = Ran(result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in ran.out + ran.err
        assert ran.status == status, f"exit status {ran.status}\n{ran.out}{ran.err}"
        return ran

    def json(self, *args: str, status: int = 0) -> Any:
        """Run a command with ``--json`` and return the object that it printed."""
        return self(*args, "--json", status=status).json

    def put(self, key: str, version: str, *args: str) -> str:
        """Put an Iceberg table and return the commit's id."""
        found = self.json("put", key, "--type", "iceberg", f"metadata_location=s3://b/{version}.json", *args)
        assert isinstance(found["id"], str)
        return found["id"]


class Serving(NamedTuple):
    """A lake behind a server in this process."""

    lake: Lake
    terminal: Terminal

    def token(self, name: str, *grants: str) -> str:
        return self.lake.create_token(name, *grants)


@contextmanager
def serving(place: Path, catalogue: Callable[[Catalogue], Catalogue] = lambda one: one) -> Iterator[Serving]:
    """Serve a lake, with tables below ``s3://b``, until the block ends; ``catalogue`` may stand between."""
    with penstock.open(place, create=True) as lake:
        lake.add_root("s3://b")
        with local(catalogue(lake.catalogue), [NATIVE], gate=TokenGate(lake.catalogue)) as server:
            yield Serving(lake, Terminal(place, server.url))


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.MEANINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _ages_as_of_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test does is told as of just now, however long it takes to come to the end."""
    begun, look_at = datetime.now(UTC), Screen.of_stream
    monkeypatch.setattr(Screen, "of_stream", staticmethod(lambda stream: look_at(stream)._replace(now=begun)))


@pytest.fixture
def terminal(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    """A new lake with nothing in it, here or behind a server."""
    place = tmp_path / "lake"
    penstock.init(place).close()
    if getattr(request, "param", WHERE[0]) == WHERE[0]:
        yield Terminal(place)
        return
    with serving(place) as server:
        monkeypatch.setenv("PENSTOCK_TOKEN", server.token("etl", *BOUND))
        yield server.terminal


@pytest.fixture
def forked(terminal: Terminal) -> Terminal:
    """A lake where ``main`` and ``dev`` both changed ``sales.orders``; ``dev`` made ``sales.returns`` too."""
    terminal.put("sales.orders", "orders-1", "-m", "first load", "--author", "etl")
    terminal("branch", "create", "dev")
    terminal.put("sales.orders", "orders-dev", "--branch", "dev", "-m", "mend orders", "--author", "ada")
    terminal.put("sales.returns", "returns-1", "--branch", "dev", "-m", "add returns", "--author", "ada")
    terminal.put("sales.orders", "orders-2", "-m", "hourly load", "--author", "etl")
    return terminal
