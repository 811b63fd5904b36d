"""Servers that speak version 1, over a lake in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.lake.opener import open_lake
from penstock.server.access import OpenGate
from penstock.server.limits import Limits
from penstock.server.nessie.v1 import V1
from tests.nessie.v1.talking import Nessie
from tests.server.running import local


@contextmanager
def _serving() -> Iterator[Nessie]:
    """Small pages, so that lists have several."""
    with (
        open_lake("memory:") as lake,
        local(lake.catalogue, (V1,), limits=Limits(page_max=4), gate=OpenGate(any_location=True)) as server,
    ):
        yield Nessie(server, lake)


@pytest.fixture
def nessie() -> Iterator[Nessie]:
    with _serving() as server:
        yield server


@pytest.fixture(scope="module")
def empty_nessie() -> Iterator[Nessie]:
    """For tests whose requests are all refused."""
    with _serving() as server:
        yield server
