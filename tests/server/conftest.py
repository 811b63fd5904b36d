"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from tests.server.running import Program, program


@pytest.fixture
def penstock_server(tmp_path: Path) -> Iterator[Program]:
    """``penstock serve --dev`` on an empty lake in memory."""
    with program(tmp_path, "--lake", "memory:") as server:
        yield server


@pytest.fixture
def lake() -> Iterator[Lake]:
    """An empty lake in memory."""
    with open_lake("memory:", author="ada") as made:
        yield made
