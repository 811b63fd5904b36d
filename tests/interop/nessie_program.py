"""Nessie's Python command line, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop import installed
from tests.servers.process import Missing


def installed_program(uri: str, directory: Path) -> Program:
    """The program for a server; the test is skipped where it cannot be had."""
    try:
        return Program(uri, directory)
    except Missing as missing:
        pytest.skip(str(missing))


class Program:
    """The program `nessie`, whose configuration lies in a directory of the test."""

    def __init__(self, uri: str, directory: Path) -> None:
        self.program = installed.python_environment("pynessie") / "nessie"
        self.endpoint = f"{uri}/api/v1"
        self.directory = directory

    def __call__(self, *arguments: str, stdin: str = "", editor: str = "") -> str:
        """What a command prints; a command that fails fails the test."""
        return self.ended(0, "--endpoint", self.endpoint, *arguments, stdin=stdin, editor=editor)

    def json(self, *arguments: str) -> Any:
        return json.loads(self("--json", *arguments))

    def refused(self, *arguments: str) -> dict[str, Any]:
        """The error that a command prints when the server refuses."""
        said = self.ended(1, "--json", "--endpoint", self.endpoint, *arguments)
        error: dict[str, Any] = json.loads(said)
        assert error["server_stack_trace"] is None
        return error

    def ended(self, status: int, *arguments: str, stdin: str = "", editor: str = "") -> str:
        environment = {"NESSIEDIR": str(self.directory), "EDITOR": editor}
        ended = installed.run([self.program, *arguments], environment, self.directory, stdin)
        assert ended.returncode == status, f"nessie {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
        return ended.stdout
