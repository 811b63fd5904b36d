"""A page of another site cannot use a server on the reader's machine that asks for no token."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import Denied
from penstock.server.access import OpenGate
from penstock.server.same_origin import OwnPages
from tests.server.running import Program, program

LAKE = "/api/penstock/v1/lake"

HERE = OwnPages(OpenGate(), any_name=False)
ANYWHERE = OwnPages(OpenGate(), any_name=True)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:19120"},
        {"host": "127.0.0.1:19120"},
        {"host": "[::1]:19120"},
        {"host": "127.0.0.1:19120", "origin": "http://127.0.0.1:19120"},
    ],
)
def test_programs_and_own_pages_are_answered(headers: dict[str, str]) -> None:
    assert HERE(headers).is_admin
    assert ANYWHERE(headers).is_admin


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:8080", "", "http://["])
def test_pages_of_other_sites_are_not(origin: str) -> None:
    for gate in (HERE, ANYWHERE):
        with pytest.raises(Denied):
            gate({"host": "127.0.0.1:19120", "origin": origin})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:19120", "127.0.0.1.evil.example", "[", "a:b:c"]
)
def test_a_name_that_somebody_let_lead_here_is_not_answered(host: str) -> None:
    with pytest.raises(Denied):
        HERE({"host": host})
    assert ANYWHERE({"host": host}).is_admin


def test_a_started_server_refuses_them(penstock_server: Program) -> None:
    assert penstock_server.get(LAKE).status == 200
    assert penstock_server.get(LAKE, origin="https://evil.example").status == 403
    assert penstock_server.get(LAKE, host="evil.example").status == 403
    assert penstock_server.get("/healthz", host="a.probe").status == 200


def test_a_server_without_tokens_on_this_machine_refuses_them_too(tmp_path: Path) -> None:
    with program(tmp_path, "--lake", "memory:", "--insecure", dev=False) as server:
        name = f"evil.example:{server.port}"
        assert server.get(LAKE, host=name, origin=f"http://{name}").status == 403
        assert server.ask("POST", "/api/penstock/v1/commits", {}, {"host": name}).status == 403
        assert server.get("/api/penstock/v1/tokens", host=name).status == 403
        assert server.get(LAKE, host=f"localhost:{server.port}").status == 200


@pytest.mark.verify
def test_one_that_other_machines_reach_has_whatever_name_they_know(tmp_path: Path) -> None:
    options = ("--lake", "memory:", "--host", "0.0.0.0", "--insecure")
    with program(tmp_path, *options, dev=False) as server:
        assert server.get(LAKE, host="lake.internal").status == 200
        assert server.get(LAKE, host="lake.internal", origin="https://evil.example").status == 403
        assert "can read and change the whole lake" in server.log
