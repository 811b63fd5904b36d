"""A server with Nessie's API over an empty lake in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.server.access import OpenGate
from penstock.server.limits import Limits
from penstock.server.nessie.v2 import V2
from tests.nessie.v2.talking import Talk
from tests.server.running import local

SMALL = Limits(page_max=5, operations_max=50)


@pytest.fixture
def lake() -> Iterator[Lake]:
    with open_lake("memory:", author="ada") as made:
        yield made


@pytest.fixture
def nessie(lake: Lake) -> Iterator[Talk]:
    """The server, with pages of at most five items."""
    with local(lake.catalogue, [V2], limits=SMALL, gate=OpenGate(any_location=True)) as server:
        yield Talk(server)
        assert '"status":500' not in server.log.replace(" ", "")
