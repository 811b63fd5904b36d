"""Nessie and Penstock side by side, started when the first scenario needs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.penstock_server import serving
from tests.servers import nessie
from tests.servers.fixtures import or_skipped


@pytest.fixture(scope="session")
def nessie_url() -> Iterator[str]:
    with or_skipped(nessie.started()) as server:
        yield server.url


@pytest.fixture(scope="session")
def penstock_url() -> Iterator[str]:
    with serving("memory:") as server:
        yield server.uri
