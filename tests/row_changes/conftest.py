"""A lake for tests of changed rows, and other people's readers of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.lake.lake import Lake
from tests.formats.delta.conftest import duckdb

__all__ = ["duckdb", "lake"]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        yield lake
