"""``--json`` prints the answers of the native API, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.server.native import PREFIX
from tests.cli.conftest import Terminal, serving
from tests.server.running import Client


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Terminal, Any]]:
    """The command line and plain HTTP requests, at one server."""
    with serving(tmp_path / "lake") as server:
        token = server.token("ada", "admin")
        monkeypatch.setenv("PENSTOCK_TOKEN", token)
        server.terminal("branch", "create", "dev")
        server.terminal.put("sales.orders", "orders-1", "--branch", "dev")
        asker = Client(server.terminal.url)

        def get(path: str) -> Any:
            reply = asker.get(f"{PREFIX}{path}", authorization=f"Bearer {token}")
            assert reply.status == 200
            return json.loads(reply.body)

        yield server.terminal, get


def without_hashes(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**token, "secret_hash": ""} for token in tokens]


def test_answers_are_those_of_the_api(both: tuple[Terminal, Any]) -> None:
    terminal, get = both
    about = get("/lake") | {"url": terminal.url}
    assert terminal.json("root") == terminal.json("grace") == terminal.json("horizon") == about
    assert terminal.json("branch")["items"] == get("/references?kind=branch")
    assert terminal.json("reflog", "dev")["items"] == get("/references/dev/log?limit=50")
    assert terminal.json("diff", "main", "dev")["items"] == get("/diff?before=main&to=dev")
    assert terminal.json("show", "dev", "sales.orders") == get("/contents?at=dev&key=sales.orders")[0]
    assert terminal.json("token")["items"] == without_hashes(get("/tokens"))
    assert terminal.json("delta")["items"] == get("/delta/status")
    shown, commit = terminal.json("show", "dev"), get("/commits/dev")
    assert {name: shown[name] for name in commit} == commit
    assert shown["changes"] == get("/commits/dev/changes")


def test_errors_are_those_of_the_api(both: tuple[Terminal, Any]) -> None:
    terminal, _ = both
    told = json.loads(terminal("show", "nowhere", "--json", status=4).err)
    assert sorted(told) == ["error", "request_id"]
    assert sorted(told["error"]) == ["code", "details", "message"]
    assert told["request_id"]
