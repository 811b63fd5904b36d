"""A lake as a user gets one: in memory, and in a directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.lake.lake import Lake


@pytest.fixture(params=["memory", "directory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    place = "memory:" if request.param == "memory" else tmp_path / "lake"
    with penstock.open(place, create=True, author="tester") as lake:
        yield lake
