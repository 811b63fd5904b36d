"""A server with Lance's API, and the clients that are pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lance.namespace import RestNamespace
from lance_namespace import CreateNamespaceRequest

from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake
from penstock.server.access import OpenGate
from tests.lance.rest.talking import Talk, lance_at
from tests.server.running import Local, local


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with init_lake("memory:", warehouse=str(tmp_path / "warehouse"), author="ada") as made:
        yield made


@pytest.fixture
def server(lake: Lake) -> Iterator[Local]:
    with local(lake.catalogue, [LANCE], gate=OpenGate(any_location=True)) as running:
        yield running
        assert '"status":500' not in running.log.replace(" ", "")


@pytest.fixture
def talk(server: Local) -> Talk:
    """Plain requests to the default branch."""
    return Talk(server, "/lance")


@pytest.fixture
def namespace(server: Local) -> RestNamespace:
    """Lance's own client of the default branch, with a namespace ``ws``."""
    client = lance_at(f"{server.url}/lance")
    client.create_namespace(CreateNamespaceRequest(id=["ws"]))
    return client
