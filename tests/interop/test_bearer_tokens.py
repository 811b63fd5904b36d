"""Nessie's clients carry Penstock's tokens as they carry any bearer token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.interop.nessie_program import Program, installed_program
from tests.interop.penstock_server import serving


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """A lake in `tmp_path / "lake"`, and a token of two roles."""
    lake = penstock.init(str(tmp_path / "lake"))
    made = {role: lake.create_token(f"a token to {role}", role) for role in ("read", "write")}
    lake.close()
    return made


@pytest.fixture
def program(tokens: dict[str, str], tmp_path: Path) -> Iterator[Program]:
    with serving(str(tmp_path / "lake"), for_everybody=False) as server:
        yield installed_program(server.uri, tmp_path)


def test_a_token_lets_its_owner_do_what_its_role_allows(program: Program, tokens: dict[str, str]) -> None:
    assert program.refused("branch")["status_code"] == 401
    assert program.refused("--auth-token", "penstock_000000000000_guessed", "branch")["status_code"] == 401

    def names() -> list[str]:
        return [str(each["name"]) for each in program.json("--auth-token", tokens["read"], "branch")]

    refusal = program.refused("--auth-token", tokens["read"], "branch", "dev")
    assert (refusal["status_code"], refusal["error_code"]) == (403, "FORBIDDEN")
    assert names() == ["main"]
    program("--auth-token", tokens["write"], "branch", "dev")
    assert sorted(names()) == ["dev", "main"]
