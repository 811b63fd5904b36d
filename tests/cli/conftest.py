"""The command line, run in this process on real lakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root


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

    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, *args: str, status: int = 0, stdin: str | bytes | None = None) -> Ran:
        """Run a command on the lake; it must end with a given exit status and without a traceback."""
        return self.plain("--lake", str(self.place), *args, status=status, stdin=stdin)

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


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_LAKE", "PENSTOCK_AUTHOR", "PENSTOCK_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A new lake with nothing in it."""
    place = tmp_path / "lake"
    penstock.init(place).close()
    return Terminal(place)


@pytest.fixture
def forked(terminal: Terminal) -> Terminal:
    """A lake where ``main`` and ``dev`` both changed ``sales.orders``; ``dev`` made ``sales.returns`` too."""
    terminal.put("sales.orders", "orders-1", "-m", "first load", "--author", "etl")
    terminal("branch", "create", "dev")
    terminal.put("sales.orders", "orders-dev", "--branch", "dev", "-m", "mend orders", "--author", "ada")
    terminal.put("sales.returns", "returns-1", "--branch", "dev", "-m", "add returns", "--author", "ada")
    terminal.put("sales.orders", "orders-2", "-m", "hourly load", "--author", "etl")
    return terminal
