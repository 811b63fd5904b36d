"""A page of another site cannot use a server on the reader's machine that asks for no token."""

from __future__ import annotations

import pytest

from penstock.errors import Denied
from penstock.server.access import OpenGate
from penstock.server.browsers import OwnPages
from tests.server.running import Program

LAKE = "/api/penstock/v1/lake"

DEV = OwnPages(OpenGate(), any_name=False)
INSECURE = OwnPages(OpenGate(), any_name=True)


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
    assert DEV(headers).is_admin
    assert INSECURE(headers).is_admin


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:8080", "", "http://["])
def test_pages_of_other_sites_are_not(origin: str) -> None:
    for gate in (DEV, INSECURE):
        with pytest.raises(Denied):
            gate({"host": "127.0.0.1:19120", "origin": origin})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:19120", "127.0.0.1.evil.example", "[", "a:b:c"]
)
def test_a_name_that_somebody_let_lead_here_is_not_answered(host: str) -> None:
    with pytest.raises(Denied):
        DEV({"host": host})
    assert INSECURE({"host": host}).is_admin


def test_a_started_server_refuses_them(penstock_server: Program) -> None:
    assert penstock_server.get(LAKE).status == 200
    assert penstock_server.get(LAKE, origin="https://evil.example").status == 403
    assert penstock_server.get(LAKE, host="evil.example").status == 403
    assert penstock_server.get("/healthz", host="a.probe").status == 200
