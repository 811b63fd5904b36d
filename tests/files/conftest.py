"""Lakes with a place for files: one in this process, and the same one behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from tests.remote.conftest import QUICK, Switch
from tests.remote.serving import Served, serving


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


@pytest.fixture(scope="session")
def switch() -> Switch:
    """What the server serves: the lake of the test that runs."""
    return Switch()


@pytest.fixture(scope="session")
def server(switch: Switch) -> Iterator[Served]:
    with serving(switch) as server:
        yield server


@pytest.fixture
def far(own: Lake, server: Served, switch: Switch) -> Iterator[Lake]:
    switch.lake, switch.afterwards = own, lambda _: None
    with Lake(RemoteCatalogue(server.url, patience=QUICK), author="tester") as lake:
        yield lake


@pytest.fixture(params=["here", "behind a server"])
def lake(request: pytest.FixtureRequest) -> Lake:
    found: Lake = request.getfixturevalue("own" if request.param == "here" else "far")
    return found
